"""Drawn requests to a real vLLM, whose token ids the zone's model makes: the
golden requests with other texts, as soon as the model is proven; and the same
engine beside a model whose chat template is another one.
"""

import collections
import hashlib
import json
import random
import shutil
import subprocess

import fleet
import golden_run
import golden_serve
from fleet import PATIENCE, ROOT, Fleet, Model
from golden_answers import GOLDEN, recorded, usage_of
from golden_cases import QUESTION, SAID, SYSTEM
from processes import wait_until
from prompts import WORDS

NAME = "golden, vLLM, drawn"
REQUESTS = 1000                 # in all
BATCH = 10                      # requests between two waits
CHATS = 60                      # beside another template
TEXTS = {SYSTEM: 60, QUESTION: 40, SAID: 20}        # words of each, at most
BLOCKS = "4000"                 # nothing is evicted
LITERAL = "'<|im_start|>' + message.role"
OTHER = "'<|im_start|>the ' + message.role"


def model():
    """The engine's options; the rung is "auto", which waits for proofs."""
    return Model(NAME, *golden_serve.Vllm().options(),
                 "--num-gpu-blocks-override", BLOCKS, files="golden",
                 served=golden_run.MODEL, by_model="vllm")


class Proven(Fleet):
    """The model of the zone is used where it is proven."""

    def _write_conf(self, *args):
        super()._write_conf(*args)
        path = self.directory / "nginx.conf"
        conf = path.read_text()
        assert conf.count('tokenizer = "local"') == 1, conf
        path.write_text(conf.replace('tokenizer = "local"',
                                     'tokenizer = "auto"'))


