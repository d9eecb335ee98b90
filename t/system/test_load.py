#!/usr/bin/python3
"""However requests end, no load is left; TAP.

    test_load.py [SECONDS]

Clients leave at every stage of their requests; engines fail in every way, die
and return; workers drain, are deleted and put again, into the slots of others;
nginx is reloaded; processes of it are killed.  From time to time all of that
stops: every counter has to be zero then.
"""

import contextlib
import http.client
import json
import os
import random
import re
import signal
import sys
import threading
import time
from pathlib import Path

import broken
import stage
from leavers import BLOCK, ENDINGS, LONGEST, PROMPTS, Leaver, Tally
from stage import PATIENCE, SEED, free_port, wait_until

PROCESSES = 3                   # of nginx
CLIENTS = 40
REQUESTS = 500                  # at least
SECONDS = 24                    # of rounds, at least
ROUND = 12                      # seconds
ROUNDS = 20                     # at most, until everything has happened
BOTH, PREFILL, DECODE = ("w1", "w2", "w3"), ("p1", "p2"), ("d1", "d2")
GOING = ("w2", "w3", "p2", "d2")    # die and drain; the others are there
EXTRA = ("x1", "x2", "x3", "x4")    # come and go
SLOTS = 9                           # of workers: two for the four
GROWTH = 2                          # blocks that an answer may have
COUNTERS = ("active_requests", "active_prefills", "prefill_tokens",
            "decode_blocks")

DUE = ("reload", "kill", "term", "engine", "engine", "drain")   # of a round

MODES = (["ok"] * 12 + ["slow_first"] * 6 + ["slow_body"] * 16 + [
    "reset_after", "garbage", "bare", "hang", "error", "busy", "later", "cut",
    "cut", "short", "stall"])

CONF = """
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
load_module @MODULE@;

@USER@
worker_processes         @PROCESSES@;
worker_shutdown_timeout  4s;
daemon                   off;
pid                      nginx.pid;
error_log                @LOG@ notice;

events {
    worker_connections  1024;
}

http {
    client_body_temp_path  client_body;
    proxy_temp_path        proxy;
    fastcgi_temp_path      fastcgi;
    uwsgi_temp_path        uwsgi;
    scgi_temp_path         scgi;
    access_log             off;

    kv_router_zone    zone=main:32m block_size=@BLOCK@ max_workers=@SLOTS@ queue=20
                      shards=@SHARDS@ predict=1s;
    kv_router_health  main max_fails=4 fail_timeout=1s slow_start=500ms
                      check=/health interval=1s timeout=1s;
@WORKERS@

    lua_package_path  "@LUA@/?.lua;;";

    init_by_lua_block {
        local new = require("resty.kv_router").new
        local gate = { tokenizer = "none", max_tries = 3, classes = {
            default = { wait = 1.5 } } }
        local pair = { tokenizer = "none", policy = "disaggregated",
                       policy_conf = {
            local_prefill = 16, timeout = 1 } }

        router = new("main", gate)
        pairs_router = new("main", pair)

        pair.policy_conf.protocol = "sglang"
        bootstrap = new("main", pair)

        -- the reason is what of the prompt is in flight, as far as this
        -- process knows

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
        balancer_by_lua_block { router:balance() }
        keepalive  16;
    }

    proxy_cache_path  cache keys_zone=answers:1m use_temp_path=off;

    proxy_http_version     1.1;
    proxy_set_header       Connection "";
    proxy_buffering        off;
    proxy_connect_timeout  1s;
    proxy_read_timeout     1s;
    proxy_next_upstream    error timeout invalid_header http_500 http_503
                           non_idempotent;
    lingering_timeout      1s;
    lingering_time         3s;

    server {
        listen  127.0.0.1:@PORT@;
        listen  127.0.0.1:@HTTP2_PORT@ http2;

        client_max_body_size     1m;
        client_body_buffer_size  4k;    # long prompts are in files

        access_by_lua_block  { router:access() }
        log_by_lua_block     { router:log() }

        location /v1/ {
            proxy_pass  http://engines;
        }

        location /buffered/ {
            proxy_pass       http://engines;
            proxy_buffering  on;
        }

        # who leaves is noticed while Lua waits

        location /waiting/ {
            lua_check_client_abort  on;
            proxy_pass              http://engines;
        }

        location /pair/ {
            lua_check_client_abort  on;
            access_by_lua_block     { pairs_router:access() }
            proxy_pass              http://engines;
        }

        location /bootstrap/ {
            access_by_lua_block  { bootstrap:access() }
            proxy_pass           http://engines;
        }

        location /again/ {
            proxy_intercept_errors  on;
            error_page              500 502 503 504 = @again;
            proxy_pass              http://engines;
        }

        location @again {
            proxy_pass  http://engines;
        }

        location /sorry/ {
            proxy_intercept_errors  on;
            error_page              500 502 503 504 /said;
            proxy_pass              http://engines;
        }

        location /mirrored/ {
            mirror      /free;
            proxy_pass  http://engines;
        }

        location /stubborn/ {
            proxy_ignore_client_abort  on;
            proxy_pass                 http://engines;
        }

        location /cached/ {
            proxy_buffering      on;
            proxy_cache          answers;
            proxy_cache_methods  POST;
            proxy_cache_key      $request_length;
            proxy_cache_valid    1s;
            proxy_cache_lock     on;
            proxy_pass           http://engines;
        }

        location /added/ {
            auth_request          /free;
            add_before_body       /said;
            add_after_body        /said;
            addition_types        *;
            proxy_pass            http://engines;
        }

        location /lingering/ {
            lingering_close  always;
            limit_rate       200;
            proxy_pass       http://engines;
        }

        # a subrequest has no decision of its own

        location /captured/ {
            content_by_lua_block {
                ngx.print(ngx.location.capture("/free").body,
                          ngx.location.capture("/v1/completions", {
                              method = ngx.HTTP_POST, body = "{}" }).status)
            }
        }

        location /served/ {
            content_by_lua_block {
                ngx.say("a")
                ngx.flush(true)
                ngx.sleep(0.2)
                ngx.say("b")
            }
        }

        location = /probe/completions {
            access_by_lua_block   { probe:access() }
            content_by_lua_block  {
                ngx.say('{"pid":', ngx.worker.pid(), ',"shared":',
                        ngx.var.kv_router_reason, '}')
            }
        }

        location = /free {
            access_by_lua_block  { }
            return               200 "free";
        }

        location = /said {
            access_by_lua_block  { }
            return               200 "said";
        }

        location /kv/ {
            access_by_lua_block  { }
            kv_router_api        main;
        }

        location = /status {
            access_by_lua_block  { }
            kv_router_status     main;
        }
    }
}
"""


