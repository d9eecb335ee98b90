"""What goes wrong: faults of engines, relays, Redis and nginx, by kind.

A fault is a function of the plant, the worker that it is about, and a random
generator of its own.  It does harm, undoes what an operator or a supervisor
would undo, and returns; what has to be well again afterwards, and how soon,
the referee knows.
"""

import contextlib
import json
import os
import shutil
import signal
import time

import redis

from stage import PATIENCE, PROCESSES, wait_until

from .engine import TOO_LARGE
from .fleet import SUPERSEDED

BURST = 96_000                  # slots times requests of one batch
LEASE_SECONDS = 5.0             # of a relay
WRITER_SECONDS = 3.2            # more than nginx's lease lives
CHANNEL = "kv-events:{no worker}"
JUNK = b"\0" * 65536            # a message that no worker sends

KINDS = {}                      # kind -> Kind
APART = (                       # what can't be mended when both happen
    (("redis_lost_all", "redis_lost_a_second"),     # where its state was,
     ("relay_", "clock_", "engine_and_", "drainer_")),  # and a relay
    (("redis_clock_stepped",),          # where a dead one's lease ends late
     ("relay_", "clock_", "engine_and_", "drainer_", "buffer_overrun")),
    (("nginx_stalled",), ("nginx_", "writer_")))


class Kind:
    """One kind of fault; those of one scope are not to be at once."""

    def __init__(self, name, scope, run, recoverable):
        self.name, self.scope, self.run = name, scope, run
        self.recoverable = recoverable

    def adds_to(self, kind):
        """Whether it can happen to a worker that has lost something by that
        kind: it doesn't heal, and has to do with relays, Redis or nginx."""
        return self.recoverable and (
            self.scope in ("redis", "nginx")
            or self.name.startswith(("relay_", "clock_", "wire_"))
            or self.name in ("messages_dropped", "burst", "message_large")
            and KINDS[kind].scope == "worker")


def apart(one, other):
    """Whether two kinds must not be at once."""
    return any(a in kinds and b.startswith(begin)
               for a, b in ((one, other), (other, one))
               for kinds, begin in APART)


def fault(scope, recoverable=True):
    """Declares a function as a kind of fault."""
    def declare(run):
        KINDS[run.__name__] = Kind(run.__name__, scope, run, recoverable)
        return run
    return declare


# ------------------------------------------------------------------- relays

@fault("worker")
def relay_killed(plant, worker, rng):
    """kill -9 a relay; another one is started."""
    relay = plant.fleet.relays[worker]
    relay.kill()
    time.sleep(rng.uniform(0, 1.5))
    relay.start()


@fault("worker")
def relay_killed_before_exec(plant, worker, rng):
    """... between receiving a batch and EXEC, at any byte of it."""
    relay = plant.fleet.relays[worker]
    relay.proxy.cut_request(rng.random(), lambda: relay.signal(
        signal.SIGKILL))
    _cut(plant, relay)
    relay.kill()
    relay.start()


@fault("worker")
def relay_killed_after_exec(plant, worker, _rng):
    """... between EXEC and its answer."""
    relay = plant.fleet.relays[worker]
    relay.proxy.cut_answer(lambda: relay.signal(signal.SIGKILL))
    _cut(plant, relay)
    relay.kill()
    relay.start()


@fault("worker")
def wire_cut(plant, worker, rng):
    """The wire between a relay and Redis is cut within transactions."""
    relay = plant.fleet.relays[worker]
    for _ in range(4):
        if rng.random() < 0.5:
            relay.proxy.cut_request(rng.random(), lambda: None)
        else:
            relay.proxy.cut_answer(lambda: None)
        _cut(plant, relay)


@fault("worker")
def relay_restarted(plant, worker, rng):
    """SIGTERM: it deregisters its worker; another one is started."""
    relay = plant.fleet.relays[worker]
    relay.stop()
    time.sleep(rng.uniform(0, 0.5))
    relay.start()


@fault("worker")
def relay_twice(plant, worker, rng):
    """Two relays for one worker; the first is killed, and comes no more."""
    first = plant.fleet.relays[worker]
    second = first.twin()
    second.start()
    time.sleep(rng.uniform(1, 2))
    assert second.status() is None, (worker, second.status())
    plant.fleet.relays[worker] = second
    first.kill()


