"""An engine whose answers are the test's, byte for byte, and which keeps every
request as it came; and requests to it.
"""

import contextlib
import http.client
import re
import socket
import threading

from stage import PATIENCE, free_port


class Engine:
    """One engine on a port of its own.  `answer(peer, head, body)` writes to
    the connection, and says whether it is to be kept."""

    def __init__(self, answer):
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.answer = answer
        self.requests = []              # (head, body), whole ones only
        self._listener = socket.create_server(("127.0.0.1", self.port),
                                              backlog=512)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        """Nobody listens any more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(peer,),
                                 daemon=True).start()

    def _serve(self, peer):
        with contextlib.suppress(OSError), peer:
            while True:
                request = read_request(peer)
                if request is None:
                    return
                self.requests.append(request)
                if not self.answer(peer, *request):
                    return


def read_request(peer):
    """A request: its head, and its body without the framing; None when the
    connection ends."""
    data = bytearray()

    def until(count=None, mark=None):
        while (mark not in data) if mark else (len(data) < count):
            more = peer.recv(1 << 20)
            if not more:
                return None
            data.extend(more)
        end = data.index(mark) + len(mark) if mark else count
        part = bytes(data[:end])
        del data[:end]
        return part

    head = until(mark=b"\r\n\r\n")
    if head is None:
        return None
    if re.search(rb"(?i)\r\ntransfer-encoding: *chunked\r\n", head):
        parts = []
        while True:
            line = until(mark=b"\r\n")
            chunk = line and until(int(line, 16) + 2)
            if chunk is None:
                return None
            if chunk == b"\r\n":
                return head, b"".join(parts)
            parts.append(chunk[:-2])
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)\r\n", head)
    body = until(int(length[1])) if length else b""
    return None if body is None else (head, body)


def fixed(status, kind, body):
    """A whole answer with its length."""
    return (f"HTTP/1.1 {status} Said\r\nContent-Type: {kind}\r\n"
            f"X-Engine: as it came\r\nContent-Length: {len(body)}\r\n\r\n"
            ).encode() + body


def head_of_chunks(status, kind):
    """The head of an answer in chunks."""
    return (f"HTTP/1.1 {status} Said\r\nContent-Type: {kind}\r\n"
            "X-Engine: as it came\r\nTransfer-Encoding: chunked\r\n\r\n"
            ).encode()


def chunk(data):
    """One chunk; the last one is empty."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def ask(port, method, path, body, headers=None, chunks=None):
    """A request: its answer's status, headers, body.  In `chunks` of so many
    bytes, if given, its length unsaid."""
    connection = http.client.HTTPConnection("127.0.0.1", port,
                                            timeout=PATIENCE)
    try:
        if chunks:
            connection.request(method, path, (
                body[at:at + chunks] for at in range(0, len(body), chunks)),
                {"Transfer-Encoding": "chunked", **(headers or {})},
                encode_chunked=True)
        else:
            connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()
