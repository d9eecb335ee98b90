#!/usr/bin/python3
"""Whatever happens, nobody is lost in a zone's queue; TAP.

    test_queue.py [SECONDS [CLIENTS]]

Clients of several classes and tenants send more than engines can serve, and
many of them leave.  Processes of nginx are killed and stopped, engines vanish
and come, workers are deleted and put, and nginx is reloaded with other classes.
From time to time all of that stops: then each client has to have its answer,
and no entry may be left.
"""

import collections
import contextlib
import os
import random
import re
import signal
import sys
import time

import broken
import stage
from crowd import Crowd
from stage import PATIENCE, SEED, free_port, wait_until

PROCESSES = 4                   # of nginx
CLIENTS = 300
SECONDS = 16                    # of faults
CALM = 4                        # seconds before each round of them
ROUND = 8                       # seconds
QUEUE = 20000

CLASSES = (
    "interactive = { weight = 20, wait = @WAIT@ }, batch = { weight = 1, "
    "wait = @WAIT@ }, bulk = { weight = 2, wait = @WAIT@, most = 0.5 }",
    "interactive = { weight = 4, wait = @WAIT@ }, batch = { weight = 2, "
    "wait = @WAIT@ }, bulk = { weight = 2, wait = @WAIT@, most = 0.3 }, "
    "unknown = { weight = 3, wait = @WAIT@ }")

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
    worker_connections  20000;
}

http {
    client_body_temp_path  client_body;
    proxy_temp_path        proxy;
    fastcgi_temp_path      fastcgi;
    uwsgi_temp_path        uwsgi;
    scgi_temp_path         scgi;
    access_log             off;

    kv_router_zone    zone=main:64m block_size=16 max_workers=9 queue=@QUEUE@;
    kv_router_health  main max_fails=2 fail_timeout=500ms;
@WORKERS@

    lua_package_path  "@LUA@/?.lua;;";

    init_by_lua_block {
        router = require("resty.kv_router").new("main", {
            tokenizer = "none", policy = "least_loaded", max_tries = 3,
            class = "$http_x_class", tenant = "$http_x_tenant",
            classes = { @CLASSES@ },
            tenants = { ["team-a"] = { weight = 4, max_active = 3 } } })
    }

    upstream engines {
        server     0.0.0.1;
        balancer_by_lua_block { router:balance() }
        keepalive  1000;
        keepalive_requests  1000000;
    }

    proxy_http_version     1.1;
    proxy_set_header       Connection "";
    proxy_buffering        off;
    proxy_next_upstream    error timeout invalid_header non_idempotent;

    server {
        listen  127.0.0.1:@PORT@ reuseport backlog=8192;
        listen  127.0.0.1:@HTTP2_PORT@ http2 reuseport backlog=8192;

        access_by_lua_block  { router:access() }
        log_by_lua_block     { router:log() }

        location /v1/ {
            proxy_pass  http://engines;
        }

        location /watched/ {
            lua_check_client_abort  on;
            proxy_pass              http://engines;
        }
    }

    server {
        listen  127.0.0.1:@STATUS_PORT@;

        location /kv/ {
            kv_router_api  main;
        }

        location = /status {
            kv_router_status  main;
        }
    }
}
"""


class Stage(broken.Stage):
    """nginx with a queue."""

    def __init__(self, name, wait):
        super().__init__(name)
        self.clients_port, self.http2_port = free_port(), free_port()
        self.wait, self.classes = wait, 0

    def _write_conf(self, engines, policy, url, log):
        self.names = {
            "MODULE": str(stage.MODULE),
            "USER": "user  root;" if os.geteuid() == 0 else "",
            "PROCESSES": str(PROCESSES), "LOG": log, "QUEUE": str(QUEUE),
            "WORKERS": "\n".join(
                f"    kv_router_worker main {engine.name} {engine.address}"
                f"{engine.bounds()} events=on;" for engine in engines),
            "LUA": str(stage.ROOT / "lua"), "PORT": str(self.clients_port),
            "HTTP2_PORT": str(self.http2_port), "STATUS_PORT": str(self.port)}
        self.write_classes()

    def write_classes(self):
        """The next set of classes."""
        text = CONF.replace("@CLASSES@", CLASSES[self.classes]).replace(
            "@WAIT@", str(self.wait))
        self.classes = (self.classes + 1) % len(CLASSES)
        (self.directory / "nginx.conf").write_text(re.sub(
            r"@([A-Z0-9_]+)@", lambda name: self.names[name[1]], text))

    def queue(self):
        """Samples of the queue's metrics, summed up by name."""
        samples = collections.Counter()
        for line in self.persist(
                "GET", "/status?format=prometheus").decode().splitlines():
            name = re.match(r"kv_router_queue_(\w+)\{.*\} (\S+)$", line)
            if name:
                samples[name[1]] += float(name[2])
        return samples


