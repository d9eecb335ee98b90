"""What moves: caches that change at random, requests, and their engines.

Everything here runs in one event loop in a thread of its own, so that tests
are plain functions that may wait, kill and ask meanwhile.
"""

import asyncio
import bisect
import contextlib
import json
import threading
import time
from array import array

import aiohttp
import msgpack
from aiohttp import web

from stage import BLOCK_SIZE, DEMO, PATIENCE, wait_until    # noqa: F401

import kv_cache                             # noqa: E402

from model import Model, local_hashes, sequence_hashes
from publisher import Publisher

DEVICE, HOST, DISK = range(3)

CLEARS = 0.003                  # of all events, unless a test says otherwise


class Loop:
    """An event loop in a thread."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever,
                                        daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        async def cancel():
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            while tasks:
                for task in tasks:
                    task.cancel()
                # wait_for() may swallow a cancellation that comes together
                # with what it waits for (until Python 3.12): ask again
                _, tasks = await asyncio.wait(tasks, timeout=1)
        self.run(cancel())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def start(self, coroutine):
        """Starts a coroutine; returns its future."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine, seconds=PATIENCE):
        """Runs a coroutine to its end."""
        return self.start(coroutine).result(seconds)


# --------------------------------------------------------------------- events

def le64(numbers):
    """Numbers below 2^64 as little-endian bytes."""
    return array("Q", numbers).tobytes()


class Sequence(kv_cache.Sequence):
    """A prompt's blocks as an engine names them, and as a router does."""

    def __init__(self, tokens, secret=0):
        super().__init__(tokens, BLOCK_SIZE, secret=secret)
        self.locals = local_hashes(tokens, BLOCK_SIZE)


def make_prompts(rng, groups, each, blocks):
    """Prompts of token ids; those of a group begin alike."""
    prompts = []
    for _ in range(groups):
        head = [rng.randrange(1 << 17)
                for _ in range(rng.randrange(1, blocks) * BLOCK_SIZE)]
        for _ in range(each):
            prompts.append(head + [
                rng.randrange(1 << 17)
                for _ in range(blocks * BLOCK_SIZE - len(head))])
    return prompts


