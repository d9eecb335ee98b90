#!/usr/bin/python3
"""Nothing is lost, and what is EXACT is true: engines of several kinds, real
relays, a real Redis and nginx, faults at random, and an oracle; TAP.

test_truth.py [SECONDS]: every kind of fault once, or, given a time, faults at
random for so long.  KVR_SEED chooses the faults, KVR_LIMIT is the time that a
worker may take to be EXACT again, KVR_ENGINES names the engines: "eagle"
those that cache pairs of tokens, which are never beside others.
"""

import os
import random
import sys
import time

from stage import SEED, Stage, tap
from traffic import Loop

from truth.engine import LARGE
from truth.faults import KINDS, apart
from truth.fleet import EAGLE, RELAY, SMALL
from truth.plant import Plant
from truth.referee import Referee

RATE = 8                        # requests of each engine a second
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 0
LIMIT = float(os.environ.get("KVR_LIMIT", "10" if SECONDS else "120"))
ALL = (*SMALL, LARGE) if SECONDS else SMALL     # KVR_ENGINES=eagle: those
ENGINES = os.environ.get("KVR_ENGINES", ",".join(ALL)).split(",")
if ENGINES == ["eagle"]:
    ENGINES = EAGLE
PAUSE = 0.5                     # between two rounds
SAMPLES = 100                   # at least
TOO_MANY = 2                    # that were late: to go on says no more
UNKNOWN = 0.2                   # the part of samples that may be no use


def short(rng, fleet):
    """Rounds with every kind once: (kind, worker, seed), many at once."""
    left = {}
    for scope in ("worker", "drain", "redis", "nginx"):
        left[scope] = sorted(name for name, kind in KINDS.items()
                             if kind.scope == scope and fleet.workers(scope))
        rng.shuffle(left[scope])
    rounds = []
    while left["worker"] or left["drain"]:
        faults = []
        for scope in ("worker", "drain"):
            workers = fleet.workers(scope)
            rng.shuffle(workers)
            faults += [(left[scope].pop(), worker) for worker in workers
                       if left[scope]]
        rounds.append(faults)
    while left["redis"] or left["nginx"]:
        faults = [(left[scope].pop(), "") for scope in ("redis", "nginx")
                  if left[scope]]
        if len(faults) > 1 and apart(faults[0][0], faults[1][0]):
            left["nginx"].append(faults.pop()[0])
        rounds.append(faults)
    rng.shuffle(rounds)
    return [[(*fault, rng.getrandbits(32)) for fault in faults]
            for faults in rounds]


def random_round(rng, fleet):
    """Up to eight faults that can be at once."""
    possible = sorted(name for name, kind in KINDS.items()
                      if fleet.workers(kind.scope))
    faults, scopes = [], set()
    for name in rng.sample(possible, rng.choice((1, 2, 4, 8))):
        scope = KINDS[name].scope
        workers = fleet.workers(scope)
        worker = rng.choice(workers) if scope in ("worker", "drain") else ""
        if (scope, worker) in scopes or any(apart(name, fault[0])
                                            for fault in faults):
            continue
        scopes.add((scope, worker))
        faults.append((name, worker, rng.getrandbits(32)))
    return faults


def meanwhile(rng, faults):
    """What else happens to a worker that has lost something, and to Redis
    and nginx as long."""
    lost = [(kind, worker) for kind, worker, _ in faults
            if not KINDS[kind].recoverable]
    if not lost:
        return []
    kind, worker = rng.choice(lost)
    found = []
    for name in rng.sample(sorted(name for name, one in KINDS.items()
                                  if one.adds_to(kind)),
                           rng.choice((0, 1, 2, 3))):
        scope = KINDS[name].scope
        if not any(apart(name, one) or scope == KINDS[one].scope
                   for one, _, _ in found):
            found.append((name, worker if scope == "worker" else "",
                          rng.getrandbits(32)))
    return found


def rounds(rng, fleet):
    """What happens, by the seed alone: rounds of faults, what happens to
    those that have lost something, and for how many seconds they have."""
    until = time.monotonic() + SECONDS
    for faults in short(rng, fleet):
        yield faults, [], rng.uniform(1, 2)
    while time.monotonic() < until:
        faults = random_round(rng, fleet)
        yield faults, meanwhile(rng, faults), rng.uniform(1, 6)


at = None                       # the Referee, set by main()


def every_worker_becomes_exact():
    """engines, relays and router that start together: all is EXACT"""
    at.until_exact([("start", "")])
    assert not at.late, at.late


def what_cannot_be_known_is_not_exact():
    """ranks that nobody can tell apart are never EXACT, and it is said why"""
    for worker in set(at.plant.fleet.engines) - at.plant.fleet.sure():
        assert at.told(worker, "several ranks at one place"), at.silent


def faults_are_survived():
    """after each fault that can be mended all is EXACT again in time"""
    rng = random.Random(SEED)
    at.start()
    for one in rounds(rng, at.plant.fleet):
        at.round(*one)
        if len(at.late) > TOO_MANY:
            break
        time.sleep(PAUSE)
    at.stop(SAMPLES)
    assert not at.broken, at.broken
    assert not at.late, at.late


def losses_are_told_of():
    """after each loss that can't be mended it is said that there was one"""
    assert not at.silent and not at.false, (at.silent, at.false)


def what_is_exact_is_true():
    """what is EXACT is what the engine held at that message"""
    assert not at.differences, "\n".join(at.differences[:10])
    assert at.blocks > 1000, at.blocks
    assert at.unknown < UNKNOWN * (at.samples + at.unknown), (
        at.unknown, at.samples)


def all_is_true_in_the_end():
    """when all is quiet every worker is EXACT, and what its engine holds"""
    at.plant.fleet.rest()
    at.until_exact([("the end", "")], beyond=False)
    assert not at.late, at.late
    workers = at.plant.fleet.sure()
    deadline = time.monotonic() + LIMIT
    while workers and time.monotonic() < deadline:
        workers -= set(at.sample())
    assert not workers, workers
    assert not at.differences, at.differences


def nobody_crashed():
    """no relay ended that nobody ended, nginx's log tells of nothing else"""
    crashed = {name: relay.crashed()
               for name, relay in at.plant.fleet.relays.items()}
    assert not any(crashed.values()), crashed
    at.plant.stage.check_log(r"exited on signal 9", r"redis")


def tell_logs(plant):
    """What the relays have said, for whoever has to find out why."""
    for relay in plant.fleet.relays.values():
        for line in relay.log().splitlines()[-60:]:
            print(f"# {line}")


def main():
    global at
    if not RELAY.is_file():
        print(f"Bail out!  {RELAY} isn't there: build it first")
        return 1
    zone = "eagle=on" if set(EAGLE) & set(ENGINES) else ""
    with Stage("truth", zone) as stage, Loop() as loop:
        plant = Plant(stage, loop, SEED, RATE * len(ENGINES), ENGINES)
        try:
            at = Referee(plant, LIMIT)
            status = stage.run([
                every_worker_becomes_exact,
                what_cannot_be_known_is_not_exact,
                faults_are_survived,
                losses_are_told_of,
                what_is_exact_is_true,
                all_is_true_in_the_end,
                nobody_crashed])
            for line in at.figures():
                print(f"# {line}")
            if status:
                tell_logs(plant)
            return status
        finally:
            plant.stop()


if __name__ == "__main__":
    sys.exit(main())
