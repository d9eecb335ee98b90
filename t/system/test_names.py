#!/usr/bin/python3
"""Workers with host names, resolved by nginx's resolver; TAP."""

import json
import os
import random
import re
import signal
import sys

from names import NO_NAME, NO_SERVER, Names, register
from stage import (BLOCK_SIZE, PATIENCE, PROCESSES, SEED, Stage, free_port,
                   wait_until)
from traffic import Engines, Loop
from wires import Wire

FIRST, SECOND, THIRD = "127.0.0.2", "127.0.0.3", "127.0.0.4"


class Play:
    """Two engines behind three addresses of one port: w1 at the first and
    the third, w2 at the second."""

    def __init__(self, stage, loop, names):
        self.stage = stage
        self.names = names
        self.rng = random.Random(SEED)
        self.engines = Engines(loop, ("w1", "w2"))
        self.port = free_port()
        stage.start_redis()
        self.start()

    def start(self, resolver=True):
        """A new nginx, with the resolver or without one."""
        self.stage.stop_nginx()
        self.stage.start_nginx({}, "weighted", self.stage.redis_url() + (
            f"; resolver 127.0.0.1:{self.names.port}; resolver_timeout 1s"
            if resolver else ""))
        self.stage.wait_subscribed()

    def wires(self):
        """What brings requests from the addresses to the engines."""
        ports = [int(self.engines.addresses[worker].split(":")[1])
                 for worker in ("w1", "w2", "w1")]
        return [Wire(host, self.port, port) for host, port in zip(
            (FIRST, SECOND, THIRD), ports)]

    def put(self, worker, host):
        """The API has a worker of this host, new or not."""
        self.ask_api(worker, f"{host}:{self.port}", 200, 201)

    def ask_api(self, worker, address, *statuses):
        """The API's answer to a worker of this address."""
        try:
            answer = self.stage.call("PUT", f"/kv/workers/{worker}",
                                     {"address": address})
        except OSError as err:
            assert any(f" {status} " in str(err) for status in statuses), err
            return str(err)
        assert 200 in statuses, answer
        return answer

    def resolved(self, worker):
        """What nginx says of a worker's name."""
        return self.stage.workers()[worker]["resolved"]

    def wait(self, worker, host, reason="", addresses=None):
        """Waits until a worker's name is that, in all processes."""
        address = host and f"{host}:{self.port}"

        def is_it():
            now = self.resolved(worker)
            return (now["address"], now["reason"]) == (address, reason) and (
                addresses is None or now["addresses"] == addresses)

        try:
            wait_until(f"{worker} is {address} {reason}", is_it, PATIENCE)
        except Exception as err:
            raise AssertionError(f"{err}: {self.resolved(worker)}") from err

    def answers(self, count=10 * PROCESSES):
        """Which engines answer so many requests; None: no worker is there.
        Each goes by a connection of its own, to any process."""
        return {self.ask() for _ in range(count)}

    def ask(self):
        """Which engine answers a request; None."""
        prompt = [self.rng.randrange(1 << 17) for _ in range(2 * BLOCK_SIZE)]
        try:
            return json.loads(self.stage.call(
                "POST", "/v1/completions", {"prompt": prompt}))["worker"]
        except OSError as err:
            assert " 503 " in str(err), err
            return None

    def said(self, level, text):
        """How often the log says it."""
        return len(re.findall(f"\\[{level}\\].*{text}", self.stage.log()))

    def asked_again(self, name="one.test", times=2):
        """Waits until the resolver was asked for a name again."""
        enough = self.names.asked.count(name) + times
        wait_until(f"{name} is asked for", lambda: self.names.asked.count(
            name) >= enough, PATIENCE)


def a_name_is_resolved():
    """the API's name is resolved, and every process routes to it"""
    at.names.addresses["one.test"] = FIRST
    at.put("named", "one.test")
    at.wait("named", FIRST, addresses=1)
    assert at.answers() == {"w1"}, at.answers()
    worker = at.stage.workers()["named"]
    assert worker["address"] == f"one.test:{at.port}", worker
    assert at.said("notice", f'"one.test:{at.port}" is "{FIRST}:{at.port}"') \
        == 1, at.stage.log()


def a_name_moves():
    """when the TTL ends the name is asked for again, and the worker moves"""
    at.names.addresses["one.test"] = SECOND
    at.wait("named", SECOND)
    assert at.answers() == {"w2"}, at.answers()


def a_name_that_is_gone_gets_nothing():
    """a name that no longer exists: no requests, said once, with its reason"""
    at.names.addresses["one.test"] = NO_NAME
    at.wait("named", "", "Host not found")
    assert at.answers() == {None}, at.answers()
    at.asked_again()
    assert at.said("error", r"could not be resolved \(Host not found") == 1, \
        at.stage.log()


def a_name_comes_back():
    """it is there again, and so is the worker"""
    at.names.addresses["one.test"] = FIRST
    at.wait("named", FIRST)
    assert at.answers() == {"w1"}, at.answers()


def a_dead_name_server_takes_nobody_out():
    """a name server that fails or is silent: the last address is used"""
    at.names.addresses["one.test"] = NO_SERVER
    at.wait("named", FIRST, "Server failure")
    assert at.answers() == {"w1"}, at.answers()
    at.names.addresses["one.test"] = None
    at.wait("named", FIRST, "Operation timed out")
    assert at.answers() == {"w1"}, at.answers()
    assert at.said("error", f'its last address "{FIRST}:{at.port}" is used') \
        == 2, at.stage.log()
    at.names.addresses["one.test"] = FIRST
    at.wait("named", FIRST)


