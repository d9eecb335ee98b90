#!/usr/bin/python3
"""Snapshots in Redis: loaded, swapped in, asked for, and refused; TAP."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import msgpack

from stage import (BLOCK_SIZE, NOBODY, PATIENCE, SEED, Stage, milliseconds,
                   wait_until)
from traffic import Cache, Loop, Stream, envelope, le64, make_prompts

KEEP = ("--appendonly", "yes")
BIG = 120_000                   # blocks of a snapshot that takes a while
BIG_PART = 2_000


class Snapshots(Stream):
    """A stream whose publisher writes snapshots, as kv-relay does."""

    def __init__(self, client, cache, epoch):
        super().__init__(client, cache, epoch)
        self.pointer = "kv-snap:{%s}" % self.worker
        self.ask = "kv-snap-ask:{%s}" % self.worker
        self.keys = []

    def events(self):
        """Whole chains, parents first, then what makes the holes."""
        stores, removals = [], []
        for (_, rank), holder in self.cache.model.holders.items():
            for tier in range(4):
                seen = set()
                for sequence in self.cache.sequences:
                    handles = list(sequence.handles)
                    while handles and handles[-1] not in holder.block_of:
                        handles.pop()
                    if not handles:
                        continue
                    stores.append([
                        "s", rank, tier, None, le64(handles),
                        le64(sequence.locals[:len(handles)])])
                    seen.update(handles)
                gone = [handle for handle in seen if not holder.blocks.get(
                    holder.block_of.get(handle), {}).get(handle, 0) >> tier
                        & 1]
                removals.append(["r", rank, tier, le64(gone)])
        return stores + removals

    def snapshot(self, trim=True, **fields):
        """Writes a snapshot of what is held now."""
        events = self.events()
        self.write([events[at:at + 5] for at in range(0, len(events), 5)],
                   **fields)
        if trim:
            self.client.xtrim(self.log_key, minid=f"{self.epoch}-"
                              f"{self.seq + 1}", approximate=False)

    def write(self, batches, **fields):
        """Writes these batches as parts, and the pointer with the fields."""
        at = f"{self.epoch}-{fields.get('seq', self.seq)}"
        keys = [f"{self.pointer}:{at}:{number}"
                for number in range(len(batches))]
        for key, batch in zip(keys, batches):
            self.client.set(key, batch if isinstance(batch, bytes)
                            else msgpack.packb(batch))
        pipe = self.client.pipeline(transaction=True)
        pipe.hset(self.pointer, mapping={
            "version": 1, "epoch": self.epoch, "seq": self.seq, "complete": 1,
            "parts": len(keys), "blocks": 0, "block_size": BLOCK_SIZE,
            "engine_seq": "{}", **fields})
        for key in set(self.keys) - set(keys):
            pipe.expire(key, 60)
        pipe.execute()
        self.keys = keys

    def lose(self, count=20):
        """Messages that nobody heard and no log has."""
        self.send(count, live=False)
        self.client.xtrim(self.log_key, maxlen=0, approximate=False)


class Play:
    """What all tests look at."""

    def __init__(self, stage):
        self.stage = stage
        self.rng = random.Random(SEED)
        self.prompts = make_prompts(self.rng, 6, 2, 30)
        self.streams = {}
        stage.start_redis(*KEEP)

    def stream(self, worker, **options):
        """A stream of that worker, a new one at first."""
        if worker not in self.streams:
            self.streams[worker] = Snapshots(
                self.stage.redis,
                Cache(worker, self.rng, self.prompts, secret=7, **options),
                milliseconds())
        return self.streams[worker]

    def check(self, stream, confidence="EXACT", reason="none"):
        """Of a stream all is applied, and trusted so far."""
        stream.heartbeat()
        self.stage.wait_applied(stream.cursor())
        worker = self.stage.wait_confidence(stream.worker, confidence,
                                            beat=stream.heartbeat)
        assert worker["reason"] == reason, worker
        if reason != "gap_not_filled":
            self.check_view(stream)
        return worker

    def check_view(self, stream):
        """The index has what the stream's worker holds, and no more."""
        ours, theirs = ({
            name: held for name, held in model.holdings().items()
            if name[0] == stream.worker}
            for model in (stream.cache.model, self.stage.dump()))
        assert ours == theirs, f"{stream.worker} has another view"

    def counted(self, name):
        """A counter of snapshots."""
        return self.stage.status()["redis"]["snapshots_" + name]

    def warnings(self, text):
        """Lines of the log that warn of it."""
        return [line for line in self.stage.log().splitlines()
                if re.search(r"\[(warn|error)\]", line)
                and text in line]


