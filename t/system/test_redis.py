#!/usr/bin/python3
"""Redis goes and comes, forgets, lies and asks for passwords; TAP."""

import hashlib
import random
import signal
import sys
import time

import msgpack
import redis

from model import difference
from stage import (PATIENCE, PROCESSES, SEED, SHARDS, Stage, masked,
                   milliseconds, wait_until)
from traffic import (Cache, Engines, Fleet, Load, Loop, Stream, envelope, le64,
                     make_prompts)

FIXED = 3
PASSWORD, USER_PASSWORD, WRONG = "t@p:s/e%c", "k v", "sEsAmE-0pen"
KEEP = ("--appendonly", "yes")          # Redis has its data after a restart


class Play:
    """What all tests look at."""

    def __init__(self, stage, loop):
        self.rng = rng = random.Random(SEED)
        self.stage = stage
        self.prompts = make_prompts(rng, FIXED, 1, 30) \
            + make_prompts(rng, 3, 4, 30)
        self.engines = Engines(loop, ("w1", "w2"))
        self.socket = str(stage.directory / "redis.sock")
        stage.start_redis(*KEEP, "--unixsocket", self.socket)
        stage.start_nginx(self.engines.addresses)
        self.fleet = Fleet(loop, stage.redis_url(), [
            Cache("w1", rng, self.prompts, secret=1, fixed=FIXED),
            Cache("w2", rng, self.prompts, secret=2, ranks=2, fixed=FIXED)])
        self.fleet.publish("w1", 20)
        self.fleet.drain()
        self.load = Load(loop, stage, self.prompts, random.Random(SEED + 1))
        self.streams = {}
        self.children = set()

    def stream(self, worker, client=None, **options):
        """A stream of that worker, a new one at first."""
        if worker not in self.streams:
            self.streams[worker] = Stream(
                client or self.stage.redis,
                # a clear would make good what a test takes away
                Cache(worker, self.rng, self.prompts, secret=7, clears=0,
                      **options),
                milliseconds())
        return self.streams[worker]

    def model(self):
        """What all of fleet and streams hold."""
        model = self.fleet.model()
        for stream in self.streams.values():
            model.holders.update(stream.cache.model.holders)
        return model

    def check(self, stream, confidence="EXACT", reason="none"):
        """Of a stream all was applied, and it is trusted so far."""
        self.stage.wait_applied(stream.cursor())
        worker = self.stage.wait_confidence(stream.worker, confidence,
                                            beat=stream.heartbeat)
        assert worker["reason"] == reason, worker
        self.check_fleet()
        return worker

    def check_fleet(self):
        """The index is what all hold; the fleet's views are EXACT."""
        self.fleet.drain()
        self.stage.wait_applied(self.fleet.cursors())
        self.stage.check_index(self.model())
        for name in self.fleet.caches:
            self.stage.wait_confidence(name, "EXACT")


at = None                       # the Play, set by main()


# ---------------------------------------------------------------- outages

def outage(number):
    """Not a test: Redis is away for a while, and comes back with its data."""
    before = at.stage.query(at.prompts[0])
    assert before == {("w1", 0): (30,) * 3, ("w2", 0): (30,) * 3}, before
    at.fleet.start(0.05)
    begun = int(time.time())
    at.stage.stop_redis(number)
    try:
        at.stage.wait_subscribed(0)
        done = at.load.done
        wait_until("requests are answered without redis",
                   lambda: at.load.done > done + 20, PATIENCE)
        assert at.stage.query(at.prompts[0]) == before
        assert at.stage.status()["redis"]["changed"] >= begun
    finally:
        at.stage.start_redis(*KEEP, "--unixsocket", at.socket)
    at.stage.wait_subscribed()
    at.fleet.stop()
    at.check_fleet()
    assert not at.load.failures, at.load.failures[:5]


def requests_go_on_without_redis():
    """redis ends by SIGTERM and comes back: requests go on, events are back"""
    at.stage.wait_applied(at.fleet.cursors())
    at.load.start(40)
    outage(signal.SIGTERM)


def redis_may_be_killed():
    """redis ends by SIGKILL and comes back: requests go on, events are back"""
    outage(signal.SIGKILL)


