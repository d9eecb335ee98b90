#!/usr/bin/python3
"""Each size of a zone that is written anywhere is enough for it; TAP.

The sizes are read out of the pages, samples, manifests, the demo, benches and
tests, each with the other parameters that stand beside it.
"""

import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "demo"))

import tap                                                  # noqa: E402

BUILD = Path(os.environ.get("KVR_BUILD", ROOT / "build")).resolve()
MODULE = BUILD / "ngx_http_kv_router_module.so"

# what users copy must start on large machines; tests run few processes
COPIED = ("README.md", "docs/", "conf/", "deploy/", "contrib/", "debian/")
ALL = COPIED + ("demo/", "bench/", "t/")
PROCESSES = 64
FEW = 2

# words that a program puts in
PLACEHOLDERS = {"@BLOCK_SIZE@": "16", "@BLOCK@": "16", "@SLOTS@": "1024",
                "@ZONE@": "main", "{i}": "0", "{SHARDS}": "4", "{ALL}": "16",
                "{zone}": "64m",
                "{{ .Values.zone }}": "256m block_size=16", "{block_size}": "16"}

# what is wrong on purpose, but for its size
WRONG = re.compile(r"invalid (value|parameter)|must be|duplicate|is not ")

# what is too small on purpose
SMALL = {("t/system/test_fences.py", "zone=main:1"),
         ("t/010-directives.t", "zone=main:32k"),
         ("t/system/mistakes.py", "zone=main:4m"),
         ("t/010-directives.t", "zone=main:8m max_workers=16384"),
         ("t/080-shards.t", "zone=small:12m block_size=4 shards=64")}


def load(name):
    """A program of util/ as a module."""
    path = str(ROOT / "util" / name)
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), path)
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


least_zones = load("least-zones")


def written():
    """Each zone that is written somewhere: (file, its words)."""
    tracked = subprocess.run(
        ["git", "-C", ROOT, "ls-files", *ALL], capture_output=True, text=True,
        check=False).stdout.split()
    names = tracked or [path.relative_to(ROOT).as_posix() for start in ALL
                        for path in sorted(ROOT.glob(start.rstrip("/")
                                                     + "/**/*"))]
    found = set()
    for name in names:
        path = ROOT / name
        if not path.is_file() or path == Path(__file__).resolve():
            continue
        text = path.read_text(errors="replace")
        for words in re.findall(r"kv_router_zone\s+([^;`\"'\\<]*?zone="
                                r"[^\s:;]*:[^;`\"'\\<|,)]*)", text):
            words = " ".join(words.split())
            for placeholder, value in PLACEHOLDERS.items():
                words = words.replace(placeholder, value)
            if "[" not in words:            # a syntax
                found.add((name, words))
    return sorted(found)


def too_small():
    """The zones that are too small: (file, words, what nginx says)."""
    answers, found = {}, []
    for name, words in WRITTEN:
        processes = PROCESSES if name.startswith(COPIED) else FEW
        if (words, processes) not in answers:
            answers[words, processes] = least_zones.tested(words, processes,
                                                           MODULE)
        said = answers[words, processes]
        if said and not WRONG.search(said):
            found.append((name, words, said))
    return found


def many_are_found():
    """zones are found in the pages, samples, manifests, demo and tests"""
    for start in ("README.md", "docs/", "conf/", "deploy/", "demo/", "t/"):
        assert any(name.startswith(start) for name, _ in WRITTEN), start
    assert len(WRITTEN) > 60, WRITTEN


def each_is_enough():
    """each zone that is written somewhere starts with its size"""
    bad = [(name, words, said) for name, words, said in too_small()
           if (name, words) not in SMALL]
    assert not bad, bad


def the_small_ones_are_told():
    """those that are too small on purpose are told, with what to write"""
    small = {(name, words): said for name, words, said in too_small()}
    assert SMALL <= set(small), SMALL - set(small)
    for key in SMALL:
        assert re.search(r"\[emerg\] \S+ kv_router_zone \"\w+\": \d+[km]? is too "
                         r"small for max_workers=\d+, shards=\d+ and "
                         r"worker_processes=\d+: write zone=\w+:\d+m.* in "
                         r"\S+nginx\.conf:\d+", small[key]), small[key]


def what_it_says_is_right():
    """what nginx says to write is enough, and a megabyte less is not"""
    for words, processes in ((" max_workers=1024", 2), (" shards=4", 64),
                             (" max_workers=16384", 8), ("", 1),
                             (" max_workers=4096 shards=16 frequency=10m", 4)):
        size = least_zones.least(words, processes, MODULE)
        assert not least_zones.tested(f"zone=main:{size}{words}", processes,
                                      MODULE), (size, words)
        less = f"zone=main:{int(size[:-1]) - 1}m{words}"
        assert "is too small" in least_zones.tested(less, processes, MODULE), \
            (size, words)


def fewer_workers_are_enough():
    """nor is the number of workers that it says instead"""
    said = least_zones.tested("zone=main:8m max_workers=4096", 2, MODULE)
    fewer = re.search(r", or max_workers=(\d+) in", said)
    assert fewer, said
    assert not least_zones.tested(f"zone=main:8m max_workers={fewer[1]}", 2,
                                  MODULE)


def the_table_is_right():
    """the table of least zones in docs/operations.md is what nginx says"""
    page = (ROOT / "docs" / "operations.md").read_text()
    table = "\n".join(least_zones.table(MODULE))
    assert table in page, f"util/least-zones says\n{table}"


WRITTEN = written()

if __name__ == "__main__":
    sys.exit(tap.run((many_are_found, each_is_enough, the_small_ones_are_told,
                      what_it_says_is_right, fewer_workers_are_enough,
                      the_table_is_right)))
