#!/usr/bin/python3
"""The engine stand-in's cache model, its hashes and its tokenizer; TAP."""

import json
import random
import sys
from array import array
from pathlib import Path

import tap
from kv_cache import KVCache, Sequence, hash_seed, local_hash
from tokenizer import WORDS, chat_text, token_of, tokenize

VECTORS = Path(__file__).resolve().parent.parent / "t/vectors"
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


def u64s(data):
    numbers = array("Q")
    numbers.frombytes(data)
    return list(numbers)


class Mirror:
    """What a reader of the events believes is cached."""

    def __init__(self):
        self.blocks = {}                # handle -> (parent, local hash)

    def apply(self, events):
        for event in events:
            if event[0] == "s":
                self._store(*event[1:])
            elif event[0] == "r":
                for handle in u64s(event[3]):
                    del self.blocks[handle]         # KeyError: never stored
            else:
                assert event[0] == "c", event
                self.blocks.clear()

    def _store(self, rank, tier, parent, handles, locals_):
        assert (rank, tier) == (0, 0)
        handles, locals_ = u64s(handles), u64s(locals_)
        assert handles and len(handles) == len(locals_)
        assert parent is None or parent in self.blocks, "unknown parent"
        for handle, local in zip(handles, locals_):
            assert handle not in self.blocks, "stored twice"
            self.blocks[handle] = (parent, local)
            parent = handle


# ---------------------------------------------------------------- tests

def hashes_agree_with_the_vectors():
    """local hashes, LoRA included, agree with the vectors"""
    cases = json.loads((VECTORS / "block_hashes.json").read_text())["cases"]
    compared = 0
    for case in cases:
        if "eagle" in case:
            continue            # of pairs of tokens, which this engine has not
        if "tokens" in case and "mm_hashes" not in case:
            seq = Sequence(case["tokens"], case["block_size"],
                           lora_name=case.get("lora_name", ""))
            assert [str(n) for n in seq.locals] == case["local"], case["name"]
            compared += 1
        elif "bytes" in case:
            digest = local_hash(case["bytes"].encode(), case["seed"])
            assert str(digest) == case["xxh3_64"]
            compared += 1
    assert compared >= 3


def salt_and_lora_change_all_hashes():
    """a salt or an adapter changes every local hash and every handle"""
    tokens = prompt(0, 3)
    plain = sequence(tokens)
    for other in (sequence(tokens, cache_salt="t"),
                  sequence(tokens, lora_name="t")):
        assert not set(plain.locals) & set(other.locals)
        assert not set(plain.handles) & set(other.handles)
    assert hash_seed() == 1337
    assert len({hash_seed("t"), hash_seed("", "t"), hash_seed("t", "t")}) == 3


def seeds_change_handles_only():
    """engines of another seed differ in handles, not in local hashes"""
    a, b = (sequence(prompt(0, 3), secret=n) for n in (1, 2))
    assert a.locals == b.locals
    assert not set(a.handles) & set(b.handles)


def growing_is_the_same_as_having_grown():
    """a sequence extended token by token has the hashes of the whole"""
    tokens = prompt(7, 5)
    grown = sequence(tokens[:3])
    for token in tokens[3:]:
        grown.extend([token])
    whole = sequence(tokens)
    assert (grown.handles, grown.locals) == (whole.handles, whole.locals)


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
    assert not cache.take_events(), "the second copy is no store"


def the_last_copy_is_the_removal():
    """a removal is told when the last copy of a block is evicted"""
    cache = KVCache(4, SIZE)
    one = prompt(0, 1)[:-1]
    serve(cache, one)
    serve(cache, one)                   # its second copy
    handle = sequence(one).handles[0]
    assert len(cache.held[handle]) == 2
    cache.take_events()
    seq = sequence(prompt(100, 2))
    cache.allocate(seq, len(seq.tokens))        # three of four blocks
    assert not cache.take_events() and handle in cache.held
    cache.allocate(sequence(prompt(200, 0)), 1)
    (event,) = cache.take_events()
    assert event[0] == "r" and u64s(event[3]) == [handle]
    assert handle not in cache.held


def the_oldest_tail_goes_first():
    """eviction takes the oldest sequence, from its tail to its head"""
    cache = KVCache(8, SIZE)
    old, young = prompt(0, 3)[:-1], prompt(100, 3)[:-1]
    serve(cache, old)
    serve(cache, young)
    cache.take_events()
    blocker = sequence(prompt(200, 2))
    cache.allocate(blocker, 5 * SIZE)   # two never used blocks, then three
    (event,) = cache.take_events()
    assert u64s(event[3]) == sequence(old).handles[::-1]
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
    (event,) = cache.take_events()
    assert not set(u64s(event[3])) & set(sequence(first).handles[:2])


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
    assert cache.clear() and cache.take_events() == [["c", 0]]
    assert not cache.held and serve(cache, prompt(0, 4)) == 0


def events_reconstruct_the_cache():
    """under random load the events tell exactly what is cached"""
    rng = random.Random(20)
    cache, mirror, running, locals_ = KVCache(200, SIZE), Mirror(), [], {}
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
            locals_.update(zip(seq.handles, seq.locals))
        elif action < 0.999 and running:
            seq, _ = running.pop(rng.randrange(len(running)))
            cache.release(seq)
        elif action >= 0.999:
            while running:
                cache.release(running.pop()[0])
            assert cache.clear()
        for seq, _ in running[-1:]:
            locals_.update(zip(seq.handles, seq.locals))
        mirror.apply(cache.take_events())
        assert mirror.blocks.keys() == cache.held.keys()
    for handle, (_, local) in mirror.blocks.items():
        assert locals_[handle] == local
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
        hashes_agree_with_the_vectors,
        salt_and_lora_change_all_hashes,
        seeds_change_handles_only,
        growing_is_the_same_as_having_grown,
        a_prefix_is_reused,
        the_last_token_is_computed,
        the_last_copy_is_the_removal,
        the_oldest_tail_goes_first,
        use_makes_young,
        blocks_in_use_stay,
        a_refused_allocation_changes_nothing,
        clear_empties,
        events_reconstruct_the_cache,
        answers_survive_the_tokenizer]))
