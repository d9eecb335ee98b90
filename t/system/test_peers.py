#!/usr/bin/python3
"""Two nginx with one Redis route as one: load, bounds, homes; TAP."""

import concurrent.futures
import contextlib
import json
import os
import signal
import sys
import time

import broken
import stage
from stage import PATIENCE, wait_until

BOUND = 6                       # max_active of w1
WORKERS = ("w1", "w2", "w3", "w4")
GONE = 4                        # seconds, longer than a peer's timeout


class Engine(broken.Engine):
    """An engine that knows how many requests it had at most."""

    def __init__(self, name):
        self.most = 0
        super().__init__(name)

    def _held(self, peer):
        self.most = max(self.most, self.open)
        return super()._held(peer)


class Stage(stage.Stage):
    """An nginx, perhaps with the Redis of another one."""

    def __init__(self, name, other=None):
        super().__init__(name)
        if other:
            self.redis_port, self.redis = other.redis_port, other.redis

    def _write_conf(self, engines, policy, url, log):
        super()._write_conf(engines, policy, url, log)
        path = self.directory / "nginx.conf"
        conf = path.read_text()
        for old, new in (
                (f"main w1 {engines['w1']};",
                 f"main w1 {engines['w1']} max_active={BOUND};"),
                ('tokenizer = "remote"', 'tokenizer = "none"')):
            assert old in conf, old
            conf = conf.replace(old, new)
        path.write_text(conf)

    def route(self):
        """POST /route with a new prompt: the chosen worker, and all
        candidates by name."""
        answer = json.loads(self.persist("POST", "/kv/route",
                                         {"prompt": new_prompt()}))
        return answer["chosen"]["worker_id"], {
            one["worker_id"]: one for one in answer["candidates"]}

    def load(self, name="w1"):
        """The load of a worker, as policies know it."""
        return self.route()[1][name]["load"]

    def homes(self):
        """The workers whose home it is; None while there are no homes."""
        found = self.route()[1]
        if not all("home" in one for one in found.values()):
            return None
        return {name for name, one in found.items() if one["home"]}

    def wait_peers(self, *states):
        """Waits until it has peers in just these states."""
        wait_until(f"the peers are {states}", lambda: [
            peer["state"] for peer in self.status()["sync"]["peers"]]
                   == list(states), PATIENCE)


a = b = None                    # set by main()
engines = {}                    # by name
pool = concurrent.futures.ThreadPoolExecutor(64)
number = 1000                   # of the last prompt


def new_prompt():
    """A prompt that begins as no other one does."""
    global number
    number += 1
    return [number] * 64


def ask(at):
    """A request; the error, if it is refused."""
    try:
        return at.call("POST", "/v1/completions",
                       {"prompt": new_prompt(), "max_tokens": 1})
    except OSError as err:
        return err


@contextlib.contextmanager
def only_w1(*stages):
    """All other workers are drained, and w1 keeps its requests, for as
    long."""
    def drain(on):
        for at in stages:
            for name in WORKERS[1:]:
                at.persist("POST", f"/kv/workers/{name}/drain",
                           {"drain": on})
    engines["w1"].mode = "held"
    drain(True)
    try:
        yield
    finally:
        drain(False)
        engines["w1"].release()
        for at in stages:
            at.check_idle()


def fill(*stages, bound=BOUND):
    """Requests of all, again and again, until w1 has its bound.

    A request goes when all know of those before, for news may be late: until
    then a bound can be passed.
    """
    def known():
        loads = [at.workers()["w1"]["load"][0] for at in stages]
        return all(load["active_requests"] + load["peers_requests"]
                   == engines["w1"].open for load in loads)

    def full():
        for at in stages:
            pool.submit(ask, at)
        time.sleep(0.1)
        wait_until("all know of all", known, PATIENCE)
        return engines["w1"].open == bound
    wait_until("the bound is reached", full, PATIENCE)
    for _ in range(20):
        full()
    assert engines["w1"].most == bound, engines["w1"].most


def they_find_one_another():
    """two nginx with one Redis find one another"""
    for at in (a, b):
        at.wait_peers("fresh")


def load_is_known():
    """what one nginx sends counts in the other one's fields, to its end"""
    with only_w1(a, b):
        for _ in range(2):
            pool.submit(ask, a)
        wait_until("b knows", lambda: b.load().get("peers", {}).get(
            "active_requests") == 2, PATIENCE)
        load = b.load()
        assert load["active_requests"] == 2, load
        assert load["peers"]["decode_blocks"] == load["decode_blocks"], load
    wait_until("b knows the end",
               lambda: b.load()["active_requests"] == 0, PATIENCE)