def one_of_several_addresses_is_used():
    """of several addresses the lowest one is used, IPv4 first, and stays"""
    at.names.addresses["many.test"] = ["::1", THIRD, SECOND]
    at.put("many", "many.test")
    at.wait("many", SECOND, addresses=3)
    assert at.said("warn", "has 3 addresses, only") == 1, at.stage.log()
    at.names.addresses["many.test"] = [FIRST, SECOND]
    at.wait("many", SECOND, addresses=2)
    at.names.addresses["many.test"] = [THIRD, FIRST]
    at.wait("many", FIRST, addresses=2)
    at.names.addresses["many.test"] = ["::1"]
    wait_until("IPv6 is used", lambda: at.resolved("many")["address"]
               == f"[::1]:{at.port}", PATIENCE)
    at.stage.call("DELETE", "/kv/workers/many")


def a_worker_gets_another_name():
    """an address that the API changes: the old name's result counts no more"""
    at.names.addresses["slow.test"] = None
    at.put("named", "slow.test")
    at.wait("named", "", "Operation timed out")
    assert at.answers() == {None}, at.answers()
    at.names.addresses["two.test"] = SECOND
    at.put("named", "two.test")
    at.wait("named", SECOND)
    assert at.answers() == {"w2"}, at.answers()
    at.stage.call("PUT", "/kv/workers/named",
                  {"address": at.engines.addresses["w1"]})
    assert at.resolved("named") is None, at.resolved("named")
    assert at.answers() == {"w1"}, at.answers()
    at.stage.call("DELETE", "/kv/workers/named")


def redis_gives_names():
    """a name from Redis is resolved as well; others live with it"""
    at.names.addresses["redis.test"] = FIRST
    at.names.addresses["gone.test"] = NO_NAME
    register(at.stage, "r1", f"redis.test:{at.port}")
    register(at.stage, "r2", f"gone.test:{at.port}")
    wait_until("both are there", lambda: {"r1", "r2"}
               <= set(at.stage.workers()), PATIENCE)
    at.wait("r1", FIRST)
    at.wait("r2", "", "Host not found")
    assert at.answers() == {"w1"}, at.answers()


def many_names_are_resolved():
    """more names than are resolved at a time; silent ones hold none up long"""
    for i in range(40):
        name = f"n{i}.test"
        at.names.addresses[name] = None if i % 2 else THIRD
        register(at.stage, f"n{i}", f"{name}:{at.port}")
    wait_until("all are there", lambda: {f"n{i}" for i in range(40)}
               <= set(at.stage.workers()), PATIENCE)
    for i in range(40):
        if i % 2:
            at.wait(f"n{i}", "", "Operation timed out")
        else:
            at.wait(f"n{i}", THIRD)
    counts = at.stage.status()["names"]
    assert counts["asked"] > 40 and counts["failed"] >= 20, counts


def what_was_resolved_outlives_processes():
    """a reload and killed processes lose no address; names are asked on"""
    at.stage.reload()
    assert at.answers() == {"w1"}, at.answers()
    for pid in at.stage.children():
        os.kill(pid, signal.SIGKILL)
    wait_until("it answers", lambda: safely(at.ask) == "w1", PATIENCE)
    at.names.addresses["redis.test"] = SECOND
    at.wait("r1", SECOND)


def schemes_are_refused():
    """an address with a scheme is refused in words: API, Redis, file"""
    words = "an address has no scheme, as all workers of a zone have the scheme"
    err = at.ask_api("tls", "https://10.0.0.1:443", 400)
    assert "https://10.0.0.1:443" in err and "of worker" in err, err
    assert words in err, err
    register(at.stage, "r3", "http://10.0.0.1:80")
    wait_until("it is said", lambda: at.said("error", words), PATIENCE)
    assert at.said("error", f'worker "r3" refused: {words} of "proxy_pass": '
                   'write "host:port" alone, it is "http://10.0.0.1:80"') \
        == 1, at.stage.log()
    assert "r3" not in at.stage.workers()
    at.stage.refused_reload(
        f'invalid address "https://10.0.0.1:443" of worker "w": {words}',
        "    lua_package_path",
        "    kv_router_worker main w https://10.0.0.1:443;\n"
        "    lua_package_path")


def no_resolver_is_said():
    """without a resolver a name is refused in words"""
    at.start(resolver=False)
    words = "a host name needs the directive"
    err = at.ask_api("named", "one.test:80", 400)
    assert words in err and "resolver" in err, err
    wait_until("it is said",
               lambda: at.said("error", f'"r1" refused: {words}'), PATIENCE)
    assert "r1" not in at.stage.workers()


def safely(call):
    """What a call returns; None while nginx's processes die."""
    try:
        return call()
    except (OSError, AssertionError, ValueError):
        return None


at = None                       # the Play, set by main()


def main():
    global at
    with Stage("names") as stage, Loop() as loop, Names({}) as names:
        at = Play(stage, loop, names)
        wires = at.wires()
        for wire in wires:
            wire.__enter__()
        return stage.run([
            a_name_is_resolved,
            a_name_moves,
            a_name_that_is_gone_gets_nothing,
            a_name_comes_back,
            a_dead_name_server_takes_nobody_out,
            one_of_several_addresses_is_used,
            a_worker_gets_another_name,
            redis_gives_names,
            many_names_are_resolved,
            what_was_resolved_outlives_processes,
            schemes_are_refused,
            no_resolver_is_said])


if __name__ == "__main__":
    sys.exit(main())
