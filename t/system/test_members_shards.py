#!/usr/bin/python3
"""test_members.py once more, on a zone of four shards; TAP."""

import os
import sys

os.environ["KVR_SHARDS"] = "4"          # for stage.py

import test_members                                            # noqa: E402

if __name__ == "__main__":
    sys.exit(test_members.main())
