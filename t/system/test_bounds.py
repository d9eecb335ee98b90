#!/usr/bin/python3
"""No worker, and no fleet, ever has more than its bounds; TAP.

Several processes of nginx send bursts of requests to engines that count how
many they have at once.
"""

import collections
import contextlib
import sys
import threading
import time

import broken
import stage
from broken import Engine
from stage import PATIENCE

PROCESSES = 4                   # of nginx
CLIENTS = 24
BURSTS = 8                      # of one request of each client
EACH, ALL = 3, 5                # requests of a worker, of all
ALLOWED = (r"upstream|recv\(\) failed", r"no worker is left to try")


class Count:
    """How many there are, and how many there ever were at once."""

    def __init__(self):
        self.now = self.most = self.total = 0
        self._lock = threading.Lock()

    def __enter__(self):
        with self._lock:
            self.now += 1
            self.total += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_):
        with self._lock:
            self.now -= 1


class Counting(Engine):
    """An engine that keeps each request for a moment, and counts them."""

    def __init__(self, name, everywhere):
        self.everywhere, self.here = everywhere, Count()
        super().__init__(name)
        self.pause = 0.02

    def _counted(self, peer):
        with self.here, self.everywhere:
            time.sleep(self.pause)
        return self._ok(peer)

    def _failing(self, peer):
        with self.everywhere:
            time.sleep(self.pause)
        return self._reset(peer)

    def clear(self):
        """Counts anew."""
        self.everywhere.__init__()
        self.here.__init__()


class Stage(broken.Stage):
    """All processes say who they are; failures take nobody out."""

    health = "max_fails=0"
    tries = 3
    queue = 100

    def _write_conf(self, engines, policy, url, log):
        super()._write_conf(engines, policy, url, log)
        self._edit((" zone=main:64m ", f" zone=main:64m max_active={ALL} "
                    f"queue={self.queue} "),
                   ("max_tries = 3", "max_tries = 3, classes = { default = "
                                     "{ wait = 60 } }"),
                   ("add_header x-kv-reason", "add_header x-kv-process $pid; "
                                              "add_header x-kv-reason"))

    def _edit(self, *changes):
        path = self.directory / "nginx.conf"
        conf = path.read_text()
        for old, new in changes:
            assert old in conf, old
            conf = conf.replace(old, new)
        path.write_text(conf)


at = None                       # the stage, set by main()
w0 = w1 = w2 = None


def burst(seen, each=EACH):
    """Bursts of requests, each with a prompt of its own, and more of them
    until something is `seen` in the statuses: how many of each; the
    statuses."""
    answers, number = [], 0
    for engine in (w0, w1, w2):
        engine.clear()
    until = time.monotonic() + PATIENCE
    while number < BURSTS or time.monotonic() < until and not (
            processes(answers) > 1 and seen(statuses_of(answers))):
        at.check_idle()
        threads = [threading.Thread(target=lambda n=n: answers.append(
            at.ask([number * CLIENTS + n] * 64))) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        number += 1
        assert len(answers) == number * CLIENTS
    everywhere, statuses = w0.everywhere, statuses_of(answers)
    print(f"# {number} bursts by {processes(answers)} processes: "
          f"{dict(statuses)}; at most {w0.here.most}, {w1.here.most}, "
          f"{w2.here.most} at a worker, {everywhere.most} at all")
    assert processes(answers) > 1 and seen(statuses), statuses
    for engine in (w0, w1, w2):
        assert engine.here.most <= each, (engine.name, engine.here.most)
    assert everywhere.most <= ALL, everywhere.most
    return statuses


def start():
    """nginx, which knows the engines."""
    at.start_nginx({engine.name: engine.address for engine in (w0, w1, w2)},
                   "order")


def processes(answers):
    """How many processes of nginx they are from."""
    return len({answer.headers["x-kv-process"] for answer in answers})


def statuses_of(answers):
    """How many there are of each status."""
    return collections.Counter(answer.status for answer in answers)


def prepare(first="counted"):
    """All are well, w0 but for what is said, and each has its bound."""
    for engine, mode in ((w0, first), (w1, "counted"), (w2, "counted")):
        engine.mode = mode
        at.put(engine.name, address=engine.address, max_active=EACH)


def bounds_hold_over_all_processes():
    """what waits is served in the end, and no bound is ever passed"""
    prepare()
    statuses = burst(lambda _: w0.here.most == EACH
                     and w0.everywhere.most == ALL)
    assert set(statuses) == {200}, statuses
    at.check_idle()


def tokens_hold_over_all_processes():
    """nor is a max_prefill_tokens, but by the last request that finds room"""
    for engine in (w0, w1, w2):
        at.put(engine.name, address=engine.address, max_prefill_tokens=65)
    statuses = burst(lambda _: w0.here.most == 2, each=2)
    assert set(statuses) == {200}, statuses
    at.check_idle()


def bounds_hold_for_retries():
    """nor by retries, of which none fails: there is room for each"""
    prepare("failing")
    retries = at.status()["requests"]["retries"]
    statuses = burst(lambda _: at.status()["requests"]["retries"]
                     > retries + CLIENTS)
    assert set(statuses) == {200}, statuses
    at.check_idle()


def bounds_hold_where_nobody_waits():
    """nor without a queue: who finds no room is refused"""
    at.stop_nginx()
    at.queue = 0
    start()
    prepare()
    statuses = burst(lambda statuses: statuses[429])
    assert set(statuses) == {200, 429}, statuses
    assert statuses[200] >= ALL * BURSTS, statuses
    at.check_idle()


def a_retry_that_finds_no_room_ends():
    """a retry that finds all others full gives up, and passes no bound"""
    prepare("failing")
    at.put("w1", address=w1.address, max_active=1)
    at.put("w2", address=w2.address, max_active=1)
    burst(lambda statuses: statuses[502] and statuses[200]
          and w1.here.most == w2.here.most == 1)
    at.check_idle()


def the_log_is_quiet():
    """the log has nothing but engines that failed"""
    at.check_log(*ALLOWED)


def main():
    """Runs the tests on one stage."""
    global at, w0, w1, w2
    stage.PROCESSES = PROCESSES
    everywhere = Count()
    with Stage("bounds") as at, contextlib.ExitStack() as stack:
        w0, w1, w2 = (Counting(f"w{n}", everywhere) for n in range(3))
        for engine in (w0, w1, w2):
            stack.callback(engine.die)
        start()
        return at.run([
            bounds_hold_over_all_processes, tokens_hold_over_all_processes,
            bounds_hold_for_retries, bounds_hold_where_nobody_waits,
            a_retry_that_finds_no_room_ends, the_log_is_quiet])


if __name__ == "__main__":
    sys.exit(main())
