#!/usr/bin/python3
"""Engines drain: kv-relay says so, nginx keeps away, and nothing is lost."""

import http.server
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import test_relay
from processes import Process, wait_until
from relay import RELAY, Relay, local_of, stored, tokens_of, unpack
from stage import DEMO, MODULE, PATIENCE, Stage, free_port

SILENT = 15 + PATIENCE          # until a registration has expired


class Http(http.server.BaseHTTPRequestHandler):
    """The engine's side of HTTP."""

    def log_message(self, *_):
        """Nothing."""

    def _answer(self, status, text, kind):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        """/metrics"""
        engine = self.server.engine
        self._answer(engine.status, "".join(
            f'vllm:num_requests_{name}{{engine="0",model_name="m"}} {n}.0\n'
            for name, n in (("running", engine.running),
                            ("waiting", engine.waiting))).encode(),
            "text/plain")

    def do_POST(self):
        """A completion."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.engine.had.append(time.time())
        self._answer(200, b'{"choices":[]}', "application/json")


class Server:
    """An engine's HTTP, with as many requests as a test says."""

    def __init__(self, port=0):
        self.running, self.waiting, self.status = 0, 0, 200
        self.had = []                   # when each request came
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", port), Http)
        self.http.daemon_threads = True
        self.http.engine = self
        self.port = self.http.server_address[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        """Nothing listens any more."""
        self.http.shutdown()
        self.http.server_close()


class Draining(test_relay.Tests):
    """With nginx, whose workers come from Redis but for one."""

    def __init__(self, stage):
        super().__init__(stage)
        self.servers = []
        self.fixed = Server()
        stage.start_nginx({"fixed": self.fixed.address})
        stage.wait_subscribed()

    def after(self):
        while self.servers:
            self.servers.pop().close()
        super().after()

    # -------------------------------------------------------------- helpers

    def _begun(self, *options, worker=None, host="127.0.0.1", **requests):
        """An engine with its relay, that nginx knows and trusts."""
        engine, server = self.engine(), Server()
        vars(server).update(requests)
        self.servers.append(server)
        port = free_port()
        relay = self.started(engine, "--address", server.address,
                             "--listen", f"{host}:{port}", *options,
                             worker=worker)
        relay.listen = f"127.0.0.1:{port}"
        engine.send(stored([1, 2, 3]))
        self.comes(relay, 1, 2, 3)
        self.stage.wait_confidence(relay.worker, "EXACT")
        if worker is None:              # events may be there first
            self._is(relay, address=server.address)
            # a relay of "fixed" that has ended is missed some seconds later
            wait_until("fixed drains no more", lambda: not
                       self.stage.workers()["fixed"]["draining"], SILENT)
        return engine, server, relay

    def _call(self, relay, *options):
        """kv-relay --drain, begun."""
        return Process("drain", [str(RELAY), "--drain", "--listen",
                                 relay.listen, *options],
                       self.stage.directory)

    @staticmethod
    def _ended(call, status):
        """What it said, once it has ended."""
        wait_until("the call ends", lambda: call.status() is not None,
                   PATIENCE)
        text = call.log.read_text()
        assert call.status() == status, text
        return text

    def _is(self, relay, **fields):
        """Until nginx says so of the worker."""
        def seen():
            worker = self.stage.workers().get(relay.worker)
            return worker and all(worker[name] == value
                                  for name, value in fields.items())
        wait_until(f"{relay.worker}: {fields}", seen, SILENT)

    def _drains(self, relay, by="registration"):
        self._is(relay, draining=by != "none", draining_by=by)

    def _says(self, relay, draining):
        wait_until(f"draining={draining}", lambda: self.member(
            relay.worker).get("draining") == draining, PATIENCE)

    def _send(self, handles=(1, 2, 3)):
        """A request: the worker that had it."""
        with urllib.request.urlopen(urllib.request.Request(
                f"http://127.0.0.1:{self.stage.port}/v1/completions",
                json.dumps({"model": "m", "max_tokens": 1, "prompt": [
                    t for h in handles for t in tokens_of(h)] + [1]}).encode(),
                {"Content-Type": "application/json"}),
                timeout=PATIENCE) as answer:
            answer.read()
            return answer.headers["x-kv-worker"]

    def _holds(self, worker):
        """What nginx knows of the three blocks there."""
        return self.stage.query([t for h in (1, 2, 3)
                                 for t in tokens_of(h)]).get((worker, 0))

    # ---------------------------------------------------------------- tests

    def waits(self):
        """no new requests at once, the blocks stay, until the last answer"""
        _, server, relay = self._begun(running=2, waiting=1)
        assert self._send() == relay.worker
        messages = self.stage.redis.pubsub()
        messages.subscribe(f"kv-events:{relay.worker}")
        held = self._holds(relay.worker)
        assert held
        going, sent = [True], []

        def load():
            while going:
                self._send()
                sent.append(time.time())

        thread = threading.Thread(target=load, daemon=True)
        thread.start()
        wait_until("requests there", lambda: len(server.had) > 5, PATIENCE)
        call = self._call(relay)
        relay.wait_for("draining")
        self._drains(relay)
        word = wait_until("the word", lambda: next(
            (time.time() for m in iter(messages.get_message, None)
             if m["type"] == "message" and unpack(m["data"])[6] is None
             and unpack(m["data"])[9]), None), PATIENCE)
        begun = re.search(r'time=(\S+) .*msg="draining"', relay.text())[1]
        after = len(sent)
        had = len(server.had)
        wait_until("more requests", lambda: len(sent) > after + 50, PATIENCE)
        going.clear()
        thread.join(PATIENCE)
        print(f"# drained since {begun}; last request "
              f"{server.had[-1]:.3f}; word seen by {word:.3f}")
        assert len(server.had) == had, (had, len(server.had))
        assert self.member(relay.worker)["draining"] == "1"
        assert self._holds(relay.worker) == held
        assert call.status() is None and self._send() == "fixed"
        server.running = server.waiting = 0
        assert "drained: 0 requests" in self._ended(call, 0)
        self._drains(relay)
        relay.signal(signal.SIGTERM)
        assert relay.ended() == 0
        wait_until("it is gone", lambda: relay.worker
                   not in self.stage.workers(), SILENT)

    def in_vain(self):
        """the time is up, or there is no relay, or no metrics"""
        _, server, relay = self._begun("--drain-timeout", "2", running=1)
        said = self._ended(self._call(relay), 1)
        assert "not drained: 1 requests run or wait" in said, said
        relay.wait_for("not drained")
        self._drains(relay)
        server.running = 0

        def again():
            call = self._call(relay)
            return call.wait() == 0     # it may take longer than this time

        wait_until("drained", again, PATIENCE)
        port = free_port()
        relay.listen = f"127.0.0.1:{port}"
        said = self._ended(self._call(relay), 1)
        assert f"not drained: http://127.0.0.1:{port}/drain: " in said, said
        for options, why in ((["--drain"], "--listen with a port is needed"),
                             (["--drain", "--listen", "127.0.0.1:0"],
                              "--listen with a port is needed"),
                             (["--drain", "--listen", "x"],
                              "is not host:port")):
            done = subprocess.run([str(RELAY), *options], timeout=PATIENCE,
                                  stderr=subprocess.PIPE, check=False)
            assert done.returncode == 2 and why in done.stderr.decode(), done

    def blind(self):
        """an engine without metrics is not waited for, one that is gone is
        drained, and one that fails may have requests"""
        _, _, relay = self._begun(status=404)
        assert "HTTP status 404" in self._ended(self._call(relay), 0)
        relay.wait_for("drained")
        _, server, relay = self._begun(status=500)
        call = self._call(relay)
        self._drains(relay)
        assert call.status() is None
        server.close()
        self.servers.remove(server)
        assert "drained: " in self._ended(call, 0)

    def signals(self):
        """SIGTERM waits, hears the engine, and is joined; the second ends"""
        engine, server, relay = self._begun(running=1)
        relay.signal(signal.SIGTERM)
        self._drains(relay)
        engine.send(stored([4], 3))
        self.comes(relay, 1, 2, 3, 4)
        call = self._call(relay)
        server.running = 0
        self._ended(call, 0)
        assert relay.ended() == 0
        assert self.member(relay.worker) == {}
        _, server, relay = self._begun(running=1)
        relay.signal(signal.SIGINT)
        self._drains(relay)
        call = self._call(relay)
        relay.signal(signal.SIGTERM)
        assert relay.ended() == 0
        assert "not drained: " in self._ended(call, 1)
        assert self.member(relay.worker) == {}

    def anew(self):
        """an engine that begins anew ends the drain; and so does a relay"""
        engine, server, relay = self._begun()
        self._ended(self._call(relay), 0)
        self._drains(relay)
        engine.close()
        wait_until("the engine is away", lambda: relay.metric(
            'engine_up{rank="0"}') == 0, PATIENCE)
        engine.rise()
        self._says(relay, "0")
        self._drains(relay, "none")
        relay.wait_for("draining no more")
        self._ended(self._call(relay), 0)
        self._drains(relay)
        relay.kill()
        again = self.relay(engine, "--address", server.address,
                           worker=relay.worker)
        self._drains(again, "none")

    def owners(self):
        """the API's drain and the registration's are apart"""
        engine, server, relay = self._begun(worker="fixed")
        drain = "/kv/workers/fixed/drain"
        self._ended(self._call(relay), 0)
        self._drains(relay)
        self.stage.call("POST", drain)
        self._drains(relay, "both")
        self.stage.call("POST", drain, {"drain": False})
        self._drains(relay, "registration")
        relay.signal(signal.SIGTERM)
        assert relay.ended() == 0
        self._is(relay, ttl=None)
        self._drains(relay, "none")
        self.stage.call("POST", drain)
        again = self.started(engine, "--address", server.address,
                             worker="fixed")
        self._is(again, confidence="EXACT")
        self._drains(again, "api")
        self.stage.call("POST", drain, {"drain": False})
        self._drains(again, "none")

    def killed(self):
        """the relay dies while it drains: nginx keeps away from who is
        silent, until a relay registers"""
        engine, server, relay = self._begun(running=1)
        call = self._call(relay)
        self._drains(relay)
        relay.kill()
        assert "not drained" in self._ended(call, 1)
        self._is(relay, reason="silent")
        self._drains(relay)
        assert self._send() == "fixed"
        again = self.relay(engine, "--address", server.address,
                           worker=relay.worker)
        self._drains(again, "none")

    def redis_gone(self):
        """Redis goes while a relay drains, and before it can say so"""
        _, server, first = self._begun(running=1)
        _, _, second = self._begun()
        call = self._call(first)
        self._drains(first)
        self.stage.redis_server.signal(signal.SIGSTOP)
        try:
            late = self._call(second, "--drain-timeout", "60")
            second.wait_for("draining")
            self.stage.redis_server.signal(signal.SIGKILL)
        finally:
            self.stage.redis_server.signal(signal.SIGCONT)
        self.stage.stop_redis()
        server.running = 0
        self._ended(call, 0)
        assert late.status() is None, late.log.read_text()
        self.stage.start_redis()
        self._ended(late, 0)
        for relay in first, second:
            self._says(relay, "1")
            self._drains(relay)

    def reloaded(self):
        """nginx is reloaded, and begins anew, while a relay drains"""
        _, server, relay = self._begun(running=1)
        call = self._call(relay)
        self._drains(relay)
        self.stage.reload()
        self._drains(relay)
        assert self._send() == "fixed"
        self.stage.stop_nginx()
        self.stage.start_nginx({"fixed": self.fixed.address})
        self._is(relay, draining=True)
        assert call.status() is None and self._send() == "fixed"
        server.running = 0
        self._ended(call, 0)

    def strangers(self):
        """only loopback may drain, and only by POST"""
        _, _, relay = self._begun(host="0.0.0.0", running=1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))
                own = probe.getsockname()[0]
            except OSError:
                own = "127.0.0.1"
        for host, method, status in ((own, "POST", 403),
                                     ("127.0.0.1", "GET", 405)):
            if (host, method) == ("127.0.0.1", "POST"):
                continue                # this machine has no other address
            try:
                urllib.request.urlopen(urllib.request.Request(
                    f"http://{host}:{relay.listen.rpartition(':')[2]}/drain",
                    method=method), timeout=PATIENCE)
                raise AssertionError(method)
            except urllib.error.HTTPError as err:
                assert err.code == status, err
        self._says(relay, "0")

    def standby(self):
        """a standby can't drain, and ends at once"""
        engine, server, relay = self._begun(running=1)
        port = free_port()
        other = self.relay(engine, "--address", server.address, "--listen",
                           f"127.0.0.1:{port}", worker=relay.worker)
        other.wait_for("standby")
        other.listen = f"127.0.0.1:{port}"
        assert "the lease" in self._ended(self._call(other), 1)
        other.signal(signal.SIGTERM)
        assert other.ended() == 0
        self._says(relay, "0")

    def rolling(self):
        """engines are restarted one after the other, and no request is lost"""
        done = subprocess.run(
            [sys.executable, "-B", str(DEMO / "rolling.py"), "--engines", "3",
             "--sessions", "6", "--seconds", "3", "--module", str(MODULE),
             "--relay", str(RELAY)], check=False, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
        for line in done.stdout.decode().splitlines():
            print(f"# {line}")
        assert done.returncode == 0, done.returncode


if __name__ == "__main__":
    sys.exit(test_relay.main(Draining, "drain"))
