#!/usr/bin/python3
"""A load without an end: sessions of coding agents, so many at once.

Takes the options of replay.py.  Each conversation that ends, or fails, is
followed by another one, so that the number of them stays as it is, however
slow the answers are.  Prints every few seconds what clients have seen; SIGTERM
and SIGINT stop it.
"""

import asyncio
import contextlib
import itertools
import random
import signal
import sys
import time
from collections import deque

import conversations
import replay

WINDOW_SECONDS = 15.0           # that a line is about
WINDOW_REQUESTS = 4096          # and the most that it is about
REPORT_SECONDS = 5.0
PAUSE_SECONDS = 1.0             # the most, between two conversations
SESSIONS = 64                   # drawn at a time


class Load(replay.Replay):
    """Conversations that follow each other."""

    def __init__(self, options):
        super().__init__(options, [])
        self.sent = deque(maxlen=0)             # nothing asks for the ceiling
        self.asked = deque(maxlen=0)
        self.results = deque(maxlen=1)          # nor for these
        self._window = deque(maxlen=WINDOW_REQUESTS)    # (time, result)
        self._seeds = itertools.count(options.seed)
        self._numbers = itertools.count()
        self._drawn = []
        self._lot = random.Random(options.seed)

    async def run(self):
        """Goes on until it is cancelled."""
        async with self._session() as session, asyncio.TaskGroup() as group:
            for _ in range(self.options.agents):
                group.create_task(self._follow(session))
            group.create_task(self._report())

    async def _follow(self, session):
        """One conversation after the other."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._drawn:
                self._drawn = conversations.draw_agents(
                    SESSIONS, next(self._seeds))
            await self._converse(
                session, self._drawn.pop(),
                loop.time() + PAUSE_SECONDS * self._lot.random(),
                next(self._numbers))

    async def _one(self, session, body, number, talk):
        answer = await super()._one(session, body, number, talk)
        self._window.append((time.monotonic(), None if answer is None
                             else self.results[-1]))
        return answer

    async def _report(self):
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            since = time.monotonic() - WINDOW_SECONDS
            while self._window and self._window[0][0] < since:
                self._window.popleft()
            results = [result for _, result in self._window if result]
            prompt = sum(result["prompt_tokens"] for result in results)
            cached = sum(result["cached_tokens"] for result in results)
            middle = replay.percentile(
                [result["ttft"] for result in results], 50)
            print(f"the last {WINDOW_SECONDS:.0f} s: "
                  f"{len(results) / WINDOW_SECONDS:.1f} requests/s, "
                  f"{len(self._window) - len(results)} failed"
                  + (f", cache hit rate {cached / prompt:.1%}, TTFT p50 "
                     f"{middle * 1000:.0f} ms" if results else ""),
                  flush=True)


async def main():
    """The program."""
    options = replay.parse_options()
    task = asyncio.create_task(Load(options).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
