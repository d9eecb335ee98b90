#!/usr/bin/env python3
"""kv-relay and what its engines differ in: topics, sockets, ways to ask."""

import sys

import test_relay
from relay import stored


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


if __name__ == "__main__":
    sys.exit(test_relay.main(Engines, "relay-engines"))
