#!/usr/bin/python3
"""make demo compares; what `make demo KEEP=1` prints can be pasted, and Ctrl-C
ends it; TAP."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import tap
from fleet import REPOSITORY, WORKERS
from processes import WAIT_SECONDS, free_port, wait_until

BUILD = Path(os.environ.get("KVR_BUILD") or REPOSITORY / "build")
REQUESTS = 60                   # of the trace
# few and short sessions, fast engines, and one that comes back at once; the
# rest is as it is: what nginx is configured with above all
SMALL = f"""
import dataclasses, sys, demo, fleet
fleet.RETURN_SECONDS = 1.0
fleet.DECODE_US = 400
def small(workload, *options):
    return dataclasses.replace(
        workload, options=("--text", *options), gap=float(sys.argv.pop(1)),
        engines=dataclasses.replace(workload.engines, prefill_us=5))
demo.CODING = small(demo.CODING, "--speedup", "200", "--agents", "2")
demo.RECORDED = small(demo.RECORDED, "--speedup", "40", "--scale", "4",
                      "--requests", "{REQUESTS}")
demo.KEPT_SESSIONS = 4
sys.exit(demo.main())
"""

demo = None                     # set by main()


def program(coding, recorded):
    """The demo, small, with these usual gaps between the hit rates."""
    return [sys.executable, "-B", "-c", SMALL, str(coding), str(recorded),
            "--module", BUILD / "ngx_http_kv_router_module.so",
            "--relay", BUILD / "kv-relay"]


def compared(coding, recorded):
    """`make demo`, small: its status and what it prints."""
    done = subprocess.run(
        program(coding, recorded), cwd=Path(__file__).parent, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False, timeout=20 * WAIT_SECONDS)
    return done.returncode, done.stdout


class Demo:
    """`make demo KEEP=1`, as its user sees it."""

    def __init__(self, directory):
        self.port = free_port()
        self.directory = directory
        self.output = directory / "output"
        with open(self.output, "wb") as out:
            self.child = subprocess.Popen(
                [*program(0, 0), "--keep", "--port", str(self.port)],
                cwd=Path(__file__).parent, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(directory)})

    def said(self):
        """What it has printed."""
        return self.output.read_text()

    def hint(self, pattern):
        """The only line to be pasted that matches."""
        line, = re.findall(rf"^  (.*{pattern}.*)$", self.said(), re.MULTILINE)
        return line

    def paste(self, pattern):
        """Runs that line in a shell: what it prints."""
        return subprocess.run(
            ["bash", "-c", self.hint(pattern)], check=True, text=True,
            capture_output=True, timeout=WAIT_SECONDS).stdout

    def get(self, accept):
        """The status page's URL, as a program or a browser asks for it."""
        request = urllib.request.Request(
            self.hint("/status"), headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
            return answer.read().decode()

    def status(self):
        """The status of the zone."""
        return json.loads(self.get("application/json"))


def all_is_compared():
    """make demo answers all requests of both loads, with each policy"""
    status, said = compared(0.02, -1)
    assert status == 0, said
    rows = re.findall(r"^\| (kv_cost|round_robin)\b.*?\| (\d+) +\| (\d+) +\|",
                      said, re.MULTILINE)
    assert [name for name, _, _ in rows] == [
        "round_robin", "kv_cost", "kv_cost", "round_robin", "kv_cost"], said
    assert {errors for _, _, errors in rows} == {"0"}, said
    assert {sent for _, sent, _ in rows[:3]} == {str(REQUESTS)}, said
    assert "Another zone's model is refused" in said, said


def a_small_gap_is_told():
    """and fails when the hit rates are not as far apart as they should be"""
    status, said = compared(0, 2)
    assert status == 1, said
    assert "should be above that of round_robin by 100.0% at least" in said, \
        said


def both_policies_are_compared():
    """both policies are replayed to, each with its ceiling, then it goes on"""
    def ready():
        assert demo.child.poll() is None, demo.said()
        return "Ctrl-C" in demo.said()
    wait_until("the demo goes on", ready, 5 * WAIT_SECONDS)
    for policy in ("round_robin", "kv_cost"):
        assert re.search(rf"^\| {policy} .* [0-9.]+% of the possible "
                         rf"[0-9.]+% \|", demo.said(), re.MULTILINE), \
            demo.said()


def a_load_goes_on():
    """a load goes on, of which the terminal tells"""
    wait_until("the load is told", lambda: re.search(
        r"requests/s, 0 failed, cache hit rate", demo.said()))
    routed = demo.status()["requests"]["routed"]
    wait_until("more is routed", lambda: (
        demo.status()["requests"]["routed"] > routed))


def the_page_is_there():
    """the page's URL is for browsers and for programs"""
    assert "<table" in demo.get("text/html")
    assert demo.status()["zone"] == "main"


def the_policy_is_switched():
    """the lines that switch the policy do so, to round_robin and back"""
    for policy in ("round_robin", "kv_cost"):
        demo.paste(f"cp .*/{policy}.conf")
        wait_until(f"the policy is {policy}", lambda name=policy: (
            demo.status()["policy"]["name"] == name))


def an_engine_is_killed():
    """the line that kills an engine does so; the engine comes back"""
    directory, = demo.directory.glob("kv-router-demo-*")
    pid = (directory / f"{WORKERS[1]}.pid").read_text()
    demo.paste("kill -9")
    wait_until("the engine is started again", lambda: (
        f"engine {WORKERS[1]} has ended" in demo.said()))
    assert (directory / f"{WORKERS[1]}.pid").read_text() != pid
    worker, = (each for each in demo.status()["workers"]
               if each["worker_id"] == WORKERS[1])

    def asked():
        # sessions go where their blocks are: a chat goes where the load is least
        demo.paste("curl")
        with urllib.request.urlopen(f"http://{worker['address']}/metrics",
                                    timeout=WAIT_SECONDS) as answer:
            return re.search(
                r"^vllm:prefix_cache_queries_total\S* [1-9]",
                answer.read().decode(), re.MULTILINE)
    wait_until("the router sends requests to the new engine", asked,
               5 * WAIT_SECONDS)


def a_chat_is_answered():
    """the chat of one's own is answered by a worker"""
    answer = demo.paste("curl")
    assert answer.startswith("HTTP/1.1 200"), answer
    assert re.search(r"^x-kv-worker: w[1-4]\r?$", answer, re.MULTILINE), answer


def a_port_in_use_is_told():
    """a port that is in use is told, with what to do about it"""
    child = subprocess.run(
        [*program(0, 0), "--keep", "--port", str(demo.port)],
        cwd=Path(__file__).parent, capture_output=True, text=True,
        check=False, timeout=WAIT_SECONDS)
    assert child.returncode == 1, child.stdout + child.stderr
    assert f"nginx can't listen on port {demo.port}" in child.stderr
    assert "PORT=N" in child.stderr, child.stderr


def ctrl_c_ends_it():
    """Ctrl-C ends all of it with status 0, and leaves no file behind"""
    demo.child.send_signal(signal.SIGINT)
    assert demo.child.wait(WAIT_SECONDS) == 0, demo.said()
    assert demo.said().endswith("\nstopping\n"), demo.said()
    assert not list(demo.directory.glob("kv-router-demo-*"))
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", demo.port)) != 0


def main():
    """The program."""
    global demo                 # pylint: disable=global-statement
    with tempfile.TemporaryDirectory() as directory:
        demo = Demo(Path(directory))
        try:
            return tap.run([
                all_is_compared,
                a_small_gap_is_told,
                both_policies_are_compared,
                a_load_goes_on,
                the_page_is_there,
                the_policy_is_switched,
                an_engine_is_killed,
                a_chat_is_answered,
                a_port_in_use_is_told,
                ctrl_c_ends_it])
        finally:
            if demo.child.poll() is None:
                demo.child.terminate()
                demo.child.wait()


if __name__ == "__main__":
    sys.exit(main())
