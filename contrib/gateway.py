#!/usr/bin/python3
"""A gateway that proxies by itself: it asks the router for a worker alone.

    gateway.py PORT ROUTER          gateway.py 9000 127.0.0.1:8080
"""

import http.client
import http.server
import json
import sys
import time


def post(address, path, body, headers=None):
    """The answer of a server, of which the head has come."""
    connection = http.client.HTTPConnection(address, timeout=600)
    connection.request("POST", path, body, headers or {})
    return connection.getresponse()


class Gateway(http.server.BaseHTTPRequestHandler):
    """One request after the other of a client's connection."""

    def do_POST(self):                              # noqa: N802
        """Select, send, say that the output comes, and that all is over."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = post(sys.argv[2], "/kv/select?path=" + self.path, body)
        if answer.status != 200:                    # no room, no worker, ...
            self.pass_on(answer, lambda event: None, 60)
            return
        chosen = json.load(answer)

        def tell(event):
            post(sys.argv[2], "/kv/reservations/" + chosen["id"],
                 json.dumps({"event": event})).read()

        rank = chosen["dp_rank"]                    # None: there is but one
        try:
            self.pass_on(post(
                chosen["address"], self.path, body, {} if rank is None
                else {"x-data-parallel-rank": str(rank)}),
                tell, chosen["lease"])
        finally:
            tell("end")

    def pass_on(self, answer, tell, lease):
        """Passes an answer on to the client while it comes."""
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.getheader("Content-Type", ""))
        self.end_headers()
        event, due = "first", 0
        while data := answer.read1(65536):
            if time.monotonic() >= due:
                tell(event)
                event, due = "renew", time.monotonic() + lease / 3
            self.wfile.write(data)


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])),
                                    Gateway).serve_forever()
