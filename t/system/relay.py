"""What the relay's tests play on: a small engine, kv-relay, and a reader of
Redis that knows what a router would know.
"""

import collections
import os
import re
import signal
import struct
import threading
import time
import urllib.request
from pathlib import Path

import msgpack
import xxhash
import zmq

from stage import BLOCK_SIZE, PATIENCE, ROOT, free_port
from processes import Process, wait_until

BUILD = Path(os.environ.get("KVR_BUILD") or ROOT / "build")
RELAY = Path(os.environ.get("KVR_RELAY")
             or next((BUILD / name for name in ("kv-relay-asan", "kv-relay")
                      if (BUILD / name).is_file()), BUILD / "kv-relay"))
DEVICE, HOST = 0, 1


# ------------------------------------------------------------------- engine

class Engine:
    """One rank of vLLM: PUB, and a replay that leaves out what is old."""

    def __init__(self, ports=None, keep=10000, topic=b"", newer=False):
        self.port, self.replay_port = ports or (free_port(), free_port())
        self.moves = not ports          # until a relay knows them
        self.keep, self.topic = keep, topic
        self.newer = newer              # its replay has the topic, too
        self.lock = threading.RLock()
        self.drop = set()               # seqs that the next replay leaves out
        self.mute = False               # replay doesn't answer
        self.endless = 0                # so many replays are without an end
        self.answered = 0               # replays, to their end
        self.held = False               # while it is, a replay has no end:
                                        # each 200 ms the next message comes,
                                        # or the last one once more
        self.behind = []                # frames that messages have behind
        self.rise()

    def rise(self):
        """Begins anew, with nothing."""
        self.seq = 0
        self.kept = collections.deque(maxlen=self.keep)
        self.open()
        self.moves = False

    def open(self):
        """Its sockets."""
        self.context = zmq.Context()
        self.pub = self.context.socket(zmq.XPUB)    # PUB, but that it tells
        self.pub.xpub_verbose = True                # of each subscription
        self.subscriptions = 0
        self.replay = self.context.socket(zmq.ROUTER)
        for socket, name in ((self.pub, "port"),
                             (self.replay, "replay_port")):
            socket.linger = 0
            socket.sndhwm = 0
            wait_until("a port", lambda: self._bind(socket, name), PATIENCE)
        self.going = True
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _bind(self, socket, name):
        try:
            socket.bind(f"tcp://127.0.0.1:{getattr(self, name)}")
        except zmq.ZMQError:
            if self.moves:              # somebody else was given it meanwhile
                setattr(self, name, free_port())
            return False
        return True

    def close(self):
        """Ends its sockets; what it holds stays."""
        self.going = False
        self.thread.join()
        self.pub.close()
        self.replay.close()
        self.context.term()

    def subscribed(self):
        """How often anybody subscribed: what was sent before is lost to whom
        that was."""
        with self.lock:
            while self.going and self.pub.poll(0):
                self.subscriptions += self.pub.recv()[:1] == b"\1"
            return self.subscriptions

    def wait_subscribed(self, times=1):
        """Until somebody has subscribed so often since its sockets are."""
        wait_until(f"{times} subscriptions",
                   lambda: self.subscribed() >= times, PATIENCE)

    def _serve(self):
        while self.going:
            if not self.replay.poll(10):
                continue
            ident, _, start = self.replay.recv_multipart()
            start = int.from_bytes(start, "big")
            with self.lock:
                if self.mute:
                    continue
                for seq, payload in self.kept:
                    if seq >= start and seq not in self.drop:
                        self.replay.send_multipart(
                            [ident, b"", *[self.topic] * self.newer,
                             seq.to_bytes(8, "big"), payload, *self.behind])
                self.drop = set()
                last = self.kept[-1] if self.kept else None
            while (last and self.held and self.going
                   and not self.replay.poll(200)):
                with self.lock:
                    at = max(last[0] + 1 - self.kept[0][0], 0)
                    last = self.kept[at] if at < len(self.kept) else last
                self.replay.send_multipart([
                    ident, b"", *[self.topic] * self.newer,
                    last[0].to_bytes(8, "big"), last[1], *self.behind])
            with self.lock:
                if self.endless:
                    self.endless -= 1
                    continue
                self.replay.send_multipart(
                    [ident, b"", *[b""] * self.newer, b"\xff" * 8, b""])
                self.answered += 1

    def send(self, *events, lost=False, as_map=False, ts=None):
        """A batch; lost: subscribers don't get it."""
        ts = time.time() if ts is None else ts
        self._send({"ts": ts, "events": events} if as_map else [ts, events],
                   lost)

    def send_rank(self, rank, *events):
        """A batch that says its rank."""
        self._send([time.time(), events, rank], False)

    def send_batch(self, batch):
        """What is none of the above."""
        self._send(batch, False)

    def _send(self, batch, lost):
        self.send_payload(msgpack.packb(batch), lost)

    def send_payload(self, payload, lost=False):
        """A message's last frame as it is."""
        with self.lock:
            if not lost:
                self.pub.send_multipart(
                    [self.topic, self.seq.to_bytes(8, "big"), payload,
                     *self.behind])
            self.kept.append((self.seq, payload))
            self.seq += 1


def stored(handles, parent=None, medium=None, size=BLOCK_SIZE):
    """BlockStored; a block's tokens follow from its handle."""
    tokens = [t for h in handles for t in tokens_of(h, size)]
    return ["BlockStored", handles, parent, tokens, size, None, medium, None]


def removed(handles, medium=None):
    """BlockRemoved."""
    return ["BlockRemoved", handles, medium]


CLEARED = ["AllBlocksCleared"]


