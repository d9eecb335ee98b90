#!/usr/bin/python3
"""The comparison's table, and a small comparison with a real fleet; TAP."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import compare
import tap
from fleet import REPOSITORY

BUILD = Path(os.environ.get("KVR_BUILD") or REPOSITORY / "build")
TINY = """
import sys, compare
compare.WORKLOADS["tiny"] = lambda seed: (
    compare.Engines(400, 10, seed),
    ("--chats", "4", "--seed", str(seed), "--speedup", "50"))
sys.exit(compare.main())
"""


def run(policy, seed, hit_rate=0.5, seconds=0.1, void=False):
    """A run as a fleet tells of it."""
    return {"workload": "w", "seed": seed, "policy": policy, "void": void,
            "hit_rate": hit_rate, "busiest": 0.25, "late": 0.0,
            "cpu": 1.5,
            "ttft": {"mean": seconds, "p50": seconds, "p90": seconds,
                     "p99": seconds}}


def rows_are_means():
    """a row has the means of all seeds, and each seed's hit rate and TTFT"""
    rows, complete = compare.rows_of(
        [run("a", 1, 0.2, 0.1), run("b", 1), run("a", 2, 0.4, 0.3),
         run("b", 2)], ["w"], ["a", "b"], 2)
    assert complete and [row[1] for row in rows] == ["a", "b"]
    assert rows[0] == ("w", "a", "30.0%", "200 ms", "200 ms", "200 ms",
                       "200 ms", "25.0%", "1.5 s", "20.0%, 40.0%",
                       "100 ms, 300 ms"), rows[0]


def void_runs_do_not_count():
    """a void run is in no mean, the one that replaced it is"""
    rows, complete = compare.rows_of(
        [run("a", 1, 0.9, void=True), run("a", 1, 0.2)], ["w"], ["a"], 1)
    assert complete and rows[0][2] == "20.0%", rows


def a_seed_that_stays_void_shows():
    """a seed without a valid run is a dash, and the table is not complete"""
    rows, complete = compare.rows_of(
        [run("a", 1, void=True), run("a", 2, 0.4, 0.2)], ["w"], ["a"], 2)
    assert not complete
    assert rows[0][2] == "40.0%" and rows[0][9:] == (
        "-, 40.0%", "-, 200 ms"), rows
    rows, complete = compare.rows_of([], ["w"], ["a"], 1)
    assert not complete and rows[0][2:4] == ("-", "-")


def the_busiest_has_most_tokens():
    """the busiest engine is the one with most prompt tokens"""
    assert compare.busiest_share({"w1": 30, "w2": 20, "w3": 0}) == 0.6


def caches_are_shares_of_the_tokens():
    """the caches of the chats hold the share of the tokens that they say"""
    small, large = (compare.WORKLOADS[name](1)[0].blocks
                    for name in ("chats40", "chats75"))
    assert abs(large / small - 75 / 40) < 0.001
    parts = [compare.WORKLOADS["trace"](seed)[1][-1] for seed in (1, 2, 3)]
    assert parts == ["0", "4000", "8000"]


def cell(seed, *policies):
    """One cell, compared by a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        return subprocess.run(
            [sys.executable, "-B", "-c", TINY,
             "--module", BUILD / "ngx_http_kv_router_module.so",
             "--relay", BUILD / "kv-relay", "--cell", "tiny", str(seed),
             *(f"--policy={policy}" for policy in policies)],
            cwd=Path(__file__).parent, capture_output=True, text=True,
            env={**os.environ, "TMPDIR": directory}, check=False)


def policies_are_compared():
    """a fleet is replayed to with each policy and its settings"""
    child = cell(2, "kv_cost={ dynamo = true }", "kv_cost")
    assert child.returncode == 0, child.stdout + child.stderr
    runs = [json.loads(line) for line in child.stdout.splitlines()
            if line.startswith("{")]
    assert {(run["workload"], run["seed"]) for run in runs} == {("tiny", 2)}
    assert list(dict.fromkeys(run["policy"] for run in runs)) == [
        "kv_cost { dynamo = true }", "kv_cost"], runs
    for told in runs:
        assert told["hit_rate"] > 0 and told["ttft"]["p50"] > 0, told
        assert 0.25 <= told["busiest"] <= 1 and told["cpu"] > 0, told


def nginx_is_a_rival():
    """plain nginx is compared, too: by connections, and by session"""
    child = cell(3, "nginx-least_conn", "nginx-hash")
    assert child.returncode == 0, child.stdout + child.stderr
    runs = {told["policy"]: told for told in map(json.loads, filter(
        lambda line: line.startswith("{"), child.stdout.splitlines()))}
    assert set(runs) == {"nginx-least_conn", "nginx-hash"}, runs
    # a session that stays finds what it had before
    assert runs["nginx-hash"]["hit_rate"] > 0.3, runs


def a_wrong_setting_is_told():
    """a setting that the policy does not know ends the comparison"""
    child = cell(1, "kv_cost={ dynmo = true }")
    assert child.returncode == 1, child.stdout + child.stderr
    assert 'unknown setting "dynmo"' in child.stderr, child.stderr


if __name__ == "__main__":
    sys.exit(tap.run([
        rows_are_means,
        void_runs_do_not_count,
        a_seed_that_stays_void_shows,
        the_busiest_has_most_tokens,
        caches_are_shares_of_the_tokens,
        policies_are_compared,
        nginx_is_a_rival,
        a_wrong_setting_is_told]))
