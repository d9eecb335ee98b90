#!/usr/bin/python3
"""kv_router_model: directories, reloads, texts by the model; TAP."""

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import xxhash

from stage import (MODULE, PATIENCE, ROOT, SEED, Stage, free_port, tap,
                   wait_until)
from processes import Process
from template import Template

MODEL = Path(os.environ.get("KVR_TEST_MODEL") or ROOT / "t/vectors/model")
CHECK = ROOT / "util/kv-model-check"
RELOADS = 20
MODELS = 5
BLOCK_SIZE = 16                 # tokens
SLACK = 4 << 20                 # bytes that the master may grow by, in all: a
                                # model has 1 MB, so that one lost in each of
                                # the reloads is 20 MB

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
    client_max_body_size     16m;
    client_body_buffer_size  8m;

{zones}
    kv_router_worker  z0 w0 127.0.0.1:{engine} engine=vllm events=on;

    lua_package_path  "{lua};;";

    init_by_lua_block {{
        router = require("resty.kv_router").new("z0", {{ tokenizer = "local" }})
    }}

    upstream engines {{
        server  0.0.0.1;
        balancer_by_lua_block {{ router:balance() }}
    }}

    server {{
        listen  127.0.0.1:{engine};
        return  200 "here\\n";
    }}

    server {{
        listen  127.0.0.1:{port};

        location /v1/ {{
            lua_check_client_abort  on;
            access_by_lua_block     {{ router:access() }}
            add_header  x-route     "$kv_router_rung $kv_router_reason";
            add_header  x-blocks    $kv_router_prompt_blocks;
            proxy_pass  http://engines;
        }}

        location /shown/v1/ {{
            access_by_lua_block  {{ router:access() }}
            add_header  x-route  "$kv_router_rung $kv_router_reason";
            add_header  x-hashes $kv_router_block_hashes;
            proxy_pass  http://engines;
        }}

        location ~ ^/status/(?<zone>z0)$ {{
            kv_router_status  z0;
        }}
    }}
}}
"""

at = None                       # a Stage, for its directory


def directory(name, change=None):
    """A copy of the model's directory, changed by a function."""
    to = at.directory / name
    if not to.exists():
        shutil.copytree(MODEL, to)
        to.chmod(0o755)
        for file in to.iterdir():
            file.chmod(0o644)
        if change:
            change(to)
    return to


