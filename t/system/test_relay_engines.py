#!/usr/bin/env python3
"""kv-relay and what its engines differ in: topics, sockets, ways to ask."""

import sys
import time

import test_relay
from relay import stored
from stage import PATIENCE
from processes import wait_until


class Engines(test_relay.Tests):
    """Engines and their ways."""

    def barrier(self):
        """SGLang's incarnation has more behind it where a snapshot begins"""
        topic = b"kv@x@m\0sgl-kv-epoch=" + b"a" * 32
        engine = self.engine(topic=topic)
        relay = self.started(engine, replay=False)
        engine.send(stored([1]))
        self.comes(relay, 1)
        self.is_complete(relay)
        for times in (1, 2):
            engine.close()
            relay.wait_for("engine disconnected", times)
            self.is_complete(relay, False)
            engine.open()
            relay.wait_for("engine connected", times + 1)
            engine.topic = topic + b"\0sgl-kv-snapshot=" + b"b" * 32
            engine.send()
            engine.topic = topic
            engine.send(stored([1 + times], times))
            self.comes(relay, *range(1, times + 2))
            self.is_complete(relay)

    def hybrid(self):
        """that an engine has groups which are not indexed is in membership"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]) + [None, 0, "full_attention"])
        self.comes(relay, 1)
        self.is_complete(relay)
        assert self.member(relay.worker)["hybrid"] == "0"
        engine.send(stored([2]) + [None, 1, "sliding_window"])
        wait_until("hybrid", lambda: self.member(
            relay.worker)["hybrid"] == "1", PATIENCE)
        self.is_complete(relay)

    def waiting(self):
        """what waits while a replay runs is bounded"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        time.sleep(1)           # it asks anew, once, what was said at first
        engine.mute = True
        count = relay.metric("replays_total")
        engine.send(lost=True)
        engine.send()
        wait_until("a replay", lambda: relay.metric("replays_total") > count,
                   PATIENCE)
        before = relay.resident()
        batch = {"ts": 0.0, "events": [], "pad": bytes(4096)}
        for _ in range(40000):
            engine.send_batch(batch)
        time.sleep(1)
        grown = relay.resident() - before
        assert 30 << 20 < grown < 120 << 20, grown


if __name__ == "__main__":
    sys.exit(test_relay.main(Engines, "relay-engines"))
