#!/usr/bin/python3
"""An engine that caches pairs of tokens, by its relay and bare; TAP."""

import sys

import msgpack

from relay import Engine, Relay
from stage import BLOCK_SIZE, PATIENCE, Stage, wait_until

TOKENS = [*range(100, 100 + 3 * BLOCK_SIZE + 1)]        # three blocks


at = None                       # the stage, set by main()


def stored(handles, parent=None, first=0, tokens=None):
    """BlockStored; the tokens from block `first` on, in pairs."""
    tokens = tokens or TOKENS
    start = first * BLOCK_SIZE
    count = len(handles) * BLOCK_SIZE
    pairs = [tokens[i:i + 2] for i in range(start, start + count)]
    return ["BlockStored", handles, parent, pairs, BLOCK_SIZE, None, "GPU"]


def device(worker, tokens=None):
    """How many blocks of a prompt it has."""
    return at.query(tokens or TOKENS).get((worker, 0), (0,))[0]


def waits(worker, blocks):
    """Until it has so many."""
    wait_until(f"{worker} has {blocks} blocks",
               lambda: device(worker) == blocks, PATIENCE)


def relayed_pairs_match():
    """what an engine stores in pairs matches prompts, through its relay"""
    engine.send(stored([1, 2]), stored([3], 2, first=2))
    waits("relayed", 3)
    assert device("relayed", TOKENS[:-1]) == 2
    assert device("relayed", [*TOKENS[:-1], 9]) == 2
    at.wait_confidence("relayed", "EXACT")


def removals_too():
    """so does what it removes"""
    engine.send(["BlockRemoved", [2]])
    waits("relayed", 1)


def bare_pairs_match():
    """bare batches are as good"""
    at.redis.publish("kv-events:bare", msgpack.packb(
        [1.5, [stored([7, 8])], 0]))
    waits("bare", 2)


def single_tokens_are_filtered():
    """single tokens are filtered, by the router and by the relay"""
    plain = ["BlockStored", [7], None, TOKENS[:BLOCK_SIZE], BLOCK_SIZE, None,
             "GPU"]
    at.redis.publish("kv-events:plain", msgpack.packb([1.5, [plain], 0]))
    wait_until("it is counted", lambda: at.workers()["plain"]["filtered"] == {
        "bigram": 1}, PATIENCE)
    engine.send(plain)
    wait_until("it is counted", lambda: relay.metric(
        'skipped_total{what="filtered",why="bigram"}') == 1, PATIENCE)


def a_relay_without_it_is_ignored():
    """a relay without --eagle on is not for the zone, and the log says why"""
    Relay(at, "other", "--events", f"tcp://127.0.0.1:{engine.port}",
          "--block-size", str(BLOCK_SIZE))
    wait_until("the log says so", lambda: 'worker "other" ignored: its '
               "blocks are of single tokens" in at.log(), PATIENCE)


def a_restarted_relay_minds_its_kind():
    """a relay that is restarted without it doesn't load what it wrote"""
    relay.stop()
    again = Relay(at, "relayed", "--events", f"tcp://127.0.0.1:{engine.port}",
                  "--block-size", str(BLOCK_SIZE))
    wait_until("it says so", lambda: "block size, or eagle" in again.text(),
               PATIENCE)


def main():
    """Runs the tests on one stage."""
    global at, engine, relay
    with Stage("eagle", zone="eagle=on") as at:
        engine = Engine()
        at.start_redis()
        at.start_nginx({name: "127.0.0.1:1" for name in (
            "relayed", "bare", "plain")})
        at.wait_subscribed()
        relay = Relay(
            at, "relayed", "--events", f"tcp://127.0.0.1:{engine.port}",
            "--replay", f"tcp://127.0.0.1:{engine.replay_port}",
            "--block-size", str(BLOCK_SIZE), "--eagle", "on",
            "--snapshot-interval", "16")
        wait_until("the relay begins", lambda: at.redis.exists(
            "kv-lease:{relayed}"), PATIENCE)
        at.run([relayed_pairs_match, removals_too, bare_pairs_match,
                single_tokens_are_filtered, a_relay_without_it_is_ignored,
                a_restarted_relay_minds_its_kind])
        engine.close()


if __name__ == "__main__":
    sys.exit(main())
