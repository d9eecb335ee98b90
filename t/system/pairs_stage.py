"""nginx with sanitizers and one configuration of the tests in pairs, engines
beside it, and where events come from.
"""

import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
from pathlib import Path

import stage
from pairs import ON
from pairs_bodies import Ordinary
from pairs_engine import Engine
from scripted import ask
from stage import PATIENCE, ROOT, wait_until
from traffic import Stream, le64

BUILD = Path(os.environ.get("KVR_BUILD") or ROOT / "build") / "asan"
MODULE = BUILD / "ngx_http_kv_router_module.so"
MODEL = ROOT / "t/vectors/model"
WORKERS = {"w1": "max_active=4", "w2": "max_prefill_tokens=99 weight=2",
           "p1": "role=prefill max_prefill_tokens=auto",
           "d1": "role=decode max_active=4"}
ENDED = 20.0                    # seconds until all has to be given back

PROBED = {                      # of the model's template, as a dump has it
    "merge_inline_system": True, "multimodal": False,
    "encode_adds_special": True, "thinking_toggle": "",
    "thinking_native": False, "effort_kwarg": ""}

CONF = """
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
load_module @MODULE@;

@USER@
worker_processes  @PROCESSES@;
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

    log_format  routed  '$status $kv_router_worker $upstream_addr';
    access_log  access.log routed;

    kv_router_zone    zone=main:32m @ZONE@;
    kv_router_health  main max_fails=2 fail_timeout=1s check=/health
                      interval=300ms timeout=2s;
    kv_router_scrape  main interval=500ms;
@DIRECTIVES@

    lua_package_path       "@LUA@/?.lua;;";
    lua_socket_log_errors  off;

    init_by_lua_block {
        local new = require("resty.kv_router").new

        routers = {}
@ROUTERS@

        -- its reason is what of a prompt is in flight, as this process knows

        probe = new("main", { tokenizer = "none", policy = {
            roles = { "both", "prefill", "decode" },

            pick = function(self, ctx)
                local shared = 0

                for i = 1, #ctx.candidates do
                    shared = shared + ctx.prompt_blocks
                             - ctx.candidates[i].additional_blocks
                end

                return 1, nil, tostring(shared)
            end
        } })
    }

    upstream engines {
        server     0.0.0.1;
        balancer_by_lua_block { routers[ngx.var.http_x_router]:balance() }
        keepalive  8;
    }

    server {
        listen  127.0.0.1:@PORT@ reuseport;

        client_max_body_size     1m;
        client_body_buffer_size  4k;    # long prompts are in files

        location / {
            add_header  x-route "$pid $kv_router_rung $kv_router_worker $kv_router_rung_why" always;

            lua_check_client_abort  @ABORT@;
            access_by_lua_block { routers[ngx.var.http_x_router]:access() }
            log_by_lua_block    { routers[ngx.var.http_x_router]:log() }

            proxy_pass             http://engines;
            proxy_http_version     1.1;
            proxy_set_header       Connection "";
            proxy_buffering        off;
            proxy_connect_timeout  1s;
            proxy_read_timeout     1s;
            proxy_next_upstream    error timeout invalid_header http_500
                                   http_503 non_idempotent;
        }

        location = /probe/completions {
            access_by_lua_block   { probe:access() }
            content_by_lua_block  {
                ngx.say('{"pid":', ngx.worker.pid(), ',"in_flight":',
                        ngx.var.kv_router_reason, '}')
            }
        }

        location = /prefix {
            content_by_lua_block  { @PREFIX@ }
        }

        location /kv/ {
            kv_router_api        main;
            access_by_lua_block  { routers["0"]:api() }
        }

        location = /status {
            kv_router_status  main;
        }
    }
}
"""

PREFIX = """
                local cache = require("resty.kv_router.prefix_cache")
                              .new("cache")
                local key = { 1, 2, 3, math.random(3), math.random(3) }
                local r = assert(cache:begin(key))

                assert(cache:insert(key, nil, r.node))
                cache:put(key, "value")
                cache:unlock(r.lock)
                ngx.say(cache:stats().locks)
            """


