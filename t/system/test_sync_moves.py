#!/usr/bin/python3
"""Routers of a group, or their Redis, are replaced by others, as operators do
it: a binary upgrade, Sentinel's failover, a rolling restart; TAP.

KVR_STREAM: for how many seconds the streams of the upgrade last.
"""

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time

from routers import Group       # of here: stage puts the demo's first
import stage
import test_sentinel
from relay import RELAY
from stage import PATIENCE, runs, wait_until
from test_sync_faults import signalled
from worker import Worker

STREAM = float(os.environ.get("KVR_STREAM", "8"))
TALKS, HEAD = 60, 48 * stage.BLOCK_SIZE     # tokens that a talk's prompts share
BLOCKS = 2048                   # of a cache, which has no room for all talks
CLIENTS = 8
REQUESTS = 500                  # before the restart, to fill the caches
WINDOW = 10                     # seconds that a hit rate is measured
LESS = 0.1                      # that the hit rate may be, afterwards

at = None                       # the group, set by main()


# -------------------------------------------------------------- one by another

def states(router):
    """In which states its peers are."""
    return sorted(peer["state"] for peer in router.status()["sync"]["peers"])


def an_upgrade_tells_to_the_end():
    """after a binary upgrade the old nginx tells of its streams to their end"""
    a, b = at.routers
    a.adopt()
    wait_until("b has one peer", lambda: states(b) == ["fresh"], PATIENCE)
    held = [at.hold(a, 4, mode="held_body")]
    at.exact()
    old = a.upgrade()
    os.kill(old, signal.SIGQUIT)
    for router in (a, b):
        wait_until("the old one leaves, the new one is there", lambda router=(
            router): states(router) == ["fresh", "leaving"], PATIENCE)
    held.append(at.hold(a, 2, mode="held_body"))
    at.exact()
    samples, ends = [], time.monotonic() + STREAM
    while time.monotonic() < ends:
        samples += [sum(map(sum, router.load().values())) for router in (a, b)]
        time.sleep(0.2)
    print(f"# {STREAM:.0f} s: {samples.count(6)} of {len(samples)} sums are 6")
    at.exact()
    assert runs(old) and sum(own for own, _ in a.load().values()) == 2
    at.release(*held)
    wait_until("the old one has ended", lambda: not runs(old), PATIENCE)
    for router in (a, b):
        wait_until("it is gone", lambda router=router: states(router)
                   == ["fresh"], PATIENCE)
    at.quiet()
    for router in at.routers:
        router.check_log()


# -------------------------------------------------------------------- Sentinel

def sentinel_moves_all():
    """Sentinel makes another Redis the master: all meet there, and once more"""
    a, b = at.routers
    with stage.Stage("sync-sentinel") as place, contextlib.closing(
            test_sentinel.Tests(place)) as redis:
        for router in at.routers:
            router.stop_nginx()
            at.start(router, url=" ".join(redis.url()))
        at.meet()
        held = [at.hold(router, 3) for router in at.routers]
        at.exact()

        redis.servers[0].signal(signal.SIGKILL)
        redis.servers[0].stop()
        redis.is_master(1)
        held += [at.hold(router, 2) for router in at.routers]
        at.exact()

        # b stands still, and is still connected to the first one

        redis.start_server(0, "--replicaof", "127.0.0.1", str(redis.ports[1]))
        pids = b.every()
        signalled(pids, signal.SIGSTOP)
        try:
            wait_until("the Sentinel changes the master", lambda:
                       test_sentinel.safely(
                           lambda: redis.sentinel.execute_command(
                               "SENTINEL", "failover", test_sentinel.MASTER)),
                       2 * PATIENCE)
            redis.is_master(0)
            held.append(at.hold(a, 1))
        finally:
            signalled(pids, signal.SIGCONT)
        held.append(at.hold(b, 1))
        at.exact()
        at.release(*held)
        for router in at.routers:
            router.check_log("redis", r"recv\(\) failed")


# ------------------------------------------------------------- rolling restart

