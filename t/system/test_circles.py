#!/usr/bin/env python3
"""util/circles, the lint that finds circles of calls between files."""

import subprocess
import sys
import tempfile
from pathlib import Path

from stage import ROOT

import tap

# b calls a's table, a calls c, c calls b; d is called and calls nobody
FILES = {
    "relay/a.c": "int c(void); int d(void); int a(void) { return c() + d(); }"
                 " int (*table)(void) = a;",
    "relay/b.c": "extern int (*table)(void); int b(void) { return table(); }",
    "relay/c.c": "int b(void); int c(void) { return b(); }",
    "relay/d.c": "int d(void) { return 1; }",
}


def circles(files=None, without=()):
    """exit code and lines of util/circles for files, made and compiled"""
    files = files or FILES
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            source = Path(directory, name)
            target = Path(directory, "build/obj", name).with_suffix(".o")
            for path in (source, target):
                path.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text)
            if name not in without:
                subprocess.run(["cc", "-O0", "-c", "-o", target, source],
                               check=True)
        run = subprocess.run(
            [ROOT / "util/circles", "build", *sorted(files)],
            cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False)
    return run.returncode, run.stdout.splitlines()


def circle_is_found():
    """a circle of calls is an error of each of its files, and of no other"""
    code, lines = circles()
    assert code == 1, lines
    assert [line.split(": ")[0] for line in lines] == [
        "relay/a.c:1", "relay/b.c:1", "relay/c.c:1"], lines
    assert "in a circle of 3 files" in lines[2], lines
    assert "it calls b() of relay/b.c, relay/a.c calls its c()" in lines[2]


def apart_is_none():
    """files that call one another one way only are no error"""
    files = FILES | {"relay/c.c": "int c(void) { return 2; }"}
    assert circles(files) == (0, [])


def missing_object_is_an_error():
    """a source that is not compiled is an error"""
    code, lines = circles(without=["relay/d.c"])
    assert code != 0, lines
    assert lines == ["relay/d.c:1: build/obj/relay/d.o is missing: run make"]


if __name__ == "__main__":
    sys.exit(tap.run([
        circle_is_found,
        apart_is_none,
        missing_object_is_an_error,
    ]))