at = None                       # the Play, set by main()


# ------------------------------------------------------------------ loading

def a_cold_start_needs_no_message():
    """a worker of the configuration is there by its snapshot alone"""
    stream = at.stream("c1", ranks=2)
    stream.send(300, live=False)
    stream.snapshot()
    assert at.stage.redis.xlen(stream.log_key) == 0
    at.stage.start_nginx({"c1": NOBODY})
    worker = at.check(stream)
    assert worker["counters"]["snapshots"] == 1, worker
    assert worker["counters"]["messages"] == 0, worker


def a_snapshot_and_the_log_behind_it():
    """the log goes on where the snapshot ends, and live messages after it"""
    stream = at.stream("c2")
    stream.send(300, live=False)
    stream.snapshot()
    stream.send(150, live=False)
    stream.send(5)
    worker = at.check(stream)
    assert worker["counters"]["snapshots"] == 1, worker
    assert worker["counters"]["messages"] == 155, worker
    stream.send(10)
    at.check(stream)


def an_empty_snapshot_is_one():
    """a snapshot without parts says that nothing is held"""
    stream = at.stream("c3")
    stream.seq = 50
    stream.snapshot(parts=0)
    stream.send(3)
    at.check(stream)


def a_log_trimmed_meanwhile_is_no_loss():
    """what was missed and trimmed comes with the snapshot"""
    stream = at.stream("c1")
    stream.send(300, live=False)
    stream.snapshot()
    stream.send(20, live=False)
    at.check(stream)
    stream.send(200, live=False)
    stream.snapshot()
    assert at.stage.redis.xlen(stream.log_key) == 0
    at.check(stream)
    assert not at.stage.workers()["c1"]["counters"]["restarts"]


def after_an_outage_too():
    """what was missed without a connection comes with the snapshot"""
    stream = at.stream("c1")
    for _ in range(3):
        at.stage.redis.client_kill_filter(_type="pubsub", skipme=True)
        stream.send(100, live=False)
        stream.snapshot()
    at.stage.resubscribe()
    at.check(stream)


# ------------------------------------------------------------------- epochs

def an_epoch_may_begin_with_a_snapshot():
    """a new epoch's snapshot, and its messages from 2 on: EXACT"""
    stream = at.stream("c1")
    number = max(range(len(at.prompts)), key=lambda n: max(
        at.stage.query(at.prompts[n]).get(("c1", 0), (0,))))
    seen, going = [], [True]

    def watch():
        while going:
            seen.append(at.stage.query(at.prompts[number]).get(("c1", 0)))

    before = at.stage.query(at.prompts[number])["c1", 0]
    torn = at.stage.status()["index"]["lookups_torn"]
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        for _ in range(5):
            stream.epoch, stream.seq = stream.epoch + 1, 1
            stream.snapshot()
            stream.heartbeat()
            at.check(stream)
    finally:
        going.clear()
        thread.join()
    # a lookup that meets the swap may see less, and is counted
    torn = at.stage.status()["index"]["lookups_torn"] - torn
    assert len(seen) - seen.count(before) <= torn, (before, seen, torn)
    stream.send(30)
    worker = at.check(stream)
    assert worker["counters"]["restarts"] == 5, worker


def an_epoch_without_its_snapshot_clears_nothing():
    """a new epoch that nothing leads to: DEGRADED, the view is kept"""
    stream = at.stream("c2")
    stream.epoch, stream.seq = stream.epoch + 1, 1
    stream.send_events([])
    at.check(stream, "DEGRADED", "gap_not_filled")
    at.check_view(stream)
    stream.snapshot()
    at.check(stream)


def an_older_snapshot_is_ignored():
    """snapshots of earlier epochs and messages change nothing"""
    stream = at.stream("c2")
    stream.send(20)
    before = at.check(stream)
    stream.write([[["c", 0]]], seq=stream.seq - 5)
    stream.write([[["c", 0]]], epoch=stream.epoch - 1, seq=10 ** 6)
    at.stage.redis.client_kill_filter(_type="pubsub", skipme=True)
    wait_until("the log was asked", lambda: at.stage.workers()["c2"][
        "counters"]["repairs"] > before["counters"]["repairs"], PATIENCE)
    after = at.check(stream)
    assert after["counters"]["snapshots"] == before["counters"]["snapshots"]


# --------------------------------------------------------------------- gaps

