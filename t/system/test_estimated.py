#!/usr/bin/python3
"""Workers without events, with nginx alone: chats stay where they were, and
processes of nginx that are killed or stopped do no harm; TAP."""

import http.client
import json
import os
import random
import re
import signal
import sys
import threading
import time

from stage import MODULE, PATIENCE, SEED, Stage, wait_until
from worker import Worker

BLOCKS = 1024                   # of each engine, of 16 tokens
CHATS, TURNS = 24, 5
STAY = 0.9                      # the part of the turns that must
KILLS = 8
TRIES = 20                      # to fill a ring before its reader is replaced


class Alone(Stage):
    """Without Redis; beside the zone another one, of the same engines."""

    def _write_conf(self, engines, policy, url, log):
        super()._write_conf(engines, policy, url, log)
        path = self.directory / "nginx.conf"
        conf = re.sub(r" *kv_router_redis .*\n", "", path.read_text())
        conf = conf.replace('tokenizer = "remote"', 'tokenizer = "none"')
        conf = conf.replace("zone=main:64m", "zone=main:16m")
        conf = conf.replace("    lua_package_path", """
    kv_router_scrape  main interval=200ms;
    kv_router_zone    zone=other:16m;
    kv_router_worker  other w1 127.0.0.1:9;

    lua_package_path""")
        conf = conf.replace("        location = /status {", """
        location = /other {
            kv_router_status  other;
        }

        location = /status {""")
        path.write_text(conf)


class Silent(Stage):
    """With Redis, and workers that are said to publish no events."""

    def _write_conf(self, engines, policy, url, log):
        super()._write_conf(engines, policy, url, log)
        path = self.directory / "nginx.conf"
        path.write_text(re.sub(
            r"(kv_router_worker .*);", r"\1 events=off capacity=16k;",
            path.read_text()))


class Load:
    """Prompts of token ids, one after the other, by a thread of its own."""

    def __init__(self, stage):
        self.stage, self.sent, self.failed = stage, 0, 0
        self.going = True
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        rng = random.Random(SEED)
        while self.going:
            try:
                self.stage.call("POST", "/v1/completions", {
                    "prompt": [rng.randrange(1000) for _ in range(320)],
                    "max_tokens": 2})
                self.sent += 1
            except OSError:
                self.failed += 1

    def stop(self):
        """Returns when the last answer is there."""
        self.going = False
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


stage = None                    # set by main()


def routed():
    """The state of the rings."""
    return json.loads(stage.persist("GET", "/status"))["routed"]


def settle():
    """Waits until all that was routed is applied."""
    wait_until("all is applied", lambda: routed()["unread"] == 0, PATIENCE)


def lease():
    """The lease of the first shard."""
    return json.loads(stage.persist("GET", "/status"))["lease"]


def held(prompt):
    """The blocks of a prompt that are estimated to be at some worker."""
    answer = json.loads(stage.persist("POST", "/kv/query?estimated=1",
                                      {"tokens": prompt}))
    assert all(score["estimated"] for score in answer["scores"]), answer
    return max((score["device"] for score in answer["scores"]), default=0)


def complete(first):
    """Sends a prompt of 160 tokens; returns it when it is applied."""
    prompt = list(range(first, first + 160))
    stage.persist("POST", "/v1/completions",
                  {"prompt": prompt, "max_tokens": 2})
    settle()
    return prompt


def chat(messages):
    """Sends a chat; returns the worker and the answer's text."""
    connection = http.client.HTTPConnection("127.0.0.1", stage.port,
                                            timeout=PATIENCE)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(
            {"messages": messages, "max_tokens": 8}))
        response = connection.getresponse()
        body = json.loads(response.read())
        assert response.status == 200, body
        return (response.headers["x-kv-worker"],
                body["choices"][0]["message"]["content"])
    finally:
        connection.close()


# -------------------------------------------------------------------- tests

def capacities_are_scraped():
    """the size of the engines' caches is read from their metrics"""
    complete(1)

    def scraped():
        ranks = [rank for worker in stage.workers().values()
                 for rank in worker["estimates"]]
        return ranks and all(rank["source"] == "scraped" and rank["capacity"]
                             == BLOCKS * 16 for rank in ranks)
    wait_until("the capacities are known", scraped, PATIENCE)


def chats_stay():
    """chats in text go on where they began, several at a time"""
    rng = random.Random(SEED)
    chats = [[{"role": "user", "content": " ".join(
        f"{rng.randrange(10 ** 6)}" for _ in range(60))}]
             for _ in range(CHATS)]
    at = [None] * CHATS
    stayed = turns = 0
    for _ in range(TURNS):
        for number in rng.sample(range(CHATS), CHATS):
            worker, text = chat(chats[number])
            if at[number]:
                turns += 1
                stayed += worker == at[number]
            at[number] = worker
            chats[number] += [
                {"role": "assistant", "content": text},
                {"role": "user", "content": f"More, {rng.random()}."}]
    print(f"# {stayed} of {turns} turns went to the worker of the one before")
    assert stayed >= STAY * turns, (stayed, turns)
    assert set(at) == {"w1", "w2"}, at
    status = stage.status()
    assert status["requests"]["by_rung"]["text"] == CHATS * TURNS, status


