#!/usr/bin/python3
"""The pages of docs/tasks that need several nginx, a fault, or engines of two
kinds; TAP.  test_tasks.py has all others, and says what is replaced."""

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import test_tasks
from processes import wait_until
from test_tasks import BUILD, ROOT, TASKS, Page, added
from worker import Worker
import tap

SEE = "See that it works"


class Fleet(Page):
    """A page with engines that publish, each with its relay."""

    part = None                     # of "See that it works": all

    def section(self, title):
        text = super().section(title)
        if title != SEE or self.part is None:
            return text
        return f"```console\n{self.blocks('console', text)[self.part]}```\n"

    def start_workers(self, *redis):
        """w1 and w2, as the base has them."""
        for name, port in ("w1", 8001), ("w2", 8002):
            worker = Worker(name, self.folder, str(self.port(port)),
                            "--prefill-us-per-token", "1",
                            "--decode-us-per-token", "1000")
            self.processes.append(worker.engine)
            worker.wait_ready()
            worker.start_relay(BUILD / "kv-relay", ",".join(redis))
            self.processes.append(worker.relay)

    def beside(self, name, conf, **ports):
        """Another nginx, in a folder of its own; its page."""
        page = Fleet(self.path, self.folder / name)
        page.ports = ports or {port: real for port, real in self.ports.items()
                               if port != "8080"}
        page.lay()
        page.start_nginx(conf)
        self.processes += page.processes
        return page

    def chat(self, text, *headers):
        """Sends a chat with these words; the new line of the access log."""
        log = self.folder / "var/log/nginx/access.log"
        before = log.read_text().count("POST ")
        body = {"messages": [{"role": "user", "content": text}],
                "max_tokens": 8}
        subprocess.run(
            ["curl", "-sSf", "-o", os.devnull, *headers, "-H",
             "Content-Type: application/json", "-d", json.dumps(body),
             f"http://127.0.0.1:{self.port(8080)}/v1/chat/completions"],
            check=True)
        return wait_until("its line", lambda: [
            line for line in log.read_text().splitlines()
            if line.startswith("POST ")][before:])[0]

    def overlap(self, text):
        """The overlap of a chat that was sent before, once it is known."""
        return wait_until("an overlap", lambda: int(re.search(
            r" overlap=(\d+)", self.chat(text))[1]))


def several_nginx(page):
    """several-nginx.md: two nginx know one another, and one stands in front"""
    ours, front = page.blocks("nginx")
    conf = added(page.below().configuration(), [ours])
    page.start_redis()
    page.start_workers(f"redis://127.0.0.1:{page.port(6379)}")
    assert conf.count("name=router-a") == 1
    page.start_nginx(conf)
    other = page.beside("b", conf.replace("name=router-a", "name=router-b"))
    page.see()
    words = " ".join(map(str, range(200)))
    page.chat(words)
    assert other.overlap(words) > 0
    both = [page, other]
    for number, one in enumerate(both, 1):
        front = front.replace(f"10.0.1.{number}:8080",
                              f"127.0.0.1:{one.port(8080)}")
    ports = {str(one.port(8080)): one.port(8080) for one in both}
    front = page.beside("front", "include /etc/nginx/modules-enabled/*.conf;\n"
                        f"events {{}}\nhttp {{\n{front}}}\n", **ports)
    counts = [one.folder / "var/log/nginx/access.log" for one in both]
    before = [log.read_text().count("POST ") for log in counts]
    front.ports["8080"] = front.port(8000)
    for _ in range(4):
        subprocess.run(
            ["curl", "-sSf", "-o", os.devnull, "-H", "x-session-id: 7", "-H",
             "Content-Type: application/json", "-d",
             json.dumps({"prompt": list(range(1, 50)), "max_tokens": 2}),
             f"http://127.0.0.1:{front.port(8080)}/v1/completions"], check=True)
    went = wait_until("all lines", lambda: (lambda now: sum(now) == 4 and now)(
        [log.read_text().count("POST ") - old
         for log, old in zip(counts, before)]))
    assert sorted(went) == [0, 4], went


def redis_dies(page):
    """redis-dies.md: Redis dies and returns, by the Sentinels of the page"""
    conf = page.configuration()
    page.start_redis()
    file = page.folder / "sentinel.conf"
    file.write_text(
        f"port {page.port(26379)}\nbind 127.0.0.1\n"
        f"sentinel monitor mymaster 127.0.0.1 {page.port(6379)} 1\n")
    page.spawn("sentinel", ["redis-server", file, "--sentinel"])
    urls = re.findall(r"redis-sentinel://[^;\s]+", conf)
    assert len(urls) == 2, urls
    page.start_workers(*map(page.moved, urls))
    page.start_nginx(conf)
    page.part = 1
    page.see()                      # all is well
    words = " ".join(map(str, range(200)))
    page.overlap(words)
    (redis,) = [one for one in page.processes if one.name == "redis"]
    redis.stop()
    page.processes.remove(redis)
    page.part = 0
    page.see()
    assert page.overlap(words) > 0
    page.start_redis()
    page.part = 1
    page.see()


class Prefiller(http.server.BaseHTTPRequestHandler):
    """What vLLM with a connector answers to a prefill."""

    asked = []

    def do_GET(self):               # pylint: disable=invalid-name
        """It is well, and has nothing to tell."""
        self.answer(200 if self.path in ("/health", "/metrics") else 404,
                    b"vllm:num_requests_waiting 0\n")

    def do_POST(self):              # pylint: disable=invalid-name
        """A prefill; no other question."""
        size = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(size))
        known = "kv_transfer_params" in body
        if known:
            self.asked.append(body)
        self.answer(200 if known else 404, json.dumps({"kv_transfer_params": {
            "remote_host": "p1", "remote_port": 5600}}).encode())

    def answer(self, status, text=b""):
        """Sends a text."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):      # pylint: disable=arguments-differ
        """Says nothing."""


def prefill_decode(page):
    """prefill-decode.md: a prefiller is asked first, and a decoder answers"""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", page.port(8100)), Prefiller)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page.start_engine(["vllm", "--port", "8200"])
        page.start_nginx(page.configuration())
        page.see()
        assert Prefiller.asked[-1]["max_tokens"] == 1, Prefiller.asked[-1]
        page.quiet()
    finally:
        server.shutdown()


def the_drop_in_is_ours():
    """upgrade.md has deploy/systemd/nginx.conf"""
    (unit,) = test_tasks.test_docs.blocks(
        "ini", (TASKS / "upgrade.md").read_text())
    file = (ROOT / "deploy/systemd/nginx.conf").read_text()
    assert unit == re.sub(r"^(#.*)?\n", "", file, flags=re.M), unit


def tried(play):
    """The test of a page."""
    def test():
        folder = Path(tempfile.mkdtemp(prefix="kvt-"))
        folder.chmod(0o755)             # nginx's workers are another user
        page = Fleet(TASKS / (play.__doc__.partition(":")[0]), folder)
        try:
            page.lay()
            play(page)
        finally:
            page.stop()
            shutil.rmtree(folder, ignore_errors=True)
    test.__doc__ = play.__doc__
    return test


def main():
    os.environ["LUA_PATH"] = f"{ROOT}/lua/?.lua;;"
    plays = [play for play in (several_nginx, redis_dies, prefill_decode)
             if play.__name__ in sys.argv[1:] or not sys.argv[1:]]
    return tap.run([the_drop_in_is_ours, *map(tried, plays)])


if __name__ == "__main__":
    sys.exit(main())