class Engine(Worker):
    """An engine with a cache, and its relay."""

    def __init__(self, name, first):
        super().__init__(name, first.directory, "--blocks", str(BLOCKS),
                         "--block-size", str(stage.BLOCK_SIZE))
        self.wait_ready()
        self.start_relay(RELAY, first.redis_url(), "--block-size",
                         str(stage.BLOCK_SIZE), "--listen", "127.0.0.1:0")

    die = Worker.stop


class Fleet(Group):
    """Routers that know what engines have in their caches."""

    policy = "kv_cost"

    def __init__(self, names, engines):
        super().__init__(names, ())
        self.engines = [Engine(name, self.first) for name in engines]


class Front(stage.Stage):
    """An nginx that sends to the routers by turns, and on to the next one."""

    def _write_conf(self, engines, policy, url, log):
        servers = "".join(f"server {address} max_fails=0; "
                          for address in engines.values())
        (self.directory / "nginx.conf").write_text(f"""
            worker_processes 1;
            daemon off;
            pid nginx.pid;
            error_log {log};
            events {{ worker_connections 1024; }}
            http {{
                access_log off;
                upstream routers {{ {servers} }}
                server {{
                    listen 127.0.0.1:{self.port};
                    client_body_buffer_size 1m;
                    location / {{
                        proxy_pass http://routers;
                        proxy_next_upstream error timeout http_502 http_503
                                            non_idempotent;
                    }}
                }}
            }}""")


class Load:
    """Clients that talk: tokens of prompts, those that were cached, by time."""

    def __init__(self, front):
        self.front = front
        self.answers, self.failures = [], []
        self.heads = [random.choices(range(1 << 17), k=HEAD)
                      for _ in range(TALKS)]
        self.enough = threading.Event()
        self.threads = [threading.Thread(target=self._run, daemon=True)
                        for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _run(self):
        while not self.enough.is_set():
            try:
                usage = json.loads(self.front.call("POST", "/v1/completions", {
                    "prompt": random.choice(self.heads)
                    + random.choices(range(1 << 17), k=stage.BLOCK_SIZE),
                    "max_tokens": random.randint(1, 100)}))["usage"]
                self.answers.append((usage["prompt_tokens"], usage[
                    "prompt_tokens_details"]["cached_tokens"]))
            except OSError as err:
                self.failures.append(err)

    def rate(self, act):
        """The hit rate, and of how many answers, while something is done."""
        before = len(self.answers)
        act()
        asked, cached = map(sum, zip(*self.answers[before:]))
        print(f"# hit rate {cached / asked:.1%} of {len(self.answers) - before}"
              f" requests")
        return cached / asked

    def stop(self):
        """Ends when all have their answers."""
        self.enough.set()
        for thread in self.threads:
            thread.join()


def a_rolling_restart_is_not_seen():
    """three routers restart, one by one: no request fails, caches are hit"""
    with Fleet("abc", ("w1", "w2", "w3", "w4")) as fleet, Front(
            "sync-front") as front:
        front.start_nginx({router.name: f"127.0.0.1:{router.port}"
                           for router in fleet.routers})

        def restart():
            for router in fleet.routers:
                router.check_log()
                router.nginx.signal(signal.SIGQUIT)
                wait_until("it has ended", lambda router=router:
                           router.nginx.status() is not None, PATIENCE)
                fleet.start(router)
                for engine in fleet.engines:
                    router.wait_confidence(engine.name, "EXACT")

        load = Load(front)
        wait_until("the caches are full", lambda: len(load.answers) > REQUESTS,
                   PATIENCE)
        before = load.rate(lambda: time.sleep(WINDOW))
        load.rate(restart)
        after = load.rate(lambda: time.sleep(WINDOW))
        load.stop()
        assert not load.failures, load.failures
        assert after > before - LESS, (before, after)
        fleet.quiet()
        for router in fleet.routers:
            router.check_log()


def main():
    """Runs the tests on two routers, and others."""
    global at
    with Group("ab") as at:
        return at.first.run([
            an_upgrade_tells_to_the_end, sentinel_moves_all,
            a_rolling_restart_is_not_seen])


if __name__ == "__main__":
    sys.exit(main())
