"""How the mistakes of mistakes.py are made, with real programs.

What makes a mistake is a function of a Bench.  It returns the level of what is
then told, and the text.
"""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import relay as relays
import stage as scenery
from stage import NOBODY, PATIENCE, ROOT, Process, free_port, wait_until

MODULES = "/usr/lib/nginx/modules"
RELAY = Path(os.environ.get("KVR_BUILD") or ROOT / "build") / "kv-relay"
CHECK = ROOT / "util" / "kv-router-check"
TOKEN = "6f1d0c2b9a8e7d6c5b4a"

CONF = """
%(load)s
daemon off;
worker_processes %(processes)s;
user %(user)s;
pid %(path)s/nginx.pid;
error_log stderr notice;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path %(path)s/body;
    proxy_temp_path       %(path)s/proxy;
    fastcgi_temp_path     %(path)s/fastcgi;
    uwsgi_temp_path       %(path)s/uwsgi;
    scgi_temp_path        %(path)s/scgi;
    %(http)s
}
"""

ZONE = "kv_router_zone zone=main:8m;"
LUA = 'lua_package_path "%s/lua/?.lua;%s/?.lua;;";'
NEW = 'router = require("resty.kv_router").new("main", { %s })'
COMPLETION = '{"model": "%s", "prompt": "Once upon a time there was a fox"}'
IDS = '{"prompt": [%s]}' % ", ".join(map(str, range(64)))
MODEL = ROOT / "t/vectors/model"


