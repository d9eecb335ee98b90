#!/usr/bin/python3
"""A router beside relays of the version before, and of the next one; TAP."""

import random
import sys

import msgpack

from stage import NOBODY, SEED, PATIENCE, Stage, milliseconds, wait_until
from test_snapshot import Snapshots
from traffic import Cache, make_prompts

LATER = {"later": [1, {"a": b"b"}]}


class Next(Snapshots):
    """A stream as a relay of the next version may send it.

    version  the first element of its envelopes
    """

    version = "kvr1"

    def envelope(self, payload):
        """More elements than today's envelopes have, of any type."""
        message = msgpack.unpackb(super().envelope(payload))
        message[0] = self.version
        return msgpack.packb([*message, None, False, LATER, "later"])

    def send_events(self, events, log=True, live=True):
        """Events have more elements, too."""
        super().send_events([[*event, LATER] for event in events], log, live)

    def register(self):
        """Membership with a field that no router knows."""
        self.client.hset(f"kv-worker:{{{self.worker}}}", mapping={
            "address": NOBODY, "block_size": 16, "later": "1"})
        self.client.expire(f"kv-worker:{{{self.worker}}}", 3600)
        self.client.sadd("kv-workers", self.worker)


class Play:
    """What all tests look at."""

    def __init__(self, stage):
        rng = random.Random(SEED)
        prompts = make_prompts(rng, 6, 2, 30)
        self.stage = stage
        stage.start_redis()
        self.before, self.next = (
            kind(stage.redis, Cache(worker, rng, prompts, secret=7),
                 milliseconds())
            for kind, worker in ((Snapshots, "before"), (Next, "next")))

    def check(self, stream, confidence="EXACT", reason="none"):
        """All of the stream is applied; returns the worker."""
        stream.heartbeat()
        self.stage.wait_applied(stream.cursor())
        worker = self.stage.wait_confidence(stream.worker, confidence,
                                            beat=stream.heartbeat)
        assert worker["reason"] == reason, worker
        ours, theirs = ({name: held for name, held in model.holdings().items()
                         if name[0] == stream.worker}
                        for model in (stream.cache.model, self.stage.dump()))
        assert ours == theirs, f"{stream.worker} has another view"
        return worker

    def wait_said(self, text):
        """Until the log has it."""
        wait_until(f"the log has {text}", lambda: text in self.stage.log(),
                   PATIENCE)

    def refused(self, stream):
        """How many events of the worker were refused, by reason."""
        return self.stage.workers()[stream.worker]["refused"]


at = None                       # the Play, set by main()


def the_version_before_is_read():
    """a relay without today's optional fields: EXACT by snapshot, log, live"""
    at.before.send(100, live=False)
    at.before.snapshot()
    at.before.send(20, live=False)
    at.next.send(100, live=False)
    at.next.snapshot(later="1", state_parts=3)
    at.next.send(20, live=False)
    at.next.register()
    at.stage.start_nginx({"before": NOBODY})
    at.stage.wait_subscribed()
    worker = at.check(at.before)
    assert worker["counters"]["snapshots"] == 1, worker
    at.before.send(20)
    assert not at.check(at.before)["refused"]


def the_next_one_may_say_more():
    """a relay whose messages and hashes have more fields: EXACT, too"""
    worker = at.check(at.next)
    assert worker["counters"]["snapshots"] == 1, worker
    at.next.send(20)
    assert not at.check(at.next)["refused"]


def what_is_another_event_is_refused_alone():
    """an event of a later kind is refused, and the others are applied"""
    events = at.next.cache.batch(at.next.seq + 1)
    at.next.send_events([["later", 0, 1], *events])
    at.check(at.next, "DEGRADED", "event_refused")
    # more than once, where the router has read the log again
    assert set(at.refused(at.next)) == {"type"}
    at.next.restart()
    at.check(at.next)


def another_envelope_is_refused():
    """an envelope of another version is refused, and the log has both"""
    was = at.refused(at.next).get("syntax", 0)
    view = at.stage.dump().holdings()
    at.next.version = "kvr2"
    at.next.client.publish(at.next.channel, at.next.envelope(None))
    at.wait_said('an envelope of version "kvr2", and this router reads '
                 '"kvr1": upgrade the router')
    wait_until("it is counted", lambda: at.refused(at.next).get(
        "syntax", 0) > was, PATIENCE)
    assert at.stage.dump().holdings() == view
    at.next.version = "kvr1"
    at.next.send(20)
    at.check(at.next)


def another_snapshot_is_refused():
    """a snapshot of another version is refused, and the log has both"""
    at.before.lose()
    at.before.snapshot(version=2)
    at.before.heartbeat()
    at.wait_said('snapshot of worker "before" refused: a snapshot of version '
                 "2, and this router reads 1: upgrade the router")
    at.stage.wait_confidence("before", "DEGRADED", beat=at.before.heartbeat)
    at.before.snapshot()
    at.check(at.before)


def nothing_crashed():
    """the error log has no error and no alert"""
    at.stage.check_log()


def main():
    global at
    with Stage("versions") as stage:
        at = Play(stage)
        return stage.run([
            the_version_before_is_read,
            the_next_one_may_say_more,
            what_is_another_event_is_refused_alone,
            another_envelope_is_refused,
            another_snapshot_is_refused,
            nothing_crashed])


if __name__ == "__main__":
    sys.exit(main())
