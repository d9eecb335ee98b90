"""Clients for the tests in pairs: each request has one of many ends."""

import contextlib
import queue
import random
import socket
import struct
import threading
import time

from stage import PATIENCE

CLIENTS = 16
ENDS = ["whole"] * 10 + ["no_body", "half_body", "at_once", "question",
                         "question", "answer", "answer", "half_close",
                         "chunked", "bad_chunk"]
QUESTION = 0.3                  # seconds within which some leave: an engine is
                                # asked for token ids, or has the request
ASKED = 0.1                     # seconds after which an engine has been asked


class Clients:
    """Threads that send jobs, each (router, (path, body, headers), end)."""

    def __init__(self, port, seed):
        self.port, self.seed = port, seed
        self.sent = 0
        self.wrong = []
        self._jobs = queue.Queue()

    def add(self, router, request, end):
        """One more."""
        self._jobs.put((router, request, end))

    def run(self, between=()):
        """Sends all; meanwhile calls `between`, evenly spread."""
        total = self._jobs.qsize()
        threads = [threading.Thread(target=self._run, args=(number,),
                                    daemon=True)
                   for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for number, act in enumerate(between, 1):
            left = total - total * number // (len(between) + 1)
            while self._jobs.qsize() > left and not self.wrong:
                time.sleep(0.02)
            with contextlib.suppress(OSError):  # who was asked has crashed
                act()
        for thread in threads:
            thread.join()
        assert not self.wrong, self.wrong[:5]

    def _run(self, number):
        rng = random.Random(self.seed + number)
        with contextlib.suppress(queue.Empty):
            while not self.wrong:
                router, request, end = self._jobs.get_nowait()
                try:
                    self._one(rng, router, request, end)
                except socket.timeout:
                    self.wrong.append(f"no end: router {router}, {end}, "
                                      f"{request[0]} {request[1][:200]}")
                except OSError:
                    pass                # it was told to leave, or refused

    def _one(self, rng, router, request, end):
        path, body, headers = request
        self.sent += 1
        with socket.create_connection(("127.0.0.1", self.port),
                                      timeout=PATIENCE) as sock:
            getattr(self, "_" + end)(rng, sock, _head(path, router, headers),
                                     body)

    # ----------------------------------------------------------------- ends

    def _whole(self, _rng, sock, head, body):
        sock.sendall(_with_length(head, body) + body)
        _read(sock)

    def _no_body(self, rng, sock, head, body):
        sock.sendall(_with_length(head, body + b" "))
        _leave(rng, sock, 0.05)

    def _half_body(self, rng, sock, head, body):
        sock.sendall(_with_length(head, body + b" ")
                     + body[:rng.randrange(len(body) + 1)])
        _leave(rng, sock, 0.05)

    def _at_once(self, rng, sock, head, body):
        sock.sendall(_with_length(head, body) + body)
        _leave(rng, sock, 0)

    def _question(self, rng, sock, head, body):
        sock.sendall(_with_length(head, body) + body)
        _leave(rng, sock, QUESTION)

    def _asked(self, rng, sock, head, body):
        sock.sendall(_with_length(head, body) + body)
        time.sleep(ASKED)
        _leave(rng, sock, QUESTION - ASKED)

    def _answer(self, rng, sock, head, body):
        sock.sendall(_with_length(head, body) + body)
        _read(sock, rng.randrange(1, 600))
        _leave(rng, sock, 0)

    def _half_close(self, _rng, sock, head, body):
        sock.sendall(_with_length(head, body) + body)
        sock.shutdown(socket.SHUT_WR)
        _read(sock)

    def _chunked(self, _rng, sock, head, body):
        sock.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        step = max(1, len(body) // 3)
        for at in range(0, len(body), step):
            piece = body[at:at + step]
            sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        sock.sendall(b"0\r\n\r\n")
        _read(sock)

    def _bad_chunk(self, _rng, sock, head, body):
        sock.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n"
                     + b"%x\r\n%s\r\nxyz\r\n" % (len(body) + 1, body))
        _read(sock)


def _head(path, router, headers):
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Connection: close",
             f"X-Router: {router}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n").encode("latin-1")


def _with_length(head, body):
    return head + b"Content-Length: %d\r\n\r\n" % len(body)


def _read(sock, most=None):
    """To the end, or so many bytes."""
    got = 0
    while most is None or got < most:
        more = sock.recv(65536)
        if not more:
            return
        got += len(more)


def _leave(rng, sock, seconds):
    """After a while, by FIN or by RST."""
    time.sleep(rng.random() * seconds)
    if rng.random() < 0.5:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                        struct.pack("ii", 1, 0))
    sock.close()
