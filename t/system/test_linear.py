#!/usr/bin/env python3
"""util/linear, the lint that finds work that grows with a text's square."""

import subprocess
import sys
import tempfile
from pathlib import Path

from stage import ROOT

import tap

BAD = r"""local find, gsub, match = string.find, string.gsub, string.match
local seen = {}

local function bad(s, list, request)
    local text = ""

    s = gsub(s, "[%s,]+$", "")
    s = match(s, "^ *(.-) *$")
    s = match(s,
              "%d+x")
    s = match(s, "^%d+%.?%d*$")

    for i = 1, #list do
        if list[i] then
            text = text .. list[i]
        end
    end

    seen[request.id] = true
    request.seen[s] = true
end
"""
LINES = (7, 8, 9, 11, 15, 19, 20)

GOOD = r"""local function good(s, list)
    local made = {}

    -- a comment: gsub(s, " +$", "")
    for i = 1, #list do
        made[i] = "x" .. list[i]
        made[s] = made[i] .. "y"
    end

    s = match(s, "^[ %-]*") .. gsub(s, "%s+", " ")
    return find(s, ".-", 1, true) or find(s, "[*+-]") or match(s, "^%a+:")
end
"""


def linear(text, excused=""):
    """exit code and lines of util/linear for a file"""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "a.lua").write_text(text)
        Path(directory, "list").write_text(excused)
        run = subprocess.run(
            [ROOT / "util/linear", "list", "a.lua"], cwd=directory,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False)
    return run.returncode, run.stdout.splitlines()


def excuses(bound="    short"):
    """an excuse for each bad line"""
    lines = BAD.splitlines()
    return "\n".join(f"a.lua: {lines[n - 1].strip()}\n{bound}\n"
                     for n in LINES)


def bad_lines():
    """costly patterns, texts that grow in loops, and tables are found"""
    code, lines = linear(BAD)
    assert code == 1, lines
    assert [int(line.split(":")[1]) for line in lines] == list(LINES), lines


def good_lines():
    """lines that are linear are not"""
    assert linear(GOOD) == (0, [])


def excused():
    """a line with an excuse and a bound is left alone"""
    assert linear(BAD, excuses()) == (0, [])


def without_bound():
    """an excuse without a bound is an error"""
    code, lines = linear(BAD, excuses(""))
    assert code == 1 and len(lines) == len(LINES), lines
    assert all("no bound" in line for line in lines), lines


def stale():
    """so is one for a line that is not there any more"""
    code, lines = linear(GOOD, "a.lua: s = gsub(s, \" +$\", \"\")\n    short\n")
    assert code == 1 and len(lines) == 1, lines
    assert "no such line" in lines[0] and lines[0].startswith("list:1:"), lines


def main():
    """runs all of it"""
    return tap.run([bad_lines, good_lines, excused, without_bound, stale])


if __name__ == "__main__":
    sys.exit(main())