def connections_may_be_killed():
    """connections that are killed again and again cost no event"""
    at.fleet.start(0.02)
    stream = at.stream("k1")
    for number in range(6):
        stream.send(100, live=False)
        stream.send(1)
        if number % 2:
            at.stage.redis.client_kill_filter(_type="normal", skipme=True)
        at.stage.resubscribe()
    at.fleet.stop()
    at.check(stream)
    assert at.stage.status()["redis"]["disconnects"] >= 6


def a_redis_that_lost_all_is_no_loss():
    """redis comes back without its data: the views stay, and stay EXACT"""
    at.fleet.start(0.05)
    at.stage.redis.flushall()
    at.stage.redis.client_kill_filter(_type="normal", skipme=True)
    at.stage.resubscribe()
    at.fleet.stop()
    at.check_fleet()


def no_request_failed():
    """no request failed in all of this"""
    at.load.stop(done=100)
    print(f"# {at.load.done} requests, {at.load.streamed} of them streams")
    assert not at.load.failures, at.load.failures[:5]
    at.stage.check_idle()


# ------------------------------------------------------------------- gaps

def a_gap_is_filled_from_the_log():
    """what was logged and not published is read from the log"""
    at.children = at.stage.children()
    stream = at.stream("g1", ranks=2)
    stream.send(10)
    at.check(stream)
    stream.send(300, live=False)                # more than a page
    stream.send(5)
    worker = at.check(stream)
    assert worker["counters"]["gaps"] and worker["counters"]["repairs"], worker


def a_heartbeat_tells_of_a_gap():
    """what nothing was published after is found by the heartbeat"""
    stream = at.stream("g1")
    stream.send(30, live=False)
    stream.heartbeat()
    at.check(stream)


def a_worker_is_known_by_its_log():
    """a worker that was never heard of begins at its log's first message"""
    stream = at.stream("g2")
    stream.send(200, live=False)
    stream.send(1)
    at.check(stream)


def a_lost_message_is_admitted():
    """a gap that the log can't fill: DEGRADED, and the view is kept"""
    stream = at.stream("g1")
    lost = at.rng.randrange(1 << 64)
    stream.send_events([["s", 0, 0, None, le64([lost]), le64([lost])]],
                       live=False)
    at.stage.redis.xtrim(stream.log_key, maxlen=0, approximate=False)
    stream.send(1)
    at.check(stream, "DEGRADED", "gap_not_filled")
    stream.send(50)
    stream.send(50, live=False)
    stream.send(1)
    at.check(stream, "DEGRADED", "gap_not_filled")


def a_new_epoch_heals():
    """a new epoch begins with an empty view, and is EXACT"""
    stream = at.stream("g1")
    stream.restart()
    worker = at.check(stream)
    assert worker["counters"]["restarts"] == 1, worker


def a_new_epoch_is_read_from_the_log():
    """a new epoch whose first messages were not heard is read from the log"""
    stream = at.stream("g2")
    stream.epoch, stream.seq = stream.epoch + 1, 0
    stream.cache.model.clear_worker("g2")
    stream.send(150, live=False)
    stream.send(1)
    at.check(stream)


def messages_again_or_late_are_ignored():
    """duplicates, messages out of order and of old epochs change nothing"""
    stream = at.stream("g1")
    before = at.stage.workers()["g1"]["counters"]
    stream.send(20, live=False)
    last = stream.seq
    for message in stream.logged(last, last - 1, last - 7, last, last - 19,
                                 1, 5, last - 2):
        at.stage.redis.publish(stream.channel, message)
    old = Stream(at.stage.redis, Cache("g1", at.rng, at.prompts),
                 stream.epoch - 1)
    for seq in (1, 2, last + 1, last + 9):
        old.seq = seq - 1
        old.send(1, log=False)
    old.heartbeat()
    stream.send(1)
    worker = at.check(stream)
    assert worker["counters"]["duplicates"] >= before["duplicates"] + 8
    assert worker["counters"]["restarts"] == before["restarts"]


# -------------------------------------------------------------- malformed

