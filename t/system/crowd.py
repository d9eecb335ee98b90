"""Thousands of clients and a few engines, in one thread: who waits, who is
served, and what was wrong.

Clients leave at random, by HTTP/1 and HTTP/2.  Engines count the requests that
they have at once.
"""

import asyncio
import collections
import json
import random
import re
import socket
import struct
import threading
import time

from stage import free_port

TICK = 0.05                     # seconds between two looks at all
LATE = 0.02                     # more than that is the machine's, not nginx's
IDLE = 0.3                      # seconds that an engine may have room, and a
                                # request wait
LEFT = 1                        # seconds until a connection is closed whose
                                # client has left
PATIENCE = 40                   # seconds until an answer, beside the wait
PATHS = ("/v1/completions", "/watched/v1/completions")
CLASSES = ("interactive", "batch", "bulk", "unknown", "")
LIMITED = "team-a"              # a tenant with a bound
TENANTS = (*"abcdef", LIMITED, *["greedy"] * 4)


class Ask:
    """A request: what was asked, and how far it is."""

    def __init__(self, number, rng, wait):
        self.number = str(number)
        self.name = rng.choice(CLASSES)
        self.tenant = rng.choice(TENANTS)
        self.path = rng.choice(PATHS)
        self.leaves = (rng.random() * wait * 0.7
                       if rng.random() < 0.3 else None)
        self.limit = rng.randrange(50, 3000) if rng.random() < 0.1 else None
        self.body = json.dumps({
            "model": "m", "stream": True, "max_tokens": 16,
            "prompt": [rng.randrange(1 << 16)] * rng.choice(
                (16, 16, 32, 64, 64, 320, 640))}).encode()
        self.since = self.status = None
        self.arrived = False            # at an engine
        self.done = asyncio.get_running_loop().create_future()

    def headers(self):
        """Of the request; HTTP/2's in lower case are HTTP/1's, too."""
        yield "content-length", str(len(self.body))
        yield "x-id", self.number
        yield "x-class", self.name
        yield "x-tenant", self.tenant
        if self.limit:
            yield "x-request-timeout-ms", str(self.limit)

    def end(self, status):
        """It has its answer, or has left."""
        if not self.done.done():
            self.status = status
            self.done.set_result(status)


class Http1(asyncio.Protocol):
    """A client of one request."""

    def __init__(self, ask):
        self.ask, self.data, self.transport = ask, b"", None

    def connection_made(self, transport):
        self.transport = transport
        lines = "".join(f"{name}: {value}\r\n"
                        for name, value in self.ask.headers())
        transport.write(f"POST {self.ask.path} HTTP/1.1\r\nhost: x\r\n"
                        f"connection: close\r\n{lines}\r\n".encode()
                        + self.ask.body)

    def data_received(self, data):
        self.data += data

    def connection_lost(self, exc):
        head = re.match(rb"HTTP/1.1 (\d+)", self.data)
        self.ask.end(head[1].decode() if head else "closed")

    def leave(self, ask, rng):
        """By FIN, or RST."""
        if rng.random() < 0.5:
            self.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
        ask.end("left")


class Http2(asyncio.Protocol):
    """A client of a few streams."""

    DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
    END_STREAM, END_HEADERS, ACK = 1, 4, 1

    def __init__(self, asks):
        self.asks = {2 * n + 1: ask for n, ask in enumerate(asks)}
        self.data, self.transport = b"", None
        self.statuses = {}

    def _frame(self, kind, flags, stream, payload):
        if self.transport.is_closing():
            return
        self.transport.write(struct.pack(">I", len(payload))[1:]
                             + struct.pack(">BBI", kind, flags, stream)
                             + payload)

    def connection_made(self, transport):
        def text(value):
            return bytes([len(value)]) + value.encode()
        self.transport = transport
        transport.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self._frame(self.SETTINGS, 0, 0, b"")
        for stream, ask in self.asks.items():
            head = (b"\x83\x86\x04" + text(ask.path) + b"\x01" + text("x")
                    + b"".join(b"\0" + text(name) + text(value)
                               for name, value in ask.headers()))
            self._frame(self.HEADERS, self.END_HEADERS, stream, head)
            self._frame(self.DATA, self.END_STREAM, stream, ask.body)

    def data_received(self, data):
        self.data += data
        while len(self.data) >= 9:
            length = int.from_bytes(self.data[:3], "big")
            if len(self.data) < 9 + length:
                return
            kind, flags, stream = struct.unpack(">BBI", self.data[3:9])
            payload = self.data[9:9 + length]
            self.data = self.data[9 + length:]
            self._took(kind, flags, stream, payload)

    def _took(self, kind, flags, stream, payload):
        if kind == self.SETTINGS and not flags & self.ACK:
            self._frame(self.SETTINGS, self.ACK, 0, b"")
        if kind == self.HEADERS and stream not in self.statuses:
            self.statuses[stream] = status_of(payload)
        if kind == self.RST_STREAM:
            self._ended(stream, self.statuses.get(stream, "closed"))
        elif kind <= self.HEADERS and flags & self.END_STREAM:
            self._ended(stream, self.statuses[stream])

    def _ended(self, stream, status):
        self.asks[stream].end(status)
        if all(ask.done.done() for ask in self.asks.values()):
            self.transport.close()

    def connection_lost(self, exc):
        for ask in self.asks.values():
            ask.end("closed")

    def leave(self, ask, rng):
        """One stream, or all."""
        stream = next(n for n, one in self.asks.items() if one is ask)
        if rng.random() < 0.3:
            for one in self.asks.values():
                one.end("left")
            self.transport.abort()
        else:
            self._frame(self.RST_STREAM, 0, stream, b"\0\0\0\x08")
            self._ended(stream, "left")


