#!/usr/bin/python3
"""Requests and answers pass as they came, byte for byte; TAP.

By HTTP/1.1 and HTTP/2, with and without a length, in memory and in files; the
answers are those that vLLM and SGLang gave to the golden requests,
t/vectors/golden.  Clients leave at every stage: the engine sees it, and
nothing is left.
"""

import contextlib
import json
import os
import queue
import random
import re
import socket
import subprocess
import sys
import threading

import stage
from scripted import Engine, ask, chunk, fixed, head_of_chunks
from stage import PATIENCE, SEED, free_port, wait_until

sys.path.insert(0, str(stage.ROOT / "t" / "engines"))

from golden_answers import recorded                             # noqa: E402

HUGE = 16 << 20                 # bytes of a body
LEAVERS = 8                     # clients that leave at each stage
STREAM = "text/event-stream"

CONF = """
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
load_module @MODULE@;

@USER@
worker_processes  2;
daemon            off;
pid               nginx.pid;
error_log         @LOG@ notice;

events {
    worker_connections  1024;
}

http {
    client_body_temp_path  client_body;
    proxy_temp_path        proxy;
    fastcgi_temp_path      fastcgi;
    uwsgi_temp_path        uwsgi;
    scgi_temp_path         scgi;

    log_format  said  escape=json '{"case":"$http_x_case",'
                      '"worker":"$kv_router_worker",'
                      '"overlap":"$kv_router_overlap_blocks",'
                      '"blocks":"$kv_router_prompt_blocks",'
                      '"cached":"$kv_router_cached_tokens",'
                      '"reason":"$kv_router_reason"}';
    access_log  access.log  said;

    kv_router_zone    zone=main:32m block_size=16;
    kv_router_worker  main w1 @ENGINE@;

    lua_package_path  "@LUA@/?.lua;;";

    init_by_lua_block {
        router = require("resty.kv_router").new("main", {
            policy = "kv_cost", tokenizer = "none" })
    }

    upstream engines {
        server  0.0.0.1;
        balancer_by_lua_block { router:balance() }
        keepalive  16;
    }

    client_max_body_size  64m;
    proxy_http_version    1.1;
    proxy_set_header      Connection "";
    proxy_read_timeout    600s;
@SERVERS@
}
"""
SERVER = """
    server {
        listen  127.0.0.1:@PORT@ @OPTIONS@;

        client_body_buffer_size  @MEMORY@;
        proxy_buffering          @BUFFERING@;

        location / {
            access_by_lua_block { router:access() }
            log_by_lua_block    { router:log() }
            proxy_pass          http://engines;
        }

        location = /status {
            access_log        off;
            kv_router_status  main;
        }
    }
"""


