#!/usr/bin/env python3
"""kv-relay where it must not claim too much, and where others fail it."""

import contextlib
import json
import random
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import test_relay
from relay import CLEARED, HOST, Relay, removed, stored, tokens_of
from stage import PATIENCE
from processes import wait_until
from wires import Listener


class Drain:
    """TensorRT-LLM's HTTP server: answers what was put, once."""

    def __init__(self):
        answers = self.answers = []

        class Handler(BaseHTTPRequestHandler):
            """One answer for each request."""

            def do_POST(self):
                """The next one, or no events."""
                self.rfile.read(int(self.headers["Content-Length"]))
                body = answers.pop(0) if answers else b"[]"
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever,
                         daemon=True).start()

    def close(self):
        """Ends it."""
        self.server.shutdown()
        self.server.server_close()


class Late(Listener):
    """Brings bytes to Redis and back.  Since `late` is set, the name of a log,
    those of the first connection come late: when another one is about to
    write, and before it."""

    def __init__(self, stage):
        super().__init__()
        self.stage, self.late = stage, None
        self.first, self.kept = None, []

    def serve(self, client):
        """Both ways at once."""
        server = socket.create_connection(("127.0.0.1",
                                           self.stage.redis_port))
        self.first = self.first or server
        for play, pair in ((self.there, (client, server)),
                           (self.back, (server, client))):
            threading.Thread(target=play, args=pair, daemon=True).start()

    def there(self, client, server):
        """What the relay says."""
        while data := client.recv(65536):
            if self.late and server is self.first:
                self.kept.append(data)
                continue
            if self.kept and b"MULTI" in data:
                had = self.stage.redis.xlen(self.late)
                self.first.sendall(b"".join(self.kept))
                self.kept = []
                wait_until("what is late", lambda: self.stage.redis.xlen(
                    self.late) > had, PATIENCE)
            server.sendall(data)
        if server is not self.first:
            server.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def back(server, client):
        """What Redis says, whether somebody hears it or not."""
        while data := server.recv(65536):
            with contextlib.suppress(OSError):
                client.sendall(data)


class Boaster(Listener):
    """Answers with an array of more than there is memory for."""

    def serve(self, client):
        """The same to everybody."""
        client.recv(1)
        client.sendall(b"*1000000000\r\n:1\r\n")


def created(rank, ident=0):
    """TensorRT-LLM's first event."""
    return {"event_id": ident, "window_size": 4096,
            "attention_dp_rank": rank, "data": {
                "type": "created", "num_blocks_per_cache_level": [9, 0]}}


def drained(ident, handle, rank):
    """One block's store, as TensorRT-LLM has it."""
    return {"event_id": ident, "window_size": 4096,
            "attention_dp_rank": rank, "data": {
                "type": "stored", "parent_hash": None, "blocks": [
                    {"type": "stored_block", "block_hash": handle,
                     "tokens": [{"token_id": t, "token_extra_id": 0}
                                for t in tokens_of(handle)],
                     "cache_level": 0, "priority": 35}]}}


def streamed(handles, parent=None):
    """A store, as TensorRT-LLM publishes it: a map, hashes with a sign."""
    return {"type": "BlockStored", "block_hashes": list(map(signed, handles)),
            "parent_block_hash": parent and signed(parent),
            "token_ids": [t for h in handles for t in tokens_of(h % 2 ** 32)],
            "block_size": 16, "lora_id": None, "medium": "GPU",
            "lora_name": None}


def signed(handle):
    """The same 64 bits."""
    return handle - 2 ** 64 if handle >= 2 ** 63 else handle


def offloaded(handles):
    """A store without tokens: these are in host memory, too."""
    return ["BlockStored", handles, None, [], 0, None, "CPU", None]


