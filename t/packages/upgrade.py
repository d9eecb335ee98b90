#!/usr/bin/python3
"""An upgrade by packages, and the way back, under load: docs/tasks/upgrade.md's
commands in a bare Debian 12, with Redis, two engines that stand in, and their
relays.  TAP.

    t/packages/upgrade.py --build DIR --from COMMIT

Redis, engines and clients run here; nginx and the relays run in that Debian,
of the packages of COMMIT first.  The clients go on all the time.
"""

import argparse
import http.client
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "demo"), str(ROOT / "t/system"),
                str(Path(__file__).resolve().parent)]

# pylint: disable=wrong-import-position
import tap                                                      # noqa: E402
from check import renamed                                       # noqa: E402
from processes import Process, free_port, wait_until             # noqa: E402
from root import Root                                           # noqa: E402

CLIENTS = 8
PAUSE = 0.05                    # seconds between two requests of a client
SECONDS = 10                    # of load between two steps
EARLIER = "0.1.0~earlier"       # the version of COMMIT's packages
ENGINES = ("w1", "w2")
CONF = """
include /etc/nginx/modules-enabled/*.conf;
pid /run/nginx.pid;
error_log /var/log/nginx/error.log notice;
worker_processes 2;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    kv_router_zone   zone=main:64m block_size=16;
    kv_router_redis  main redis://127.0.0.1:{redis};
    {workers}
    init_by_lua_block {{ router = require("resty.kv_router").new("main") }}
    upstream engines {{
        server 0.0.0.1;
        balancer_by_lua_block {{ router:balance() }}
        keepalive 16;
    }}
    server {{
        listen 127.0.0.1:{nginx};
        location /v1/ {{
            access_by_lua_block {{ router:access() }}
            log_by_lua_block    {{ router:log() }}
            add_header x-overlap "$kv_router_overlap_blocks/$kv_router_prompt_blocks";
            proxy_pass http://engines;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
        location /kv/ {{ kv_router_api main; allow 127.0.0.1; deny all; }}
        location = /status {{ kv_router_status main; allow 127.0.0.1; deny all; }}
    }}
}}
"""

args = None                     # of the command line
directory = None                # of this run
at = None                       # the Trial


class Trial:
    """All that runs, and what became of the requests."""

    def __init__(self):
        self.ports = {name: free_port() for name in ("redis", "nginx")}
        self.root = Root("bookworm", args.build / "deb/roots",
                         directory / "root")
        self.running, self.relays = [], {}
        self.answers = []       # (time, status, blocks of overlap, of prompt)
        self.over = threading.Event()
        self.clients = [threading.Thread(target=self.client, args=(number,),
                                         daemon=True)
                        for number in range(CLIENTS)]

    def start(self):
        """Redis, engines, relays, nginx, and the clients."""
        redis = ["redis-server", "--bind", "127.0.0.1", "--save", "",
                 "--port", str(self.ports["redis"])]
        self.running.append(Process("redis", redis, directory))
        lines = []
        for name in ENGINES:
            port = free_port(1, 2)
            events, replay = (f"tcp://127.0.0.1:{port + i}" for i in (1, 2))
            self.running.append(Process(f"engine-{name}", [
                sys.executable, "-B", str(ROOT / "demo/engine.py"), str(port),
                "--events", events, "--replay", replay], directory))
            lines.append(f"kv_router_worker main {name} 127.0.0.1:{port};")
            self.relays[name] = ["kv-relay", "--worker", name, "--redis",
                                 f"redis://127.0.0.1:{self.ports['redis']}",
                                 "--events", events, "--replay", replay]
        self.start_relays()
        (self.root.path / "etc/nginx/nginx.conf").write_text(CONF.format(
            workers="\n    ".join(lines), **self.ports))
        self.root.run("service", "nginx", "start")
        wait_until("the views are exact", self.exact)
        for client in self.clients:
            client.start()

    def start_relays(self):
        """Those that are installed, in the place of those that run."""
        for name, command in self.relays.items():
            if isinstance(command, tuple):
                command[1].stop()
                command = command[0]
            self.relays[name] = (command, self.root.start(
                f"relay-{name}", *command))

    def get(self, path):
        """The answer of nginx, decoded."""
        connection = http.client.HTTPConnection("127.0.0.1",
                                                self.ports["nginx"], timeout=60)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def exact(self):
        """Are all views exact?"""
        return all(worker["confidence"] == "EXACT"
                   for worker in self.get("/kv/workers"))

    def master(self):
        """The process that /run/nginx.pid names."""
        return int((self.root.path / "run/nginx.pid").read_text())

    def client(self, number):
        """Conversations of token ids, one after the other."""
        rng, prompt = random.Random(number), []
        while not self.over.is_set():
            if not prompt or len(prompt) > 1000:
                prompt = [rng.randrange(30000) for _ in range(200)]
            prompt += [rng.randrange(30000) for _ in range(32)]
            try:
                connection = http.client.HTTPConnection(
                    "127.0.0.1", self.ports["nginx"], timeout=60)
                connection.request("POST", "/v1/completions", json.dumps(
                    {"prompt": prompt, "max_tokens": 4}))
                answer = connection.getresponse()
                answer.read()
                status, blocks = answer.status, answer.getheader("x-overlap")
                connection.close()
            except (OSError, http.client.HTTPException) as err:
                status, blocks = repr(err), None
            has, whole = map(int, re.findall(r"\d+", blocks or "") or (0, 0))
            self.answers.append((time.monotonic(), status, has, whole))
            self.over.wait(PAUSE)

    def stop(self):
        """Ends all."""
        self.over.set()
        for thread in self.clients:
            if thread.is_alive():
                thread.join()
        self.root.run("service", "nginx", "stop", check=False)
        for _, relay in (one for one in self.relays.values()
                         if isinstance(one, tuple)):
            relay.stop()
        for process in self.running:
            process.stop()
        self.root.remove()


