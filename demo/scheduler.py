"""When an engine computes what: a queue, one prefill at a time, decoding.

    submit ─► waiting ─► prefill (serial, FIFO) ─► decoding (concurrent) ─► done

The head of the queue waits for a place among `max_num_seqs` and for cache
blocks.  Blocks are taken for prompt and answer at once; a real engine takes
the answer's one by one and preempts when they run out.  Prefill takes
`prefill_us` for each token that is not cached, decoding `decode_us` a token,
whatever else runs.  Time is kept by deadlines, so that a late wake-up on a
busy machine does not make the engine slower than it says; how often it was
late is counted.
"""

import asyncio
import random
from collections import deque

from xxhash import xxh3_64_intdigest

from lateness import Deadlines
from tokenizer import WORDS

CHUNK_SECONDS = 0.1             # a stream's tokens come in chunks this long
MEAN_ANSWER_TOKENS = 128        # of answers that end by themselves


class Request:
    """One prompt on its way through the engine."""

    def __init__(self, sequence, max_tokens, ignore_eos, is_gone, token_of):
        self.sequence = sequence
        self.token_of = token_of        # callable: the id of a piece of text
        self.prompt_tokens = len(sequence.tokens)
        self.cached_tokens = 0
        self.is_gone = is_gone          # callable: the client has hung up
        self.prefilled = asyncio.get_running_loop().create_future()
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

    def __init__(self, cache, publish, max_num_seqs, prefill_us, decode_us):
        self.cache = cache
        self.running = 0
        self.waiting = deque()
        self.queried_tokens = 0         # prompt tokens looked up in the cache
        self.hit_tokens = 0             # and found
        self.deadlines = Deadlines()
        self._publish = publish
        self._max_num_seqs = max_num_seqs
        self._prefill_seconds = prefill_us / 1e6
        self._decode_seconds = decode_us / 1e6
        self._changed = asyncio.Event()

    async def run(self):
        """Prefills what is waiting, for ever."""
        loop = asyncio.get_running_loop()
        clock = loop.time()             # when the last prefill ended
        while True:
            request = self._admit()
            if request is None:
                self._changed.clear()
                await self._changed.wait()
                clock = loop.time()
                continue
            uncached = request.prompt_tokens - request.cached_tokens
            clock += uncached * self._prefill_seconds
            await self.deadlines.wait(clock)
            if request.prefilled.done():        # cancelled meanwhile
                continue
            self.cache.commit(request.sequence, request.prompt_tokens)
            self._flush_events()
            request.prefilled.set_result(clock)

    async def generate(self, request):
        """Yields lists of text pieces as they are decoded."""
        self.waiting.append(request)
        self._changed.set()
        try:
            clock = await request.prefilled
            yield self._decode(request, 1)
            done = 1
            chunk = max(1, round(CHUNK_SECONDS / self._decode_seconds)) \
                if self._decode_seconds else request.answer_tokens
            while done < request.answer_tokens:
                count = min(chunk, request.answer_tokens - done)
                clock += count * self._decode_seconds
                await self.deadlines.wait(clock)
                if request.is_gone():
                    return
                yield self._decode(request, count)
                done += count
        finally:
            self._finish(request)

    def clear(self):
        """Empties the cache; False while requests run."""
        cleared = self.cache.clear()
        self._flush_events()
        return cleared

    def _admit(self):
        """Takes the head of the queue when there is room for it."""
        while self.waiting and self.waiting[0].is_gone():
            self.waiting.popleft().prefilled.cancel()
        if not self.waiting or self.running >= self._max_num_seqs:
            return None
        request = self.waiting[0]
        cached = self.cache.allocate(
            request.sequence, request.prompt_tokens + request.answer_tokens)
        if cached is None:
            return None
        self.waiting.popleft()
        self.running += 1
        request.cached_tokens = cached
        self.queried_tokens += request.prompt_tokens
        self.hit_tokens += cached
        self._flush_events()            # what was evicted is gone now
        return request

    def _decode(self, request, count):
        """`count` more tokens; the newest one's KV isn't computed yet."""
        pieces = request.answer(count)
        sequence = request.sequence
        sequence.extend(request.token_of(piece) for piece in pieces)
        self.cache.commit(sequence, len(sequence.tokens) - 1)
        self._flush_events()
        return pieces

    def _finish(self, request):
        if request in self.waiting:
            self.waiting.remove(request)
        if request.sequence.blocks:
            self.cache.release(request.sequence)
            self.running -= 1
        self._changed.set()

    def _flush_events(self):
        events = self.cache.take_events()
        if events:
            self._publish(events)