class Bench:
    """Where mistakes are made: a directory, ports, programs."""

    def __init__(self):
        self.path = Path(tempfile.mkdtemp(prefix="kv-mistakes-"))
        self.path.chmod(0o755)
        self.port = free_port()         # nginx's
        self.engine = free_port()       # of an engine that answers with 404
        self.dead = free_port()         # nobody listens there
        self.counter = 0
        self.stage = scenery.Stage("mistakes")
        self.kept = contextlib.ExitStack()
        self.kept.enter_context(self.stage)

    def close(self):
        """Leaves nothing behind."""
        self.kept.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def write(self, name, text):
        """A file of that name."""
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return file

    def conf(self, http_block, load=("ndk_http", "ngx_http_lua"), processes=1):
        """A configuration with that in its http block, where PORT is nginx's
        port, ENGINE the engine's, and PATH its directory."""
        modules = "".join(f"load_module {MODULES}/{name}_module.so;\n"
                          for name in load)
        return self.write("nginx.conf", CONF % {
            "load": f"{modules}load_module {scenery.MODULE};",
            "user": "root" if os.geteuid() == 0 else "nobody",
            "path": self.path, "processes": processes, "http": http_block
            .replace("PORT", str(self.port)).replace("PATH", str(self.path))
            .replace("ENGINE", str(self.engine))})

    def lua(self):
        """lua_package_path."""
        return LUA % (ROOT, self.path)

    def shown(self, text):
        """What does not depend on this machine and moment."""
        for found, shown in ((str(self.path), "/etc/nginx"),
                             (str(ROOT), "/usr/share"),
                             (f":{self.port}", ":8080"),
                             (f":{self.engine}", ":8001"),
                             (f":{self.dead}", ":9999"),
                             (f":{self.stage.redis_port}", ":6379")):
            text = text.replace(found, shown)
        # lists of policies and settings get longer; times and pids differ
        for found, shown in (
                (r"((?:[Tt]here are|it has|parameters are) (?:[\w.]+, ){3})"
                 r"[\w., ]*?\w(?= in /|\.?(?:[^\w., ]|$))", r"\1..."),
                (r"seconds=\d+", "seconds=5"),
                (r"for \d+ ms, so", "for 5120 ms, so"),
                (r"\d{13}-\d+", "1795222812000-17"),
                (r"(process|kill -9) \d+", r"\1 4711")):
            text = re.sub(found, shown, text)
        return text.split("\n", 1)[0].strip()

    def redis(self):
        """The URL of a Redis that has nothing."""
        if self.stage.redis_server is None:
            self.stage.start_redis()
        self.stage.redis.flushall()
        return self.stage.redis_url()

    # ------------------------------------------------------------ programs

    def done(self, *command):
        """A program that has ended."""
        return subprocess.run(command, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)

    def tested(self, http_block, **conf):
        """The one line of `nginx -t` that is no notice."""
        done = self.done("nginx", "-t", "-c", self.conf(http_block, **conf))
        ((level, text),) = re.findall(
            r"\[(emerg|error|warn)\] (?:\d+#\d+: )?(.*)", done.stderr)
        assert (done.returncode == 0) == (level == "warn"), done.stderr
        return level, self.shown(text)

    def refused(self, init, files=(), path=None):
        """nginx does not start: the error of init_by_lua."""
        for name, text in files:
            self.write(name, text)
        done = self.done("nginx", "-c", self.conf(
            f"{ZONE} {path or self.lua()} init_by_lua_block {{ {init} }}"))
        assert done.returncode != 0, done.stderr
        level, text = re.search(
            r"\[(\w+)\] \S+ init_by_lua\S* error: (.*?)(?:\nstack|\Z)",
            done.stderr, re.S).groups()
        text = re.sub(r"(file '[^']*'):\n\s*", r"\1: ", text)
        return level, self.shown(re.sub(r"^init_by_lua\S*:\d+: ", "", text))

    def checked(self, *args):
        """kv-router-check finds one fault."""
        done = self.done(CHECK, *args)
        assert done.returncode == 1, done
        return "exit status 1", done.stderr

    @contextlib.contextmanager
    def running(self, http_block, processes=1):
        """nginx with that configuration: its process."""
        self.counter += 1
        process = Process(f"nginx-{self.counter}", [
            "nginx", "-c", str(self.conf(http_block, processes=processes))],
            self.path)
        try:
            wait_until("nginx runs", lambda: "start worker process "
                       in log(process) or process.status() is not None,
                       PATIENCE)
            process.check_alive()
            yield process
        finally:
            process.stop()

    @contextlib.contextmanager
    def relay(self, *options, redis=None):
        """A kv-relay that runs."""
        self.counter += 1
        process = Process(f"relay-{self.counter}", [
            RELAY, "--worker", "w1", "--redis",
            redis or self.stage.redis_url(), "--listen", "127.0.0.1:0",
            "--block-size", "16", *options], self.path)
        try:
            yield process
        finally:
            process.stop()

    def ask(self, method, path, body=None, **headers):
        """Status and body of a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, path, body, {
                name.replace("_", "-"): value
                for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def said(self, process, pattern):
        """Waits for a line of a log, which must be the only one of its kind;
        returns its level, and the line from the pattern on."""
        wait_until(pattern, lambda: re.search(pattern, log(process)), PATIENCE)
        found = re.findall(rf"^(.*?)({pattern}.*)$", log(process), re.M)
        assert len(found) == 1, found
        before, text = found[0]
        level = re.search(r"\[(\w+)\]|(level=\w+)", before)
        # the request that nginx adds
        text = re.sub(r", client: .*", "", text)
        return level[1] or level[2], self.shown(text.replace(' msg="', "", 1))

    def router(self, settings="", engine=NOBODY, worker="", zone=ZONE,
               more="", places="", answers=""):
        """A whole configuration with one engine."""
        return f"""{zone} {self.lua()}
    kv_router_worker main w1 {engine} {worker}; {more}
    init_by_lua_block {{ {NEW % settings} }}
    upstream engines {{
        server 0.0.0.1;
        balancer_by_lua_block {{ router:balance() }}
    }}
    upstream bare {{ server 0.0.0.1; }}
    server {{
        listen 127.0.0.1:{self.port};
        location /v1/ {{
            access_by_lua_block {{ router:access() }}
            proxy_pass http://engines;
            proxy_connect_timeout 1s;
        }}
        location /kv/ {{ kv_router_api main; }}
        location = /status {{ kv_router_status main; }}
        {places}
    }}
    server {{ listen 127.0.0.1:ENGINE; {answers} }}"""

    def complete(self, path="/v1/completions", body=COMPLETION % "demo",
                 times=3):
        """The same request, several times; the status of the last one."""
        for _ in range(times):
            status = self.ask("POST", path, body)[0]
        return status


def log(process):
    """All that a process has said."""
    return process.log.read_text(errors="replace")


# -------------------------------------------- makers, for rows of the table

def conf(text, zone=ZONE, **options):
    """nginx -t of a zone, and what is behind it."""
    return lambda bench: bench.tested(f"{zone}\n    {text}", **options)


def place(text):
    """nginx -t of a location's text."""
    return conf("server { listen 127.0.0.1:PORT; location /kv/ { %s } }" % text)


def new(settings, *files):
    """The start of nginx with these settings of kv.new()."""
    return lambda bench: bench.refused(NEW % settings, files)