class Stage(broken.Stage):
    """nginx with a location for every way that a request may take."""

    def __init__(self, name):
        super().__init__(name)
        self.http2_port = free_port()

    def _write_conf(self, engines, policy, url, log):
        roles = {**dict.fromkeys(PREFILL, " role=prefill"),
                 **dict.fromkeys(DECODE, " role=decode")}
        names = {
            "MODULE": str(stage.MODULE),
            "USER": "user  root;" if os.geteuid() == 0 else "",
            "PROCESSES": str(PROCESSES), "LOG": log,
            "BLOCK": str(BLOCK), "SLOTS": str(SLOTS),
            "SHARDS": str(stage.SHARDS),
            "WORKERS": "\n".join(
                f"    kv_router_worker main {worker} {address}"
                f"{roles.get(worker, ' max_active=6')};"
                for worker, address in engines.items()),
            "LUA": str(stage.ROOT / "lua"), "PORT": str(self.port),
            "HTTP2_PORT": str(self.http2_port)}
        (self.directory / "nginx.conf").write_text(re.sub(
            r"@([A-Z0-9_]+)@", lambda name: names[name[1]], CONF))


    def children(self):
        """Workers only: the cache has processes of its own."""
        return {pid for pid in super().children()
                if b"nginx: worker" in title(pid)}


