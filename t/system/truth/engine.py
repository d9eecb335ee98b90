"""A stand-in engine: caches of its ranks, and ZMQ as engines speak it.

Of each rank a PUB socket, and a ROUTER socket that replays from a finite
buffer (docs/events.md).  What is true at each of its batches is told to
a History, which never reads what is sent.
"""

import random
import threading
from collections import deque

import zmq

from stage import PATIENCE, wait_until

from .cache import Cache, Cleared
from .dialect import Dialect
from .history import History

END = (1 << 64) - 1             # the number that ends a replay
LARGE = "large"                 # the engine whose snapshots have many parts
TOO_LARGE = 24 << 20            # bytes of a batch that its relay won't read
CLEARS = 0.002                  # the part of steps that empty a rank


class Profile:
    """What kind of engine it is."""

    def __init__(self, name, dialect, copies="last", full_report=False,
                 offload=False, ranks=1, block_size=16, leaves=False,
                 keys="all", refcount=True, topic=b"", buffer=400, slots=120,
                 event_blocks=8, prompt_tokens=640, pairs=False):
        self.name, self.dialect = name, dialect
        self.copies = copies            # removals: each copy's, the last's,
                                        # or there are no copies (none)
        self.full_report = full_report  # what is held is announced again
        self.offload = offload          # to the host, later
        self.ranks, self.block_size = ranks, block_size
        self.leaves = leaves            # evicts leaves only
        self.keys = keys                # "all": adapters and salts; "salt"
        self.refcount = refcount        # what its relay is told to do
        self.topic, self.buffer = topic, buffer
        self.slots = slots * 16 // block_size
        self.host_slots = slots // 2
        self.event_blocks = event_blocks
        self.prompt_tokens = prompt_tokens
        self.pairs = pairs              # of tokens, as with EAGLE


PROFILES = (
    Profile("copies", Dialect(), copies="each", block_size=32, ranks=2),
    Profile("full", Dialect("map", "bytes"), full_report=True,
            refcount=False),
    Profile("offload", Dialect("array", "bytes"), copies="each",
            offload=True),
    Profile("counts", Dialect("map", counts=True), copies="each", ranks=2),
    Profile("report", Dialect("map", counts=True), full_report=True,
            offload=True),
    Profile("sglang", Dialect("array", "signed", metadata=True),
            copies="none", leaves=True, keys="salt",
            topic=b"kv@127.0.0.1@model"),
    Profile("reused", Dialect("map", origin=True), copies="each",
            full_report=True, offload=True),
    Profile(LARGE, Dialect("array"), copies="each", offload=True,
            slots=24_000, event_blocks=256, prompt_tokens=20_000),
)
PAIRS = (                       # a zone has all engines so, or none
    Profile("eagle", Dialect("array", "signed", metadata=True),
            copies="none", leaves=True, keys="salt", pairs=True),
    Profile("eagle-ranks", Dialect("map", "bytes", metadata=True),
            copies="none", leaves=True, keys="salt", pairs=True, ranks=2),
    Profile("eagle-pages", Dialect("map", metadata=True), copies="each",
            keys="salt", pairs=True, block_size=32, offload=True),
)


class Rank:
    """One data-parallel rank: its cache, its sockets, its lives."""

    def __init__(self, engine, number):
        self.engine, self.number = engine, number
        self.lives = []                 # a History for each life
        self.cache = None
        self.seq = 0
        self.buffer = deque()           # (number, payload), the last ones
        self.unheard = set()            # of those, what was never sent
        self.muted = 0                  # batches still to be dropped
        self.keep_muted = True          # ... which may be replayed
        self.publisher = self.replayer = None
        self.ports = None
        self.dropped = 0
        self.more = 0                   # bytes that the next batch has more

    def open(self, ports):
        """Binds the sockets, to the ports that they may have had before."""
        context = self.engine.context
        self.publisher = context.socket(zmq.PUB)
        self.replayer = context.socket(zmq.ROUTER)
        for socket in (self.publisher, self.replayer):
            socket.linger = 0
            socket.sndhwm = 100_000
        for socket, port in zip((self.publisher, self.replayer), ports):
            wait_until("the port is free", lambda s=socket, p=port: _bind(
                s, p), PATIENCE)

    def close(self):
        """Closes the sockets."""
        self.publisher.close()
        self.replayer.close()

    def begin(self, secret, rng):
        """A new life, with nothing in the cache."""
        self.cache = Cache(self.engine.profile, secret, rng)
        self.lives.append(History())
        self.seq = 0
        self.muted = self.more = 0
        self.buffer.clear()
        self.unheard.clear()

    def send(self, events):
        """One batch: to the oracle, to the buffer, and to the subscribers."""
        profile = self.engine.profile
        more, self.more = self.more, 0
        payload = profile.dialect.batch(
            events, self.number if profile.ranks > 1 else None, more)
        self.lives[-1].append(self.cache.state(), any(
            isinstance(event, Cleared) for event in events))
        seq = self.seq
        self.seq += 1
        if self.muted:
            self.muted -= 1
            self.dropped += 1
            if not self.keep_muted:
                self.lives[-1].lose(seq)
                return
            self.unheard.add(seq)
        else:
            self.publisher.send_multipart(
                (profile.topic, seq.to_bytes(8, "big"), payload))
            if self.engine.deaf:
                self.unheard.add(seq)
            if len(payload) > TOO_LARGE:
                self.lives[-1].lose(seq)
        self._keep(seq, payload)

    def _keep(self, seq, payload):
        """For a replay; what falls out unheard is lost."""
        self.buffer.append((seq, payload))
        while len(self.buffer) > self.engine.profile.buffer:
            oldest, _ = self.buffer.popleft()
            if oldest in self.unheard:
                self.unheard.remove(oldest)
                self.lives[-1].lose(oldest)

    def replay(self):
        """Answers one question of a replay socket."""
        frames = self.replayer.recv_multipart()
        if len(frames) != 3 or len(frames[2]) != 8:
            return
        start = int.from_bytes(frames[2], "big")
        with self.engine.lock:
            batches = [batch for batch in self.buffer if batch[0] >= start]
            self.unheard.difference_update(seq for seq, _ in batches)
        for seq, payload in batches:
            self.replayer.send_multipart(
                (frames[0], b"", seq.to_bytes(8, "big"), payload))
        self.replayer.send_multipart(
            (frames[0], b"", END.to_bytes(8, "big"), b""))