def bounds_are_divided():
    """a max_active is for both: each has a part, and none passes it"""
    with only_w1(a, b):
        fill(a, b)
        own = [at.workers()["w1"]["load"][0]["active_requests"]
               for at in (a, b)]
        assert min(own) > 0 and sum(own) == BOUND, own


def reload(old, new):
    """Both go on with a configuration that has the new text."""
    for at in (a, b):
        conf = at.directory / "nginx.conf"
        conf.write_text(conf.read_text().replace(old, new))
        at.reload()
        at.wait_peers("fresh")


def tokens_are_divided():
    """so is a max_prefill_tokens, by the uncached tokens of prompts"""
    requests = f"max_active={BOUND};"
    tokens = f"max_prefill_tokens={BOUND * len(new_prompt())};"
    reload(requests, tokens)
    with only_w1(a, b):
        fill(a, b)
        own = [at.workers()["w1"]["load"][0]["prefill_tokens"]
               for at in (a, b)]
        assert min(own) > 0, own
        assert sum(own) == BOUND * len(new_prompt()), own
    reload(tokens, requests)


def own_bounds_are_whole():
    """with bounds=own each has the whole of it, and a reload ends that"""
    own = "    kv_router_sync main bounds=own;\n    kv_router_worker main w1 "
    shared = own[own.rindex("    kv"):]
    reload(shared, own)
    with only_w1(a, b):
        fill(a, b, bound=2 * BOUND)
        for at in (a, b):
            load = at.workers()["w1"]["load"][0]["active_requests"]
            assert load == BOUND, load
    reload(own, shared)
    engines["w1"].most = 0


def each_worker_has_one_home():
    """each worker is at home at one of two nginx"""
    for _ in range(4):
        ask(a)
        ask(b)
    settled()


def settled():
    """The homes of both, when they have been parted for long enough that
    nobody tells of another share."""
    def parted():
        one, other = a.homes(), b.homes()
        return (one is not None and other is not None and not one & other
                and one | other == set(WORKERS) and (one, other))
    while True:
        homes = wait_until("homes are parted", parted, PATIENCE)
        time.sleep(GONE)
        if parted() == homes:
            return homes


def what_is_new_goes_home():
    """a prompt that nobody has goes home first"""
    for at in (a, b):
        at.check_idle()
    for at in (a, b):
        homes = at.homes()
        for _ in range(8 if homes else 0):
            chosen, found = at.route()
            assert chosen in homes, (chosen, found)


def homes_stay_without_redis():
    """without Redis the load of peers does not count, homes stay"""
    homes = settled()
    a.stop_redis(signal.SIGKILL)
    try:
        for at in (a, b):
            wait_until("no peer counts",
                       lambda at=at: "peers" not in at.load(), PATIENCE)
        time.sleep(GONE)
        assert (a.homes(), b.homes()) == homes, (a.homes(), homes)
    finally:
        a.start_redis()
    for at in (a, b):
        at.wait_peers("fresh")
    assert (a.homes(), b.homes()) == homes, (a.homes(), homes)


def the_killed_are_gone():
    """an nginx that is killed is gone, and its part of bounds is free"""
    for pid in (b.master(), *b.children()):
        os.kill(pid, signal.SIGKILL)
    a.wait_peers()
    assert a.homes() is None, a.homes()
    with only_w1(a):
        fill(a)


def the_logs_are_quiet():
    """the logs have nothing but the loss of Redis"""
    for at in (a, b):
        at.check_log("redis", "upstream")


def main():
    """Runs the tests on two stages."""
    global a, b
    with contextlib.ExitStack() as stack:
        a = stack.enter_context(Stage("peers-a"))
        b = stack.enter_context(Stage("peers-b", a))
        for name in WORKERS:
            engines[name] = Engine(name)
            stack.callback(engines[name].die)
        a.start_redis()
        for at in (a, b):
            at.start_nginx({name: engine.address
                            for name, engine in engines.items()})
        status = a.run([
            they_find_one_another, load_is_known, bounds_are_divided,
            tokens_are_divided, own_bounds_are_whole, each_worker_has_one_home,
            what_is_new_goes_home, homes_stay_without_redis,
            the_killed_are_gone, the_logs_are_quiet])
        pool.shutdown(wait=False)
        return status


if __name__ == "__main__":
    sys.exit(main())