class Cache:
    """A worker whose cache changes at random, and its history.

    batch() makes events that an engine might send: chains stored in pieces,
    some of them again, in several tiers; removals anywhere and in any order,
    so that holes come and are filled; clears, a share of all.  Prompts that
    are `fixed` are stored first, on rank 0, and stay.
    """

    def __init__(self, worker, rng, prompts, secret=0, ranks=1, fixed=0,
                 clears=CLEARS):
        self.worker = worker
        self.rng = rng
        self.ranks = ranks
        self.fixed = fixed
        self.clears = clears
        self.model = Model()
        self.sequences = [Sequence(prompt, secret=secret)
                          for prompt in prompts]
        self.blocks = [sequence_hashes(sequence.locals)
                       for sequence in self.sequences]
        self.stored_blocks = 0
        self._alike = self._sharing(prompts)
        self._history = {(rank, number): [(0, (0, 0, 0))]
                         for rank in range(ranks)
                         for number in range(len(prompts))}

    def opening(self, seq):
        """The batch that stores what is fixed, as message `seq`."""
        events = [self._store(0, DEVICE, number, 0, len(
            self.sequences[number].handles)) for number in range(self.fixed)]
        self._note(events, seq, range(self.fixed))
        return events

    def batch(self, seq):
        """The next batch of events, as message `seq`."""
        events = []
        for _ in range(self.rng.randrange(1, 5)):
            number = self.rng.randrange(self.fixed, len(self.sequences))
            event = self._event(self.rng.randrange(self.ranks), number)
            if event:
                self._note([event], seq, self._alike[number]
                           if event[0] != "c" else range(len(self.sequences)))
                events.append(event)
        return events or self.batch(seq)

    def window(self, rank, number, after, until):
        """The depths that a prompt had once `after` was applied and until
        `until` was, in order."""
        history = self._history[rank, number]
        first = bisect.bisect_right(history, after, key=lambda at: at[0]) - 1
        return [depths for seq, depths in history[first:] if seq <= until]

    def _event(self, rank, number):
        sequence = self.sequences[number]
        holder = self.model.holder(self.worker, rank)
        kind = self.rng.random()
        if kind < self.clears and (rank or not self.fixed):
            return ["c", rank]
        if kind < 0.45:
            held = [handle for handle in sequence.handles
                    if handle in holder.block_of]
            if held:
                self.rng.shuffle(held)
                tier = self.rng.choices((DEVICE, HOST, DISK), (8, 1, 1))[0]
                return ["r", rank, tier,
                        le64(held[:self.rng.randrange(1, 12)])]
        known = [at for at, handle in enumerate(sequence.handles, 1)
                 if handle in holder.block_of]
        depth = max(holder.depths(self.blocks[number]))
        start = self.rng.choice(known) if known and kind > 0.9 else depth
        length = self.rng.randrange(1, 16)
        if kind > 0.8:
            tier = self.rng.choice((HOST, DISK))
            start = self.rng.randrange(depth + 1)
        else:
            tier = DEVICE
        if start == len(sequence.handles):
            start = self.rng.choice([0] + known[:-1])
        return self._store(rank, tier, number, start, start + length)

    def _store(self, rank, tier, number, start, end):
        sequence = self.sequences[number]
        handles = sequence.handles[start:end]
        self.stored_blocks += len(handles)
        parent = sequence.handles[start - 1] if start else None
        return ["s", rank, tier, parent, le64(handles),
                le64(sequence.locals[start:end])]

    def _note(self, events, seq, numbers):
        for event in events:
            self.model.apply(self.worker, [event])
            rank = event[1]
            holder = self.model.holder(self.worker, rank)
            for number in numbers:
                depths = holder.depths(self.blocks[number])
                history = self._history[rank, number]
                if history[-1][1] != depths:
                    history.append((seq, depths))

    @staticmethod
    def _sharing(prompts):
        return [[other for other, prompt in enumerate(prompts)
                 if prompt[:BLOCK_SIZE] == one[:BLOCK_SIZE]]
                for one in prompts]


def envelope(worker, epoch, seq, payload, complete=True):
    """A message as kv-relay sends it; a heartbeat when payload is None."""
    return msgpack.packb(["kvr1", worker, epoch, seq, complete, 0, payload])


class Stream:
    """A publisher that does what the test says, message by message."""

    def __init__(self, client, cache, epoch):
        self.client, self.cache = client, cache
        self.worker = cache.worker
        self.epoch, self.seq = epoch, 0
        self.log_key = "kv-log:{%s}" % self.worker
        self.channel = "kv-events:" + self.worker

    def send(self, count=1, log=True, live=True):
        """Random changes, to the log, to the channel, or to both."""
        for _ in range(count):
            self.send_events(self.cache.batch(self.seq + 1), log, live)

    def send_events(self, events, log=True, live=True):
        """One message of these events, unknown to the cache."""
        self.send_payload(msgpack.packb(events), log, live)

    def send_payload(self, payload, log=True, live=True):
        """One message of a payload in bytes."""
        self.seq += 1
        message = self.envelope(payload)
        pipe = self.client.pipeline(transaction=True)
        if log:
            pipe.xadd(self.log_key, {"m": message},
                      id=f"{self.epoch}-{self.seq}")
        if live:
            pipe.publish(self.channel, message)
        pipe.execute()

    def heartbeat(self):
        """Says what was sent last."""
        self.client.publish(self.channel, self.envelope(None))

    def envelope(self, payload):
        """A message, or a heartbeat, of what was sent last."""
        return envelope(self.worker, self.epoch, self.seq, payload)

    def logged(self, *seqs):
        """Messages of this epoch as the log has them."""
        return [self.client.xrange(self.log_key, f"{self.epoch}-{seq}",
                                   count=1)[0][1][b"m"] for seq in seqs]

    def restart(self):
        """A new epoch, and all that is held again."""
        self.epoch += 1
        self.seq = 0
        self.cache.model.clear_worker(self.worker)
        self.send(20)

    def cursor(self):
        """Where the router has to come to."""
        return {self.worker: (self.epoch, self.seq)}


