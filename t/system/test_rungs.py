#!/usr/bin/python3
"""Engines are asked for token ids: TLS, bounds, slow ones; TAP."""

import http.client
import http.server
import json
import os
import socket
import ssl
import sys
import threading
from pathlib import Path

from stage import MODULE, PATIENCE, ROOT, Stage, free_port, tap, wait_until
from certificates import Authority
from processes import Process

NAME = "engine.test"            # in the engine's certificate
ENGINES = 20                    # addresses of the one engine that there is
IDS = {"/tokenize": "tokens", "/v1/completions/render": "token_ids",
       "/v1/chat/completions/render": "token_ids"}

CONF = """
daemon            off;
worker_processes  1;
pid               nginx.pid;
error_log         error.log info;
load_module       /usr/lib/nginx/modules/ndk_http_module.so;
load_module       /usr/lib/nginx/modules/ngx_http_lua_module.so;
load_module       {module};
{user}
events {{
    worker_connections  2048;
}}

http {{
    access_log         off;
    client_body_temp_path  tmp; proxy_temp_path  tmp; fastcgi_temp_path  tmp;
    uwsgi_temp_path  tmp; scgi_temp_path  tmp;

    kv_router_zone     zone=main:16m block_size=4{zone};
{workers}
{engine}
    lua_package_path        "{lua}/?.lua;;";
    lua_socket_log_errors   off;
    {trust}

    init_by_lua_block {{
        local new = require("resty.kv_router").new

        patient = new("main", {{ tokenizer_timeout = 600,
            policy_conf = {{ in_flight = false }} }})
        hasty = new("main")
        queued = new("main", {{ tokenizer = "none",
            classes = {{ default = {{ wait = 600 }} }} }})
    }}

    upstream engines {{
        server  0.0.0.1;
        balancer_by_lua_block {{ patient:balance() }}
    }}

    server {{
        listen  127.0.0.1:{port};

        location /v1/ {{
            access_by_lua_block  {{ patient:access() }}
            add_header  x-route  "$kv_router_rung $kv_router_reason";
            proxy_pass  {scheme}://engines;
        }}

        location /hasty/v1/ {{
            access_by_lua_block  {{ hasty:access() }}
            add_header  x-route  "$kv_router_rung $kv_router_reason";
            proxy_pass  {scheme}://engines;
        }}

        location /left/v1/ {{
            lua_check_client_abort  on;
            access_by_lua_block  {{ patient:access() }}
            add_header  x-route  "$kv_router_rung $kv_router_reason";
            proxy_pass  {scheme}://engines;
        }}

        location /queued/v1/ {{
            lua_check_client_abort  on;
            access_by_lua_block  {{ queued:access() }}
            log_by_lua_block     {{ queued:log() }}
            add_header  x-route  "$kv_router_rung $kv_router_reason";
            proxy_pass  {scheme}://engines;
        }}

        location = /status {{
            kv_router_status  main;
        }}
    }}
}}
"""


