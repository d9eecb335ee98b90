#!/usr/bin/python3
"""Routers of a group, their processes, their Redis and its messages fail in
every way: each knows the others' load again, exactly; TAP.

Before each fault requests are in flight by all routers; after it they, and
others, are known everywhere; then they end, and every counter is 0.
"""

import collections
import contextlib
import os
import signal
import sys
import threading
import time

import msgpack
import redis

from routers import Group, Router, Told
from stage import PATIENCE, Process, free_port, milliseconds, wait_until

SECRET = "sesame"
ABOUT = 1.5                     # seconds: each has told who it is
AWAY = (0, 200, 502)            # of requests whose nginx may be killed

at = None                       # the group, set by main()


# ------------------------------------------------------------ what goes wrong

def signalled(pids, number):
    """Sends a signal to each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def nothing_of(router):
    """Waits until the others have nothing that the router told."""
    others = [other for other in at.routers if other is not router]

    def gone():
        return all(sum(peers for _, peers in other.load().values()) == sum(
            own for rest in others if rest is not other
            for own, _ in rest.load().values()) for other in others)
    wait_until(f"nothing of {router.name} counts", gone, PATIENCE)


@contextlib.contextmanager
def killed(router):
    """all its processes are killed, and nginx is started again"""
    signalled(router.every(), signal.SIGKILL)
    nothing_of(router)
    for other in at.routers:
        if other is not router:
            other.hears(*(third.name for third in at.routers
                          if third not in (router, other)))
    yield
    router.stop_nginx()
    at.start(router)


@contextlib.contextmanager
def stopped(router):
    """all its processes are stopped, and go on"""
    pids = router.every()
    signalled(pids, signal.SIGSTOP)
    try:
        nothing_of(router)
        yield
    finally:
        signalled(pids, signal.SIGCONT)


@contextlib.contextmanager
def reloaded(router):
    """it is reloaded, twice"""
    router.reload()
    at.exact()
    router.reload()
    at.exact()
    yield


@contextlib.contextmanager
def teller_killed(router):
    """the process that tells and hears is killed alone"""
    leader = router.leader()
    signalled([leader], signal.SIGKILL)
    wait_until("another process leads", lambda: router.leader() != leader,
               PATIENCE)
    yield


@contextlib.contextmanager
def teller_stopped(router):
    """the process that tells and hears is stopped alone, and goes on"""
    leader = router.leader()
    signalled([leader], signal.SIGSTOP)
    try:
        at.exact(*(other for other in at.routers if other is not router))
        yield
    finally:
        signalled([leader], signal.SIGCONT)


@contextlib.contextmanager
def redis_killed(_router):
    """Redis is killed, and started again"""
    at.first.stop_redis(signal.SIGKILL)
    for router in at.routers:
        wait_until("no peer counts", lambda router=router: not any(
            peers for _, peers in router.load().values()), PATIENCE)
    yield
    at.first.start_redis()


@contextlib.contextmanager
def redis_stopped(_router):
    """Redis stands still, and goes on"""
    at.first.redis_server.signal(signal.SIGSTOP)
    try:
        wait_until("no peer counts", lambda: not any(
            peers for router in at.routers
            for _, peers in router.load().values()), PATIENCE)
        yield
    finally:
        at.first.redis_server.signal(signal.SIGCONT)


@contextlib.contextmanager
def overrun(router):
    """it stands still until Redis ends its subscription, whose output is full"""
    client, limit = at.first.redis, "client-output-buffer-limit"
    before = client.config_get(limit)[limit]
    channel = client.pubsub_channels("kv-sync:*")[0]

    def ended():
        for _ in range(100):
            client.publish(channel, bytes(16384))
        return client.pubsub_numsub(channel)[0][1] < len(at.routers)

    client.config_set(limit, "pubsub 1mb 0 0")
    try:
        with stopped(router):
            wait_until("Redis ends a subscription", ended, PATIENCE)
            yield
    finally:
        client.config_set(limit, before)


@contextlib.contextmanager
def dropped(router):
    """its subscription ends again and again, and with it what was sent"""
    for _ in range(5):
        at.first.redis.client_kill_filter(_type="pubsub", skipme=True)
        time.sleep(0.05)
    yield


@contextlib.contextmanager
def messages(spoil):
    """Calls spoil(channel, message) with each message of the routers."""
    client = redis.Redis(port=at.first.redis_port)
    hears = client.pubsub()
    hears.psubscribe("kv-sync:*")
    enough = threading.Event()
    count = 0

    def run():
        nonlocal count
        own = collections.Counter()     # what was published here comes, too
        while not enough.is_set():
            message = hears.get_message(timeout=0.1)
            if not message or message["type"] != "pmessage":
                continue
            data = message["data"]
            if own[data] > 0:
                own[data] -= 1
                continue
            for more in spoil(msgpack.unpackb(data), data):
                own[more] += 1
                client.publish(message["channel"], more)
                count += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
        wait_until("messages were spoilt", lambda: count > 20, PATIENCE)
    finally:
        enough.set()
        thread.join(PATIENCE)
        hears.close()
        client.close()


def doubled(_router):
    """each message comes twice"""
    return messages(lambda message, data: [data])


def delayed(_router):
    """old messages come again behind new ones"""
    before = []

    def spoil(_message, data):
        before.append(data)
        return before[-40:-39]
    return messages(spoil)


def garbage(_router):
    """what is no message is published"""
    return messages(lambda message, data: [
        data[:-1], data + b"\0", b"", b"\xc1" * 64, os.urandom(200),
        msgpack.packb(Told(*message)._replace(rows=[[1, 2]])),
        msgpack.packb(Told(*message)._replace(version=2))])


def forged(_router):
    """a router that is none tells of load, of numbers without end"""
    number = 0

    def spoil(message, _data):
        nonlocal number
        number += 1
        told = Told(*message)
        rows = [[row[0], 1 << 63, -1, 1 << 62, 1 << 61, 1 << 60]
                for row in told.rows]
        return [msgpack.packb(told._replace(
            router=0xBAD, about=[99, 1 << 63, False, "ghost", "0.1.0"],
            rows=rows, adds=[[number, 7, bytes(range(6))]], ends=[]))]
    return messages(spoil)


def robbed(_router):
    """rows that a router has never told come in its name"""
    def spoil(message, _data):
        told = Told(*message)
        rows = [[row[0], 1000, 0, 0, 0, 0] for row in told.rows]
        return [msgpack.packb(told._replace(rows=rows))] if rows else []
    return messages(spoil)


FAULTS = (killed, stopped, reloaded, teller_killed, teller_stopped,
          redis_killed, redis_stopped, overrun, dropped, doubled, delayed,
          garbage, forged, robbed)
ENDED = ("killed", "teller_killed")     # requests of these may end


def fault(wrong):
    """The test of one of them."""
    def test():
        _, b, c = at.routers
        held = [at.hold(router, 4, statuses=AWAY
                        if wrong.__name__ in ENDED and router is b else (200,))
                for router in at.routers]
        at.exact()
        with wrong(b):
            more = at.hold(c, 2)        # nginx serves meanwhile
        at.meet()
        held += [more, at.hold(b, 2)]
        at.exact()
        at.release(*held)
    test.__doc__ = f"{wrong.__doc__}: all is known again, and ends"
    return test


# --------------------------------------------------- routers that share less

@contextlib.contextmanager
def another(name, url=None, **attributes):
    """One more nginx, on the same Redis unless said otherwise."""
    router = Router(name, at.first)
    for key, value in attributes.items():
        setattr(router, key, value)
    try:
        at.start(router, url=url)
        yield router
    finally:
        router.__exit__()


def other_parameters_are_another_group():
    """with another block size a router is in a group of its own"""
    with another("d", block_size=32) as d:
        held = at.hold(at.first, 2)
        at.exact()
        time.sleep(ABOUT)
        assert d.peers() == {}, d.peers()
        assert set(at.first.peers()) == {"b", "c"}, at.first.peers()
        at.release(held)


def another_version_too():
    """and so is one whose messages are of another version"""
    with messages(lambda message, _data: [msgpack.packb(
            Told(*message)._replace(version=2, router=0xBAD))]):
        held = at.hold(at.first, 2)
        at.exact()
        time.sleep(ABOUT)
        assert at.first.status()["sync"]["routers"] == 3, at.first.status()
        at.release(held)


def with_another_key_too():
    """and so it is with another key"""
    with another("d", sync="name=d key=0123456789abcdef") as d:
        time.sleep(ABOUT)
        assert d.peers() == {} and "d" not in at.first.peers()


def who_may_not_publish_is_alone():
    """without +publish a router is not heard, says so once, and has events"""
    client = at.first.redis
    client.execute_command(
        "ACL", "SETUSER", "mute", "on", f">{SECRET}", "~*", "&*", "+@all",
        "-publish")
    with another("d", url=f"redis://mute:{SECRET}@127.0.0.1:"
                          f"{at.first.redis_port}") as d:
        d.hears("a", "b", "c")
        # each process says so once, when it publishes first
        d.said(r"\[warn\].*redis refused PUBLISH.*\+publish \+subscribe &kv-",
               most=2)
        epoch = milliseconds()
        for seq in (1, 2):
            payload = msgpack.packb([["c", 0]])
            entry = msgpack.packb(["kvr1", "w0", epoch, seq, True, 0, payload])
            client.xadd("kv-log:{w0}", {"m": entry}, f"{epoch}-{seq}")
            client.publish("kv-events:w0", entry)
        d.wait_applied({"w0": (epoch, 2)})
        held = at.hold(at.first, 3), at.hold(d, 1)
        at.exact(d)
        assert "d" not in at.first.peers()
        assert at.first.load() != d.load()
        d.said("redis refused PUBLISH", most=2)
        at.release(*held)
        at.quiet(d)


def a_replica_only_hears():
    """a router at a replica hears, is not heard, and says so"""
    port = free_port()
    server = Process("replica", [
        "redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save",
        "", "--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1",
        str(at.first.redis_port)], at.first.directory)
    try:
        with redis.Redis(port=port) as client:
            wait_until("the replica is in step", lambda: answers(
                lambda: client.info("replication")["master_link_status"]
                == "up"), PATIENCE)
        with another("d", url=f"redis://127.0.0.1:{port}") as d:
            d.hears("a", "b", "c")
            d.said(r"\[warn\].*is a replica: this router hears its peers and "
                   r"is not heard")
            held = at.hold(at.first, 3)
            at.exact(d)
            assert "d" not in at.first.peers(), at.first.peers()
            at.release(held)
            at.quiet(d)
    finally:
        server.stop()


def answers(ask):
    """What a client of Redis is told, or False while it is not there."""
    try:
        return ask()
    except redis.ConnectionError:
        return False


def off_is_alone():
    """with off a router neither tells nor hears"""
    with another("d", sync="off") as d:
        time.sleep(ABOUT)
        assert d.peers() == {} and "d" not in at.first.peers()


# -------------------------------------------------------------------- workers

def a_worker_goes_and_comes_again():
    """a worker that is deleted and put again has what it has, no more"""
    w0 = at.engines[0]
    held = [at.hold(router, 4) for router in at.routers]
    at.exact()
    for router in at.routers:
        router.call("DELETE", "/kv/workers/w0")
    held.append(at.hold(at.first, 2))
    for router in at.routers:
        router.persist("PUT", "/kv/workers/w0", {"address": w0.address})
    held += [at.hold(router, 4) for router in at.routers]
    at.exact()
    at.release(*held)


def the_logs_are_quiet():
    """the logs have errors of Redis and of processes that were killed alone"""
    for router in at.routers:
        router.check_log("redis", "exited on signal 9", "upstream",
                         r"recv\(\) failed")


def main():
    """Runs the tests on three routers."""
    global at
    with Group("abc") as at:
        return at.first.run([
            *(fault(wrong) for wrong in FAULTS),
            other_parameters_are_another_group, another_version_too,
            with_another_key_too,
            who_may_not_publish_is_alone, a_replica_only_hears, off_is_alone,
            a_worker_goes_and_comes_again, the_logs_are_quiet])


if __name__ == "__main__":
    sys.exit(main())
