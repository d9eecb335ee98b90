#!/usr/bin/python3
"""Workers of Redis whose registration expires, and whose checks fail; TAP."""

import sys
import time

from broken import Engine
from stage import BLOCK_SIZE, PATIENCE, Stage, wait_until

TTL = 15                                # seconds of a registration
HEALTH = ("kv_router_health main check=/health interval=200ms timeout=60s "
          "fails=2;")


class CheckedStage(Stage):
    """nginx with Redis and active checks."""

    def _write_conf(self, engines, policy, url, log):
        super()._write_conf(engines, policy, url, log)
        path = self.directory / "nginx.conf"
        old = f"kv_router_redis  main {url};"
        conf = path.read_text()
        assert old in conf, conf
        path.write_text(conf.replace(old, f"{old}\n    {HEALTH}"))


at = None                       # the stage, set by main()
engines = {}


def register(name):
    """What a relay writes, and not again."""
    pipe = at.redis.pipeline(transaction=True)
    pipe.hset("kv-worker:{%s}" % name, mapping={
        "address": engines[name].address, "block_size": BLOCK_SIZE,
        "ranks": 1, "epoch": 1, "seq": 1, "complete": 1})
    pipe.expire("kv-worker:{%s}" % name, 600)
    pipe.sadd("kv-workers", name)
    pipe.execute()


def workers_register():
    """workers register, and are checked"""
    for name in engines:
        register(name)
    wait_until("both are there, and checked", lambda: set(at.workers())
               == set(engines) and all(
                   worker["health"]["checks"]
                   for worker in at.workers().values()), PATIENCE)


def a_checked_worker_stays():
    """one that fails its checks stays as long as it is registered"""
    engines["w1"].mode = "refuse"
    wait_until("it is down", lambda: at.workers()["w1"]["health"]["state"]
               == "down", PATIENCE)
    at.wait_asked("sscan")
    assert set(at.workers()) == set(engines)


def redis_has_to_be_there_for_a_while():
    """with a Redis that just came back nobody is judged for a whole TTL"""
    at.stop_redis()
    at.wait_subscribed(0)
    back = time.monotonic()
    at.start_redis()
    at.redis.sadd("kv-workers", *engines)
    at.wait_subscribed()
    wait_until("one has left", lambda: set(at.workers()) != set(engines),
               PATIENCE)
    assert time.monotonic() - back >= TTL, "it left too early"


def both_together_take_it_out():
    """one that is neither registered any more nor answers, leaves"""
    wait_until("it has left", lambda: set(at.workers()) == {"w2"}, PATIENCE)
    wait_until("the log says so", lambda: 'worker "w1" has left' in at.log(),
               PATIENCE)


def who_answers_stays():
    """one that answers its checks stays without registration"""
    wait_until("it is stale", lambda: at.workers()["w2"]["ttl"] == 0,
               PATIENCE)
    assert at.workers()["w2"]["health"]["state"] == "ok"


def it_may_come_back():
    """who left may register again"""
    engines["w1"].mode = "ok"
    register("w1")
    wait_until("it is there", lambda: at.workers().get("w1", {}).get(
        "health", {}).get("state") == "ok", PATIENCE)


def main():
    """Runs the tests on one stage."""
    global at
    with CheckedStage("checks") as at:
        for name in ("w1", "w2"):
            engines[name] = Engine(name)
        at.start_redis()
        at.start_nginx({})
        at.wait_subscribed()
        return at.run([workers_register, a_checked_worker_stays,
                       redis_has_to_be_there_for_a_while,
                       both_together_take_it_out, who_answers_stays,
                       it_may_come_back])


if __name__ == "__main__":
    sys.exit(main())
