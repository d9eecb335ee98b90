#!/usr/bin/python3
"""What POST /select reserves: bounds that hold, and nothing that stays; TAP.

Clients choose by one process of nginx, send to the engine themselves, and end
by another process.  Processes are killed, clients leave, nginx is reloaded.
"""

import collections
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import struct
import sys
import threading
import time

import broken
import stage
from broken import Engine
from processes import Process, free_port
from stage import PATIENCE, ROOT, wait_until

PROCESSES = 4                   # of nginx
CLIENTS = 8
SECONDS = 4
EACH, ALL = 3, 5                # requests of a worker, of all
TABLE = 65536
ALLOWED = (r"upstream|recv\(\) failed|no worker is left to try|exited on signal 9"
           r"|all workers are busy")


class Stage(broken.Stage):
    """All processes say who they are."""

    health = "max_fails=0"
    zone = f"max_active={ALL} queue=100 lease=1h"

    def _write_conf(self, engines, policy, url, log):
        super()._write_conf(engines, policy, url, log)
        path = self.directory / "nginx.conf"
        conf = path.read_text()
        for old, new in (
                (" zone=main:64m ", f" zone=main:64m {self.zone} "),
                ("max_tries = 2", "max_tries = 2, classes = { default = "
                                  "{ wait = 60 } }"),
                (" events=on;", f" events=on max_active={EACH};"),
                ("kv_router_api            main;",
                 "kv_router_api main; add_header x-kv-process $pid;")):
            assert old in conf, old
            conf = conf.replace(old, new)
        path.write_text(conf)

    def post(self, path, body=None, timeout=PATIENCE, address=None):
        """One call: its status, what it answers, and the process."""
        connection = http.client.HTTPConnection(
            address or f"127.0.0.1:{self.port}", timeout=timeout)
        try:
            connection.request("POST", path, body if isinstance(body, bytes)
                               else json.dumps(body or {}))
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        with contextlib.suppress(ValueError):
            data = json.loads(data)
        return response.status, data, response.getheader("x-kv-process")

    def select(self, first=0):
        """A prompt's worker."""
        return self.post("/kv/select", {"prompt": list(range(first,
                                                             first + 64))})

    def event(self, one, what):
        """What becomes of a reservation: the status."""
        return self.post(f"/kv/reservations/{one['id']}",
                         {"event": what})[0]

    def held(self):
        """How many reservations there are."""
        return json.loads(self.persist("GET", "/kv/stats"))["index"][
            "selections"]

    def check_nothing(self):
        """No reservation, no load and no request is left."""
        wait_until("no reservation is left", lambda: self.held() == 0,
                   PATIENCE)
        wait_until("no load is left", lambda: not any(
            load[name] for worker in self.workers().values()
            for load in worker["load"] for name in (
                "active_requests", "active_prefills", "prefill_tokens",
                "decode_blocks")), PATIENCE)
        index = json.loads(self.persist("GET", "/kv/stats"))["index"]
        assert index["load_below_zero"] == 0, index


at = None                       # the stage, set by main()
w0 = w1 = None


