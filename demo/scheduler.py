"""When an engine computes what: continuous batching in steps.

    submit ─► waiting ─► prefill, in parts ─► decoding ─► done
                         └──── running, at most max_num_seqs ────┘

A step has at most `max_tokens` tokens: one for each request that decodes, then
parts of prompts, in the order in which they began.  A request begins when the
step has tokens left and the cache has blocks.  A step takes

    base + prefill * P + prefill_context * sum of P * (context before P)
         + decode * D + decode_context * (context of all D)

seconds, for P tokens of prompts and D requests that decode, as in kv-simulate.
Blocks are taken for prompt and answer at once; a real engine takes the answer's
one by one and preempts when they run out.

Time is kept by deadlines, so that a late wake-up on a busy machine does not
make the engine slower than it says; how often it was late is counted.  Steps
that only decode are waited for together, until one of their requests has
something to tell or another one comes.
"""

import asyncio
import random
from collections import deque
from dataclasses import dataclass

from xxhash import xxh3_64_intdigest

from lateness import Deadlines
from tokenizer import WORDS

CHUNK_SECONDS = 0.1             # a stream's tokens come in chunks this long
MEAN_ANSWER_TOKENS = 128        # of answers that end by themselves


@dataclass(frozen=True)
class Times:
    """Seconds, of which a step's are the sum: see above."""

    base: float
    prefill: float
    prefill_context: float
    decode: float
    decode_context: float

    def step(self, parts, decoding):
        """The seconds of a step: [(request, tokens of its prompt)], requests
        that decode."""
        return (self.base + self.prefill * sum(n for _, n in parts)
                + self.prefill_context * sum(
                    n * request.computed for request, n in parts)
                + self.decode * len(decoding)
                + self.decode_context * sum(
                    request.computed for request in decoding))


class Request:
    """One prompt on its way through the engine."""

    def __init__(self, sequence, max_tokens, ignore_eos, is_gone, token_of):
        self.sequence = sequence
        self.token_of = token_of        # callable: the id of a piece of text
        self.prompt_tokens = len(sequence.tokens)
        self.cached_tokens = 0
        self.computed = 0               # tokens of prompt and answer
        self.answered = 0               # tokens of the answer
        self.told = 0                   # of these, in pieces
        self.tell_at = 1                # when so many are answered
        self.pieces = []                # that nobody has taken yet
        self.news = asyncio.Event()     # there are some
        self.is_gone = is_gone          # callable: the client has hung up
        self._random = random.Random(
            xxh3_64_intdigest(sequence.tokens.tobytes()))
        self.finish_reason = "length"
        self.answer_tokens = max_tokens
        if not ignore_eos:
            natural = 1 + int(self._random.expovariate(1 / MEAN_ANSWER_TOKENS))
            if natural < max_tokens:
                self.answer_tokens = natural
                self.finish_reason = "stop"

    def answer(self, count):
        """The next `count` pieces of text: the same for the same prompt."""
        return self._random.choices(WORDS, k=count)

    def ids(self, text):
        """The ids of a part of the answer."""
        return [self.token_of(f" {word}") for word in text.split()]


