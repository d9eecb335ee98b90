#!/usr/bin/python3
"""test_reload.py once more, on a zone of four shards; TAP."""

import os
import sys

os.environ["KVR_SHARDS"] = "4"          # for stage.py

import test_reload                                              # noqa: E402

test_reload.RELOADS = 3

if __name__ == "__main__":
    sys.exit(test_reload.main())
