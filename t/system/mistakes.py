"""The mistakes that people make, and how each is made with real programs.

A mistake is a function of a Bench, which makes it and returns what is then on
the screen; its docstring is what the table calls it.
"""

import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import stage as scenery
from stage import NOBODY, PATIENCE, ROOT, Process, free_port, wait_until

MODULES = "/usr/lib/nginx/modules"
RELAY = Path(os.environ.get("KVR_BUILD") or ROOT / "build") / "kv-relay"
CHECK = ROOT / "util" / "kv-router-check"
TOKEN = "6f1d0c2b9a8e7d6c5b4a"

CONF = """
%(load)s
daemon off;
worker_processes 1;
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
REDIS = "redis://127.0.0.1:6379"
LUA = 'lua_package_path "%s/lua/?.lua;%s/?.lua;;";'

# Behind a name of nginx's log line: time, level, pids, connection.
STAMP = re.compile(r"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(\w+)\] \S+: (?:\*\d+ )?")


class Bench:
    """Where mistakes are made: a directory, ports, programs."""

    def __init__(self):
        self.path = Path(tempfile.mkdtemp(prefix="kv-mistakes-"))
        self.path.chmod(0o755)
        self.port = free_port()
        self.other = free_port()
        self.counter = 0

    def close(self):
        """Leaves nothing behind."""
        shutil.rmtree(self.path, ignore_errors=True)

    def write(self, name, text):
        """A file of that name."""
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return file

    def conf(self, http_block, load=("ndk_http", "ngx_http_lua")):
        """A configuration with that in its http block."""
        modules = "".join(f"load_module {MODULES}/{name}_module.so;\n"
                          for name in load)
        return self.write("nginx.conf", CONF % {
            "load": f"{modules}load_module {scenery.MODULE};",
            "user": "root" if os.geteuid() == 0 else "nobody",
            "path": self.path, "http": http_block})

    def lua(self):
        """lua_package_path."""
        return LUA % (ROOT, self.path)

    def shown(self, text):
        """What does not depend on this machine and moment."""
        for found, shown in ((str(self.path), "/etc/nginx"),
                             (str(ROOT), "/usr/share"),
                             (f":{self.port}", ":8080"),
                             (f":{self.other}", ":6379")):
            text = text.replace(found, shown)
        return text

    # ------------------------------------------------------------ programs

    def test(self, http_block, level="emerg", **conf):
        """The lines of `nginx -t` of that level."""
        done = subprocess.run(
            ["nginx", "-t", "-c", str(self.conf(http_block, **conf))],
            capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert (done.returncode == 0) == (level == "warn"), done.stderr
        return self.shown(one(re.findall(rf"\[{level}\] (?:\d+#\d+: )?(.*)",
                                         done.stderr), done.stderr))

    def zone(self, more="", zone=ZONE):
        """nginx -t of a zone, and what is behind it."""
        return self.test(f"{zone}\n    {more}")

    def refused(self, init, files=(), path=None):
        """nginx does not start: the error of init_by_lua."""
        for name, text in files:
            self.write(name, text)
        conf = self.conf(f"""{ZONE} {path or self.lua()}
    init_by_lua_block {{ {init} }}""")
        done = subprocess.run(["nginx", "-c", str(conf)], capture_output=True,
                              text=True, timeout=PATIENCE, check=False)
        assert done.returncode != 0, done.stderr
        # of the policies and settings there are many, and there will be more
        text = re.search(r"init_by_lua\S* error: (.*?)(?:\nstack|\Z)",
                         done.stderr, re.S)
        assert text, done.stderr
        text = re.sub(r"(file '[^']*'):\n\s*", r"\1: ", text[1])
        return self.shown(re.sub(r"^init_by_lua\S*:\d+: ", "", short(text)))

    def policy(self, pick):
        """kv-router-check of a policy with that pick()."""
        self.write("acme/premium.lua", "\n".join((
            "local _M = {}", "function _M.new() return _M end",
            "function _M:pick(ctx)", f"    {pick}", "end", "return _M", "")))
        done = subprocess.run(
            [CHECK, "--lua-path", f"{self.path}/?.lua", "acme.premium"],
            capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 1, done
        lines = done.stderr.splitlines()
        text = lines[0].strip()
        if "acme/premium.lua" not in text:
            text += " " + next(line.strip() for line in lines
                               if "acme/premium.lua" in line)
        return self.shown(short(text))

    def relay(self, *options):
        """kv-relay refuses these options."""
        done = subprocess.run([RELAY, *options], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        assert done.returncode != 0, done
        return self.shown(done.stderr.splitlines()[0])

    @contextlib.contextmanager
    def running(self, http_block, name="nginx"):
        """nginx with that configuration: its process."""
        self.counter += 1
        process = Process(f"{name}-{self.counter}", [
            "nginx", "-c", str(self.conf(http_block))], self.path)
        try:
            wait_until("nginx runs", lambda: "start worker process "
                       in log(process) or process.status() is not None,
                       PATIENCE)
            process.check_alive()
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
        """Waits for a line of the log, and returns it from the match on."""
        def look():
            return re.search(pattern, log(process))
        found = wait_until(pattern, look, PATIENCE)
        line = log(process)[found.start():].split("\n", 1)[0]
        # the request that nginx adds
        return self.shown(short(line.split(", client: ")[0]))

    def router(self, settings="", engine=NOBODY, worker="", zone=ZONE):
        """A whole configuration with one engine."""
        return f"""{zone} {self.lua()}
    kv_router_worker main w1 {engine} {worker};
    init_by_lua_block {{
        router = require("resty.kv_router").new("main", {{ {settings} }})
    }}
    upstream engines {{
        server 0.0.0.1;
        balancer_by_lua_block {{ router:balance() }}
    }}
    server {{
        listen 127.0.0.1:{self.port};
        location /v1/ {{
            access_by_lua_block {{ router:access() }}
            proxy_pass http://engines;
            proxy_connect_timeout 1s;
        }}
        location /plain/ {{ proxy_pass http://engines; }}
        location /kv/ {{ kv_router_api main; }}
    }}"""

    def api(self, parameters, method, path, **headers):
        """Status and error of a call of an API with those parameters."""
        self.write("token", TOKEN + "\n")
        with self.running(f"""{ZONE}
    server {{
        listen 127.0.0.1:{self.port};
        location /kv/ {{ kv_router_api main {parameters}; }}
    }}"""):
            status, body = self.ask(method, f"/kv/{path}", **headers)
        return self.shown(f"{status}: {json.loads(body)['error']}")

    def registered(self, **fields):
        """nginx hears of a worker that is registered with those fields."""
        with scenery.Stage("mistakes") as stage:
            stage.redis_port = self.other
            stage.redis = scenery.redis.Redis(port=self.other)
            stage.start_redis()
            stage.redis.sadd("kv-workers", "w1")
            stage.redis.hset("kv-worker:{w1}", mapping={
                "address": NOBODY, **fields})
            zone = ZONE.replace(";", " model=qwen3;")
            with self.running(f"{zone} kv_router_redis main "
                              f"redis://127.0.0.1:{self.other};") as nginx:
                return self.said(nginx, 'kv_router zone "main": registration')


def log(process):
    """All that a process has said."""
    return process.log.read_text(errors="replace")


def one(lines, text):
    """The one line of them."""
    assert len(lines) == 1, text
    return lines[0]


def short(text):
    """The first line, and of long lists the beginning."""
    text = text.split("\n", 1)[0]
    text = re.sub(r"((?:There are|there are|it has) (?:[\w.]+, ){3})[\w., ]*\w",
                  r"\1...", text)
    return text


# ------------------------------------------------------------ configuration

def zone_behind(bench):
    """the zone stands behind a directive that names it"""
    return bench.zone(ZONE, zone=f"kv_router_redis main {REDIS};")


def url_without_scheme(bench):
    """the URL of Redis has no scheme"""
    return bench.zone("kv_router_redis main 127.0.0.1:6379;")


def zone_too_small(bench):
    """`zone=main:4m`"""
    return bench.zone(zone="kv_router_zone zone=main:4m;")


def zone_in_g(bench):
    """`zone=main:1g`"""
    return bench.zone(zone="kv_router_zone zone=main:1g;")


def blocksize(bench):
    """`blocksize=16`"""
    return bench.zone(zone="kv_router_zone zone=main:8m blocksize=16;")


def zone_twice(bench):
    """a zone is defined twice"""
    return bench.zone(ZONE)


def zones_share(bench):
    """two zones have one Redis, and no models"""
    return bench.test(f"""{ZONE} kv_router_zone zone=other:8m;
    kv_router_redis main {REDIS}; kv_router_redis other {REDIS};""", "warn")


def worker_twice(bench):
    """a worker is there twice"""
    return bench.zone("kv_router_worker main w1 10.0.0.1:8000;\n"
                      "kv_router_worker main w1 10.0.0.2:8000;")


def address_twice(bench):
    """two workers have one address"""
    return bench.test(f"""{ZONE} kv_router_worker main w1 10.0.0.1:8000;
    kv_router_worker main w2 10.0.0.1:8000;""", "warn")


def address_with_scheme(bench):
    """a worker's address has a scheme"""
    return bench.zone("kv_router_worker main w1 http://10.0.0.1:8000;")


def no_port(bench):
    """a worker's address has no port"""
    return bench.zone("kv_router_worker main w1 10.0.0.1;")


def no_address(bench):
    """a worker has no address"""
    return bench.zone("kv_router_worker main w1;")


def keepalive_first(bench):
    """`keepalive` stands before the balancer"""
    text = f"""{ZONE}
    upstream engines {{
        server 0.0.0.1;
        keepalive 64;
        balancer_by_lua_block {{ router:balance() }}
    }}"""
    done = subprocess.run(["nginx", "-t", "-c", str(bench.conf(text))],
                          capture_output=True, text=True, timeout=PATIENCE,
                          check=False)
    return bench.shown(one(re.findall(r'\[warn\] \d+#\d+: ("keepalive.*)',
                                      done.stderr), done.stderr))


def no_lua_module(bench):
    """the Lua module is not loaded"""
    return bench.test(bench.lua(), load=())


def open_api(bench):
    """everybody can call the HTTP API"""
    return bench.test(f"""{ZONE}
    server {{ listen {bench.port}; location /kv/ {{ kv_router_api main; }} }}""",
                      "warn")


def readonly(bench):
    """`kv_router_api main readonly`"""
    return bench.zone(f"server {{ listen 127.0.0.1:{bench.port}; location /kv/ "
                      "{ kv_router_api main readonly; } }")


def no_token_file(bench):
    """the token file is not there"""
    return bench.zone(f"server {{ listen 127.0.0.1:{bench.port}; location /kv/ "
                      "{ kv_router_api main token_file=nowhere; } }")


def short_token(bench):
    """the token is too short"""
    bench.write("short", "secret\n")
    text = bench.zone(f"server {{ listen 127.0.0.1:{bench.port}; location /kv/ "
                      "{ kv_router_api main token_file=short; } }")
    assert "secret" not in text, text
    return text


# ------------------------------------------------------------------- kv.new

NEW = 'router = require("resty.kv_router").new("main", { %s })'


def mian(bench):
    """`kv.new("mian")`"""
    return bench.refused((NEW % "").replace("main", "mian"))


def tokeniser(bench):
    """`tokeniser = "auto"`"""
    return bench.refused(NEW % 'tokeniser = "auto"')


def credit_of_text(bench):
    """`overlap_credit = "2"`"""
    return bench.refused(NEW % 'policy_conf = { overlap_credit = "2" }')


def unknown_policy(bench):
    """`policy = "kv_cots"`"""
    return bench.refused(NEW % 'policy = "kv_cots"')


def unknown_module(bench):
    """a policy's module is in no folder of `lua_package_path`"""
    return bench.refused(NEW % 'policy = "acme.premum"')


def no_new(bench):
    """a policy has no `new`"""
    return bench.refused(NEW % 'policy = "acme.nonew"',
                         [("acme/nonew.lua", "return {}\n")])


def syntax_error(bench):
    """a policy has a syntax error"""
    return bench.refused(NEW % 'policy = "acme.typo"',
                         [("acme/typo.lua", "return 1 +\n")])


def no_lua_files(bench):
    """`lua_package_path` does not have the Lua library"""
    lua = bench.path / "core"
    lua.mkdir(exist_ok=True)
    for name in ("resty/core", "resty/lrucache", "ngx"):
        for file in Path("/usr/share/lua/5.1").glob(f"{name}*"):
            (lua / name).parent.mkdir(exist_ok=True)
            (lua / name).with_name(file.name).symlink_to(file)
    return bench.refused(NEW % "", path=f'lua_package_path "{lua}/?.lua";')


# ----------------------------------------------------------------- policies

def endless(bench):
    """`while true do end` in `pick()`"""
    return bench.policy("while true do end")


def sleeps(bench):
    """`ngx.sleep(1)` in `pick()`"""
    return bench.policy("ngx.sleep(1) return 1")


def nobody(bench):
    """`return "w9999"`"""
    return bench.policy('return "w9999"')


def nothing(bench):
    """`pick()` returns nothing"""
    return bench.policy("return")


def overlap(bench):
    """`c.overlap` of a candidate"""
    return bench.policy("return ctx.candidates[1].overlap > 3 and 1 or 2")


def a_global(bench):
    """a global variable in `pick()`"""
    return bench.policy("count = 1 return 1")


# ----------------------------------------------------------------- requests

def no_access(bench):
    """a location has no `router:access()`"""
    with bench.running(bench.router()) as nginx:
        assert bench.ask("GET", "/plain/")[0] == 502
        return bench.said(nginx, 'kv_router: zone "main": no peer')


COMPLETION = '{"model": "%s", "prompt": "Once upon a time there was a fox"}'


def unknown_model(bench):
    """a request names a model that no worker has"""
    with bench.running(bench.router(worker="model=llama")) as nginx:
        bench.ask("POST", "/v1/completions", COMPLETION % "demo")
        bench.ask("POST", "/v1/completions", COMPLETION % "demo")
        text = bench.said(nginx, 'kv_router: zone "main": no worker serves')
        assert log(nginx).count("no worker serves") == 1, log(nginx)
        return text


def no_tokenizer(bench):
    """texts come, and `tokenizer = "none"`"""
    zone = "kv_router_zone zone=main:8m block_size=4;"
    with bench.running(bench.router('tokenizer = "none"', zone=zone,
                                    worker="events=on")) as nginx:
        status, body = bench.ask("POST", "/kv/events", json.dumps({
            "worker_id": "w1", "event": {"event_id": 1, "dp_rank": 0, "data": {
                "stored": {"parent_hash": None, "blocks": [{
                    "block_hash": 101, "tokens_hash": 201}]}}}}))
        assert status == 200, body
        bench.ask("POST", "/v1/completions", COMPLETION % "demo")
        return bench.said(nginx, r'kv_router: zone "main": \d+ of \d+ requests')


def engine_down(bench):
    """an engine is down"""
    with bench.running(bench.router(engine=f"127.0.0.1:{bench.other}")
                       ) as nginx:
        for _ in range(3):
            assert bench.ask("POST", "/v1/completions", COMPLETION
                             % "demo")[0] == 502
        return bench.said(nginx, 'kv_router zone "main": worker "w1" is out')


def all_down(bench):
    """all engines are down, and the configuration is that of the sample"""
    sample = (ROOT / "conf/nginx.conf").read_text()
    pages = re.search(r"( +error_page .*?})\n\n +# The HTTP API", sample,
                      re.S)[1]
    text = bench.router(engine=f"127.0.0.1:{bench.other}")
    with bench.running(text.replace("location /plain/", f"{pages}\n"
                                    "        location /plain/")):
        status, body = bench.ask("POST", "/v1/completions", COMPLETION % "demo")
    assert json.loads(body)["error"]["code"], body
    return f"{status}: {body.strip()}"


def redis_down(bench):
    """the port of Redis is wrong"""
    with bench.running(f"{ZONE} kv_router_redis main "
                       f"redis://127.0.0.1:{bench.other};") as nginx:
        return bench.said(nginx, "connect.. failed")


# ---------------------------------------------------------------------- API

def foreign_page(bench):
    """a page of another site calls the HTTP API"""
    return bench.api("", "POST", "workers/w1/drain",
                     Origin="http://evil.example")


def cross_site(bench):
    """the same, by a browser that does not send `Origin`"""
    return bench.api("", "DELETE", "workers/w1", Sec_Fetch_Site="cross-site")


def foreign_name(bench):
    """a change by a name of the API's server that is no `server_name`"""
    return bench.api("", "DELETE", "workers/w1", Host="kv.internal")


def change_by_reader(bench):
    """a change by a location that is `read_only`"""
    return bench.api("read_only", "DELETE", "workers/w1")


def no_token(bench):
    """a call without the token"""
    return bench.api("token_file=token", "GET", "workers")


# -------------------------------------------------------------------- relay

OPTIONS = ("--worker", "w1", "--redis", REDIS, "--listen", "127.0.0.1:0")


def star(bench):
    """`--events tcp://*:5557`"""
    return bench.relay(*OPTIONS, "--events", "tcp://*:5557",
                       "--block-size", "16")


def engine_away(bench):
    """the relay does not reach its engine"""
    with scenery.Stage("mistakes") as stage:
        stage.start_redis()
        relay = Process("relay", [
            RELAY, "--worker", "w1", "--redis", stage.redis_url(),
            "--listen", "127.0.0.1:0", "--block-size", "16",
            "--events", f"tcp://127.0.0.1:{bench.other}"], bench.path)
        try:
            text = bench.said(relay, "engine not reached")
        finally:
            relay.stop()
    return re.sub(r"seconds=\d+", "seconds=5", text)


def other_block_size(bench):
    """engine and relay have another block size than the zone"""
    return bench.registered(block_size="32")


def other_model(bench):
    """the relay has another model than the zone"""
    return bench.registered(model="llama", block_size="16")


def name_as_address(bench):
    """the relay registers a host name, and nginx has no resolver"""
    return bench.registered(address="engine-1:8000")


MISTAKES = (
    ("nginx -t", (
        zone_behind, url_without_scheme, zone_too_small, zone_in_g, blocksize,
        zone_twice, zones_share, worker_twice, address_twice,
        address_with_scheme, no_port, no_address, keepalive_first,
        no_lua_module, open_api, readonly, no_token_file, short_token)),
    ("the start of nginx, and kv-router-check -c", (
        mian, tokeniser, credit_of_text, unknown_policy, unknown_module, no_new,
        syntax_error, no_lua_files)),
    ("kv-router-check", (
        endless, sleeps, nobody, nothing, overlap, a_global)),
    ("nginx, while it runs", (
        no_access, unknown_model, no_tokenizer, engine_down, all_down,
        redis_down,
        other_block_size, other_model, name_as_address)),
    ("the HTTP API", (
        foreign_page, cross_site, foreign_name, change_by_reader, no_token)),
    ("kv-relay", (star, engine_away)),
)
