"""An engine that fails in every way, and nginx that routes to some of them.

What an engine does with the next connection is said by its `mode`:

    ok            answers at once
    slow_first    answers after `pause` seconds
    slow_body     streams for `pause` seconds
    refuse        nobody listens
    reset         closes by RST without reading
    reset_after   the same, when it has read the request
    garbage       answers with a header that is none
    bare          answers with what is not HTTP at all
    hang          reads the request, and no more
    held          answers when release() is called
    held_body     streams until then
    error         500
    busy          503
    later         503 with a Retry-After of ten seconds
    cut           half of a stream, then RST
    short         fewer bytes than its Content-Length says
    stall         half of a stream, and no more
    mixed         ok, slow_first or slow_body, by chance
"""

import contextlib
import http.client
import json
import random
import re
import select
import socket
import struct
import threading
import time

import stage
from stage import PATIENCE, free_port, wait_until

EVENTS = 8                      # of a stream
ORDER = """{
                name = "by_name",

                -- w1 before w2; the reason is the health of who is chosen
                pick = function(self, ctx)
                    local list = {}

                    for i = 1, #ctx.candidates do
                        list[i] = i
                    end

                    table.sort(list, function(a, b)
                        return ctx.candidates[a].worker
                               < ctx.candidates[b].worker
                    end)

                    return list, nil, ctx.candidates[list[1]].health
                end
            }"""