def a_killed_holder_is_replaced():
    """each time the lease's holder is killed another process goes on"""
    load = Load(stage)
    times = []
    for _ in range(KILLS):
        before = lease()
        wait_until("some requests", lambda sent=load.sent:
                   load.sent > sent + 20, PATIENCE)
        os.kill(before["pid"], signal.SIGKILL)
        started = time.monotonic()
        wait_until("another holder", lambda token=before["token"]:
                   lease()["token"] > token, PATIENCE)
        times.append(time.monotonic() - started)
    load.stop()
    print("# %d kills of the holder, another one after %.2f to %.2f s" % (
        KILLS, min(times), max(times)))
    settle()
    assert held(complete(10000)) == 10
    assert routed()["damaged"] == 0, routed()


def a_full_ring_drops():
    """what a full ring has no room for is dropped and counted"""
    before = routed()["dropped"]
    for _ in range(TRIES):
        # read before the stop: after it another process may have the lease
        holder = lease()
        pid, token = holder["pid"], holder["token"]
        os.kill(pid, signal.SIGSTOP)
        stage.patience = 5               # it may have taken a connection
        try:
            number = 0
            while lease()["token"] == token and routed()["dropped"] == before:
                number += 1
                stage.persist("POST", "/v1/completions", {
                    "prompt": [number] * 12000, "max_tokens": 1})
        finally:
            stage.patience = PATIENCE
            os.kill(pid, signal.SIGCONT)
        settle()
        if routed()["dropped"] > before:
            break
    assert routed()["dropped"] > before, routed()
    assert held(complete(20000)) == 10
    assert routed()["damaged"] == 0, routed()


def a_reload_keeps_estimates():
    """a reload keeps the estimates, and the new processes go on"""
    prompt = complete(30000)
    assert held(prompt) == 10
    stage.reload()
    assert held(prompt) == 10
    wait_until("the old processes are gone",
               lambda: lease()["pid"] in stage.children(), PATIENCE)
    assert held(complete(40000)) == 10
    assert routed()["lost"] == 0, routed()


def zones_are_apart():
    """another zone has rings, a lease and estimates of its own"""
    def page():
        return json.loads(stage.persist("GET", "/other"))

    # the former holder may have been one from before the reload
    wait_until("the other zone has a lease", lambda: page()["lease"]["pid"]
               in stage.children(), PATIENCE)
    other = page()
    assert other["routed"]["appended"] == 0, other["routed"]
    assert not any(worker["estimates"] and worker["estimates"][0]["held"]
                   for worker in other["workers"]), other["workers"]
    # Redis seems not to answer a process that was stopped meanwhile
    stage.check_log(r"\[alert\].* exited on signal 9", r"redis does not answer")


def events_take_over():
    """events that come after all take over, and stay"""
    global stage
    with Silent("silent") as stage:
        engine = engine_of("w1")
        try:
            stage.start_redis()
            stage.start_nginx({"w1": engine.address})
            prompt = complete(1)
            stage.wait_confidence("w1", "ESTIMATED")
            assert held(prompt) == 10
            assert not stage.query(prompt)
            engine.start_relay(MODULE.parent / "kv-relay", stage.redis_url(),
                               "--block-size", "16")
            stage.wait_confidence("w1", "EXACT")
            wait_until("the events' blocks", lambda: stage.query(
                prompt) == {("w1", 0): (10, 10, 10)}, PATIENCE)
            wait_until("the estimate is dropped", lambda: sum(
                rank["cleared"]["events"]
                for rank in stage.workers()["w1"]["estimates"]) == 1, PATIENCE)
            appended = routed()["appended"]
            stage.persist("POST", "/v1/completions",
                          {"prompt": prompt, "max_tokens": 2})
            assert routed()["appended"] == appended, routed()
            engine.relay.stop()
            stage.wait_confidence("w1", "DEGRADED")
            stage.check_log()
        finally:
            engine.stop()


def engine_of(name):
    """An engine that serves."""
    engine = Worker(name, stage.directory, "--blocks", str(BLOCKS),
                    "--prefill-us-per-token", "1",
                    "--decode-us-per-token", "100")
    engine.wait_ready()
    return engine


def main():
    global stage
    engines = []
    with Alone("estimated") as stage:
        try:
            for name in ("w1", "w2"):
                engines.append(engine_of(name))
            stage.start_nginx({engine.name: engine.address
                               for engine in engines})
            return stage.run([
                capacities_are_scraped, chats_stay,
                a_killed_holder_is_replaced, a_full_ring_drops,
                a_reload_keeps_estimates, zones_are_apart,
                events_take_over])
        finally:
            for engine in engines:
                engine.stop()


if __name__ == "__main__":
    sys.exit(main())