class Engine:
    """vLLM, as far as it is asked here, at one port of all addresses."""

    def __init__(self, files=None):
        self.connections = 0            # on which a question came
        self.questions = 0
        self.running = self.most = 0    # questions at the same time
        self.most_at = 0                # of them at one address
        self.served = 0                 # requests that were routed here
        self.mode = "answer"            # or "hold", "drip", "cut", "serve"
        self.asked = []                 # paths, by the router itself
        self._at = {}
        self._lock = threading.Lock()
        self._go = threading.Event()
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            counted = False

            def do_GET(self):
                engine.get(self)

            def do_POST(self):
                engine.post(self)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512

            def handle_error(self, *_):
                pass                    # who asks may leave

        self.port = free_port()
        self._server = Server(("0.0.0.0", self.port), Handler)
        if files:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*files)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True,
                do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever,
                         daemon=True).start()

    def close(self):
        """Ends it."""
        self.release()
        self._server.shutdown()
        self._server.server_close()

    def get(self, http_):
        """GET of what a probe, a check or a scrape asks for."""
        with self._lock:
            self.asked.append(http_.path)
        body = {"/v1/models": '{"data":[{"id":"m","owned_by":"vllm"}]}',
                "/version": '{"version":"0.32.0"}', "/health": "well",
                "/metrics": 'vllm:num_requests_running{engine="0"} 3.0\n',
                }.get(http_.path)
        self._answer(http_, 200 if body else 404, body or "")

    def post(self, http_):
        """POST of a question, or of a request."""
        text = http_.rfile.read(int(http_.headers["Content-Length"]))
        field = IDS.get(http_.path)
        if field is None:
            if self.mode == "serve" and "render" not in http_.path:
                with self._lock:
                    self.served += 1
                self._go.wait(PATIENCE)
            self._answer(http_, 404 if "render" in http_.path else 200, "{}")
            return
        body = json.dumps({field: list(range(9))})
        if b"Hello" in text:            # the probe's
            self._answer(http_, 200, body)
            return
        with self._lock:
            self.connections += not http_.counted
            http_.counted = True
            self.questions += 1
            self.running += 1
            self.most = max(self.most, self.running)
            here = http_.connection.getsockname()[0]
            self._at[here] = self._at.get(here, 0) + 1
            self.most_at = max(self.most_at, self._at[here])
        try:
            self._question(http_, body)
        finally:
            with self._lock:
                self.running -= 1
                self._at[here] -= 1

    def _question(self, http_, body):
        if self.mode == "hold":
            self._go.wait(PATIENCE)
        if self.mode == "drip":
            # for ever, if nobody leaves
            http_.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000"
                              b"\r\n\r\n")
            while not self._go.wait(0.02):
                http_.wfile.write(b" ")
            http_.close_connection = True
            return
        if self.mode == "cut":
            http_.close_connection = True
            return
        self._answer(http_, 200, body)

    @staticmethod
    def _answer(http_, status, body):
        http_.send_response(status)
        http_.send_header("Content-Length", str(len(body)))
        http_.end_headers()
        http_.wfile.write(body.encode())

    def hold(self, mode="hold"):
        """Questions wait from now on."""
        self._go.clear()
        self.mode = mode
        self.questions = self.most = self.most_at = self.connections = 0

    def release(self):
        """They go on."""
        self.mode = "answer"
        self._go.set()


class Router:
    """nginx in a directory of its own."""

    def __init__(self, directory, engine, conf="", trust="", tls=False,
                 addresses=1, worker="", zone=""):
        self.port = free_port()
        self._directory = directory
        directory.mkdir()
        (directory / "nginx.conf").write_text(CONF.format(
            module=MODULE, lua=ROOT / "lua", port=self.port,
            user="user  root;" if os.geteuid() == 0 else "",
            workers="\n".join(
                f"    kv_router_worker  main w{i} 127.0.0.{i}:{engine.port} events=on{worker};"
                for i in range(1, addresses + 1)),
            engine=conf, trust=trust, zone=zone, scheme="https" if tls else "http"))
        self._nginx = Process("nginx", [
            "nginx", "-p", str(directory) + "/", "-e", "error.log", "-c",
            "nginx.conf"], directory)
        wait_until("nginx answers", self.status)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._nginx.stop()

    def status(self):
        """The status page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=PATIENCE)
        connection.request("GET", "/status")
        return json.load(connection.getresponse())

    def log(self):
        """The error log."""
        return (self._directory / "error.log").read_text()

    def probed(self, n=1):
        """Waits until the probe knows n workers; what it found of one."""
        return wait_until("the probe", lambda: [
            worker["probe"] for worker in self.status()["workers"]
            if worker["probe"]][n - 1:])[0]

    def ask(self, prompt, path="/v1/completions"):
        """Where the ids of a prompt came from, and the reason."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=PATIENCE)
        connection.request("POST", path, json.dumps({"prompt": prompt}))
        answer = connection.getresponse()
        answer.read()
        return answer.getheader("x-route")

    def begin(self, prompt, path):
        """A client that has sent a request, and may leave."""
        body = json.dumps({"prompt": prompt})
        client = socket.create_connection(("127.0.0.1", self.port))
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: "
                       f"{len(body)}\r\n\r\n{body}".encode())
        return client

    def crowd(self, prompts, path="/v1/completions"):
        """Asks for all of them at the same time: threads, and what each got."""
        got = []
        threads = [threading.Thread(
            target=lambda prompt=prompt: got.append(self.ask(prompt, path)))
            for prompt in prompts]
        for thread in threads:
            thread.start()
        return threads, got


