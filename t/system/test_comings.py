#!/usr/bin/python3
"""Workers that are put, drained and deleted while requests come; TAP.

Engines are well all the time, but for one kind of leaving, where the engine is
gone as soon as its worker is deleted.  One worker is always there.
"""

import collections
import contextlib
import http.client
import json
import random
import sys
import threading
import time

from broken import EVENTS, Engine, Stage
from stage import PATIENCE, PROCESSES, SEED

WORKERS = 5
CLIENTS = 12
REQUESTS = 600                  # at least, of each test
CHANGES = 100                   # of workers, at least
ALLOWED = (r"upstream|connect\(\) failed|recv\(\) failed", )

at = None                       # the stage, set by main()
engines = []


class Comings:
    """Requests, and the workers that change meanwhile."""

    def __init__(self, dying):
        self.dying = dying
        self.rng = random.Random(SEED)
        self.there = dict.fromkeys((e.name for e in engines), True)
        self.changes = collections.Counter()
        self.answers = collections.Counter()
        self.wrong = []
        self.cut = 0
        self.going = True
        self.lock = threading.Lock()

    def run(self):
        """Until there was enough of both."""
        threads = [threading.Thread(target=self._client, args=(number,))
                   for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            while (sum(self.answers.values()) < REQUESTS
                   or sum(self.changes.values()) < CHANGES):
                self._change(self.rng.choice(engines[1:]))
                time.sleep(0.02)
        finally:
            self.going = False
            for thread in threads:
                thread.join()
        print(f"# {dict(self.answers)}, {dict(self.changes)}, "
              f"{self.cut} streams cut")
        assert not self.wrong, self.wrong[:5]
        assert set(self.answers) == {200}, self.answers

    def _change(self, engine):
        """One call, whose status is what it has to be."""
        path = f"/kv/workers/{engine.name}"
        there = self.there[engine.name]
        what = self.rng.choice(("put", "delete", "drain"))
        if what == "put":
            engine.mode = "mixed"
            self._call("PUT", path, {"address": engine.address,
                                     "weight": self.rng.choice((1, 2))},
                       200 if there else 201)
            self.there[engine.name] = True
        elif what == "delete":
            self._call("DELETE", path, None, 200 if there else 404)
            self.there[engine.name] = False
            if self.dying:
                engine.die()
        else:
            self._call("POST", path + "/drain",
                       {"drain": self.rng.random() < 0.5},
                       200 if there else 404)
        self.changes[what + ("" if there else " of none")] += 1

    def _call(self, method, path, body, expected):
        connection = http.client.HTTPConnection("127.0.0.1", at.port,
                                                timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, path, body and json.dumps(body))
            response = connection.getresponse()
            data = response.read()
        if response.status != expected:
            self.wrong.append((method, path, response.status, data))

    def _client(self, number):
        rng = random.Random(SEED + number + 1)
        while self.going:
            answer = None
            try:
                answer = at.ask([rng.randrange(9)] * 64)
            except (OSError, http.client.HTTPException) as err:
                self.wrong.append(repr(err))
                continue
            with self.lock:
                self.answers[answer.status] += 1
                if not answer.whole:
                    self.cut += 1
                elif answer.body.count(b"data:") not in (0, EVENTS):
                    self.wrong.append(answer.body)


def begin():
    """All workers are there."""
    for engine in engines:
        engine.mode = "mixed"
        at.put(engine.name, address=engine.address)
        at.drain(engine.name, False)


def who_leaves_ends_what_it_has():
    """no request fails or is cut when workers come and go"""
    begin()
    comings = Comings(dying=False)
    comings.run()
    assert comings.cut == 0, comings.cut
    assert min(comings.changes[what] for what in (
        "put", "put of none", "delete", "delete of none", "drain",
        "drain of none")) > 0, comings.changes
    at.check_idle()


def who_is_gone_at_once_fails_nobody():
    """nor fails one when the engine is gone with its worker"""
    begin()
    Comings(dying=True).run()
    at.check_idle()


def the_log_is_quiet():
    """the log has nothing but engines that went"""
    at.check_log(*ALLOWED)
    assert len(at.children()) == PROCESSES


class ComingsStage(Stage):
    """All workers can be tried."""

    timeout = "60s"
    tries = WORKERS - 1


def main():
    """Runs the tests on one stage."""
    global at
    with ComingsStage("comings") as at, contextlib.ExitStack() as stack:
        for number in range(WORKERS):
            engine = Engine(f"w{number}")
            engine.pause = 0.2
            engine.mode = "mixed"
            engines.append(engine)
            stack.callback(engine.die)
        at.start_nginx({engines[0].name: engines[0].address}, "kv_cost")
        return at.run([who_leaves_ends_what_it_has,
                       who_is_gone_at_once_fails_nobody, the_log_is_quiet])


if __name__ == "__main__":
    sys.exit(main())
