#!/usr/bin/python3
"""Each address of a host name is a worker, by dnsmasq, without Redis and
relays; TAP."""

import contextlib
import json
import os
import random
import re
import signal
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dns import Dns
from names import NO_SERVER, register
from stage import BLOCK_SIZE, PATIENCE, SEED, Stage, free_port, \
    wait_until

ROOM = 600                      # max_workers
MANY = [f"127.0.{2 + i // 250}.{1 + i % 250}" for i in range(700)]
A, B, C, D = (f"127.0.1.{i}" for i in range(1, 5))
KILLS = 12


class Engine(BaseHTTPRequestHandler):
    """All engines: each answers with the address that it was asked at."""

    protocol_version = "HTTP/1.1"
    waits = threading.Event()       # unset: requests with "hold" wait
    held = threading.Semaphore(0)   # released when one waits

    def do_POST(self):
        """A completion."""
        body = json.loads(self.rfile.read(int(
            self.headers["content-length"])))
        if body.get("hold"):
            Engine.held.release()
            Engine.waits.wait(PATIENCE)
        answer = json.dumps({
            "engine": self.connection.getsockname()[0],
            "choices": [{"text": "x"}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Nothing."""


class Server(ThreadingHTTPServer):
    """At all addresses of a family."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, family, host, port):
        self.address_family = family
        super().__init__((host, port), Engine)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def server_bind(self):
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()


class Fleet(Stage):
    """nginx with the resolver, and kv_router_worker lines of a test."""

    def __init__(self, name):
        super().__init__(name, f"max_workers={ROOM}")
        self.lines = ""
        self.with_redis = False
        self.dns_port = 0

    def _write_conf(self, engines, policy, url, log):
        super()._write_conf(engines, policy, url, log)
        path = self.directory / "nginx.conf"
        conf = path.read_text()
        if not self.with_redis:
            conf = re.sub(r" *kv_router_redis .*\n", "", conf)
        conf = conf.replace('tokenizer = "remote"', 'tokenizer = "none"')
        path.write_text(conf.replace("    lua_package_path", f"""
    resolver          127.0.0.1:{self.dns_port};
    resolver_timeout  2s;
{self.lines}    # of the test

    lua_package_path"""))

    def change(self, lines):
        """A reload with other lines."""
        path = self.directory / "nginx.conf"
        text = path.read_text()
        before = f"{self.lines}    # of the test"
        assert before in text, text
        path.write_text(text.replace(before, f"{lines}    # of the test"))
        self.lines = lines
        self.reload()

    def ids(self):
        """The ids of the workers that have an address."""
        return {worker for worker, is_now in self.workers().items()
                if is_now["address"]}


class Play:
    """The engines, the names, and what tests ask of nginx."""

    def __init__(self, stage, dns):
        self.stage, self.dns = stage, dns
        self.rng = random.Random(SEED)
        self.port = free_port()
        self.servers = [Server(socket.AF_INET, "0.0.0.0", self.port),
                        Server(socket.AF_INET6, "::1", self.port)]
        stage.dns_port = dns.port
        stage.lines = self.name("pool")

    def name(self, name, rest="", suffix="fleet"):
        """The line of a name."""
        return (f"    kv_router_worker  main {name}.{suffix}:{self.port} "
                f"resolve=all{rest and ' ' + rest};\n")

    def wait(self, *addresses, but=()):
        """Waits until these are the workers, and those that have ids."""
        want = {f"{address}:{self.port}" for address in addresses} | set(but)
        try:
            wait_until(f"{len(want)} workers",
                       lambda: self.stage.ids() == want, PATIENCE)
        except Exception as err:
            has = self.stage.ids()
            raise AssertionError(f"{err}: too many: {sorted(has - want)[:9]}, "
                                 f"missing: {sorted(want - has)[:9]}") from err

    def pool(self, *addresses):
        """The name has these addresses; waits for them."""
        self.dns.set(pool=addresses)
        self.wait(*addresses)

    def prompt(self):
        """A prompt of token ids that nobody has."""
        return [self.rng.randrange(1 << 17) for _ in range(8 * BLOCK_SIZE)]

    def ask(self, prompt=None, **more):
        """The address of the engine that answers; None: there is none."""
        try:
            return json.loads(self.stage.call("POST", "/v1/completions", {
                "prompt": prompt or self.prompt(), **more}))["engine"]
        except OSError as err:
            assert " 503 " in str(err), err
            return None

    def wait_answers(self, *addresses):
        """Requests go to all of these, and to no other."""
        seen = set()

        def all_seen():
            seen.add(self.ask())
            return seen >= set(addresses)

        wait_until(f"{addresses} answer", all_seen, PATIENCE)
        assert seen == set(addresses), seen

    def held(self, prompt):
        """{worker: blocks} that are estimated to be cached of a prompt."""
        answer = json.loads(self.stage.persist(
            "POST", "/kv/query?estimated=1", {"tokens": prompt}))
        return {score["worker_id"]: score["device"]
                for score in answer["scores"] if score["device"]}

    def stored(self, address=None):
        """A prompt of which an engine, that one, has all."""
        for _ in range(500):
            prompt = self.prompt()
            engine = self.ask(prompt)
            if address in (None, engine):
                wait_until("it is estimated", lambda: self.held(prompt) == {
                    f"{engine}:{self.port}": 8}, PATIENCE)
                return prompt, engine
        raise AssertionError(f"no request goes to {address}")

    def said(self, level, text):
        """How often the log says it."""
        return len(re.findall(rf"\[{level}\].*{text}", self.stage.log()))

    def wait_said(self, level, text, times=1):
        """Waits until the log says it so often."""
        wait_until(f"{text} is said", lambda: self.said(level, text) >= times,
                   PATIENCE)

    def wait_asked(self):
        """Waits until the name was looked up anew."""
        enough = self.stage.status()["names"]["asked"] + 2
        wait_until("it is looked up", lambda: self.stage.status()["names"][
            "asked"] >= enough, PATIENCE)

    def id(self, address):
        """The id of an address."""
        return f"{address}:{self.port}"

    def put(self, worker, address):
        """The API's worker."""
        with contextlib.suppress(OSError):      # 201
            self.stage.call("PUT", f"/kv/workers/{worker}",
                            {"address": address})

    def delete(self, worker):
        """The API's DELETE."""
        with contextlib.suppress(OSError):      # 204
            self.stage.call("DELETE", f"/kv/workers/{worker}")


def each_address_is_a_worker():
    """each address is a worker, estimated, and gets requests"""
    at.pool(A, B, C)
    for worker in at.stage.workers().values():
        assert (worker["origin"], worker["confidence"]) == (
            "name", "ESTIMATED"), worker
    at.wait_answers(A, B, C)
    assert at.said("notice", f'"pool.fleet:{at.port}" has 3 addresses, 0 of '
                   rf"registered workers: 3 workers came \({at.id(A)}, "
                   rf"{at.id(B)}, {at.id(C)}\), 0 left") == 1, at.stage.log()


def a_prompt_goes_where_it_was():
    """the same prompt again goes to the engine that had it, by the estimate"""
    for _ in range(9):
        prompt, engine = at.stored()
        assert at.ask(prompt) == engine


def addresses_come_and_go():
    """one address more, one less: so are the workers; said once each"""
    at.pool(A, B, C, D)
    at.wait_answers(A, B, C, D)
    at.pool(A, C, D)
    at.wait_answers(A, C, D)
    assert at.said("notice", rf"0 workers came, 1 left \({at.id(B)}\)") == 1, \
        at.stage.log()


def what_returns_is_empty():
    """an address that left and returns begins empty; an answer goes on"""
    prompt, engine = at.stored(A)
    before = at.stage.workers()[at.id(A)]
    Engine.waits.clear()
    answer = []
    holder = threading.Thread(target=lambda: answer.append(
        at.ask(prompt, hold=1)))
    holder.start()
    assert Engine.held.acquire(timeout=PATIENCE)
    at.pool(C, D)
    assert at.held(prompt) == {}, at.held(prompt)
    at.pool(A, C, D)
    Engine.waits.set()
    holder.join(PATIENCE)
    assert answer == [engine], answer
    assert at.held(prompt) == {}, at.held(prompt)
    after = at.stage.workers()[at.id(A)]
    for field in "usage", "echo", "estimates", "speed", "counters":
        assert after[field] != before[field] or not any(
            re.findall(r"[1-9]", json.dumps(before[field]))), (
                field, before[field], after[field])
    at.stage.check_idle()
    at.stored(A)


def all_are_gone():
    """a name that does not exist any more: no workers; and back"""
    at.pool()
    at.wait_said("error", rf'"pool.fleet:{at.port}" could not be resolved '
                 r"\(Host not found\), it has no workers")
    assert at.ask() is None
    at.pool(A, B)
    at.wait_answers(A, B)


def a_name_server_that_is_dead_takes_nobody_out():
    """dnsmasq is stopped: all stays as it was, and requests are answered"""
    prompt, engine = at.stored()
    at.dns.stop()
    at.wait_said("error", rf'"pool.fleet:{at.port}" could not be resolved '
                 r"\([^)]*\), its workers stay as they are")
    at.wait(A, B)
    assert at.ask(prompt) == engine
    at.stage.reload()
    at.wait(A, B)
    assert at.ask(prompt) == engine
    at.dns.start()
    at.pool(B, C)


def a_server_failure_takes_nobody_out():
    """an answer SERVFAIL: all stays as it was"""
    at.dns.beyond.addresses["far.beyond"] = [A, B]
    at.stage.change(at.name("far", suffix="beyond"))
    at.wait(A, B)
    at.dns.beyond.addresses["far.beyond"] = NO_SERVER
    at.wait_said("error", rf'"far.beyond:{at.port}" could not be resolved '
                 r"\(Server failure\), its workers stay as they are")
    at.wait(A, B)
    at.dns.beyond.addresses["far.beyond"] = [B, C]
    at.wait(B, C)


def a_reload_takes_the_workers_of_a_name_with_it():
    """a name that is not configured any more leaves with its workers"""
    at.dns.set(other=[D])
    at.stage.change(at.name("other"))
    at.wait(D)
    at.wait_said("notice", rf"2 workers left \({at.id(B)}, {at.id(C)}\), "
                 "their name is not in the configuration")
    at.stage.change("")
    at.wait()


def a_reload_keeps_what_is_known():
    """a name that stays keeps its workers with their blocks"""
    at.dns.set(pool=[A, B])
    at.stage.change(at.name("pool"))
    at.wait(A, B)
    prompt, engine = at.stored()
    at.stage.change(at.name("pool", "weight=2 max_active=7 model=m"))
    wait_until("the settings are new", lambda: all(
        (worker["weight"], worker["max_active"], worker["model"])
        == (2, 7, "m") for worker in at.stage.workers().values()), PATIENCE)
    assert at.held(prompt) == {at.id(engine): 8}, at.held(prompt)
    at.wait(A, B)


def two_names_may_have_an_address():
    """an address of two names is one worker, of the name that has it"""
    at.dns.set(pool=[A, B], other=[B, C])
    at.stage.change(at.name("pool") + at.name("other", "weight=3"))
    at.wait(A, B, C)
    assert at.stage.workers()[at.id(B)]["weight"] == 1
    at.dns.set(pool=[A])
    wait_until("it is the other's", lambda: at.stage.workers().get(
        at.id(B), {}).get("weight") == 3, PATIENCE)
    at.stage.change(at.name("pool"))
    at.wait(A)


def ipv6_addresses_are_workers():
    """AAAA: the id is the address without brackets"""
    at.dns.set(pool=["::1", A])
    at.wait("::1", A)
    assert at.stage.workers()[f"::1:{at.port}"]["address"] \
        == f"[::1]:{at.port}"
    at.wait_answers("::1", A)
    at.put("six", f"[0:0::0:1]:{at.port}")
    at.wait(A, but=["six"])
    at.delete("six")
    at.wait("::1", A)
    at.pool(A, B)


def a_worker_of_the_api_has_its_address():
    """an address of the API's worker is that worker, until its DELETE"""
    at.put("w1", at.id(A))
    at.wait(B, but=["w1"])
    at.wait_answers(A, B)
    at.delete("w1")
    at.wait(A, B)
    assert not at.said("warn", "have the same address"), at.stage.log()
    at.put(at.id(A), at.id(A))
    wait_until("it is the API's", lambda: at.stage.workers()[at.id(A)][
        "origin"] == "api", PATIENCE)
    at.delete(at.id(A))
    at.wait(B)


def an_answer_has_an_address_twice():
    """an address that an answer has twice is one, of the API's worker too"""
    at.dns.beyond.addresses["twice.beyond"] = [C, D, C, D, D]
    at.stage.change(at.name("twice", suffix="beyond"))
    at.wait(C, D)
    at.put("w1", at.id(C))
    at.wait(D, but=["w1"])
    at.wait_asked()
    at.wait(D, but=["w1"])
    assert at.said("notice", f'"twice.beyond:{at.port}" has 2 addresses, 1 of '
                   "registered workers") == 1, at.stage.log()
    at.delete("w1")
    at.stage.change(at.name("pool"))
    at.pool(B, C)


def a_deleted_worker_stays_out():
    """DELETE of a name's worker holds until the name leaves the address"""
    at.pool(B, C)
    at.delete(at.id(C))
    at.wait(B)
    at.dns.set(pool=[B, C, D])
    at.wait(B, D)
    at.pool(B, D)
    at.wait_asked()
    at.pool(B, C, D)


def a_worker_of_redis_has_its_address():
    """an address registered in Redis is that worker, until it leaves"""
    at.stage.stop_nginx()
    at.stage.start_redis()
    at.stage.with_redis = True
    at.stage.start_nginx({}, "kv_cost")
    at.dns.set(pool=[B, C, D])
    at.wait(B, C, D)
    register(at.stage, "e1", at.id(C))
    at.wait(B, D, but=["e1"])
    register(at.stage, at.id(B), at.id(B))
    wait_until("it is registered", lambda: at.stage.workers()[at.id(B)][
        "origin"] == "redis", PATIENCE)
    for worker in "e1", at.id(B):
        at.stage.redis.srem("kv-workers", worker)
        at.stage.redis.delete("kv-worker:{%s}" % worker)
    at.wait(B, C, D)
    wait_until("all are of the name", lambda: all(
        (worker["origin"], worker["confidence"]) == ("name", "ESTIMATED")
        for worker in at.stage.workers().values()), PATIENCE)
    at.wait_answers(B, C, D)
    at.stage.stop_redis()
    at.pool(A, B)
    at.stage.with_redis = False
    at.stage.stop_nginx()
    at.stage.start_nginx({}, "kv_cost")


def processes_are_killed():
    """kill -9 of the resolving process while addresses change: in the end \
the workers are the addresses"""
    for i in range(KILLS):
        has = at.rng.sample([A, B, C, D, *MANY[:30]], at.rng.randrange(1, 30))
        at.dns.set(pool=has)
        if i % 3:
            wait_until("it has begun", lambda: at.stage.ids() & {
                at.id(address) for address in has}, PATIENCE)
        lease = json.loads(at.stage.persist("GET", "/status"))["lease"]
        with contextlib.suppress(ProcessLookupError):
            os.kill(lease["pid"], signal.SIGKILL)
    at.wait(*has)
    at.pool(A, B)
    at.wait_answers(A, B)


def hundreds_of_addresses_are_workers():
    """500 addresses, by TCP; of more as many as fit, which is said"""
    at.pool(*MANY[:500])
    at.pool(*MANY[100:600])
    for _ in range(20):
        assert at.ask() in MANY[100:600]
    at.dns.set(pool=MANY)
    at.wait_said("warn", rf'100 of 700 addresses of "pool.fleet:{at.port}" '
                 f"are no workers: all workers are taken: {ROOM}; raise "
                 "max_workers")
    ids = at.stage.ids()
    assert len(ids) == ROOM, len(ids)
    assert ids > {at.id(address) for address in MANY[100:600]}
    at.pool(*MANY[300:])
    at.pool(A)
    assert at.said("warn", "are no workers") == 1, at.stage.log()


def counters_tell_of_lookups():
    """lookups and failures are counted, and one process looks up"""
    names = at.stage.status()["names"]
    assert names["asked"] > names["failed"], names
    at.stage.check_log("could not be resolved", r"(send|recv)\(\) failed",
                       "connect\\(\\) failed", "exited on signal 9")


def mistakes_are_refused():
    """mistakes of the line are refused in words"""
    where = "    lua_package_path"
    name = f"pool.fleet:{at.port}"
    hint = ('workers of a name have no id, write "kv_router_worker main '
            'HOST:PORT resolve=all"')
    for line, why in (
            (f"w1 {name} resolve=all",
             'invalid "w1 resolve=all": the port is missing: "host:port" was '
             f"expected; {hint}"),
            ("10.0.0.1:80 resolve=all", 'invalid "10.0.0.1:80 resolve=all": '
             f"it must be a host name of 249 bytes at most; {hint}"),
            (f"{name} resolve=all",
             f'invalid "{name} resolve=all": the zone has this name already'),
            ("a.fleet:80 resolve=some", 'invalid "a.fleet:80 resolve=some": '
             'it must be "resolve=all"'),
            ("a.fleet:80 resolve=all w1", 'invalid parameter "w1"')):
        at.stage.refused_reload(
            why, where, f"    kv_router_worker main {line};\n{where}")
    at.stage.refused_reload(
        '"resolve=all" in zone "main" needs the directive "resolver" in the '
        "http block: add it", f"resolver          127.0.0.1:{at.dns.port};")


at = None                       # the Play, set by main()


def main():
    global at
    Engine.waits.set()
    with Fleet("names-all") as stage, Dns(stage.directory) as dns:
        at = Play(stage, dns)
        stage.start_nginx({}, "kv_cost")
        return stage.run([
            each_address_is_a_worker,
            a_prompt_goes_where_it_was,
            addresses_come_and_go,
            what_returns_is_empty,
            all_are_gone,
            a_name_server_that_is_dead_takes_nobody_out,
            a_server_failure_takes_nobody_out,
            a_reload_takes_the_workers_of_a_name_with_it,
            a_reload_keeps_what_is_known,
            two_names_may_have_an_address,
            ipv6_addresses_are_workers,
            a_worker_of_the_api_has_its_address,
            an_answer_has_an_address_twice,
            a_deleted_worker_stays_out,
            a_worker_of_redis_has_its_address,
            processes_are_killed,
            hundreds_of_addresses_are_workers,
            counters_tell_of_lookups,
            mistakes_are_refused])


if __name__ == "__main__":
    sys.exit(main())
