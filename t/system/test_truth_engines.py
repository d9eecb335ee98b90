#!/usr/bin/python3
"""The truth test's engines say what they hold: no relay, no router; TAP."""

import random
import sys

from stage import SEED, free_port, tap, wait_until

from truth.blocks import Prompts
from truth.consumer import Consumer, Listener
from truth.engine import LARGE, PAIRS, PROFILES, Engine
from truth.faults import BURST

STEPS = 1500
BURSTS = 40                     # that a burst is cut into, to be compared


def started(profile, **changes):
    """An engine of that profile, started, and its ports."""
    engine = Engine(profile.name, profile, Prompts(random.Random(SEED)),
                    SEED)
    ports = {rank: (free_port(), free_port())
             for rank in range(profile.ranks)}
    engine.start(ports)
    return engine, ports


def compare(consumer, history, seq):
    """Not a test: what was said is what the oracle knows."""
    expected = {block.handle: (tuple(block.sequence), tiers)
                for block, tiers in history.state(seq).items()}
    assert consumer.holdings() == expected, (
        seq, len(expected), len(consumer.held))


def saying(profile):
    """A test: this kind of engine says what it holds."""
    def test():
        engine, ports = started(profile)
        listeners = [Listener(ports[rank]) for rank in ports]
        consumers = [Consumer(profile.refcount) for _ in ports]
        try:
            wait_until("the engine is heard", lambda: heard(engine,
                                                            listeners))
            for number in range(STEPS):
                engine.step()
                if number % 400 == 399:
                    engine.clear(engine.rng.randrange(profile.ranks))
            for rank in range(profile.ranks):
                for _ in range(BURSTS):
                    engine.burst(rank, BURST // profile.slots // BURSTS)
            blocks = 0
            for rank, listener in enumerate(listeners):
                history = engine.ranks[rank].lives[-1]
                consumer = consumers[rank]
                last = history.last()
                if max(listener.first) < last:
                    listener.first.update(listener.heard_until(last))
                assert sorted(listener.first) == list(range(last + 1))
                for seq in range(last + 1):
                    consumer.apply(listener.first[seq])
                    if seq % 7 == 0 or seq == last:
                        compare(consumer, history, seq)
                        blocks += len(consumer.held)
                replayed = list(listener.replayed(0))
                assert [seq for seq, _ in replayed] == list(range(
                    max(0, last + 1 - profile.buffer), last + 1))
                assert all(listener.first[seq] == payload
                           for seq, payload in replayed)
            print(f"# {engine.batches} batches, {blocks} blocks compared")
            assert blocks > 1000
        finally:
            for listener in listeners:
                listener.close()
            engine.stop()
    test.__doc__ = f"{profile.name}: what is said is what is held, replayed " \
        "as far as the buffer reaches"
    return test


def heard(engine, listeners):
    """Steps until all ranks were heard, from their first message on."""
    engine.step()
    for listener in listeners:
        first = dict(getattr(listener, "first", {}))
        first.update(listener.heard(0.02))
        if first and min(first):        # it subscribed too late: ask for it
            first.update(listener.replayed(0))
        listener.first = first
    return all(listener.first for listener in listeners)


def dropped_messages_are_replayed_or_lost():
    """messages that are dropped are in the replay buffer, or they aren't"""
    profile = PROFILES[0]
    engine, ports = started(profile)
    listener = Listener(ports[0])
    try:
        for keep in (True, False):
            engine.mute(0, 5, keep)
            first = engine.position()[0][1] + 1
            while engine.position()[0][1] < first + 8:
                engine.step()
            replayed = [seq for seq, _ in listener.replayed(first)]
            expected = list(range(first, first + 9))
            assert replayed == (expected if keep else expected[5:]), replayed
    finally:
        listener.close()
        engine.stop()


def another_life_begins_with_nothing():
    """an engine that restarts counts from 0, holds nothing, names anew"""
    engine, ports = started(PROFILES[0])
    try:
        for _ in range(200):
            engine.step()
        engine.fall()
        engine.rise()
        assert engine.position() == [(1, -1), (1, -1)]
        for _ in range(200):
            engine.step()
        old, new = engine.ranks[0].lives
        assert old.handles and not set(old.handles) & set(new.handles)
        listener = Listener(ports[0])
        seqs = [seq for seq, _ in listener.replayed(0)]
        listener.close()
        assert seqs == list(range(new.last() + 1)), seqs
    finally:
        engine.stop()


def main():
    print(f"# seed {SEED}")
    return tap.run([saying(profile) for profile in PROFILES + PAIRS
                    if profile.name != LARGE] + [
        dropped_messages_are_replayed_or_lost,
        another_life_begins_with_nothing])


if __name__ == "__main__":
    sys.exit(main())