class Stage(stage.Stage):
    """nginx with a server for each way; the first one is on `port`."""

    def __init__(self):
        super().__init__("as-it-came")
        self.filed, self.http2 = free_port(), free_port()
        self.read = 0                   # lines of the log

    def _write_conf(self, engines, policy, url, log):
        servers = "".join(
            SERVER.replace("@PORT@", str(port)).replace("@OPTIONS@", options)
            .replace("@MEMORY@", memory).replace("@BUFFERING@", buffering)
            for port, options, memory, buffering in (
                (self.port, "", "64m", "off"),
                (self.filed, "", "16k", "on"),
                (self.http2, "http2", "64m", "off")))
        conf = CONF
        for name, value in (
                ("MODULE", stage.MODULE), ("LOG", log),
                ("USER", "user root;" if os.geteuid() == 0 else ""),
                ("ENGINE", engines["w1"]), ("SERVERS", servers),
                ("LUA", stage.ROOT / "lua")):
            conf = conf.replace(f"@{name}@", str(value))
        (self.directory / "nginx.conf").write_text(conf)

    def curl(self, body, path, *options):
        """A client of HTTP/2 without TLS; its output is the answer's body.
        The request's body is at its standard input."""
        return subprocess.Popen(
            ["curl", "-sSN", "--http2-prior-knowledge", "--max-time",
             str(PATIENCE), "-X", "POST", "-H", "Expect:", *options, body,
             f"http://127.0.0.1:{self.http2}{path}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)

    def said(self, count):
        """What the access log says of the next `count` requests.  It is
        written when a request has ended, after the client has its answer."""
        def there():
            lines = (self.directory / "access.log").read_text(
                "utf-8").split("\n")[self.read:-1]
            return len(lines) >= count and lines

        lines = wait_until("the log is written", there, PATIENCE)
        assert len(lines) == count, (len(lines), count)
        self.read += count
        return [json.loads(line) for line in lines]


at = engine = None              # the stage and the engine, set by main()
ways = {}                       # name -> a function of (path, body, case)
lines = []                      # of the log, of all recorded answers
draw = random.Random(SEED)


def answered(peer, _head, _body):
    """The plainest answer."""
    peer.sendall(fixed(200, "application/json", b'{"usage":null}'))
    return True


def by_http2(option):
    """A way through HTTP/2: --data-binary tells the length, -T does not."""
    def send(path, body, case=""):
        client = at.curl("@-" if option == "--data-binary" else "-", path,
                         "-H", f"X-Case: {case}", option)
        data, errors = client.communicate(body, PATIENCE)
        assert client.returncode == 0, errors
        return data
    return send


def by_http1(port, chunks=None):
    """A way through HTTP/1.1."""
    def send(path, body, case=""):
        return ask(getattr(at, port), "POST", path, body,
                   {"X-Case": case}, chunks)[2]
    return send


# ------------------------------------------------------------------- tests

def bodies():
    """Bodies of all kinds, by name; malformed ones too."""
    ids = ",".join(str(draw.randrange(100000)) for _ in range(200))
    deep = "[" * 100_000
    return {
        "ids": b'{"model":"m","prompt":[%s]}' % ids.encode(),
        "blanks": b'\r\n {"prompt" :\t[ 1 , 2 ]\n}  \n',
        "chat": json.dumps({"model": "m", "messages": [
            {"role": "user", "content": "Grüße 😀 \0 \\"}]}).encode(),
        "duplicate keys": b'{"prompt":"a","prompt":[%s],"prompt":"b"}'
                          % ids.encode(),
        "empty": b"", "no JSON": b"\0\1\2 \xff\xfe", "cut": b'{"prompt":[1,',
        "ill-formed UTF-8": b'{"prompt":"\xc3\x28 \xed\xa0\x80"}',
        "lone surrogate": b'{"prompt":"\\ud800"}',
        "deep": deep.encode(), "deep field": (
            '{"prompt":"a","x":' + deep + "]" * 100_000 + "}").encode(),
        "numbers": b'{"prompt":[1e999,-0,1.5,99999999999999999999,1],"n":1e9}',
        "array": b"[1,2,3]", "text": b'"prompt"', "null": b"null",
        "huge text": b'{"messages":[{"role":"user","content":"'
                     + b"wool and salt " * (HUGE // 14) + b'"}]}',
        "huge ids": b'{"prompt":[' + b"1234567," * (HUGE // 8) + b"1]}"}


def requests_pass():
    """bodies of all kinds get to the engine as they were sent, by all ways"""
    engine.answer = answered
    sent = 0
    for name, body in bodies().items():
        for way, send in ways.items():
            known = len(engine.requests)
            path = draw.choice(["/v1/completions", "/v1/chat/completions",
                                "/v1/messages", "/v1/responses", "/generate",
                                "/v1/nothing"])
            send(path, body, name)
            (head, got), = engine.requests[known:]
            assert got == body, (name, way, len(got), len(body))
            assert head.startswith(f"POST {path} HTTP/1.1".encode()), head
            sent += 1
    for line in at.said(sent):
        assert line["worker"] == "w1" and line["reason"], line
        assert line["overlap"] in ("", "-", "0"), line


def pieces(data):
    """Data in pieces of odd sizes."""
    parts = []
    while data:
        size = draw.choice([1, 2, 7, 16, 61, 400, 5000])
        parts.append(data[:size])
        data = data[size:]
    return parts


def golden():
    """The answers of both engines: (case, status, type, bytes)."""
    for name in ("vllm", "sglang"):
        for case in recorded(name)[1]:
            case["name"] = f"{name}, {case['name']}"
            yield (case, case["status"], case["answer"]["type"],
                   case["answer"]["text"].encode())


def answers_pass():
    """answers of vLLM and SGLang get to the client as the engine sent them"""
    sent = 0
    for number, (case, status, kind, data) in enumerate(golden()):
        streamed = kind == STREAM or number % 2

        def answer(peer, _head, _body):
            if not streamed:
                peer.sendall(fixed(status, kind, data))
                return True
            peer.sendall(head_of_chunks(status, kind))
            for part in pieces(data):
                peer.sendall(chunk(part))
            peer.sendall(chunk(b""))
            return True

        engine.answer = answer
        request = (case["method"], case["path"],
                   case["body"] and case["body"].encode())
        straight = ask(engine.port, *request)
        assert straight[::2] == (status, data)
        for port in (at.port, at.filed):
            sent += 1
            got = ask(port, *request, {"X-Case": case["name"]})
            assert got[::2] == (status, data), (case["name"], got)
            for name in ("Content-Type", "X-Engine"):
                assert got[1][name] == straight[1][name], (name, got[1])
        if number % 8 == 0 and case["body"]:
            sent += 1
            got = ways["HTTP/2"](case["path"], request[2], case["name"])
            assert got == data, (case["name"], got)
    lines.extend(at.said(sent))


def usage_is_read():
    """of each answer the router knows how much of the prompt was cached"""
    wanted = {}
    for case, status, _, _ in golden():
        usage = case["usage"] or {}
        if status == 200 and case["path"] != "/invocations" and [
                sequence["times"] for sequence in case["sequences"]] == [1]:
            wanted[case["name"]] = ("-" if usage.get("cached") is None
                                    else str(usage["cached"]))
    wrong, seen = [], set()
    for line in lines:
        name, cached = line["case"], line["cached"] or "-"
        if name in wanted and cached != wanted[name]:
            wrong.append((name, cached, wanted[name]))
        seen.add(name)
    assert seen > set(wanted) and not wrong, wrong


def streams_come_at_once():
    """each piece of a stream is with the client before the next one is sent"""
    (data,) = [data for case, _, kind, data in golden() if kind == STREAM
               and case["name"] == "vllm, responses: streamed with tools"]
    parts = [part for event in data.split(b"\n\n")
             for part in pieces(event + b"\n\n")[:8]]
    read = queue.Queue()

    def answer(peer, _head, _body):
        peer.sendall(head_of_chunks(200, STREAM))
        for part in parts:
            peer.sendall(chunk(part))
            assert read.get(timeout=PATIENCE) == part
        peer.sendall(chunk(b""))
        return True

    engine.answer = answer
    body = b'{"stream":true,"input":"a"}'
    with socket.create_connection(("127.0.0.1", at.port), PATIENCE) as peer:
        peer.sendall(b"POST /v1/responses HTTP/1.1\r\nHost: a\r\n"
                     b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        stream = peer.makefile("rb")
        while stream.readline() != b"\r\n":
            pass
        for part in parts:
            # as nginx frames it: a chunk of its own
            assert int(stream.readline(), 16) == len(part)
            assert stream.read(len(part) + 2) == part + b"\r\n"
            read.put(part)
        assert stream.readline() == b"0\r\n"
    client = at.curl("@-", "/v1/responses", "--data-binary")
    client.stdin.write(body)
    client.stdin.close()
    for part in parts:
        assert client.stdout.read(len(part)) == part
        read.put(part)
    assert client.stdout.read() == b"" and client.wait(PATIENCE) == 0


class Left:
    """An answer that is never finished, and what the engine sees of it."""

    def __init__(self, first):
        self.first = first              # what is sent of it
        self.began, self.ended = queue.Queue(), queue.Queue()

    def __call__(self, peer, _head, _body):
        peer.settimeout(PATIENCE)
        peer.sendall(self.first)
        self.began.put(None)
        with contextlib.suppress(ConnectionError):
            assert peer.recv(1) == b"", "more than one request"
        self.ended.put(None)
        return False


def leave(port, sent):
    """A client that has sent so much."""
    peer = socket.create_connection(("127.0.0.1", port), PATIENCE)
    peer.sendall(sent)
    return peer


REQUEST = (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
           b"Content-Length: 30000\r\n\r\n" + b'{"prompt":"' + b"a" * 29987
           + b'"}')


def who_leaves_leaves_nothing():
    """clients that leave at any stage: the engine sees it, no load is left"""
    for port in (at.port, at.filed):
        known = len(engine.requests)
        for size in (10, 60, 5000, len(REQUEST) - 1):
            leave(port, REQUEST[:size]).close()
        for first in (b"", head_of_chunks(200, STREAM)
                      + chunk(b"data: {}\n\n")):
            engine.answer = left = Left(first)
            clients = [leave(port, REQUEST) for _ in range(LEAVERS)]
            for _ in clients:
                left.began.get(timeout=PATIENCE)
            assert active() == LEAVERS
            for client in clients:
                client.close()
            for _ in clients:
                left.ended.get(timeout=PATIENCE)
            at.check_idle()
        assert len(engine.requests) == known + 2 * LEAVERS


def who_leaves_http2_leaves_nothing():
    """the same with clients of HTTP/2"""
    engine.answer = left = Left(head_of_chunks(200, STREAM)
                                + chunk(b"data: {}\n\n"))
    clients = [at.curl("@-", "/v1/completions", "--data-binary")
               for _ in range(LEAVERS)]
    for client in clients:
        client.stdin.write(b'{"prompt":"a","stream":true}')
        client.stdin.close()
    for client in clients:
        left.began.get(timeout=PATIENCE)
        assert client.stdout.read(10) == b"data: {}\n\n"
    assert active() == LEAVERS
    for client in clients:
        client.kill()
        client.wait()
    for _ in clients:
        left.ended.get(timeout=PATIENCE)
    at.check_idle()


def active():
    """How many requests w1 has."""
    return sum(row["active_requests"] for row in at.workers()["w1"]["load"])


def nothing_was_wrong():
    """the error log has no alert, and no error"""
    at.check_log()
    assert threading.active_count() < 200


def main():
    """The program."""
    global at, engine
    with Stage() as at:
        engine = Engine(answered)
        ways.update({
            "HTTP/1.1": by_http1("port"),
            "HTTP/1.1 in chunks": by_http1("port", 10_007),
            "HTTP/1.1 in a file": by_http1("filed"),
            "HTTP/1.1 in chunks, in a file": by_http1("filed", 10_007),
            "HTTP/2": by_http2("--data-binary"),
            "HTTP/2 without a length": by_http2("-T")})
        at.start_nginx({"w1": engine.address}, url="")
        return at.run([requests_pass, answers_pass, usage_is_read,
                       streams_come_at_once,
                       who_leaves_leaves_nothing,
                       who_leaves_http2_leaves_nothing, nothing_was_wrong])


if __name__ == "__main__":
    sys.exit(main())
