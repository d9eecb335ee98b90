#!/usr/bin/python3
"""Workers come, change and go in Redis; TAP."""

import json
import random
import re
import sys
import threading
import time

from model import difference
from stage import (BLOCK_SIZE, NOBODY, PATIENCE, SEED, Stage, milliseconds,
                   wait_until)
from traffic import Cache, Engines, Loop, Stream, le64, make_prompts

TTL = 15                                # seconds of a registration
LEAVING = TTL + PATIENCE                # until who has left is out


class Adapting(Stage):
    """A stage whose requests name an adapter: /v1/completions?lora=NAME."""

    def _write_conf(self, *args):
        super()._write_conf(*args)
        path = self.directory / "nginx.conf"
        text = path.read_text()
        assert "router:access()" in text, text
        # load of a request that has just ended is not to count

        path.write_text(text.replace(
            "router:access()",
            "router:access({ lora_name = ngx.var.arg_lora })").replace(
                'policy = "weighted"', 'policy = "weighted", policy_conf = { '
                "scorers = { queue = 0, kv_usage = 0 } }"))


class Play:
    """What all tests look at."""

    def __init__(self, stage, loop):
        self.stage = stage
        self.rng = random.Random(SEED)
        self.prompts = make_prompts(self.rng, 4, 1, 20)
        self.engines = Engines(loop, ("m1", "m2", "api", "fixed"))
        self.relays = {}
        stage.start_redis()
        self.relay("past").send(5, live=False)
        stage.redis.sadd("kv-workers", "past")
        stage.start_nginx({"fixed": self.engines.addresses["fixed"],
                           "past": NOBODY}, "weighted")
        stage.wait_subscribed()
        stage.call("POST", "/kv/workers/past/drain")
        self.back = 0.0                 # when Redis came back

    def address(self, worker):
        """Where an engine listens."""
        return self.engines.addresses[worker]

    def relay(self, worker):
        """The publisher beside an engine, made at first."""
        if worker not in self.relays:
            self.relays[worker] = Relay(self.stage, worker, Cache(
                worker, self.rng, self.prompts, secret=len(self.relays)))
        return self.relays[worker]

    def worker(self, name):
        """What nginx says of a worker; None."""
        return self.stage.workers().get(name)

    def wait(self, name, seconds=PATIENCE, **fields):
        """Waits until a worker has these fields; returns it."""
        def has():
            worker = self.worker(name)
            return worker and all(worker[field] == value for field, value
                                  in fields.items()) and worker
        try:
            return wait_until(f"{name} has {fields}", has, seconds)
        except Exception as err:
            raise AssertionError(f"{err}: {self.worker(name)}") from err

    def wait_gone(self, name, seconds=LEAVING):
        """Waits until a worker is not there; returns after how long."""
        start = time.monotonic()
        wait_until(f"{name} is gone", lambda: self.worker(name) is None,
                   seconds)
        return time.monotonic() - start

    def used(self, count=30, adapter=""):
        """Who answers so many requests of a prompt that nobody has."""
        return {self.ask(adapter) for _ in range(count)}

    def ask(self, adapter=""):
        """Who answers a request."""
        prompt = [self.rng.randrange(1 << 17) for _ in range(2 * BLOCK_SIZE)]
        return json.loads(self.stage.call(
            "POST", f"/v1/completions?lora={adapter}", {
                "prompt": prompt}))["worker"]

    def log_has(self, text, times=1):
        """Waits until nginx has logged a text, and not more than so often."""
        wait_until(f"the log has {text}", lambda: re.search(
            text, self.stage.log()), PATIENCE)
        found = re.findall(f".*\\[(?:warn|error)\\].*{text}.*", self.stage.log())
        assert len(found) <= times, found


