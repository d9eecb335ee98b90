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

CIRCLE = "relay/a.c\nrelay/b.c\nrelay/c.c\n"


def circles(known, files=None, without=()):
    """exit code and lines of util/circles for files, made and compiled"""
    files = files or FILES
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "list").write_text(known)
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
            [ROOT / "util/circles", "build", "list", *sorted(files)],
            cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False)
    return run.returncode, run.stdout.splitlines()


def circle_is_found():
    """a circle of calls is an error of each of its files, and of no other"""
    code, lines = circles("")
    assert code == 1, lines
    assert [line.split(": ")[0] for line in lines] == [
        "relay/a.c:1", "relay/b.c:1", "relay/c.c:1"], lines
    assert "in a circle of 3 files" in lines[2], lines
    assert "it calls b() of relay/b.c, relay/a.c calls its c()" in lines[2]


def known_circle_is_allowed():
    """a circle that the list has is no error"""
    assert circles(CIRCLE) == (0, [])


def known_circle_does_not_grow():
    """a file that joins a circle of the list is an error"""
    code, lines = circles("relay/a.c\nrelay/c.c\n")
    assert code == 1, lines
    assert len(lines) == 1 and lines[0].startswith("relay/b.c:1: "), lines


def list_shrinks():
    """a file of the list that is in its circle no more is an error"""
    code, lines = circles(CIRCLE + "relay/d.c\n")
    assert code == 1, lines
    assert lines == ["list:4: relay/d.c is not in this circle any more"], lines

    opened = dict(FILES)
    opened["relay/c.c"] = "int c(void) { return 2; }"
    code, lines = circles(CIRCLE, opened)
    assert code == 1, lines
    assert len(lines) == 3, lines


def parts_are_listed_apart():
    """a circle of the list that has come apart needs two paragraphs"""
    files = {
        "relay/a.c": "int b(void); int a(void) { return b(); }",
        "relay/b.c": "int a(void); int b(void) { return a(); }",
        "relay/c.c": "int d(void); int c(void) { return d(); }",
        "relay/d.c": "int c(void); int d(void) { return c(); }",
    }
    code, lines = circles("\n".join(files), files)
    assert code == 1, lines
    assert len(lines) == 1 and "has come apart" in lines[0], lines
    assert circles("relay/a.c\nrelay/b.c\n\nrelay/c.c\nrelay/d.c\n",
                   files) == (0, [])


def core_has_none():
    """in src/ no list allows a circle"""
    files = {name.replace("relay", "src/room"): text
             for name, text in FILES.items()}
    code, lines = circles(CIRCLE.replace("relay", "src/room"), files)
    assert code == 1, lines
    assert "src/room/a.c:1" in [line.split(": ")[0] for line in lines], lines


def missing_object_is_an_error():
    """a source that is not compiled is an error"""
    code, lines = circles(CIRCLE, without=["relay/d.c"])
    assert code != 0, lines
    assert lines == ["relay/d.c:1: build/obj/relay/d.o is missing: run make"]


if __name__ == "__main__":
    sys.exit(tap.run([
        circle_is_found,
        known_circle_is_allowed,
        known_circle_does_not_grow,
        list_shrinks,
        parts_are_listed_apart,
        core_has_none,
        missing_object_is_an_error,
    ]))
