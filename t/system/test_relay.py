#!/usr/bin/env python3
"""kv-relay, with a real Redis and a small engine."""

import itertools
import json
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

from stage import BLOCK_SIZE, PATIENCE, Stage, free_port
from processes import wait_until
from relay import (CLEARED, HOST, Engine, Relay, View, local_of, removed,
                   stored, tokens_of, unpack)

import sys
import tap

LEASE = 8.0                     # seconds that a killed relay's lease may take


class Tests:
    """One Redis for all; workers and engines of their own."""

    def __init__(self, stage):
        self.stage = stage
        self.names = itertools.count(1)
        self.engines, self.relays = [], []

    # -------------------------------------------------------------- helpers

    def engine(self, **options):
        """An engine that ends with the test."""
        engine = Engine(**options)
        self.engines.append(engine)
        return engine

    def relay(self, engines, *options, worker=None, replay=True, **more):
        """A relay beside one engine, or several ranks."""
        worker = worker or f"w{next(self.names)}"
        if isinstance(engines, Engine):
            engines = [engines]
        for engine in engines:
            options += ("--events", f"tcp://127.0.0.1:{engine.port}")
            if replay:
                options += ("--replay",
                            f"tcp://127.0.0.1:{engine.replay_port}")
        relay = Relay(self.stage, worker, *options, **more)
        self.relays.append(relay)
        return relay

    def started(self, engines, *args, **options):
        """A relay that has begun to publish, and hears its engines."""
        known = [(engine, engine.subscribed()) for engine in (
            [engines] if isinstance(engines, Engine) else engines)
                 if engine.going]
        relay = self.relay(engines, *args, **options)
        relay.wait_for("snapshot")
        for engine, times in known:
            engine.wait_subscribed(times + 1)
        return relay

    def settled(self, engines, *args, **options):
        """The same, and it has looked once more at what they had said when
        they were reached: what comes next is live."""
        relay = self.started(engines, *args, **options)
        if isinstance(engines, Engine):
            engines = [engines]
        relay.wait_for("replay", 2 * len(engines))
        wait_until("the replays' ends", lambda: relay.metric("replays_total")
                   == sum(engine.answered for engine in engines), PATIENCE)
        return relay

    def told(self, relay):
        """Until membership is of what a router would see now, or later."""
        seq = int(self.view(relay.worker).seq)
        wait_until(f"membership of message {seq}", lambda: int(
            self.member(relay.worker).get("seq", -1)) >= seq, PATIENCE)

    def member(self, worker):
        """kv-worker of a worker."""
        return {k.decode(): v.decode() for k, v in
                self.stage.redis.hgetall(f"kv-worker:{{{worker}}}").items()}

    def view(self, worker):
        """What a router makes of it."""
        return View(self.stage.redis, worker)

    def comes(self, relay, *handles, rank=0, tier=0):
        """Until a router would see exactly these."""
        want = sorted(handles)

        def seen():
            view = self.view(relay.worker)
            return view.handles(rank, tier) == want and view

        try:
            return wait_until("the view", seen, PATIENCE)
        except Exception:
            got = self.view(relay.worker).handles(rank, tier)
            raise AssertionError(f"got {got}, want {want}") from None

    def is_complete(self, relay, complete=True):
        """Until membership says so."""
        want = "1" if complete else "0"
        wait_until(f"complete={want}",
                   lambda: self.member(relay.worker).get("complete") == want,
                   PATIENCE)
        return self.member(relay.worker)["reason"]

    def _lacks(self, relay, why):
        """Until membership says that it is not complete, and this reason."""
        wait_until(why, lambda: why in self.is_complete(relay, False),
                   PATIENCE)

    def after(self):
        """Ends what a test has begun."""
        relays, self.relays = self.relays, []
        engines, self.engines = self.engines, []
        for relay in relays:
            relay.stop()
        for engine in engines:
            if engine.going:
                engine.close()
        if self.stage.redis_server is None:
            self.stage.start_redis()
        for relay in relays:            # what sanitizers say
            assert "ERROR: " not in relay.text(), relay.text()
            assert "runtime error" not in relay.text(), relay.text()

    # ---------------------------------------------------------------- events

    def arrays(self):
        """vLLM's arrays reach the log as normalised batches"""
        engine = self.engine()
        relay = self.settled(engine)
        engine.send(stored([1, 2]), stored([3], 2))
        engine.send(removed([3]))
        view = self.comes(relay, 1, 2)
        assert view.blocks[0, 1] == (None, (local_of(1),))
        assert view.blocks[0, 2] == (1, (local_of(2),))
        assert view.blocks[0, 3] == (2, (local_of(3),))
        assert [(e[5], e[7]) for e in view.entries] == [(0, 0), (0, 1)]
        assert all(e[4] is True for e in view.entries)

    def maps(self):
        """vLLM's maps mean the same"""
        engine = self.engine()
        relay = self.started(engine)
        event = {"type": "BlockStored", "block_hashes": [1, 2],
                 "parent_block_hash": None, "block_size": 16,
                 "token_ids": tokens_of(1) + tokens_of(2), "medium": "GPU"}
        engine.send(event, as_map=True)
        engine.send({"type": "BlockRemoved", "block_hashes": [2]})
        view = self.comes(relay, 1)
        assert view.blocks[0, 2] == (1, (local_of(2),))

    def published(self):
        """subscribers get the log's very bytes, and heartbeats between"""
        engine = self.engine()
        relay = self.settled(engine)
        with self.stage.redis.pubsub(ignore_subscribe_messages=True) as sub:
            sub.subscribe(f"kv-events:{relay.worker}")
            wait_until("a heartbeat", lambda: sub.get_message(timeout=1),
                       PATIENCE)
            engine.send(stored([1]))
            got = []

            def all_there():
                message = sub.get_message(timeout=0.2)
                if message:
                    got.append(message["data"])
                return (len(got) >= 3
                        and any(unpack(m)[6] is not None for m in got[:-1]))

            wait_until("message and heartbeats", all_there, PATIENCE)
        log = self.stage.redis.xrange(f"kv-log:{{{relay.worker}}}")
        assert [m for m in got if unpack(m)[6] is not None] == [
            fields[b"m"] for _, fields in log]
        first = [unpack(m)[6] is not None for m in got].index(True)
        assert all(unpack(m)[3] == 2 for m in got[first:])
        assert all(unpack(m)[3] == 1 for m in got[:first])

    def copies(self):
        """a block stored twice goes with its second removal"""
        engine = self.engine()
        relay = self.settled(engine)
        engine.send(stored([1]))
        engine.send(stored([1]), stored([2], 1))
        engine.send(removed([1]))
        engine.send(stored([3], 2))
        view = self.comes(relay, 1, 2, 3)
        assert len(view.entries) == 3       # the removal changed nothing
        engine.send(removed([1]))
        self.comes(relay, 2, 3)

    def uncounted(self):
        """with --refcount off its first removal takes it"""
        engine = self.engine()
        relay = self.started(engine, "--refcount", "off")
        engine.send(stored([1]), stored([1]), stored([2], 1), removed([1]))
        self.comes(relay, 2)

    def tiers(self):
        """an offload without tokens adds a tier to a block that is known"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1, 2]))
        engine.send(["BlockStored", [1, 2], None, [], 0, None, "CPU", None])
        self.comes(relay, 1, 2, tier=HOST)
        engine.send(removed([2]))
        self.comes(relay, 1)
        assert self.view(relay.worker).handles(tier=HOST) == [1, 2]

    def spans(self):
        """engine blocks of four of the index's have four hashes each"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1, 2], size=64))
        view = self.comes(relay, 1, 2)
        assert len(view.blocks[0, 2][1]) == 4
        assert view.blocks[0, 2][0] == 1
        self.snapshot_now(relay)
        relay.kill()
        relay = self.started(engine, worker=relay.worker)
        assert 'msg="snapshot loaded"' in relay.text()
        engine.send(removed([2]))
        wait_until("block 1 is left", lambda: relay.metric("blocks") == 4,
                   PATIENCE)
        engine.send(stored([3], 1, size=64), removed([1]))
        wait_until("block 3 is left", lambda: relay.metric("blocks") == 4,
                   PATIENCE)
        self.snapshot_now(relay)
        assert relay.metric('skipped_total{what="refused",why="parent"}') == 0

    def refused(self):
        """an event that can't be placed is refused, and said so"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        engine.send(stored([7], 6), stored([2], 1))
        self.comes(relay, 1, 2)
        assert "refused" in self.is_complete(relay, False)
        assert relay.metric(
            'skipped_total{what="refused",why="parent"}') == 1

    def small(self):
        """blocks of the wrong size are refused, and the reason names both"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]), stored([2], size=BLOCK_SIZE // 2))
        self.comes(relay, 1)
        assert self.is_complete(relay, False) == (
            "an event was refused: block_size, the engine's is "
            f"{BLOCK_SIZE // 2}, no multiple of --block-size {BLOCK_SIZE}")

    def large(self):
        """a batch that is too large for one envelope goes in several"""
        engine = self.engine()
        relay = self.settled(engine)
        blocks = list(range(1, 20001))
        engine.send(stored(blocks))
        engine.send(removed(blocks[10000:]))
        view = self.comes(relay, *blocks[:10000])
        assert len(view.entries) > 2
        assert [e[7] for e in view.entries if e[7] is not None] == [0, 1]
        assert view.blocks[0, 20000][0] == 19999

    def garbage(self):
        """what is no message at all is counted, and harms nothing else"""
        engine = self.engine()
        relay = self.started(engine)
        engine.pub.send_multipart([b"", b"short", b"x"])
        engine.pub.send(b"one frame")
        engine.send(stored([1]))
        self.comes(relay, 1)
        assert relay.metric(
            'skipped_total{what="refused",why="syntax"}') == 2

    # ------------------------------------------------------------ the engine

    def begun(self):
        """what the engine did before comes from its replay: complete"""
        engine = self.engine()
        for i in range(1, 500):
            engine.send(stored([i], i - 1 or None))
        relay = self.started(engine)
        view = self.comes(relay, *range(1, 500))
        assert view.complete and view.seq == 1 and not view.entries
        assert json.loads(view.pointer["engine_seq"]) == {"0": 498}
        assert view.pointer["blocks"] == "499"
        self.is_complete(relay)

    def begun_late(self):
        """a replay that doesn't reach back leaves it incomplete, until clear"""
        engine = self.engine(keep=3)
        for i in range(1, 6):
            engine.send(stored([i]))
        relay = self.started(engine)
        self.comes(relay, 3, 4, 5)
        assert "first message" in self.is_complete(relay, False)
        engine.send(CLEARED, stored([9]))
        view = self.comes(relay, 9)
        assert view.entries[-1][4] is True
        self.is_complete(relay)

    def gap(self):
        """lost messages come from the replay"""
        engine = self.engine()
        relay = self.settled(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        engine.send(stored([2], 1), lost=True)
        engine.send(stored([3], 2), lost=True)
        engine.send(stored([4], 3))
        view = self.comes(relay, 1, 2, 3, 4)
        assert [e[7] for e in view.entries] == [0, 1, 2, 3]
        assert view.complete
        assert relay.metric("gaps_total") == 1
        assert relay.metric("gaps_filled_total") == 1
        self.is_complete(relay)

    def gap_at_end(self):
        """a lost message that nothing follows is found, too"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        engine.send(stored([2], 1), lost=True)
        self.comes(relay, 1, 2)

    def gap_beyond(self):
        """what the replay doesn't have any more leaves it incomplete"""
        engine = self.engine(keep=2)
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        for i in range(2, 6):
            engine.send(stored([i]), lost=True)
        engine.send(stored([6]))
        self.comes(relay, 1, 5, 6)
        self._lacks(relay, "reach back")
        engine.send(CLEARED)
        self.comes(relay)
        self.is_complete(relay)

    def gap_in_replay(self):
        """a replay that leaves some out is asked again"""
        engine = self.engine()
        for i in range(1, 100):
            engine.send(stored([i], i - 1 or None))
        engine.drop = {40, 41, 70}
        relay = self.started(engine)
        view = self.comes(relay, *range(1, 100))
        assert view.complete
        self.is_complete(relay)

    def restarted_engine(self):
        """an engine that starts anew has a new epoch, and is complete"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1, 2]))
        epoch = self.comes(relay, 1, 2).epoch
        engine.close()
        relay.wait_for("engine disconnected")
        assert "connected" in self.is_complete(relay, False)
        engine.rise()
        engine.send(stored([7]))
        engine.send(stored([8], 7))
        view = self.comes(relay, 7, 8)
        assert view.epoch > epoch
        self.is_complete(relay)
        assert relay.metric("engine_restarts_total") == 1

    def reconnected(self):
        """the same engine, back again, goes on in its epoch"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1, 2]))
        epoch = self.comes(relay, 1, 2).epoch
        engine.close()
        relay.wait_for("engine disconnected")
        engine.open()
        engine.send(stored([3], 2))
        view = self.comes(relay, 1, 2, 3)
        assert view.epoch == epoch
        self.is_complete(relay)
        assert relay.metric("engine_restarts_total") == 0

    def empty_engine(self):
        """an engine that has said nothing holds nothing: complete"""
        engine = self.engine()
        relay = self.started(engine)
        assert self.view(relay.worker).complete
        self.is_complete(relay)

    def without_replay(self):
        """without replay it is complete from message 0 on, or from a clear"""
        engine = self.engine()
        relay = self.started(engine, replay=False)
        assert "--replay" in self.is_complete(relay, False)
        engine.send(stored([1]))
        self.comes(relay, 1)
        self.is_complete(relay)
        engine.send(stored([2]), lost=True)
        engine.send(stored([3]))
        self.comes(relay, 1, 3)
        assert "lost" in self.is_complete(relay, False)
        engine.send(CLEARED, stored([4]))
        self.comes(relay, 4)
        self.is_complete(relay)

    def mute_replay(self):
        """a replay that doesn't answer stops nothing but completeness"""
        engine = self.engine()
        engine.mute = True
        engine.send(stored([1]))
        relay = self.started(engine)
        relay.wait_for("in step")
        engine.send(stored([2]))
        relay.wait_for("replay doesn't answer", 2)
        self.comes(relay, 2)
        self.told(relay)
        assert "answer" in self.is_complete(relay, False)

    def sglang(self):
        """SGLang's incarnation, in its topic, tells a restart"""
        engine = self.engine(topic=b"kv@x@m\0sgl-kv-epoch=aaa")
        relay = self.started(engine, replay=False)
        engine.send(stored([1]))
        self.comes(relay, 1)
        self.is_complete(relay)
        engine.topic = b"kv@x@m\0sgl-kv-epoch=bbb"
        engine.seq = 0
        engine.send(stored([5]))
        self.comes(relay, 5)
        self.is_complete(relay)
        engine.close()
        relay.wait_for("engine disconnected")
        self.is_complete(relay, False)
        engine.open()
        engine.wait_subscribed()
        engine.send(stored([6], 5))
        self.comes(relay, 5, 6)
        self.is_complete(relay)

    def ranks(self):
        """each rank has its port, its sequence and its part in complete"""
        first, second = self.engine(), self.engine()
        relay = self.settled([first, second])
        first.send(stored([1]))
        second.send(stored([1]))
        second.send(stored([2], 1))
        self.comes(relay, 1, rank=0)
        view = self.comes(relay, 1, 2, rank=1)
        assert {(e[5], e[7]) for e in view.entries} == {(0, 0), (1, 0), (1, 1)}
        assert self.member(relay.worker)["ranks"] == "2"
        self.is_complete(relay)
        second.close()
        self.is_complete(relay, False)
        second.rise()
        second.send(stored([9]))
        self.comes(relay, 9, rank=1)
        self.comes(relay, 1, rank=0)
        self.is_complete(relay)

    def ports(self):
        """--ranks counts the ports up"""
        port = free_port(1, 10, 11)
        engines = [self.engine(ports=(port + r, port + 10 + r))
                   for r in range(2)]
        relay = Relay(self.stage, f"w{next(self.names)}", "--events",
                      f"tcp://127.0.0.1:{port}", "--replay",
                      f"tcp://127.0.0.1:{port + 10}", "--ranks", "2")
        self.relays.append(relay)
        relay.wait_for("snapshot")
        engines[1].send(stored([4]))
        self.comes(relay, 4, rank=1)

    # ------------------------------------------------------------- the relay

    def killed(self):
        """a relay that follows a killed one goes on where it was: complete"""
        engine = self.engine()
        relay = self.started(engine, "--snapshot-interval", "16")
        for i in range(1, 40):
            engine.send(stored([i], i - 1 or None))
        engine.send(stored([5], 4))         # a second copy of it
        epoch = self.comes(relay, *range(1, 40)).epoch
        relay.kill()
        engine.send(removed([39]))
        engine.send(removed([5]))           # the first copy
        relay = self.started(engine, worker=relay.worker)
        assert 'msg="snapshot loaded"' in relay.text()
        view = self.comes(relay, *range(1, 39))
        assert view.epoch > epoch and view.complete
        self.is_complete(relay)
        engine.send(removed([5]))           # the second
        self.comes(relay, *(i for i in range(1, 39) if i != 5))
        assert relay.metric("engine_restarts_total") == 0

    def killed_both(self):
        """an engine that starts anew meanwhile is found out"""
        engine = self.engine()
        relay = self.started(engine)
        for i in range(1, 6):
            engine.send(stored([i]))
        self.comes(relay, *range(1, 6))
        self.snapshot_now(relay)
        relay.kill()
        engine.close()
        engine.rise()
        for i in range(11, 21):             # more messages than before
            engine.send(stored([i]))
        relay = self.started(engine, worker=relay.worker)
        view = self.comes(relay, *range(11, 21))
        assert view.complete
        self.is_complete(relay)

    def killed_long(self):
        """what the replay lost meanwhile leaves it incomplete"""
        engine = self.engine(keep=4)
        relay = self.started(engine)
        engine.send(stored([1, 2]))
        self.comes(relay, 1, 2)
        self.snapshot_now(relay)
        engine.send(removed([2]))
        engine.send(stored([3], 1))
        self.comes(relay, 1, 3)         # behind the snapshot
        relay.kill()
        for i in range(12, 22):
            engine.send(stored([i]))
        relay = self.started(engine, worker=relay.worker)
        view = self.comes(relay, 1, 2, 18, 19, 20, 21)
        assert not view.complete
        assert "reach back" in self.is_complete(relay, False)

    def standby(self):
        """a second relay waits until the first one ends"""
        engine = self.engine()
        relay = self.started(engine)
        second = self.relay(engine, worker=relay.worker)
        second.wait_for("standby")
        assert second.http("/ready")[1].startswith("standby: "), second.text()
        assert second.http("/health") == (200, "ok\n")
        assert second.metric("active") == 0
        engine.send(stored([1]))
        epoch = self.comes(relay, 1).epoch
        relay.signal(signal.SIGTERM)
        assert relay.ended() == 0
        second.wait_for("snapshot")
        assert self.comes(second, 1).epoch > epoch
        assert second.text().count('msg="standby"') == 1
        third = self.relay(engine, worker=relay.worker)
        third.wait_for("standby")
        third.signal(signal.SIGTERM)
        assert third.ended() == 0
        assert "deregistered=no" in third.text()
        assert self.member(relay.worker)
        second.wait_ready()

    def superseded(self):
        """a relay that slept too long ends, and harms nothing"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        relay.signal(signal.SIGSTOP)
        second = self.started(engine, worker=relay.worker)
        engine.send(stored([2], 1))
        epoch = self.comes(second, 1, 2).epoch
        relay.signal(signal.SIGCONT)
        assert relay.ended() == 3
        engine.send(stored([3], 2))
        assert self.comes(second, 1, 2, 3).epoch == epoch

    def outnumbered(self):
        """a log that has a higher id ends it"""
        engine = self.engine()
        relay = self.started(engine)
        self.stage.redis.xadd(f"kv-log:{{{relay.worker}}}", {"m": "x"},
                              id=f"{int(time.time() * 1000) + 10 ** 6}-1")
        engine.send(stored([1]))
        assert relay.ended() == 3

    def deregistered(self):
        """SIGTERM sends what is queued, and takes the worker out"""
        engine = self.engine()
        relay = self.started(engine)
        client = self.stage.redis
        assert client.sismember("kv-workers", relay.worker)
        engine.send(stored([1]))
        self.comes(relay, 1)
        relay.signal(signal.SIGTERM)
        assert relay.ended() == 0
        assert not client.sismember("kv-workers", relay.worker)
        assert not client.exists(f"kv-worker:{{{relay.worker}}}")
        assert not client.exists(f"kv-lease:{{{relay.worker}}}")

    def membership(self):
        """what the options say of the worker is in Redis"""
        engine = self.engine()
        before = int(time.time() * 1000)
        relay = self.started(engine, "--model", "m", "--role", "prefill",
                             "--weight", "2.5", "--lora", "a,b",
                             "--engine", "sglang",
                             "--hybrid", "on", "--spec-drop", "on",
                             "--attention-chunk", "8192",
                             "--max-prefill-tokens", "auto")
        self.is_complete(relay)
        member = self.member(relay.worker)
        assert before <= int(member.pop("started")) <= time.time() * 1000
        epoch = member.pop("epoch")
        assert member == {
            "address": "127.0.0.1:80", "model": "m", "block_size": "16",
            "eagle": "0", "ranks": "1", "role": "prefill", "weight": "2.5",
            "lora": "a,b", "hybrid": "1", "draining": "0",
            "engine": "sglang", "spec_drop": "1",
            "attention_chunk": "8192", "max_prefill_tokens": "auto",
            "channel": "kv-events:",
            "seq": "1", "complete": "1", "reason": ""}
        assert epoch == self.view(relay.worker).pointer["epoch"]
        assert 0 < self.stage.redis.ttl(
            f"kv-worker:{{{relay.worker}}}") <= 15
        assert self.stage.redis.sismember("kv-workers", relay.worker)

    # -------------------------------------------------------------- snapshots

    def snapshot_now(self, relay):
        """As a router asks for one."""
        client = self.stage.redis
        ask = f"kv-snap-ask:{{{relay.worker}}}"
        before = relay.metric("snapshots_total")
        client.set(ask, 1, ex=60, nx=True)
        wait_until("a snapshot", lambda: not client.exists(ask)
                   and relay.metric("snapshots_total") > before, PATIENCE)

    def snapshots(self):
        """every N messages there is a snapshot, and the log is trimmed"""
        engine = self.engine()
        relay = self.started(engine, "--snapshot-interval", "50")
        client = self.stage.redis
        held = set()
        for i in range(1, 1001):
            engine.send(stored([i], i - 1 or None))
            held.add(i)
            if i % 3 == 0:
                engine.send(removed([i - 1]))
                held.discard(i - 1)
        view = self.comes(relay, *held)
        wait_until("a late snapshot",
                   lambda: self.view(relay.worker).seq
                   - int(self.view(relay.worker).pointer["seq"]) < 50,
                   PATIENCE)
        view = self.comes(relay, *held)
        assert view.complete
        assert client.xlen(f"kv-log:{{{relay.worker}}}") < 1000
        old = [key for key in client.keys(f"kv-snap:{{{relay.worker}}}:*")
               if f"{view.epoch}-{view.pointer['seq']}:".encode() not in key]
        assert all(0 <= client.ttl(key) <= 60 for key in old)

    def asked(self):
        """a router that asks gets one"""
        engine = self.engine()
        relay = self.settled(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        self.snapshot_now(relay)
        view = self.view(relay.worker)
        assert view.pointer["seq"] == "2" and view.handles() == [1]
        assert not self.stage.redis.exists(
            f"kv-snap-ask:{{{relay.worker}}}")

    # ----------------------------------------------------------------- bounds

    def full_mirror(self):
        """a mirror that is too small says so"""
        engine = self.engine()
        relay = self.started(engine, "--memory", "9m")
        for i in range(100):
            engine.send(stored(list(range(1 + i * 1000, 1001 + i * 1000))))
        assert "--memory" in self.is_complete(relay, False)

    # ----------------------------------------------------------- TensorRT-LLM

    def tensorrt(self):
        """TensorRT-LLM is polled, and complete from its start on"""
        queue, lock = [], threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            """The drain."""

            def do_POST(self):
                """Events, once."""
                self.rfile.read(int(self.headers["Content-Length"]))
                with lock:
                    body = json.dumps(queue).encode()
                    queue.clear()
                assert self.path == "/kv_cache_events"
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Nothing."""

        def store(ident, handle, parent):
            return {"event_id": ident, "window_size": 4096, "data": {
                "type": "stored", "parent_hash": parent, "blocks": [
                    {"type": "stored_block", "block_hash": handle,
                     "tokens": [{"token_id": t, "token_extra_id": 0}
                                for t in tokens_of(handle)],
                     "cache_level": 0, "priority": 35}]}}

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with lock:
                queue.append(store(7, 1, None))
            relay = Relay(self.stage, f"w{next(self.names)}", "--trtllm",
                          f"http://127.0.0.1:{server.server_port}/")
            self.relays.append(relay)
            relay.wait_for("snapshot")
            view = self.comes(relay, 1)
            assert view.blocks[0, 1] == (None, (local_of(1),))
            assert "before" in self.is_complete(relay, False)
            with lock:
                queue.extend([
                    {"event_id": 0, "window_size": 4096, "data": {
                        "type": "created",
                        "num_blocks_per_cache_level": [100, 0]}},
                    store(1, 2, None), store(2, 3, 2)])
            view = self.comes(relay, 2, 3)
            self.is_complete(relay)
            with lock:
                queue.append({"event_id": 3, "window_size": 4096, "data": {
                    "type": "removed", "block_hashes": [3]}})
            view = self.comes(relay, 2)
            assert view.entries[-1][7] == 3
            with lock:
                queue.append(store(5, 4, 2))
            self.comes(relay, 2, 4)
            assert "lost" in self.is_complete(relay, False)
            with lock:
                queue.append({**store(6, 5, None), "window_size": 8192})
            self.comes(relay, 5)
            assert "lost" in self.is_complete(relay, False)
            relay.stop()
            relay = Relay(self.stage, f"w{next(self.names)}", "--trtllm",
                          f"http://127.0.0.1:{server.server_port}/",
                          "--ranks", "2")
            self.relays.append(relay)
            relay.wait_for("snapshot")
            with lock:
                queue.append({**store(6, 5, None), "window_size": 8192})
            self.comes(relay, 5)
            with lock:
                # another rank begins, and says its smaller window first
                queue.extend([
                    {"event_id": 0, "window_size": 128,
                     "attention_dp_rank": 1, "data": {"type": "created"}},
                    {"event_id": 7, "window_size": 128, "data": {
                        "type": "removed", "block_hashes": [5]}},
                    {"event_id": 1, "window_size": 8192,
                     "attention_dp_rank": 1, "data": {"type": "created"}},
                    {**store(8, 6, None), "window_size": 8192}])
            self.comes(relay, 5, 6)
        finally:
            server.shutdown()
            server.server_close()

    def metrics(self):
        """metrics and health are served"""
        engine = self.engine()
        relay = self.settled(engine)
        engine.send(stored([1]), removed([1]), stored([2]))
        engine.send(CLEARED)
        self.comes(relay)
        wait_until("acknowledged", lambda: relay.metric("envelopes_total")
                   == 2, PATIENCE)
        for name, value in (("messages_total", 2), ("blocks_stored_total", 2),
                            ("blocks_removed_total", 1), ("blocks", 0),
                            ("complete", 1), ("seq", 3),
                            ("unsent", 0), ("active", 1), ("redis_up", 1),
                            ("snapshots_total", 1),
                            ('engine_up{rank="0"}', 1),
                            ('engine_seq{rank="0"}', 1)):
            assert relay.metric(name) == value, name
        for page in "/health", "/ready":
            assert relay.http(page) == (200, "ok\n")
        assert relay.http("/")[0] == 404


def main(kind=Tests, name="relay", of=Stage):
    """Runs them all, or those named."""
    with of(name) as stage:
        stage.start_redis()
        tests = kind(stage)
        names = [name for name, value in vars(kind).items()
                 if callable(value) and not name.startswith("_")]
        helpers = {"engine", "relay", "started", "member", "view", "comes",
                   "is_complete", "after", "snapshot_now", "quiet",
                   "settled", "told", "trtllm"}
        wanted = sys.argv[1:] or [n for n in names if n not in helpers]

        def case(name):
            method = getattr(tests, name)

            def test():
                try:
                    method()
                except BaseException:
                    for relay in tests.relays:
                        print(f"# --- {relay.name}")
                        for line in relay.text().splitlines()[-40:]:
                            print(f"# {line}")
                    raise
                finally:
                    tests.after()

            test.__doc__ = method.__doc__
            return test

        return tap.run([case(name) for name in wanted])


if __name__ == "__main__":
    sys.exit(main())
