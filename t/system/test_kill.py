#!/usr/bin/python3
"""Processes that are killed or stopped at any instruction do no harm; TAP."""

import contextlib
import os
import random
import signal
import sys
import time

from stage import PATIENCE, PROCESSES, SEED, Stage, wait_until
from processes import DemoError
from traffic import Cache, Engines, Fleet, Load, Loop, Watch, make_prompts

KILLS = 30
BURST = 60                      # messages at once
TAKEOVER_SECONDS = 10.0         # of a stopped process; about three.  One that
                                # was stopped within a write keeps the lock,
                                # and nobody may take over: it is tried again
STOPS = 20                      # tries
FIXED = 3


class Play:
    """What all tests look at."""

    def __init__(self, stage, loop):
        rng = random.Random(SEED)
        self.stage, self.rng = stage, rng
        self.prompts = make_prompts(rng, FIXED, 1, 40) \
            + make_prompts(rng, 4, 4, 60)
        self.engines = Engines(loop, ("w1", "w2", "w3"))
        stage.start_redis()
        stage.start_nginx(self.engines.addresses)
        self.fleet = Fleet(loop, stage.redis_url(), [
            Cache("w1", rng, self.prompts, secret=1, fixed=FIXED),
            Cache("w2", rng, self.prompts, secret=1, ranks=2),
            Cache("w3", rng, self.prompts, secret=3)])
        self.fleet.publish("w2")
        self.fleet.publish("w3")
        self.fleet.drain()
        stage.wait_applied(self.fleet.cursors())
        self.watch = Watch(stage, self.fleet, random.Random(SEED + 1))
        self.load = Load(loop, stage, self.prompts, random.Random(SEED + 2))

    def lease(self):
        """The lease, whoever has it: {pid, token}."""
        return wait_until("the status",
                          lambda: self.stage.status()["lease"], PATIENCE)

    def check_lease(self, lease):
        """Nobody has taken the lease, unless its holder lost it: a machine
        that is very busy forgets a process for that long."""
        now = self.lease()
        assert now == lease or "lease is lost" in self.stage.log(), (
            lease, now)


at = None                       # the Play, set by main()


def the_index_is_right():
    """Not a test: after the changes have ended."""
    at.fleet.stop()
    at.stage.wait_applied(at.fleet.cursors())
    at.stage.check_index(at.fleet.model())
    for name in at.fleet.caches:
        worker = at.stage.wait_confidence(name, "EXACT")
        assert worker["reason"] == "none" and not worker["refused"], worker


def the_lease_survives_its_holder():
    """each time its holder is killed another process takes the lease"""
    at.fleet.start(0.015)
    at.load.start(40)
    at.watch.start()
    times = []
    while len(times) < KILLS or not at.load.failures:
        lease = at.stage.wait_lease()
        if len(times) % 2:              # where much is being written
            at.fleet.publish("w2", BURST)
            time.sleep(at.rng.uniform(0, 0.03))
        else:
            time.sleep(at.rng.uniform(0, 0.3))
        os.kill(lease["pid"], signal.SIGKILL)
        started = time.monotonic()
        at.stage.wait_lease(lease["token"])
        times.append(time.monotonic() - started)
    print("# %d kills, events are back after %.2f to %.2f s" % (
        len(times), min(times), max(times)))


def nothing_is_lost_by_kills():
    """after all kills the index is the caches' state, and EXACT"""
    the_index_is_right()
    status = at.stage.status()
    print("# %d blocks stored; rolled back: %d, locks broken: %d" % (
        at.fleet.blocks(), status["index"]["rollbacks"],
        status["index"]["lock_breaks"]))


def load_of_the_dead_is_forgotten():
    """requests died with the processes, their load did not stay"""
    at.load.stop(done=50)
    lost = len(at.load.failures)
    reclaimed = at.stage.status()["index"]["load_reclaimed"]
    print(f"# {at.load.done} requests, {lost} died; load tables zeroed: "
          f"{reclaimed}")
    assert lost
    at.stage.check_idle()


def others_may_be_killed_too():
    """killing a process without the lease changes nothing for events"""
    at.fleet.start(0.015)
    before = at.stage.wait_lease()
    for _ in range(3):
        others = at.stage.children() - {before["pid"]}
        assert others
        for pid in others:
            os.kill(pid, signal.SIGKILL)
        wait_until("it is replaced", lambda killed=others: len(
            at.stage.children() - killed) == PROCESSES, PATIENCE)
    at.check_lease(before)


def a_stopped_holder_is_replaced():
    """a holder of the lease that is stopped loses it to another process"""
    for _ in range(STOPS):
        at.stopped = at.stage.wait_lease()
        os.kill(at.stopped["pid"], signal.SIGSTOP)
        with contextlib.suppress(DemoError):
            lease = wait_until("another lease", lambda: (
                at.lease()["token"] > at.stopped["token"] and at.lease()),
                               TAKEOVER_SECONDS)
            break
        os.kill(at.stopped["pid"], signal.SIGCONT)
    assert lease["token"] > at.stopped["token"], lease
    assert lease["pid"] != at.stopped["pid"]


def a_waking_holder_does_no_harm():
    """when it wakes it finds the lease lost, and writes nothing"""
    lease = at.stage.wait_lease()
    os.kill(at.stopped["pid"], signal.SIGCONT)
    wait_until("it says that its lease is lost", lambda: (
        f"{at.stopped['pid']}#" in "".join(
            line for line in at.stage.log().splitlines()
            if "lease is lost" in line)), PATIENCE)
    the_index_is_right()
    assert at.lease()["token"] >= lease["token"], (lease, at.lease())


def a_stop_within_a_burst_does_no_harm():
    """stopped and woken again within a burst of events, nothing is lost"""
    at.fleet.start(0.004)
    for _ in range(5):
        pid = at.lease()["pid"]
        os.kill(pid, signal.SIGSTOP)
        time.sleep(at.rng.uniform(0.01, 0.2))
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.1)
    the_index_is_right()


def queries_are_right_all_the_time():
    """no query ever said more than was cached"""
    at.watch.stop(200)
    status = at.stage.status()
    torn = status["index"]["lookups_torn"]
    print(f"# {at.watch.asked} queries, {at.watch.lost} died, "
          f"{at.watch.less} met a writer at work, {torn} torn lookups")
    assert at.watch.less <= torn, (at.watch.less, torn)


def queries_answer_what_is_held():
    """a query for each prompt answers the caches' state"""
    model = at.fleet.model()
    blocks = at.fleet.caches["w1"].blocks
    for number, prompt in enumerate(at.prompts):
        scores = at.stage.query(prompt)
        assert scores == model.scores(blocks[number]), (number, scores)


def nothing_else_is_wrong_in_the_log():
    """the error log tells of the killed and stopped, and of nothing else"""
    # Redis seems not to answer a process that was stopped meanwhile
    at.stage.check_log(r"exited on signal 9", r"redis does not answer")


def main():
    global at
    with Stage("kill") as stage, Loop() as loop:
        at = Play(stage, loop)
        return stage.run([
            the_lease_survives_its_holder,
            nothing_is_lost_by_kills,
            load_of_the_dead_is_forgotten,
            others_may_be_killed_too,
            a_stopped_holder_is_replaced,
            a_waking_holder_does_no_harm,
            a_stop_within_a_burst_does_no_harm,
            queries_are_right_all_the_time,
            queries_answer_what_is_held,
            nothing_else_is_wrong_in_the_log])


if __name__ == "__main__":
    sys.exit(main())