@fault("worker")
def relay_stopped(plant, worker, rng):
    """SIGSTOP a relay past its lease, with a second one waiting or not."""
    first = plant.fleet.relays[worker]
    second = first.twin() if rng.random() < 0.7 else None
    lease = "kv-lease:{%s}" % worker
    # one that was started a moment ago may wait for the lease of a dead relay
    wait_until("the relay has the lease", first.works, PATIENCE)
    owner = plant.asked("get", lease)
    if second:
        second.start()
        time.sleep(1)
        plant.fleet.relays[worker] = second
    first.signal(signal.SIGSTOP)
    time.sleep(LEASE_SECONDS + rng.uniform(1, 2))
    if second:
        wait_until("the second relay has the lease", lambda: plant.asked(
            "get", lease) not in (owner, None), PATIENCE)
    waits = first.waits()
    first.signal(signal.SIGCONT)
    if second:
        wait_until("the first relay ends, or stands by", lambda: (
            first.status() is not None or first.waits() > waits), PATIENCE)
        if first.waits() > waits:   # its connection was cut while it stood
            first.kill()
        else:
            assert first.status() == SUPERSEDED, (worker, first.status())
        first.proxy.close()


@fault("worker")
def clock_stepped_back(plant, worker, rng):
    """A relay's clock steps back while it runs, and again as it starts."""
    relay = plant.fleet.relays[worker]
    back = rng.randrange(60, 86400)
    relay.clock.set(-back)
    time.sleep(rng.uniform(0.5, 1.5))
    relay.kill()
    relay.clock.set(-2 * back)
    relay.start()


@fault("worker")
def clock_stepped_forth(plant, worker, rng):
    """A relay's clock steps to and fro, and is right in the end."""
    relay = plant.fleet.relays[worker]
    for _ in range(rng.randrange(1, 4)):
        relay.clock.set(rng.randrange(-86400, 86400))
        time.sleep(rng.uniform(0, 1))
        if rng.random() < 0.5:
            relay.kill()
            relay.start()
    relay.clock.set(0)


def _cut(plant, relay):
    """Waits until the wire was cut; a relay that sends nothing is spared."""
    with contextlib.suppress(plant.errors):
        wait_until("the wire is cut", relay.proxy.is_cut, 3)
    relay.proxy.mend()


# ------------------------------------------------------------------ engines

@fault("worker")
def engine_restarted(plant, worker, rng):
    """An engine restarts: it holds nothing, and counts from 0."""
    engine = plant.fleet.engines[worker]
    engine.fall()
    time.sleep(rng.uniform(0, 1))
    engine.rise()


@fault("worker")
def engine_and_relay_restarted(plant, worker, rng):
    """An engine restarts while its relay is dead."""
    engine, relay = plant.fleet.engines[worker], plant.fleet.relays[worker]
    relay.kill()
    engine.fall()
    time.sleep(rng.uniform(0, 0.3))
    engine.rise()
    for _ in range(rng.randrange(0, 60)):
        engine.step()
    relay.start()


