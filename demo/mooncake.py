"""The Mooncake conversation trace as conversations of one turn each.

A line is {"timestamp": ms, "input_length", "output_length", "hash_ids"}, one
hash id for each 512 tokens of the prompt; equal ids are equal tokens after
equal prefixes.
"""

import json
from dataclasses import dataclass

from xxhash import xxh3_64_intdigest

from conversations import Conversation

TOKENS_PER_HASH_ID = 512
LAST_GAP_MS = 3000              # timestamps are multiples of about this


@dataclass
class TraceRequest:
    """One request of the trace, scaled: the turn of its conversation."""

    hash_ids: list
    input_length: int
    output_length: int
    tokens_per_id: int
    think: float = 0.0

    @property
    def tokens(self):
        """The prompt's token ids, the same in every run."""
        tokens = []
        for hash_id in self.hash_ids:
            tokens += _tokens_of(hash_id, self.tokens_per_id)
        return tokens[:self.input_length]


def _tokens_of(hash_id, count):
    digest = xxh3_64_intdigest(hash_id.to_bytes(8, "little"))
    first, step = digest % 65536, 1 + (digest >> 32) % 100
    return range(first, first + count * step, step)


def load(path, count, scale, skip=0):
    """`count` requests after the first `skip`, in order of time.

    `scale` divides all lengths.  Timestamps are coarse, a dozen requests
    share one (thirty at the start); these are spread evenly until the next.
    """
    requests, stamps = [], []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number < skip:
                continue
            if len(requests) == count:
                break
            record = json.loads(line)
            stamps.append(record["timestamp"])
            requests.append(TraceRequest(
                record["hash_ids"],
                max(1, record["input_length"] // scale),
                max(1, record["output_length"] // scale),
                TOKENS_PER_HASH_ID // scale))
    return [Conversation(at / 1000, [request])
            for request, at in zip(requests, _spread(stamps))]


def _spread(stamps):
    """Milliseconds since the first, equal stamps spread until the next."""
    spread = []
    start = 0
    while start < len(stamps):
        end = start
        while end < len(stamps) and stamps[end] == stamps[start]:
            end += 1
        gap = stamps[end] - stamps[start] if end < len(stamps) else LAST_GAP_MS
        spread += [stamps[start] - stamps[0] + gap * i / (end - start)
                   for i in range(end - start)]
        start = end
    return spread