class Router:
    """nginx in a directory of its own; `models` are arguments of
    kv_router_model, one for each zone."""

    def __init__(self, name, models, zones=None):
        self.port = free_port()
        self.directory = at.directory / f"nginx-{name}"
        self.directory.mkdir()
        self.name = name
        zones = zones if zones is not None else "\n".join(
            f"    kv_router_zone   zone=z{i}:16m;\n" +
            (f"    kv_router_model  z{i} {model};" if model else "")
            for i, model in enumerate(models))
        self.conf = self.directory / "nginx.conf"
        self.conf.write_text(CONF.format(
            module=MODULE, port=self.port, engine=free_port(), zones=zones,
            lua=os.environ.get("KVR_TEST_LUA", "") + f"{ROOT}/lua/?.lua",
            user="user  root;" if os.geteuid() == 0 else ""))
        self._nginx = None

    def __enter__(self):
        self._nginx = Process("nginx", [
            "nginx", "-p", f"{self.directory}/", "-e", "error.log", "-c",
            "nginx.conf"], self.directory)
        try:
            wait_until("nginx answers", self.status)
        except BaseException:
            self._nginx.stop()
            print(self.log())
            raise
        return self

    def __exit__(self, *_):
        self._nginx.stop()

    def test(self):
        """nginx -t: its status and what it says."""
        done = subprocess.run([
            "nginx", "-t", "-p", f"{self.directory}/", "-c", "nginx.conf",
            "-e", "error.log"], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    def master(self):
        """The pid of the master."""
        return int((self.directory / "nginx.pid").read_text())

    def children(self):
        """The pids of its processes that are not exiting."""
        out = Path(f"/proc/{self.master()}/task/{self.master()}/children")
        return {int(pid) for pid in out.read_text().split() if b"exiting"
                not in Path(f"/proc/{pid}/cmdline").read_bytes()}

    def reload(self):
        """Reloads, and waits for the new process alone."""
        before = self.children()
        self._nginx.signal(signal.SIGHUP)

        def done():
            with contextlib.suppress(FileNotFoundError):
                return self.children() and not self.children() & before
            return False

        wait_until("a new process", done)
        wait_until("it answers", self.status)

    def rss(self):
        """Bytes of the master's own memory."""
        text = Path(f"/proc/{self.master()}/status").read_text()
        return int(text.split("RssAnon:")[1].split()[0]) << 10

    def get(self, path):
        """The text of a page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=PATIENCE)
        connection.request("GET", path)
        return connection.getresponse().read().decode()

    def status(self):
        """The status of the first zone."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return json.loads(self.get("/status/z0"))
        return None

    def post(self, body, path):
        """The headers of the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=PATIENCE)
        connection.request("POST", path, json.dumps(body))
        answer = connection.getresponse()
        answer.read()
        return answer.headers

    def ask(self, body, path="/v1/completions"):
        """Where the ids came from with the reason, and the blocks."""
        headers = self.post(body, path)
        return headers["x-route"], headers["x-blocks"]

    def log(self):
        """The error log."""
        return (self.directory / "error.log").read_text()


def refused(name, model, why):
    """nginx -t says [emerg] with these words."""
    status, said = Router(name, [model]).test()
    assert status != 0, said
    assert "[emerg]" in said, said
    assert why in said, said


# -------------------------------------------------------------------- tests

def directives():
    """arguments that are wrong are refused"""
    refused("none", at.directory / "nowhere", "can't be looked at: No such")
    refused("word", f"{directory('good')} engine=x", 'invalid parameter "engine=x", it must be "vllm"')
    refused("other", f"{directory('good')} motor=vllm", "the parameters are engine")
    refused("twice", f"{directory('good')};\n kv_router_model z0 "
            f"{directory('good')}", "is duplicate")
    refused("engine", f"{directory('good')} engine=sglang",
            'the directory was made for "vllm"')


def torn_directories():
    """directories that are incomplete or changed are refused"""
    def cut(to, name):
        file = to / name
        file.write_bytes(file.read_bytes()[:-30])

    refused("cut1", directory("cut1", lambda to: cut(to, "tokenizer.json")),
            '"tokenizer.json" has the SHA-256')
    refused("cut2", directory("cut2", lambda to: cut(to, "router.json")),
            '"router.json" is no JSON object')
    refused("gone", directory("gone", lambda to: (
        to / "chat_template.jinja").unlink()),
            '"chat_template.jinja" is missing')
    refused("bare", directory("bare", lambda to: (
        to / "router.json").unlink()), 'has no "router.json"')


def files_of_others():
    """files that everybody can write, and things that are no files"""
    refused("mode", directory("mode", lambda to: (
        to / "tokenizer.json").chmod(0o646)), "say chmod o-w")
    refused("folder", directory("folder", lambda to: to.chmod(0o757)),
            "the directory can be written by everybody")

    def fifo(to):
        (to / "router.json").unlink()
        os.mkfifo(to / "router.json")

    refused("fifo", directory("fifo", fifo), "is no regular file")

    def large(to):
        with open(to / "chat_template.jinja", "ab") as file:
            file.truncate(2 << 20)

    refused("large", directory("large", large),
            "it must have 1048576 at most")


def texts():
    """texts become token ids in the process, short and long ones"""
    with Router("texts", [directory("good")]) as router:
        model = router.status()["local_model"]
        assert model["state"] == "ready", model
        assert model["conversations_compared"], model
        assert model["strings_compared"] == 2100, model
        route, blocks = router.ask({"model": "m", "prompt": "word " * 200})
        assert route.startswith("local "), (route, router.log())
        assert int(blocks) > 5, blocks
        route, blocks = router.ask({"model": "m", "prompt": "word " * 200000})
        assert route.startswith("local "), (route, router.log())
        model = router.status()["local_model"]
        assert model["texts"]["done"] == 2, model
        assert model["slices"] > 2, model
        page = router.get("/status/z0?format=prometheus")
        assert 'how="done"} 2' in page, page
        assert 'state="ready"} 1' in page, page


def hashes(ids):
    """The header with the hashes of their whole blocks."""
    blocks = [ids[i:i + BLOCK_SIZE] for i in range(
        0, len(ids) - BLOCK_SIZE + 1, BLOCK_SIZE)]
    return ",".join(f"{xxhash.xxh3_64_intdigest(data, 1337):016x}" for data in
                    (struct.pack(f"<{BLOCK_SIZE}I", *block)
                     for block in blocks))


def chats():
    """chats have the token ids of the template and the tokenizer"""
    model = Template(ROOT / "t/vectors/golden/model")
    tool = {"type": "function", "function": {
        "name": "weather", "description": "tells", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}}}}
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Who has the key of the office? \u4f60"},
        {"role": "assistant", "content": "The harbour master."},
        {"role": "user", "content": "What is the weather \n\n tomorrow?"}]
    path = "/shown/v1/chat/completions"
    with Router("chats", [directory("good")]) as router:
        got = router.post({"model": "m", "messages": messages}, path)
        assert got["x-route"].startswith("local "), (got, router.log())
        wanted = model.chat_ids(messages, None, {
            "add_generation_prompt": True})
        assert got["x-hashes"] == hashes(wanted), (got, wanted)
        got = router.post({
            "model": "m", "messages": messages[:2], "tools": [tool],
            "tool_choice": "none",
            "chat_template_kwargs": {"enable_thinking": False}}, path)
        wanted = model.chat_ids(messages[:2], [tool], {
            "add_generation_prompt": True, "enable_thinking": False})
        assert got["x-hashes"] == hashes(wanted), (got, wanted)
        got = router.post({"model": "m", "prompt": "The tide is high. " * 9},
                          "/shown/v1/completions")
        wanted = model.text_ids("The tide is high. " * 9)
        assert got["x-hashes"] == hashes(wanted), (got, wanted)

        # not understood, and an error of the client
        assert router.ask({"messages": messages, "tools": [tool]},
                          path)[0] == "load tokenizer"
        assert "raise: " in router.log()
        assert router.ask({"messages": messages, "chat_template": "x"},
                          path)[0] == "load tokenizer"
        assert "unsupported: " in router.log()
        assert router.ask({"messages": [{"role": 7}]},
                          path)[0] == "load tokenizer"
        texts_ = router.status()["local_model"]["texts"]
        assert texts_["done"] == 3, texts_
        assert texts_["failed"] == 3, texts_


def long_bodies():
    """a long body takes several turns of the event loop, a short one one"""
    model = Template(ROOT / "t/vectors/golden/model")
    path = "/shown/v1/chat/completions"
    messages = [{"role": "user", "content": "What is the tide tomorrow?"}]

    def body(number, parts):
        return {"model": "m", "messages": messages, "tool_choice": "none",
                "tools": [{"type": "function", "function": {
                    "name": "tide", "description": "tells", "parameters": {
                        "type": "object", "properties": {"at": {
                            "type": "integer", "enum": [number, 7, 9]}}}}}],
                "metadata": {f"part {i}": "\u4e2d x" * 512
                             for i in range(parts)}}

    def right(number, parts):
        sent = body(number, parts)
        got = router.post(sent, path)
        assert got["x-route"].startswith("local "), (got, router.log())
        assert got["x-hashes"] == hashes(model.chat_ids(
            messages, sent["tools"], {"add_generation_prompt": True})), got

    with Router("turns", [directory("good")]) as router:
        # a process that has to wait for a core takes more turns: the least
        # of three
        def slices(parts):
            counts = []
            for _ in range(3):
                before = router.status()["local_model"]["slices"]
                right(1, parts)
                counts.append(router.status()["local_model"]["slices"]
                              - before)
            return min(counts)

        assert slices(1) == 1
        # 64 KB a step; before scanning, the first step, rendering, the look-up,
        # what is behind it, the choice, and sending
        assert slices(64) == 64 * 4096 // 65536 + 9

        # the numbers of one body are not those of another one
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(right, range(24), [64] * 24))
        assert router.status()["local_model"]["texts"]["done"] == 30


def no_template():
    """chats of a model without a chat template: the log and the status say
    what is missing, once"""
    def untold(to):
        told = json.loads((to / "router.json").read_text())
        del told["files"][told["templates"].pop("default")]
        told["conversations"] = []
        (to / "router.json").write_text(json.dumps(told))

    with Router("untold", [directory("untold", untold)]) as router:
        for _ in range(3):
            got = router.ask({"messages": [{"role": "user", "content": "a"}]},
                             "/v1/chat/completions")
            assert got[0] == "load tokenizer", (got, router.log())
        said = ("the model has no chat template, so chats have no token ids of "
                "it: put the engine's chat_template.jinja into its directory, "
                "run kv-model-dump again if a router.json is there, and reload "
                "nginx")
        lines = [line for line in router.log().splitlines() if said in line]
        assert len(lines) == 1 and "[error]" in lines[0], router.log()
        told = [one for one in router.status()["warnings"]
                if one["text"] == said]
        assert len(told) == 1 and told[0]["level"] == "error", told


def refusals():
    """a model that is refused is said, and its texts go by load"""
    def other(to):
        text = json.loads((to / "router.json").read_text())
        text["strings"][7][1] = [1, 2, 3]
        (to / "router.json").write_text(json.dumps(text))

    with Router("refused", [directory("other", other)]) as router:
        model = router.status()["local_model"]
        assert model["state"] == "refused", model
        assert 'text 8 of "strings"' in model["why"], model
        assert "is refused: text 8" in router.log(), router.log()
        assert router.ask({"prompt": "words"})[0] == "load no_rung"

    def coded(to):
        text = json.loads((to / "router.json").read_text())
        text["model_type"] = "gpt_oss"
        (to / "router.json").write_text(json.dumps(text))

    with Router("coded", [directory("coded", coded)]) as router:
        assert "harmony" in router.status()["local_model"]["why"]

    def conversation(to):
        text = json.loads((to / "router.json").read_text())
        text["conversations"][2]["text"] += "!"
        (to / "router.json").write_text(json.dumps(text))

    with Router("chat", [directory("chat", conversation)]) as router:
        model = router.status()["local_model"]
        assert "conversation 3 " in model["why"], model
        assert model["state"] == "refused", model


def logged():
    """what a client wrote makes no line of the log"""
    forged = "x\n2026/01/01 00:00:00 [emerg] 1#1: forged " + "y" * 300

    def message(**members):
        return {"messages": [{"role": "user", "content": "x", **members}]}

    with Router("logged", [directory("good")]) as router:
        for path, bodies in {
                "chat/completions": [
                    message(role=forged), message(content=[{"type": forged}]),
                    message(**{forged: 1}), {**message(), forged: 1},
                    {**message(), "chat_template_kwargs": {forged: {}}},
                    {**message(), "tool_choice": forged},
                    {**message(), "reasoning_effort": forged}],
                "messages": [
                    {**message(content=[{"type": forged}]), "model": "m",
                     "max_tokens": 5},
                    {**message(), "model": "m", "max_tokens": 5, forged: 1}],
                "responses": [
                    {"input": [{"type": forged}]},
                    {"input": [{"role": forged, "content": "x"}]},
                    {"input": "x", "include": [forged]}],
                "completions": [{"prompt": "x", forged: 1}]}.items():
            for body in bodies:
                router.ask({"model": "m", **body}, f"/v1/{path}")
        lines = router.log().splitlines()
        told = [line for line in lines if "forged" in line]
        assert len(told) > 8, told
        assert not [line for line in lines if line.startswith("2026/01/01")]
        assert not [line for line in told if "y" * 128 in line], told


def long_readings():
    """a body of many small items is left to the next rung, and counted"""
    with Router("long", [directory("good")]) as router:
        few = [{"role": "user", "content": "a"}]
        path = "/v1/chat/completions"
        assert router.ask({"messages": few}, path)[0].startswith("local ")
        for messages in (few * 100000,
                         [{"role": "user", "content": [
                             {"type": "text", "text": "a"}] * 100000}]):
            route = router.ask({"messages": messages}, path)[0]
            assert route == "load tokenizer", (route, router.log())
            assert "budget: " in router.log()
        counted = router.status()["local_model"]["texts"]
        assert counted["busy"] == 2, counted
        assert router.ask({"messages": few}, path)[0].startswith("local ")


def no_model():
    """a router that wants a model needs one"""
    router = Router("without", [None])
    done = subprocess.run([
        "nginx", "-p", f"{router.directory}/", "-c", "nginx.conf", "-e",
        "error.log"], capture_output=True, text=True, check=False,
        timeout=PATIENCE)
    assert done.returncode != 0
    assert 'zone "z0" has no model' in done.stderr + router.log()


def reloads():
    """models that did not change stay, and the master does not grow"""
    models = [directory(f"m{i}", lambda to, i=i: mark(to, i))
              for i in range(MODELS)]
    with Router("reloads", models) as router:
        for _ in range(3):
            router.reload()
        before = router.rss()
        for _ in range(RELOADS):
            router.reload()
        grown = router.rss() - before
        assert grown < SLACK, f"the master grew by {grown} bytes"
        model = router.status()["local_model"]
        assert model["kept"] == RELOADS + 3, model
        assert model["loaded"] == 1, model

        # another file, and back by another way
        old = model["digest"]
        mark(models[0], 77)
        router.reload()
        model = router.status()["local_model"]
        assert model["loaded"] == 2, model
        assert model["digest"] != old, model
        (models[0] / "tokenizer.json").write_text("{")
        known = len(router.log())
        os.kill(router.master(), signal.SIGHUP)
        wait_until("it is refused", lambda: "[emerg]" in router.log()[known:])
        assert router.status()["local_model"]["digest"] == model["digest"]


def mark(to, number):
    """A router.json that is another one."""
    text = json.loads((to / "router.json").read_text())
    text["model"] = f"model {number}"
    (to / "router.json").write_text(json.dumps(text))


def clients_that_leave():
    """clients leave, processes end, while texts are encoded"""
    rng = random.Random(SEED)
    body = json.dumps({"model": "m", "prompt": "some words " * 100000})
    request = (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
               f"Content-Length: {len(body)}\r\n\r\n{body}").encode()
    with Router("leave", [directory("good")]) as router:
        for turn in range(12):
            clients = []
            for _ in range(10):
                client = socket.create_connection(("127.0.0.1", router.port))
                client.settimeout(PATIENCE)
                client.sendall(request)
                clients.append(client)
            for client in clients:
                if rng.random() < 0.6:
                    client.close()
            if turn % 4 == 3:
                os.kill(router.master(), signal.SIGHUP)
            for client in clients:
                if client.fileno() >= 0:
                    with contextlib.suppress(ConnectionResetError):
                        answer = client.recv(64)
                        assert answer.startswith(b"HTTP/1.1 200"), answer
                    client.close()
        # all places are free again
        wait_until("texts are encoded again", lambda: router.ask(
            {"prompt": "words " * 100})[0].startswith("local "))
        texts_ = router.status()["local_model"]["texts"]
        assert texts_["failed"] == 0, texts_
        for word in ("[alert]", "[crit]", "exited on signal"):
            assert word not in router.log(), router.log()


def checked():
    """kv-model-check says the same beforehand"""
    def check(*args):
        done = subprocess.run(
            [CHECK, *args], capture_output=True, text=True, check=False,
            env={**os.environ, "KVR_BUILD": str(MODULE.parent)})
        return done.returncode, done.stdout + done.stderr

    status, said = check(directory("good"))
    assert status == 0, said
    assert "the model is ready" in said, said
    assert "strings:        2100 have" in said, said
    for name, why in (("chat", "conversation 3"), ("coded", "harmony"),
                      ("cut1", "has the SHA-256"), ("bare", "router.json")):
        status, said = check(directory(name))
        assert status == 1, said
        assert why in said, said
    assert check()[0] == 2
    assert check("--engine", "x", directory("good"))[0] == 2


def main():
    """Runs them."""
    global at               # pylint: disable=global-statement
    with Stage("model") as at:
        return at.run([directives, torn_directories, files_of_others, texts,
                       chats, long_bodies, no_template, refusals, logged,
                       long_readings, no_model, reloads, clients_that_leave,
                       checked])


if __name__ == "__main__":
    sys.exit(main())
