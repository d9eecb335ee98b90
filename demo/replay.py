#!/usr/bin/python3
"""Replays conversations against an OpenAI-compatible endpoint.

They are a part of the Mooncake trace, whose conversations have one turn each,
or with --chats or --agents drawn by a seed, or with --simulated what
kv-simulate draws.  Open loop: a conversation begins at its time,
divided by the speed-up, whether or not others have been answered; only
--max-in-flight holds a request back.  The next turn comes when the answer has
been thought about, and has that answer in its prompt, as token ids by the
stand-in's tokenizer.  Answers are streamed.  Measured for each request: the
time to the first token, the time to the end, the cached and all prompt tokens
by the engine's own usage, and the worker, when the response names it in
x-kv-worker.  With --text the requests are chats in words, a word for each
token id.  Beside the hit rate stands its ceiling (ceiling.py): for chats in
words it needs the engines' own tokenizer.

Tenants that kv-simulate draws are named in the header x-tenant, and their
groups in x-class.  With --seconds the run ends then: whoever is not answered
hangs up.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import signal
import sys
import time
from collections import Counter

import aiohttp

import conversations
import mooncake
from ceiling import Ceiling
from lateness import Deadlines, missed_share
from tokenizer import Toy, tokenize

REQUEST_TIMEOUT_SECONDS = 120
HEAD_SECONDS = 0.1              # for making a body before it is due
TTY_SECONDS, LOG_SECONDS = 0.2, 5.0     # between two reports of progress


def percentile(values, percent):
    """The nearest-rank percentile of a list; None when it is empty."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def words_of(tokens):
    """Text of as many of the toy tokenizer's tokens, the same for the same
    ids."""
    return "".join(map(word_of, tokens))


def word_of(token):
    """A word of three letters for an id; words.py has each as one token."""
    letters = []
    for _ in range(3):
        token, letter = divmod(token, 26)
        letters.append(chr(ord("a") + letter))
    return " " + "".join(letters)


async def code_of(response):
    """The status of an answer, and the code that an error has."""
    try:
        return f"{response.status} {(await response.json())['error']['code']}"
    except (aiohttp.ClientError, ValueError, KeyError, TypeError):
        return str(response.status)


