#!/usr/bin/python3
"""The events of a zone of eight shards, consumed by three processes; TAP."""

import os
import random
import signal
import sys
import time

os.environ["KVR_SHARDS"] = "8"          # for stage.py
os.environ["KVR_PROCESSES"] = "3"

from stage import (NOBODY, PATIENCE, PROCESSES, SEED, SHARDS,   # noqa: E402
                   Stage, milliseconds, wait_until)
from traffic import Cache, Stream, make_prompts                 # noqa: E402

from model import Model                                         # noqa: E402

WORKERS = 24
TRIES = 30                      # to see leases with all processes: one that
                                # the machine forgets for long gets none
KILLS = 6


class Play:
    """What all tests look at."""

    def __init__(self, stage):
        rng = random.Random(SEED)
        self.stage = stage
        self.prompts = make_prompts(rng, 6, 4, 40)
        stage.start_redis()
        stage.start_nginx({"static": NOBODY})
        self.streams = [
            Stream(stage.redis, Cache(f"engine-{number}", rng, self.prompts,
                                      secret=number % 3), milliseconds())
            for number in range(WORKERS)]

    def holders(self):
        """The pids that have the leases, by shard, once all are subscribed;
        none while one is a dead process's, or nobody's."""
        status = self.stage.status()
        pids = [shard["lease"]["pid"] for shard in status["shards"]]
        return (status["redis"]["up"] and set(pids) <= self.stage.children()
                and pids)

    def wait_holders(self):
        """The same, waited for."""
        return wait_until("all leases are taken", self.holders, PATIENCE)

    def send(self, messages, **options):
        """Messages of all workers, in turns."""
        for _ in range(messages):
            for stream in self.streams:
                stream.send(1, **options)

    def check(self):
        """All was applied, and the index is what the caches hold."""
        cursors, model = {}, Model()
        for stream in self.streams:
            cursors.update(stream.cursor())
        self.stage.wait_applied(cursors)
        for stream in self.streams:
            model.holders.update(stream.cache.model.holders)
            worker = self.stage.wait_confidence(stream.worker, "EXACT",
                                                beat=stream.heartbeat)
            assert worker["reason"] == "none", worker
        self.stage.check_index(model)
        blocks = self.streams[0].cache.blocks
        for number, prompt in enumerate(self.prompts):
            scores = self.stage.query(prompt)
            assert scores == model.scores(blocks[number]), (number, scores)


at = None                       # the Play, set by main()


def leases_come_to_lie_with_all_processes():
    """after a start or a reload every process has leases"""
    for _ in range(TRIES):
        pids = at.wait_holders()
        print("# leases of the processes: "
              + " ".join(str(pids.count(pid)) for pid in sorted(set(pids))))
        if len(set(pids)) == PROCESSES:
            break
        at.stage.reload()
        wait_until("the old ones are gone", lambda: len(
            at.stage.children()) == PROCESSES, PATIENCE)
    assert len(pids) == SHARDS and len(set(pids)) == PROCESSES, pids


def each_message_is_one_process_s():
    """a message is taken by one process, and its events are applied once"""
    before = at.stage.status()["redis"]["messages"]
    at.send(20)
    at.check()
    status = at.stage.status()
    assert status["redis"]["messages"] == before + 20 * WORKERS
    assert status["redis"]["refused"] == 0
    assert sum(worker["counters"]["messages"]
               for worker in status["workers"]) == 20 * WORKERS


def a_channel_of_no_worker_is_refused_once():
    """a message on a channel that names no worker is refused by one process"""
    at.stage.redis.publish("kv-events:no/worker", b"x")
    wait_until("it is refused", lambda: at.stage.status()["redis"]["refused"],
               PATIENCE)
    at.send(1)
    at.check()
    assert at.stage.status()["redis"]["refused"] == 1


def workers_are_in_many_shards():
    """shards have workers of their own, and the page adds them up"""
    status = at.stage.status()
    shards = status["shards"]
    print("# workers: " + " ".join(str(shard["workers"]) for shard in shards))
    assert sum(shard["workers"] for shard in shards) == WORKERS + 1
    assert sum(shard["workers"] > 0 for shard in shards) > SHARDS // 2
    for name, of in (("blocks", "index"), ("used_bytes", "memory")):
        assert sum(shard[name] for shard in shards) == status[of][name]


def leases_of_the_dead_are_taken():
    """of a process that is killed the others take all leases, none is lost"""
    times = []
    for _ in range(KILLS):
        pids = at.wait_holders()
        at.send(3)
        started = time.monotonic()
        os.kill(pids[0], signal.SIGKILL)
        at.send(3)
        wait_until("it is gone", lambda killed=pids[0]:
                   killed not in at.stage.children(), PATIENCE)
        at.wait_holders()
        times.append(time.monotonic() - started)
    print(f"# all are taken, and subscribed, after {min(times):.2f} to "
          f"{max(times):.2f} s")
    at.check()


def a_stopped_process_begins_anew():
    """a process that was stopped drops what it had, and none is lost"""
    pid = at.wait_holders()[0]
    os.kill(pid, signal.SIGSTOP)
    at.send(10)
    time.sleep(3)
    at.send(10)
    os.kill(pid, signal.SIGCONT)
    at.send(10)
    at.check()
    at.wait_holders()


def the_log_fills_what_was_not_published():
    """gaps of workers of all shards are filled from their logs"""
    at.send(5, live=False)
    at.send(1)
    at.check()


def nothing_else_is_wrong_in_the_log():
    """the error log tells of the killed and stopped, and of nothing else"""
    # Redis seems not to answer a process that was stopped meanwhile
    at.stage.check_log(r"exited on signal 9", r"redis does not answer")


def main():
    global at
    with Stage("shards") as stage:
        at = Play(stage)
        return stage.run([
            leases_come_to_lie_with_all_processes,
            each_message_is_one_process_s,
            a_channel_of_no_worker_is_refused_once,
            workers_are_in_many_shards,
            leases_of_the_dead_are_taken,
            a_stopped_process_begins_anew,
            the_log_fills_what_was_not_published,
            nothing_else_is_wrong_in_the_log])


if __name__ == "__main__":
    sys.exit(main())