def elsewhere(one, process, what):
    """An event by another process than the one that chose."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", at.port,
                                                timeout=PATIENCE)
        try:
            connection.request("GET", "/kv/stats")
            response = connection.getresponse()
            response.read()
            if response.getheader("x-kv-process") == process:
                continue
            connection.request("POST", f"/kv/reservations/{one['id']}",
                               json.dumps({"event": what}))
            response = connection.getresponse()
            response.read()
            assert response.getheader("x-kv-process") != process
            return response.status
        finally:
            connection.close()


def test_another_process():
    """a reservation is ended by another process than the one that chose"""
    at.start_nginx({engine.name: engine.address for engine in (w0, w1)},
                   "order")
    status, one, process = at.select()
    assert status == 200 and one["worker_id"] == "w0", one
    load = at.workers()["w0"]["load"][0]
    assert load["active_requests"] == 1 and load["prefill_tokens"] == 64, load
    assert elsewhere(one, process, "first") == 200
    load = at.workers()["w0"]["load"][0]
    assert load["active_requests"] == 1 and load["prefill_tokens"] == 0, load
    assert elsewhere(one, process, "end") == 200
    at.check_nothing()
    for what in ("first", "renew", "end"):
        assert at.event(one, what) == 404


def test_full():
    """who finds no room has 429 at once; an end wakes who waits"""
    ones = [at.select(100 * i)[1] for i in range(ALL)]
    assert collections.Counter(one["worker_id"] for one in ones) == {
        "w0": EACH, "w1": ALL - EACH}
    status, refusal, _ = at.select(900)
    assert status == 429 and refusal["error"]["code"] == "overload", refusal
    answers = []
    thread = threading.Thread(target=lambda: answers.append(at.ask()))
    thread.start()
    wait_until("one waits", lambda: json.loads(at.call(
        "GET", "/kv/stats"))["waiting"] == 1, PATIENCE)
    assert at.select(900)[0] == 429
    assert at.event(ones[0], "end") == 200
    thread.join()
    assert answers[0].status == 200 and answers[0].worker == "w0"
    for one in ones[1:]:
        assert at.event(one, "end") == 200
    at.check_nothing()


class Mixed:
    """Clients that select, or have nginx proxy, until the time is over."""

    def __init__(self):
        self.now, self.most = collections.Counter(), collections.Counter()
        self.statuses, self.errors = collections.Counter(), []
        self.ended = threading.Event()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def _at(self, worker):
        with self._lock:
            for who in (worker, "all"):
                self.now[who] += 1
                self.most[who] = max(self.most[who], self.now[who])
        try:
            yield
        finally:
            with self._lock:
                for who in (worker, "all"):
                    self.now[who] -= 1

    def client(self, number):
        """One of them."""
        draw = random.Random(number + stage.SEED)
        try:
            while not self.ended.is_set():
                if draw.random() < 0.3:
                    answer = at.ask([draw.randrange(1000)] * 64)
                    status = f"proxied {answer.status}"
                else:
                    status = self._select(draw)
                with self._lock:
                    self.statuses[status] += 1
        except Exception as err:                    # pylint: disable=W0718
            self.errors.append(repr(err))

    def _select(self, draw):
        status, one, _ = at.select(draw.randrange(1000))
        if status != 200:
            return status
        with self._at(one["worker_id"]):
            time.sleep(draw.random() * 0.02)
            for what in ("first", "renew"):
                if draw.random() < 0.5:
                    assert at.event(one, what) == 200
        assert at.event(one, "end") == 200
        return status

    def run(self, seconds):
        """All of them."""
        threads = [threading.Thread(target=self.client, args=(n,))
                   for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self.ended.set()
        for thread in threads:
            thread.join()
        print(f"# {dict(self.statuses)}, at most {dict(self.most)}")


def test_mixed():
    """bounds hold over what is selected and what nginx proxies"""
    for engine in (w0, w1):
        engine.mode = "slow_first"
        engine.pause = 0.01
    mixed = Mixed()
    mixed.run(SECONDS)
    assert not mixed.errors, mixed.errors
    assert mixed.statuses[200] and mixed.statuses["proxied 200"]
    assert mixed.most["w0"] <= EACH and mixed.most["w1"] <= EACH
    assert mixed.most["all"] <= ALL
    at.check_nothing()
    for engine in (w0, w1):
        engine.mode = "ok"


def test_reload():
    """a reservation outlives a reload, which can change its lease"""
    _, one, _ = at.select()
    _, two, _ = at.select(100)
    assert one["lease"] == 3600
    change("lease=1h", "lease=2m")
    assert at.event(one, "renew") == 200 and at.held() == 2
    for each in (one, two):
        assert at.event(each, "end") == 200
    _, one, _ = at.select()
    assert one["lease"] == 120, one
    assert at.event(one, "end") == 200
    change("lease=2m", "lease=1s")
    at.check_nothing()


def change(old, new):
    """By a reload: the old processes have gone then."""
    at.change(old, new)
    wait_until("the old processes have gone",
               lambda: len(at.children()) == PROCESSES, PATIENCE)


def test_lease():
    """a lease ends what nobody ends; a client that renews keeps it"""
    _, one, _ = at.select()
    until = time.monotonic() + 2.5
    kept = True
    while time.monotonic() < until:
        kept = kept and at.event(one, "renew") == 200
        time.sleep(0.05)
    # beside a load a client may be late: then it is told so
    assert kept or at.event(one, "renew") == 404
    at.check_nothing()
    assert at.event(one, "renew") == 404


def test_clients_leave():
    """clients that leave in the middle of a call leave nothing"""
    body = json.dumps({"prompt": list(range(64))}).encode()
    head = (f"POST /kv/select HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: "
            f"{len(body)}\r\n\r\n").encode()
    draw = random.Random(stage.SEED)
    for n in range(200):
        sent = (head + body)[:draw.randrange(len(head), len(head + body) + 1)
                             if n % 2 else None]
        peer = socket.create_connection(("127.0.0.1", at.port))
        if n % 3:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                            struct.pack("ii", 1, 0))
        peer.sendall(sent)
        if n % 4 == 0:
            time.sleep(draw.random() * 0.002)
        peer.close()
    at.check_nothing()


def test_killed():
    """processes that are killed at any step leave nothing"""
    mixed = Mixed()
    ids = collections.deque(maxlen=20)

    def client(number):
        draw = random.Random(number)
        while not mixed.ended.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, one, _ = at.select(draw.randrange(1000))
                if status == 200:
                    ids.append(one)
                if ids:
                    at.event(draw.choice(list(ids)), draw.choice(
                        ("first", "renew", "end", "end")))
                    mixed.statuses[status] += 1

    threads = [threading.Thread(target=client, args=(n,))
               for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    kills = 0
    until = time.monotonic() + PATIENCE
    while kills < 30 and time.monotonic() < until:
        time.sleep(random.random() * 0.1)
        with contextlib.suppress(OSError, IndexError):
            os.kill(random.choice(list(at.children())), signal.SIGKILL)
            kills += 1
    mixed.ended.set()
    for thread in threads:
        thread.join()
    print(f"# {kills} killed, {dict(mixed.statuses)}")
    assert mixed.statuses[200]
    at.check_nothing()


def test_gateway():
    """the gateway of contrib/ proxies by itself"""
    port = free_port()
    gateway = Process("gateway", [sys.executable, str(
        ROOT / "contrib" / "gateway.py"), str(port), f"127.0.0.1:{at.port}"],
        at.directory)
    try:
        wait_until("the gateway answers", lambda: connects(port), PATIENCE)
        for mode in ("ok", "stream", "error", "reset"):
            w0.mode = w1.mode = "ok"
            before = w0.served + w1.served
            if mode in ("error", "reset"):
                w0.mode = w1.mode = mode
            try:
                status, _, _ = at.post("/v1/completions", {
                    "prompt": list(range(64)), "stream": mode == "stream"},
                    address=f"127.0.0.1:{port}")
            except (OSError, http.client.HTTPException):
                status = 0
            assert status == {"ok": 200, "stream": 200, "error": 500,
                              "reset": 0}[mode], (mode, status)
            assert w0.served + w1.served > before
            at.check_nothing()
        w0.mode = w1.mode = "ok"
        ones = [at.select(100 * i)[1] for i in range(ALL)]
        status, _, _ = at.post("/v1/completions", {"prompt": [1] * 64},
                               address=f"127.0.0.1:{port}")
        # beside a load a lease of a second may be over before
        assert status in (429, 200), status
        for one in ones:
            at.event(one, "end")
        at.check_nothing()
    finally:
        gateway.stop()


def connects(port):
    """Does anybody listen?"""
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
        return True
    return False


def pipeline(requests):
    """The bodies of the answers to calls that are sent one behind the other."""
    bodies = []
    for first in range(0, len(requests), 500):
        peer = socket.create_connection(("127.0.0.1", at.port), PATIENCE)
        peer.settimeout(PATIENCE)
        reader = peer.makefile("rb")
        for part in range(first, min(first + 500, len(requests)), 50):
            some = requests[part:min(part + 50, first + 500)]
            peer.sendall(b"".join(
                f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: "
                f"{len(body)}\r\n\r\n{body}".encode()
                for path, body in some))
            for _ in some:
                status = int(reader.readline().split()[1])
                length = 0
                while line := reader.readline().strip():
                    name, _, value = line.partition(b": ")
                    if name.lower() == b"content-length":
                        length = int(value)
                bodies.append((status, reader.read(length)))
        peer.close()
    return bodies


def test_table_full():
    """when the table is full, that is said with 429"""
    at.stop_nginx()
    Stage.zone = "lease=1h"
    at.start_nginx({engine.name: engine.address for engine in (w0, w1)},
                   "order")
    change(f" max_active={EACH}", "")
    body = json.dumps({"prompt": [1] * 20})
    begun = time.monotonic()
    answers = pipeline([("/kv/select", body)] * TABLE)
    took = time.monotonic() - begun
    wrong = [answer for answer in answers if answer[0] != 200]
    assert not wrong, (len(wrong), wrong[0])
    assert at.held() == TABLE
    status, refusal, _ = at.select()
    assert status == 429 and "no room for another" in refusal["error"], refusal
    begun = time.monotonic()
    ended = pipeline([("/kv/reservations/" + json.loads(data)["id"],
                       '{"event":"end"}') for _, data in answers])
    print(f"# {took / TABLE * 1e6:.0f} us a select, "
          f"{(time.monotonic() - begun) / TABLE * 1e6:.0f} us an end")
    assert all(status == 200 for status, _ in ended)
    counts = json.loads(at.call("GET", "/kv/stats"))["requests"]
    assert counts["reservations_full"] == 1, counts
    assert counts["reservations"] == TABLE, counts
    at.check_nothing()


def test_log():
    """nothing is wrong in the log"""
    wrong = at.wrong_lines(ALLOWED)
    assert not wrong, wrong


TESTS = (test_another_process, test_full, test_mixed, test_reload, test_lease,
         test_clients_leave, test_killed, test_gateway, test_log,
         test_table_full, test_log)


def main():
    """Runs the tests."""
    global at, w0, w1
    stage.PROCESSES = PROCESSES
    with Stage("select") as at:
        w0, w1 = Engine("w0"), Engine("w1")
        return at.run(TESTS)


if __name__ == "__main__":
    sys.exit(main())