def malformed(stream):
    """Messages that are refused as a whole."""
    rng = at.rng
    cache = Cache(stream.worker, rng, at.prompts)
    good = envelope(stream.worker, stream.epoch, stream.seq + 1,
                    msgpack.packb(cache.batch(1)))
    event = (b'{"worker_id":"%s","event":{"event_id":1,"data":{"stored":'
             b'{"parent_hash":null,"blocks":[{"block_hash":1,"tokens_hash":2}'
             b']}},"dp_rank":0}}' % stream.worker.encode())
    yield b""
    for _ in range(150):
        yield rng.randbytes(rng.randrange(1, 300))
    for end in sorted(rng.sample(range(1, len(good)),
                                 min(60, len(good) - 1))):
        yield good[:end]                                    # truncated
    for end in sorted(rng.sample(range(1, len(event)), 30)):
        yield event[:end]
    yield from (
        good + b"\0",
        envelope("w1", stream.epoch, stream.seq + 1, b"\x90"),
        envelope("g", stream.epoch, stream.seq + 1, b"\x90"),
        envelope("", stream.epoch, stream.seq + 1, b"\x90"),
        envelope("../" * 30, stream.epoch, stream.seq + 1, b"\x90"),
        envelope(stream.worker, 0, stream.seq + 1, b"\x90"),
        envelope(stream.worker, -1, stream.seq + 1, b"\x90"),
        envelope(stream.worker, stream.epoch, -5, b"\x90"),
        envelope(stream.worker, 1.5, stream.seq + 1, b"\x90"),
        envelope(stream.worker, "1", stream.seq + 1, b"\x90"),
        envelope(stream.worker, stream.epoch, stream.seq + 1, [1]),
        envelope(stream.worker, stream.epoch, stream.seq + 1, 7),
        envelope(stream.worker, stream.epoch, stream.seq + 1, b"\x90", 3),
        msgpack.packb(["kvr1"]),
        msgpack.packb(["kvr1", stream.worker]),
        msgpack.packb(["kvr9", stream.worker, 1, 1, True, 0, None]),
        msgpack.packb({"kvr1": stream.worker}),
        msgpack.packb([1.5, [], 0]),            # whole, but no envelope
        event,
        b"[]", b"{}", b"[" * 5000, b'{"a":' * 5000, b"{" + b" " * 100_000,
        b'{"worker_id":1e999}', b'{"event":"\xff\xfe"}', b"nul\0l",
        b"\x91" * 5000,                         # arrays, one in another
        b"\x81\xc0" * 5000,
        b"\xdd\xff\xff\xff\xff",                # an array of 2^32 - 1
        b"\xdd\xff\xff\xff\xff" * 100,
        b"\xdf\xff\xff\xff\xff\xc0",            # a map of 2^32 - 1
        b"\xc6\xff\xff\xff\xffabc",             # 2^32 - 1 bytes
        b"\xdb\xff\xff\xff\xffabc",
        b"\x97\xa4kvr1\xdb\xff\xff\xff\xff",
        b"\xc1" * 10,
        b"\xff" * 100_000)


def refused_of(worker):
    """How many refusals were counted for a worker."""
    return sum(at.stage.workers()[worker]["refused"].values())


def malformed_messages_are_refused():
    """malformed messages are counted, and change nothing"""
    stream = at.stream("g1")
    for name in ("g1", "g2"):
        at.stage.wait_applied(at.stream(name).cursor())
    before = at.stage.status()["redis"]["refused"], refused_of("g1")
    count = 0
    for message in malformed(stream):
        at.stage.redis.publish(stream.channel, message)
        count += 1
    stream.send(20)
    at.check(stream)
    after = at.stage.status()["redis"]["refused"], refused_of("g1")
    assert after == tuple(n + count for n in before), (before, after, count)


def channels_that_name_no_worker_are_refused():
    """messages on channels whose names are no worker's are counted"""
    before = at.stage.status()
    names = (b"", b"a/b", b"a b", b"x" * 64, b"{g1}", b"\xff\xfe", b"*", b"\0",
             b"a\nforged line of the log")
    good = at.stream("g1").logged(1)[0]
    for name in names:
        at.stage.redis.publish(b"kv-events:" + name, good)
    at.stream("g1").send(1)
    at.check(at.stream("g1"))
    after = at.stage.status()
    assert after["redis"]["refused"] == before["redis"]["refused"] + len(names)
    assert len(after["workers"]) == len(before["workers"])
    assert "\nforged" not in at.stage.log()


