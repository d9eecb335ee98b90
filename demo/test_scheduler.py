#!/usr/bin/python3
"""The engine stand-in's steps, in virtual time; TAP."""

import asyncio
import random
import selectors
import sys

import tap
from kv_cache import KVCache, Sequence
from scheduler import Request, Scheduler, Times
from tokenizer import token_of

SIZE = 16
TIMES = Times(base=4e-3, prefill=35e-6, prefill_context=1.5e-9, decode=30e-6,
              decode_context=40e-9)


class Clock(selectors.SelectSelector):
    """A selector for which time passes as soon as all wait for it."""

    now = 1000.0

    def select(self, timeout=None):
        """Nothing is ever ready; the time is what was waited for."""
        assert timeout is not None, "all wait, and nothing will happen"
        self.now += max(0.0, timeout)
        return []


class Loop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self):
        self.clock = Clock()
        super().__init__(self.clock)
        self._clock_resolution = 1e-9

    def time(self):
        return self.clock.now


def submitted(jobs, max_tokens=2048, max_num_seqs=64, blocks=4000):
    """What the scheduler makes of jobs [(at, prompt tokens, answer tokens)],
    of which none has a prefix of another: [(first token at, end at)] from the
    first job on, in seconds."""
    loop = Loop()

    async def one(scheduler, number, at, prompt, answer):
        await asyncio.sleep(at)
        request = Request(Sequence([number] + [0] * (prompt - 1), SIZE),
                          answer, True, lambda: False, token_of)
        first, count = None, 0
        async for pieces in scheduler.generate(request):
            first = first or loop.time()
            count += len(pieces)
        assert count == answer, (count, answer)
        return first - 1000.0, loop.time() - 1000.0

    async def everything():
        scheduler = Scheduler(KVCache(blocks, SIZE), lambda events: None,
                              max_num_seqs, max_tokens, TIMES)
        running = asyncio.create_task(scheduler.run())
        found = await asyncio.gather(*(
            one(scheduler, number, *job) for number, job in enumerate(jobs)))
        running.cancel()
        assert scheduler.running == 0 and scheduler.cache.clear()
        assert scheduler.deadlines.missed == 0
        return found

    try:
        return loop.run_until_complete(everything())
    finally:
        loop.close()


def step_by_step(jobs, max_tokens=2048, max_num_seqs=64):
    """The same, each step by itself: [(first token at, end at)]."""
    waiting = sorted((at, number) for number, (at, _, _) in enumerate(jobs))
    computed, answered, active = {}, {}, []
    first, end = {}, {}
    clock = 0.0
    while waiting or active:
        if not active:
            clock = max(clock, waiting[0][0])
        decoding = [n for n in active if answered[n]]
        budget = max_tokens - len(decoding)
        parts = []
        while waiting and waiting[0][0] <= clock + 1e-9 \
                and len(active) < max_num_seqs and budget > sum(
                    jobs[n][1] - computed[n] for n in active
                    if not answered[n]):
            number = waiting.pop(0)[1]
            computed[number] = answered[number] = 0
            active.append(number)
        for number in active:
            if not answered[number]:
                tokens = min(budget, jobs[number][1] - computed[number])
                budget -= tokens
                parts.append((number, tokens))
        clock += (TIMES.base + TIMES.prefill * sum(n for _, n in parts)
                  + TIMES.prefill_context * sum(
                      n * computed[number] for number, n in parts)
                  + TIMES.decode * len(decoding) + TIMES.decode_context
                  * sum(computed[number] for number in decoding))
        for number, tokens in parts:
            computed[number] += tokens
            if computed[number] == jobs[number][1]:
                answered[number] = 1
                first[number] = clock
        for number in decoding:
            computed[number] += 1
            answered[number] += 1
        for number in list(active):
            if answered[number] == jobs[number][2]:
                end[number] = clock
                active.remove(number)
    return [(first[number], end[number]) for number in range(len(jobs))]


def near(found, wanted):
    """Are these times the same, but for rounding?"""
    return all(abs(one - other) < 1e-6 for pair in zip(found, wanted)
               for one, other in zip(*pair))


def a_prompt_is_computed_in_parts():
    """a prompt that is longer than a step is computed in parts"""
    (first, end), = submitted([(0.0, 3000, 1)])
    rest = 3000 - 2048
    assert abs(first - (2 * TIMES.base + TIMES.prefill * 3000
                        + TIMES.prefill_context * rest * 2048)) < 1e-9, first
    assert first == end


def decoding_slows_with_company():
    """requests that decode together are slower than one alone"""
    (first, end), = submitted([(0.0, 1600, 101)])
    alone = (end - first) / 100
    context = sum(range(1600, 1700)) / 100
    assert abs(alone - (TIMES.base + TIMES.decode
                        + TIMES.decode_context * context)) < 1e-9, alone
    together = [(end - first) / 100 for first, end in submitted(
        [(0.0, 1600, 101)] * 8, max_tokens=8 * 1600)]
    assert all(abs(each - (TIMES.base + 8 * (
        TIMES.decode + TIMES.decode_context * context))) < 1e-9
        for each in together), together


def a_prefill_delays_who_decodes():
    """a prompt that comes is computed beside what decodes, which waits"""
    alone, = submitted([(0.0, 160, 200)])
    delayed, other = submitted([(0.0, 160, 200), (0.3, 2000, 1)])
    assert abs(delayed[1] - alone[1] - TIMES.prefill * 2000) < 1e-6
    assert other[0] - 0.3 < TIMES.prefill * 2000 + 4 * TIMES.base


def waiting_together_changes_nothing():
    """steps that are waited for together take as long as each by itself"""
    lot = random.Random(7)
    for case in range(30):
        jobs = [(lot.uniform(0, 2), lot.randint(1, 5000), lot.randint(1, 300))
                for _ in range(lot.randint(1, 25))]
        limits = {"max_tokens": lot.choice((64, 2048, 8192)),
                  "max_num_seqs": lot.choice((2, 64))}
        found = submitted(jobs, blocks=20_000, **limits)
        wanted = step_by_step(jobs, **limits)
        assert near(found, wanted), (case, jobs, limits, found, wanted)


if __name__ == "__main__":
    sys.exit(tap.run([
        a_prompt_is_computed_in_parts,
        decoding_slows_with_company,
        a_prefill_delays_who_decodes,
        waiting_together_changes_nothing]))