class Relay(Stream):
    """What a relay keeps in Redis, renewed each second while it lives."""

    def __init__(self, stage, worker, cache):
        super().__init__(stage.redis, cache, milliseconds())
        self.stage = stage
        self.key = "kv-worker:{%s}" % worker
        self.fields = {}
        self._stop = threading.Event()
        self._thread = None

    def live(self, **fields):
        """Registers with these fields, and goes on."""
        self.fields.update(fields)
        if self._thread is None:
            self._stop.clear()
            self._beat()
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._beat()

    def die(self):
        """Is killed: what is in Redis stays until it expires."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def leave(self):
        """Is ended: deregisters."""
        self.die()
        pipe = self.client.pipeline(transaction=True)
        pipe.srem("kv-workers", self.worker)
        pipe.delete(self.key)
        pipe.execute()

    def _run(self):
        while not self._stop.wait(1):
            self._beat()

    def _beat(self):
        try:
            pipe = self.client.pipeline(transaction=True)
            pipe.hset(self.key, mapping={
                **self.fields, "epoch": self.epoch, "seq": self.seq,
                "complete": 1})
            pipe.expire(self.key, TTL)
            pipe.sadd("kv-workers", self.worker)
            pipe.execute()
            self.heartbeat()
        except OSError:
            pass
        except Exception as err:        # redis is away
            if "onnection" not in repr(err):
                raise


at = None                       # the Play, set by main()


# ------------------------------------------------------- coming and changing

def who_is_only_in_the_log_is_stale():
    """who is a member, but has expired, is silent, until it is none"""
    relay = at.relay("past")
    at.stage.wait_applied(relay.cursor())
    worker = at.wait("past", confidence="DEGRADED", reason="silent", ttl=0)
    assert worker["origin"] == "static" and worker["age"] is None, worker
    at.stage.redis.srem("kv-workers", "past")
    at.wait("past", LEAVING, confidence="EXACT", ttl=None)
    relay.live()
    wait_until("it is registered", lambda: at.worker("past")["ttl"], PATIENCE)
    worker = at.wait("past", confidence="EXACT")
    assert worker["ttl"] > 0 and worker["age"] < PATIENCE, worker
    relay.leave()


def a_worker_appears_and_is_used():
    """a worker that registers gets requests"""
    at.relay("m1").live(address=at.address("m1"), model="",
                        block_size=BLOCK_SIZE, ranks=1, role="both", weight=1)
    worker = at.wait("m1", origin="redis", address=at.address("m1"))
    assert worker["ranks"] == 1 and worker["role"] == "both", worker
    assert worker["weight"] == 1 and 0 < worker["ttl"] <= TTL, worker
    assert at.used() == {"m1", "fixed"}
    at.relay("m1").send(30)


def its_log_is_read():
    """what it logged before anybody heard of it is known"""
    relay = at.relay("m2")
    relay.send(100, live=False)
    relay.live(address=at.address("m2"))
    at.wait("m2", origin="redis")
    at.stage.wait_applied(relay.cursor())
    at.stage.wait_confidence("m2", "EXACT")
    held = {name: blocks for name, blocks in at.stage.dump().holdings().items()
            if name[0] == "m2"}
    assert not difference(relay.cache.model.holdings(), held)


def a_worker_known_from_events_registers():
    """a worker that sent events first keeps them when it registers"""
    relay = at.relay("late")
    relay.send(20)
    at.wait("late", origin="events", address="")
    at.stage.wait_applied(relay.cursor())
    relay.live(address=at.address("m1"))
    at.wait("late", origin="redis", address=at.address("m1"))
    assert at.worker("late")["counters"]["messages"] == 20
    at.stage.wait_confidence("late", "EXACT")


def fields_may_change():
    """ranks, role, weight and bound change when their registration does"""
    at.relay("late").live(ranks=3, role="decode", weight="2.5")
    worker = at.wait("late", ranks=3, role="decode", weight=2.5)
    assert len(worker["held"]) == 3, worker
    at.relay("late").live(ranks=1, role="both", weight=1,
                          max_prefill_tokens=4096)
    at.wait("late", ranks=1, role="both", weight=1, max_prefill_tokens=4096)
    at.relay("late").live(max_prefill_tokens="")
    at.wait("late", max_prefill_tokens=0)


def an_address_may_change():
    """a worker that moved is asked at its new address"""
    at.stage.call("POST", "/kv/workers/fixed/drain")
    at.relay("m2").live(address=at.address("m1"))
    at.wait("m2", address=at.address("m1"))
    assert at.used() == {"m1"}
    at.relay("m2").live(address=at.address("m2"))
    at.wait("m2", address=at.address("m2"))
    assert at.used() == {"m1", "m2"}
    at.stage.call("POST", "/kv/workers/fixed/drain", {"drain": False})


def adapters_attract_requests():
    """a request for an adapter goes where that is loaded"""
    at.relay("m1").live(lora="sql, chat")
    at.relay("m2").live(lora="code")
    at.wait("m1", lora=["sql", "chat"])
    at.wait("m2", lora=["code"])
    assert at.worker("fixed")["lora"] == [], "not known"
    assert at.used(adapter="chat") == {"m1"}
    assert at.used(adapter="code") == {"m2"}
    assert "m2" not in at.used(adapter="unheard-of"), "others may have it"
    assert at.used() == {"m1", "m2", "fixed"}, "whoever needs none"
    at.relay("m2").live(lora="code,chat")
    at.wait("m2", lora=["code", "chat"])
    assert at.used(adapter="chat") == {"m1", "m2"}
    at.relay("m1").live(lora="")
    at.relay("m2").live(lora="")
    at.wait("m1", lora=[])
    at.wait("m2", lora=[])


def a_publisher_says_why_it_is_not_complete():
    """why a publisher is not complete is in /workers, and in the log, once"""
    why = "the engine was not reached yet"
    at.relay("m1").live(reason=why)
    at.wait("m1", publisher_reason=why)
    said = f"publisher of worker \"m1\" is not complete: \"{why}\""
    at.log_has(said)
    at.stage.wait_asked("sscan")
    at.log_has(said)
    at.relay("m1").live(reason="<b>\n" + "x" * 200, hybrid="1")
    at.wait("m1", publisher_reason="<b>?" + "x" * 123, scores="upper_bounds")
    at.relay("m1").live(reason="")
    at.wait("m1", publisher_reason="")


# ------------------------------------------------------------ bad and foreign

def nonsense_is_refused():
    """registrations of nonsense are refused, with a message once"""
    before = set(at.stage.workers())
    redis = at.stage.redis
    wrong = {
        "bad-address": {"address": "http://evil/"},
        "bad-name": {"address": "localhost:80"},
        "bad-port": {"address": "127.0.0.1:99999"},
        "bad-ranks": {"address": NOBODY, "ranks": "4294967297"},
        "bad-role": {"address": NOBODY, "role": "king"},
        "bad-weight": {"address": NOBODY, "weight": "nan"},
        "bad-bound": {"address": NOBODY, "max_prefill_tokens": "all"},
        "bad-model": {"address": NOBODY, "model": "a\nforged line"},
        "bad-lora": {"address": NOBODY, "lora": "a,b\nforged line"},
        "many-lora": {"address": NOBODY, "lora": "adapter," * 100_000},
        "bad-bytes": {"address": b"\xff\0" * 300},
        "bad-length": {"address": NOBODY, "model": "x" * 100_000}}
    for name, fields in wrong.items():
        redis.hset("kv-worker:{%s}" % name, mapping=fields)
    redis.set("kv-worker:{bad-type}", "a string")
    names = [*wrong, "bad-type", "bad/id", "x" * 64, "", b"\xff\n", "bad id"]
    redis.sadd("kv-workers", *names)
    for name in (*wrong, "bad-type"):
        at.log_has(f"registration of worker \"{name}\" refused")
    at.log_has("registration of worker \"bad/id\" refused: not a worker")
    at.stage.wait_asked("sscan")
    for name in (*wrong, "bad-type"):
        at.log_has(f"registration of worker \"{name}\" refused")
    assert set(at.stage.workers()) == before
    assert "\nforged" not in at.stage.log()
    redis.srem("kv-workers", *names)
    redis.delete("kv-worker:{bad-type}", *(
        "kv-worker:{%s}" % name for name in wrong))


def a_large_hash_is_refused():
    """a registration of thousands of fields stops nobody else"""
    redis = at.stage.redis
    redis.hset("kv-worker:{large}", mapping={
        f"field{number}": number for number in range(20_000)})
    redis.hset("kv-worker:{large}", "address", NOBODY)
    redis.sadd("kv-workers", "large")
    at.wait("large", origin="redis", address=NOBODY)
    redis.srem("kv-workers", "large")
    redis.delete("kv-worker:{large}")
    at.relay("late").live(weight=3)
    at.wait("late", weight=3)


def other_block_sizes_are_ignored():
    """a worker of another block size is ignored, with a message once"""
    relay = at.relay("big")
    relay.send(10)
    at.wait("big", origin="events")
    relay.live(address=NOBODY, block_size=BLOCK_SIZE * 2)
    at.wait_gone("big")
    at.log_has("worker \"big\" ignored: its block size is not the zone's")
    relay.send(10)
    at.stage.wait_asked("sscan")
    assert at.worker("big") is None
    at.log_has("worker \"big\" ignored: its block size is not the zone's")
    assert not any(name[0] == "big" for name in at.stage.dump().holdings())


def until_they_are_ours():
    """when it comes with the zone's block size it is one of the zone's"""
    relay = at.relay("big")
    relay.epoch, relay.seq = relay.epoch + 1, 0
    relay.cache.model.clear_worker("big")
    relay.live(address=NOBODY, block_size=BLOCK_SIZE)
    at.wait("big", origin="redis")
    relay.send(10)
    at.stage.wait_applied(relay.cursor())
    relay.leave()


# ------------------------------------------------------- API and configuration

def the_configuration_overrides_redis():
    """what the configuration says of a worker stands"""
    at.relay("fixed").live(address=NOBODY, weight=7)
    wait_until("its registration is known",
               lambda: at.worker("fixed")["ttl"], PATIENCE)
    worker = at.worker("fixed")
    assert worker["origin"] == "static" and worker["weight"] == 1, worker
    assert worker["address"] == at.address("fixed"), worker


def the_api_overrides_redis():
    """what the API says of a worker stands"""
    at.relay("api").live(address=NOBODY)
    at.wait("api", origin="redis", address=NOBODY)
    at.stage.call("PUT", "/kv/workers/api", {"address": at.address("api")})
    at.relay("api").live(weight=9)
    at.stage.wait_asked("sscan")
    worker = at.wait("api", origin="api", address=at.address("api"), weight=1)
    assert worker["ttl"] > 0, worker


def a_deleted_worker_stays_deleted():
    """a worker that the API deleted does not come back by Redis or events"""
    at.stage.call("DELETE", "/kv/workers/api")
    at.relay("api").send(5)
    at.stage.wait_asked("sscan")
    assert at.worker("api") is None
    at.relay("api").leave()


def a_reload_keeps_drains():
    """a worker of Redis that drains does so after a reload"""
    at.stage.call("POST", "/kv/workers/m2/drain")
    at.stage.reload()
    at.stage.wait_subscribed()
    at.relay("m2").live(weight=4)
    at.wait("m2", weight=4, draining=True, origin="redis")
    assert "m2" not in at.used()
    at.stage.call("POST", "/kv/workers/m2/drain", {"drain": False})
    at.relay("m2").live(weight=1)
    at.wait("m2", weight=1, draining=False)


# --------------------------------------------------------- silence and leaving

def a_silent_relay_makes_it_stale():
    """a worker whose relay was killed is silent, and stays"""
    relay = at.relay("late")
    relay.die()
    worker = at.wait("late", LEAVING, confidence="DEGRADED",
                     reason="silent", ttl=0)
    assert worker["origin"] == "redis", worker
    at.stage.wait_asked("sscan", TTL)
    assert at.worker("late")["address"] == at.address("m1")
    relay.live()
    at.stage.wait_confidence("late", "EXACT")


def a_worker_that_leaves_is_out():
    """a worker that deregisters is out, with its blocks; its request ends"""
    relay = at.relay("m2")
    at.stage.call("POST", "/kv/workers/m1/drain")
    at.stage.call("POST", "/kv/workers/fixed/drain")
    at.stage.call("POST", "/kv/workers/late/drain")
    answers = []

    def slow():
        answers.append(json.loads(at.stage.call("POST", "/v1/completions", {
            "prompt": list(range(64)), "seconds": 8})))

    request = threading.Thread(target=slow)
    request.start()
    wait_until("m2 has a request", lambda: at.worker("m2")["load"][0][
        "active_requests"] == 1, PATIENCE)
    at.stage.call("POST", "/kv/workers/m1/drain", {"drain": False})
    at.stage.call("POST", "/kv/workers/fixed/drain", {"drain": False})
    at.stage.call("POST", "/kv/workers/late/drain", {"drain": False})
    relay.leave()
    seconds = at.wait_gone("m2")
    print(f"# gone after {seconds:.1f} s")
    assert not any(name[0] == "m2" for name in at.stage.dump().holdings())
    assert "m2" not in at.used()
    request.join()
    assert answers[0]["worker"] == "m2", answers
    assert "worker \"m2\" has left" in at.stage.log()
    at.stage.check_idle()


def and_may_come_back():
    """a worker that left comes back with all that its log has"""
    at.relay("late").live(weight=1)
    at.wait("late", weight=1)
    relay = at.relay("m2")
    relay.live()
    at.wait("m2", origin="redis")
    at.stage.wait_applied(relay.cursor())
    at.stage.wait_confidence("m2", "EXACT")
    assert "m2" in at.used()


def a_redis_that_lost_all_removes_nobody():
    """Redis comes back empty: who registers again has lost nothing"""
    names = {"m1": "BOUND", "m2": "EXACT"}      # m1 was hybrid once
    before = {name: at.worker(name)["counters"]["clears"] for name in names}
    held = at.stage.dump().holdings()
    late = at.relay("late")
    late.die()
    at.stage.stop_redis()
    at.stage.wait_subscribed(0)
    at.back = time.monotonic()
    at.stage.start_redis()
    at.stage.wait_subscribed()
    for name, confidence in names.items():
        at.wait(name, origin="redis", confidence=confidence)
        assert at.worker(name)["counters"]["clears"] == before[name]
    at.stage.redis.flushall()
    at.stage.wait_asked("sscan")
    for name in names:
        assert at.worker(name), name
    now = at.stage.dump().holdings()
    assert not difference(*({
        name: blocks for name, blocks in all_.items() if name[0] != "late"}
                            for all_ in (held, now)))


def who_never_came_back_is_out():
    """who did not register again within a whole TTL is out"""
    at.wait_gone("late")
    assert time.monotonic() - at.back >= TTL, "it had less time than that"
    for name in ("m1", "m2"):
        at.wait(name, origin="redis")


def nothing_went_wrong():
    """no alert, and no error but those of an absent Redis"""
    at.stage.check_log(r"redis closed the connection", r"connect\(\) failed")
    text = at.stage.call("GET", "/status?format=prometheus").decode()
    assert re.search(r'kv_router_worker_info\{.*worker="m1".*origin="redis"',
                     text), text
    assert 0 < at.stage.workers()["m1"]["ttl"] < 20


def main():
    global at
    with Adapting("members") as stage, Loop() as loop:
        at = Play(stage, loop)
        try:
            return stage.run([
                who_is_only_in_the_log_is_stale,
                a_worker_appears_and_is_used,
                its_log_is_read,
                a_worker_known_from_events_registers,
                fields_may_change,
                an_address_may_change,
                adapters_attract_requests,
                a_publisher_says_why_it_is_not_complete,
                nonsense_is_refused,
                a_large_hash_is_refused,
                other_block_sizes_are_ignored,
                until_they_are_ours,
                the_configuration_overrides_redis,
                the_api_overrides_redis,
                a_deleted_worker_stays_deleted,
                a_reload_keeps_drains,
                a_silent_relay_makes_it_stale,
                a_worker_that_leaves_is_out,
                and_may_come_back,
                a_redis_that_lost_all_removes_nobody,
                who_never_came_back_is_out,
                nothing_went_wrong])
        finally:
            for relay in at.relays.values():
                relay.die()


if __name__ == "__main__":
    sys.exit(main())
