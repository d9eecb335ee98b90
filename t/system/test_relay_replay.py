#!/usr/bin/env python3
"""kv-relay while it asks an engine's replay: what it says until it knows."""

import re
import sys
from datetime import datetime

import test_relay
from processes import wait_until
from relay import CLEARED, removed, stored
from stage import PATIENCE

EPOCH = b"kv@x@m\0sgl-kv-epoch="
ASKED = "what the engine did meanwhile is being asked for"


class Replays(test_relay.Tests):
    """The same stage, other plays."""

    def _doubted(self, relay):
        """It is said at once that it is not complete, and why; then that the
        replay doesn't answer."""
        why = self.is_complete(relay, False)
        assert why == ASKED or "replay doesn't answer" in relay.text(), why
        relay.wait_for("replay doesn't answer")
        said = {}
        for line in relay.text().splitlines():
            when = re.match(r"time=(\S+)Z ", line)
            for what in f'msg="not complete" why="{ASKED}"', "doesn't answer":
                if when and what in line:
                    said.setdefault(what, datetime.fromisoformat(when[1]))
        asked, over = said.values()
        assert (over - asked).total_seconds() > 3, said

    def mute_in_a_gap(self):
        """while lost messages are asked for it is not complete"""
        engine = self.engine()
        relay = self.settled(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        engine.mute = True
        engine.send(removed([1]), lost=True)
        engine.send(stored([2]))
        self._doubted(relay)
        self.comes(relay, 1, 2)
        self._lacks(relay, "answer")
        engine.send(CLEARED)
        self.comes(relay)
        self.is_complete(relay)

    def silent_once(self):
        """a question that had no answer is asked again, and nothing is lost"""
        engine = self.engine()
        relay = self.settled(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        self.is_complete(relay)
        engine.mute = True
        engine.send(removed([1]), lost=True)
        engine.send(stored([2]))
        relay.wait_for("replay is asked again")
        engine.mute = False             # the question may have come before
        self.comes(relay, 2)
        self.is_complete(relay)
        assert relay.metric("replays_unanswered_total") >= 1
        assert relay.metric("engine_restarts_total") == 0

    def silent_for_long(self):
        """nor when the engine's messages went on meanwhile"""
        engine = self.engine()
        relay = self.settled(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        engine.mute = True
        engine.send(removed([1]), lost=True)
        engine.send(stored([2]))
        self.comes(relay, 1, 2)
        self._lacks(relay, "answer")
        engine.send(stored([3], 2))
        self.comes(relay, 1, 2, 3)
        engine.mute = False
        self.comes(relay, 2, 3)
        self.is_complete(relay)
        engine.send(stored([4], 3))
        self.comes(relay, 2, 3, 4)
        self.is_complete(relay)
        assert relay.metric("engine_restarts_total") == 0

    def mute_when_anew(self):
        """nor while an engine that counts anew is asked since when"""
        engine = self.engine(topic=EPOCH + b"aaa")
        relay = self.settled(engine)
        for i in range(1, 4):
            engine.send(stored([i]))
        self.comes(relay, 1, 2, 3)
        engine.mute = True
        engine.topic = EPOCH + b"bbb"
        engine.seq = 0
        engine.kept.clear()
        engine.send(stored([7]))
        self._doubted(relay)
        self.comes(relay, 7)
        self._lacks(relay, "answer")

    def unread(self):
        """an engine whose messages can't be read is not an empty one"""
        engine = self.engine()
        engine.behind = [b"more"]
        engine.send(stored([1]))
        relay = self.started(engine)
        self._lacks(relay, "the engine's messages can't be read")
        relay.wait_for("in step")
        engine.send(stored([2]))
        wait_until("it counts them", lambda: relay.metric(
            'skipped_total{what="refused",why="syntax"}') >= 2, PATIENCE)
        self._lacks(relay, "the engine's messages can't be read")
        engine.close()
        relay.wait_for("engine disconnected")
        engine.behind = []
        engine.rise()
        engine.send(stored([3]))
        self.comes(relay, 3)
        self.is_complete(relay)

    def _blips(self, relay, engine, blips):
        """It is reached again, so often, and says nothing."""
        connected = relay.text().count("engine connected")
        for i in range(1, blips + 1):
            engine.close()
            relay.wait_for("engine disconnected", connected + i - 1)
            engine.open()
            relay.wait_for("engine connected", connected + i)
        engine.wait_subscribed()

    def reached_again(self):
        """without replay, SGLang's next message proves that nothing is lost"""
        engine = self.engine(topic=EPOCH + b"aaa")
        relay = self.started(engine, replay=False)
        engine.send(stored([1]))
        self.comes(relay, 1)
        self.is_complete(relay)
        for n, blips in enumerate((1, 2, 3), 2):
            self._blips(relay, engine, blips)
            self._lacks(relay, "--replay")
            engine.send(stored([n], n - 1))
            self.comes(relay, *range(1, n + 1))
            self.is_complete(relay)

    def reached_again_late(self):
        """or that something is, which another blip doesn't heal"""
        engine = self.engine(topic=EPOCH + b"aaa")
        relay = self.started(engine, replay=False)
        engine.send(stored([1]))
        self.comes(relay, 1)
        self.is_complete(relay)
        self._blips(relay, engine, 2)
        engine.send(stored([2]), lost=True)
        engine.send(stored([3]))
        self.comes(relay, 1, 3)
        self._blips(relay, engine, 2)
        engine.send(stored([4], 3))
        self.comes(relay, 1, 3, 4)
        self.told(relay)
        self._lacks(relay, "--replay")


if __name__ == "__main__":
    sys.exit(test_relay.main(Replays, "relay-replay"))
