#!/usr/bin/env python3
"""What kv-relay says: its log, and /health."""

import fcntl
import os
import re
import select
import subprocess
import sys
import time
import urllib.request

import test_relay
from relay import RELAY, stored
from stage import PATIENCE, server_port
from processes import wait_until


def page_of(port, path):
    """What a relay serves there."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}",
                                timeout=5) as answer:
        return answer.read().decode()


class Log(test_relay.Tests):
    """Lines that come once, and those that must not stop it."""

    def pipe_full(self):
        """a stderr that nobody reads stops nothing; what was lost is said"""
        engine = self.engine()
        port = server_port()
        out, into = os.pipe()
        fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 4096)
        os.write(into, b"x" * 3900)
        relay = subprocess.Popen(
            [RELAY, "--worker", "full", "--redis", self.stage.redis_url(),
             "--events", f"tcp://127.0.0.1:{engine.port}",
             "--replay", f"tcp://127.0.0.1:{engine.replay_port}",
             "--listen", f"127.0.0.1:{port}", "--memory", "32m"], stderr=into)
        os.close(into)
        try:
            wait_until("a snapshot", lambda: self.stage.redis.exists(
                "kv-snap:{full}"), PATIENCE)
            engine.send(stored([1]))
            wait_until("a block", lambda: "\nkv_relay_blocks 1\n" in page_of(
                port, "/metrics"), PATIENCE)
            lost = page_of(port, "/metrics").split(
                "\nkv_relay_log_dropped_total ")[1].split("\n")[0]
            assert int(lost) >= 5, lost
            said = b""
            deadline = time.monotonic() + PATIENCE
            while b"lines dropped" not in said:
                assert time.monotonic() < deadline, said
                if select.select([out], [], [], 1)[0]:
                    said += os.read(out, 65536)
            told = re.search(rb'msg="lines dropped" n=(\d+)\n', said)
            assert int(told.group(1)) >= int(lost), said
        finally:
            relay.kill()
            relay.wait()
            os.close(out)


if __name__ == "__main__":
    sys.exit(test_relay.main(Log, "relay-log"))
