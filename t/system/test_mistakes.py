#!/usr/bin/python3
"""Each mistake of docs/messages.md is made, and told as written there; TAP.

test_mistakes.py --write writes the table of that page.
"""

import sys

import mistakes
from stage import ROOT, tap

PAGE = ROOT / "docs" / "messages.md"
BEGIN = "<!-- mistakes: written by t/system/test_mistakes.py --write -->\n"
END = "<!-- end of mistakes -->\n"


def cell(text):
    """Text in code, in a cell of a table."""
    return "`` " + text.replace("|", "\\|") + " ``"


def rows(bench, group):
    """The rows of one group, made just now."""
    return "".join(f"| {mistake.__doc__} | {cell(mistake(bench))} |\n"
                   for mistake in group)


def section(title, body):
    """A heading, and the table below it."""
    return (f"\n### Told by {title}\n\n| mistake | on the screen |\n|---|---|\n"
            + body)


def table(bench):
    """All of it."""
    return "".join(section(title, rows(bench, group))
                   for title, group in mistakes.MISTAKES) + "\n"


def of_page():
    """What is before the table, the table, and what is behind."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    between, _, behind = rest.partition(END)
    return before + BEGIN, between, END + behind


def test_of(bench, mistake, page):
    """A test of one mistake."""
    def test():
        row = f"| {mistake.__doc__} | {cell(mistake(bench))} |\n"
        assert row in page, f"docs/messages.md does not have: {row}"
    test.__doc__ = f"is told: {mistake.__doc__}"
    return test


def main(args):
    """Runs the tests, or writes."""
    bench = mistakes.Bench()
    before, page, behind = of_page()
    try:
        if args == ["--write"]:
            PAGE.write_text(before + table(bench) + behind)
            return 0

        def no_other():
            """the table has these mistakes and no others"""
            made = sum(len(group) for _, group in mistakes.MISTAKES)
            assert page.count("\n| ") - len(mistakes.MISTAKES) == made, page

        return tap.run([test_of(bench, mistake, page)
                        for _, group in mistakes.MISTAKES
                        for mistake in group] + [no_other])
    finally:
        bench.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
