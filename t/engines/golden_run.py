"""The golden requests through the router, to real engines: what the router
tells of every form against what the engine says that it had cached.
"""

import contextlib
import json

import fleet
import golden_serve
from fleet import MODELS, PATIENCE, Fleet, Model, Server
from golden_answers import GOLDEN, recorded, usage_of
from golden_cases import (CHATS, COMPLETIONS, MODEL, SYSTEM,
                          VLLM_GENERATE)
from processes import wait_until

SERVERS = {"vllm": golden_serve.Vllm(), "sglang": golden_serve.Sglang()}

# What is told less, by model: the beginnings of the cases' names, and why.
# Each must be seen; when it is not seen any more, it has to be taken off.
NO_PATH = "these engines can be asked for completions and chats only"
OTHERS = "a field of another engine's, or one whose effect is not known"
CUT = "a text that the request has cut is not understood locally"
UNREAD = "a field that this engine does not read is not understood locally"
SGLANG = f"golden, SGLang {SERVERS['sglang'].version}"
LESS = {
    "golden, vLLM, render": {
        "completions: truncated to the model's length": OTHERS},
    "golden, vLLM, tokenize": {
        "chat: reasoning": "/tokenize drops it",
        "chat: reasoning_content": "/tokenize drops it",
        "messages: ": NO_PATH, "responses: ": NO_PATH,
        "chat: tools, tool_choice none": "an option of vLLM's decides",
        "completions: truncated to the model's length": OTHERS,
        "completions: truncated text": "vLLM keeps the BOS, which is cut off"},
    "golden, vLLM, local": {
        "chat: extra_key": UNREAD,
        "completions: truncated to the model's length": OTHERS,
        "chat: truncated": CUT, "completions: truncated text": CUT,
        "responses: truncation auto": CUT,
        "chat: ids, prompt_token_ids": UNREAD,
        "chat: ids, input_ids": UNREAD},
    SGLANG: {
        "messages: ": NO_PATH, "responses: ": NO_PATH,
        "completions: extra_key": OTHERS,
        "completions: cache_salt and extra_key": OTHERS,
        "completions: suffix": OTHERS,
        "chat: extra_key": OTHERS, "chat: session_params": OTHERS,
        "generate: extra_key": OTHERS,
        "generate: input logprobs of the end": OTHERS},
    "golden, SGLang, local": {
        "completions: extra_key": OTHERS,
        "completions: cache_salt and extra_key": OTHERS,
        "completions: suffix": OTHERS,
        "chat: extra_key": OTHERS, "chat: session_params": OTHERS,
        "chat: continue_final_message":
            "SGLang encodes the last message apart from the text",
        "chat: chat_template in the body": UNREAD,
        "chat: ids, prompt_token_ids": UNREAD,
        "responses: extra_key": OTHERS, "generate: extra_key": OTHERS,
        "generate: input logprobs of the end": OTHERS}}

FOLDER = MODELS / "golden"


class Vllm(fleet.Engine):
    """vLLM by the documented command, with the golden model."""

    def _run(self, words):
        self.process = Server(f"{self.worker}-{self.runs}", [
            *self.environment(),
            "nice", "-n", "10", str(self.programs / words[0]), *words[1:],
            "--host", "127.0.0.1", "--served-model-name", MODEL,
            "--enforce-eager", "--num-gpu-blocks-override", "300",
            *self.model.options, "--lora-modules",
            *(f"{name}={FOLDER}/{name}" for name in golden_serve.ADAPTERS)],
            self.fleet.directory)


class Sglang(fleet.Engine):
    """SGLang by the documented command, with the golden model."""

    program = "python3 -m sglang.launch_server "

    def _run(self, words):
        at = words.index("sglang.launch_server") + 1
        self.process = Server(f"{self.worker}-{self.runs}", [
            *SERVERS["sglang"].launcher("/dev/null"), *words[at:],
            "--host", "127.0.0.1", "--served-model-name", MODEL,
            *SERVERS["sglang"].small(FOLDER), *self.model.options],
            self.fleet.directory)

    def dump(self):
        """Its server is started by sglang_heard.py, which kv-model-dump does
        not know."""
        return [*SERVERS["sglang"].python(), "-", str(FOLDER),
                "--pid", str(self.process.pid()), "--engine", "sglang"]


