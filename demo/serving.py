"""HTTP/1.1 for the engine stand-in, by asyncio's streams: kept connections,
bodies with a length, answers as a whole or streamed.
"""

import asyncio
import contextlib
import json
import logging
from http import HTTPStatus

from bodies import BadRequest

MAX_HEAD_BYTES = 64 << 10
MAX_BODY_BYTES = 64 << 20
BACKLOG = 1024


class Request:
    """A request, and its answer."""

    def __init__(self, head, reader, writer):
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        self.method, target, self._version = first.split(" ")
        self.path = target.partition("?")[0]
        self._reader, self._writer = reader, writer
        self._headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            self._headers[name.lower()] = value.strip()
        self.keep = "close" != self._headers.get("connection", (
            "close" if self._version == "HTTP/1.0" else "")).lower()
        self.begun = False              # the head of an answer was written
        self.body = b""

    async def receive(self):
        """Reads the body."""
        length = int(self._headers.get("content-length", 0))
        if "transfer-encoding" in self._headers or length > MAX_BODY_BYTES:
            self.keep = False           # the body is not read
            raise BadRequest("a body has a length, of at most "
                             f"{MAX_BODY_BYTES} bytes", status=413)
        self.body = await self._reader.readexactly(length)

    def is_gone(self):
        """Whether the client has hung up."""
        return self._writer.is_closing() or self._reader.at_eof()

    def begin(self, status, kind, length=None):
        """Writes the head of an answer; without a length it is streamed."""
        self.begun = True
        fields = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
                  f"Content-Type: {kind}"]
        if length is not None:
            fields.append(f"Content-Length: {length}")
        elif self._version == "HTTP/1.0":
            self.keep = False
        else:
            fields.append("Transfer-Encoding: chunked")
        fields.append(f"Connection: {'keep-alive' if self.keep else 'close'}")
        self._writer.write("\r\n".join([*fields, "\r\n"]).encode())

    async def write(self, data, last=False):
        """Writes a part of a streamed answer."""
        if self._version != "HTTP/1.0":
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            data += b"0\r\n\r\n" if last else b""
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, status, data=None):
        """Writes a whole answer: nothing, a text, or JSON."""
        kind = "text/plain; version=0.0.4"
        if data is not None and not isinstance(data, str):
            kind, data = "application/json; charset=utf-8", json.dumps(data)
        data = (data or "").encode()
        self.begin(status, kind, len(data))
        self._writer.write(data)
        await self._writer.drain()


class Server:
    """Serves routes, {path: (method, handler)}.  A handler takes a request and
    returns what its answer is made of, or None when it has answered."""

    def __init__(self, routes):
        self._routes = routes

    async def start(self, host, port):
        """Listens: asyncio's server."""
        return await asyncio.start_server(
            self._connection, host, port, limit=MAX_HEAD_BYTES,
            backlog=BACKLOG)

    async def _connection(self, reader, writer):
        """Serves what a client asks, one request after the other."""
        with contextlib.suppress(ConnectionError, asyncio.LimitOverrunError,
                                 asyncio.IncompleteReadError, ValueError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                request = Request(head, reader, writer)
                await self._serve(request)
                if not request.keep:
                    break
        writer.close()

    async def _serve(self, request):
        """Answers a request."""
        try:
            await request.receive()
            method, handler = self._routes.get(request.path, (None, None))
            if request.method != method:
                raise BadRequest("there is no such path, or not this method",
                                 status=405 if method else 404)
            answer = await handler(request)
            if answer is not None:
                await request.answer(*answer)
        except BadRequest as refused:
            await request.answer(refused.status, refused.body)
        except (ConnectionError, asyncio.IncompleteReadError):
            raise
        except Exception:       # a fault of ours: its client is to see it
            logging.exception("%s %s", request.method, request.path)
            request.keep = False
            if not request.begun:
                await request.answer(500)
