#!/usr/bin/python3
"""Requests through a fleet in which workers die and return all the time; TAP.

    test_chaos.py [SECONDS]

Each second a worker, by chance, dies or returns; one is always there.  Some
requests are streams, some wait for their first byte when their worker dies.
"""

import contextlib
import http.client
import random
import sys
import threading
import time

from broken import EVENTS, Engine, Stage
from stage import PROCESSES, SEED

WORKERS = 6
CLIENTS = 16
REQUESTS = 1000                 # at least
CHANGES = 10                    # and more than that, and retries
SECONDS = 25                    # at least
PROMPTS = 12
ALLOWED = (r"upstream|connect\(\) failed|recv\(\) failed", )


class ChaosStage(Stage):
    """All workers can be tried; w1 has no place before w2."""

    health = "max_fails=2 fail_timeout=2s slow_start=1s"
    timeout = "60s"
    tries = WORKERS - 1


class Chaos:
    """Clients, and what becomes of their requests."""

    def __init__(self, stage, engines, seconds):
        self.stage, self.engines, self.seconds = stage, engines, seconds
        self.rng = random.Random(SEED)
        self.done = self.cut = self.changes = 0
        self.failed = []
        self.going = True
        self.lock = threading.Lock()

    def run(self):
        """Until there are enough requests, and the time is over."""
        threads = [threading.Thread(target=self._client, args=(number,))
                   for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + self.seconds
        while time.monotonic() < end or not self._enough():
            time.sleep(1)
            self._change()
        self.going = False
        for thread in threads:
            thread.join()

    def _enough(self):
        """Whether there was enough of all."""
        return self.done >= REQUESTS and self.changes > CHANGES \
            and self.retries() > CHANGES

    def retries(self):
        """How many there were."""
        with contextlib.suppress(OSError):
            return self.stage.status()["requests"]["retries"]
        return 0

    def _change(self):
        """One dies, or returns."""
        engine = self.rng.choice(self.engines)
        alive = [other for other in self.engines if other.mode != "refuse"]
        if engine.mode == "refuse":
            engine.mode = "mixed"
        elif len(alive) > 1:
            engine.die()
        else:
            return
        self.changes += 1

    def _client(self, number):
        rng = random.Random(SEED + number + 1)
        while self.going:
            prompt = [rng.randrange(PROMPTS)] * 64
            try:
                answer = self.stage.ask(prompt)
            except (OSError, http.client.HTTPException) as err:
                with self.lock:
                    self.failed.append(repr(err))
                continue
            with self.lock:
                self.done += 1
                if answer.status != 200:
                    self.failed.append(answer.status)
                elif not answer.whole:
                    self.cut += 1
                elif answer.body not in (b"w%d" % n for n in range(WORKERS)) \
                        and answer.body.count(b"data:") != EVENTS:
                    self.failed.append(answer.body)
            time.sleep(0.05)


at = None                       # the Chaos, set by main()


def nothing_fails():
    """no request fails that another worker could serve"""
    at.run()
    print(f"# {at.done} requests, {at.changes} deaths and returns, "
          f"{at.retries()} retries, {at.cut} streams cut")
    assert not at.failed, (len(at.failed), at.failed[:5])


def all_of_them_come_back():
    """in the end all of them are well again"""
    for engine in at.engines:
        engine.mode = "ok"
    # who was long dead waits longest for its next probe; a prompt that was just
    # sent stays where it is in flight, so each one is new

    for number in range(600):
        at.stage.ask([1000 + number] * 64)
        states = {worker["health"]["state"]
                  for worker in at.stage.workers().values()}
        if states == {"ok"}:
            return
        time.sleep(0.1)
    raise AssertionError({name: worker["health"] for name, worker
                          in at.stage.workers().items()})


def every_worker_serves():
    """and serve again, those that died too"""
    before = [engine.served for engine in at.engines]
    for number in range(600):
        at.stage.ask([PROMPTS + number] * 64)
        if all(engine.served > served
               for engine, served in zip(at.engines, before)):
            return
    raise AssertionError([engine.served - served for engine, served
                          in zip(at.engines, before)])


def there_is_no_load():
    """and no load is left"""
    at.stage.check_idle()


def the_log_is_quiet():
    """the log has nothing but engines that failed"""
    at.stage.check_log(*ALLOWED)
    assert len(at.stage.children()) == PROCESSES


def main():
    """Runs the tests."""
    global at
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with ChaosStage("chaos") as stage, contextlib.ExitStack() as stack:
        engines = [Engine(f"w{number}") for number in range(WORKERS)]
        for engine in engines:
            engine.mode, engine.pause = "mixed", 0.4
            stack.callback(engine.die)
        stage.start_nginx({engine.name: engine.address for engine in engines},
                          "kv_cost")
        at = Chaos(stage, engines, seconds)
        return stage.run([nothing_fails, all_of_them_come_back,
                          every_worker_serves, there_is_no_load,
                          the_log_is_quiet])


if __name__ == "__main__":
    sys.exit(main())
