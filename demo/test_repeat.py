#!/usr/bin/python3
"""Cells of the matrix, repeated live: which ones, and a small one; TAP."""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import conversations
import repeat
import tap
from fleet import REPOSITORY

BUILD = Path(os.environ.get("KVR_BUILD") or REPOSITORY / "build")
SMALL = {"workload": "shared", "load": 0.3, "cache": 100, "workers": 3,
         "event-delay": 5, "routers": 1, "requests": 40}
PEERS = ("kv_cost={ dynamo = true }", "cache_aware")


def result(ours, dynamo, cache_aware, agent=0.001):
    """Results of a cell: the TTFT p90 of four policies with two seeds."""
    return {"parameters": {"first-seed": 1}, "runs": [
        {"policy": policy, "seeds": [{"ttft_p90": seconds, "had": 0.5},
                                     {"ttft_p90": seconds * 2, "had": 0.7}]}
        for policy, seconds in (("kv_cost", ours),
                                ("kv_cost { dynamo = true }", dynamo),
                                ("cache_aware", cache_aware),
                                ("agent", agent))]}


def the_best_formula_is_what_counts():
    """the default is held against the best of the others, not against agent"""
    found, policy = repeat.against_best(result(0.1, 0.2, 0.4))
    assert policy == PEERS[0] and math.isclose(found, 0.5), (found, policy)
    found, policy = repeat.against_best(result(0.3, 0.2, 0.15))
    assert policy == PEERS[1] and math.isclose(found, 2), (found, policy)


def wins_and_losses_are_chosen():
    """the largest wins come first, and the largest losses last"""
    results = {name: ({}, result(ours, 0.2, 0.4)) for name, ours in (
        ("even", 0.2), ("worst", 0.5), ("bad", 0.3), ("best", 0.05),
        ("good", 0.1))}
    assert repeat.chosen(results, 2) == ["best", "good", "bad", "worst"]


def four_routers_are_left_out():
    """cells of many engines or of four routers are not repeated"""
    with tempfile.TemporaryDirectory() as folder:
        for cell in repeat.matrix.cells(True):
            name = repeat.matrix.name_of(cell)
            Path(folder, f"{name}.json").write_text(
                json.dumps(result(1, 2, 3)))
        found = repeat.results_of(Path(folder))
        assert found and all("-8w-" in name and name.endswith("routers1")
                             for name in found), list(found)


def figures_stand_side_by_side():
    """a row has both figures, of the same seeds, times divided by --slow"""
    live = {seed: {"kv_cost": {"ttft": {"p90": p90}, "hit_rate": 0.4},
                   "cache_aware": {"ttft": {"p90": 2 * p90},
                                   "hit_rate": 0.2}}
            for seed, p90 in ((1, 0.6), (2, 1.0))}
    first, second = repeat.rows_of("a", result(0.1, 0.2, 0.4), live,
                                   range(1, 3), 2)
    assert first == ("a", "`kv_cost`", "2", "150 ms", "400 ms", "60.0 %",
                     "40.0 %", "1.00", "1.00"), first
    assert second == ("a", "`cache_aware`", "2", "600 ms", "800 ms", "60.0 %",
                      "20.0 %", "0.25", "0.50"), second


def a_run_that_stayed_void_is_no_figure():
    """a seed without a valid run of both policies is left out"""
    valid = {"ttft": {"p90": 0.6}, "hit_rate": 0.4}
    rows = repeat.rows_of(
        "a", result(0.1, 0.2, 0.4),
        {1: {"kv_cost": valid, "cache_aware": valid}, 2: {"kv_cost": valid}},
        range(1, 3), 2)
    assert [row[2] for row in rows] == ["2", "1"], rows


def equal_streams_are_equal_tokens():
    """what conversations share in the simulation, they share as tokens"""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "drawn.json"
        drawn = repeat.conversations_of(SMALL, 4, file)
        talks = conversations.simulated(file)
    assert len(drawn["conversations"]) == len(talks) == 40
    assert min(talk.at for talk in talks) == 0
    size = drawn["block_size"]
    shared = drawn["conversations"][0]["parts"][0][1] * size
    first, *others = (talk.turns[0].tokens for talk in talks)
    for other in others:
        assert first[:shared] == other[:shared] != [], shared
        assert first[shared:] != other[shared:]
    assert sum(len(talk.turns) for talk in talks) == sum(
        len(talk["turns"]) for talk in drawn["conversations"])


def a_cell_is_repeated():
    """nginx, relays and engines answer a cell's requests, by two policies"""
    options = argparse.Namespace(
        module=BUILD / "ngx_http_kv_router_module.so",
        relay=BUILD / "kv-relay", rivals=BUILD / "bench-rivals", slow=2.0)
    # the tests' machine may be too busy to be in time
    repeat.LATE_SHARE = 1.0
    live = repeat.run_live(options, SMALL, 5, ["kv_cost", PEERS[0]])
    assert list(live) == ["kv_cost", PEERS[0]], live
    for summary in live.values():
        assert summary["requests"] >= 40 and not summary["errors"], summary
        assert summary["hit_rate"] > 0.05, summary["hit_rate"]
        assert set(summary["tokens"]) == {"w1", "w2", "w3"}, summary["tokens"]


def what_is_missing_is_told():
    """without results, or with a cell that has none, the remedy is named"""
    with tempfile.TemporaryDirectory() as folder:
        for args, words in (
                (("--results", folder), "run `make matrix` first"),
                (("--results", folder, "--cell", "x"), "no results of a cell"
                                                       " x that has"),
                (("--slow", "0"), "must be positive")):
            child = subprocess.run(
                [sys.executable, "-B", repeat.__file__, *args],
                capture_output=True, text=True, check=False)
            assert child.returncode != 0 and words in child.stderr, \
                (args, child.stderr)


if __name__ == "__main__":
    sys.exit(tap.run([
        the_best_formula_is_what_counts,
        wins_and_losses_are_chosen,
        four_routers_are_left_out,
        figures_stand_side_by_side,
        a_run_that_stayed_void_is_no_figure,
        equal_streams_are_equal_tokens,
        a_cell_is_repeated,
        what_is_missing_is_told]))
