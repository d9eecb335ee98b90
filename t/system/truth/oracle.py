"""The oracle: what each engine held at every (epoch, seq) of its relay.

It reads the channels, the logs and the pointers of snapshots in Redis by
itself, and learns from them one thing alone: which of the engine's batches an
envelope completes.  What was held then the engines' histories know.
"""

import contextlib
import json
import threading
import time

import msgpack
import redis

from model import u64s

from .blocks import INDEX_BLOCK
from .cache import DEVICE, HOST         # noqa: F401 (the dump's bits too)

KEPT = 8000                     # envelopes of an epoch that are remembered
PAGE = 2000                     # envelopes read from a log at once
LARGE = 100_000                 # bytes of an envelope that was full
EMPTY = "empty"                 # a rank that holds nothing
PARTLY = "partly"               # ... that is in the middle of a batch


class Epoch:
    """What was published in one incarnation of one worker's relay."""

    def __init__(self):
        self.envelopes = {}             # seq -> (rank, engine seq, payload)
        self.positions = {}             # seq -> {rank: (life, seq) or ...}

    def forget(self):
        """Keeps what may still be asked for."""
        for table in (self.envelopes, self.positions):
            while len(table) > KEPT:
                del table[next(iter(table))]


class Oracle:
    """Answers what a worker held at (epoch, seq)."""

    def __init__(self, port, engines):
        self.engines = {engine.name: engine for engine in engines}
        self.epochs = {}                # (worker, epoch) -> Epoch
        self.parts = 0                  # envelopes that complete no batch
        self.lock = threading.RLock()
        self._port = port
        self._client = self._connect()
        self._going = True
        self._threads = [threading.Thread(target=run, daemon=True)
                         for run in (self._listen, self._watch)]
        for thread in self._threads:
            thread.start()

    def stop(self):
        """Reads no more."""
        self._going = False
        for thread in self._threads:
            thread.join(5)

    def position(self, worker, epoch, seq):
        """The batches that the worker's state at (epoch, seq) is made of:
        {rank: (life or None, seq), EMPTY or PARTLY}; None: not known."""
        with self.lock:
            found = self._position(worker, epoch, seq)
        if found is None:
            with contextlib.suppress(redis.RedisError, OSError):
                self._read_pointer(worker)
                self._read_log(worker, epoch, seq)
            with self.lock:
                found = self._position(worker, epoch, seq)
        return found

    def states(self, worker, epoch, seq):
        """What each rank held: {rank: [state, ...]}, one of which it has to
        be; a state is {Block: tiers}.  None: not known."""
        position = self.position(worker, epoch, seq)
        if position is None or PARTLY in position.values():
            return None
        engine = self.engines[worker]
        states = {}
        with engine.lock:
            for rank in engine.ranks:
                at = position.get(rank.number, EMPTY)
                if at == EMPTY:
                    states[rank.number] = [{}]
                    continue
                life, last = at
                lives = rank.lives if life is None else [rank.lives[life]]
                found = [history.state(last) for history in lives]
                states[rank.number] = [one for one in found
                                       if one is not None]
                if not states[rank.number]:
                    return None
        return states

    def lost(self, worker, epoch, seq):
        """Whether something was lost before that, so that nobody can know
        what the worker held."""
        position = self.position(worker, epoch, seq) or {}
        engine = self.engines[worker]
        with engine.lock:
            for rank in engine.ranks:
                at = position.get(rank.number, EMPTY)
                if isinstance(at, tuple):
                    life, last = at
                    lives = rank.lives if life is None else [rank.lives[life]]
                    if all(history.lost(last) for history in lives):
                        return True
        return False

    def said(self, worker, epoch, handle):
        """What was published of a handle in an epoch: [(seq, "s" or "r")]."""
        with self.lock:
            one = self.epochs.get((worker, epoch)) or Epoch()
            return [(seq, event[0])
                    for seq, (_, _, payload) in sorted(one.envelopes.items())
                    for event in msgpack.unpackb(payload or b"\x90")
                    if event[0] in "sr" and handle in u64s(
                        event[4 if event[0] == "s" else 3])]

    # ------------------------------------------------------------ positions

    def _position(self, worker, epoch, seq):
        one = self.epochs.get((worker, epoch))
        if one is None:
            return None
        start = seq
        while start and start not in one.positions:
            if start not in one.envelopes:
                return None
            start -= 1
        position = one.positions.get(start, {})
        for number in range(start + 1, seq + 1):
            position = self._next(worker, position, one.envelopes[number])
            one.positions[number] = position
        one.forget()
        return position

    def _next(self, worker, position, envelope):
        rank, last, payload = envelope
        position = dict(position)
        events = msgpack.unpackb(payload) if payload else []
        for event in events:
            at = event[1]
            if event[0] == "c":
                position[at] = EMPTY
            elif last is None or at != rank:
                position[at] = PARTLY
        if last is not None:
            rank = rank or 0
            life = self._life(worker, rank, events)
            before = position.get(rank)
            if life is None and isinstance(before, tuple) \
                    and before[1] <= last:
                life = before[0]
            position[rank] = (life, last)
        return position

    def _life(self, worker, rank, events):
        ranks = self.engines[worker].ranks
        if rank >= len(ranks):
            return None
        for event in events:
            handles = event[4] if event[0] == "s" else \
                event[3] if event[0] == "r" else b""
            for at in range(0, len(handles), 8):
                handle = int.from_bytes(handles[at:at + 8], "little")
                lives = ranks[rank].lives
                for life, history in reversed(list(enumerate(lives))):
                    if handle in history.handles:
                        return life
        return None

    # ---------------------------------------------------------------- Redis

    def _connect(self):
        return redis.Redis(host="127.0.0.1", port=self._port,
                           client_name="oracle", socket_timeout=2)

    def _listen(self):
        while self._going:
            with contextlib.suppress(redis.RedisError, OSError):
                channels = self._connect().pubsub(
                    ignore_subscribe_messages=True)
                channels.subscribe(*("kv-events:" + name
                                     for name in self.engines))
                while self._going:
                    message = channels.get_message(timeout=0.2)
                    if message:
                        self._note(message["data"])
            time.sleep(0.05)

    def _watch(self):
        while self._going:
            for worker in self.engines:
                with contextlib.suppress(redis.RedisError, OSError):
                    self._read_pointer(worker)
            time.sleep(0.2)

    def _note(self, data):
        message = msgpack.unpackb(data)
        _, worker, epoch, seq, _, rank, payload = message[:7]
        last = message[7] if len(message) > 7 else None
        if payload is None or worker not in self.engines:
            return
        with self.lock:
            one = self.epochs.setdefault((worker, epoch), Epoch())
            self.parts += last is None and len(payload) > LARGE \
                and seq not in one.envelopes
            one.envelopes[seq] = (rank, last, payload)

    def _read_pointer(self, worker):
        fields = {key.decode(): value for key, value in
                  self._client.hgetall("kv-snap:{%s}" % worker).items()}
        if "engine_seq" not in fields:
            return
        epoch, seq = int(fields["epoch"]), int(fields["seq"])
        with self.lock:
            one = self.epochs.setdefault((worker, epoch), Epoch())
            if seq in one.positions or self._position(
                    worker, epoch, seq) is not None:
                return
            one.positions[seq] = {
                int(rank): (None, last) if last is not None and last >= 0
                else EMPTY
                for rank, last in json.loads(fields["engine_seq"]).items()}

    def _read_log(self, worker, epoch, seq):
        key = "kv-log:{%s}" % worker
        last = seq
        while last > max(0, seq - KEPT):
            page = self._client.xrevrange(key, f"{epoch}-{last}",
                                          f"{epoch}-0", count=PAGE)
            for _, fields in page:
                self._note(fields[b"m"])
            if len(page) < PAGE:
                return
            last = int(page[-1][0].split(b"-")[1]) - 1