def status_of(head):
    """The status of HPACK's first field."""
    if head[0] & 0xe0 == 0x20:          # the size of the table
        head = head[1:]
    return {0x88: "200", 0x8c: "400", 0x8d: "404", 0x8e: "500"}.get(
        head[0]) or head[2:5].decode()


class Job:
    """A request at an engine."""

    def __init__(self, peer, tokens):
        self.peer = peer
        self.tokens = tokens            # of the prompt, until the first output


class Served(asyncio.Protocol):
    """A connection of an engine."""

    def __init__(self, engine):
        self.engine, self.data, self.transport = engine, b"", None

    def connection_made(self, transport):
        self.transport = transport
        self.engine.peers.add(self)

    def connection_lost(self, exc):
        self.engine.peers.discard(self)
        for job in [job for job in self.engine.open if job.peer is self]:
            self.engine.open.discard(job)

    def data_received(self, data):
        self.data += data
        head, found, body = self.data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if not found or length and len(body) < int(length[1]):
            return
        self.data = b""
        if head.startswith(b"GET "):
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n"
                                 b"\r\n")
            return
        number = re.search(rb"(?i)x-id: (\d+)", head)[1].decode()
        self.engine.begins(self, number, len(json.loads(body)["prompt"]))


class Engine:
    """An engine with its bounds, of requests and of tokens; 0: none."""

    def __init__(self, crowd, name, most=0, tokens=0):
        self.crowd, self.name = crowd, name
        self.most, self.bound = most, tokens
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.pause = 0.03
        self.peers, self.open = set(), set()
        self.served, self.highest = 0, 0
        self.used = True                # by the router
        self.idle = 0                   # seconds that it had room, and none
                                        # came though some wait
        self._server = None

    def bounds(self):
        """As the configuration has them."""
        return ((f" max_active={self.most}" if self.most else "")
                + (f" max_prefill_tokens={self.bound}" if self.bound else ""))

    async def listen(self):
        """It is there."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Served(self), "127.0.0.1", self.port, backlog=4096)

    def vanish(self):
        """As a process that is killed."""
        self._server.close()
        self._server = None
        self.open.clear()
        for peer in list(self.peers):
            peer.transport.abort()

    def has_room(self):
        """Could it take a request?"""
        return (self._server and self.used
                and not self._full(self.open))

    def _full(self, jobs):
        return (self.most and len(jobs) >= self.most
                or self.bound and sum(job.tokens
                                      for job in jobs) >= self.bound)

    def begins(self, peer, number, tokens):
        """A request comes."""
        before = [(job, job.tokens) for job in self.open]
        if self._full(self.open) and (self.most or self.crowd.calm):
            asyncio.get_running_loop().call_later(
                LEFT, self._passed, before, tokens)
        job = Job(peer, tokens)
        self.open.add(job)
        self.served += 1
        self.idle = 0
        self.highest = max(self.highest, len(self.open))
        self.crowd.arrived(number)
        loop = asyncio.get_running_loop()
        pause = self.pause * self.crowd.rng.random()
        loop.call_later(pause, self._first, job)
        loop.call_later(2 * pause, self._last, job)

    def _passed(self, before, tokens):
        """What the router has closed by now did not count, perhaps, when the
        request came."""
        all_of = [n for job, n in before if job.peer in self.peers] + [tokens]
        if self.most and len(all_of) > self.most:
            self.crowd.say(f"{self.name} has {len(all_of)} requests")
        # the last one that got a place may be the first that comes
        if self.bound and sum(all_of) - max(all_of) >= self.bound:
            self.crowd.say(f"{self.name} has {all_of} tokens")

    def _first(self, job):
        if job in self.open and not job.peer.transport.is_closing():
            job.tokens = 0
            job.peer.transport.write(
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"
                b"content-type: text/event-stream\r\n\r\n"
                b'26\r\ndata: {"choices":[{"text":"hello"}]}\n\n\r\n')

    def _last(self, job):
        if job in self.open and not job.peer.transport.is_closing():
            self.open.discard(job)
            job.peer.transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


class Crowd:
    """All of it, in a thread of its own."""

    def __init__(self, port, http2_port, seed, wait):
        """`wait`: seconds that a request may wait at the router."""
        self.port, self.http2_port, self.wait = port, http2_port, wait
        self.rng = random.Random(seed)
        self.engines = []
        self.asks = {}                  # that have no end yet
        self.statuses = collections.Counter()
        self.wrong = []
        self.calm = False               # no fault is going on
        self.longest = 0                # seconds that room was not used
        self.most = 0                   # requests that waited at once
        self._number = 0
        self._goal = 0                  # clients
        self._clients = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever,
                                        daemon=True)
        self._thread.start()
        self.call(self._start())

    # ---------------------------------------------- from the test's thread

    def call(self, coroutine):
        """Runs it there; returns its value."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def clients(self, number):
        """There are so many from now on; 0: all have ended when this
        returns."""
        self._goal = number
        if not number:
            end = time.monotonic() + self.wait + 2 * PATIENCE
            while self._clients:
                assert time.monotonic() < end, "clients do not end"
                time.sleep(0.05)

    def engine(self, name, **bounds):
        """Another engine."""
        engine = Engine(self, name, **bounds)
        self.engines.append(engine)
        self.call(engine.listen())
        return engine

    def vanish(self, engine):
        """It is killed."""
        async def now():
            engine.vanish()
        self.call(now())

    def comes(self, engine):
        """It is there again."""
        self.call(engine.listen())

    def waiting(self):
        """How many are at no engine."""
        return sum(not ask.arrived for ask in list(self.asks.values()))

    # ------------------------------------------------------- in its thread

    def say(self, what):
        """Something is wrong."""
        if len(self.wrong) < 20:
            self.wrong.append(what)

    def arrived(self, number):
        """A request is at an engine."""
        if number in self.asks:
            self.asks[number].arrived = True

    async def _start(self):
        self._tasks = [asyncio.create_task(self._watch()),
                       asyncio.create_task(self._keep())]

    async def _keep(self):
        """As many clients as there are to be."""
        while True:
            while len(self._clients) < self._goal:
                task = asyncio.create_task(self._client())
                self._clients.add(task)
                task.add_done_callback(self._clients.discard)
            await asyncio.sleep(TICK)

    async def _client(self):
        await asyncio.sleep(self.rng.random() * self.wait / 6)
        while len(self._clients) <= self._goal:
            http2 = self.rng.random() < 0.3
            asks = [Ask(self._next(), self.rng, self.wait)
                    for _ in range(self.rng.choice((1, 2, 4)) if http2 else 1)]
            await self._ask(asks, http2)
            refused = any(ask.status == "429" for ask in asks)
            await asyncio.sleep(self.rng.random() * (self.wait if refused
                                                     else 0.1))

    def _next(self):
        self._number += 1
        return self._number

    async def _ask(self, asks, http2):
        calm = self.calm
        loop = asyncio.get_running_loop()
        client = Http2(asks) if http2 else Http1(asks[0])
        try:
            await loop.create_connection(
                lambda: client, "127.0.0.1",
                self.http2_port if http2 else self.port)
        except OSError:
            self.statuses["refused"] += len(asks)
            return
        for ask in asks:
            ask.since = loop.time()
            self.asks[ask.number] = ask
            if ask.leaves is not None:
                loop.call_later(ask.leaves, self._leave, client, ask)
        _, late = await asyncio.wait([ask.done for ask in asks],
                                     timeout=self.wait + PATIENCE)
        for ask in asks:
            del self.asks[ask.number]
            self.statuses[ask.status] += 1
            if self.calm and calm and ask.status not in ("200", "429", "left"):
                self.say(f"an answer while all is well: {ask.status}")
            if ask.done in late:
                self.say(f"no end: {ask.name} {ask.tenant} {ask.path}, at an "
                         f"engine: {ask.arrived}, HTTP/2: {http2}")
        if late:
            client.transport.abort()

    def _leave(self, client, ask):
        if not ask.done.done():
            client.leave(ask, self.rng)

    async def _watch(self):
        """Does a request wait, and none comes to an engine that has room?"""
        before = time.monotonic()
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            spent = min(now - before, TICK + LATE)
            before = now
            waits = [ask for ask in self.asks.values() if not ask.arrived]
            self.most = max(self.most, len(waits))
            waits = [ask for ask in waits if now - ask.since > IDLE
                     and ask.name != "bulk" and ask.tenant != LIMITED]
            for engine in self.engines:
                idle = self.calm and waits and engine.has_room()
                engine.idle = engine.idle + spent if idle else 0
                self.longest = max(self.longest, engine.idle)
                if engine.idle > IDLE:
                    self.say(f"{engine.name} has room, and {len(waits)} wait:"
                             f" {waits[0].name} {waits[0].tenant} for "
                             f"{now - waits[0].since:.2f} s")
                    engine.idle = 0