class Fleet:
    """Caches and their publishers."""

    def __init__(self, loop, url, caches):
        self.caches = {cache.worker: cache for cache in caches}
        self.publishers = {}
        self._loop = loop
        self._going = False
        self._tasks = []
        self._churn = None
        loop.run(self._start(url))

    async def _start(self, url):
        for worker, cache in self.caches.items():
            publisher = Publisher(url, worker, {
                "address": "", "model": "", "block_size": BLOCK_SIZE,
                "ranks": cache.ranks, "role": "both", "weight": 1})
            self.publishers[worker] = publisher
            self._tasks.append(asyncio.create_task(publisher.run()))
            if cache.fixed:
                publisher.publish(cache.opening(publisher.seq + 1))

    def start(self, pause=0.02):
        """Lets the caches change, each after each `pause` seconds."""
        self._going = True
        self._churn = self._loop.start(self._change(pause))

    def stop(self):
        """Ends the changes, and waits until Redis has all of them."""
        self._going = False
        self._churn.result(PATIENCE)
        self._loop.run(self._drained())

    def publish(self, worker, count=1):
        """Some changes of one worker."""
        async def change():
            for _ in range(count):
                self._batch(worker)
        self._loop.run(change())

    def drain(self):
        """Waits until Redis has all."""
        self._loop.run(self._drained())

    def cursors(self):
        """Where the router has to come to: {worker: (epoch, seq)}."""
        return {worker: (publisher.epoch, publisher.seq)
                for worker, publisher in self.publishers.items()
                if publisher.seq}

    def model(self):
        """What all caches hold."""
        model = Model()
        for cache in self.caches.values():
            model.holders.update(cache.model.holders)
        return model

    def blocks(self):
        """The blocks stored so far."""
        return sum(cache.stored_blocks for cache in self.caches.values())

    def _batch(self, worker):
        publisher = self.publishers[worker]
        publisher.publish(self.caches[worker].batch(publisher.seq + 1))

    async def _change(self, pause):
        while self._going:
            for worker in self.caches:
                for _ in range(2):
                    self._batch(worker)
                await asyncio.sleep(pause / len(self.caches))

    async def _drained(self):
        while any(publisher.sent < publisher.seq
                  for publisher in self.publishers.values()):
            await asyncio.sleep(0.02)


class Watch:
    """Asks for prompts while things happen, and compares with the history.

    An answer has to lie within what was held from the last message applied
    before the question to the last one published before the answer; between
    the states before and behind an event too, for an event takes its blocks
    one by one.  It may be less only when the lookup met a writer at work (or
    one that had died at work), and never more.
    """

    def __init__(self, stage, fleet, rng):
        self.stage, self.fleet, self.rng = stage, fleet, rng
        self.asked = self.less = self.lost = 0
        self.longest = 0.0
        self._wrong = None
        self._going = False
        self._thread = None

    def start(self):
        """Asks all the time, in a thread of its own."""
        self._going = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self, count):
        """Asks no more, once it has had so many answers; raises what was
        wrong."""
        wait_until(f"{count} queries", lambda: self.asked > count
                   or not self._thread.is_alive(), PATIENCE)
        self._going = False
        self._thread.join()
        if self._wrong:
            raise self._wrong

    def _run(self):
        try:
            while self._going:
                self.ask()
                time.sleep(0.002)
        except Exception as err:        # pylint: disable=broad-except
            self._wrong = err

    def ask(self):
        """One prompt, of all workers; a dying process may cost the answer."""
        cache = next(iter(self.fleet.caches.values()))
        number = self.rng.randrange(len(cache.sequences))
        started = time.monotonic()
        try:
            before = json.loads(self.stage.call("GET", "/status"))
            found = self.stage.query(list(cache.sequences[number].tokens))
        except OSError:
            self.lost += 1
            return
        until = self.fleet.cursors()
        self.longest = max(self.longest, time.monotonic() - started)
        after = {worker["worker_id"]: worker["seq"]
                 for worker in before["workers"]}
        for name, owner in self.fleet.caches.items():
            for rank in range(owner.ranks):
                depths = found.pop((name, rank), (0, 0, 0))
                self._check(owner, rank, number, depths,
                            after.get(name, 0), until.get(name, (0, 0))[1])
        assert not found, f"holders that nobody is: {found}"
        self.asked += 1

    def _check(self, cache, rank, number, depths, after, until):
        states = cache.window(rank, number, after, until)
        what = (f"worker {cache.worker} rank {rank} prompt {number}: "
                f"{depths}, but between messages {after} and {until} it was "
                f"{states}")
        for depth, known in zip(depths, zip(*states)):
            assert depth <= max(known), what
            if depth < min(known):
                assert rank or number >= cache.fixed, what
                self.less += 1
                print(f"# {what}")