def pick(lines):
    """kv-router-check of a policy with that pick()."""
    def made(bench):
        bench.write("acme/premium.lua", "\n".join((
            "local _M = {}", "function _M.new() return _M end",
            "function _M:pick(ctx)", f"    {lines}", "end", "return _M", "")))
        level, text = bench.checked("--lua-path", f"{bench.path}/?.lua",
                                    "acme.premium")
        said = [line.strip() for line in text.splitlines()]
        text = said[0]
        if "acme/premium.lua" not in text:
            text += " " + next(line for line in said
                               if "acme/premium.lua" in line)
        return level, bench.shown(text)
    return made


def api(parameters, method, path, **headers):
    """A call of an API with those parameters."""
    def made(bench):
        bench.write("token", TOKEN + "\n")
        with bench.running(f"""{ZONE}
    server {{
        listen 127.0.0.1:PORT;
        location /kv/ {{ kv_router_api main {parameters}; }}
    }}"""):
            status, body = bench.ask(method, f"/kv/{path}", **headers)
        return f"status {status}", bench.shown(json.loads(body)["error"])
    return made


def option(*options):
    """kv-relay refuses these options."""
    def made(bench):
        done = bench.done(RELAY, "--worker", "w1", "--events",
                          "tcp://127.0.0.1:1", *options)
        (text,) = done.stderr.splitlines()
        return f"exit status {done.returncode}", bench.shown(text)
    return made


def registered(request=False, worker="w2", **fields):
    """nginx hears of a worker that is registered with those fields; perhaps
    there are requests."""
    def made(bench):
        url = bench.redis()
        bench.stage.redis.sadd("kv-workers", worker)
        bench.stage.redis.hset(f"kv-worker:{{{worker}}}", mapping={
            "address": "0.0.0.1:10", **fields})
        with bench.running(bench.router(
                zone=ZONE.replace(";", " served=qwen3;"),
                more=f"kv_router_redis main {url};")) as nginx:
            if request:
                def known():
                    bench.complete(times=2)
                    return worker in bench.ask("GET", "/kv/workers")[1]
                wait_until("the worker is there", known, PATIENCE)
                bench.complete()
                return bench.said(nginx, 'kv_router zone "main": the workers')
            return bench.said(nginx, 'kv_router zone "main": registration')
    return made


def missing_engine(path, settings="", more=""):
    """An engine that has nothing but 404 for nginx's own questions."""
    def made(bench):
        with bench.running(bench.router(
                settings, "127.0.0.1:ENGINE", more=more)) as nginx:
            return bench.said(nginx, 'kv_router zone "main": (?:worker "w1" is'
                              f' down|the load).*{path}')
    return made


# ------------------------------------------------------------ with nginx -t

def short_token(bench):
    """A token of six characters, which is not repeated."""
    bench.write("short", "secret\n")
    level, text = place("kv_router_api main token_file=short;")(bench)
    assert "secret" not in text, text
    return level, text


def no_lua_files(bench):
    """A path with what nginx's Lua needs, and without ours."""
    lua = bench.path / "core"
    lua.mkdir(exist_ok=True)
    for name in ("resty/core", "resty/lrucache", "ngx"):
        for file in Path("/usr/share/lua/5.1").glob(f"{name}*"):
            (lua / name).parent.mkdir(exist_ok=True)
            (lua / name).with_name(file.name).symlink_to(file)
    return bench.refused(NEW % "", path=f'lua_package_path "{lua}/?.lua";')


def no_core_files(bench):
    """A path without what nginx's Lua needs."""
    done = bench.done("nginx", "-c", bench.conf(
        f'{ZONE} lua_package_path "{ROOT}/lua/?.lua";'))
    assert done.returncode != 0, done.stderr
    level, text = re.search(r"\[(\w+)\] \S+ (failed to load .*)",
                            done.stderr).groups()
    return level, bench.shown(text)


# ----------------------------------------------------------------- requests

def no_access(bench):
    """Once for each request."""
    with bench.running(bench.router(places="""location /plain/ {
            proxy_pass http://engines; }""")) as nginx:
        assert bench.complete("/plain/", times=1) == 502
        return bench.said(nginx, 'kv_router: zone "main": no peer')


def local_router(bench):
    """A router that only init_by_lua has."""
    with bench.running(f"""{ZONE} {bench.lua()}
    init_by_lua_block {{ local {NEW % ''} }}
    server {{
        listen 127.0.0.1:PORT;
        location / {{ access_by_lua_block {{ router:access() }} }}
    }}""") as nginx:
        assert bench.complete(times=1) == 500
        return bench.said(nginx, "lua entry thread aborted")