def join(threads):
    """Waits for all of them."""
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a request hangs"


at = None                       # a Stage, for its directory


# -------------------------------------------------------------------- tests

def engines_with_tls():
    """engines with TLS are probed, checked, scraped and asked"""
    ca = Authority(at.directory, "ca")
    engine = Engine(ca.issue("engine", f"DNS:{NAME}"))
    conf = f"""
    kv_router_engine         main ssl_trusted_certificate={ca.file}
                             ssl_name={NAME} "header=X-Key: secret";
    kv_router_health         main check=/health interval=100ms timeout=60s;
    kv_router_scrape         main interval=100ms timeout=60s;"""
    trust = (f"lua_ssl_trusted_certificate  {ca.file}; "
             "lua_ssl_verify_depth  2;")
    with Router(at.directory / "tls", engine, conf, trust, tls=True) as router:
        found = router.probed()
        assert found["engine"] == "vllm", found
        assert "render_chat" in found["has"], found
        assert router.ask("by TLS") == "render no overlap"
        worker = wait_until("a check and a scrape", lambda: [
            worker for worker in router.status()["workers"]
            if worker["health"]["checks"] and worker["reported"]])[0]
        assert worker["health"]["checks_failed"] == 0, worker
        assert worker["reported"][0]["running_requests"] == 3, worker
        assert router.ask("again by TLS") == "render no overlap"
        assert engine.connections == 1, "the connection was kept"
        assert "secret" not in router.log()
    engine.close()


def certificates_of_others():
    """an engine whose certificate is another's gets no question"""
    ca = Authority(at.directory, "ca2")
    engine = Engine(ca.issue("other", "DNS:other.test"))
    conf = f"""
    kv_router_engine      main ssl_trusted_certificate={ca.file}
                          ssl_name={NAME};
    kv_router_health      main check=/health interval=100ms timeout=60s
                          fails=1;"""
    with Router(at.directory / "other", engine, conf, tls=True) as router:
        wait_until("the check fails", lambda:
                   "its certificate does not match ssl_name" in router.log())
        wait_until("the probe fails", lambda:
                   router.status()["questions"]["probes_failed"] or
                   router.status()["workers"][0]["health"]["state"] == "down")
        assert router.ask("a secret text").startswith("load "), router.log()
    assert not engine.asked and not engine.questions, engine.asked
    engine.close()


def untrusted_certificates():
    """an engine whose certificate nobody trusts gets none either"""
    ca = Authority(at.directory, "ca3")
    engine = Engine(ca.issue("mine", f"DNS:{NAME}"))
    with Router(at.directory / "untrusted", engine, f"""
    kv_router_engine  main ssl_name={NAME};""", tls=True) as router:
        wait_until("the probe fails", lambda:
                   "its certificate can't be verified" in router.log())
    assert not engine.asked, engine.asked
    engine.close()
    engine = Engine(ca.issue("mine2", "DNS:whoever.test"))
    with Router(at.directory / "any", engine, """
    kv_router_engine  main ssl_verify=off;""", tls=True) as router:
        router.probed()
        assert router.ask("unverified") == "render no overlap"
    engine.close()


def four_questions_to_an_engine():
    """an engine has four questions at most, and few connections"""
    engine = Engine()
    with Router(at.directory / "four", engine) as router:
        router.probed()
        engine.hold()
        threads, got = router.crowd([f"prompt {i}" for i in range(50)])
        wait_until("the others are routed", lambda: len(got) == 46)
        assert set(got) == {"load tokenizer"}, set(got)
        engine.release()
        join(threads)
        assert engine.most == 4, engine.most
        assert got[46:] == ["render no overlap"] * 4, got[46:]
        for _ in range(10):
            threads, got = router.crowd([f"more {_} {i}" for i in range(20)])
            join(threads)
        assert engine.connections <= 4, engine.connections
    engine.close()