def built(commit, version, name):
    """The packages of a commit, with a version, in a folder of the Debian that
    they will be installed in.  What was built once is kept."""
    kept = args.build / "deb/commits" / subprocess.run(
        ["git", "-C", ROOT, "rev-parse", commit], check=True, text=True,
        capture_output=True).stdout.strip()
    if not kept.exists():
        build(commit, name, kept)
    renamed(at.root.path / "root" / name, sorted(kept.glob("*.deb")), version)


def build(commit, name, kept):
    """Builds the packages of a commit in a bare Debian, and keeps them."""
    root = Root("bookworm", args.build / "deb/roots", directory / name)
    try:
        tree = root.path / "root/source"
        tree.mkdir()
        archive = subprocess.run(["git", "-C", ROOT, "archive", commit],
                                 check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)
        root.apt("update")
        root.apt("install", "make")
        root.run("util/deps", "deb", cwd="/root/source")
        root.run("env", "DEB_BUILD_OPTIONS=noautodbgsym", "dpkg-buildpackage",
                 "-us", "-uc", "-b", cwd="/root/source")
        made = sorted((root.path / "root").glob("*.deb"))
        kept.with_suffix(".new").mkdir(parents=True)
        for path in made:
            shutil.copy(path, kept.with_suffix(".new"))
        kept.with_suffix(".new").rename(kept)
    finally:
        root.remove()


def install(name):
    """The packages of a folder, as the page says it."""
    at.root.apt("install", "--allow-downgrades", *(
        f"./{name}/{path.name}" for path in sorted(
            (at.root.path / "root" / name).glob("*.deb"))))


def step(what, *actions):
    """Does what a step of the page says, under load; says what became of the
    requests until its end, and SECONDS after it."""
    begun, first = time.monotonic(), len(at.answers)
    for action in actions:
        action()
    took = time.monotonic() - begun
    time.sleep(1)                       # until a relay that began is heard
    try:
        wait_until("the views are exact", at.exact)
    except Exception as err:
        said = "".join(relay.tail() for _, relay in at.relays.values())
        raise AssertionError(
            f"{err}: {at.get('/kv/workers')}\n{said}") from err
    exact = time.monotonic() - begun - took
    time.sleep(SECONDS)
    answers = at.answers[first:]
    bad = [answer for answer in answers if answer[1] != 200]
    seconds = {}
    for when, _, has, whole in answers:
        row = seconds.setdefault(int(when - begun), [0, 0])
        row[0] += has
        row[1] += whole
    parts = [100 * has / whole for has, whole in seconds.values() if whole]
    print(f"# {what}: {took:.1f} s, EXACT {exact:.1f} s later; {len(answers)} "
          f"requests, {len(bad)} not 200; of their blocks known as cached: "
          f"{min(parts, default=0):.0f} to {max(parts, default=0):.0f} % by "
          "second", flush=True)
    assert not bad, bad[:3]
    assert len(answers) > SECONDS, answers


def replace():
    """service nginx upgrade: another master, and the first one has gone."""
    before = at.master()
    at.root.run("nginx", "-t")
    at.root.run("service", "nginx", "upgrade")
    wait_until("another nginx", lambda: at.master() != before)
    wait_until("the first one ends",
               lambda: not Path(f"/proc/{before}").exists())


def the_earlier_version():
    """the earlier packages serve"""
    built(args.commit, EARLIER, "earlier")
    built("HEAD", "0.1.0", "later")
    at.root.apt("update")
    at.root.apt("install", "procps")
    install("earlier")
    at.start()
    step("before")


def an_upgrade():
    """an upgrade of the routers, then of the relays, loses no request"""
    step("packages", lambda: install("later"))
    step("nginx", replace)
    step("relays", at.start_relays)


def the_way_back():
    """back again: relays, then routers; no request is lost"""
    step("packages, back", lambda: install("earlier"))
    step("relays, back", at.start_relays)
    step("nginx, back", replace)


def the_log_is_quiet():
    """nginx has logged no alert"""
    log = (at.root.path / "var/log/nginx/error.log").read_text()
    wrong = [line for line in log.splitlines()
             if re.search(r"\[(alert|emerg|crit)\]|runtime error", line)]
    assert not wrong, "\n".join(wrong[:10])


def main():
    """Runs the tests."""
    global args, directory, at
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=ROOT / "build", type=Path)
    parser.add_argument("--from", dest="commit", required=True)
    args = parser.parse_args()
    args.build = args.build.resolve()
    directory = Path(tempfile.mkdtemp(prefix="upgrade-", dir=args.build))
    directory.chmod(0o755)
    try:
        at = Trial()
        return tap.run([the_earlier_version, an_upgrade, the_way_back,
                        the_log_is_quiet])
    finally:
        if at:
            at.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
