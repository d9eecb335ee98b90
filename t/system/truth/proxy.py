"""A wire between a relay and Redis that can be cut at a byte."""

import asyncio
import contextlib

EXEC = b"EXEC"


class Proxy:
    """Passes connections on to a port of 127.0.0.1."""

    def __init__(self, loop, port):
        self.port = None
        self._loop, self._target = loop, port
        self._cut = None                # (part of the request, what then)
        self._open = set()
        loop.run(self._start())

    def cut_request(self, part, then):
        """Of the next transaction only a part 0..1 reaches Redis; then()
        is called and the connection is closed."""
        self._cut = (part, then)

    def cut_answer(self, then):
        """The next transaction is carried out, and its answer is lost."""
        self._cut = (None, then)

    def is_cut(self):
        """Whether what was asked for has happened."""
        return self._cut is None

    def mend(self):
        """Cuts nothing, from now on."""
        self._cut = None

    def close(self):
        """Closes all connections, as a network that breaks."""
        self._loop.run(self._close())

    async def _start(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _close(self):
        for writer in list(self._open):
            writer.close()

    async def _serve(self, reader, writer):
        deaf = asyncio.Event()          # the answer must not be passed on
        self._open.add(writer)
        try:
            there, here = await asyncio.open_connection(
                "127.0.0.1", self._target)
        except OSError:
            self._open.discard(writer)
            writer.close()
            return
        tasks = [asyncio.create_task(self._requests(reader, here, deaf)),
                 asyncio.create_task(self._answers(there, writer, deaf))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            self._open.discard(writer)
            for end in (writer, here):
                end.close()

    async def _requests(self, reader, here, deaf):
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                cut = self._cut
                if cut is None or EXEC not in data:
                    here.write(data)
                    await here.drain()
                    continue
                part, then = cut
                self._cut = None
                if part is None:
                    deaf.set()
                    here.write(data)
                    await here.drain()
                    await asyncio.sleep(0.05)
                else:
                    here.write(data[:int(part * len(data))])
                    await here.drain()
                then()
                return

    @staticmethod
    async def _answers(there, writer, deaf):
        with contextlib.suppress(OSError):
            while data := await there.read(1 << 16):
                if not deaf.is_set():
                    writer.write(data)
                    await writer.drain()