class Drawn:
    """A golden request with other texts, and then its answer; its own texts
    without `rng`."""

    def __init__(self, case, rng):
        self.case, self.form = case, case["name"].partition(":")[0]
        self.body = case["body"]
        for text, words in TEXTS.items() if rng else ():
            self.body = self.body.replace(text, " ".join(
                rng.choice(WORDS) for _ in range(rng.randrange(
                    words // 4, words))))

    def send(self, at):
        """Asks, and keeps what run.Run.count wants to know."""
        self.status, self.explained, kind, self.data = at.explained(
            self.case["method"], self.case["path"], self.body.encode(),
            golden_run.adapter(self.case))
        if self.status != 200:
            return
        usage = usage_of(kind, self.data.decode())
        self.prompt, self.had = usage["prompt"], usage["cached"] or 0
        self.rank, self.worker = (self.explained[name]
                                  for name in ("rank", "worker"))
        self.confidence = (f"{self.explained['confidence']}, "
                           f"{self.case['name']}")
        self.told = fleet.told(at.model, self.explained, self.prompt)

    def rung(self):
        """Where its token ids came from, and why from nothing better."""
        by = self.explained["tokens_by"]
        return by if by != "load" else f"load ({self.explained['reason']})"


def echoes(at):
    """The routes of the model's ids: what the worker's echoes say."""
    return {echo["route"]: echo for echo in at.workers()["w1"]["echo"]
            if echo["route"].endswith("_local")}


def run(runner):
    """Both phases, with one start of the engine."""
    golden_serve.make_model(GOLDEN / "model", golden_run.FOLDER)
    golden_serve.Vllm.install()
    rng = random.Random(runner.options.seed)
    kind = model()
    cases = [case for case in recorded("vllm")[1]
             if golden_run.comparable(case, kind.options)
             and any(text in case["body"] for text in TEXTS)]
    with Proven("drawn", kind, engine=golden_run.Vllm) as at:
        runner.say(f"{NAME}: the engine answers; {len(cases)} cases")
        golden_run.wait_asked(at)
        # the beginnings that several cases share are cached from now on
        for case in cases:
            Drawn(case, None).send(at)
        at.settle("w1")
        thousand(runner, at, cases, rng)
        refused(runner, at)
        another(runner, at, cases, rng)


def thousand(runner, at, cases, rng):
    """Batches, each twice: nothing of the second time is told more or less
    where there are token ids, and the echoes are full."""
    rungs, less, states = collections.Counter(), collections.Counter(), {}
    n = runner.options.requests or REQUESTS
    for first in range(0, n, 2 * BATCH):
        batch = [Drawn(rng.choice(cases), rng) for _ in range(BATCH)]
        for _ in "ab":
            for it in batch:
                it.send(at)
                form = f"{it.form}, drawn"
                what = runner.count(NAME, form, it)
                if it.status == 200:
                    rungs[it.form, it.rung()] += 1
                if what == "less":
                    less[it.case["name"], it.rung()] += 1
            at.settle("w1")
        for route, echo in echoes(at).items():
            if states.get(route) != echo["trust"]:
                states[route] = echo["trust"]
                runner.say(f"{NAME}: {route} is {echo['trust']} after "
                           f"{first + 2 * BATCH} requests")
    for (form, rung), times in sorted(rungs.items()):
        runner.say(f"{NAME}, {form}: {times} by {rung}")
    runner.say(f"{NAME}: {json.dumps(at.status().get('model'))}")
    for (name, rung), times in sorted(less.items()):
        runner.say(f"{NAME}, told less: {name}: {times} by {rung}")
    for form in sorted({form for form, _ in rungs}):
        row = runner.rows[NAME, f"{form}, drawn"]
        wrong = [f"{row[what]} {what}: "
                 f"{runner.examples[NAME, f'{form}, drawn', what]}"
                 for what in ("more", "failed") if row[what]]
        wrong += [f"told less: {name} by {rung}, {times}"
                  for (name, rung), times in less.items()
                  if name.startswith(f"{form}:")
                  and not rung.startswith("load")]
        if not rungs[form, "local"]:
            wrong.append("the model has made no token ids")
        runner.check(NAME, f"{form}, drawn", "; ".join(wrong) or None)

    def proven():
        found = echoes(at)
        return found and all(echo["trust"] == "proven"
                             for echo in found.values()) and found

    found = wait_until("all routes are proven", proven, PATIENCE)
    runner.say(f"{NAME}: echoes: {found}")
    parted = {route: echo["parted"] for route, echo in found.items()
              if echo["parted"]}
    runner.check(NAME, "all echoes are full", str(parted) if parted else None)


def checked(folder, *options):
    """What kv-model-check says of a directory, and its status."""
    done = subprocess.run([ROOT / "util" / "kv-model-check", *options,
                           folder], capture_output=True, text=True,
                          check=False)
    return done.returncode, (done.stdout + done.stderr).strip()


def refused(runner, at):
    """A dumped directory whose template was changed afterwards is refused:
    by its digest, and if the digest is changed too, by its conversations."""
    dumped, changed = at.directory / "model", at.directory / "changed"
    status, said = checked(dumped)
    runner.check(NAME, "the dumped directory is ready",
                 said if status else None)
    shutil.copytree(dumped, changed)
    (path,) = [path for path in changed.rglob("*") if path.is_file()
               and path.suffix == ".jinja"]
    old = path.read_bytes()
    assert LITERAL.encode() in old, old
    new = old.replace(LITERAL.encode(), OTHER.encode())
    path.write_bytes(new)
    about = changed / "router.json"
    for what in ("its digest", "its conversations"):
        status, said = checked(changed)
        runner.say(f"{NAME}: another template, {what}: {status}, {said}")
        runner.check(NAME, f"another template is refused by {what}",
                     None if status == 1 else f"{status}: {said}")
        about.write_text(about.read_text().replace(
            *(hashlib.sha256(data).hexdigest() for data in (old, new))))


def another(runner, at, cases, rng):
    """Another template in a directory of Hugging Face, which has nothing to
    be compared with: the echoes part, and it is never proven."""
    at.stop_nginx()
    folder = at.directory / "model"
    shutil.rmtree(folder)
    folder.mkdir(mode=0o755)
    for name in ("tokenizer.json", "tokenizer_config.json",
                 "chat_template.jinja", "config.json"):
        shutil.copy(golden_run.FOLDER / name, folder)
    path = folder / "chat_template.jinja"
    text = path.read_text()
    assert LITERAL in text
    path.write_text(text.replace(LITERAL, OTHER))
    at.start_nginx({})
    at.wait_served("w1")
    golden_run.wait_asked(at)
    chats = [case for case in cases if case["name"].startswith("chat:")]
    rungs, seen = collections.Counter(), set()
    form = "chat, another template"
    for first in range(0, CHATS, BATCH):
        for _ in range(BATCH):
            it = Drawn(rng.choice(chats), rng)
            it.send(at)
            runner.count(NAME, form, it)
            rungs[it.rung()] += 1
        at.settle("w1")
        seen.add(echoes(at).get("chat_local", {}).get("trust"))
        runner.say(f"{NAME}, {form}: {first + BATCH} asked")
    found = wait_until("the route is in mismatch", lambda: (
        lambda echo: echo["trust"] == "mismatch" and echo)(
            echoes(at).get("chat_local", {"trust": None})), PATIENCE)
    lines = [line for line in at.log().splitlines() if "chat_local" in line]
    runner.say(f"{NAME}, {form}: {dict(rungs)}, {found}, log: {lines}, "
               f"status: {json.dumps(at.status().get('model'))}")
    row = runner.rows[NAME, form]
    wrong = [f"{row[what]} {what}: {runner.examples[NAME, form, what]}"
             for what in ("more", "failed") if row[what]]
    if rungs["local"]:
        wrong.append(f"{rungs['local']} requests had the model's ids")
    if "proven" in seen:
        wrong.append("the route was proven")
    if "have parted" not in "".join(lines):
        wrong.append(f"the log does not say it: {lines}")
    runner.check(NAME, form, "; ".join(wrong) or None)