def past(target):
    """Requests that go elsewhere, or nowhere."""
    def made(bench):
        with bench.running(bench.router(places="""
        location /past/ {
            access_by_lua_block { router:access() }
            proxy_pass http://%s;
        }""" % target)) as nginx:
            bench.complete("/past/", IDS)
            return bench.said(nginx, 'kv_router zone "main": worker "w1" at')
    return made


def unknown_model(bench):
    """A model that no worker has."""
    with bench.running(bench.router(worker="model=llama")) as nginx:
        bench.complete()
        return bench.said(nginx, 'kv_router: zone "main": no worker serves')


def no_tokenizer(bench):
    """Events will come, and texts have no token ids."""
    with bench.running(bench.router(
            'tokenizer = "none"',
            more=f"kv_router_redis main {bench.redis()};")) as nginx:
        return bench.said(nginx, 'kv_router: zone "main": tokenizer')


def no_tokens(settings):
    """Texts to a worker with events, whose token ids nobody makes."""
    def made(bench):
        with bench.running(bench.router(
                settings, "127.0.0.1:ENGINE", worker="events=on",
                zone=ZONE.replace(";", " block_size=4;"))) as nginx:
            status, body = bench.ask("POST", "/kv/events", json.dumps({
                "worker_id": "w1", "event": {
                    "event_id": 1, "dp_rank": 0, "data": {"stored": {
                        "parent_hash": None, "blocks": [{
                            "block_hash": 101, "tokens_hash": 201}]}}}}))
            assert status == 200, body
            bench.complete(times=1)
            return bench.said(
                nginx, r'kv_router: zone "main": \d+ of \d+ requests')
    return made


def no_template(bench):
    """A model without a chat template, and chats."""
    shutil.copytree(MODEL, bench.path / "model")
    file = bench.path / "model/router.json"
    words = json.loads(file.read_text())
    del words["files"][words["templates"].pop("default")]
    words["conversations"] = []
    file.write_text(json.dumps(words))
    with bench.running(bench.router(
            'tokenizer = "local"', worker="engine=vllm events=on", more=
            "kv_router_model main PATH/model engine=vllm;")) as nginx:
        bench.complete("/v1/chat/completions", json.dumps({
            "messages": [{"role": "user", "content": "a"}]}))
        return bench.said(nginx, 'kv_router: zone "main": the model has no')


def no_key(bench):
    """Engines that want a key."""
    with bench.running(bench.router(
            'tokenizer = "auto"', "127.0.0.1:ENGINE",
            answers="location = /v1/models { return 401; }")) as nginx:
        return bench.said(nginx, 'kv_router zone "main": worker "w1" was not')


def engine_down(bench):
    """The engine's port is closed."""
    with bench.running(bench.router(engine=f"127.0.0.1:{bench.dead}")) as nginx:
        assert bench.complete(times=5) == 502
        return bench.said(nginx, 'kv_router zone "main": worker "w1" is out')


def all_down(bench):
    """What the sample's error pages say to the client."""
    sample = (ROOT / "conf/nginx.conf").read_text()
    pages = re.search(r"( +error_page .*?})\n\n +# The HTTP API", sample,
                      re.S)[1]
    with bench.running(bench.router(engine=f"127.0.0.1:{bench.dead}",
                                    places=pages)):
        status, body = bench.ask("POST", "/v1/completions", COMPLETION % "demo")
    assert json.loads(body)["error"]["code"], body
    return f"status {status}", body.strip()


# One process hangs, for good, and takes no time of the processor.  It does so
# when it has run for a while: the others must have seen that it lives.
HANGS = """
local begun

return { new = function() return { pick = function()
    begun = begun or ngx.now()
    if ngx.now() - begun > 0.3 and not io.open("PATH/hung") then
        io.open("PATH/hung", "w"):close()
        while true do os.execute("sleep 0.2") end
    end
    return 1
end } end }
"""


