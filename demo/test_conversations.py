#!/usr/bin/python3
"""Drawn conversations, and their replay against an engine stand-in; TAP."""

import asyncio
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import conversations
import mooncake
import replay
import tap
from conversations import Conversation, Turn
from lateness import Deadlines, missed_share
from worker import Worker

TRACE = Path(__file__).resolve().parent / "conversation_trace.jsonl"
BLOCK = 16                      # tokens, the engine's default

worker = None                   # set by main()


def replayed(talks, *options):
    """The summary of their replay against the engine."""
    run = replay.Replay(replay.parse_options(
        ["--url", f"http://{worker.address}/v1/completions", "--speedup",
         "1000", *options]), talks)
    asyncio.run(run.run())
    return run.summary()


def a_seed_names_the_conversations():
    """the same seed draws the same conversations, another one others"""
    assert conversations.draw(20, 1) == conversations.draw(20, 1)
    assert conversations.draw(20, 1) != conversations.draw(20, 2)


def conversations_are_within_their_bounds():
    """turns, messages, answers and pauses are within their bounds"""
    talks = conversations.draw(190, 1)
    assert len(talks) == 190
    assert [talk.at for talk in talks] == sorted(talk.at for talk in talks)
    assert talks[-1].at <= conversations.START_SECONDS
    for talk in talks:
        assert 4 <= len(talk.turns) <= 9
        assert 420 <= len(talk.turns[0].tokens) <= 2600
        for turn in talk.turns[1:]:
            assert 20 <= len(turn.tokens) <= 1000
        for turn in talk.turns:
            assert 40 <= turn.output_length <= 500
            assert 2 <= turn.think <= 11


def system_prompts_are_popular():
    """there are 8 system prompts, the first one is a third of all"""
    counts = Counter(tuple(talk.turns[0].tokens[:400])
                     for talk in conversations.draw(2000, 3))
    assert len(counts) == 8
    (_, most), (_, second) = counts.most_common(2)
    assert 0.30 < most / 2000 < 0.45 and second < most


def sessions_of_agents_repeat_themselves():
    """sessions of agents have many turns, sub-agents, and little that is new"""
    talks = conversations.draw_agents(60, 1)
    assert talks == conversations.draw_agents(60, 1)
    assert [talk.at for talk in talks] == sorted(talk.at for talk in talks)
    sessions = [talk for talk in talks if len(talk.turns[0].tokens)
                > conversations.AGENT_SYSTEM_TOKENS]
    subs = len(talks) - len(sessions)
    assert len({tuple(talk.turns[0].tokens[:conversations.SUB_SYSTEM_TOKENS])
                for talk in talks}) == 2
    assert 60 * 0.3 < subs < 60 * 1.5, subs
    turns = sorted(len(talk.turns) for talk in sessions)
    assert turns[0] >= 4 and turns[-1] <= 60 and 35 <= turns[30] <= 50, turns
    prompts = new = 0
    for talk in talks:
        length = 0
        for turn in talk.turns:
            length += len(turn.tokens)
            prompts += length
            new += len(turn.tokens)
            length += turn.output_length
    assert 1 - new / prompts > 0.9


def the_ceiling_is_what_a_large_cache_has():
    """one request after the other, an engine has what the ceiling says"""
    for options in ((), ("--text",)):
        talks = conversations.draw_agents(2, 5 + len(options))
        url = f"http://{worker.address}/v1/" + (
            "chat/completions" if options else "completions")
        summary = replayed(talks, "--max-in-flight", "1", "--url", url,
                           *options)
        assert summary["errors"] == 0, summary["error_kinds"]
        assert summary["hit_rate"] == summary["ceiling"] > 0.9, (
            summary["hit_rate"], summary["ceiling"])


def distinct_tokens_are_counted_once():
    """what first prompts have in common is counted once"""
    system = list(range(100))
    talks = [Conversation(0.0, [Turn(system + [1000 + i] * 10, 7, 0.0),
                                Turn([5] * 3, 4, 0.0)]) for i in range(3)]
    assert conversations.distinct_tokens(talks) == 100 + 3 * (10 + 7 + 3 + 4)


