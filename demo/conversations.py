"""Conversations as prompts: what a client sends turn by turn.

A turn's prompt is the prompt before it, the engine's answer to that, and the
turn's own tokens.  draw() makes chats up by a seed, draw_agents() sessions of
coding agents; the requests of a recorded trace (mooncake.py) are conversations
of one turn each.  simulated() reads what kv-simulate draws.
"""

import json
import random
from dataclasses import dataclass
from math import log

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

# Sessions of coding agents, as kv-simulate draws them, with a sixteenth of
# their tokens: (median, sigma) of lognormal draws, bounds, and shares.
AGENT_TURNS = (43, 0.5)
AGENT_TURN_BOUNDS = (4, 60)
AGENT_SYSTEM_TOKENS = 875       # tools and instructions: all sessions' alike
AGENT_MESSAGE_TOKENS = (120, 0.9)       # what a tool gives
AGENT_ANSWER_TOKENS = (2, 125)
AGENT_MEAN_MORE_ANSWER_TOKENS = 16
TOOL_SECONDS = (2.5, 0.8)
PERSON_SHARE = 0.12             # of turns that wait for a person
PERSON_SECONDS = (10.0, 120.0)
MEAN_MORE_PERSON_SECONDS = 30.0
SUB_SHARE = 0.44                # of sessions with one to three sub-agents
SUB_TURNS = (5, 16)
SUB_SYSTEM_TOKENS = 440
SUB_MESSAGE_TOKENS = (95, 0.9)
SUB_SECONDS = (20.0, 300.0)     # from one sub-agent's begin to the next one's
MEAN_MORE_SUB_SECONDS = 60.0
SESSION_SECONDS = 12.0          # from one session's begin to the next one's


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
    tenant: str = ""            # whose it is, and a group of tenants
    group: str = ""


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


def draw_agents(count, seed):
    """`count` sessions of coding agents, and their sub-agents, as
    conversations in order of time; the same for the same seed."""
    lot = random.Random(seed)
    system = _tokens(lot, AGENT_SYSTEM_TOKENS)
    sub_system = _tokens(lot, SUB_SYSTEM_TOKENS)
    drawn = []
    for number in range(count):
        at = number * SESSION_SECONDS
        least, most = AGENT_TURN_BOUNDS
        turns = min(most, max(least, round(_lognormal(lot, AGENT_TURNS))))
        drawn.append(_session(lot, at, system, turns, AGENT_MESSAGE_TOKENS))
        if lot.random() < SUB_SHARE:
            for _ in range(lot.randint(1, 3)):
                at += _skewed(lot, SUB_SECONDS, MEAN_MORE_SUB_SECONDS)
                drawn.append(_session(lot, at, sub_system,
                                      lot.randint(*SUB_TURNS),
                                      SUB_MESSAGE_TOKENS))
    return sorted(drawn, key=lambda conversation: conversation.at)


def simulated(path):
    """The conversations of a file of `kv-simulate --conversations`.

    Equal streams of the file are equal tokens.  The answers are the engine's,
    of the lengths that the file has.
    """
    with open(path, encoding="utf-8") as file:
        drawn = json.load(file)
    size = drawn["block_size"]
    streams = {}
    found = []
    for talk in drawn["conversations"]:
        lot = random.Random(talk["own"])
        turns = [Turn(_tokens(lot, turn["add"]), turn["output"],
                      turn["think"]) for turn in talk["turns"]]
        first = []
        for stream, blocks in talk["parts"]:
            tokens, more = streams.setdefault(stream,
                                              ([], random.Random(stream)))
            tokens += _tokens(more, max(0, blocks * size - len(tokens)))
            first += tokens[:blocks * size]
        turns[0].tokens = first + turns[0].tokens
        found.append(Conversation(talk["at"], turns,
                                  str(talk.get("tenant", "")),
                                  talk.get("group", "")))
    begin = min(talk.at for talk in found)
    for talk in found:
        talk.at -= begin
    return sorted(found, key=lambda conversation: conversation.at)


def _session(lot, at, system, count, message):
    """One agent's conversation: tools answer soon, people later."""
    turns = [Turn(
        _tokens(lot, max(1, round(_lognormal(lot, message)))),
        round(_skewed(lot, AGENT_ANSWER_TOKENS,
                      AGENT_MEAN_MORE_ANSWER_TOKENS)),
        _skewed(lot, PERSON_SECONDS, MEAN_MORE_PERSON_SECONDS)
        if lot.random() < PERSON_SHARE else _lognormal(lot, TOOL_SECONDS))
        for _ in range(count)]
    turns[0].tokens = system + turns[0].tokens
    return Conversation(at, turns)


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


def _lognormal(lot, shape):
    median, sigma = shape
    return lot.lognormvariate(log(median), sigma)


def _skewed(lot, bounds, mean_more):
    """A number within bounds, small ones often."""
    least, most = bounds
    return min(most, least + lot.expovariate(1 / mean_more))