def hangs(bench):
    """An endless loop in one of two processes."""
    bench.write("acme/hangs.lua", HANGS.replace("PATH", str(bench.path)))
    with contextlib.ExitStack() as stack, bench.running(bench.router(
            'policy = "acme.hangs"', zone=ZONE.replace("8m", "16m")),
            processes=2) as nginx:
        def hung():
            client = stack.enter_context(socket.create_connection(
                ("127.0.0.1", bench.port)))
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
                           b"Content-Length: %d\r\n\r\n%s" % (
                               len(IDS), IDS.encode()))
            return (bench.path / "hung").exists()
        wait_until("a process hangs", hung, PATIENCE)
        told = bench.said(nginx, r'kv_router zone "main": process \d+')
        pid = re.search(r"process (\d+) hangs", log(nginx))[1]
        os.kill(int(pid), signal.SIGKILL)           # the remedy
        return told


# -------------------------------------------------------------------- Redis

def redis_down(bench):
    """Nobody listens there."""
    with bench.running(f"{ZONE} kv_router_redis main "
                       f"redis://127.0.0.1:{bench.dead};") as nginx:
        return bench.said(nginx, "connect.. failed")


def password(bench):
    """A password for a Redis that has none."""
    url = bench.redis().replace("://", "://:secret123@")
    with bench.running(f"{ZONE} kv_router_redis main {url};") as nginx:
        level, text = bench.said(nginx, "redis refused the password")
        assert "secret123" not in log(nginx), log(nginx)
        return level, text


@contextlib.contextmanager
def heard(bench, database=0):
    """nginx, a relay with that database, and its engine."""
    url = bench.redis()
    engine = relays.Engine()
    with contextlib.closing(engine), bench.relay(
            "--events", f"tcp://127.0.0.1:{engine.port}", "--address", NOBODY,
            redis=f"{url}/{database}") as relay:
        engine.wait_subscribed()
        engine.send(relays.stored([9], None))
        with bench.running(bench.router(
                more=f"kv_router_redis main {url};",
                zone=ZONE.replace(";", " stale=2s;"))) as nginx:
            wait_until("nginx is subscribed", lambda: "subscribed to"
                       in log(nginx), PATIENCE)
            yield nginx, relay, engine


def worker(bench):
    """What the status says of the worker w1."""
    return json.loads(bench.ask("GET", "/status")[1])["workers"][0]


def other_database(bench):
    """The relay's URL ends with /1."""
    with heard(bench, 1) as (nginx, _, engine):
        engine.send(relays.stored([1], None))
        return bench.said(nginx, 'kv_router zone "main": messages of')


def relay_dies(bench):
    """It is killed."""
    with heard(bench) as (nginx, relay, _):
        wait_until("w1 is heard", lambda: worker(bench)["counters"][
            "heartbeats"], PATIENCE)
        relay.signal(signal.SIGKILL)
        return bench.said(nginx, 'kv_router zone "main": nothing was heard')


def redis_dies(bench):
    """What the status says then."""
    with heard(bench):
        wait_until("w1 is heard", lambda: worker(bench)["counters"][
            "heartbeats"], PATIENCE)
        bench.stage.stop_redis()
        wait_until("w1 is degraded", lambda: worker(bench)["confidence"]
                   == "DEGRADED", PATIENCE)
        said = worker(bench)
    return said["confidence"], f"reason {said['reason']}"


# -------------------------------------------------------------------- relay

def engine_away(bench):
    """Nobody listens there."""
    bench.redis()
    with bench.relay("--events", f"tcp://127.0.0.1:{bench.dead}") as relay:
        return bench.said(relay, 'msg="engine not reached')


def redis_away(bench):
    """Nobody listens there."""
    with bench.relay("--events", "tcp://127.0.0.1:1", redis=
                     f"redis://127.0.0.1:{bench.dead}") as relay:
        return bench.said(relay, 'msg="redis is not there')


def other_block_size(bench):
    """The engine's blocks have 24 tokens, the relay's 16."""
    bench.redis()
    engine = relays.Engine()
    with contextlib.closing(engine), bench.relay(
            "--events", f"tcp://127.0.0.1:{engine.port}") as relay:
        engine.wait_subscribed()
        for handle in (1, 2):
            engine.send(relays.stored([handle], None, size=24))
        return bench.said(relay, 'msg="[^"]*refused')


def same_worker(bench):
    """A second engine's relay with the first one's --worker."""
    bench.redis()
    engine = relays.Engine()
    events = "--events", f"tcp://127.0.0.1:{engine.port}"
    with contextlib.closing(engine), bench.relay(
            *events, "--address", "10.0.0.1:8000") as first:
        wait_until("the lease", lambda: "lease taken" in log(first), PATIENCE)
        with bench.relay(*events, "--address", "10.0.0.2:8000") as second:
            return bench.said(second, 'msg="another engine')