def sixty_four_questions_of_a_process():
    """a process asks 64 questions at a time at most"""
    engine = Engine()
    with Router(at.directory / "many", engine,
                addresses=ENGINES) as router:
        router.probed(ENGINES)
        engine.hold()
        threads, got = router.crowd([f"prompt {i}" for i in range(100)])
        wait_until("the others are routed", lambda: len(got) == 36)
        assert set(got) == {"load tokenizer"}, set(got)
        wait_until("all are asked", lambda: engine.running == 64)
        engine.release()
        join(threads)
        assert engine.most == 64 and engine.most_at <= 4, engine.most_at
        assert got[36:] == ["render no overlap"] * 64, got[36:]
    engine.close()


def equal_questions():
    """equal questions at the same time are asked once"""
    engine = Engine()
    with Router(at.directory / "equal", engine) as router:
        router.probed()
        engine.hold()
        threads, got = router.crowd(["the same"] * 30)
        wait_until("they wait", lambda:
                   router.status()["questions"]["joined"] == 29)
        engine.release()
        join(threads)
        assert engine.questions == 1, engine.questions
        assert got == ["render no overlap"] * 30, got
        assert router.ask("the same") == "render no overlap"
        assert engine.questions == 1, "the answer was kept"
    engine.close()


def clients_that_leave():
    """clients that leave while an engine is asked hold none of its places"""
    engine = Engine()
    with Router(at.directory / "left", engine) as router:
        router.probed()
        for turn in range(3):
            engine.hold()
            clients = [router.begin(f"left {turn} {i}", "/left/v1/completions")
                       for i in range(4)]
            wait_until("all are asked", lambda: engine.questions == 4)
            assert router.ask("one more") == "load tokenizer"
            for client in clients:
                client.close()
            engine.mode = "answer"
            wait_until("the engine is asked again", lambda turn=turn:
                       router.ask(f"after {turn}") == "render no overlap")
            engine.release()
    engine.close()


def askers_that_leave():
    """when who asks leaves, another one that waits for the answer asks"""
    engine = Engine()
    with Router(at.directory / "asker", engine) as router:
        router.probed()
        engine.hold()
        client = router.begin("the same", "/left/v1/completions")
        wait_until("it is asked", lambda: engine.questions == 1)
        threads, got = router.crowd(["the same"] * 10)
        wait_until("they wait", lambda:
                   router.status()["questions"]["joined"] == 10)
        client.close()
        wait_until("it is asked again", lambda: engine.questions == 2)
        engine.release()
        join(threads)
        assert got == ["render no overlap"] * 10, got
        assert engine.questions == 2, engine.questions
    engine.close()


def waiters_that_leave():
    """clients that leave the queue hold nobody up"""
    engine = Engine()
    with Router(at.directory / "queue", engine,
                worker=" max_active=1", zone=" queue=100") as router:
        router.probed()
        engine.hold("serve")
        threads, got = router.crowd([[1, 2]], "/queued/v1/completions")
        wait_until("it is served", lambda: engine.served == 1)
        left = []
        for n in range(1, 31):
            left.append(router.begin([1, n], "/queued/v1/completions"))
            wait_until("it waits", lambda n=n:
                       router.status()["waiting"] == n)
        more, got2 = router.crowd([[3, 4]] * 3, "/queued/v1/completions")
        wait_until("they wait", lambda: router.status()["waiting"] == 33)
        for client in left[5:] + left[:5]:
            client.close()
        wait_until("they have left", lambda: router.status()["waiting"] == 3)
        engine.release()
        join(threads + more)
        assert len(got + got2) == 4, (got, got2)
        assert router.status()["waiting"] == 0
    engine.close()


def slow_engines():
    """an answer that drips or does not come is over with the budget"""
    engine = Engine()
    with Router(at.directory / "slow", engine) as router:
        router.probed()
        for mode in "drip", "hold":
            engine.hold(mode)
            assert router.ask(mode, "/hasty/v1/completions") == "load tokenizer"
            engine.release()
        engine.mode = "cut"
        assert router.ask("cut") == "load tokenizer"
        engine.release()
        assert router.ask("well again") == "render no overlap"
    engine.close()


def main():
    global at                               # pylint: disable=global-statement
    with Stage("rungs") as at:
        sys.exit(at.run([
            engines_with_tls, certificates_of_others, untrusted_certificates,
            four_questions_to_an_engine, sixty_four_questions_of_a_process,
            equal_questions, clients_that_leave, askers_that_leave,
            waiters_that_leave, slow_engines]))


if __name__ == "__main__":
    main()
