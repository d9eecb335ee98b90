#!/usr/bin/python3
"""Each mistake is made, and told once with cause, value and remedy; TAP.

docs/messages.md has those whose remedy is not among the words that are told;
--write writes its table.
"""

import re
import sys

from mistakes import MISTAKES
from mistakes_made import Bench
from stage import ROOT, tap

PAGE = ROOT / "docs" / "messages.md"
BEGIN = "<!-- mistakes: written by t/system/test_mistakes.py --write -->\n"
END = "<!-- end of mistakes -->\n"
HEAD = "| mistake | level | what is told | remedy |\n|---|---|---|---|\n"
HINTED = [row for row in MISTAKES if row.hint]
COMMON = re.compile(r'^kv_router:? zone "main": |'
                    r" in /etc/nginx/nginx\.conf:\d+$|"
                    " while (connecting to upstream|closing request)$")


def made(bench, row):
    """The mistake is made, and must be told; its row of the page, or ''."""
    level, text = row.make(bench)
    assert level == row.level, (level, text)
    cause = re.search(row.cause, text)
    assert cause, f"the cause, {row.cause!r}, is not in: {text}"
    if row.remedy:
        found = re.search(row.remedy, text)
        assert found, f"the remedy, {row.remedy!r}, is not in: {text}"
        assert found.start() >= cause.start(), (row, text)
    assert row.remedy or row.hint, row
    if not row.hint:
        return ""
    told = COMMON.sub("", text).strip().replace("|", "\\|")
    return f"| {row.name} | {level} | `{told}` | {row.hint} |\n"


def table(bench):
    """All of it."""
    return f"\n{HEAD}{''.join(made(bench, row) for row in HINTED)}\n"


def of_page():
    """What is before the table, the table, and what is behind."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    between, _, behind = rest.partition(END)
    return before + BEGIN, between, END + behind


def test_of(bench, row, page):
    """A test of one mistake."""
    def test():
        line = made(bench, row)
        assert line in page, f"docs/messages.md does not have: {line}"
    test.__doc__ = f"is told: {row.name}"
    return test


def main(args):
    """Runs the tests, or writes."""
    before, page, behind = of_page()
    bench = Bench()
    try:
        if args == ["--write"]:
            PAGE.write_text(before + table(bench) + behind)
            return 0

        def no_other():
            """the page has these mistakes and no others"""
            names = [row.name for row in HINTED]
            assert re.findall(r"^\| (.*?) \| ", page.replace(HEAD, ""),
                              re.M) == names

        return tap.run([test_of(bench, row, page) for row in MISTAKES
                        if not args or any(arg in row.name for arg in args)]
                       + [no_other] * (not args))
    finally:
        bench.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
