#!/usr/bin/python3
"""test_redis.py once more, on a zone of four shards; TAP."""

import os
import sys

os.environ["KVR_SHARDS"] = "4"          # for stage.py

import test_redis                                              # noqa: E402

if __name__ == "__main__":
    sys.exit(test_redis.main())
