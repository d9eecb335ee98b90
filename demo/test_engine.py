#!/usr/bin/python3
"""The engine stand-in's cache model, its hashes and its tokenizer; TAP."""

import random
import sys
from collections import Counter

import tap
from kv_cache import KVCache, Sequence
from tokenizer import WORDS, chat_text, token_of, tokenize

SIZE = 4


# -------------------------------------------------------------- helpers

def sequence(tokens, **options):
    return Sequence(tokens, SIZE, **options)


def prompt(first, blocks):
    """The tokens of `blocks` complete blocks and one token more."""
    return list(range(first, first + blocks * SIZE + 1))


def admit(cache, tokens, **options):
    """Allocates and computes a prompt; returns (sequence, cached tokens)."""
    seq = sequence(tokens, **options)
    cached = cache.allocate(seq, len(tokens))
    assert cached is not None, "no free blocks"
    cache.commit(seq, len(tokens))
    return seq, cached


def serve(cache, tokens, **options):
    """Computes a prompt and releases it; returns the cached tokens."""
    seq, cached = admit(cache, tokens, **options)
    cache.release(seq)
    return cached


def removed(cache):
    """The handles of the events since the last call, all of removals."""
    handles = []
    for event in cache.take_events():
        assert (event[0], event[2:]) == ("BlockRemoved", ["GPU"]), event
        handles += event[1]
    return handles


def blocks_of(seq):
    """The complete blocks of a sequence: what an event tells of each."""
    _, handles, parent, tokens, *_, keys = seq.stored_event(
        0, len(seq.handles))
    return {handle: (handles[i - 1] if i else parent,
                     tokens[i * SIZE:(i + 1) * SIZE], keys[i])
            for i, handle in enumerate(handles)}


class Mirror:
    """What a reader of the events believes is cached."""

    def __init__(self):
        self.copies = Counter()         # of each handle
        self.blocks = {}                # handle -> (parent, tokens, keys)

    def apply(self, events):
        for event in events:
            if event[0] == "BlockStored":
                self._store(*event[1:])
            elif event[0] == "BlockRemoved":
                (handle,) = event[1]
                self.copies[handle] -= 1
                assert self.copies[handle] >= 0, "never stored"
                if self.copies[handle] == 0:
                    del self.copies[handle]
            else:
                assert event == ["AllBlocksCleared"], event
                self.copies.clear()

    def _store(self, handles, parent, tokens, size, lora_id, medium, lora_name,
               extra_keys):
        assert (size, lora_id, medium, lora_name) == (SIZE, None, "GPU", None)
        assert handles and len(tokens) == SIZE * len(handles)
        assert len(extra_keys) == len(handles)
        assert parent is None or parent in self.copies, "unknown parent"
        for i, handle in enumerate(handles):
            self.copies[handle] += 1
            self.blocks[handle] = (
                parent, tokens[i * SIZE:(i + 1) * SIZE], extra_keys[i])
            parent = handle


# ---------------------------------------------------------------- tests

def salt_lora_and_seed_change_all_handles():
    """a salt, an adapter or another seed changes every handle"""
    plain = sequence(prompt(0, 3))
    for other in ({"cache_salt": "t"}, {"lora_name": "t"}, {"secret": 1}):
        assert not set(plain.handles) & set(
            sequence(prompt(0, 3), **other).handles)


def events_are_vllms():
    """a store has tokens, the adapter's name, and the salt on block 0"""
    seq = sequence(prompt(0, 3), lora_name="a", cache_salt="t")
    one, two, three = seq.handles
    assert seq.stored_event(0, 2) == [
        "BlockStored", [one, two], None, list(range(2 * SIZE)), SIZE, None,
        "GPU", "a", [["a", "t"], ["a"]]]
    assert seq.stored_event(2, 3) == [
        "BlockStored", [three], two, list(range(2 * SIZE, 3 * SIZE)), SIZE,
        None, "GPU", "a", [["a"]]]
    assert sequence(prompt(0, 1)).stored_event(0, 1)[7:] == [None, [None]]


def growing_is_the_same_as_having_grown():
    """a sequence extended token by token has the hashes of the whole"""
    tokens = prompt(7, 5)
    grown = sequence(tokens[:3])
    for token in tokens[3:]:
        grown.extend([token])
    whole = sequence(tokens)
    assert grown.handles == whole.handles


def a_prefix_is_reused():
    """a prompt reuses its cached prefix and nothing after a difference"""
    cache = KVCache(32, SIZE)
    assert serve(cache, prompt(0, 4)) == 0
    assert serve(cache, prompt(0, 4)) == 4 * SIZE
    other = prompt(0, 4)
    other[2 * SIZE] = 999
    assert serve(cache, other) == 2 * SIZE
    assert serve(cache, prompt(0, 4), cache_salt="t") == 0


def the_last_token_is_computed():
    """a prompt cached to its last block computes that block again"""
    cache = KVCache(32, SIZE)
    whole = prompt(0, 4)[:-1]
    serve(cache, whole)
    cache.take_events()
    seq, cached = admit(cache, whole)
    assert cached == 3 * SIZE
    assert len(cache.held[seq.handles[3]]) == 2
    assert cache.take_events() == [seq.stored_event(3, 4)], "a second copy"


def each_copy_is_removed():
    """a removal is told for each copy of a block that is evicted"""
    cache = KVCache(4, SIZE)
    one = prompt(0, 1)[:-1]
    serve(cache, one)
    serve(cache, one)                   # its second copy
    handle = sequence(one).handles[0]
    assert len(cache.held[handle]) == 2
    cache.take_events()
    seq = sequence(prompt(100, 2))
    cache.allocate(seq, len(seq.tokens))        # three of four blocks
    assert removed(cache) == [handle] and handle in cache.held
    cache.allocate(sequence(prompt(200, 0)), 1)
    assert removed(cache) == [handle] and handle not in cache.held