class Stage(stage.Stage):
    """One row of the configurations, and what belongs to it."""

    def __init__(self, row, seed):
        super().__init__("pairs")
        self.row = row
        self.rng = random.Random(seed)
        self.ordinary = Ordinary(self.rng)
        self.engines = {name: Engine(name, seed + n)
                        for n, name in enumerate(WORKERS)}
        self.feed = None

    def __enter__(self):
        super().__enter__()
        if self.row["events"] == "redis":
            self.start_redis()
        self.start_nginx({name: engine.address
                          for name, engine in self.engines.items()})
        if self.row["events"] != "none":
            self.feed = Feed(self)
        return self

    def __exit__(self, *exc):
        super().__exit__(*exc)
        for engine in self.engines.values():
            engine.die()

    def on(self, name):
        """Whether the row has a feature switched on."""
        return self.row[name] == ON

    def _clocked(self, name):
        """With sanitizers, which report to files."""
        if name != "nginx":
            return []
        libraries = (BUILD / "preload").read_text().split()
        report = f"log_path={self.directory}/sanitizer"
        return ["env", "LD_PRELOAD=" + " ".join(
                    [*libraries, str(BUILD / "fence.so")]),
                f"ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=32:{report}",
                f"UBSAN_OPTIONS=print_stacktrace=1:{report}"]

    def _write_conf(self, engines, policy, url, log):
        names = {
            "MODULE": str(MODULE), "LOG": log, "PORT": str(self.port),
            "USER": "user  root;" if os.geteuid() == 0 else "",
            "PROCESSES": self.row["processes"], "LUA": str(ROOT / "lua"),
            "ABORT": self.row["abort"], "ZONE": self._zone_parameters(),
            "DIRECTIVES": "\n".join("    " + line for line
                                    in self._directives(engines, url)),
            "PREFIX": PREFIX if self.on("prefix") else "",
            "ROUTERS": "\n".join(
                f'        routers["{number}"] = new("main", {options})'
                for number, options in enumerate(self._routers()))}
        (self.directory / "nginx.conf").write_text(re.sub(
            r"@([A-Z]+)@", lambda name: names[name[1]], CONF))

    def _zone_parameters(self):
        return " ".join(
            [f"index={self.row['index']}", f"shards={self.row['shards']}",
             f"eagle={self.row['eagle']}", "max_active=9", "queue=20"]
            + ["frequency=10s"] * self.on("frequency")
            + ["predict=1s"] * self.on("predict")
            + ["ttl=2s"] * self.on("ttl"))

    def _directives(self, engines, url):
        if self.row["events"] == "redis":
            yield f"kv_router_redis main {url};"
        events = ("" if self.row["events"] == "redis" else
                  f" events={'on' if self.row['events'] == 'api' else 'off'}")
        for name, address in engines.items():
            yield (f"kv_router_worker main {name} {address}{events} "
                   f"{WORKERS[name]};")
        if self.row["model"] != "none":
            yield (f"kv_router_model main {self._model()} "
                   f"turns={'2m' if self.on('turns') else 'off'};")
        if self.on("prefix"):
            yield "kv_router_prefix_cache zone=cache:2m page_size=2;"

    def _model(self):
        """The model's directory, as a dump beside that engine."""
        folder = self.directory / "model"
        shutil.copytree(MODEL, folder, dirs_exist_ok=True)
        folder.chmod(0o755)
        for file in folder.iterdir():
            file.chmod(0o644)
        about = folder / "router.json"
        router = json.loads(about.read_text())
        router["engine"] = self.row["model"]
        router["probed"] = PROBED
        about.write_text(json.dumps(router))
        return folder

    def _routers(self):
        for policy, tokenizer in self.row["routers"]:
            name, _, protocol = policy.partition("-")
            conf = ("{ protocol = '%s', local_prefill = 16, timeout = 1 }"
                    % protocol if protocol else "{}")
            yield (f"{{ policy = '{name}', policy_conf = {conf}, "
                   f"tokenizer = '{tokenizer}', tokenizer_timeout = 2, "
                   "classes = { default = { wait = 1 } }, max_tries = 3, "
                   "pin = true }")

    # ------------------------------------------------------------- processes

    def hup(self):
        """A reload; nobody waits for it."""
        self.nginx.signal(signal.SIGHUP)

    def quiet(self):
        """Waits until there is one generation of processes."""
        def one_generation():
            pids = self.children()
            return len(pids) == int(self.row["processes"]) and not any(
                b"shutting down" in Path(f"/proc/{pid}/cmdline").read_bytes()
                for pid in pids)
        wait_until("the old processes are gone", one_generation, ENDED)

    def of_each_process(self, what, good, seconds=ENDED):
        """Asks `what()`, which answers a pid and what it says, until each
        process has said something that is `good`."""
        last = {}

        def all_good():
            pid, said = what()
            last[pid] = said
            return {pid for pid in self.children()
                    if pid in last and good(last[pid])} == self.children()
        try:
            wait_until("each process", _often(all_good), seconds)
        except Exception as err:
            raise AssertionError(f"{err}: {last}") from err

    def quit(self):
        """Ends nginx as SIGQUIT does; its status."""
        self.nginx.signal(signal.SIGQUIT)
        wait_until("nginx has ended", lambda: self.nginx.status() is not None,
                   PATIENCE)
        return self.nginx.status()

    # -------------------------------------------------------------- requests

    def route(self, router, path, body):
        """A whole request: its status, and the words of x-route: the process,
        the source of its tokens, the worker, why nothing better."""
        status, headers, _ = ask(self.port, "POST", path, body,
                                 {"X-Router": str(router)})
        return status, headers.get("x-route", "- - -").split()

    def reports(self):
        """What sanitizers have said, without pictures of memory."""
        return "\n".join(
            file.read_text(errors="replace").partition("Shadow bytes")[0]
            for file in sorted(self.directory.glob("sanitizer*")))

    def routed(self):
        """Of each request that was routed, by the access log: its status,
        the last worker, and the addresses that were asked, or "-"."""
        lines = [line.split(" ", 2) for line in (
            self.directory / "access.log").read_text().splitlines()]
        return [(int(status), worker, asked)
                for status, worker, asked in lines if worker != "-"]