class Engine:
    """One engine, on a port that stays its own."""

    def __init__(self, name):
        self.name = name
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.pause = 0.5
        self.served = 0                 # completions that were asked for
        self.checked = 0                # other requests
        self.open = 0                   # completions just now
        self._lock = threading.Lock()
        self._listener = None
        self._peers = set()
        self._forgotten = set()
        self._released = threading.Event()
        self._mode = "refuse"
        self.mode = "ok"

    @property
    def mode(self):
        """What it does with a request."""
        return self._mode

    @mode.setter
    def mode(self, mode):
        self._mode = mode
        if mode.startswith("held"):
            self._released.clear()
        if mode == "refuse":
            self.die()
        elif self._listener is None:
            self._listen()

    def die(self):
        """As a process that is killed: every connection is reset."""
        self._mode = "refuse"
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            peers = list(self._peers)
        for peer in peers:
            _reset(peer)

    def forget(self):
        """As a machine that was switched off and on: connections that are
        open now are reset when something comes on them, and no sooner."""
        with self._lock:
            self._forgotten = set(self._peers)

    def release(self):
        """Answers all that are held; from now on it is well."""
        self.mode = "ok"
        self._released.set()

    def _listen(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(512)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,),
                         daemon=True).start()

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                if self._listener is not listener or self.mode == "reset":
                    self._count()
                    _reset(peer)
                    continue
                with self._lock:
                    self._peers.add(peer)
                threading.Thread(target=self._serve, args=(peer,),
                                 daemon=True).start()

    def _count(self):
        with self._lock:
            self.served += 1

    def _serve(self, peer):
        try:
            with contextlib.suppress(OSError):
                while self._answer(peer):
                    pass
        finally:
            with self._lock:
                self._peers.discard(peer)
                self._forgotten.discard(peer)
            peer.close()

    def _answer(self, peer):
        data = b""
        while b"\r\n\r\n" not in data:
            more = peer.recv(65536)
            if not more:
                return False
            data += more
        if peer in self._forgotten:
            _reset(peer)
            return False
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        while length and len(body) < int(length[1]):
            more = peer.recv(65536)
            if not more:
                return False
            body += more
        if head.startswith(b"GET "):
            self.checked += 1
            self._head(peer, "200 OK" if self.mode != "error"
                       else "500 Internal Server Error", 0)
            return True
        with self._lock:
            self.served += 1
            self.open += 1
        try:
            return getattr(self, "_" + self.mode)(peer)
        finally:
            with self._lock:
                self.open -= 1

    # ---------------------------------------------------------------- modes

    def _head(self, peer, status, length, more=""):
        peer.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n"
                     f"{more}\r\n".encode())

    def _ok(self, peer):
        self._head(peer, "200 OK", len(self.name))
        peer.sendall(self.name.encode())
        return True

    def _slow_first(self, peer):
        time.sleep(self.pause)
        return self._ok(peer)

    def _stream(self, peer, n):
        peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
                     b"Content-Type: text/event-stream\r\n\r\n")
        for number in range(n):
            event = b"data: %d\n\n" % number
            peer.sendall(b"%x\r\n%s\r\n" % (len(event), event))
            time.sleep(self.pause / EVENTS)

    def _slow_body(self, peer):
        self._stream(peer, EVENTS)
        peer.sendall(b"0\r\n\r\n")
        return True

    def _cut(self, peer):
        self._stream(peer, EVENTS // 2)
        _reset(peer)
        return False

    def _stall(self, peer):
        self._stream(peer, EVENTS // 2)
        return self._hang(peer)

    def _short(self, peer):
        self._head(peer, "200 OK", 100)
        peer.sendall(self.name.encode())
        return False

    def _reset(self, peer):
        _reset(peer)
        return False

    _reset_after = _refuse = _reset

    def _garbage(self, peer):
        peer.sendall(b"HTTP/1.1 200 OK\r\n\0\1\2 what is this?\r\n\r\n")
        peer.recv(1)
        return False

    def _bare(self, peer):
        peer.sendall(b"\0\1\2 what is this?\r\n\r\n")
        return False

    def _mixed(self, peer):
        return getattr(self, random.choice(
            ("_ok", "_slow_first", "_slow_body")))(peer)

    def _hang(self, peer):
        while peer.recv(65536):
            pass
        return False

    def _held(self, peer):
        while not self._released.wait(0.02):
            if select.select([peer], [], [], 0)[0]:
                return False            # the client has left
        return self._ok(peer)

    def _held_body(self, peer):
        self._stream(peer, 1)
        while not self._released.wait(1):
            peer.sendall(b"6\r\ndata\n\n\r\n")
        peer.sendall(b"0\r\n\r\n")
        return True

    def _error(self, peer):
        self._head(peer, "500 Internal Server Error", 0)
        return True

    def _busy(self, peer):
        self._head(peer, "503 Service Unavailable", 0)
        return True

    def _later(self, peer):
        self._head(peer, "503 Service Unavailable", 0, "Retry-After: 10\r\n")
        return True


def _reset(peer):
    """Ends a connection by RST."""
    with contextlib.suppress(OSError):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                        struct.pack("ii", 1, 0))
        peer.shutdown(socket.SHUT_RD)   # wakes who waits in recv()
    with contextlib.suppress(OSError):
        peer.close()


class Answer:
    """What a client got."""

    def __init__(self, status, headers, body, whole):
        self.status, self.headers = status, headers
        self.body, self.whole = body, whole

    @property
    def worker(self):
        """Who it is from, by nginx."""
        return self.headers.get("x-kv-worker")

    @property
    def reason(self):
        """The chosen worker's health, by ORDER."""
        return self.headers.get("x-kv-reason")


class Stage(stage.Stage):
    """nginx without Redis, whose policy goes by the names of workers."""

    health = "max_fails=3 fail_timeout=1m"
    retry = "error timeout invalid_header http_500 http_503 non_idempotent"
    timeout = "10s"
    buffering = "off"
    tries = 2

    def _write_conf(self, engines, policy, url, log):
        super()._write_conf(engines, policy, url, log)
        path = self.directory / "nginx.conf"
        conf = path.read_text()
        for old, new in (
                (f"kv_router_redis  main {url};",
                 f"kv_router_health main {self.health};"),
                ('policy = "order"', f"policy = {ORDER}"),
                ('tokenizer = "remote"',
                 f'tokenizer = "none", max_tries = {self.tries}'),
                ("proxy_buffering     off;",
                 f"proxy_buffering {self.buffering};"),
                ("proxy_read_timeout  600s;",
                 f"proxy_read_timeout {self.timeout}; "
                 f"proxy_connect_timeout {self.timeout}; "
                 f"proxy_next_upstream {self.retry}; "
                 "add_header x-kv-reason $kv_router_reason;")):
            assert old in conf or old.startswith("policy"), old
            conf = conf.replace(old, new)

        # no estimates: they would keep equal requests at one worker, and the
        # others would get none that shows them to be well again

        path.write_text(re.sub(r"(kv_router_worker main .*);",
                               r"\1 events=on;", conf))

    def change(self, old, new):
        """Changes the configuration, and reloads it."""
        path = self.directory / "nginx.conf"
        conf = path.read_text()
        assert old in conf, conf
        path.write_text(conf.replace(old, new))
        self.reload()

    def ask(self, prompt=None, timeout=PATIENCE, port=None):
        """One completion, on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1",
                                                port or self.port,
                                                timeout=timeout)
        try:
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": prompt or list(range(64)), "stream": True}))
            response = connection.getresponse()
            body, whole = b"", True
            try:
                while True:
                    more = response.read1(65536)
                    if not more:
                        break
                    body += more
            except (http.client.HTTPException, ConnectionError):
                whole = False
            if response.length:
                whole = False
            return Answer(response.status, response.headers, body, whole)
        finally:
            connection.close()

    def health_of(self, worker):
        """What /workers says of a worker's health."""
        return self.workers()[worker]["health"]

    def wait_health(self, worker, *states):
        """Waits until the worker is in one of these states."""
        def there():
            health = self.health_of(worker)
            return health["state"] in states and health
        return wait_until(f"{worker} is {states}", there, PATIENCE)

    def put(self, worker, **what):
        """PUT /workers/ID."""
        self.call_any("PUT", f"/kv/workers/{worker}", what)

    def drain(self, worker, on=True):
        """POST /workers/ID/drain."""
        self.call("POST", f"/kv/workers/{worker}/drain", {"drain": on})

    def call_any(self, method, path, body):
        """The same as call(), 201 being as good as 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=PATIENCE)
        try:
            connection.request(method, path, json.dumps(body))
            response = connection.getresponse()
            data = response.read()
            assert response.status in (200, 201), data
        finally:
            connection.close()
