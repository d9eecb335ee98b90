"""The referee: never a false EXACT, and EXACT again in time.

A thread takes samples all the time.  A worker that is EXACT at the same
(epoch, seq) before and after a dump must have in it what the oracle knows of
that very (epoch, seq), and it must be something that can be known: no message
before it was lost.  A worker of which a loss was told must not be EXACT, and
has to say why, in every sample until its engine begins anew.  Rounds of
faults go on meanwhile.
"""

import random
import statistics
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from model import Model
from stage import wait_until

from .faults import KINDS
from .load import Load
from .oracle import EMPTY, PARTLY, compare, partly

SAMPLE_SECONDS = 0.2            # from one sample to the next
NOTICED_SECONDS = 60.0          # after a loss it is told of
PASSING = {"silent", "redis_down"}  # reasons that tell of no loss: a
                                # relay or Redis is away for a while
AT_ONCE = 8                     # faults


class Referee:
    """Counts, compares, and keeps the times."""

    def __init__(self, plant, limit):
        self.plant, self.limit = plant, limit
        self.faults = Counter()         # kind -> how often
        self.seconds = {}               # kind -> [time to EXACT]
        self.samples = self.blocks = self.unknown = self.partly = 0
        self.differences, self.false = [], []
        self.late = []                  # not EXACT in time
        self.silent = []                # losses that nobody told of
        self.broken = []                # faults that went wrong themselves
        self.watched = 0                # samples of workers that lost some
        self.reasons = Counter()        # that those gave
        self.losses = 0                 # that were told of
        self.load = Load()
        self._began = time.monotonic()
        self._forbidden = {}            # worker -> why it must not be EXACT
        self._going = False
        self._thread = None
        # processes end with the thread that has started them: these stay
        self._pool = ThreadPoolExecutor(AT_ONCE)

    # ------------------------------------------------------------- samples

    def start(self):
        """Takes samples from now on."""
        self._going = True
        self.load.start()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self, samples):
        """Takes no more samples, once there are so many."""
        wait_until(f"{samples} samples", lambda: self.samples > samples
                   or not self._thread.is_alive())
        self._going = False
        self._thread.join()
        self.load.stop()

    def _run(self):
        while self._going:
            try:
                self.sample()
            except OSError:             # nginx is away
                pass
            except Exception as err:    # pylint: disable=broad-except
                self.broken.append(f"sample: {err!r}")
                raise
            time.sleep(SAMPLE_SECONDS)

    def sample(self):
        """Compares all that is EXACT; returns the workers compared."""
        plant = self.plant
        forbidden = dict(self._forbidden)
        before = plant.workers()
        dump = plant.stage.call("GET", "/kv/dump").decode()
        after = plant.workers()
        forbidden = {worker: why for worker, why in forbidden.items()
                     if self._forbidden.get(worker) == why}
        self._watch(forbidden, before, after)
        exact = [name for name in before if name in after
                 and _exact(before[name]) and _exact(after[name])
                 and _cursor(before[name]) == _cursor(after[name])]
        if not exact:
            return []
        held = Model().replay(dump).holders
        return [worker for worker in exact
                if self._compare(worker, _cursor(before[worker]), held)]

    def _watch(self, forbidden, *answers):
        """Those that must not be EXACT are not, and say why."""
        for worker, kind in forbidden.items():
            for workers in answers:
                self.watched += 1
                known = workers.get(worker)
                reason = _reason(known)
                if known is None or known["confidence"] == "EXACT":
                    self.false.append(f"{worker} is EXACT in spite of {kind}: "
                                      f"{known}")
                elif not reason:
                    self.silent.append(f"{worker} is {known['confidence']}, "
                                       f"and doesn't say why: {kind}")
                else:
                    self.reasons[reason] += 1

    def _compare(self, worker, cursor, held):
        epoch, seq, _ = cursor
        states = self.plant.oracle.states(worker, epoch, seq)
        if states is None:
            self.unknown += 1
            return False
        self.samples += 1
        if self.plant.oracle.lost(worker, epoch, seq):
            self.false.append(f"{worker} is EXACT at {epoch}-{seq}: before "
                              f"that a message was lost")
        engine = self.plant.fleet.engines[worker]
        ranks = set(states) | {rank for name, rank in held if name == worker}
        for rank in sorted(ranks):
            count, wrong = compare(engine, rank, states.get(rank, [{}]),
                                   held.get((worker, rank)))
            self.blocks += count
            if wrong and partly(engine, states.get(rank, [{}]), (
                    self.plant.oracle.states(worker, epoch, seq + 1)
                    or {}).get(rank, ()), held.get((worker, rank))):
                self.partly += 1
            elif wrong:
                self.differences.append(
                    f"{worker} at {epoch}-{seq}: {wrong} "
                    f"({self.plant.oracle.position(worker, epoch, seq)}"
                    f"{self._lacking(worker, rank, epoch, states, held)})")
        return True

    def _lacking(self, worker, rank, epoch, states, held):
        """What was published of the first handles that are missing."""
        there = held.get((worker, rank))
        there = there.block_of if there else {}
        missing = [block.handle for block in states.get(rank, [{}])[0]
                   if block.handle not in there]
        return "".join(
            f", {handle}: {self.plant.oracle.said(worker, epoch, handle)}"
            for handle in missing[:4])

    # --------------------------------------------------------------- EXACT

    def behind(self, targets, beyond):
        """Those that are not EXACT, or have not come to where the engines
        were, or beyond: {worker: what is wrong}."""
        try:
            workers = self.plant.workers()
        except OSError as err:
            return dict.fromkeys(targets, str(err))
        wrong = {}
        for name, target in targets.items():
            worker = workers.get(name)
            if worker is None or not _exact(worker):
                wrong[name] = worker and {
                    key: worker[key] for key in
                    ("confidence", "reason", "epoch", "seq", "age",
                     "refused")}
            elif not self._reached(name, worker, target, beyond):
                position = self.plant.oracle.position(
                    name, *_cursor(worker)[:2])
                wrong[name] = (f"it is EXACT, but only at {_cursor(worker)}: "
                               f"{position}, not {target}")
        return wrong

    def _reached(self, name, worker, target, beyond):
        epoch, seq, _ = _cursor(worker)
        position = self.plant.oracle.position(name, epoch, seq)
        if position is None:
            return False
        if beyond and not any(_later(position.get(rank, EMPTY), at)
                              for rank, at in enumerate(target)):
            return False
        engine = self.plant.fleet.engines[name]
        with engine.lock:
            return all(_reached(engine.ranks[rank].lives, position.get(
                rank, EMPTY), at) for rank, at in enumerate(target))

    def until_exact(self, faults, workers=None, beyond=True):
        """Waits until all, or these, are EXACT, with a batch that came later
        than now, unless all is quiet; notes how long it took for faults:
        [(kind, worker or "")]."""
        targets = {name: target for name, target
                   in self.plant.fleet.positions().items()
                   if workers is None or name in workers}
        started = time.monotonic()
        times = dict.fromkeys(targets, 0.0)
        left = self.behind(targets, beyond)
        while left and time.monotonic() - started < self.limit:
            time.sleep(0.05)
            self.plant.fleet.ensure(left)
            if beyond:
                self.plant.fleet.urge({name: targets[name] for name in left})
            left = self.behind({name: targets[name] for name in left},
                               beyond)
            times.update(dict.fromkeys(left, time.monotonic() - started))
        for kind, worker in faults:
            self.seconds.setdefault(kind, []).append(
                times[worker] if worker
                else max(times.values(), default=0.0))
        kinds = ", ".join(kind for kind, _ in faults) or "a round"
        for name, wrong in left.items():
            self.late.append(f"{name} {times[name]:.1f} s after {kinds}: "
                             f"{wrong}; {self.load.since(started)}")
        return not left

    def told(self, worker, kind):
        """After a loss it is told of; whether it is.  From then on it must
        not be EXACT.  A relay or Redis that is away tells of no loss: the
        worker may be EXACT again, as of its last message, before the relay
        has asked the engine."""
        def reason():
            try:
                known = self.plant.workers().get(worker)
            except OSError:
                return ""
            return (known and not _exact(known)
                    and _reason(known) not in PASSING | {""})
        started = time.monotonic()
        while not reason():
            if time.monotonic() - started > NOTICED_SECONDS:
                self.silent.append(f"{worker}: {kind} is not told of")
                self.tell()
                return False
            time.sleep(0.05)
            self.plant.fleet.ensure([worker])
        self.losses += 1
        self._forbidden[worker] = kind
        return True

    def heal(self, worker, kind):
        """Its engine begins anew, and all is well with it."""
        self._forbidden.pop(worker, None)
        self.plant.fleet.ensure([worker])
        self.plant.fleet.engines[worker].heal()
        if not self.until_exact([(kind, worker)], [worker]):
            self.tell()

    # -------------------------------------------------------------- rounds

    def round(self, faults, meanwhile=(), seconds=1.0):
        """Faults at once: [(kind, worker, seed)]; all is well afterwards.
        Those workers that have lost something stay so for some seconds, and
        while other faults happen."""
        started = time.monotonic()
        wrong = len(self.false) + len(self.silent)
        lost = [(kind, worker) for kind, worker, _ in faults
                if not KINDS[kind].recoverable]
        well = self.plant.fleet.sure() - {worker for _, worker in lost}
        self._at_once(faults, well)
        lasted = time.monotonic() - started
        for kind, worker in lost:
            if not self.plant.fleet.lost(worker):
                self.broken.append(f"{kind} ({worker}): nothing was lost")
            self.told(worker, kind)
        if lost:
            since = time.monotonic()
            self._at_once(meanwhile, well)
            time.sleep(max(0, seconds - (time.monotonic() - since)))
        for kind, worker in lost:
            self.heal(worker, kind)
        if len(self.false) + len(self.silent) > wrong:
            self.tell()
        print(f"# {_names(faults)}: {lasted:.1f} s, "
              + (f"meanwhile {_names(meanwhile)}, " if meanwhile else "")
              + f"all is EXACT after {time.monotonic() - started:.1f} s",
              flush=True)

    def _at_once(self, faults, well):
        """Faults at once; those that are well are so afterwards."""
        spared = well - {worker for _, worker, _ in faults}
        for done in [self._pool.submit(self._fault, *fault, well, spared)
                     for fault in faults]:
            done.result()
        if not self.until_exact([], well):
            self.tell()

    def _fault(self, kind, worker, seed, well, spared):
        self.faults[kind] += 1
        try:
            KINDS[kind].run(self.plant, worker, random.Random(seed))
            if not worker or worker in well:
                self.until_exact([(kind, worker)],
                                 {worker} if worker else spared)
        except Exception as err:        # pylint: disable=broad-except
            self.broken.append(f"{kind} ({worker}): {err!r}")

    def tell(self):
        """Says what went wrong last."""
        for what in (self.differences, self.false, self.late, self.silent,
                     self.broken):
            for line in what[-1:]:
                print(f"# WRONG: {line}", flush=True)

    # ------------------------------------------------------------- figures

    def figures(self):
        """Lines of what was counted."""
        times = [one for kind in self.seconds.values() for one in kind]
        yield "faults by kind, times to EXACT at p50 and at most, in seconds:"
        kinds = [f"{kind} {self.faults[kind]} "
                 f"({statistics.median(known):.1f}, {max(known):.1f})"
                 for kind in sorted(self.faults)
                 for known in [self.seconds.get(kind, [0])]]
        for at in range(0, len(kinds), 3):
            yield "    " + ", ".join(kinds[at:at + 3])
        fleet = self.plant.fleet
        yield (f"{len(fleet.engines)} engines said "
               f"{sum(one.batches for one in fleet.engines.values())} "
               f"batches, {sum(one.relays for one in fleet.engines.values())}"
               f" relays were started; {self.plant.oracle.parts} envelopes "
               "were parts of larger ones")
        repairs = Counter()
        for worker in self.plant.stage.workers().values():
            repairs.update({name: worker["counters"].get(name, 0)
                            for name in REPAIRS})
        yield "repairs: " + ", ".join(
            f"{name} {count}" for name, count in repairs.items())
        yield (f"losses told of: {self.losses}; {self.watched} looks at those "
               "workers, reasons: " + ", ".join(
                   f"{reason} {count}" for reason, count
                   in self.reasons.most_common()))
        yield f"the machine: {self.load.since(self._began)}"
        yield (f"{sum(self.faults.values())} faults, time to EXACT: p50 "
               f"{statistics.median(times or [0]):.2f} s, max "
               f"{max(times or [0]):.2f} s, allowed {self.limit:.0f} s, late "
               f"{len(self.late)}; {self.samples} samples, {self.partly} "
               f"of them within a long event, {self.unknown} "
               f"unknown to the oracle; blocks compared: {self.blocks}, "
               f"differences: {len(self.differences)}, false EXACT: "
               f"{len(self.false)}")


REPAIRS = ("gaps", "repairs", "restarts", "snapshots", "duplicates")


def _reached(lives, position, target):
    """Whether a rank's batch at `position` came with or after that at
    `target`, or what lies between has changed nothing."""
    if position == PARTLY:
        return False
    if position == EMPTY:
        position = target[0], -1
    life, seq = position
    if life is None:
        life = target[0]
    return (life, seq) >= target or life == target[0] and \
        lives[life].state(seq) == lives[life].state(target[1])


def _later(position, target):
    if not isinstance(position, tuple):
        return False
    life, seq = position
    return seq > target[1] if life is None else position > target


def _exact(worker):
    return worker["confidence"] == "EXACT" and not worker.get("at")


def _reason(worker):
    """Why a worker isn't EXACT; "" when it doesn't say."""
    reason = worker and worker["reason"]
    return reason if reason and reason != "none" else ""


def _names(faults):
    return ", ".join(f"{kind} ({worker})" if worker else kind
                     for kind, worker, _ in faults)


def _cursor(worker):
    return worker["epoch"], worker["seq"], worker.get("at", 0)