def models():
    """The engines, and how each is started: vLLM has two ways to be asked
    for token ids."""
    vllm, sglang = (SERVERS[name] for name in ("vllm", "sglang"))
    options = vllm.options()
    asked = [word for word in options if word != "--enable-scale-out"]
    return [("vllm", Vllm, Model(
                "golden, vLLM, render", *options, files="golden",
                served=MODEL)),
            ("vllm", Vllm, Model(
                "golden, vLLM, tokenize", *asked, files="golden",
                served=MODEL)),
            ("vllm", Vllm, Model(
                "golden, vLLM, local", *options, files="golden",
                served=MODEL, by_model="vllm")),
            ("sglang", Sglang, Model(
                SGLANG, *sglang.options(),
                files="golden", served=MODEL, block_size=sglang.block_size,
                zone=sglang.block_size)),
            ("sglang", Sglang, Model(
                "golden, SGLang, local", *sglang.options(),
                files="golden", served=MODEL, block_size=sglang.block_size,
                zone=sglang.block_size, by_model="sglang"))]


def comparable(case, options):
    """Whether a case has one prompt and one choice, and the answer says how
    much of it was cached; and whether vLLM has its path at all."""
    if case["path"] == VLLM_GENERATE and "--enable-scale-out" not in options:
        return False
    return ([sequence["times"] for sequence in case["sequences"]] == [1]
            and case["usage"] and case["usage"]["cached"] is not None
            and "before" not in case and case["path"] != "/invocations")


class Answer:
    """What Run.count wants to know of an answer."""

    def __init__(self, model, case, got):
        self.status, explained, kind, self.data = got
        if self.status != 200:
            return
        self.prompt = len(case["sequences"][0]["ids"])
        usage = usage_of(kind, self.data.decode())
        # SGLang's messages say nothing when nothing was cached
        self.had, self.rank = usage["cached"] or 0, explained["rank"]
        self.worker = explained["worker"]
        self.confidence = f"{explained['confidence']}, {case['name']}"
        self.reason = explained["reason"]
        self.told = fleet.told(model, explained, self.prompt)


def wait_asked(at):
    """Until the router knows how this engine is asked for token ids."""
    for path, body in (
            (COMPLETIONS, {"prompt": SYSTEM}),
            (CHATS, {"messages": [{"role": "user", "content": SYSTEM}]})):
        text = json.dumps({"model": MODEL, "max_tokens": 1, **body})

        def known(path=path, text=text):
            explained = at.explained("POST", path, text)[1]
            return explained["reason"] not in ("no_rung", "unproven")

        wait_until(f"{path} has a rung", known, PATIENCE)


def run(runner, name):
    """The requests of one of models(), each twice."""
    golden_serve.make_model(GOLDEN / "model", FOLDER)
    kind, engine, model = next(
        it for it in models() if it[2].name == name)
    SERVERS[kind].install()
    with Fleet("golden", model, engine=engine) as at:
        runner.say(f"{name}: the engine answers")
        if not model.by_model:
            wait_asked(at)
        forms, less = set(), {}
        for case in recorded(kind)[1]:
            if not comparable(case, model.options):
                continue
            form = case["name"].partition(":")[0]
            forms.add(form)
            for _ in "ab":
                answer = Answer(model, case, at.explained(
                    case["method"], case["path"], case["body"].encode(),
                    adapter(case)))
                if runner.count(name, form, answer) == "less":
                    less[case["name"]] = answer.reason
                with contextlib.suppress(AttributeError):
                    at.settle(answer.worker)
        judge(runner, name, sorted(forms), less)


def judge(runner, name, forms, less):
    """A check for each form: nothing more, nothing failed, and less only
    where that is known."""
    known = LESS.get(name, {})
    for form in forms:
        row = runner.rows[name, form]
        runner.say(f"{name}, {form}: {dict(row)}")
        wrong = [f"told less: {case} ({reason})" for case, reason
                 in less.items() if case.startswith(f"{form}:")
                 and not case.startswith(tuple(known))]
        wrong += [f"{row[what]} {what}: {runner.examples[name, form, what]}"
                  for what in ("more", "failed") if row[what]]
        wrong += [f"{case.strip()} is told in full, take it off the list"
                  for case in known if case.startswith(form)
                  and not any(it.startswith(case) for it in less)]
        if not row["cached"]:
            wrong.append("nothing was cached: this form has shown nothing")
        runner.check(name, form, "; ".join(wrong) or None)


def adapter(case):
    """The header that names the adapter to the router."""
    (sequence,) = case["sequences"]
    return {"x-lora": sequence["lora"]} if sequence["lora"] else {}