def the_oldest_tail_goes_first():
    """eviction takes the oldest sequence, from its tail to its head"""
    cache = KVCache(8, SIZE)
    old, young = prompt(0, 3)[:-1], prompt(100, 3)[:-1]
    serve(cache, old)
    serve(cache, young)
    cache.take_events()
    blocker = sequence(prompt(200, 2))
    cache.allocate(blocker, 5 * SIZE)   # two never used blocks, then three
    assert removed(cache) == sequence(old).handles[::-1]
    assert set(cache.held) == set(sequence(young).handles)


def use_makes_young():
    """a reused prefix is evicted after what was used before it"""
    cache = KVCache(6, SIZE)
    first, second = prompt(0, 3)[:-1], prompt(100, 3)[:-1]
    serve(cache, first)
    serve(cache, second)
    serve(cache, prompt(0, 2)[:-1] + [1])       # evicts one, touches first
    assert sequence(first).handles[0] in cache.held
    cache.take_events()
    cache.allocate(sequence(prompt(200, 1)), 2 * SIZE)
    assert not set(removed(cache)) & set(sequence(first).handles[:2])


def blocks_in_use_stay():
    """a block that a running request uses is neither evicted nor cleared"""
    cache = KVCache(6, SIZE)
    tokens = prompt(0, 3)
    one, _ = admit(cache, tokens)
    two, cached = admit(cache, tokens)
    assert cached == 3 * SIZE and one.blocks[:3] == two.blocks[:3]
    assert [cache.refs[block] for block in one.blocks[:3]] == [2, 2, 2]
    assert cache.allocate(sequence(prompt(100, 1)), 2 * SIZE) is None
    cache.release(one)
    assert [cache.refs[block] for block in two.blocks[:3]] == [1, 1, 1]
    assert cache.allocate(sequence(prompt(100, 1)), 2 * SIZE) == 0
    assert set(two.handles) <= set(cache.held)
    assert not cache.clear()


def a_refused_allocation_changes_nothing():
    """an allocation that can't be had changes nothing"""
    cache = KVCache(6, SIZE)
    serve(cache, prompt(0, 4))
    cache.take_events()
    before = (list(cache.free), list(cache.refs), set(cache.held))
    assert cache.allocate(sequence(prompt(0, 4)), 7 * SIZE) is None
    assert before == (list(cache.free), list(cache.refs), set(cache.held))
    assert not cache.take_events()


def clear_empties():
    """a clear forgets everything and says so"""
    cache = KVCache(8, SIZE)
    serve(cache, prompt(0, 4))
    cache.take_events()
    assert cache.clear() and cache.take_events() == [["AllBlocksCleared"]]
    assert not cache.held and serve(cache, prompt(0, 4)) == 0


def events_reconstruct_the_cache():
    """under random load the events tell exactly what is cached"""
    rng = random.Random(20)
    cache, mirror, running, known = KVCache(200, SIZE), Mirror(), [], {}
    refused = hits = 0
    for _ in range(6000):
        action = rng.random()
        if action < 0.4:
            chat = rng.randrange(20)
            shared = [7] * 8 + [100 + chat] * rng.randrange(60)
            salt = "t" if chat % 5 == 0 else ""
            seq = sequence(shared + rng.choices(range(3), k=rng.randrange(9)),
                           cache_salt=salt)
            cached = cache.allocate(seq, len(seq.tokens) + 20)
            if cached is None:
                refused += 1
            else:
                hits += cached > 0
                cache.commit(seq, len(seq.tokens))
                running.append((seq, len(seq.tokens) + 20))
        elif action < 0.7 and running:
            seq, limit = rng.choice(running)
            more = min(rng.randrange(8), limit - len(seq.tokens))
            seq.extend(rng.choices(range(3), k=more))
            cache.commit(seq, len(seq.tokens) - 1)
            known.update(blocks_of(seq))
        elif action < 0.999 and running:
            seq, _ = running.pop(rng.randrange(len(running)))
            cache.release(seq)
        elif action >= 0.999:
            while running:
                cache.release(running.pop()[0])
            assert cache.clear()
        for seq, _ in running[-1:]:
            known.update(blocks_of(seq))
        mirror.apply(cache.take_events())
        assert mirror.copies == {handle: len(copies) for handle, copies
                                 in cache.held.items()}
    for handle, block in mirror.blocks.items():
        assert known[handle] == block
    used = sum(1 for refs in cache.refs if refs)
    assert used + len(cache.free) == cache.num_blocks
    assert refused > 10 and hits > 100, (refused, hits)


def answers_survive_the_tokenizer():
    """an answer in the next turn has the tokens it was generated with"""
    pieces = random.Random(3).choices(WORDS, k=500)
    assert tokenize("".join(pieces)) == [token_of(piece) for piece in pieces]
    question = [{"role": "user", "content": "Who? Why, and when"}]
    first = tokenize(chat_text(question))
    second = tokenize(chat_text(question + [
        {"role": "assistant", "content": "".join(pieces)},
        {"role": "user", "content": "Go on"}]))
    whole = first + [token_of(piece) for piece in pieces]
    assert second[:len(whole)] == whole


if __name__ == "__main__":
    sys.exit(tap.run([
        salt_lora_and_seed_change_all_handles,
        events_are_vllms,
        growing_is_the_same_as_having_grown,
        a_prefix_is_reused,
        the_last_token_is_computed,
        each_copy_is_removed,
        the_oldest_tail_goes_first,
        use_makes_young,
        blocks_in_use_stay,
        a_refused_allocation_changes_nothing,
        clear_empties,
        events_reconstruct_the_cache,
        answers_survive_the_tokenizer]))