def a_gap_is_asked_about():
    """a gap that nothing fills: asked for, and EXACT with the snapshot"""
    stream = at.stream("c1")
    at.stage.redis.delete(stream.ask)
    stream.lose()
    at.check(stream, "DEGRADED", "gap_not_filled")
    wait_until("a snapshot is asked for",
               lambda: at.stage.redis.get(stream.ask) == b"1", PATIENCE)
    assert 0 < at.stage.redis.ttl(stream.ask) <= 60
    at.stage.redis.delete(stream.ask)
    stream.snapshot()
    at.check(stream)
    at.stage.redis.delete(stream.ask)
    beats = at.stage.workers()["c1"]["counters"]["heartbeats"]
    for number in range(1, 4):
        stream.heartbeat()
        wait_until("a heartbeat", lambda want=beats + number:
                   at.stage.workers()["c1"]["counters"]["heartbeats"] >= want,
                   PATIENCE)
    assert not at.stage.redis.exists(stream.ask), "it goes on asking"


def messages_in_a_row_do_not_keep_it_away():
    """a snapshot that is always behind is led on by the log: EXACT"""
    stream = at.stream("c2")
    stream.lose()
    stream.send(1)
    stream.heartbeat()
    at.stage.wait_confidence("c2", "DEGRADED", beat=stream.heartbeat)
    deadline = time.monotonic() + PATIENCE
    number = 0
    while at.stage.workers()["c2"]["confidence"] != "EXACT":
        if number % 20 == 0:
            stream.snapshot()
        stream.send(10)
        number += 1
        assert time.monotonic() < deadline, at.stage.workers()["c2"]
    at.check(stream)


def a_log_that_cannot_be_read_is_for_later():
    """a snapshot is behind, and the log forbidden: EXACT when it is not"""
    stream = at.stream("c2")
    stream.lose()
    stream.send(1)

    # by the gap, or by the block that is sent, if its parent went with the gap

    at.stage.wait_confidence("c2", "DEGRADED", beat=stream.heartbeat)
    seq, events = stream.seq, stream.events()
    stream.send(10)
    at.stage.wait_applied(stream.cursor())

    def denied():
        return at.stage.log().count('log of worker "c2" can\'t be read')

    acl = at.stage.redis.execute_command
    acl("ACL", "SETUSER", "default", "-xrange")
    try:
        before = denied()
        stream.write([events], seq=seq)
        wait_until("the log is forbidden, twice over",
                   lambda: denied() > before + 6, 2 * PATIENCE)

        # or a block's parent went with the gap: another reason

        stream.heartbeat()
        at.stage.wait_applied(stream.cursor())
        at.stage.wait_confidence("c2", "DEGRADED", beat=stream.heartbeat)
    finally:
        acl("ACL", "SETUSER", "default", "+xrange")
    at.stage.wait_confidence("c2", "EXACT", beat=stream.heartbeat)
    at.check(stream)


def an_incomplete_snapshot_is_degraded():
    """an incomplete snapshot is loaded: DEGRADED, with its reason"""
    stream = at.stream("c4")
    stream.send(100, live=False)
    stream.snapshot(complete=0)

    def beat():
        stream.client.publish(stream.channel, msgpack.packb(
            ["kvr1", "c4", stream.epoch, stream.seq, False, 0, None]))

    beat()
    at.stage.wait_applied(stream.cursor())
    worker = at.stage.wait_confidence("c4", "DEGRADED", beat=beat)
    assert worker["reason"] == "publisher_incomplete", worker
    at.check_view(stream)
    assert not at.stage.redis.exists(stream.ask), "asked for in vain"


def a_cleared_engine_is_known_again():
    """an engine that says that it is cleared: EXACT"""
    stream = at.stream("c4")
    stream.send_events([["c", 0]])
    stream.cache.model.clear_worker("c4")
    at.check(stream)


def a_held_lock_is_waited_for():
    """the zone is locked while nginx subscribes: EXACT all the same"""
    stream = at.stream("c2")
    at.check(stream)
    with subprocess.Popen(["sleep", "600"]) as owner:
        try:
            for number in range(8):
                before = at.stage.status()["redis"]["disconnects"]
                with at.stage.locked(owner.pid):
                    at.stage.redis.client_kill_filter(_type="pubsub",
                                                      skipme=True)
                    wait_until("nginx has noticed", lambda was=before:
                               at.stage.status()["redis"]["disconnects"]
                               > was, PATIENCE)
                    time.sleep(0.2 + number * 0.017)
                at.stage.wait_subscribed()
                at.check(stream)
        finally:
            owner.kill()


