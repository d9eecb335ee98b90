#!/usr/bin/python3
"""A prefix cache among nginx processes that are killed and replaced; TAP."""

import collections
import json
import os
import random
import signal
import sys
import threading

from stage import PATIENCE, PROCESSES, SEED, Stage, wait_until

KILLS = 10

CACHE = "kv_router_prefix_cache zone=cache:4m page_size=2;"

# /work does a random part of what a server would, and now and then leaves a
# lock behind; /check asks for what must be there at any time.

LOCATIONS = """
        location = /work {
            content_by_lua_block {
                local cache = require("resty.kv_router.prefix_cache")
                              .new("cache")
                local key = {}

                for i = 1, 64 do
                    key[i] = i < 9 and i or math.random(3)
                end

                local r, err = cache:begin(key)

                if not r then
                    return ngx.say(err)
                end

                local existing

                existing, err = cache:insert(key, nil, r.node)

                if not existing then
                    return ngx.say(err)
                end

                cache:put(key, "value")

                if math.random(4) == 1 then
                    cache:evict(200)
                end

                if math.random(10) > 1 then
                    cache:unlock(r.lock)
                end

                ngx.say(r.length, " ", ngx.worker.pid())
            }
        }

        location = /check {
            content_by_lua_block {
                local cache = require("resty.kv_router.prefix_cache")
                              .new("cache")
                local stats = cache:stats()

                stats.first = cache:match({ 1, 2, 3, 4, 5, 6, 7, 8 })
                stats.pid = ngx.worker.pid()
                ngx.say(require("cjson.safe").encode(stats))
            }
        }

        location = /empty {
            content_by_lua_block {
                local cache = require("resty.kv_router.prefix_cache")
                              .new("cache")

                cache:reset()
                cache:clear()
                ngx.say("done")
            }
        }
"""


class Play:
    """What all tests look at."""

    def __init__(self, stage):
        self.stage, self.rng = stage, random.Random(SEED)
        self.answers = collections.Counter()
        self.over = False
        stage.start_redis()
        stage.start_nginx({"w1": "127.0.0.1:1"})
        conf = stage.directory / "nginx.conf"
        conf.write_text(conf.read_text().replace(
            "    kv_router_zone ", f"    {CACHE}\n    kv_router_zone ", 1)
            .replace("        location /v1/ {",
                     LOCATIONS + "        location /v1/ {", 1))
        self.processes(stage.reload)

    def processes(self, change):
        """Changes processes, and waits until only new ones are there."""
        before = self.stage.children()
        change()
        wait_until("the old processes are gone",
                   lambda: not before & self.stage.children(), PATIENCE)

    def work(self):
        """A client; answers of processes that are killed are none."""
        while not self.over:
            try:
                text = self.stage.call("GET", "/work").decode().split()
            except OSError:
                self.answers["killed"] += 1
                continue
            self.answers["done" if text[0].isdigit() else " ".join(text)] += 1

    def check(self):
        """The cache's numbers, which any process answers."""
        return json.loads(self.stage.persist("GET", "/check"))


at = None                       # the Play, set by main()


def processes_share_the_tree():
    """what a process has inserted, the others find"""
    at.stage.call("GET", "/work")
    found = {}
    wait_until("all processes answer", lambda: (
        found.update({(got := at.check())["pid"]: got["first"]}),
        len(found) == PROCESSES)[1], PATIENCE)
    assert set(found.values()) == {8}, found


def kills_leave_it_usable():
    """processes killed at work leave a tree that the others go on with"""
    clients = [threading.Thread(target=at.work) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        for _ in range(KILLS):
            done = at.answers["done"]
            wait_until("work is done",
                       lambda: at.answers["done"] > done + 20, PATIENCE)
            with_pid = at.rng.choice(sorted(at.stage.children()))
            os.kill(with_pid, signal.SIGKILL)
            wait_until("there are enough processes", lambda: len(
                at.stage.children() - {with_pid}) >= PROCESSES, PATIENCE)
    finally:
        at.over = True
        for client in clients:
            client.join()
    got = at.check()
    print(f"# {dict(at.answers)}, {got['reaped']} locks released, "
          f"{got['rollbacks']} transactions undone, "
          f"{got['evicted']} tokens evicted")
    assert not set(at.answers) - {"done", "killed"}, at.answers
    assert got["tokens"] == got["evictable"] + got["protected"], got
    assert got["first"] == 8, got


def locks_of_the_dead_are_released():
    """when all processes were killed, nothing is locked"""
    before = at.stage.children()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_until("new processes are there", lambda: len(
        at.stage.children() - before) >= PROCESSES, PATIENCE)
    wait_until("their locks are released",
               lambda: at.check()["locks"] == 0, PATIENCE)
    got = at.check()
    assert got["protected"] == 0 and got["reaped"] > 0, got
    assert got["evictable"] == got["tokens"] > 0, got


def a_reload_keeps_the_tree():
    """a reload keeps the tree, and leaves no locks of the old processes"""
    wait_until("something is locked", lambda: (
        at.stage.call("GET", "/work"), at.check()["locks"] > 0)[1], PATIENCE)
    at.processes(at.stage.reload)
    got = at.check()
    assert got["first"] == 8 and got["locks"] == 0, got


def another_page_size_is_refused():
    """a reload with another page size is refused, and says both"""
    at.stage.refused_reload("it was made with key=tokens page_size=2 "
                            "evict=lru, not key=tokens page_size=4 evict=lru",
                            "page_size=2", "page_size=4")


def nothing_is_lost():
    """when all is dropped, no memory is in use"""
    at.stage.call("GET", "/empty")
    got = at.check()
    assert got["tokens"] == got["entries"] == got["used"] == 0, got


def nothing_else_is_wrong_in_the_log():
    """the log has the kills and the refusal, and no other error"""
    at.stage.check_log(r"exited on signal 9", r"page_size=4",
                       r"shared memory zone .* was locked by",
                       r"127\.0\.0\.1:1\b")


def main():
    global at
    with Stage("prefix") as stage:
        at = Play(stage)
        return stage.run([
            processes_share_the_tree,
            kills_leave_it_usable,
            locks_of_the_dead_are_released,
            a_reload_keeps_the_tree,
            another_page_size_is_refused,
            nothing_is_lost,
            nothing_else_is_wrong_in_the_log])


if __name__ == "__main__":
    sys.exit(main())
