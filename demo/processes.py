"""Child processes that never outlive the demo, and their logs."""

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
STOP_SECONDS = 5.0              # from SIGTERM to SIGKILL
WAIT_SECONDS = 60.0             # that anything may take: more is a hang
TAIL_LINES = 20
PORTS = range(10240, 32000)

_claims = []                    # sockets, open until this process ends

_libc = ctypes.CDLL(None, use_errno=True)


class DemoError(Exception):
    """What went wrong, in words for the user."""


def free_port(*offsets):
    """A loopback port that is free and stays so; so are the ports that are
    `offsets` behind it.

    The kernel gives no client a port of this range.  A port is claimed for as
    long as this process lives: no other caller gets it, here or in another
    process, before its server listens there or while the server is away.  The
    suites of nginx claim theirs in the same way (t/lib/KVRouter.pm).
    """
    for port in random.SystemRandom().sample(PORTS, 200):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            claims = [_claim(port + offset, stack) for offset in (0, *offsets)]
            stack.pop_all()
            _claims.extend(claims)
            return port
    raise DemoError("no port of 127.0.0.1 is free")


def _claim(port, stack):
    """The socket that claims a port; OSError when the port is not free."""
    claim = stack.enter_context(socket.socket(socket.AF_UNIX))
    claim.bind(f"\0kv-router-port-{port}")      # a name, without a file
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
    return claim


def check_port(port):
    """Raises DemoError when a loopback port can't be listened on."""
    try:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", port))
    except (OSError, OverflowError) as err:
        raise DemoError(f"nginx can't listen on port {port} of 127.0.0.1: "
                        f"{err}; choose another one (make demo KEEP=1 "
                        f"PORT=N)") from err


def wait_until(what, check, seconds=WAIT_SECONDS):
    """Polls `check` until its answer is true, and returns that answer.

    Connection errors count as not yet; DemoError after `seconds`.
    """
    deadline = time.monotonic() + seconds
    why = "no answer"
    while time.monotonic() < deadline:
        try:
            answer = check()
            if answer:
                return answer
        except OSError as err:
            why = str(err)
        time.sleep(0.1)
    raise DemoError(f"{what}: not after {seconds:.0f} s ({why})")


class Process:
    """One child, in a session of its own, its output in a log file, or on our
    terminal when it is attached."""

    def __init__(self, name, command, directory, attached=False):
        self.name = name
        self.log = directory / f"{name}.log"
        with open(os.devnull if attached else self.log, "wb") as out:
            self._child = subprocess.Popen(
                command, cwd=directory, stdin=subprocess.DEVNULL,
                stdout=None if attached else out,
                stderr=None if attached else subprocess.STDOUT,
                start_new_session=True, preexec_fn=_die_with_parent)
        # where the kernel shares its time between sessions, nice counts within
        # one only, unless the session has it, too
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        if nice:
            with contextlib.suppress(OSError):
                Path(f"/proc/{self._child.pid}/autogroup").write_text(
                    str(nice))

    def pid(self):
        """Its process id."""
        return self._child.pid

    def cpu_seconds(self):
        """Processor time of the child and all of its processes so far."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):      # it has just ended
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self._child.pid:       # its session
                    # the last two: children that have ended
                    ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def status(self):
        """The status that the child has ended with; None while it runs."""
        return self._child.poll()

    def wait(self):
        """Waits for the child's end: its status."""
        return self._child.wait()

    def check_alive(self):
        """Raises DemoError when the child has ended by itself."""
        status = self._child.poll()
        if status is not None:
            raise DemoError(f"{self.name} ended with status {status}")

    def signal(self, number):
        """Sends a signal to the child."""
        self._child.send_signal(number)

    def stop(self):
        """Ends the child, gently first."""
        if self._child.poll() is not None:
            return
        self._child.terminate()
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def tail(self):
        """The end of the log."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").splitlines()
            return "\n".join(lines[-TAIL_LINES:])
        return ""


def run_attached(command, directory):
    """Runs a child to its end, sharing our terminal; returns its status."""
    child = Process("child", command, directory, attached=True)
    try:
        return child.wait()
    finally:
        child.stop()


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
