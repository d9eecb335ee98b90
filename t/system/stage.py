"""What the system tests play on: Redis, nginx with the module, and logs.

All of it below one temporary directory and on free loopback ports; stopped
when the test ends, however it ends.  Import this before the demo's modules:
it puts them on the path.
"""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

import redis

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "demo"

sys.path.insert(0, str(DEMO))

import tap                                                      # noqa: E402
from processes import (Process, WAIT_SECONDS, free_port,         # noqa: E402
                       wait_until)

from clock import Clock                                         # noqa: E402
from model import Model, difference                             # noqa: E402

MODULE = Path(os.environ.get("KVR_MODULE") or Path(
    os.environ.get("KVR_BUILD") or ROOT / "build")
    / "ngx_http_kv_router_module.so")
SEED = int(os.environ.get("KVR_SEED", "1"))
SHARDS = int(os.environ.get("KVR_SHARDS", "1"))
BLOCK_SIZE = 16
NOBODY = "0.0.0.1:9"            # an engine's address that is never used
PROCESSES = int(os.environ.get("KVR_PROCESSES", "2"))   # of nginx
PATIENCE = WAIT_SECONDS         # that anything may take: more is a hang
TAIL_LINES = 60
# what makes requests no error: engines, relays and what these publish
SPOILT = (r'\[error\] .*kv_router zone "\w+": (worker "[^"]+"(:| is down| has'
          r"| often has| stored| was not probed)|messages? of worker|registration of"
          r" worker|no event of worker|nothing was heard of|process"
          r" \d+ hangs)")
# nginx takes USR2 for a mistake while its first parent lives, here the shell,
# and executes the path that it was started by
ADOPTED = ('"$(command -v nginx)" "$@" & '
           'while [ ! -s nginx.pid ]; do sleep 0.05; done')
MAGIC = b"enoz-rvk"             # what a zone's header begins with
# a location's: its answers have what was decided, for decision()
DECIDED = ('add_header x-decided "$kv_router_worker $kv_router_rank '
           "$kv_router_overlap_blocks $kv_router_confidence "
           '$kv_router_rung $kv_router_prompt_blocks '
           '$kv_router_reason" always;')


def decision(header):
    """What was decided, by an answer's header; None: nothing was."""
    worker, rank, overlap, confidence, rung, blocks, reason = (
        header or " " * 6).split(" ", 6)
    return worker and {"worker": worker, "rank": int(rank),
                       "overlap": int(overlap), "confidence": confidence,
                       "rung": rung, "blocks": int(blocks or 0),
                       "reason": reason} or None


