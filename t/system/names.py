"""A DNS server of a few names."""

import socket
import socketserver
import struct
import threading

A, AAAA = 1, 28
NO_SERVER, NO_NAME = 2, 3               # codes of answers
TTL = 1


class Names(socketserver.ThreadingUDPServer):
    """Has {name: address, [addresses], a code, or None: no answer}."""

    class _Handler(socketserver.BaseRequestHandler):
        def handle(self):
            query, sock = self.request
            labels, place = [], 12
            while query[place]:
                labels.append(query[place + 1:place + 1 + query[place]])
                place += 1 + query[place]
            name = b".".join(labels).decode()
            kind, = struct.unpack(">H", query[place + 1:place + 3])
            self.server.asked.append(name)
            known = self.server.addresses.get(name, NO_NAME)
            if known is None:
                return
            code = known if isinstance(known, int) else 0
            texts = ([] if code else
                     [known] if isinstance(known, str) else known)
            family = socket.AF_INET6 if kind == AAAA else socket.AF_INET
            found = [socket.inet_pton(family, text) for text in texts
                     if (":" in text) == (kind == AAAA)]
            answer = struct.pack(
                ">HHHHHH", struct.unpack(">H", query[:2])[0], 0x8180 | code,
                1, len(found), 0, 0) + query[12:place + 5]
            for data in found:
                answer += b"\xc0\x0c" + struct.pack(
                    ">HHIH", kind, 1, TTL, len(data)) + data
            sock.sendto(answer, self.client_address)

    def __init__(self, addresses):
        super().__init__(("127.0.0.1", 0), self._Handler)
        self.addresses = addresses
        self.asked = []
        self.port = self.server_address[1]

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


def register(stage, worker, address):
    """A worker in Redis, for as long as the test."""
    stage.redis.hset("kv-worker:{%s}" % worker, "address", address)
    stage.redis.sadd("kv-workers", worker)