def _often(check):
    """The same check as some at a time: any process may answer."""
    return lambda: any(check() for _ in range(8))


class Feed:
    """Tells the index what workers have, by Redis or by the API."""

    def __init__(self, on):
        self.on, self.rng = on, on.rng
        self._ids = itertools.count(1)
        self._held = []                 # (worker, handles)
        self._chains = [self._chain(prompt) for prompt
                        in on.ordinary.prompts]
        self._streams = {}
        if on.row["events"] == "redis":
            on.wait_subscribed()
            self._streams = {name: Stream(on.redis, Worker(name), 1)
                             for name in on.engines}
        self.change()

    def _chain(self, tokens):
        """A prompt's blocks, as the zone names them."""
        said = json.loads(self.on.call("POST", "/kv/hash",
                                       {"tokens": tokens}))
        return ([int(word) for word in said["sequence"]],
                [int(word) for word in said["local"]])

    def change(self, count=6):
        """Some workers store prompts, drop ends of them, or all."""
        for _ in range(count):
            name = self.rng.choice(sorted(self.on.engines))
            what = self.rng.random()
            if what < 0.1:
                self._clear(name)
            elif what < 0.3 and self._held:
                self._remove(*self.rng.choice(self._held))
            else:
                handles, locals_ = self.rng.choice(self._chains)
                n = self.rng.randrange(1, len(handles) + 1)
                self._store(name, handles[:n], locals_[:n])
                self._held.append((name, handles[n // 2:n]))

    def beat(self):
        """Publishers of envelopes say that they are there."""
        for stream in self._streams.values():
            stream.heartbeat()

    def _store(self, name, handles, locals_):
        self._send(name, ["s", 0, 0, None, le64(handles), le64(locals_)],
                   {"stored": {"parent_hash": None, "blocks": [
                       {"block_hash": handle, "tokens_hash": local}
                       for handle, local in zip(handles, locals_)]}})

    def _remove(self, name, handles):
        self._send(name, ["r", 0, 0, le64(handles)],
                   {"removed": {"block_hashes": handles}})

    def _clear(self, name):
        self._send(name, ["c", 0], "cleared")

    def _send(self, name, event, data):
        if self._streams:
            self._streams[name].send_events([event])
            return
        with contextlib.suppress(OSError):      # a worker that has just died
            self.on.call("POST", "/kv/events", {
                "worker_id": name, "event": {
                    "event_id": next(self._ids), "data": data, "dp_rank": 0}})


class Worker:
    """Whose events a Stream sends."""

    def __init__(self, name):
        self.worker = name
