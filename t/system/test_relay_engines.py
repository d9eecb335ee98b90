#!/usr/bin/env python3
"""kv-relay and what its engines differ in: topics, sockets, ways to ask."""

import json
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import test_relay
from relay import stored
from stage import PATIENCE, ROOT
from processes import wait_until
from test_relay_doubts import created, drained


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
            engine.wait_subscribed()
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
        self.snapshot_now(relay)
        relay.signal(signal.SIGTERM)
        assert relay.ended() == 0
        relay = self.started(engine, worker=relay.worker)
        self.is_complete(relay)
        assert self.member(relay.worker)["hybrid"] == "1"

    def groups_again(self):
        """a relay goes on where one was killed whose snapshot has groups"""
        engine = self.engine(keep=2)
        relay = self.started(engine)
        window = [None, 1, "sliding_window", 64]
        for i in range(1, 9):
            engine.send(stored([i]) + [None, 0, "full_attention"],
                        stored([i]) + window)
        self.comes(relay, *range(1, 9))
        self.is_complete(relay)
        self.snapshot_now(relay)
        client = self.stage.redis
        key = f"kv-snap:{{{relay.worker}}}"
        assert client.hget(key, "version") == b"1"
        relay.kill()
        relay = self.started(engine, worker=relay.worker)
        assert "snapshot not loaded" not in relay.text()
        self.comes(relay, *range(1, 9))
        self.is_complete(relay)

    def newer_snapshot(self):
        """a snapshot of a later version is not loaded, and both are named"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        relay.kill()
        self.stage.redis.hset(f"kv-snap:{{{relay.worker}}}", "version", 2)
        relay = self.started(engine, worker=relay.worker)
        assert ("the snapshot is of version 2, and this relay reads 1"
                in relay.text()), relay.text()
        self.comes(relay, 1)
        self.is_complete(relay)

    def waiting(self):
        """what waits while a replay runs is bounded"""
        assert any(self._waits() for _ in range(5))

    def _waits(self):
        """Whether that was seen before the connection, of which nothing is
        read then, was given up."""
        engine = self.engine(keep=60000)
        relay = self.settled(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        engine.held = True
        count = relay.metric("replays_total")
        engine.send(lost=True)
        engine.send()
        wait_until("a replay", lambda: relay.metric("replays_total") > count,
                   PATIENCE)
        before = relay.resident()
        batch = {"ts": 0.0, "events": [], "pad": bytes(4096)}
        for i in range(60000):
            engine.send_batch(batch)
            if i % 100 == 0:
                time.sleep(0.001)   # the replay is served, too
        grown, more = 0, 1 << 20
        while more >= 1 << 20 or grown < 30 << 20:
            time.sleep(1)
            more = relay.resident() - before - grown
            grown += more
            if relay.metric("replays_total") != count + 1:
                return False
        # 10,000 messages may wait, and each keeps up to two of libzmq's
        # buffers of 8 KB alive; all of them were 60,000 * 4 KB and more
        assert grown < 200 << 20, grown
        return True

    def topic(self):
        """--topic: what begins otherwise is not for this relay"""
        engine = self.engine(topic=b"kv@a:1@m")
        relay = self.started(engine, "--topic", "kv@a", replay=False)
        other = self.started(engine, "--topic", "kv@b", replay=False)
        engine.send(stored([1]))
        self.comes(relay, 1)
        engine.topic = b"kv@b:1@m"
        engine.send(stored([2]))
        self.comes(other, 2)
        assert other.metric("messages_total") == 1
        self.comes(relay, 1)
        assert relay.metric("messages_total") == 1

    def sockets(self):
        """ipc:// is an endpoint, too, live and of the replay"""
        names, options = [], ("--ranks", "2")
        for rank in range(2):
            engine = self.engine()
            engine.send(stored([10 + rank]))
            for what, socket in (("events", engine.pub),
                                 ("replay", engine.replay)):
                name = f"ipc://{self.stage.directory}/{what}-{rank}"
                socket.bind(name)
                options += (f"--{what}", name)
            names.append(engine)
        relay = self.started([], *options)
        for rank, engine in enumerate(names):
            engine.send(stored([20 + rank], 10 + rank))
            self.comes(relay, 10 + rank, 20 + rank, rank=rank)
        self.is_complete(relay)

    def only_get(self):
        """a TensorRT-LLM that refuses POST is asked by GET"""
        asked = []

        class Handler(BaseHTTPRequestHandler):
            """Events, once."""

            def do_POST(self):
                """Older versions have a GET."""
                asked.append("POST")
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(405)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self):
                """The first thing that an engine says, and a block."""
                asked.append("GET")
                body = json.dumps([created(0), drained(1, 5, 0)]
                                  if asked.count("GET") == 1 else []).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Nothing."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            relay = self.started(
                [], "--trtllm", f"http://127.0.0.1:{server.server_port}")
            self.comes(relay, 5)
            self.is_complete(relay)
            wait_until("more", lambda: asked.count("GET") > 5, PATIENCE)
            assert asked[0] == "POST" and asked.count("POST") == 1, asked
        finally:
            server.shutdown()
            server.server_close()

    def _why(self, relay, why):
        """Until it is why, in words that docs/engines.md has, too."""
        assert f"`{why}" in (ROOT / "docs/engines.md").read_text(), why
        wait_until(why, lambda: self.member(relay.worker).get(
            "reason", "").startswith(why), PATIENCE)
        assert self.member(relay.worker)["complete"] == "0"

    def not_reached(self):
        """an engine that was never reached is the reason"""
        engine = self.engine()
        engine.close()
        self._why(self.started(engine), "the engine was not reached yet")

    def no_replay(self):
        """or that there is no replay of what was before"""
        engine = self.engine()
        engine.send(stored([1]))
        relay = self.started(engine, replay=False)
        engine.send(stored([2]))
        self.comes(relay, 2)
        self._why(relay, "there is no --replay")


if __name__ == "__main__":
    sys.exit(test_relay.main(Engines, "relay-engines"))