def the_next_turn_has_the_answer():
    """the engine finds the last prompt and its answer in the next prompt"""
    first = Turn(list(range(40 * BLOCK)), 5 * BLOCK + 1, 0.0)
    second = Turn(list(range(3 * BLOCK)), 2, 1.0)
    summary = replayed([Conversation(0.0, [first, second])])
    assert summary["requests"] == 2 and summary["errors"] == 0, summary
    one, two = summary["results"]
    assert (one["prompt_tokens"], one["cached_tokens"]) == (40 * BLOCK, 0)
    # the answer's last token, whose KV was not computed, begins a block
    assert two["prompt_tokens"] == (40 + 5 + 3) * BLOCK + 1
    assert two["cached_tokens"] == (40 + 5) * BLOCK


def a_broken_conversation_ends():
    """a request that fails is counted, the turns after it are not sent"""
    talk = Conversation(0.0, [Turn([1] * BLOCK, 1 << 30, 0.0),
                              Turn([2] * BLOCK, 2, 0.0)])
    summary = replayed([talk])
    assert summary["requests"] == 2 and summary["errors"] == 1, summary
    assert summary["results"] == []


def few_in_flight_hold_others_back():
    """--max-in-flight holds requests back, and all are sent"""
    talks = [Conversation(0.0, [Turn([3] * BLOCK, 50, 0.0)])
             for _ in range(3)]
    summary = replayed(talks, "--max-in-flight", "1")
    assert len(summary["results"]) == 3 and summary["errors"] == 0, summary
    assert summary["held_back"] == 2, summary


def whoever_is_not_answered_hangs_up():
    """a run of --seconds ends then, and tells what it has seen until then"""
    talks = [Conversation(0.0, [Turn([4] * BLOCK, count, 0.0)], "7", group)
             for group, count in (("long", 5000), ("short", 50))]
    summary = replayed(talks, "--seconds", "0.2")
    assert summary["errors"] == 0, summary["error_kinds"]
    (short,), (long,) = summary["results"], summary["unanswered"]
    assert (short["group"], long["group"]) == ("short", "long")
    assert 0 < long["ttft"] < 0.2 and "error" not in long, long
    streamed = {group: tokens for group, _, tokens in summary["streamed"]}
    assert streamed["short"] == 50 < streamed["long"] < 5000, streamed


def the_trace_is_conversations_of_one_turn():
    """a request of the trace is a conversation of one turn"""
    talks = mooncake.load(TRACE, 3, 4)
    assert [len(talk.turns) for talk in talks] == [1, 1, 1]
    turn = talks[0].turns[0]
    assert len(turn.tokens) == turn.input_length == 6758 // 4
    assert talks[0].at == 0.0 < talks[1].at


def late_wake_ups_are_counted():
    """a deadline that a busy loop misses is counted"""
    async def busy():
        deadlines = Deadlines()
        due = asyncio.get_running_loop().time() + 0.001
        waiting = asyncio.create_task(deadlines.wait(due))
        await asyncio.sleep(0)
        time.sleep(0.05)
        await waiting
        return deadlines
    assert asyncio.run(busy()).missed == 1
    assert missed_share([(98, 2), (0, 0), (90, 10)]) == 0.1


def main():
    global worker
    directory = Path(tempfile.mkdtemp(prefix="kv-router-test-"))
    try:
        worker = Worker("engine", directory, "--prefill-us-per-token", "1",
                        "--decode-us-per-token", "100")
        worker.wait_ready()
        return tap.run([
            a_seed_names_the_conversations,
            conversations_are_within_their_bounds,
            system_prompts_are_popular,
            sessions_of_agents_repeat_themselves,
            the_ceiling_is_what_a_large_cache_has,
            distinct_tokens_are_counted_once,
            the_next_turn_has_the_answer,
            a_broken_conversation_ends,
            few_in_flight_hold_others_back,
            whoever_is_not_answered_hangs_up,
            the_trace_is_conversations_of_one_turn,
            late_wake_ups_are_counted])
    finally:
        if worker:
            worker.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
