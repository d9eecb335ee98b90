#!/usr/bin/python3
"""Runs the parts of the parity test that are there, each against what it
imitates: run.py [PART...].  The exit status is 0 if nothing differs."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTS = ("tokenizers", "templates", "requests")


def main():
    """all parts, or those named"""
    parts = sys.argv[1:] or [part for part in PARTS
                             if (HERE / f"{part}.py").is_file()]
    results = []
    for part in parts:
        print(f"---- {part}", flush=True)
        run = subprocess.run([sys.executable, "-B", HERE / f"{part}.py"],
                             check=False)
        results.append((part, run.returncode == 0))
    print("---- all")
    for part, same in results:
        print(f"{part:12} {'the same' if same else 'DIFFERS, see above'}")
    return 0 if all(same for _, same in results) else 1


if __name__ == "__main__":
    sys.exit(main())
