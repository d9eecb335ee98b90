#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""The rows of rows_prefix.c with others: a trie and a scan in Python, as such
caches are often written, and SGLang's own RadixCache from its package.

    prefix.py [--engines DIR]

"make engines" installs the package in DIR.  Without it the rows of RadixCache
are missing, and stderr says so.  One line of JSON a figure, as of bench/index.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from array import array
from pathlib import Path

ENTRIES, ENTRY = 2048, 512      # keys, tokens of each
LOOKUPS = 200
SCANS = 10                      # of these: a scan takes milliseconds
TALKS, SYSTEMS = 10000, 100     # 1 M tokens
SYSTEM, TURNS, TURN = 20, 4, 25
VOCABULARY = 32000


def say(who, name, unit, value):
    """One figure."""
    print(json.dumps({"who": who, "name": "prefix: " + name, "unit": unit,
                      "value": value}), flush=True)


def median(call, cases):
    """ns of a call, the median of all cases."""
    times = []
    for case in cases:
        begun = time.perf_counter_ns()
        call(case)
        times.append(time.perf_counter_ns() - begun)
    return statistics.median(times)


# ---- in Python --------------------------------------------------------------


class Trie:
    """A dictionary a token."""

    def __init__(self):
        self.root = {}

    def put(self, key, value):
        """Stores a key."""
        node = self.root
        for token in key:
            node = node.setdefault(token, {})
        node[None] = value

    def longest(self, key):
        """The value of the longest key that is a prefix."""
        node, found = self.root, None
        for token in key:
            node = node.get(token)
            if node is None:
                break
            found = node.get(None, found)
        return found


class Scan:
    """A list, all of which is compared."""

    def __init__(self):
        self.entries = []

    def put(self, key, value):
        """Stores a key."""
        self.entries.append((key, value))

    def longest(self, key):
        """The value of the longest key that is a prefix."""
        best, found = 0, None
        for entry, value in self.entries:
            n = len(entry)
            if best < n <= len(key) and key[:n] == entry:
                best, found = n, value
        return found


def in_python(keys, rng):
    """The rows of entries."""
    for who, store, lookups in (("Python trie", Trie(), LOOKUPS),
                                ("Python scan", Scan(), SCANS)):
        for number, key in enumerate(keys):
            store.put(key, number)
        picked = rng.sample(range(ENTRIES), lookups)
        assert [store.longest(keys[i]) for i in picked] == picked
        say(who, "longest of 2,048 entries, hit", "ns",
            median(store.longest, [keys[i] for i in picked]))
        missing = [[keys[i][0] + VOCABULARY] + keys[i][1:] for i in picked]
        assert not any(store.longest(key) for key in missing)
        say(who, "longest of 2,048 entries, miss", "ns",
            median(store.longest, missing))


# ---- SGLang's ---------------------------------------------------------------


def talks(rng):
    """Conversations; each begins with one of a few system prompts."""
    systems = [[rng.randrange(VOCABULARY) for _ in range(SYSTEM)]
               for _ in range(SYSTEMS)]
    return [systems[i % SYSTEMS] + [rng.randrange(VOCABULARY)
                                    for _ in range(TURNS * TURN)]
            for i in range(TALKS)]


def sglang(keys, rng):
    """The rows of the tree; in SGLang's environment."""
    import torch                # pylint: disable=import-outside-toplevel
    from sglang.srt.mem_cache.base_prefix_cache import (  # pylint: disable=C
        EvictParams, InsertParams, MatchPrefixParams)
    from sglang.srt.mem_cache.radix_cache import (  # pylint: disable=C
        RadixCache, RadixKey)

    class Pool:
        """Memory that is never short of."""

        device = "cpu"

        def free_segment(self, *_, **__):
            """Nothing is to be given back."""

    def key_of(tokens):
        return RadixKey(array("q", tokens))

    def match(key):
        return cache.match_prefix(MatchPrefixParams(key=key))

    who = "RadixCache"
    cache = RadixCache.create_simulated(mock_allocator=Pool(), page_size=1)
    value = torch.arange(ENTRY)
    for key in keys:
        cache.insert(InsertParams(key=key_of(key), value=value.clone()))
    cases = [key_of(rng.choice(keys)) for _ in range(LOOKUPS)]
    assert match(cases[0]).device_prefix_len == ENTRY
    say(who, "match in 2,048 keys, hit", "ns", median(match, cases))

    cache.reset()
    all_talks = talks(rng)
    took = 0
    for turn in range(1, TURNS + 1):
        n = SYSTEM + turn * TURN
        value = torch.arange(n)
        for talk in all_talks:
            what = InsertParams(key=key_of(talk[:n]), value=value)
            begun = time.perf_counter_ns()
            cache.insert(what)
            took += time.perf_counter_ns() - begun
    assert cache.total_size() > TALKS * TURNS * TURN
    say(who, "1 M tokens in talks, insert a turn", "ns",
        took / (TALKS * TURNS))
    say(who, "1 M tokens in talks, match", "ns",
        median(match, [key_of(rng.choice(all_talks))
                       for _ in range(TALKS)]))

    half = cache.total_size() // 2
    before = cache.total_size()
    begun = time.perf_counter_ns()
    cache.evict(EvictParams(num_tokens=half))
    took = time.perf_counter_ns() - begun
    assert before - cache.total_size() >= half
    say(who, "1 M tokens in talks, evict half, a token", "ns",
        took / (before - cache.total_size()))


def in_sglang(engines):
    """Runs sglang() with the package's Python; a word when it is not there."""
    found = sorted(engines.glob("sglang-*/sglang/srt/mem_cache"
                                "/radix_cache.py"))
    python = sorted(engines.glob("vllm-*/bin/python"))
    if not found or not python:
        print(f"prefix.py: no SGLang in {engines}: \"make engines\" installs "
              "it; the rows of RadixCache are missing", file=sys.stderr)
        return 0
    packages = found[-1].parents[3]
    # its logs are no figures
    done = subprocess.run([python[-1], "-B", __file__, "--sglang"],
                          env=dict(os.environ, PYTHONPATH=str(packages)),
                          stdout=subprocess.PIPE, universal_newlines=True,
                          check=False)
    for line in done.stdout.splitlines():
        if line.startswith('{"who"'):
            print(line)
    return done.returncode


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--engines", type=Path,
                        default=Path(__file__).parent / "../build/engines")
    parser.add_argument("--sglang", action="store_true",
                        help="SGLang's rows alone, in its environment")
    args = parser.parse_args()
    rng = random.Random(1)
    keys = [[rng.randrange(VOCABULARY) for _ in range(ENTRY)]
            for _ in range(ENTRIES)]
    if args.sglang:
        sglang(keys, rng)
        return 0
    in_python(keys, rng)
    return in_sglang(args.engines)


if __name__ == "__main__":
    sys.exit(main())