class Replay:
    """One run: the requests' results as they come in."""

    def __init__(self, options, talks):
        self.options = options
        self.talks = talks
        self.requests = sum(len(talk.turns) for talk in talks)
        self.slots = asyncio.Semaphore(options.max_in_flight)
        self.deadlines = Deadlines()
        self.router = random.Random(options.seed)
        self.start = 0.0
        self.asked = []                 # all requests
        self.results = []               # those that were answered
        self.streamed = Counter()       # tokens by (group, second)
        self.sent = []                  # (prompt, its length then, answers)
        self.errors = Counter()
        self.held_back = 0              # requests that --max-in-flight delayed
        self.in_flight = 0
        self.seconds = 0.0

    async def run(self):
        """Sends everything and waits for all answers."""
        loop = asyncio.get_running_loop()
        async with self._session() as session:
            reporter = asyncio.create_task(self._report())
            self.start = start = loop.time()
            tasks = []
            for number, talk in enumerate(self.talks):
                due = start + talk.at / self.options.speedup
                await asyncio.sleep(due - HEAD_SECONDS - loop.time())
                tasks.append(asyncio.create_task(
                    self._converse(session, talk, due, number)))
            limit = self.options.seconds
            _, late = await asyncio.wait(
                tasks, timeout=limit and max(0, start + limit - loop.time()),
                return_when=asyncio.FIRST_EXCEPTION)
            self.seconds = loop.time() - start
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            for task in tasks:
                if not task.cancelled():
                    task.result()       # which may be a defect of ours
            reporter.cancel()
        self._print_progress(end="\n")

    def _session(self):
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(
                total=None if self.options.seconds
                else REQUEST_TIMEOUT_SECONDS))

    async def _converse(self, session, talk, due, number):
        """All turns of a conversation, the first one at `due`; its number is
        in a header, for balancers that keep a session together."""
        loop = asyncio.get_running_loop()
        prompt = []                     # token ids, or a chat's messages
        for turn in talk.turns:
            if prompt:
                due = loop.time() + turn.think / self.options.speedup
            prompt += [{"role": "user", "content": words_of(turn.tokens)}] \
                if self.options.text else turn.tokens
            body = self._body(prompt, turn.output_length)
            await self.deadlines.wait(due)
            answers = []
            self.sent.append((prompt, len(prompt), answers))
            answer = await self._one(session, body, number, talk)
            if answer is None:          # the turns that follow need it
                return
            answers.append(answer)
            prompt += [{"role": "assistant", "content": answer}] \
                if self.options.text else tokenize(answer)

    def _body(self, prompt, output_length):
        return json.dumps({
            "model": self.options.model,
            "messages" if self.options.text else "prompt": prompt,
            "max_tokens": output_length, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True},
        }, separators=(",", ":")).encode()

    async def _one(self, session, body, number, talk):
        """The answer's text; None when the request failed."""
        self.held_back += self.slots.locked()
        async with self.slots:
            self.in_flight += 1
            asked = {"group": talk.group,
                     "at": asyncio.get_running_loop().time() - self.start}
            self.asked.append(asked)
            try:
                answer = await self._stream(session, body, number, talk,
                                            asked)
                self.results.append(asked)
                return answer
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError,
                    ValueError) as err:
                asked["error"] = str(err)
                self.errors[f"{type(err).__name__}: {err}"] += 1
                return None
            finally:
                self.in_flight -= 1

    async def _stream(self, session, body, number, talk, asked):
        sent = time.perf_counter()
        usage = None
        pieces = []
        done = False
        async with session.post(
                self.router.choice(self.options.url), data=body,
                headers={"Content-Type": "application/json",
                         "x-session-id": str(number),
                         **({"x-tenant": talk.tenant, "x-class": talk.group}
                            if talk.tenant else {})}) as response:
            if response.status != 200:
                raise ValueError(f"status {await code_of(response)}")
            asked["worker"] = response.headers.get("x-kv-worker")
            asked["wait"] = response.headers.get("x-kv-wait")
            async for line in response.content:
                if not line.startswith(b"data: "):
                    continue
                if line.startswith(b"data: [DONE]"):
                    done = True
                    continue
                chunk = json.loads(line[6:])
                if chunk["choices"]:
                    choice = chunk["choices"][0]
                    pieces.append(choice["delta"].get("content") or ""
                                  if self.options.text else choice["text"])
                    now = time.perf_counter()
                    if any(pieces):
                        asked.setdefault("ttft", now - sent)
                    if talk.group:
                        second = int(asked["at"] + now - sent)
                        self.streamed[talk.group, second] \
                            += pieces[-1].count(" ")
                usage = chunk.get("usage") or usage
        if not done or "ttft" not in asked or usage is None:
            raise ValueError("the stream broke off")
        asked.update(
            seconds=time.perf_counter() - sent,
            prompt_tokens=usage["prompt_tokens"],
            cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
            completion_tokens=usage["completion_tokens"])
        return "".join(pieces)

    def _ceiling(self):
        """The ceiling of the hit rate of what was sent and answered."""
        ceiling = Ceiling(self.options.block_size)
        tokenizer = Toy()
        if self.options.tokenizer:
            # only here: it needs jinja2
            # pylint: disable-next=import-outside-toplevel
            from template import Template
            tokenizer = Template(self.options.tokenizer)
        for prompt, length, answers in self.sent:
            prompt = prompt[:length]
            for answer in answers:
                if self.options.text:
                    ceiling.add(tokenizer.chat_ids(
                        prompt, None, {"add_generation_prompt": True}),
                        tokenizer.text_ids(answer, False))
                else:
                    ceiling.add(prompt, tokenize(answer))
        return ceiling.rate()

    def summary(self):
        """What was measured, for the result file; times in seconds."""
        prompt = sum(r["prompt_tokens"] for r in self.results)
        cached = sum(r["cached_tokens"] for r in self.results)
        ttfts = [r["ttft"] for r in self.results]
        totals = [r["seconds"] for r in self.results]
        workers = Counter(r["worker"] for r in self.results if r["worker"])
        return {
            "requests": self.requests,
            "errors": sum(self.errors.values()),
            "error_kinds": dict(self.errors),
            "held_back": self.held_back,
            "late": missed_share([(self.deadlines.met,
                                   self.deadlines.missed)]),
            "seconds": self.seconds,
            "prompt_tokens": prompt, "cached_tokens": cached,
            "hit_rate": cached / prompt if prompt else 0.0,
            "ceiling": self._ceiling(),
            "ttft": {"mean": sum(ttfts) / len(ttfts) if ttfts else None,
                     **{f"p{p}": percentile(ttfts, p)
                        for p in (50, 90, 99)}},
            "end_to_end": {f"p{p}": percentile(totals, p)
                           for p in (50, 90, 99)},
            "workers": dict(sorted(workers.items())),
            "streamed": [(*key, n) for key, n in self.streamed.items()],
            "results": self.results,
            "unanswered": [asked for asked in self.asked
                           if "seconds" not in asked]}

    # ---- progress

    async def _report(self):
        tty = sys.stderr.isatty()
        while True:
            await asyncio.sleep(TTY_SECONDS if tty else LOG_SECONDS)
            self._print_progress(end="" if tty else "\n")

    def _print_progress(self, end):
        if not self.options.progress:
            return
        failed = sum(self.errors.values())
        done = len(self.results) + failed
        share, limit = done / self.requests, self.options.seconds
        text = f"{self.options.label}{done}/{self.requests} requests, "
        if limit:
            now = min(limit, time.monotonic() - self.start)
            share = now / limit
            text = (f"{self.options.label}{now:.0f}/{limit:.0f} s, {done} "
                    f"requests, ")
        text += f"{self.in_flight} in flight, {failed} errors"
        if sys.stderr.isatty():
            filled = int(30 * share)
            text = f"\r[{'#' * filled:<30}] {text}\x1b[K"
        print(text, end=end, file=sys.stderr, flush=True)