# ------------------------------------------------------------------ garbage

def spoiled(stream):
    """Not a test: things that a snapshot must not be; each undone."""
    client, pointer = at.stage.redis, stream.pointer
    good = msgpack.packb(stream.events()[:5])
    fields = ("version", "epoch", "seq", "complete", "parts", "block_size")
    for value in ("a string", b"\xff" * 100, "x" * 70_000):
        client.set(pointer, value)
        yield "WRONGTYPE"
        client.delete(pointer)
    for field in fields:
        for value in ("", "-1", "1.5", "0x10", "9" * 40, "x" * 100_000, "\0"):
            stream.write([good], **{field: value})
            yield "refused"
        stream.write([good])
        client.hdel(pointer, field)
        yield "refused"
    for value in ("", "2", "on", "x" * 100_000):
        stream.write([good], eagle=value)
        yield "refused"
    stream.write([good], version=2)
    yield "another version"
    stream.write([good], block_size=BLOCK_SIZE * 2)
    yield "block size"
    stream.write([good], eagle=1)
    yield "pairs of tokens"
    client.hdel(pointer, "eagle")
    stream.write([good], parts=2 ** 63)
    yield "out of range"
    stream.write([good], parts=3)
    yield "not to be had"
    for part in (b"", b"\0", b"\xc1", good[:-3], good + b"\0", b"\x91" * 5000,
                 b"\xdd\xff\xff\xff\xff", b"{}", b"[]",
                 msgpack.packb([1.5, [["AllBlocksCleared"]], 0]),
                 at.rng.randbytes(3000), b"\x90" * 300_000,
                 b"x" * 40_000_000):
        stream.write([good, part])
        yield "refused"
    stream.write([good])
    client.delete(stream.keys[0])
    client.lpush(stream.keys[0], "a list")
    yield "WRONGTYPE"
    client.delete(stream.keys[0])


def its_kind_may_be_said():
    """a snapshot that says what its blocks are of is loaded: EXACT"""
    stream = at.stream("k1")
    stream.send(30, live=False)
    stream.snapshot(eagle=0)
    stream.heartbeat()
    assert at.check(stream)["counters"]["snapshots"] == 1


def garbage_is_refused():
    """whatever lies where a snapshot should be is refused; the view stays"""
    stream = at.stream("c1")
    stream.lose()
    at.check(stream, "DEGRADED", "gap_not_filled")
    view = at.stage.dump().holdings()
    children = at.stage.children()
    count = 0
    for why in spoiled(stream):
        before = at.counted("refused")
        stream.seq += 1
        stream.heartbeat()              # a gap: it is looked for at once
        wait_until(f"it is refused: {why}",
                   lambda was=before: at.counted("refused") > was, PATIENCE)
        count += 1
    at.stage.wait_confidence("c1", "DEGRADED", beat=stream.heartbeat)
    assert at.stage.dump().holdings() == view
    assert at.stage.children() == children, "a process has ended"
    warned = at.warnings("snapshot of worker \"c1\" refused")
    print(f"# {count} kinds, {len(warned)} warnings")
    assert 4 <= len(warned) <= 7, warned
    stream.snapshot()
    at.check(stream)


def an_event_refused_is_told():
    """of a snapshot with a wrong event the rest is there: DEGRADED"""
    stream = at.stream("c3")
    stream.lose()
    stream.write([[["s", 0, 0, 12345, le64([1]), le64([2])]],
                  *([event] for event in stream.events())])
    at.check(stream, "DEGRADED", "event_refused")
    stream.send(5)
    stream.lose()
    stream.snapshot()
    at.check(stream)


# ------------------------------------------------------------------ outages

def without_redis_views_are_stale():
    """Redis down: DEGRADED; up, and repaired: EXACT"""
    streams = [at.stream(name) for name in ("c1", "c2", "c3")]
    for stream in streams:
        at.check(stream)
    at.stage.stop_redis()
    for stream in streams:
        at.stage.wait_confidence(stream.worker, "DEGRADED")
    at.stage.start_redis(*KEEP)
    streams[0].send(50, live=False)
    streams[1].send(50, live=False)
    streams[1].snapshot()
    at.stage.wait_subscribed()
    for stream in streams:
        at.check(stream)