class Soak:
    """Rounds of faults, each after a calm, with a silence in the end."""

    def __init__(self, on, crowd, seconds, clients):
        self.stage, self.crowd = on, crowd
        self.seconds, self.clients = seconds, clients
        self.rng = random.Random(SEED)
        self.killed, self.done = set(), dict.fromkeys((
            "reload", "kill", "stop", "vanish", "all", "drain", "delete"), 0)
        self.rounds, self.queue = 0, {}

    def round(self):
        """A calm, faults, and a silence."""
        self.crowd.clients(self.clients)
        time.sleep(1 + self.stage.wait / 6)
        self.crowd.calm = True
        time.sleep(CALM)
        self.crowd.calm = False
        end = time.monotonic() + ROUND
        due = list(self.done)
        self.rng.shuffle(due)
        while time.monotonic() < end or due:
            act = due.pop() if due else self.rng.choice(list(self.done))
            getattr(self, "_" + act)()
            self.done[act] += 1
            time.sleep(self.rng.random() * 0.5)
        wait_until("the old processes are gone", lambda: len(
            self.stage.children()) == PROCESSES, PATIENCE)
        self.rounds += 1
        self.crowd.clients(0)
        self._silence()

    # ---------------------------------------------------------------- faults

    def _reload(self):
        self.stage.write_classes()
        self.stage.nginx.signal(signal.SIGHUP)

    def _child(self):
        return self.rng.choice(sorted(self.stage.children()))

    def _kill(self):
        pid = self._child()
        self.killed.add(pid)
        os.kill(pid, signal.SIGKILL)

    def _stop(self):
        pid = self._child()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self.rng.choice((0.01, 0.15, 1)))
            os.kill(pid, signal.SIGCONT)

    def _vanish(self):
        engine = self.rng.choice(self.crowd.engines)
        self.crowd.vanish(engine)
        time.sleep(self.rng.random())
        self.crowd.comes(engine)

    def _all(self):
        for engine in self.crowd.engines:
            self.crowd.vanish(engine)
        time.sleep(self.rng.random())
        for engine in self.crowd.engines:
            self.crowd.comes(engine)

    def _drain(self):
        engine = self.rng.choice(self.crowd.engines[:-1])
        path = f"/kv/workers/{engine.name}/drain"
        self.stage.persist("POST", path, {"drain": True})
        time.sleep(self.rng.random() * 0.5)
        self.stage.persist("POST", path, {"drain": False})

    def _delete(self):
        """One that came by the API."""
        with contextlib.suppress(OSError):
            self.stage.put("extra", address=self.crowd.engines[-1].address,
                           max_active=1)
            time.sleep(self.rng.random() * 0.5)
        with contextlib.suppress(OSError):
            self.stage.call("DELETE", "/kv/workers/extra")

    # ---------------------------------------------------------------- checks

    def _silence(self):
        """Nobody asks: nothing is left."""
        self.stage.check_idle()
        wait_until("no entry is left", lambda: not self._left(), PATIENCE)
        self.queue = self.stage.queue()
        assert not self.crowd.wrong, self.crowd.wrong

    def _left(self):
        queue = self.stage.queue()
        return (queue["waiting"] + queue["tenant_waiting"]
                + queue["tenant_active"])

    def figures(self):
        """What happened."""
        requests = sum(self.crowd.statuses.values())
        yield f"{requests} requests: " + ", ".join(
            f"{n} {name}" for name, n in self.crowd.statuses.most_common())
        yield (f"at most {self.crowd.most} waited at once; a place was free "
               f"for {self.crowd.longest:.2f} s at most while all was well")
        yield "faults: " + ", ".join(f"{n} {name}" for name, n
                                     in self.done.items())
        yield ", ".join(f"{self.queue.get(name, 0):.0f} {what}" for name, what
                        in (("lost_wakes_total", "wakes lost"),
                            ("rebuilt_total", "locks of the dead"),
                            ("refused_total", "refused, or left")))
        yield f"total requests through a queue {requests}"


at = None                       # the Soak, set by main()


def nobody_is_lost():
    """each client has its answer, and no entry is left"""
    end = time.monotonic() + at.seconds
    while time.monotonic() < end or not at.rounds:
        at.round()


def a_reload_keeps_its_size():
    """a reload that changes the size of the queue is refused"""
    at.stage.refused_reload("can't be changed", f"queue={QUEUE}", "queue=10")


def nobody_crashed():
    """no process of nginx ended that nobody ended; no alert, no Lua error"""
    pids = "|".join(map(str, at.killed))
    allowed = (fr"worker process ({pids}) exited on signal 9"
               fr"|was locked by ({pids})\b")
    wrong = at.stage.wrong_lines(allowed)
    assert not wrong, "\n".join(wrong[:10])


def main():
    """Runs the tests."""
    global at
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    clients = int(sys.argv[2]) if len(sys.argv) > 2 else CLIENTS
    with Stage("queue", 3 if clients < 1000 else 60) as on:
        crowd = Crowd(on.clients_port, on.http2_port, SEED, on.wait)
        crowd.engine("w0", most=4)
        crowd.engine("w1", most=6)
        crowd.engine("w2", tokens=400)
        on.start_nginx(crowd.engines)
        crowd.engine("extra", most=1).used = False
        at = Soak(on, crowd, seconds, clients)
        status = on.run([nobody_is_lost, nobody_crashed,
                         a_reload_keeps_its_size])
        for line in at.figures():
            print(f"# {line}")
        return status


if __name__ == "__main__":
    sys.exit(main())