class Stage:
    """Everything that runs outside of the test's process."""

    def __init__(self, name, zone=""):
        """`zone` is what its directive has besides."""
        self._zone_options = f"{zone} " if zone else ""
        self._clocks = {}               # "redis", "nginx" -> Clock
        self.directory = Path(tempfile.mkdtemp(prefix=f"kv-router-{name}-"))
        self.redis_port = free_port()
        self.port = free_port()
        self.redis = redis.Redis(host="127.0.0.1",
                                 port=self.redis_port)
        self.redis_server = self.nginx = None
        self.masters = []               # of nginx that no Process knows of
        self.logs = []                  # error logs of nginx, all runs
        self.patience = PATIENCE        # seconds that a request may take

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return self

    def __exit__(self, *_):
        self.stop_nginx()
        self.stop_redis()
        shutil.rmtree(self.directory, ignore_errors=True)

    def run(self, tests):
        """Runs the tests; returns the program's status."""
        print(f"# seed {SEED}, shards {SHARDS}, module {MODULE}")
        if not MODULE.is_file():
            print("Bail out!  the module isn't there: build it first")
            return 1
        status = tap.run(tests)
        if status:
            for log in self.logs:
                print(f"# --- {log.name}")
                for line in log.read_text(errors="replace").splitlines()[
                        -TAIL_LINES:]:
                    print(f"# {line}")
        return status

    # --------------------------------------------------------------- clocks

    def clock(self, name):
        """The clock that `redis`, or `nginx`, goes by from its next start."""
        return self._clocks.setdefault(name, Clock(
            self.directory / f"{name}.clock"))

    def _clocked(self, name):
        return self._clocks[name].prefix() if name in self._clocks else []

    # ---------------------------------------------------------------- redis

    def start_redis(self, *options, client=None):
        """Starts Redis with what it had on disk, and waits for it."""
        self.redis_server = Process("redis", [
            *self._clocked("redis"), "redis-server", "--bind", "127.0.0.1",
            "--port", str(self.redis_port), "--save", "",
            "--maxmemory-policy", "noeviction", *options], self.directory)
        if client:
            self.redis = client
        wait_until("redis answers", self._ping, PATIENCE)

    def stop_redis(self, number=signal.SIGTERM):
        """Ends Redis by a signal, and waits for its end."""
        if self.redis_server is not None:
            with contextlib.suppress(ProcessLookupError):
                self.redis_server.signal(number)
            self.redis_server.stop()
            self.redis_server = None

    def redis_url(self):
        """The URL of Redis."""
        return f"redis://127.0.0.1:{self.redis_port}"

    def _ping(self):
        try:
            return self.redis.ping()
        except redis.ConnectionError:
            return False
        except redis.ResponseError as err:
            return "LOADING" not in str(err)

    # ---------------------------------------------------------------- nginx

    def start_nginx(self, engines, policy="kv_cost", url=None):
        """Starts nginx; `engines` are {worker: address}."""
        log = self.directory / f"error-{len(self.logs)}.log"
        self.logs.append(log)
        self._write_conf(engines, policy, url or self.redis_url(), log.name)
        self.nginx = Process("nginx", [
            *self._clocked("nginx"), "nginx", "-p", f"{self.directory}/",
            "-c", "nginx.conf", "-e", log.name], self.directory)

        def answers():
            self.nginx.check_alive()
            return self.status()

        wait_until("nginx answers", answers, PATIENCE)

    def stop_nginx(self):
        """Ends nginx at once, as SIGTERM does."""
        if self.nginx is not None:
            self.wake()
            self.nginx.stop()
            self.nginx = None
        while self.masters:
            pid = self.masters.pop()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            wait_until(f"{pid} ends", lambda pid=pid: not runs(pid), PATIENCE)

    def adopt(self):
        """Starts nginx anew, so that it can upgrade()."""
        self.stop_nginx()
        wait_until("the pid file is gone", lambda: not (
            self.directory / "nginx.pid").exists(), PATIENCE)
        subprocess.run(
            ["sh", "-c", ADOPTED, "sh", "-p", f"{self.directory}/", "-c",
             "nginx.conf", "-e", self.logs[-1].name],
            cwd=self.directory, check=True, timeout=PATIENCE,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        self.masters.append(self.master())
        wait_until("nginx answers", self.status, PATIENCE)

    def upgrade(self):
        """USR2: a second nginx beside the first one, which is returned."""
        before = self.master()
        os.kill(before, signal.SIGUSR2)
        wait_until("another master", lambda: self.master() != before, PATIENCE)
        self.masters.append(self.master())
        wait_until("its processes", lambda: len(self.children()) == PROCESSES,
                   PATIENCE)
        return before

    def reload(self):
        """`nginx -s reload`; returns when a new generation answers."""
        before = self.children()
        self.nginx.signal(signal.SIGHUP)
        wait_until("the new processes are there", lambda: len(
            self.children() - before) >= PROCESSES, PATIENCE)

    def refused_reload(self, why, old="", new=""):
        """A reload, `old` in the configuration being replaced by `new` for
        as long, that is refused with an [emerg] which says `why`."""
        conf = self.directory / "nginx.conf"
        text = conf.read_text()
        assert old in text, text
        known = len(self.log())
        before = self.children()
        conf.write_text(text.replace(old, new) if old else text)
        try:
            self.nginx.signal(signal.SIGHUP)
            wait_until(f"the reload is refused: {why}", lambda: any(
                "[emerg]" in line and why in line
                for line in self.log()[known:].splitlines()), PATIENCE)
        finally:
            conf.write_text(text)
        assert self.children() == before, (self.children(), before)

    @contextlib.contextmanager
    def damaged(self, offset, data):
        """The zone's header with other bytes at an offset, for as long."""
        at = self._zone() + offset
        with open(f"/proc/{self.master()}/mem", "r+b", buffering=0) as memory:
            memory.seek(at)
            whole = memory.read(len(data))
            memory.seek(at)
            memory.write(data)
            try:
                yield
            finally:
                memory.seek(at)
                memory.write(whole)

    @contextlib.contextmanager
    def locked(self, pid):
        """The first shard's lock is that process's, which lives, meanwhile.

        It lies right before the lease: an owner that is a process of nginx,
        a token, and a time in milliseconds.
        """
        start = int(Path(f"/proc/{pid}/stat").read_text().rsplit(
            ")", 1)[1].split()[19])
        owner = pid << 40 | start
        with open(f"/proc/{self.master()}/mem", "r+b", buffering=0) as memory:
            zone = self._zone()
            memory.seek(zone)
            data = memory.read(8 << 20)
            words = struct.unpack(f"<{len(data) // 8}Q", data)
            children = self.children()
            lock = zone + 8 * next(
                i for i, (word, token, renewed) in enumerate(zip(
                    words[1:], words[2:], words[3:]))
                if word >> 40 in children and 0 < token < 1 << 20
                and 0 < renewed < 1 << 40)

            def held_by():
                memory.seek(lock)
                return int.from_bytes(memory.read(8), "little")

            def hold(word):
                memory.seek(lock)
                memory.write(word.to_bytes(8, "little"))

            wait_until("the lock is free", lambda: not held_by(), PATIENCE)
            hold(owner)
            try:
                yield
            finally:
                assert held_by() == owner, "the lock was taken"
                hold(0)

    def _zone(self):
        """Where the zone's header is in the master's memory."""
        pid = self.master()
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                place, mode = line.split()[:2]
                first, last = (int(end, 16) for end in place.split("-"))
                if mode != "rw-s":
                    continue
                memory.seek(first)
                found = memory.read(min(last - first, 1 << 20)).find(MAGIC)
                if found >= 0:
                    return first + found
        raise AssertionError("no zone is mapped")

    def wake(self):
        """Lets processes of nginx that a test has stopped go on."""
        with contextlib.suppress(OSError):
            for pid in self.children():
                os.kill(pid, signal.SIGCONT)

    def children(self):
        """The pids of nginx's worker processes; exiting ones too."""
        pid = self.master()
        return set(map(int, Path(
            f"/proc/{pid}/task/{pid}/children").read_text().split()))

    def master(self):
        """The pid of nginx's master process; OSError while there is none, or
        nginx has not written the whole of its file yet."""
        text = (self.directory / "nginx.pid").read_text()
        if not text.endswith("\n"):
            raise FileNotFoundError("nginx.pid is being written")
        return int(text)

    def log(self):
        """The error log of the nginx that runs."""
        return self.logs[-1].read_text(errors="replace")

    def wrong_lines(self, allowed):
        """Alerts, Lua errors and ends of processes in it, but for `allowed`."""
        return [line for line in self.log().splitlines()
                if re.search(r"\[(alert|emerg)\]|lua entry thread aborted"
                             r"|runtime error|exited on signal", line)
                and not re.search(allowed, line)]

    def _write_conf(self, engines, policy, url, log):
        names = {
            "MODULE": str(MODULE),
            "USER": "user  root;" if os.geteuid() == 0 else "",
            "BLOCK_SIZE": str(BLOCK_SIZE),
            "REDIS": url,
            "SYNC": "",
            "WORKERS": "\n".join(
                f"    kv_router_worker main {worker} {address};"
                for worker, address in engines.items()),
            "LUA": str(ROOT / "lua"),
            "POLICY": policy,
            "CONF": "nil",
            "ROUTERS": "",
            "PROCESSES": str(PROCESSES),
            "SIZE": "64m",
            "QUEUE": "",
            "ORDER": "",
            "WAIT": "",
            "MODELS": "",
            "TOKENIZER": "remote",
            "UNKNOWN": "main",
            "GENERATION": "1",
            "PORT": str(self.port)}
        text = (DEMO / "nginx.conf.in").read_text()
        conf = re.sub(r"@([A-Z_]+)@", lambda name: names[name[1]], text)
        conf = conf.replace(" zone=main:64m ",
                            f" zone=main:64m shards={SHARDS} "
                            f"{self._zone_options}")
        (self.directory / "nginx.conf").write_text(
            conf.replace(" error.log ", f" {log} "))

    # ----------------------------------------------------------------- HTTP

    def call(self, method, path, body=None):
        """One request on a new connection; OSError unless it is a 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=self.patience)
        try:
            connection.request(method, path, None if body is None
                               else json.dumps(body))
            response = connection.getresponse()
            data = response.read()
        except http.client.HTTPException as err:
            raise ConnectionError(f"{method} {path}: {err!r}") from err
        finally:
            connection.close()
        if response.status != 200:
            raise OSError(f"{method} {path}: {response.status} {data[:200]}")
        return data

    def persist(self, method, path, body=None):
        """The same, again and again: processes of nginx may be dying."""
        return wait_until(f"{method} {path}", lambda: (
            self.call(method, path, body),), PATIENCE)[0]

    def status(self):
        """The status page."""
        return json.loads(self.call("GET", "/status"))

    def workers(self):
        """What nginx says of each worker."""
        return {worker["worker_id"]: worker for worker
                in json.loads(self.persist("GET", "/status"))["workers"]}

    def query(self, tokens):
        """Who has how much of a prompt: {(worker, rank): depths}."""
        return scores_of(self.call("POST", "/kv/query", {"tokens": tokens}))

    def dump(self):
        """The index as a model."""
        return Model().replay(self.persist("GET", "/kv/dump").decode())

    # ---------------------------------------------------------------- waits

    def wait_applied(self, cursors):
        """Waits until {worker: (epoch, seq)} is what was applied last."""
        def applied():
            workers = self.workers()
            return all(name in workers and (workers[name]["epoch"],
                                            workers[name]["seq"]) == cursor
                       for name, cursor in cursors.items())
        try:
            wait_until("all messages are applied", applied, PATIENCE)
        except Exception as err:
            raise AssertionError(f"{err}: expected {cursors}, got " + str({
                name: (worker["epoch"], worker["seq"])
                for name, worker in self.workers().items()})) from err

    def wait_confidence(self, name, *confidences, beat=None):
        """Waits until a worker's view is trusted so far; returns it.  Its
        publisher's heart may beat each second meanwhile, lest it be silent.
        """
        beats = time.monotonic() + 1

        def trusted():
            nonlocal beats
            if beat and time.monotonic() > beats:
                beat()
                beats = time.monotonic() + 1
            worker = self.workers().get(name)
            return worker and worker["confidence"] in confidences and worker
        try:
            return wait_until(f"{name} is {confidences}", trusted, PATIENCE)
        except Exception as err:
            raise AssertionError(
                f"{err}: {self.workers().get(name)}") from err

    def wait_lease(self, token=0, but=()):
        """Waits for a living holder, none of `but`, of a lease newer than
        `token`, the first shard's, until all are subscribed; returns the
        lease: {pid, token}."""
        def taken():
            status = self.status()
            return (status["lease"]["token"] > token and status["redis"]["up"]
                    and status["lease"]["pid"] in self.children() - set(but)
                    and status["lease"])
        return wait_until("the lease is taken", taken, PATIENCE)

    def resubscribe(self):
        """Ends nginx's subscriptions, and waits until it has others: right
        after the end it still takes itself to be subscribed."""
        before = self.log().count(": subscribed to ")
        events = sum(int(client["psub"]) for client
                     in self.redis.client_list(_type="pubsub"))
        self.redis.client_kill_filter(_type="pubsub", skipme=True)
        wait_until(f"nginx has {events} subscriptions again", lambda:
                   self.log().count(": subscribed to ") >= before + events,
                   PATIENCE)
        self.wait_subscribed()

    def wait_asked(self, command, times=3):
        """Waits until every process of nginx can have sent Redis a command
        so many times more: it has seen by then what was there before."""
        def calls():
            known = self.redis.info("commandstats").get(
                f"cmdstat_{command}", {})
            return known.get("calls", 0) + known.get("rejected_calls", 0)
        before = calls()
        wait_until(f"{command} {times} times", lambda: calls() >= before
                   + times * min(SHARDS, PROCESSES), PATIENCE)

    def connections(self):
        """How many there ever were to Redis."""
        return self.redis.info("stats")["total_connections_received"]

    def wait_tried(self, connections):
        """Waits until every process of nginx can have tried to connect twice
        more; `connections` counts them."""
        enough = connections() + 2 * min(SHARDS, PROCESSES)
        wait_until("two more connections", lambda: connections() >= enough,
                   PATIENCE)

    def wait_subscribed(self, up=1):
        """Waits until Redis is there for nginx, or isn't."""
        wait_until(f"redis.up is {up}",
                   lambda: self.status()["redis"]["up"] == up, PATIENCE)

    # ---------------------------------------------------------------- checks

    def check_index(self, model):
        """The dump holds what the model says, handle for handle."""
        wrong = difference(model.holdings(), self.dump().holdings())
        assert not wrong, wrong

    def check_idle(self):
        """No worker has load."""
        def load():
            return {(worker["worker_id"], row["dp_rank"], name): value
                    for worker in self.workers().values()
                    for row in worker["load"] for name, value in row.items()
                    if name != "dp_rank" and value}
        try:
            wait_until("no load", lambda: not load(), PATIENCE)
        except Exception as err:
            raise AssertionError(f"{err}: {load()}") from err

    def check_log(self, *allowed):
        """The error log has no alert, and no error but those allowed, and
        what it tells of engines and relays that tests spoil."""
        wrong = [line for line in self.log().splitlines()
                 if re.search(r"\[(error|crit|alert|emerg)\]", line)
                 and not any(re.search(what, line)
                             for what in (*allowed, SPOILT))]
        assert not wrong, "\n".join(wrong[:10])


def runs(pid):
    """Is the process there, and no zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[
            2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def scores_of(answer):
    """The answer of /kv/query: {(worker, rank): (device, host, disk)}."""
    return {(score["worker_id"], score["dp_rank"]): (
        score["device"], score["host"], score["disk"])
            for score in json.loads(answer)["scores"]}


def milliseconds():
    """The time, as epochs count it."""
    return int(time.time() * 1000)


def masked(text):
    """Text for a URL's user or password."""
    return urllib.parse.quote(text, safe="")