def malformed_events_are_refused_alone():
    """of a batch with malformed events the rest is applied: DEGRADED"""
    stream = at.stream("g2")
    cache = stream.cache
    one, two = le64([11]), le64([11, 12])
    wrong = (
        ["x", 0, 0, None, one, one],            # no such event
        ["s", 0, 0, None, two, one],            # lengths
        ["s", 0, 0, None, one, two[:12]],
        ["s", 0, 0, None, one[:7], one[:7]],
        ["s", 0, 0, at.rng.randrange(1 << 64), one, one],   # unknown parent
        ["s", 0, 9, None, one, one],            # tier
        ["s", 1 << 31, 0, None, one, one],      # rank
        ["s", 0, 0],
        ["s", 0, 0, "parent", one, one],
        ["s", 0, 0, None, 11, 12],
        ["r", 0, 0],
        ["r", 0, 0, one[:5]],
        ["r", -1, 0, one],
        ["c"],
        [],
        None,
        "s",
        {"s": 0})
    refused = refused_of("g2")
    for event in wrong:
        batch = cache.batch(stream.seq + 1)
        stream.send_events(batch[:1] + [event] + batch[1:])
    worker = at.check(stream, "DEGRADED", "event_refused")
    assert sum(worker["refused"].values()) == refused + len(wrong), worker


def a_payload_that_ends_too_soon_is_refused():
    """of a payload cut off its head is applied; the next epoch is EXACT"""
    stream = at.stream("g2")
    cache = stream.cache
    refused = refused_of("g2")
    for _ in range(20):
        events = cache.batch(stream.seq + 1)
        rest = msgpack.packb(Cache("g2", at.rng, at.prompts).batch(1)[0])
        cut = at.rng.randrange(1, len(rest))
        stream.send_payload(bytes([0x90 + len(events) + 1]) + b"".join(
            map(msgpack.packb, events)) + rest[:cut])
    at.check(stream, "DEGRADED", "event_refused")
    assert refused_of("g2") == refused + 20
    stream.restart()
    at.check(stream)


def mutations_harm_nobody_else():
    """valid messages with flipped bits do no harm to other workers"""
    stream = at.stream("g1")
    good = stream.logged(*range(1, 21))
    for _ in range(1000):
        message = bytearray(at.rng.choice(good))
        for _ in range(at.rng.randrange(1, 6)):
            message[at.rng.randrange(len(message))] ^= \
                1 << at.rng.randrange(8)
        at.stage.redis.publish("kv-events:mutant", bytes(
            message.replace(b"\xa2g1", b"\xa6mutant")))
    stream.send(1)
    at.stage.wait_applied(stream.cursor())
    model = at.stage.dump()
    model.clear_worker("mutant")
    wrong = difference(at.model().holdings(), model.holdings())
    assert not wrong, wrong
    at.stage.wait_confidence("g1", "EXACT", beat=stream.heartbeat)


def nothing_crashed():
    """no process has ended, no alert was logged"""
    assert at.stage.children() == at.children, "a process has ended"
    at.stage.check_log(r"redis closed the connection", r"connect\(\) failed",
                       r"redis refused the connection: \"LOADING",
                       r"log of worker \"g4\" can't be read: \"WRONGTYPE")


# ------------------------------------------------------ ways to reach Redis

def other_way(worker, url, client=None):
    """Not a test: a new nginx that reaches Redis in that way."""
    at.stage.stop_nginx()
    at.stage.start_nginx(at.engines.addresses, url=url)
    at.stage.wait_subscribed()
    stream = at.stream(worker, client)
    stream.send(150, live=False)                # from the log
    stream.send(20)
    at.stage.wait_applied(stream.cursor())
    at.stage.wait_confidence(worker, "EXACT", beat=stream.heartbeat)
    dump = at.stage.dump()
    holder = {name: held for name, held in dump.holdings().items()
              if name[0] == worker}
    assert holder == stream.cache.model.holdings() and holder


