#!/usr/bin/python3
"""A rolling restart under load: each engine in turn is drained by its relay,
ended together with it, and begins anew under its id, with an empty cache.

Sessions of coding agents go on all the time.  The program prints the hit rate
before, during and after, as the engines count cached tokens, and what clients
saw.  The status is 1 when a request failed, or a stream was not whole.
"""

import argparse
import asyncio
import contextlib
import subprocess
import sys
import threading
import time

import load
import replay
from fleet import (Engines, Policy, add_options, milliseconds, print_table,
                   session)
from processes import DemoError, wait_until

BLOCKS = 4096                   # of each cache
PREFILL_US = 60
RELAY_SECONDS = 300             # that a drain may take


class Load(load.Load):
    """The load, in a thread of its own."""

    def __init__(self, options):
        super().__init__(options)
        self.answered = []              # (time, time to first token)
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self.run())
        self._thread = threading.Thread(target=self._go, daemon=True)
        self._thread.start()

    def _go(self):
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)

    async def _one(self, session, body, number, talk):
        answer = await super()._one(session, body, number, talk)
        if answer is not None:
            self.answered.append((time.monotonic(), self.results[-1]["ttft"]))
        return answer

    async def _report(self):
        """The tables are enough."""

    def stop(self):
        """Ends it."""
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()


class Phases:
    """What engines and clients say of each phase."""

    def __init__(self, fleet, clients):
        self.fleet, self.clients = fleet, clients
        self.retired = [0, 0]           # by engines that have ended
        self.rows = []
        self._mark()

    def _tokens(self):
        return [sum(counts) for counts in zip(
            self.retired, *map(self.fleet.cached, self.fleet.workers))]

    def _mark(self):
        self._since = (time.monotonic(), self._tokens(),
                       sum(self.clients.errors.values()))

    def retire(self, name):
        """The counts of an engine that is about to end."""
        self.retired = [sum(pair) for pair in zip(
            self.retired, self.fleet.cached(name))]

    def end(self, title):
        """A phase is over, and another one begins."""
        begun, (queries, hits), failed = self._since
        self._mark()
        now, (more, hit), fails = self._since
        ttfts = [ttft for at, ttft in list(self.clients.answered)
                 if at >= begun]
        self.rows.append([
            title, f"{now - begun:.0f} s", str(len(ttfts)),
            str(fails - failed),
            f"{(hit - hits) / max(1, more - queries):.1%}",
            *(milliseconds(replay.percentile(ttfts, percent))
              for percent in (50, 90))])


def all_serve(fleet):
    """Whether nginx knows all engines by their registrations, and none
    drains."""
    return {w["worker_id"] for w in fleet.status()["workers"]
            if w["origin"] == "redis" and not w["draining"]
            and w["confidence"] == "EXACT"} == set(fleet.workers)


def roll(fleet, phases):
    """Each engine in turn: the seconds that its drain took."""
    took = []
    for name, address in fleet.relay_addresses().items():
        begun = time.monotonic()
        subprocess.run([fleet.relay, "--drain", "--listen", address],
                       check=True, stdout=subprocess.DEVNULL,
                       timeout=RELAY_SECONDS)
        took.append(time.monotonic() - begun)
        phases.retire(name)
        fleet.renew(name)
        wait_until(f"{name} serves again", lambda: all_serve(fleet))
    return took


def work(fleet, options):
    """The run; the program's status."""
    fleet.start(Policy("kv_cost"))
    fleet.check_events()
    wait_until("all engines serve", lambda: all_serve(fleet))
    clients = Load(replay.parse_options([
        "--url", f"{fleet.url}/v1/completions", "--agents",
        str(options.sessions), "--speedup", str(options.speedup),
        "--seed", str(options.seed)]))
    try:
        time.sleep(options.seconds)     # caches fill
        phases = Phases(fleet, clients)
        time.sleep(options.seconds)
        phases.end("before")
        took = roll(fleet, phases)
        phases.end("during")
        time.sleep(options.seconds)
        phases.end("after")
    except subprocess.CalledProcessError as err:
        raise DemoError(f"a drain failed: {err}") from err
    finally:
        clients.stop()
    print_table(["phase", "time", "answered", "failed", "hit rate",
                 "TTFT p50", "p90"], phases.rows)
    print(f"{len(took)} engines, {options.sessions} sessions; a drain took "
          f"{replay.percentile(took, 50):.1f} s at p50 and {max(took):.1f} s "
          f"at most")
    for kind, count in clients.errors.items():
        print(f"{count} requests failed: {kind}")
    return int(bool(clients.errors or not clients.answered))


def main():
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--engines", type=int, default=8, help="how many there are")
    add("--sessions", type=int, default=24, help="how many go on at once")
    add("--seconds", type=float, default=60.0,
        help="for the caches to fill, before, and after")
    add("--speedup", type=float, default=24.0,
        help="divides the time between two turns")
    add("--seed", type=int, default=1, help="of sessions and engines")
    add_options(parser)
    options = parser.parse_args()
    engines = Engines(BLOCKS, PREFILL_US, options.seed, registered=True,
                      names=tuple(f"w{n}" for n
                                  in range(1, options.engines + 1)))
    return session(options, engines, lambda fleet: work(fleet, options))


if __name__ == "__main__":
    sys.exit(main())