@fault("worker")
def messages_dropped(plant, worker, rng):
    """ZMQ messages are lost, and are in the replay buffer."""
    engine = plant.fleet.engines[worker]
    number = rng.randrange(engine.profile.ranks)
    engine.mute(number, rng.randrange(1, engine.profile.buffer // 2))
    _run_out(engine, number)


@fault("worker", recoverable=False)
def messages_lost(plant, worker, rng):
    """ZMQ messages are lost, and the replay buffer leaves them out."""
    engine = plant.fleet.engines[worker]
    engine.steady = True
    number = rng.randrange(engine.profile.ranks)
    engine.mute(number, rng.randrange(1, 20), keep=False)
    _run_out(engine, number)


@fault("worker", recoverable=False)
def messages_outrun(plant, worker, rng):
    """A clear, and all that the replay buffer holds behind it, before their
    relay can ask for any of them: what follows fits what was before."""
    engine, relay = plant.fleet.engines[worker], plant.fleet.relays[worker]
    engine.steady = True
    number = rng.randrange(engine.profile.ranks)
    relay.signal(signal.SIGSTOP)
    engine.mute(number, engine.profile.buffer)
    engine.clear(number)
    _run_out(engine, number)
    relay.signal(signal.SIGCONT)


@fault("worker", recoverable=False)
def buffer_overrun(plant, worker, rng):
    """While its relay is dead an engine says more than its buffer holds; the
    next one has a snapshot, and envelopes behind it or none."""
    engine, relay = plant.fleet.engines[worker], plant.fleet.relays[worker]
    engine.steady = True
    engine.rest(rng.random() < 0.5)
    if engine.resting:
        _covered(plant, worker)
    relay.kill()
    engine.listen(False)
    engine.rest(False)
    last = [seq for _, seq in engine.position()]
    more = engine.profile.buffer + 1
    if rng.random() < 0.5:
        engine.clear()
    else:
        more += rng.randrange(2, 50)
    while any(seq < before + more for before, (_, seq)
              in zip(last, engine.position())):
        engine.step()
    engine.listen(True)
    relay.start()


@fault("worker")
def burst(plant, worker, rng):
    """A batch that is many envelopes; its relay is killed behind it."""
    engine, relay = plant.fleet.engines[worker], plant.fleet.relays[worker]
    engine.burst(rng.randrange(engine.profile.ranks),
                 max(24, BURST // engine.profile.slots))
    if rng.random() < 0.5:
        time.sleep(rng.uniform(0, 0.1))
        relay.kill()
        relay.start()


@fault("worker")
def message_large(plant, worker, rng):
    """A message that is as large as one may be."""
    _say(plant.fleet.engines[worker], rng, TOO_LARGE - (1 << 20))


@fault("worker", recoverable=False)
def message_too_large(plant, worker, rng):
    """A message that nobody reads, it is that large."""
    engine = plant.fleet.engines[worker]
    engine.steady = True
    _say(engine, rng, TOO_LARGE + (1 << 20))


@fault("drain", recoverable=False)
def drain_too_large(plant, worker, _rng):
    """What an engine that is drained has to say is too much at once."""
    engine = plant.fleet.engines[worker]
    engine.swell(TOO_LARGE + (1 << 20))
    while engine.swollen():
        engine.step()
        time.sleep(0.02)


@fault("drain", recoverable=False)
def drain_lost(plant, worker, _rng):
    """What an engine that is drained had to say was taken by another."""
    engine = plant.fleet.engines[worker]
    while not engine.lose():
        engine.step()


@fault("drain", recoverable=False)
def drainer_killed(plant, worker, _rng):
    """kill -9 the relay of an engine that is drained, with what it took."""
    relay = plant.fleet.relays[worker]
    relay.kill()
    drain_lost(plant, worker, _rng)
    relay.start()


@fault("drain")
def drained_engine_restarted(plant, worker, rng):
    """An engine that is drained restarts: its events count from 0."""
    engine_restarted(plant, worker, rng)


def _covered(plant, worker):
    """Asks for a snapshot until there is one of all that an engine that rests
    has said; without Redis there is none."""
    engine, client = plant.fleet.engines[worker], plant.stage.redis
    said = [seq for _, seq in engine.position()]
    def covered():
        try:
            client.set("kv-snap-ask:{%s}" % worker, "1", ex=5)
            known = json.loads(client.hget("kv-snap:{%s}" % worker,
                                           "engine_seq") or "{}")
        except redis.RedisError:
            return False
        return [known.get(str(rank), -1) for rank in range(len(said))] == said
    with contextlib.suppress(plant.errors):
        wait_until("all is in a snapshot", covered, 6)


def _say(engine, rng, size):
    """Has a rank say a message of that size at least."""
    number = rng.randrange(engine.profile.ranks)
    engine.swell(number, size)
    while engine.swollen(number):
        engine.step()


def _run_out(engine, number):
    """Lets the engine work until a rank is heard again."""
    while engine.muted(number):
        engine.step()
    _, last = engine.position()[number]
    while engine.position()[number][1] <= last:
        engine.step()


# -------------------------------------------------------------------- Redis

@fault("redis")
def redis_restarted(plant, _worker, rng):
    """Redis ends, gently or not, and comes back with its data."""
    plant.stage.stop_redis(rng.choice((signal.SIGTERM, signal.SIGKILL)))
    time.sleep(rng.uniform(0, 2))
    plant.start_redis()


@fault("redis")
def redis_lost_all(plant, _worker, rng):
    """Redis comes back without its data."""
    plant.stage.stop_redis(signal.SIGKILL)
    shutil.rmtree(plant.redis_data())
    time.sleep(rng.uniform(0, 1))
    plant.start_redis()


@fault("redis")
def redis_lost_a_second(plant, _worker, rng):
    """Redis comes back without what the last second has brought."""
    aside = plant.stage.directory / "aside"
    shutil.copytree(plant.redis_data(), aside)
    time.sleep(rng.uniform(0.8, 1.2))
    plant.stage.stop_redis(signal.SIGKILL)
    shutil.rmtree(plant.redis_data())
    aside.rename(plant.redis_data())
    plant.start_redis()


@fault("redis")
def clients_killed(plant, _worker, rng):
    """CLIENT KILL of the subscriber, or of everybody."""
    for _ in range(rng.randrange(1, 4)):
        kinds = ("pubsub",) if rng.random() < 0.5 else ("pubsub", "normal")
        for kind in kinds:
            plant.kill_clients(kind)
        time.sleep(rng.uniform(0, 1))


@fault("redis")
def nginx_stalled(plant, _worker, _rng):
    """All of nginx is stopped until Redis drops the subscriber."""
    stage, client = plant.stage, plant.stage.redis
    client.config_set("client-output-buffer-limit", "pubsub 1mb 0 0")
    wait_until("nginx is subscribed", lambda: client.publish(
        CHANNEL, b""), PATIENCE)
    stopped = stage.children()
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        for _ in range(2000):
            if client.publish(CHANNEL, JUNK) == 0:
                break
        else:
            raise AssertionError("redis has not dropped the subscriber")
        time.sleep(0.5)
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@fault("redis")
def redis_clock_stepped(plant, _worker, rng):
    """Redis's clock steps back and forth: what expires does so too late, and
    all at once."""
    _step(plant.stage.clock("redis"), rng)


# -------------------------------------------------------------------- nginx

@fault("nginx")
def nginx_clock_stepped(plant, _worker, rng):
    """The clock of nginx steps back and forth."""
    _step(plant.stage.clock("nginx"), rng)


@fault("nginx")
def nginx_reloaded(plant, _worker, rng):
    """nginx -s reload."""
    for _ in range(rng.randrange(1, 3)):
        plant.stage.reload()


@fault("nginx")
def nginx_worker_killed(plant, _worker, rng):
    """kill -9 a worker process of nginx that doesn't write."""
    stage = plant.stage
    others = stage.children() - plant.writers()
    if others:
        _kill(stage, rng.choice(sorted(others)))


@fault("nginx")
def writer_killed(plant, _worker, rng):
    """kill -9 the writer, again and again."""
    for _ in range(rng.randrange(1, 4)):
        writers = plant.writers()
        if writers:
            _kill(plant.stage, min(writers))
        time.sleep(rng.uniform(0, 0.6))


@fault("nginx")
def writer_stopped(plant, _worker, _rng):
    """SIGSTOP the writer past its lease."""
    stopped = plant.writers()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(WRITER_SECONDS)
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _step(clock, rng):
    for _ in range(rng.randrange(1, 4)):
        clock.set(rng.choice((-1, 1)) * rng.randrange(2, 86400))
        time.sleep(rng.uniform(0.5, 2))
    clock.set(0)


def _kill(stage, pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until("it is replaced", lambda: len(
        stage.children() - {pid}) >= PROCESSES, PATIENCE)


def kill_clients(client, kind):
    """Ends connections to Redis of a kind, but for the oracle's."""
    for one in client.client_list(_type=kind):
        if one["name"] not in ("oracle", "test"):
            with contextlib.suppress(redis.ResponseError):
                client.client_kill_filter(_id=one["id"], skipme=True)