def a_unix_socket_works():
    """Redis is reached by a unix socket"""
    other_way("u1", f"unix:{at.socket}")


def a_database_number_works():
    """the log is read from the database that the URL names"""
    other_way("d1", at.stage.redis_url() + "/3",
              redis.Redis(port=at.stage.redis_port, db=3))


def start_with_passwords():
    """Not a test: Redis with a password and a user."""
    at.stage.stop_redis()
    (at.stage.directory / "acl").write_text(
        f"user default on >{PASSWORD} ~* &* +@all\n"
        f"user router on #{sha256(USER_PASSWORD)} ~kv-* &kv-events:* -@all "
        f"+psubscribe +subscribe +xrange +xrevrange +select "
        f"+hmget +getrange +set +pttl +sscan\n")
    at.client = redis.Redis(port=at.stage.redis_port, password=PASSWORD)
    at.stage.start_redis("--aclfile", str(at.stage.directory / "acl"),
                         client=at.client)


def sha256(text):
    """A password as an ACL file has it."""
    return hashlib.sha256(text.encode()).hexdigest()


def url_with(credentials):
    """The URL of Redis with what comes before the at sign."""
    return f"redis://{credentials}@127.0.0.1:{at.stage.redis_port}"


def a_password_works():
    """Redis with a password is reached"""
    start_with_passwords()
    other_way("p1", url_with(":" + masked(PASSWORD)), at.client)


def a_user_works():
    """a user who may do no more than a router has to is enough"""
    other_way("p2", url_with("router:" + masked(USER_PASSWORD)), at.client)


def a_wrong_password_stops_no_request():
    """a wrong password stops no request, is said once, and kept secret"""
    at.stage.stop_nginx()
    at.stage.start_nginx(at.engines.addresses, url=url_with(f"router:{WRONG}"))
    for _ in range(20):
        at.stage.call("POST", "/v1/completions", {"prompt": at.prompts[0]})
    wait_until("the error is logged", lambda: "[error]" in at.stage.log(),
               PATIENCE)
    at.stage.wait_tried(at.stage.connections)
    errors = [line for line in at.stage.log().splitlines()
              if "[error]" in line]
    # by each process that has a lease
    assert 1 <= len(errors) <= min(SHARDS, PROCESSES), errors
    assert len({line.split()[3] for line in errors}) == len(errors), errors
    assert all("WRONGPASS" in line for line in errors), errors
    assert at.stage.status()["redis"]["up"] == 0
    for log in (*at.stage.logs, at.stage.nginx.log):
        text = log.read_text(errors="replace")
        for secret in (WRONG, PASSWORD, masked(PASSWORD), USER_PASSWORD,
                       masked(USER_PASSWORD)):
            assert secret not in text, f"{secret} in {log.name}"


def a_password_may_be_set_later():
    """when Redis knows the password the events come"""
    at.client.acl_setuser("router", enabled=True, passwords=["+" + WRONG])
    at.stage.wait_subscribed()
    stream = at.stream("p1")
    stream.send(5)
    at.stage.wait_applied(stream.cursor())
    at.stage.check_log("WRONGPASS")


def main():
    global at
    with Stage("redis") as stage, Loop() as loop:
        at = Play(stage, loop)
        return stage.run([
            requests_go_on_without_redis,
            redis_may_be_killed,
            connections_may_be_killed,
            a_redis_that_lost_all_is_no_loss,
            no_request_failed,
            a_gap_is_filled_from_the_log,
            a_heartbeat_tells_of_a_gap,
            a_worker_is_known_by_its_log,
            a_lost_message_is_admitted,
            a_new_epoch_heals,
            a_new_epoch_is_read_from_the_log,
            messages_again_or_late_are_ignored,
            malformed_messages_are_refused,
            channels_that_name_no_worker_are_refused,
            malformed_events_are_refused_alone,
            a_payload_that_ends_too_soon_is_refused,
            mutations_harm_nobody_else,
            nothing_crashed,
            a_unix_socket_works,
            a_database_number_works,
            a_password_works,
            a_user_works,
            a_wrong_password_stops_no_request,
            a_password_may_be_set_later])


if __name__ == "__main__":
    sys.exit(main())