def tokens_of(handle, size=BLOCK_SIZE):
    """The tokens of the block with this handle."""
    return [handle % 65536, handle // 65536] + list(range(size - 2))


def local_of(handle, size=BLOCK_SIZE, seed=1337):
    """Their local hash."""
    return xxhash.xxh3_64_intdigest(
        struct.pack(f"<{size}I", *tokens_of(handle, size)), seed)


# -------------------------------------------------------------------- relay

class Relay(Process):
    """kv-relay."""

    count = 0

    def __init__(self, stage, worker, *options, url=None, before=()):
        Relay.count += 1
        self.worker = worker
        super().__init__(f"relay-{Relay.count}", [
            *before, str(RELAY), "--worker", worker, "--redis",
            url or stage.redis_url(), "--address", "127.0.0.1:80",
            "--listen", "127.0.0.1:0", "--memory", "32m",
            "--log-level", "debug", *options], stage.directory)

    def text(self):
        """What it has logged."""
        return self.log.read_text(errors="replace")

    def wait_for(self, msg, times=1):
        """Until it has logged a line with this message."""
        wait_until(f"{self.name} logs {msg}",
                   lambda: self.text().count(f'msg="{msg}"') >= times,
                   PATIENCE)

    def ended(self):
        """Its exit code, once it ended."""
        wait_until("the relay ends",
                   lambda: self._child.poll() is not None, PATIENCE)
        return self._child.returncode

    def kill(self):
        """SIGKILL."""
        self.signal(signal.SIGKILL)
        self._child.wait()

    def ticks(self):
        """Time of processors that it has taken, in ticks of the system."""
        fields = Path(f"/proc/{self._child.pid}/stat").read_text().rsplit(
            ")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def resident(self):
        """Bytes of memory that it has."""
        text = Path(f"/proc/{self._child.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", text).group(1)) << 10

    def http(self, path):
        """A page of its own: status and text."""
        port = re.search(r'msg="started".* listen=127.0.0.1:(\d+)',
                         self.text()).group(1)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}",
                                        timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as err:
            return err.code, err.read().decode()

    def wait_ready(self):
        """Until it is ready."""
        wait_until(f"{self.name} is ready",
                   lambda: self.http("/ready") == (200, "ok\n"), PATIENCE)

    def metric(self, name):
        """One of its metrics."""
        text = self.http("/metrics")[1]
        return float(re.search(rf"^kv_relay_{re.escape(name)} (\S+)$", text,
                               re.M).group(1))


# -------------------------------------------------------------------- views

class View:
    """What a router makes of a worker's snapshot and log."""

    def __init__(self, client, worker):
        while True:
            pointer = self._pointer(client, worker)
            try:
                self._read(client, worker, pointer)
                return
            except AssertionError:      # another snapshot came meanwhile
                if self._pointer(client, worker) == pointer:
                    raise

    @staticmethod
    def _pointer(client, worker):
        return {k.decode(): v.decode() for k, v in
                client.hgetall(f"kv-snap:{{{worker}}}").items()}

    def _read(self, client, worker, pointer):
        self.held = {}          # (rank, tier, handle) -> local hash | None
        self.blocks = {}        # (rank, handle) -> (parent, locals)
        self.pointer = pointer
        self.epoch, self.seq = int(pointer["epoch"]), int(pointer["seq"])
        self.complete = pointer["complete"] == "1"
        self.entries = []
        base = f"kv-snap:{{{worker}}}:{self.epoch}-{self.seq}:"
        for i in range(int(pointer["parts"])):
            part = client.get(f"{base}{i}")
            assert part is not None and len(part) <= 256 << 10, i
            assert client.ttl(f"{base}{i}") > 3600
            self.apply(part)
        for ident, fields in client.xrange(f"kv-log:{{{worker}}}"):
            epoch, seq = map(int, ident.decode().split("-"))
            envelope = unpack(fields[b"m"])
            assert envelope[:4] == ["kvr1", worker, epoch, seq], envelope
            if (epoch, seq) <= (self.epoch, self.seq):
                continue
            assert (epoch, seq) == (self.epoch, self.seq + 1), (
                ident, self.epoch, self.seq)
            self.seq = seq
            self.complete = envelope[4]
            self.entries.append(envelope)
            self.apply(envelope[6])

    def apply(self, batch):
        """A normalised batch."""
        for event in unpack(batch):
            if event[0] == "c":
                self.held = {k: v for k, v in self.held.items()
                             if k[0] != event[1]}
                continue
            if event[0] in "gb":        # of groups, which hold no other blocks
                continue
            kind, rank, tier = event[:3]
            handles = u64s(event[-1] if kind == "r" else event[4])
            if kind == "r":
                for handle in handles:
                    self.held.pop((rank, tier, handle), None)
                continue
            locals_ = u64s(event[5])
            parent = event[3]
            span = len(locals_) // len(handles)
            assert parent is None or (rank, parent) in self.blocks, event[:4]
            for i, handle in enumerate(handles):
                self.held[rank, tier, handle] = None
                if span:
                    self.blocks[rank, handle] = (
                        parent, tuple(locals_[i * span:(i + 1) * span]))
                    parent = handle
                else:
                    assert (rank, handle) in self.blocks

    def handles(self, rank=0, tier=DEVICE):
        """Those held."""
        return sorted(h for r, t, h in self.held if (r, t) == (rank, tier))


def unpack(data):
    """msgpack, as lists."""
    return msgpack.unpackb(data, raw=False, strict_map_key=False)


def u64s(data):
    """Little-endian numbers."""
    return list(struct.unpack(f"<{len(data) // 8}Q", data))
