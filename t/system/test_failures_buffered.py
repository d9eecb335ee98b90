#!/usr/bin/python3
"""test_failures.py once more, with proxy_buffering on; TAP."""

import sys

import broken
import test_failures

broken.Stage.buffering = "on"

if __name__ == "__main__":
    sys.exit(test_failures.main())
