"""Tests as functions: their docstrings are the sentences of the TAP."""

import sys
import traceback


class Skip(Exception):
    """What this machine has not, and a test needs: it counts as skipped."""


def run(tests):
    """Runs the functions in order; returns the program's status."""
    failed = 0
    for number, test in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {test.__doc__}")
        except Skip as why:
            print(f"ok {number} - {test.__doc__} # SKIP {why}")
        except Exception:
            failed += 1
            print(f"not ok {number} - {test.__doc__}")
            for line in traceback.format_exc().splitlines():
                print(f"# {line}")
        sys.stdout.flush()
    print(f"1..{len(tests)}")
    return 1 if failed else 0