def a_silent_publisher_is_stale():
    """a publisher that is silent for five seconds: DEGRADED"""
    stream = at.stream("c1")
    at.check(stream)
    at.stage.wait_confidence("c1", "DEGRADED")
    assert at.stage.workers()["c1"]["age"] > 5
    at.check(stream)


# ------------------------------------------------------------------- killed

def big(stream, number):
    """Not a test: a snapshot of many blocks; the prompt that has them all."""
    rng = random.Random(number)
    locals_ = [rng.getrandbits(64) for _ in range(BIG)]
    parts = []
    for start in range(0, BIG, BIG_PART):
        handles = [number << 32 | n for n in range(start, start + BIG_PART)]
        parts.append([["s", 0, 0, number << 32 | start - 1 if start else None,
                       le64(handles), le64(locals_[start:start + BIG_PART])]])
    stream.epoch, stream.seq = stream.epoch + 1, 1
    stream.write(parts)


def held(worker):
    """How many blocks a worker has."""
    return sum(rank["blocks"] for rank in at.stage.workers()[worker]["held"])


def killed_while_it_loads():
    """nginx's processes are killed while they load: all of it or nothing"""
    stream = at.stream("big")
    big(stream, 1)
    stream.heartbeat()
    stream.client.publish(stream.channel, b"\xc1")
    at.stage.wait_applied(stream.cursor())
    killed = 0
    for number in range(2, 9):
        loaded = at.counted("loaded")
        big(stream, number)
        stream.heartbeat()
        time.sleep(at.rng.random() * 0.03)
        lease = at.stage.status()["lease"]
        killed += at.counted("loaded") == loaded
        os.kill(lease["pid"], signal.SIGKILL)
        at.stage.wait_lease(lease["token"])
        assert held("big") == BIG, held("big")
        stream.heartbeat()
        at.stage.wait_applied(stream.cursor())
        at.stage.wait_confidence("big", "EXACT", beat=stream.heartbeat)
        assert held("big") == BIG, held("big")
    print(f"# {killed} killed while they loaded")

    def reclaimed():
        status = at.stage.status()
        return status["index"]["pairs"] == sum(
            rank["blocks"] for worker in status["workers"]
            for rank in worker["held"])
    wait_until("what was aside is reclaimed", reclaimed, PATIENCE)


def an_epoch_that_is_no_time_silences_nobody():
    """epochs that none can follow, wherever they are: the view stays EXACT"""
    stream, client = at.stream("c2"), at.stage.redis
    stream.send(20)
    before = at.check(stream)["refused"].get("syntax", 0)
    for epoch in (2 ** 48, 2 ** 63, 2 ** 64 - 1):
        client.publish("kv-events:c2", envelope("c2", epoch, 1, b"\x90"))
        client.publish("kv-events:c2", envelope("c2", epoch, 9, None))
    client.xadd(stream.log_key, {"m": "x"}, id=f"{2 ** 64 - 1}-1")
    stream.write([[["c", 0]]], epoch=2 ** 64 - 1)
    at.stage.resubscribe()
    stream.send(20, log=False)
    worker = at.check(stream)
    assert worker["epoch"] == stream.epoch, worker
    assert worker["refused"]["syntax"] == before + 6, worker


def nothing_crashed():
    """no alert was logged but those of the kills"""
    at.stage.check_log(r"redis closed the connection", r"connect\(\) failed",
                       r"exited on signal 9", r"too big a reply",
                       r"can't be read: \"NOPERM",
                       r"redis refused the connection: \"LOADING")


def main():
    global at
    with Stage("snapshot") as stage, Loop():
        at = Play(stage)
        return stage.run([
            a_cold_start_needs_no_message,
            a_snapshot_and_the_log_behind_it,
            an_empty_snapshot_is_one,
            a_log_trimmed_meanwhile_is_no_loss,
            after_an_outage_too,
            an_epoch_may_begin_with_a_snapshot,
            an_epoch_without_its_snapshot_clears_nothing,
            an_older_snapshot_is_ignored,
            a_gap_is_asked_about,
            messages_in_a_row_do_not_keep_it_away,
            a_log_that_cannot_be_read_is_for_later,
            an_incomplete_snapshot_is_degraded,
            a_cleared_engine_is_known_again,
            a_held_lock_is_waited_for,
            garbage_is_refused,
            its_kind_may_be_said,
            an_event_refused_is_told,
            without_redis_views_are_stale,
            a_silent_publisher_is_stale,
            killed_while_it_loads,
            an_epoch_that_is_no_time_silences_nobody,
            nothing_crashed])


if __name__ == "__main__":
    sys.exit(main())