def title(pid):
    """What a process calls itself; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Engine(broken.Engine):
    """An engine that does with each request what it likes."""

    def __init__(self, name, seed):
        self.rng = random.Random(seed)
        super().__init__(name)
        self.pause = 0.6

    def _mixed(self, peer):
        return getattr(self, "_" + self.rng.choice(MODES))(peer)

    def _stream(self, peer, n):
        """So many pieces of several events: answers that grow by blocks."""
        peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
                     b"Content-Type: text/event-stream\r\n\r\n")
        for _ in range(n):
            events = b"data: x\n\n" * (GROWTH * BLOCK // broken.EVENTS)
            peer.sendall(b"%x\r\n%s\r\n" % (len(events), events))
            time.sleep(self.pause / broken.EVENTS)

    def _ok(self, peer):
        if self.name not in PREFILL:
            return super()._ok(peer)
        body = json.dumps({"kv_transfer_params": {"remote_host": self.name}})
        self._head(peer, "200 OK", len(body))
        peer.sendall(body.encode())
        return True


class Soak:
    """Rounds of everything at once, with a silence behind each."""

    def __init__(self, on, engines, seconds):
        self.stage, self.engines, self.seconds = on, engines, seconds
        self.rng = random.Random(SEED)
        self.tally = Tally()
        self.done = dict.fromkeys(("reload", "kill", "term", "die", "return",
                                   "drain", "put", "delete"), 0)
        self.killed = set()             # pids
        self.highest = dict.fromkeys(COUNTERS, 0)
        self.samples = self.rounds = 0
        self.wrong = []
        self._going = False

    def round(self):
        """Some seconds of it, and the silence."""
        for engine in self.engines.values():
            engine.mode = "mixed"
        clients = [Leaver(self.stage.port, self.stage.http2_port, self.tally,
                          self.rng.random()) for _ in range(CLIENTS)]
        self._going = True
        watch = threading.Thread(target=self._watch)
        for thread in [watch, *clients]:
            thread.start()
        due = list(DUE)                 # the others as chance will have it
        self.rng.shuffle(due)
        end = time.monotonic() + ROUND
        while time.monotonic() < end or due:
            time.sleep(self.rng.random() * 0.3)
            self._act(due.pop() if due and self.rng.random() < 0.5 else None)
        for client in clients:
            client.going = False
        for client in clients:
            client.join()
        self._going = False
        watch.join()
        self.rounds += 1
        self.wrong += [repr(client.wrong) for client in clients
                       if client.wrong]
        self._silence()

    def _act(self, act):
        act = act or self.rng.choice(
            ["reload", "kill", "kill", "term", "engine", "engine", "drain",
             "drain"] + ["extra"] * 10)
        with contextlib.suppress(OSError):  # the process asked was killed
            getattr(self, "_" + act)()

    # ---------------------------------------------------------------- faults

    def _reload(self):
        self.stage.nginx.signal(signal.SIGHUP)
        self.done["reload"] += 1

    def _kill(self, number=signal.SIGKILL, name="kill"):
        children = sorted(self.stage.children())
        if children:
            pid = self.rng.choice(children)
            self.killed.add(pid)
            os.kill(pid, number)
            self.done[name] += 1

    def _term(self):
        self._kill(signal.SIGTERM, "term")

    def _engine(self):
        dead = [name for name in GOING
                if self.engines[name].mode == "refuse"]
        if dead and (len(dead) == len(GOING) or self.rng.random() < 0.6):
            self.engines[self.rng.choice(dead)].mode = "mixed"
            self.done["return"] += 1
        else:
            self.engines[self.rng.choice(sorted(set(GOING) - set(dead)))].die()
            self.done["die"] += 1

    def _drain(self):
        self.stage.drain(self.rng.choice(GOING + EXTRA),
                         self.rng.random() < 0.4)
        self.done["drain"] += 1

    def _extra(self):
        worker = self.rng.choice(EXTRA)
        if self.rng.random() < 0.5:
            self.stage.call("DELETE", f"/kv/workers/{worker}")
            self.done["delete"] += 1
            return
        engine = self.rng.choice(list(self.engines.values()))
        role = ("prefill" if engine.name in PREFILL else
                "decode" if engine.name in DECODE else "both")
        with contextlib.suppress(AssertionError):   # no slot is free
            self.stage.put(worker, address=engine.address, role=role,
                           ranks=self.rng.choice((1, 1, 3)),
                           max_active=self.rng.choice((0, 2, 5)))
            self.done["put"] += 1

    # ---------------------------------------------------------------- checks

    def _watch(self):
        """No counter is above what clients have asked for."""
        while self._going:
            time.sleep(0.1)
            before = self.tally.bound()
            try:
                status = self.stage.status()
            except OSError:
                continue
            bound = max(before, self.tally.bound())
            limits = {"active_requests": bound, "active_prefills": bound,
                      "prefill_tokens": bound * LONGEST * BLOCK,
                      "decode_blocks": bound * (LONGEST + GROWTH)}
            total = dict.fromkeys(COUNTERS, 0)
            for worker in status["workers"]:
                for row in worker["load"]:
                    for name in COUNTERS:
                        total[name] += row[name]
            for name, value in total.items():
                self.highest[name] = max(self.highest[name], value)
                if not 0 <= value <= limits[name]:
                    self.wrong.append(f"{name} {value} of {limits[name]}")
            if status["index"]["load_below_zero"]:
                self.wrong.append("below zero")
            self.samples += 1

    def _silence(self):
        """Everyone is well, and nobody asks."""
        for engine in self.engines.values():
            engine.mode = "ok"
        for worker in self.stage.workers():
            self.stage.persist("POST", f"/kv/workers/{worker}/drain",
                               {"drain": False})
        wait_until("the old processes are gone", self._one_generation,
                   PATIENCE)
        self.stage.check_idle()
        self._nothing_in_flight()
        index = self.stage.status()["index"]
        assert index["load_below_zero"] == 0, index
        assert index["load_uncounted"] == 0, index
        assert index["load_reclaimed"] <= len(self.killed), index
        assert not self.wrong, self.wrong[:10]

    def _one_generation(self):
        pids = self.stage.children()
        return len(pids) == PROCESSES and not any(
            b"shutting down" in title(pid) for pid in pids)

    def _nothing_in_flight(self):
        """No process remembers a prompt."""
        for first in range(PROMPTS):
            seen = set()

            def all_seen():
                answer = self._probe([first] * (LONGEST * BLOCK))
                assert answer["shared"] == 0, answer
                seen.add(answer["pid"])
                return len(seen) == PROCESSES

            deadline = time.monotonic() + PATIENCE
            while not all_seen():
                assert time.monotonic() < deadline, seen

    def _probe(self, tokens):
        connection = http.client.HTTPConnection("127.0.0.1", self.stage.port,
                                                timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request("POST", "/probe/completions", json.dumps(
                {"prompt": tokens}))
            response = connection.getresponse()
            data = response.read()
            assert response.status == 200, data
            return json.loads(data)

    def figures(self):
        """What happened."""
        def listed(counts):
            return ", ".join(f"{n} {name}" for name, n
                             in sorted(counts.items()))
        status = self.stage.status()
        index = status["index"]
        yield f"{self.tally.total()} requests in {self.rounds} rounds"
        yield f"endings: {listed(self.tally.endings)}"
        yield f"answers: {listed(self.tally.answers)}"
        yield f"decisions: {listed(status['requests']['by_reason'])}"
        yield f"faults: {listed(self.done)}"
        yield (f"highest of {self.samples} samples: {listed(self.highest)}; "
               f"in the end {self.rounds * len(COUNTERS)} sums of zero")
        yield (f"{index['load_reclaimed']} tables of killed processes, "
               f"{index['load_below_zero']} counters below zero")
        for name, n in (("requests that ended somehow", self.tally.total()),
                        ("processes of nginx killed", self.done["kill"])):
            yield f"total {name} {n}"


at = None                       # the Soak, set by main()


def no_load_is_left():
    """when all requests have ended, however they did, every load is zero"""
    end = time.monotonic() + at.seconds
    while (time.monotonic() < end or at.rounds < 2
           or at.tally.total() < REQUESTS
           or missing() and at.rounds < ROUNDS):
        at.round()
        assert not at.wrong, at.wrong[:10]


def missing():
    """Not a test: what has not happened yet."""
    status = at.stage.status()
    workers = at.stage.workers()
    counts = {**dict.fromkeys(ENDINGS, 0), **at.tally.endings, **at.done,
              **at.highest, "retries": status["requests"]["retries"],
              "overload": status["requests"]["by_reason"]["overload"],
              "load_reclaimed": status["index"]["load_reclaimed"]}
    for names in (BOTH, PREFILL, DECODE):
        health = [workers[name]["health"] for name in names]
        counts[f"aborted by {names}"] = sum(one["aborted"] for one in health)
        counts[f"failures of {names}"] = sum(
            sum(one["failures"].values()) for one in health)
    return [name for name, count in counts.items() if not count]


def everything_happened():
    """there was every end and every fault"""
    assert not missing(), missing()


def no_probe_is_left():
    """every worker is well again: nobody waits for a probe that never ends"""
    def well():
        for path in ("/v1/completions", "/pair/completions"):
            for first in range(PROMPTS):
                connection = http.client.HTTPConnection(
                    "127.0.0.1", at.stage.port, timeout=PATIENCE)
                with contextlib.closing(connection):
                    connection.request("POST", path, json.dumps(
                        {"prompt": [first] * 64}))
                    connection.getresponse().read()
        return all(worker["health"]["state"] in ("ok", "slow_start",
                                                 "half_open")
                   for worker in at.stage.workers().values())
    wait_until("all workers are well", well, PATIENCE)
    at.stage.check_idle()


def nobody_crashed():
    """no process of nginx ended that nobody ended; no alert, no Lua error"""
    # older nginx says that sockets are left, and aborts, when a process that
    # waits for its last connections is told to end at once

    pids = "|".join(map(str, at.killed))
    allowed = (fr"worker process ({pids}) exited on signal 9"
               fr"|was locked by ({pids})\b"
               fr"|({pids})#\d+: (\*\d+ open socket|aborting)"
               r"|http2 requests not supported yet")    # by capture()
    wrong = at.stage.wrong_lines(allowed)
    assert not wrong, "\n".join(wrong[:10])


def main():
    """Runs the tests."""
    global at
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with Stage("load") as on, contextlib.ExitStack() as stack:
        engines = {name: Engine(name, SEED + n) for n, name
                   in enumerate(BOTH + PREFILL + DECODE)}
        for engine in engines.values():
            stack.callback(engine.die)
        on.start_nginx({name: engine.address
                        for name, engine in engines.items()})
        at = Soak(on, engines, seconds)
        status = on.run([no_load_is_left, everything_happened,
                         no_probe_is_left, nobody_crashed])
        for line in at.figures():
            print(f"# {line}")
        return status


if __name__ == "__main__":
    sys.exit(main())