# ------------------------------------------------------------------- requests

class Engines:
    """Stand-ins that answer at once, or stream slowly."""

    CHUNKS, CHUNK_SECONDS = 12, 0.1

    def __init__(self, loop, workers):
        self.addresses = {}
        self.served = dict.fromkeys(workers, 0)
        loop.run(self._start(workers))

    async def _start(self, workers):
        for worker in workers:
            app = web.Application(client_max_size=64 << 20)
            app["worker"] = worker
            app.add_routes([web.post("/v1/completions", self._complete)])
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.addresses[worker] = "127.0.0.1:%d" % runner.addresses[0][1]

    async def _complete(self, request):
        body = await request.json()
        worker = request.app["worker"]
        self.served[worker] += 1
        if not body.get("stream"):
            await asyncio.sleep(body.get("seconds", 0))
            return web.json_response({"worker": worker})
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream"})
        with contextlib.suppress(ConnectionResetError):     # nginx has died
            await response.prepare(request)
            for number in range(self.CHUNKS):
                await response.write(b"data: %d\n\n" % number)
                await asyncio.sleep(self.CHUNK_SECONDS)
            await response.write(b"data: [DONE]\n\n")
        return response


class Load:
    """An open stream of requests, some of them streaming."""

    STREAMS = 0.15                      # the part that streams
    OPEN = 128                          # the most that are open at once: a slow
                                        # machine is sent fewer requests

    def __init__(self, loop, stage, prompts, rng):
        self.done = self.streamed = 0
        self.failures = []
        self.open = 0
        self._url = f"http://127.0.0.1:{stage.port}/v1/completions"
        self._bodies = [{"prompt": prompt, "max_tokens": 8}
                        for prompt in prompts]
        self._rng = rng
        self._loop = loop
        self._going = False
        self._task = None

    def start(self, rate=60):
        """Sends `rate` requests a second, while there are not too many."""
        self._going = True
        self._task = self._loop.start(self._run(rate))

    def stop(self, done=0, streamed=0):
        """Ends the stream once there were so many answers; returns when the
        last one is there."""
        wait_until(f"{done} requests, {streamed} streams", lambda: self.done
                   > done and self.streamed >= streamed, PATIENCE)
        self._going = False
        self._task.result(2 * PATIENCE)

    async def _run(self, rate):
        tasks = set()
        async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True, limit=0),
                timeout=aiohttp.ClientTimeout(total=PATIENCE)) as session:
            while self._going:
                if len(tasks) < self.OPEN:
                    task = asyncio.create_task(self._one(session))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                await asyncio.sleep(1 / rate)
            await asyncio.gather(*tasks)

    async def _one(self, session):
        stream = self._rng.random() < self.STREAMS
        body = {**self._rng.choice(self._bodies), "stream": stream}
        self.open += 1
        try:
            async with session.post(self._url, json=body) as response:
                data = await response.read()
                if response.status != 200:
                    self.failures.append(f"{response.status} {data[:200]}")
                elif stream and (data.count(b"data: ") != Engines.CHUNKS + 1
                                 or not data.endswith(b"[DONE]\n\n")):
                    self.failures.append(f"a broken stream: {data[-60:]}")
                elif not stream and "worker" not in json.loads(data):
                    self.failures.append(f"a broken answer: {data[:60]}")
                else:
                    self.done += 1
                    self.streamed += stream
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as err:
            self.failures.append(repr(err))
        finally:
            self.open -= 1