def compare(engine, rank, states, holder):
    """Whether a holder of a dump has one of the states, block for block and
    handle for handle: (blocks compared, in what it differs or None)."""
    wrong = []
    for state in states:
        difference = _difference(engine.profile, state, holder)
        if not difference:
            return sum(len(block.sequence) for block in state), None
        wrong.append(difference)
    return 0, f"rank {rank}: " + " or ".join(wrong)


def partly(engine, states, following, holder):
    """Whether a holder is between one of the states and one that follows: a
    long event is applied in parts, and the cursor counts whole events.  What
    is too much is there next, what is missing is not."""
    theirs = _holdings(holder)
    spans = engine.profile.block_size != INDEX_BLOCK
    return any(
        all(_between(*parts) for parts in list(zip(
            _expected(state), _expected(after), theirs))[:1 if spans else 2])
        for state in states for after in following)


def _between(now, after, held):
    return all(held.get(one) in (now.get(one), after.get(one))
               for one in {*now, *after, *held})


def _holdings(holder):
    """{block: tiers} and {handle: (block, tiers)} of a dump's holder."""
    held = holder.holdings() if holder else {}
    blocks = {}
    for sequence, tiers in held.values():
        blocks[sequence] = blocks.get(sequence, 0) | tiers
    return blocks, held


def _expected(state):
    """The same of a state."""
    handles = {block.handle: (block.sequence[-1], tiers)
               for block, tiers in state.items()}
    blocks = {}
    for block, tiers in state.items():
        for sequence in block.sequence:         # of several, where they span
            blocks[sequence] = blocks.get(sequence, 0) | tiers
    return blocks, handles


def _difference(profile, state, holder):
    blocks, held = _holdings(holder)
    expected, handles = _expected(state)
    # the blocks before the last of a span have names of the router's own
    spans = profile.block_size != INDEX_BLOCK
    wrong = []
    for what, ours, theirs in (("blocks", expected, blocks),
                               ("handles", handles, held)):
        lost = [one for one in ours if one not in theirs]
        more = [one for one in theirs if one not in ours]
        other = [one for one in ours
                 if theirs.get(one, ours[one]) != ours[one]]
        if what == "handles" and spans:
            more = []
        if lost or more or other:
            wrong.append(f"of {len(ours)} {what} {len(lost)} are missing, "
                         f"{len(more)} too many, {len(other)} other")
    return ", ".join(wrong)
