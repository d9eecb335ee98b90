#!/usr/bin/python3
"""SGLang's own radix cache, with no model around it, and its own publisher.

sglang_cache.py KV_EVENTS_CONFIG PAGE_SIZE.  Reads commands from stdin, a JSON
line each, and answers each by a JSON line, whose "messages" says how many were
published so far:

    {"insert": TOKENS}      these are computed
    {"match": TOKENS}       "had": how many of them the cache has
    {"evict": N}            the N oldest tokens go, whole leaves of them
    {"reset": true}         everything goes

Runs in an environment with torch, SGLang on its path.
"""

import json
import sys
import time
from array import array

import torch
from sglang.srt.disaggregation.kv_events import (EventPublisherFactory,
                                                 KVEventBatch)
from sglang.srt.mem_cache.base_prefix_cache import (EvictParams,
                                                    InsertParams,
                                                    MatchPrefixParams)
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey


class Pool:
    """Memory that is never short of."""

    device = "cpu"

    def free_segment(self, *_, **__):
        """Nothing is to be given back."""


def main():
    """Serves commands until stdin ends."""
    publisher = EventPublisherFactory.create(sys.argv[1])
    cache = RadixCache.create_simulated(
        mock_allocator=Pool(), page_size=int(sys.argv[2]),
        enable_kv_cache_events=True)
    messages = 0
    for line in sys.stdin:
        (command, what), = json.loads(line).items()
        answer = {}
        if command in ("insert", "match"):
            key = RadixKey(array("q", what))
        if command == "insert":
            cache.insert(InsertParams(key=key, value=torch.arange(len(what))))
        elif command == "match":
            answer["had"] = cache.match_prefix(
                MatchPrefixParams(key=key)).device_prefix_len
        elif command == "evict":
            cache.evict(EvictParams(num_tokens=what))
        else:
            cache.reset()
        events = cache.take_events()
        if events:
            publisher.publish(KVEventBatch(ts=time.time(), events=events))
            messages += 1
        print(json.dumps(answer | {"messages": messages,
                                   "tokens": cache.total_size()}), flush=True)


if __name__ == "__main__":
    main()