def parse_options(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Replay a part of the Mooncake conversation trace, or "
                    "chats, against an OpenAI-compatible endpoint and "
                    "measure it.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--url", nargs="+",
        default=["http://127.0.0.1:8080/v1/completions"],
        help="the endpoint; of several each request goes to one, at random")
    add("--model", default="demo", help="the model's name")
    add("--text", action="store_true",
        help="send chats in words; --url is the endpoint of chats then")
    add("--tokenizer", metavar="DIR",
        help="the engines' model, for the ceiling of chats in words; needs "
             "python3-jinja2")
    add("--trace", metavar="FILE", default=os.path.join(
        os.path.dirname(os.path.abspath(__file__)),
        "conversation_trace.jsonl"), help="the trace")
    add("--skip", type=int, default=0,
        help="leave out the first requests of the trace")
    add("--requests", type=int, default=1000,
        help="how many of the trace to replay")
    add("--chats", type=int, metavar="COUNT",
        help="instead of the trace, so many drawn conversations of 4 to 9 "
             "turns")
    add("--agents", type=int, metavar="COUNT",
        help="instead of the trace, so many drawn sessions of coding agents, "
             "and their sub-agents")
    add("--simulated", metavar="FILE",
        help="instead of the trace, a file of kv-simulate --conversations")
    add("--group", help="of those only the tenants of this group")
    add("--seconds", type=float,
        help="end so many seconds after the begin; default: with the last "
             "answer")
    add("--seed", type=int, default=1, help="of --chats and --agents")
    add("--speedup", type=float, default=5.0,
        help="divides the recorded times, and those of thinking")
    add("--scale", type=int, default=4,
        help="divides the trace's prompt and answer lengths; 512/SCALE must "
             "be a multiple of the block size")
    add("--block-size", type=int, default=16,
        help="the engines', for --scale and the ceiling")
    add("--max-in-flight", type=int, default=512,
        help="requests that may be unanswered at once")
    add("--output", metavar="FILE", help="write the results here, as JSON")
    add("--progress", action="store_true", help="show progress on stderr")
    add("--label", default="", help="put before the progress")
    options = parser.parse_args(argv)
    if options.scale < 1 or mooncake.TOKENS_PER_HASH_ID % (
            options.scale * options.block_size):
        parser.error("512/--scale must be a multiple of --block-size")
    if options.speedup <= 0 or options.max_in_flight < 1:
        parser.error("--speedup and --max-in-flight must be positive")
    return options


def load(options):
    """The conversations that the command line names."""
    if options.chats:
        return conversations.draw(options.chats, options.seed)
    if options.agents:
        return conversations.draw_agents(options.agents, options.seed)
    if options.simulated:
        return [talk for talk in conversations.simulated(options.simulated)
                if options.group in (None, talk.group)
                and not 0 < (options.seconds or 0) * options.speedup
                <= talk.at]
    return mooncake.load(options.trace, options.requests, options.scale,
                         options.skip)


def main():
    """The program; its status is 1 when a request failed."""
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    talks = load(options)
    if not talks:
        sys.exit("no requests in that part of the trace")
    replay = Replay(options, talks)
    gc.freeze()                         # to walk through all tokens takes long
    asyncio.run(replay.run())
    summary = replay.summary()
    for kind, count in replay.errors.items():
        print(f"{count} x {kind}", file=sys.stderr)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as out:
            json.dump(summary, out)
    else:
        for name in ("results", "unanswered", "streamed"):
            del summary[name]
        print(json.dumps(summary, indent=1))
    return 1 if summary["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