class Doubts(test_relay.Tests):
    """The same stage, other plays."""

    # ------------------------------------------------------ claims of "all"

    def forgotten(self):
        """what a mirror had no room for stays missing after a restart"""
        engine = self.engine()
        options = ("--memory", "9m")
        relay = self.started(engine, *options)
        for i in range(100):
            engine.send(stored(list(range(1 + i * 1000, 1001 + i * 1000))))
        assert "--memory" in self.is_complete(relay, False)
        for i in range(98):
            engine.send(removed(list(range(1 + i * 1000, 1001 + i * 1000))))
        wait_until("all of it", lambda: relay.metric("messages_total") == 198
                   and relay.metric("unsent") == 0, PATIENCE)
        count = relay.text().count('msg="snapshot"')
        self.stage.redis.set(f"kv-snap-ask:{{{relay.worker}}}", "1")
        relay.wait_for("snapshot", count + 1)
        relay.kill()
        second = self.started(engine, *options, worker=relay.worker)
        second.wait_for("in step")
        assert second.metric("blocks") == 2000
        assert self.is_complete(second, False)

    def too_large(self):
        """what is larger than half of --memory is lost; the next clear helps"""
        engine = self.engine()
        options = ("--memory", "8m")
        relay = self.started(engine, *options)
        engine.send(stored([1]))
        self.comes(relay, 1)
        engine.send(stored([2]) + [None] * 6 + [bytes(5 << 20)])
        assert self.is_complete(relay, False)
        relay.wait_for("replay doesn't answer")
        engine.send(stored([3]))
        self.comes(relay, 1, 3)
        self._lacks(relay, "half of --memory")
        engine.send(CLEARED, stored([4]))
        self.comes(relay, 4)
        self.is_complete(relay)
        relay.wait_for("snapshot", 2)
        relay.kill()
        relay = self.started(engine, *options, worker=relay.worker)
        relay.wait_for("in step")
        self.comes(relay, 4)
        self.is_complete(relay)

    def behind_too_large(self):
        """a relay that starts before one is complete after the next clear"""
        large = stored([2]) + [None] * 6 + [bytes(5 << 20)]
        options = ("--memory", "8m")
        engine = self.engine()
        relay = self.started(engine, *options)
        engine.send(stored([1]))
        self.comes(relay, 1)
        engine.send(large)
        relay.wait_for("replay doesn't answer")
        engine.send(stored([3], 1))
        self.comes(relay, 1, 3)
        self._lacks(relay, "half of --memory")
        relay.kill()
        engine.send(large)
        engine.send(stored([4]))
        relay = self.started(engine, *options, worker=relay.worker)
        self._lacks(relay, "half of --memory")
        engine.send(CLEARED, stored([6]))
        engine.send(stored([7], 6))
        self.comes(relay, 6, 7)
        self.is_complete(relay)

    def too_large_at_first(self):
        """an engine whose first messages are too large, and one that follows"""
        large = stored([2]) + [None] * 6 + [bytes(5 << 20)]
        engine = self.engine()
        engine.send(large)
        relay = self.started(engine, "--memory", "8m")
        self._lacks(relay, "half of --memory")
        engine.send(stored([1]))
        self.comes(relay, 1)
        self._lacks(relay, "half of --memory")
        engine.close()
        relay.wait_for("engine disconnected")
        steps = relay.text().count('msg="in step"')
        engine.rise()
        for _ in range(2):
            engine.send(large)
        relay.wait_for("in step", steps + 1)    # what follows is live
        engine.wait_subscribed()
        self._lacks(relay, "half of --memory")
        engine.send(CLEARED)
        self.comes(relay)
        self.is_complete(relay)

    def large_message(self):
        """one may be larger than what routers take"""
        engine = self.engine()
        relay = self.started(engine, "--memory", "64m")
        engine.send(*(stored([i]) + [None] * 6 + [bytes(2 << 20)]
                      for i in range(1, 11)))
        self.comes(relay, *range(1, 11))
        self.is_complete(relay)
        assert "engine disconnected" not in relay.text()

    def late_offload(self):
        """what comes to a lower tier too late to be known is missing"""
        engine = self.engine()
        options = ("--memory", "9m")
        relay = self.started(engine, *options)
        engine.send(stored([1, 2]))
        engine.send(removed([2, 1]))
        for i in range(1, 15):
            handles = list(range(i * 1000, i * 1000 + 1000))
            engine.send(stored(handles))
            engine.send(removed(handles))
        engine.send(stored([77]))
        self.comes(relay, 77)
        self.is_complete(relay)
        engine.send(offloaded([1]))
        assert "offloaded" in self.is_complete(relay, False)
        self.snapshot_now(relay)
        relay.kill()
        relay = self.started(engine, *options, worker=relay.worker)
        relay.wait_for("in step")
        assert self.is_complete(relay, False)
        engine.send(CLEARED, stored([3]))
        self.comes(relay, 3)
        self.is_complete(relay)

    def offload_of_others(self):
        """an offload of what is not indexed is no harm; of the unknown, it is"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]), stored([4]) + [[["strange"]]],
                    stored([5]) + [None, 1, "sliding_window"])
        engine.send(offloaded([4, 1]),
                    offloaded([5]) + [None, 1, "sliding_window"])
        self.comes(relay, 1, tier=HOST)
        self.is_complete(relay)
        engine.send(offloaded([6, 4]))
        assert "offloaded" in self.is_complete(relay, False)
        engine.close()
        relay.wait_for("engine disconnected")
        engine.rise()
        engine.send(stored([1]))
        self.is_complete(relay)

    def no_memory_of_it(self):
        """a replay that has nothing is no proof of an empty engine"""
        engine = self.engine(keep=0)
        engine.send(stored([1]))
        relay = self.started(engine)
        engine.send(stored([2]))
        self.comes(relay, 2)
        assert self.is_complete(relay, False)
        relay.wait_for("replay", 4)         # it looks for more by itself
        assert self.is_complete(relay, False)
        self.comes(relay, 2)

    def event_ids(self):
        """an event's own number does not stand for its message's"""
        engine = self.engine()
        relay = self.settled(engine)
        for n, ident in enumerate((700, 3, 701), 1):
            engine.send({"event_id": ident, "timestamp": 1.0,
                         "event_type": "stored", "model_name": "m",
                         "block_size": 16, "medium": "GPU",
                         "seq_hashes": [n], "parent_hash": None,
                         "token_ids": tokens_of(n)})
        view = self.comes(relay, 1, 2, 3)
        assert [e[7] for e in view.entries] == [0, 1, 2]
        self.is_complete(relay)
        assert relay.metric("engine_restarts_total") == 0
        assert relay.metric("gaps_total") == 0

    def begun_anew_without_replay(self):
        """without replay, an engine that starts anew is complete from 0 on"""
        engine = self.engine()
        relay = self.started(engine, replay=False)
        engine.send(stored([1]))
        engine.send(stored([2], 1))
        self.comes(relay, 1, 2)
        engine.close()
        relay.wait_for("engine disconnected")
        engine.rise()
        engine.wait_subscribed()
        engine.send(stored([5]))
        self.comes(relay, 5)
        self.is_complete(relay)
        engine.send(stored([6], 5))
        self.comes(relay, 5, 6)
        self.is_complete(relay)

    def sglang_anew(self):
        """an incarnation that only the live messages tell asks once"""
        engine = self.engine(topic=b"kv@x@m\0sgl-kv-epoch=aaa")
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        engine.close()
        relay.wait_for("engine disconnected")
        engine.topic = b"kv@x@m\0sgl-kv-epoch=bbb"
        engine.rise()
        engine.send(stored([5]))
        relay.wait_for("engine connected", 2)
        self.comes(relay, 5)
        count = relay.metric("replays_total")
        for i in range(6, 16):
            engine.send(stored([i], i - 1))
            self.comes(relay, *range(5, i + 1))
        # one that asks at each of the ten has asked ten times
        assert relay.metric("replays_total") < count + 10
        self.is_complete(relay)

    def end_lost(self):
        """a replay whose end is lost is asked again"""
        engine = self.engine()
        for i in range(1, 10):
            engine.send(stored([i], i - 1 or None))
        engine.endless = 1
        relay = self.started(engine)
        self.comes(relay, *range(1, 10))
        self.is_complete(relay)

    def anew_and_mute(self):
        """an engine that starts anew and replays nothing is followed, too"""
        engine = self.engine()
        relay = self.started(engine)
        for i in range(1, 5):
            engine.send(stored([i]))
        self.comes(relay, 1, 2, 3, 4)
        engine.close()
        relay.wait_for("engine disconnected")
        engine.mute = True
        engine.rise()
        relay.wait_for("replay doesn't answer")
        engine.send(stored([7]))
        engine.send(stored([8], 7))
        self.comes(relay, 7, 8)
        assert "answer" in self.is_complete(relay, False)

    def clear_is_kept(self):
        """that a clear has made it complete is known to the next one, too"""
        engine = self.engine(keep=1)
        engine.send(stored([8]))
        engine.send(stored([9]))
        relay = self.started(engine)
        assert "first message" in self.is_complete(relay, False)
        engine.send(CLEARED, stored([1]))
        self.comes(relay, 1)
        self.is_complete(relay)
        self.snapshot_now(relay)
        relay.kill()
        relay = self.started(engine, worker=relay.worker)
        self.is_complete(relay)

    def wild_rank(self):
        """an event of a rank that can't be is refused, and no more than that"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        engine.send_rank(1 << 31, stored([2]))
        relay.wait_for("event refused")
        assert "refused" in self.is_complete(relay, False)
        engine.send(CLEARED, stored([3]))
        self.comes(relay, 3)
        self.is_complete(relay)
        self.snapshot_now(relay)
        relay.kill()
        again = self.started(engine, worker=relay.worker)
        assert "snapshot not loaded" not in again.text()
        self.is_complete(again)

    def rank_restarts(self):
        """a rank that starts anew takes its own blocks along, and no others"""
        first, second = self.engine(), self.engine()
        relay = self.started([first, second])
        first.send(stored([1]))
        second.send(stored([5]))
        self.comes(relay, 5, rank=1)
        second.close()
        relay.wait_for("engine disconnected")
        self.is_complete(relay, False)
        second.rise()
        second.send(stored([6]))
        self.comes(relay, 6, rank=1)
        first.send(stored([2], 1))
        self.comes(relay, 1, 2)
        self.is_complete(relay)

    def trtllm(self, drain, *options):
        """A relay that asks it."""
        relay = Relay(self.stage, f"w{next(self.names)}", "--trtllm",
                      drain.url, *options)
        self.relays.append(relay)
        relay.wait_for("snapshot")
        return relay

    def ranks_of_tensorrt(self):
        """ranks of TensorRT-LLM count for themselves: no restart, no proof"""
        drain = Drain()
        try:
            relay = self.trtllm(drain, "--ranks", "2")
            drain.answers.append(json.dumps([
                created(0), created(1), drained(1, 5, 0), drained(2, 6, 0),
                drained(1, 7, 1), drained(3, 8, 0), drained(2, 9, 1),
            ]).encode())
            self.comes(relay, 5, 6, 8)
            self.comes(relay, 7, 9, rank=1)
            self._lacks(relay, "several ranks")
            assert self.member(relay.worker)["ranks"] == "2"
            assert relay.metric("engine_restarts_total") == 0
            drain.answers.append(json.dumps([created(0), created(1)]).encode())
            self.comes(relay)
            self.comes(relay, rank=1)
        finally:
            drain.close()

    def restart_of_tensorrt(self):
        """a rank that --ranks has no room for is refused, beside a restart"""
        drain = Drain()
        try:
            relay = self.trtllm(drain)
            drain.answers.append(json.dumps([
                created(0), drained(1, 5, 0), drained(2, 6, 0)]).encode())
            self.comes(relay, 5, 6)
            self.is_complete(relay)
            drain.answers.append(json.dumps([
                created(0), drained(1, 7, 1), drained(1, 8, 0)]).encode())
            self.comes(relay, 8)
            self._lacks(relay, "rank 1 were refused")
            assert "--ranks" in relay.http("/ready")[1]
            drain.answers.append(json.dumps([created(0)]).encode())
            self.comes(relay)
            self.is_complete(relay)
        finally:
            drain.close()

    # ------------------------------------------------------------ hostile

    def bodies(self):
        """answers of TensorRT-LLM that are no events harm nothing"""
        rng = random.Random(1)
        drain = Drain()
        try:
            relay = self.trtllm(drain)
            good = json.dumps([created(0), drained(1, 5, 0)]).encode()
            for _ in range(200):
                bad = bytearray(good)
                for _ in range(rng.randrange(1, 6)):
                    bad[rng.randrange(len(bad))] = rng.randrange(256)
                drain.answers.append(bytes(bad[:rng.randrange(len(bad))]
                                           if rng.random() < .5 else bad))
            wait_until("all of them", lambda: not drain.answers, PATIENCE)
            drain.answers.append(good)
            self.comes(relay, 5)
        finally:
            drain.close()

    def frames(self):
        """frames that are no message harm nothing"""
        rng = random.Random(1)
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        for _ in range(300):
            frames = [rng.randbytes(rng.choice((0, 1, 7, 8, 9, 300)))
                      for _ in range(rng.randrange(1, 9))]
            with engine.lock:
                engine.pub.send_multipart([b"", *frames, b"no seq", b""])
        engine.send(stored([2], 1))
        self.comes(relay, 1, 2)
        self.is_complete(relay)

    def frames_without_replay(self):
        """nor then, but until the next number it may have been the engine's"""
        engine = self.engine()
        relay = self.started(engine, replay=False)
        engine.send(stored([1]))
        self.comes(relay, 1)
        self.is_complete(relay)
        engine.pub.send_multipart([b"", b"no seq", b""])
        self._lacks(relay, "can't be read")
        engine.send(stored([2], 1))
        self.comes(relay, 1, 2)
        self.is_complete(relay)

    def broken_state(self):
        """a saved state that is broken is not believed"""
        engine = self.engine(keep=3)
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)            # a subscription comes after a while
        for i in range(2, 8):
            engine.send(stored([i], i - 1))
        self.comes(relay, *range(1, 8))
        self.snapshot_now(relay)
        relay.kill()
        name = f"kv-snap:{{{relay.worker}}}"
        pointer = self.stage.redis.hgetall(name)
        key = f"{name}:{int(pointer[b'epoch'])}-{int(pointer[b'seq'])}:s0"
        good = self.stage.redis.get(key).decode()
        line = good.splitlines()[1]
        for bad in ("", "kv-relay 3 0 0\n", good[:-3], good + "\0" * 9,
                    good + "x" * 300 + "\n", good + "0 1 2 3 99999999 -\n",
                    good + "ranks 16 1\n", good + "last 1 2 3\n",
                    good + line[:-1] + "-" + "e" * 500 + "\n",
                    "-1 " + line + "\n", good.replace(" ", "\n")):
            self.stage.redis.set(key, bad)
            self.stage.redis.hset(name, mapping=pointer)
            self.stage.redis.delete(f"kv-lease:{{{relay.worker}}}")
            again = self.started(engine,
                                 worker=relay.worker)
            again.wait_for("in step")
            assert self.is_complete(again, False), bad
            again.kill()
            self.stage.redis.delete(f"kv-log:{{{relay.worker}}}")

    # -------------------------------------------------------------- Redis

    def quiet(self, relay):
        """It does not try, and say so, again and again: five lines a second
        at most."""
        before, began = len(relay.text().splitlines()), time.monotonic()
        time.sleep(4)
        more = len(relay.text().splitlines()) - before
        return more < 5 * (time.monotonic() - began)

    def wrong_type(self):
        """a key of another type is not tried without end"""
        engine = self.engine()
        relay = self.started(engine)
        self.stage.redis.delete(f"kv-log:{{{relay.worker}}}")
        self.stage.redis.set(f"kv-log:{{{relay.worker}}}", "x")
        engine.send(stored([1]))
        relay.wait_for("redis connection given up")
        assert self.quiet(relay)

    def out_of_memory(self):
        """a Redis that is full gets all of it when it has room again"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        r = self.stage.redis
        r.config_set("maxmemory", "1mb")
        try:
            engine.send(stored([2], 1))
            relay.wait_for("redis connection given up")
            assert self.quiet(relay)
        finally:
            r.config_set("maxmemory", "0")
        self.comes(relay, 1, 2)
        self.is_complete(relay)

    def base_refused(self):
        """a base that Redis refuses is not written again and again"""
        self.stage.redis.execute_command(
            "ACL", "SETUSER", "nobase", "on", ">pw", "~kv-lease*",
            "~kv-work*", "~kv-log*", "%R~kv-snap*", "&*", "+@all")
        engine = self.engine()
        relay = self.relay(engine, url="redis://nobase:pw@127.0.0.1:"
                           f"{self.stage.redis_port}")
        relay.wait_for("snapshot failed")
        assert self.quiet(relay)
        assert relay.metric("snapshots_failed_total") < 5

    def reason_kept(self):
        """why it is not complete is known to the relay after it, too"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]), stored([2], 99))
        why = self.is_complete(relay, False)
        assert "refused" in why
        self.comes(relay, 1)
        self.snapshot_now(relay)
        relay.kill()
        relay = self.started(engine, worker=relay.worker)
        relay.wait_for("in step")
        assert self.is_complete(relay, False) == why

    def _never(self, relay):
        """Keys of an epoch that none can follow."""
        last = 2 ** 64 - 1
        client, worker = self.stage.redis, relay.worker
        client.xadd(f"kv-log:{{{worker}}}", {"m": "x"}, id=f"{last}-1")
        client.hset(f"kv-snap:{{{worker}}}", mapping={
            "epoch": last, "seq": 1, "parts": 1, "complete": 1})
        client.hset(f"kv-worker:{{{worker}}}", "epoch", last)

    def no_epoch(self):
        """an epoch that none can follow goes, and what has it"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        self._never(relay)
        engine.send(stored([2]))
        relay.wait_for("no epoch, deleted", 2)
        relay.wait_for("snapshot", 2)
        self.comes(relay, 1, 2)
        relay.kill()
        self._never(relay)
        second = self.started(engine, worker=relay.worker)
        assert second.text().count('msg="no epoch, deleted"') == 2
        engine.send(stored([3]))
        view = self.comes(second, 1, 2, 3)
        assert abs(view.epoch / 1000 - time.time()) < 600
        assert view.complete

    def a_day_after(self):
        """what a relay has written goes a day after it"""
        client = self.stage.redis
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        self.snapshot_now(relay)
        engine.send(stored([2]))
        self.comes(relay, 1, 2)
        at = self.view(relay.worker).pointer
        name = f"{relay.worker}}}"
        keys = [f"kv-snap:{{{name}", f"kv-log:{{{name}",
                *(key for key in map(bytes.decode, client.keys(
                    f"kv-snap:{{{name}:*"))
                  if f":{at['epoch']}-{at['seq']}:" in key)]
        assert len(keys) > 3
        for key in keys:
            wait_until(f"a time for {key}",
                       lambda: 86000 < client.ttl(key) <= 86400, PATIENCE)

    def lease_of_another_time(self):
        """a lease that a clock set back made long ends as others do"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        relay.kill()
        key = f"kv-lease:{{{relay.worker}}}"
        assert self.stage.redis.pexpire(key, 86_400_000)
        relay = self.started(engine, worker=relay.worker)
        relay.wait_for("standby")
        relay.wait_for("lease taken")
        self.comes(relay, 1)

    def at_once(self):
        """the log has a time to go from its first entry on"""
        engine = self.engine()
        relay = self.started(engine)
        key = f"kv-log:{{{relay.worker}}}"
        with self.stage.redis.monitor() as monitor:
            engine.send(stored([1]))
            commands = []
            while not commands or "EXPIRE" not in commands[-1]:
                command = monitor.next_command()
                if command["client_type"] != "lua":
                    commands.append(command["command"])
        order = ["MULTI", "XADD", "PUBLISH", "EXEC", "EXPIRE"]
        names = [command.split()[0].upper() for command in commands]
        assert [name for name in names if name in order] == order, commands
        assert commands[-1].split()[1:] == [key, "86400"], commands

    def tensorrt_streams(self):
        """TensorRT-LLM's own stream is taken as vLLM's, replay and all"""
        high = 2 ** 64 - 2 ** 32
        engine = self.engine(topic=b"kv", newer=True)
        engine.send_rank(0, streamed([high + 1, high + 2]))
        relay = self.started(engine)
        engine.send_rank(0, streamed([high + 3], high + 2))
        self.comes(relay, high + 1, high + 2, high + 3)
        engine.send_rank(0, {"type": "BlockRemoved", "medium": "GPU",
                             "block_hashes": [signed(high + 3)]})
        view = self.comes(relay, high + 1, high + 2)
        assert view.complete
        self.is_complete(relay)
        engine.send_rank(0, {"type": "AllBlocksCleared"})
        self.comes(relay)

    def late(self):
        """what comes late by a lost connection is no other relay's"""
        engine = self.engine()
        with Late(self.stage) as wire:
            relay = self.started(engine,
                                 url=f"redis://127.0.0.1:{wire.port}")
            engine.send(stored([1]))
            epoch = self.comes(relay, 1).epoch
            wire.late = f"kv-log:{{{relay.worker}}}"
            for i in range(2, 6):
                engine.send(stored([i], i - 1))
            relay.wait_for("redis connection given up", 2)
            view = self.comes(relay, *range(1, 6))
            assert view.complete and view.epoch == epoch
            engine.send(stored([6], 5))
            assert self.comes(relay, *range(1, 7)).epoch == epoch

    def cut_off(self):
        """a snapshot that Redis did not take whole is written again"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        engine.close()
        self.is_complete(relay, False)
        self.stage.redis.set(f"kv-snap-ask:{{{relay.worker}}}", "1")
        relay.wait_for("snapshot", 2)
        assert self.view(relay.worker).pointer["complete"] == "0"
        self.stage.redis_server.signal(signal.SIGSTOP)
        try:
            engine.open()
            relay.wait_for("complete", 2)
            relay.wait_for("redis connection given up")
        finally:
            self.stage.redis_server.signal(signal.SIGCONT)
        relay.wait_for("redis connected", 2)
        wait_until("a complete snapshot", lambda: self.stage.redis.hget(
            f"kv-snap:{{{relay.worker}}}", "complete") == b"1", PATIENCE)

    def endless_array(self):
        """an answer that says that it is endless is not believed"""
        with Boaster() as server:
            relay = self.relay(self.engine(),
                               url=f"redis://127.0.0.1:{server.port}")
            relay.wait_for("redis connection given up")
        assert 'why="too big an answer' in relay.text()

    def slept_through(self):
        """a relay that wakes when its successor is gone ends, too"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        relay.signal(signal.SIGSTOP)
        second = self.started(engine,
                              worker=relay.worker)
        epoch = self.comes(second, 1).epoch
        second.kill()
        wait_until("no lease", lambda: not self.stage.redis.exists(
            f"kv-lease:{{{relay.worker}}}"), PATIENCE)
        relay.signal(signal.SIGCONT)
        assert relay.ended() == 3
        assert int(self.member(relay.worker)["epoch"]) == epoch


if __name__ == "__main__":
    sys.exit(test_relay.main(Doubts, "relay-doubts"))
