#!/usr/bin/python3
"""Who goes first, live: its figures, its verdict, and a small run; TAP."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import fair
import tap
from fleet import REPOSITORY

BUILD = Path(os.environ.get("KVR_BUILD") or REPOSITORY / "build")


def answered(group, at, ttft, wait, seconds=1.0):
    """A request that was answered, as replay.py tells of it."""
    return {"group": group, "at": at, "ttft": ttft, "wait": str(wait),
            "seconds": seconds, "prompt_tokens": 100, "cached_tokens": 40}


def who_waits_has_waited_until_the_end():
    """the first quarter and 429 do not count, a wait until the end does"""
    found = fair.figures({
        "results": [answered("small", 1, 9, 9),     # warming up
                    answered("small", 6, 2, 1)],
        "unanswered": [{"group": "greedy", "at": 8.0},
                       {"group": "greedy", "at": 9.0, "wait": "3.000",
                        "ttft": 4.0},
                       {"group": "greedy", "at": 9.0,
                        "error": "status 429 queue_full"}],
        "streamed": [("small", 4, 1000), ("small", 5, 30), ("greedy", 19, 60),
                     ("greedy", 20, 1000)]}, 20, 2)
    small, greedy, everyone = (found[name]
                               for name in ("small", "greedy", "all"))
    assert (small["requests"], small["wait"], small["ttft"]) == (1, 0.5, 1)
    assert (greedy["requests"], greedy["refused"]) == (2, 1), greedy
    assert (greedy["wait"], greedy["ttft"]) == (6, 6), greedy
    assert small["tokens"] == 2 * 30 / 15 and small["had"] == 0.4, small
    assert everyone["tokens"] == 2 * 90 / 15, everyone


def verdict(ttft=1.2, tokens=98, had=0.481):
    """What judge() says of a fair order beside others of 1, 100 and 0.5."""
    def column(ttft, tokens, had):
        return {"small": {"ttft": ttft}, "all": {"tokens": tokens,
                                                 "had": had}}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        kept = fair.judge({"fair": column(ttft, tokens, had),
                           "first come": column(9, 100, 0.5),
                           "strict": column(1, 90, 0.9)})
    assert kept == ("NOT KEPT" not in said.getvalue())
    return kept


def each_bound_is_judged():
    """a bound that is not kept is named"""
    assert verdict()
    assert not verdict(ttft=1.21)
    assert not verdict(tokens=97.9)
    assert not verdict(had=0.479)


def a_small_one_runs():
    """nginx orders the tenants of a small run, through two routers, too"""
    for routers in "1", "2":
        done = subprocess.run(
            [sys.executable, "-B", fair.__file__,
             "--module", BUILD / "ngx_http_kv_router_module.so",
             "--relay", BUILD / "kv-relay", "--routers", routers,
             "--column", "fair", "--column", "strict", "--seconds", "4",
             "--slow", "1", "--load", "0.4", "--max-active", "4",
             "--late", "1"],
            text=True, capture_output=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "| strict " in done.stdout, done.stdout


def what_is_wrong_is_told():
    """a number that can't be is refused, with what it must be"""
    done = subprocess.run([sys.executable, "-B", fair.__file__, "--seconds",
                           "0"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "must be positive" in done.stderr, done


if __name__ == "__main__":
    sys.exit(tap.run([
        who_waits_has_waited_until_the_end,
        each_bound_is_judged,
        a_small_one_runs,
        what_is_wrong_is_told]))
