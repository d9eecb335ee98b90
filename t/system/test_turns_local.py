#!/usr/bin/python3
"""The turn cache with tokenizer = "local", and sessions that branch; TAP."""

import sys

from test_turns import (LocalStage, local_chats_are_found_at_once,
                        sessions_that_branch, staged)

if __name__ == "__main__":
    sys.exit(staged(LocalStage, "local-turns", [
        local_chats_are_found_at_once, sessions_that_branch]))
