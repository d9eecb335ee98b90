"""The same requests to a vLLM whose cache is too small for them, one after the
other and eight at once: what came of each, and of each step of the engine.
What a simulated engine is to do is measured by this.
"""

import concurrent.futures
import http.client
import json
import os
import platform
import random
import subprocess
import time
from pathlib import Path

import fleet
import steps
from fleet import ROOT, Fleet, Model
from model import local_hashes
from prompts import COMPLETIONS, FIRST_ID

NAME = "calibration"
REQUESTS = 500
CLIENTS = 8
SESSIONS = 32                   # conversations that go on at a time
SYSTEMS = (64, 200, 330, 450)   # tokens of the system prompts they share
TURNS = (4, 14)
ADDED = (30, 160)               # tokens that a turn adds to the one before
ANSWERS = (4, 32)               # tokens of an answer
BLOCKS = 400                    # fewer than the sessions have
RUNNING, TOKENS = 16, 512       # in a step, at most
POINTS = 2                      # between hit rates at eight at once
# larger than the other models, so that a token costs something beside what a
# step costs by itself
SIZES = {"hidden_size": 256, "intermediate_size": 768,
         "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2}
MODEL = Model(
    NAME, "--num-gpu-blocks-override", str(BLOCKS), "--max-model-len", "8192",
    "--max-num-seqs", str(RUNNING), "--max-num-batched-tokens", str(TOKENS),
    "--hf-overrides", json.dumps(SIZES), "--no-async-scheduling",
    "--scheduler-cls", "vllm_steps.Steps", files="llama")


class Engine(fleet.Engine):
    """The engine logs its steps."""

    def environment(self):
        """Where its scheduler is, and where the steps go."""
        return [*super().environment(), f"STEPS={steps_of(self.fleet)}",
                f"PYTHONPATH={ROOT / 't' / 'engines'}"]


def steps_of(at):
    """The file of the engine's steps."""
    return at.directory / "steps.jsonl"


def drawn(n, seed):
    """N requests: turns of conversations, each of which begins with all that
    came before in its own; what an answer adds is drawn, too, so that all
    runs have the same prompts."""
    rng = random.Random(seed)

    def ids(span):
        return [rng.randrange(FIRST_ID, 2000) for _ in range(
            rng.randrange(*span))]

    systems = [ids((size, size + 1)) for size in SYSTEMS]
    going = []
    for number in range(n):
        going = [talk for talk in going if talk["left"]]
        while len(going) < SESSIONS:
            going.append({"left": rng.randrange(*TURNS), "turn": 0,
                          "session": f"{number}-{len(going)}",
                          "ids": list(rng.choice(systems))})
        talk = rng.choice(going)
        talk["ids"] += ids(ADDED)
        talk["left"] -= 1
        talk["turn"] += 1
        yield {"n": number, "session": talk["session"], "turn": talk["turn"],
               "ids": list(talk["ids"]), "max_tokens": rng.randrange(*ANSWERS)}


def ask(at, request):
    """Sends a request: its fleet.Answer, and the request with what came of
    it.  Times are seconds of the machine's monotonic clock."""
    body = {"model": MODEL.served, "prompt": request["ids"],
            "max_tokens": request["max_tokens"], "temperature": 0,
            "ignore_eos": True, "return_token_ids": True, "stream": True,
            "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection("127.0.0.1", at.port, timeout=600)
    began = time.monotonic()
    connection.request("POST", COMPLETIONS, json.dumps(body), {
        "Content-Type": "application/json"})
    response = connection.getresponse()
    first, lines = None, []
    for line in response:
        first = first or time.monotonic()
        lines.append(line)
    end = time.monotonic()
    connection.close()
    answer = fleet.Answer(MODEL, body, response.status, fleet.stage.decision(
        response.headers.get("x-decided")), b"".join(lines))
    if answer.status != 200:
        return answer, None
    said = [token for line in lines if line.startswith(b"data: {")
            for choice in json.loads(line[6:])["choices"]
            for token in choice.get("token_ids") or ()]
    return answer, {
        **request, "hashes": ",".join(f"{local:016x}" for local in
                                      local_hashes(request["ids"], MODEL.zone)),
        "at": began, "first": first, "end": end, "told": answer.told,
        "prompt_tokens": answer.prompt, "cached_tokens": answer.had,
        "output_tokens": answer.usage["completion_tokens"], "output_ids": said}


def reset(at):
    """An empty cache: the engine says so with its next step."""
    engine = at.engines["w1"]
    status, _ = engine.call("POST", "/reset_prefix_cache")
    assert status == 200, status
    ask(at, {"ids": [FIRST_ID] * 2, "max_tokens": 1})
    at.settle("w1")


def one_by_one(runner, at, requests):
    """Each when the one before has ended and is in the index."""
    for request in requests:
        answer, record = ask(at, request)
        runner.count(NAME, "one by one", answer)
        if record:
            at.settle("w1", request["ids"])
            yield record
    runner.judge(NAME, "one by one")


def at_once(runner, at, requests):
    """CLIENTS clients, each of which sends the next one."""
    form = "eight at once"
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        for answer, record in clients.map(lambda it: ask(at, it), requests):
            runner.count(NAME, form, answer)
            if record:
                yield record
    at.settle("w1")
    row = runner.rows[NAME, form]
    runner.check(NAME, form,
                 f"{row['failed']} failed" if row["failed"] else None)


def replayed(records, clients, parts):
    """What kv-simulate's engine has cached for each request, by its number;
    vLLM keeps a block for itself."""
    done = subprocess.run(
        ["luajit", ROOT / "t" / "engines" / "replay.lua", *map(str, (
            clients, BLOCKS - 1, MODEL.block_size, TOKENS, RUNNING,
            *(parts[name] for name in steps.PARTS)))],
        input="".join(json.dumps({
            name: it[name] for name in ("n", "ids", "output_ids")}) + "\n"
            for it in records),
        stdout=subprocess.PIPE, text=True, check=True,
        env={**os.environ, "LUA_PATH": f"{ROOT}/lua/?.lua;;"})
    return {int(n): int(cached) for n, cached in (
        line.split()[:2] for line in done.stdout.splitlines())}


def compared(runner, records, parts):
    """kv-simulate's engine beside this one."""
    for name, clients in (("one_by_one", 1), ("at_once", CLIENTS)):
        simulated = replayed(records[name], clients, parts)
        equal = sum(simulated[it["n"]] == it["cached_tokens"]
                    for it in records[name])
        tokens = sum(it["prompt_tokens"] for it in records[name])
        had, would = (100 * sum(cached) / tokens for cached in (
            (it["cached_tokens"] for it in records[name]),
            simulated.values()))
        said = (f"{equal} of {len(simulated)} requests are simulated with the "
                f"same cached tokens; in all {would:.1f} %, the engine "
                f"{had:.1f} %")
        runner.say(f"{NAME}, {name}: {said}")
        well = (abs(would - had) <= POINTS if clients > 1
                else equal == len(simulated) > 0)
        runner.check(NAME, f"kv-simulate, {name}", None if well else said)


def written(folder, name, records):
    """A file of JSON lines, if there is a folder."""
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{NAME}_{name}.jsonl").write_text("".join(
            json.dumps(it, separators=(",", ":")) + "\n" for it in records))


