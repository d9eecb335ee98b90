#!/usr/bin/python3
"""test_kill.py once more, on a zone of four shards; TAP."""

import os
import sys

os.environ["KVR_SHARDS"] = "4"          # for stage.py

import test_kill                                                # noqa: E402

test_kill.KILLS = 12

if __name__ == "__main__":
    sys.exit(test_kill.main())
