"""Conversations as prompts: what a client sends turn by turn.

A turn's prompt is the prompt before it, the engine's answer to that, and the
turn's own tokens.  draw() makes chats up by a seed; the requests of a recorded
trace (mooncake.py) are conversations of one turn each.
"""

import random
from dataclasses import dataclass

from tokenizer import VOCABULARY

SYSTEM_PROMPTS = 8
SYSTEM_TOKENS = (400, 1600)     # of the shortest and of the longest
TURNS = (4, 9)
START_SECONDS = 14.0            # in which all conversations begin
THINK_SECONDS = (2.0, 11.0)     # from an answer's end to the next turn
MEAN_MORE_THINK_SECONDS = 3.2   # beyond the least
MESSAGE_TOKENS = (20, 1000)     # of a user's message
MEAN_MORE_MESSAGE_TOKENS = 200
ANSWER_TOKENS = (40, 500)
MEAN_MORE_ANSWER_TOKENS = 110


@dataclass
class Turn:
    """One request of a conversation."""

    tokens: list                # that it adds to the prompt
    output_length: int          # tokens of the answer
    think: float                # seconds since the end of the last answer


@dataclass
class Conversation:
    """Its turns, one after the other."""

    at: float                   # seconds from the first conversation's start
    turns: list


def draw(count, seed):
    """`count` conversations in order of time, the same for the same seed.

    Each begins with one of SYSTEM_PROMPTS system prompts; the first one is
    chosen twice as often as the second, three times as often as the third.
    """
    lot = random.Random(seed)
    least, most = SYSTEM_TOKENS
    step = (most - least) / (SYSTEM_PROMPTS - 1)
    systems = [_tokens(lot, round(least + step * i))
               for i in range(SYSTEM_PROMPTS)]
    lot.shuffle(systems)
    popularity = [1 / (i + 1) for i in range(SYSTEM_PROMPTS)]
    drawn = []
    for _ in range(count):
        system, = lot.choices(systems, popularity)
        turns = [Turn(_tokens(lot, round(_skewed(
                          lot, MESSAGE_TOKENS, MEAN_MORE_MESSAGE_TOKENS))),
                      round(_skewed(
                          lot, ANSWER_TOKENS, MEAN_MORE_ANSWER_TOKENS)),
                      _skewed(lot, THINK_SECONDS, MEAN_MORE_THINK_SECONDS))
                 for _ in range(lot.randint(*TURNS))]
        turns[0].tokens = system + turns[0].tokens
        drawn.append(Conversation(lot.uniform(0, START_SECONDS), turns))
    return sorted(drawn, key=lambda conversation: conversation.at)


def distinct_tokens(conversations):
    """Tokens that a cache needs for all of them, equal prefixes once.

    Beyond their first prompts no two conversations are taken for equal.
    """
    prefixes, others = set(), 0
    for conversation in conversations:
        first, *later = conversation.turns
        prefix = 0
        for token in first.tokens:
            prefix = hash((prefix, token))
            prefixes.add(prefix)
        others += first.output_length + sum(
            len(turn.tokens) + turn.output_length for turn in later)
    return len(prefixes) + others


def _tokens(lot, count):
    return lot.choices(range(VOCABULARY), k=count)


def _skewed(lot, bounds, mean_more):
    """A number within bounds, small ones often."""
    least, most = bounds
    return min(most, least + lot.expovariate(1 / mean_more))