class Scheduler:
    """One engine's time and cache."""

    def __init__(self, cache, publish, max_num_seqs, max_tokens, times):
        self.cache = cache
        self.running = 0
        self.waiting = deque()
        self.queried_tokens = 0         # prompt tokens looked up in the cache
        self.hit_tokens = 0             # and found
        self.deadlines = Deadlines()
        self._publish = publish
        self._max_num_seqs = max_num_seqs
        self._max_tokens = max_tokens
        self._times = times
        self._active = []               # what is computed, as it began
        self._changed = asyncio.Event()

    async def run(self):
        """Computes steps, for ever."""
        loop = asyncio.get_running_loop()
        clock = loop.time()             # when the last step ended
        while True:
            self._changed.clear()
            parts, decoding = self._plan()
            if parts:
                clock += self._times.step(parts, decoding)
                await self.deadlines.wait(clock)
                self._prefilled(parts)
                self._decoded(decoding, 1)
            elif decoding:
                clock = await self._decode(decoding, clock)
            else:
                await self._changed.wait()
                clock = loop.time()

    async def generate(self, request):
        """Yields lists of text pieces as they are decoded."""
        self.waiting.append(request)
        self._changed.set()
        told = 0
        try:
            while told < request.answer_tokens:
                await request.news.wait()
                request.news.clear()
                if request.is_gone():
                    return
                pieces, request.pieces = request.pieces, []
                told += len(pieces)
                yield pieces
        finally:
            self._finish(request)

    def clear(self):
        """Empties the cache; False while requests run."""
        cleared = self.cache.clear()
        self._flush_events()
        return cleared

    def _plan(self):
        """The next step: parts of prompts, and who decodes."""
        decoding = [request for request in self._active if request.answered]
        budget = max(0, self._max_tokens - len(decoding))
        parts = []

        def plan(request):
            tokens = min(budget, request.prompt_tokens - request.computed)
            parts.append((request, tokens))
            return budget - tokens

        for request in self._active:
            if budget and not request.answered:
                budget = plan(request)
        while budget:
            request = self._admit()
            if request is None:
                break
            self._active.append(request)
            budget = plan(request)
        return parts, decoding

    def _admit(self):
        """Takes the head of the queue when there is room for it."""
        while self.waiting and self.waiting[0].is_gone():
            self.waiting.popleft().news.set()
        if not self.waiting or self.running >= self._max_num_seqs:
            return None
        request = self.waiting[0]
        cached = self.cache.allocate(
            request.sequence, request.prompt_tokens + request.answer_tokens)
        if cached is None:
            return None
        self.waiting.popleft()
        self.running += 1
        request.cached_tokens = request.computed = cached
        self.queried_tokens += request.prompt_tokens
        self.hit_tokens += cached
        self._flush_events()            # what was evicted is gone now
        return request

    async def _decode(self, decoding, clock):
        """Waits for steps that only decode: when the last one of them ends."""
        loop = asyncio.get_running_loop()
        step = self._times.step((), decoding)
        ends = []
        for _ in range(min(request.tell_at - request.answered
                           for request in decoding)):
            clock += step
            step += self._times.decode_context * len(decoding)
            ends.append(clock)
        if await self.deadlines.wait(clock, self._changed):
            # what has come is begun when the step that runs has ended
            now = loop.time()
            ends = [end for i, end in enumerate(ends)
                    if i == 0 or ends[i - 1] < now]
            await self.deadlines.wait(ends[-1])
        self._decoded(decoding, len(ends))
        return ends[-1]

    def _prefilled(self, parts):
        """Parts of prompts are computed."""
        for request, tokens in parts:
            if request not in self._active:     # has hung up meanwhile
                continue
            request.computed += tokens
            self.cache.commit(request.sequence, request.computed)
            if request.computed == request.prompt_tokens:
                request.answered = 1
                self._tell(request)
        self._flush_events()

    def _decoded(self, decoding, count):
        """`count` more tokens of each that decodes."""
        for request in decoding:
            if request not in self._active:
                continue
            request.computed += count
            request.answered += count
            if request.answered == request.tell_at:
                self._tell(request)

    def _tell(self, request):
        """The tokens that are answered; the newest one's KV isn't computed."""
        pieces = request.answer(request.answered - request.told)
        sequence = request.sequence
        sequence.extend(request.token_of(piece) for piece in pieces)
        self.cache.commit(sequence, len(sequence.tokens) - 1)
        self._flush_events()
        request.pieces += pieces
        request.told = request.answered
        request.news.set()
        if request.told == request.answer_tokens:
            self._release(request)
            return
        seconds = self._times.step((), self._active)
        chunk = round(CHUNK_SECONDS / seconds) if seconds \
            else request.answer_tokens
        request.tell_at = min(request.answer_tokens,
                              request.told + max(1, chunk))

    def _finish(self, request):
        """Nobody waits for the request's tokens any more."""
        if request in self.waiting:
            self.waiting.remove(request)
        if request in self._active:
            self._release(request)
            self._changed.set()

    def _release(self, request):
        self._active.remove(request)
        self.cache.release(request.sequence)
        self.running -= 1

    def _flush_events(self):
        events = self.cache.take_events()
        if events:
            self._publish(events)
