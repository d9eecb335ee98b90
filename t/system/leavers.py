"""Clients that leave a request at every stage of it, and are counted."""

import collections
import contextlib
import json
import random
import socket
import struct
import subprocess
import threading
import time

PROMPTS = 4                     # that all others begin with
BLOCK = 16                      # tokens
LONGEST = 40                    # blocks of a prompt
PATIENCE = 60.0                 # seconds that an answer may take
GRACE = 60.0                    # seconds that nginx may take to see an end

PATHS = {                       # -> reservations that a request may have
    "/v1/completions": 1, "/buffered/completions": 1,
    "/waiting/completions": 1, "/pair/completions": 2,
    "/bootstrap/completions": 2, "/again/completions": 1,
    "/sorry/completions": 1, "/mirrored/completions": 1,
    "/stubborn/completions": 1, "/cached/completions": 1,
    "/added/completions": 1, "/lingering/completions": 1,
    "/captured/completions": 1, "/served/completions": 1}

ENDINGS = ["whole"] * 6 + [
    "no_body", "half_body", "before_answer", "before_answer", "mid_answer",
    "mid_answer", "half_close", "too_long", "too_large", "pipeline",
    "pipeline_left", "chunked", "bad_chunk", "bad_json", "http2"]


def prompt(rng):
    """Token ids: one of a few beginnings, then something of its own."""
    first = rng.randrange(PROMPTS)
    blocks = rng.choice((1, 1, 2, 6, 12, LONGEST - 2))
    return ([first] * (BLOCK * blocks)
            + [rng.randrange(8)] * rng.randrange(2 * BLOCK))


class Tally:
    """Who is there, who just left, and how requests ended."""

    def __init__(self):
        self.endings = collections.Counter()
        self.answers = collections.Counter()
        self._open = 0
        self._left = collections.deque()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def request(self, ending, weight):
        """A request that may be `weight` reservations."""
        with self._lock:
            self._open += weight
        try:
            yield
        finally:
            with self._lock:
                self._open -= weight
                self._left.append((time.monotonic(), weight))
                self.endings[ending] += 1

    def bound(self):
        """As many reservations there may be."""
        with self._lock:
            until = time.monotonic() - GRACE
            while self._left and self._left[0][0] < until:
                self._left.popleft()
            return self._open + sum(weight for _, weight in self._left)

    def total(self):
        """Requests."""
        return sum(self.endings.values())


class Leaver(threading.Thread):
    """One client: request after request, each with another end."""

    def __init__(self, port, http2_port, tally, seed):
        super().__init__(daemon=True)
        self.port, self.http2_port, self.tally = port, http2_port, tally
        self.rng = random.Random(seed)
        self.going = True
        self.wrong = None

    def run(self):
        try:
            while self.going:
                self._one()
                time.sleep(self.rng.random() * 0.05)
        except Exception as err:        # pylint: disable=broad-except
            self.wrong = err

    def _one(self):
        ending = self.rng.choice(ENDINGS)
        path = self.rng.choice(list(PATHS))
        weight = PATHS[path] * (3 if ending == "http2" else 1)
        with self.tally.request(ending, weight):
            try:
                if ending == "http2":
                    self._http2(path)
                    return
                with socket.create_connection(("127.0.0.1", self.port),
                                              timeout=PATIENCE) as sock:
                    getattr(self, "_" + ending)(sock, path)
            except socket.timeout as err:
                raise AssertionError(f"{ending} {path}: no end") from err
            except OSError:
                self.tally.answers["broken"] += 1

    # -------------------------------------------------------------- requests

    def _body(self):
        if self.rng.random() < 0.1:
            return json.dumps({"prompt": "Hello", "stream": True}).encode()
        return json.dumps({"prompt": prompt(self.rng), "stream": True,
                           "priority": self.rng.randrange(3)}).encode()

    def _head(self, path, length, more="Connection: close\r\n"):
        return (f"POST {path} HTTP/1.1\r\nHost: x\r\n{more}"
                f"Content-Length: {length}\r\n\r\n").encode()

    def _request(self, path, more="Connection: close\r\n"):
        body = self._body()
        return self._head(path, len(body), more) + body

    def _read(self, sock, most=None):
        """To the end, or so many bytes."""
        data = b""
        while most is None or len(data) < most:
            more = sock.recv(65536)
            if not more:
                break
            data += more
        if data[:9] == b"HTTP/1.1 ":
            self.tally.answers[data[9:12].decode()] += 1
        return data

    def _leave(self, sock):
        """By FIN, or by RST."""
        if self.rng.random() < 0.5:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                            struct.pack("ii", 1, 0))
        sock.close()

    def _wait(self, seconds):
        time.sleep(self.rng.random() * seconds)

    # --------------------------------------------------------------- endings

    def _whole(self, sock, path):
        sock.sendall(self._request(path))
        self._read(sock)

    def _no_body(self, sock, path):
        sock.sendall(self._head(path, 100))
        self._wait(0.1)
        self._leave(sock)

    def _half_body(self, sock, path):
        data = self._request(path)
        sock.sendall(data[:-self.rng.randrange(1, 40)])
        self._wait(0.1)
        self._leave(sock)

    def _before_answer(self, sock, path):
        sock.sendall(self._request(path))
        self._wait(0.5)
        self._leave(sock)

    def _mid_answer(self, sock, path):
        sock.sendall(self._request(path))
        self._read(sock, self.rng.randrange(1, 400))
        self._leave(sock)

    def _half_close(self, sock, path):
        sock.sendall(self._request(path))
        self._wait(0.1)
        sock.shutdown(socket.SHUT_WR)
        self._read(sock)

    def _too_long(self, sock, path):
        """More than the body's length: nginx reads it away, and lingers."""
        sock.sendall(self._request(path) + b"x" * 20000)
        self._read(sock, self.rng.choice((None, 100)))
        self._leave(sock)

    def _too_large(self, sock, path):
        sock.sendall(self._head(path, 8 << 20) + b" " * 50000)
        self._read(sock, 12)
        self._wait(0.2)
        self._leave(sock)

    def _several(self, path):
        return (self._request(path, "") + self._request(path, "")
                + self._request(path))

    def _pipeline(self, sock, path):
        sock.sendall(self._several(path))
        self._read(sock)

    def _pipeline_left(self, sock, path):
        sock.sendall(self._several(path))
        self._read(sock, self.rng.randrange(1, 1000))
        self._leave(sock)

    def _chunked(self, sock, path):
        body = self._body()
        sock.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close"
                     "\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for at in range(0, len(body), 400):
            piece = body[at:at + 400]
            sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        sock.sendall(b"0\r\n\r\n")
        self._read(sock)

    def _bad_chunk(self, sock, path):
        sock.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close"
                     "\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1,2,xyz"
                     .encode())
        self._read(sock)

    def _bad_json(self, sock, path):
        body = self._body()[:-1]
        sock.sendall(self._head(path, len(body)) + body)
        self._read(sock)

    def _http2(self, path):
        """Three streams of one connection; curl leaves when its time is up."""
        command = ["curl", "-s", "--http2-prior-knowledge", "-Z",
                   "--data-binary", "@-"]
        for _ in range(3):
            command += ["-o", "/dev/null", "-m",
                        str(self.rng.choice((0.2, 0.5, PATIENCE))),
                        f"http://127.0.0.1:{self.http2_port}{path}"]
        done = subprocess.run(command, input=self._body(), check=False,
                              stderr=subprocess.DEVNULL)
        self.tally.answers[f"curl {done.returncode}"] += 1
