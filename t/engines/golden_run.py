"""The golden requests through the router, to real engines: what the router
tells of every form against what the engine says that it had cached.
"""

import contextlib

import fleet
import golden_serve
from fleet import MODELS, Fleet, Model, Server
from golden_answers import GOLDEN, recorded, usage_of
from golden_cases import MODEL

FOLDER = MODELS / "golden"
SERVERS = {"vllm": golden_serve.Vllm(), "sglang": golden_serve.Sglang()}


class Vllm(fleet.Engine):
    """vLLM by the README's command, with the golden model."""

    def _run(self, words):
        self.process = Server(f"{self.worker}-{self.runs}", [
            "env", *(f"{name}={value}"
                     for name, value in fleet.ENVIRONMENT.items()),
            "nice", "-n", "10", str(self.programs / words[0]), *words[1:],
            "--host", "127.0.0.1", "--served-model-name", MODEL,
            "--enforce-eager", "--num-gpu-blocks-override", "300",
            *self.model.options, "--lora-modules",
            *(f"{name}={FOLDER}/{name}" for name in golden_serve.ADAPTERS)],
            self.fleet.directory)


class Sglang(fleet.Engine):
    """SGLang by the README's command, with the golden model."""

    program = "python3 -m sglang.launch_server "

    def _run(self, words):
        at = words.index("sglang.launch_server") + 1
        self.process = Server(f"{self.worker}-{self.runs}", [
            *SERVERS["sglang"].launcher("/dev/null"), *words[at:],
            "--host", "127.0.0.1", "--served-model-name", MODEL,
            *self.model.options, *SERVERS["sglang"].small(FOLDER)],
            self.fleet.directory)


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
            ("sglang", Sglang, Model(
                f"golden, SGLang {sglang.version}", *sglang.options(),
                files="golden", served=MODEL, block_size=sglang.block_size,
                zone=sglang.block_size))]


def comparable(case):
    """Whether a case has one prompt, whose cached tokens the answer says."""
    return (len(case["sequences"]) == 1 and case["usage"]
            and case["usage"]["cached"] is not None and "before" not in case)


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
        self.confidence = (f"{explained['confidence']}, {case['name']}, "
                           f"{explained['reason']}")
        self.told = fleet.told(model, explained, self.prompt)


def run(runner, name):
    """The requests of one of models(), each twice."""
    golden_serve.make_model(GOLDEN / "model", FOLDER)
    kind, engine, model = next(
        it for it in models() if it[2].name == name)
    SERVERS[kind].install()
    with Fleet("golden", model, engine=engine) as at:
        runner.say(f"{name}: the engine answers")
        forms = {}
        for case in recorded(kind)[1]:
            if not comparable(case):
                continue
            form = case["name"].partition(":")[0]
            forms[form] = True
            for _ in "ab":
                answer = Answer(model, case, at.explained(
                    case["method"], case["path"], case["body"].encode(),
                    adapter(case)))
                runner.count(name, form, answer)
                with contextlib.suppress(AttributeError):
                    at.settle(answer.worker)
        for form in forms:
            runner.say(f"{name}, {form}: {dict(runner.rows[name, form])}")
            runner.judge(name, form)


def adapter(case):
    """The header that names the adapter to the router."""
    (sequence,) = case["sequences"]
    return {"x-lora": sequence["lora"]} if sequence["lora"] else {}
