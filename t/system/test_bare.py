#!/usr/bin/python3
"""Batches as they left an engine, over Redis: what users are told; TAP."""

import subprocess
import sys

import msgpack

from stage import BLOCK_SIZE, PATIENCE, Stage, wait_until

HASH, OTHER = 7, 8
QUEUE = 64 << 20                # bytes of messages that may wait
TOKENS = [*range(1, BLOCK_SIZE + 1)]


class Play:
    """What all tests look at."""

    def __init__(self, stage):
        self.stage = stage
        stage.start_redis()
        stage.start_nginx({worker: "127.0.0.1:1" for worker in (
            "silent", "copies", "small", "hybrid", "strange", "flood")})
        stage.wait_subscribed()

    def publish(self, worker, *events):
        """An engine's batch; waits until it is applied."""
        before = self.worker(worker)["counters"]["messages"]
        self.stage.redis.publish(f"kv-events:{worker}",
                                 msgpack.packb([1.5, events, 0]))
        wait_until("the batch is applied", lambda: self.worker(worker)[
            "counters"]["messages"] > before, PATIENCE)
        return self.worker(worker)

    def worker(self, name):
        """What nginx says of a worker."""
        return self.stage.workers()[name]

    def blocks(self, name):
        """How much of TOKENS it has."""
        return self.stage.query(TOKENS).get((name, 0), (0,))[0]


def stored(handle, *more, tokens=None, size=BLOCK_SIZE):
    """A store of one block."""
    return ["BlockStored", [handle], None, tokens or TOKENS[:size], size,
            None, "GPU", *more]


def a_worker_without_events_says_so():
    """a worker of which no event was received has the reason no_events"""
    worker = at.worker("silent")
    assert (worker["confidence"], worker["reason"]) == (
        "UNKNOWN", "no_events"), worker


def copies_are_counted():
    """of two copies of a block one removal leaves one"""
    at.publish("copies", stored(HASH), stored(HASH))
    at.publish("copies", ["BlockRemoved", [HASH]])
    assert at.blocks("copies") == 1
    at.publish("copies", ["BlockRemoved", [HASH]])
    assert at.blocks("copies") == 0


def what_is_gone_comes_back_offloaded():
    """an offload event behind the removal brings the block back"""
    worker = at.publish("copies", [
        "BlockStored", [HASH], None, [], 0, None, "CPU"])
    assert at.stage.query(TOKENS) == {("copies", 0): (0, 1, 1)}
    assert worker["confidence"] == "UNVERIFIED", worker
    assert worker["reason"] == "none" and not worker["refused"], worker


def a_wrong_block_size_is_named():
    """a block size that doesn't fit is in the log, once, and in /workers"""
    size = BLOCK_SIZE // 2
    for handle in range(3):
        worker = at.publish("small", stored(handle, size=size))
    assert (worker["confidence"], worker["reason"]) == (
        "DEGRADED", "block_size"), worker
    assert worker["engine_block_size"] == size, worker
    assert worker["refused"] == {"block_size": 3}, worker
    lines = [line for line in at.stage.log().splitlines()
             if 'worker "small"' in line]
    assert len(lines) == 1 and "[error]" in lines[0], lines
    assert f"block size is {size}," in lines[0], lines
    assert f"the zone's {BLOCK_SIZE}:" in lines[0], lines


def hybrid_models_are_told():
    """groups that are not indexed make scores upper bounds"""
    assert at.worker("hybrid")["scores"] == "as_held"
    worker = at.publish(
        "hybrid", stored(HASH, None, None, 0, "full_attention"),
        stored(HASH, None, None, 1, "sliding_window"),
        ["BlockRemoved", [HASH], "GPU", 1])
    assert worker["scores"] == "upper_bounds", worker
    assert worker["filtered"] == {"group": 2}, worker
    assert worker["confidence"] == "BOUND", worker
    assert at.blocks("hybrid") == 1


def what_is_filtered_is_not_refused():
    """what can't be indexed, and what hangs on it, is counted apart"""
    child = stored(OTHER)
    child[2] = HASH
    worker = at.publish("strange", [
        "BlockStored", [HASH], None, TOKENS, BLOCK_SIZE, None, "TAPE"], child)
    assert worker["filtered"] == {"medium": 2}, worker
    assert not worker["refused"] and not worker["forgotten"], worker
    child[2] = 99
    worker = at.publish("strange", child)
    assert worker["refused"] == {"parent": 1}, worker
    assert (worker["confidence"], worker["reason"]) == (
        "DEGRADED", "event_refused"), worker
    assert 'worker "strange": an event is refused' in at.stage.log()


def what_is_dropped_is_missing():
    """a worker whose messages found no room in the queue is DEGRADED"""
    worker = at.publish("flood", stored(HASH))
    assert worker["confidence"] == "UNVERIFIED", worker
    at.stage.redis.config_set("client-output-buffer-limit", "pubsub 0 0 0")
    clears = at.worker("flood")["counters"]["clears"]
    for lost in range(1, 21):
        flood()
        wait_until("it is known behind what came before, "
                   "or too slow a machine lost the lease",
                   lambda: (at.worker("flood")["counters"]["clears"] > clears
                            and at.worker("flood")[
                                "confidence"] == "DEGRADED")
                   or at.stage.log().count("lease is lost") >= lost, PATIENCE)
        at.stage.wait_subscribed()
        if at.worker("flood")["confidence"] == "DEGRADED":
            break
    worker = at.worker("flood")
    assert (worker["confidence"], worker["reason"]) == (
        "DEGRADED", "gap_not_filled"), worker
    at.publish("flood", ["AllBlocksCleared"])
    wait_until("nothing is missing any more", lambda: at.worker("flood")[
        "confidence"] == "UNVERIFIED", PATIENCE)


def flood():
    """A clear, then one more than may wait, while the zone is locked."""
    batch = msgpack.packb([1.5, [stored(HASH)], 0, bytes(12 << 20)])
    before = at.stage.status()["redis"]["dropped"]
    with subprocess.Popen(["sleep", "600"]) as owner:
        try:
            with at.stage.locked(owner.pid):
                at.stage.redis.publish("kv-events:flood", msgpack.packb(
                    [1.5, [["AllBlocksCleared"]], 0]))
                for _ in range(QUEUE // len(batch) + 1):
                    at.stage.redis.publish("kv-events:flood", batch)
                wait_until("the last is dropped", lambda: at.stage.status()[
                    "redis"]["dropped"] > before, PATIENCE)
        finally:
            owner.kill()


def metrics_say_the_same():
    """Prometheus reads the same"""
    text = at.stage.call("GET", "/status?format=prometheus").decode()
    for line in (
            'worker_degraded{zone="main",worker="small",'
            'reason="block_size"} 1',
            'worker_degraded{zone="main",worker="silent",'
            'reason="no_events"} 1',
            'worker_events_skipped_total{zone="main",worker="strange",'
            'reason="medium"} 2'):
        assert "kv_router_" + line in text, line


def main():
    global at
    with Stage("bare") as stage:
        at = Play(stage)
        return stage.run([
            a_worker_without_events_says_so,
            copies_are_counted,
            what_is_gone_comes_back_offloaded,
            a_wrong_block_size_is_named,
            hybrid_models_are_told,
            what_is_filtered_is_not_refused,
            what_is_dropped_is_missing,
            metrics_say_the_same])


if __name__ == "__main__":
    sys.exit(main())
