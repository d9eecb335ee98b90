#!/usr/bin/python3
"""An engine that failed and comes back, with a real relay beside it; TAP.

A worker that has failed is out for an hour here: requests that it gets sooner
are due to its publisher, which is in step again.
"""

import sys

import broken
import relay

HOUR = 3600
REQUESTS = 20

at = None                       # the stage, set by main()
w1 = w2 = None                  # what answers requests; w1 is asked first,
kv = None                       # and what w1 says of its cache


class ReturnsStage(broken.Stage):
    """Redis, and a worker that is out for an hour."""

    health = "max_fails=1 fail_timeout=1h"

    def _write_conf(self, engines, policy, url, log):
        super()._write_conf(engines, policy, url, log)
        path = self.directory / "nginx.conf"
        old = "kv_router_health main"
        conf = path.read_text()
        assert old in conf, conf
        path.write_text(conf.replace(
            old, f"kv_router_redis main {url};\n    {old}"))


def asked(n=REQUESTS):
    """So many requests, which nobody may fail; how many of them w1 got, or
    would have got."""
    probes = at.health_of("w1")["probes"]
    for _ in range(n):
        answer = at.ask()
        assert answer.status == 200, answer.status
    return at.health_of("w1")["probes"] - probes


def returns(rise):
    """What w1 publishes is away, and in step again as a new engine, or as the
    one that it was."""
    kv.close()
    at.wait_confidence("w1", "DEGRADED")
    assert at.health_of("w1")["state"] == "failed"
    if rise:
        kv.rise()
    else:
        kv.open()
    at.wait_confidence("w1", "EXACT")
    at.wait_health("w1", "half_open")


def is_out():
    """w1 is out for no longer than the first time."""
    health = at.health_of("w1")
    assert health["state"] == "failed", health
    assert HOUR / 2 < health["retry_in"] <= HOUR, health


def an_engine_fails():
    """a worker that fails is out for fail_timeout"""
    at.wait_confidence("w1", "EXACT")
    w1.mode = "refuse"
    assert at.ask().body == b"w2"
    is_out()
    assert asked() == 0


def its_publisher_is_first():
    """when its publisher is in step again it is asked at once, by a probe"""
    returns(rise=True)
    assert at.ask().body == b"w2"


def one_probe_for_a_return():
    """which fails while nobody listens: it is out again, and no longer"""
    is_out()
    assert asked() == 0


def each_return_counts():
    """each return is worth one probe"""
    for _ in range(3):
        returns(rise=False)
        assert asked() == 1
        is_out()


def it_is_back():
    """an engine that answers has its requests back with its publisher"""
    w1.mode = "ok"
    assert asked() == 0
    returns(rise=True)
    assert at.ask().body == b"w1"
    assert at.health_of("w1")["state"] == "ok"
    assert at.ask().body == b"w1"


def main():
    """Runs the tests on one stage."""
    global at, w1, w2, kv
    with ReturnsStage("returns") as at:
        w1, w2 = broken.Engine("w1"), broken.Engine("w2")
        kv = relay.Engine()
        at.start_redis()
        beside = relay.Relay(
            at, "w1", "--events", f"tcp://127.0.0.1:{kv.port}",
            "--replay", f"tcp://127.0.0.1:{kv.replay_port}")
        try:
            at.start_nginx({"w1": w1.address, "w2": w2.address}, "order")
            return at.run([
                an_engine_fails, its_publisher_is_first,
                one_probe_for_a_return, each_return_counts, it_is_back])
        finally:
            beside.stop()


if __name__ == "__main__":
    sys.exit(main())
