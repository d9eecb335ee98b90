#!/usr/bin/env python3
"""t/run, the runner of the tests, where its own processes fail."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from stage import PATIENCE, ROOT
from processes import wait_until

import tap

DEADLY = """
import os, signal, subprocess, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
with open("{pids}", "w") as out:
    out.write(f"{{child.pid}} {{os.getpid()}}")
print("1..1\\nok 1", flush=True)
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(600)
"""


def lives(pid):
    """Is it a process that has not ended?"""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def runner_killed():
    """a runner that is killed is a failure, and nothing of its test stays"""
    with tempfile.TemporaryDirectory() as directory:
        pids = Path(directory, "pids")
        for name, text in (("deadly.py", DEADLY.format(pids=pids)),
                           ("good.py", 'print("1..1\\nok 1")')):
            Path(directory, name).write_text(text)
        run = subprocess.run(
            [ROOT / "t" / "run", "-j", "2", f"{directory}/deadly.py",
             f"{directory}/good.py"], stdout=subprocess.PIPE, text=True,
            timeout=60, check=False)
        left = [int(pid) for pid in pids.read_text().split()]
    try:
        assert run.returncode == 1
        assert "deadly.py: its runner died" in run.stdout, run.stdout
        assert run.stdout.endswith("\n1 passed, 1 failed\n"), run.stdout
        wait_until("the end of all", lambda: not any(map(lives, left)),
                   PATIENCE)
    finally:
        for pid in filter(lives, left):
            os.kill(pid, signal.SIGKILL)


def promises_kept():
    """a row of the table is a failure when no test of its title has passed"""
    with tempfile.TemporaryDirectory() as directory:
        good, table = Path(directory, "good.py"), Path(directory, "table.md")
        good.write_text('print("1..2\\nok 1 - it is so\\nok 2 # SKIP not")')
        name = os.path.relpath(good, ROOT)
        for title, missing in (("is so", False), ("is not", True)):
            table.write_text(f"| promise | `{name}` | {title} |\n"
                             "| other | `other.py` | of a file not run |\n")
            run = subprocess.run(
                [ROOT / "t" / "run", "--table", table, good],
                stdout=subprocess.PIPE, text=True, timeout=PATIENCE,
                check=False)
            said = f"{table}:1: no test passed: {title}\n"
            assert (said in run.stdout) == missing, run.stdout
            assert run.returncode == missing, run.stdout
            assert "other.py" not in run.stdout, run.stdout


if __name__ == "__main__":
    sys.exit(tap.run([runner_killed, promises_kept]))
