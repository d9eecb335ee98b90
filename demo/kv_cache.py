"""A paged KV cache, without the KV: which blocks an engine holds, and why.

The model is vLLM's.  The cache is a fixed number of blocks of `block_size`
tokens.  A complete block is named by a *handle*, the engine's own hash of
everything from the start of the prompt to the end of that block.

    free queue   [oldest ... youngest]   blocks that nobody uses, still cached
    held         handle -> its copies    what a new prompt can reuse

* A block in use has refs > 0 and is not in the free queue.
* A released sequence goes to the queue in reverse, so that the tail of a
  chain is evicted before its head.
* At least the last token of a prompt is computed, so a prompt that is cached
  to its last block computes that block again: a second copy of one handle.

Every change is noted as an event in vLLM's form: each copy of a block that is
stored, and each that is lost.  To count copies is the reader's part.
"""

from array import array
from collections import OrderedDict

from xxhash import xxh3_64_intdigest

MEDIUM = "GPU"


# ---------------------------------------------------------------- hashes

class Sequence:
    """The tokens of one request, with the hashes of its complete blocks.

    Engines of the same `secret` agree on handles, others don't: as vLLM's
    with the same or another PYTHONHASHSEED.  One that does not read the cache
    is computed whole, and is cached then.
    """

    def __init__(self, tokens, block_size, lora_name="", cache_salt="",
                 secret=0, reads_cache=True):
        self.tokens = array("I", tokens)
        self.block_size = block_size
        self.lora_name = lora_name
        self.cache_salt = cache_salt
        self.reads_cache = reads_cache
        self.handles = []           # handle of each complete block
        self.blocks = []            # ids of the cache blocks allocated
        self.committed = 0          # complete blocks known to the cache
        self._secret = secret
        self._root = xxh3_64_intdigest(
            f"{lora_name}\0{cache_salt}".encode(), seed=secret)
        self._hash_complete_blocks()

    def extend(self, tokens):
        """Appends generated tokens."""
        self.tokens.extend(tokens)
        self._hash_complete_blocks()

    def _hash_complete_blocks(self):
        size = self.block_size
        first = len(self.handles)
        last = len(self.tokens) // size
        if first == last:
            return
        parent = self.handles[-1] if first else self._root
        data = self.tokens[first * size:last * size].tobytes()
        width = 4 * size
        for start in range(0, len(data), width):
            block = data[start:start + width]
            parent = xxh3_64_intdigest(parent.to_bytes(8, "little") + block,
                                       seed=self._secret)
            self.handles.append(parent)

    def stored_event(self, first, last):
        """BlockStored of the complete blocks first .. last - 1."""
        size = self.block_size
        lora = [self.lora_name] if self.lora_name else []
        salt = [self.cache_salt] if self.cache_salt else []
        extra_keys = [(lora if i else lora + salt) or None
                      for i in range(first, last)]
        return ["BlockStored", self.handles[first:last],
                self.handles[first - 1] if first else None,
                list(self.tokens[first * size:last * size]), size,
                None, MEDIUM, self.lora_name or None, extra_keys]


# ----------------------------------------------------------------- cache

class KVCache:
    """Blocks, their reference counts, and the events of their changes."""

    def __init__(self, num_blocks, block_size):
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.refs = [0] * num_blocks
        self.handle_of = [None] * num_blocks
        self.held = {}                          # handle -> {block: None, ...}
        self.free = OrderedDict.fromkeys(range(num_blocks))
        self._events = []

    def blocks_for(self, num_tokens):
        """How many blocks hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def usage(self):
        """The part of the blocks that running requests use, 0..1."""
        return 1 - len(self.free) / self.num_blocks

    def take_events(self):
        """The events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def allocate(self, sequence, num_tokens):
        """Blocks for `num_tokens` tokens, cached ones first.

        Returns the number of prompt tokens found in the cache, or None (and
        nothing has changed) when there aren't enough free blocks.
        """
        hits = self._cached_prefix(sequence) if sequence.reads_cache else []
        fresh = self.blocks_for(num_tokens) - len(hits)
        idle_hits = sum(1 for block in hits if self.refs[block] == 0)
        if fresh > len(self.free) - idle_hits:
            return None

        for block in hits:
            if self.refs[block] == 0:
                del self.free[block]
            self.refs[block] += 1

        for _ in range(fresh):
            block, _ = self.free.popitem(last=False)
            self._forget(block)
            self.refs[block] = 1
            hits.append(block)

        cached = len(hits) - fresh
        sequence.blocks = hits
        sequence.committed = cached
        return cached * self.block_size

    def commit(self, sequence, num_tokens):
        """The first `num_tokens` tokens are computed: caches their blocks."""
        first, last = sequence.committed, num_tokens // self.block_size
        if first >= last:
            return
        for i in range(first, last):
            block, handle = sequence.blocks[i], sequence.handles[i]
            self.handle_of[block] = handle
            self.held.setdefault(handle, {})[block] = None
        self._events.append(sequence.stored_event(first, last))
        sequence.committed = last

    def release(self, sequence):
        """The sequence has ended; its blocks stay cached while they can."""
        for block in reversed(sequence.blocks):
            self.refs[block] -= 1
            if self.refs[block] == 0:
                self.free[block] = None
        sequence.blocks = []

    def clear(self):
        """Empties the cache; False (nothing done) while a block is in use."""
        if len(self.free) != self.num_blocks:
            return False
        self.held.clear()
        self.handle_of = [None] * self.num_blocks
        self._events.append(["AllBlocksCleared"])
        return True

    def _cached_prefix(self, sequence):
        """The blocks that hold a sequence's head, all but its last token."""
        hits = []
        limit = (len(sequence.tokens) - 1) // self.block_size
        for handle in sequence.handles[:limit]:
            copies = self.held.get(handle)
            if copies is None:
                break
            hits.append(next(iter(copies)))
        return hits

    def _forget(self, block):
        handle = self.handle_of[block]
        if handle is None:
            return
        self.handle_of[block] = None
        copies = self.held[handle]
        del copies[block]
        if not copies:
            del self.held[handle]
        self._events.append(["BlockRemoved", [handle], MEDIUM])
