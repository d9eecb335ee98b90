"""Servers of a few lines: those that take connections, and a wire."""

import contextlib
import socket
import threading


class Listener:
    """Takes connections until it ends; serve() has each, in turn."""

    def __init__(self, host="127.0.0.1", port=0):
        self._listener = socket.create_server((host, port))
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                self.serve(self._listener.accept()[0])

    def serve(self, client):
        """What is done with a connection."""
        raise NotImplementedError


class Wire(Listener):
    """Brings bytes to another port, until it ends; the first ones of each
    connection in pieces of a few bytes, when that is asked for."""

    def __init__(self, host, port, to, pieces=0):
        super().__init__(host, port)
        self._to, self._pieces = to, pieces
        self._open = []
        self.taken = 0                  # connections

    def __exit__(self, *_):
        super().__exit__()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def serve(self, client):
        """Both ways at once."""
        self.taken += 1
        server = socket.create_connection(("127.0.0.1", self._to))
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open += [client, server]
        for pair in ((client, server), (server, client)):
            threading.Thread(target=self._bring, args=pair,
                             daemon=True).start()

    def _bring(self, source, sink):
        few = self._pieces
        with contextlib.suppress(OSError):
            while data := source.recv(7 if few > 0 else 65536):
                sink.sendall(data)
                few -= len(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