def _bind(socket, port):
    try:
        socket.bind(f"tcp://127.0.0.1:{port}")
        return True
    except zmq.ZMQError as err:         # what was closed is closed later
        raise OSError(str(err)) from err


class Engine:
    """An engine: step() makes it work, the rest is what may happen to it."""

    def __init__(self, name, profile, prompts, seed):
        self.name, self.profile, self.prompts = name, profile, prompts
        self.rng = random.Random(seed)
        self.lock = threading.RLock()
        self.context = zmq.Context()
        self.ranks = [Rank(self, number) for number in range(profile.ranks)]
        self.batches = 0
        self.relays = 0                 # that were ever started for it
        self.steady = False             # until heal()
        self.deaf = False               # nobody listens to what it says
        self.resting = False            # there are no requests
        self._going = False
        self._thread = None

    def start(self, ports):
        """Begins its first life; `ports` are {rank: (PUB, ROUTER)}."""
        with self.lock:
            for rank in self.ranks:
                rank.ports = ports[rank.number]
        self.rise()

    def rise(self):
        """Begins a life: other handles, numbers from 0, the same ports."""
        with self.lock:
            for rank in self.ranks:
                rank.open(rank.ports)
                rank.begin(self.rng.getrandbits(63), self.rng)
            self._going = True
        self._thread = threading.Thread(target=self._replay, daemon=True)
        self._thread.start()

    def fall(self):
        """Ends as a killed process does."""
        with self.lock:
            self._going = False
        self._thread.join()
        with self.lock:
            for rank in self.ranks:
                rank.close()

    def stop(self):
        """Ends for good."""
        if self._going:
            self.fall()
        self.context.destroy(linger=0)

    def step(self):
        """A request on one of its ranks; a batch, unless nothing changed.
        Now and then a rank is emptied instead, unless it is `steady`."""
        with self.lock:
            if not self._going or self.resting:
                return
            rank = self.rng.choice(self.ranks)
            if self.rng.random() < CLEARS and not self.steady:
                rank.send(rank.cache.clear())
                return
            events = rank.cache.step(
                self.prompts.pick(self.rng, self.profile.keys))
            if events:
                rank.send(events)
                self.batches += 1

    def burst(self, number, steps):
        """So many requests on one rank, and one batch of all their events."""
        with self.lock:
            rank, events = self.ranks[number], []
            for _ in range(steps if self._going else 0):
                events += rank.cache.step(
                    self.prompts.pick(self.rng, self.profile.keys))
            if events:
                rank.send(events)
                self.batches += 1

    def swell(self, number, size):
        """The next batch of a rank has so many bytes more."""
        with self.lock:
            self.ranks[number].more = size

    def swollen(self, number):
        """Whether that is still to come."""
        with self.lock:
            return bool(self.ranks[number].more)

    def listen(self, heard):
        """Whether anybody listens."""
        with self.lock:
            self.deaf = not heard

    def rest(self, resting):
        """Whether requests are turned away."""
        with self.lock:
            self.resting = resting

    def clear(self, number=None):
        """Empties the cache of one rank, or of all."""
        with self.lock:
            for rank in self.ranks:
                if self._going and number in (None, rank.number):
                    rank.send(rank.cache.clear())

    def heal(self):
        """Begins anew, whatever was lost: a clear, or a restart.  A relay
        that is started later asks the replay, and hears no clear behind a
        message that is too large: such an engine is restarted."""
        self.steady = False
        with self.lock:
            large = any(len(payload) > TOO_LARGE for rank in self.ranks
                        for _, payload in rank.buffer)
        if self.rng.random() < 0.7 and not large:
            self.clear()
        else:
            self.fall()
            self.rise()

    def mute(self, number, count, keep=True):
        """The next batches of a rank are not heard; may they be replayed?"""
        with self.lock:
            rank = self.ranks[number]
            rank.muted, rank.keep_muted = count, keep

    def muted(self, number):
        """How many batches are still to be dropped."""
        with self.lock:
            return self.ranks[number].muted

    def lost(self, number):
        """Whether what a rank holds can't be known."""
        with self.lock:
            history = self.ranks[number].lives[-1]
            return history.lost(history.last())

    def position(self):
        """What was sent last, of each rank: [(life, seq)]."""
        with self.lock:
            return [(len(rank.lives) - 1, rank.seq - 1)
                    for rank in self.ranks]

    def _replay(self):
        poller = zmq.Poller()
        sockets = {rank.replayer: rank for rank in self.ranks}
        for socket in sockets:
            poller.register(socket, zmq.POLLIN)
        while self._going:
            for socket, _ in poller.poll(50):
                sockets[socket].replay()