def run(runner):
    """Both ways, and what a step takes.  With --record three kinds of files:
    requests, which kv-simulate reads as a trace; steps; and the engine."""
    options = runner.options
    requests = list(drawn(options.requests or REQUESTS, options.seed))
    with Fleet(NAME, MODEL, engine=Engine) as at:
        runner.say(f"{NAME}: the engine answers")
        found, sent = [], {}
        for name, send in (("one_by_one", one_by_one), ("at_once", at_once)):
            reset(at)
            skipped = len(steps.read(steps_of(at)))
            records = sent[name] = list(send(runner, at, requests))
            seen = steps.read(steps_of(at))[skipped:]
            found += seen
            written(options.record, name, records)
            written(options.record, f"{name}_steps", seen)
            tokens, had = (sum(it[what] for it in records) for what in (
                "prompt_tokens", "cached_tokens"))
            runner.say(f"{NAME}, {name}: {len(records)} requests, {tokens} "
                       f"tokens, {100 * had / tokens:.1f} % cached, "
                       f"{len(seen)} steps, "
                       f"{sum(it['preempted'] for it in seen)} preempted")
    parts = steps.fitted(found)
    runner.say(f"{NAME}: seconds of a step: " + ", ".join(
        f"{part} {value:.3g}" for part, value in parts.items()))
    compared(runner, sent, parts)
    written(options.record, "engine", [{
        "engine": f"vLLM {MODEL.version}", "seed": options.seed,
        "block_size": MODEL.block_size, "blocks": BLOCKS,
        "options": MODEL.options, "machine": platform.machine(),
        "processors": os.cpu_count(), "load": os.getloadavg(),
        "seconds": parts}])
