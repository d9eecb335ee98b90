"""Drawn requests to real engines, whose token ids the zone's model makes: the
golden requests with other texts, as soon as the model is proven; chats that go
on; and an engine that is started again with another chat template.
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
from golden_cases import CHATS, QUESTION, SAID, SYSTEM
from processes import wait_until
from prompts import WORDS

# the engine, its class, and options with which nothing is evicted
KINDS = {
    "golden, vLLM, drawn": ("vllm", golden_run.Vllm, (
        "--num-gpu-blocks-override", "8000")),
    "golden, SGLang, drawn": ("sglang", golden_run.Sglang, (
        "--max-total-tokens", "256000"))}
REQUESTS = 1000                 # in all
BATCH = 10                      # requests between two waits
OTHERS = 60                     # chats beside another template
SESSIONS, TURNS = 20, 10        # of chats that go on
SYSTEMS = 4                     # that sessions share
TEXTS = {SYSTEM: 60, QUESTION: 40, SAID: 20}        # words of each, at most
LITERAL = "'<|im_start|>' + message.role"
OTHER = "'<|im_start|>the ' + message.role"


def model(name):
    """The engine's options."""
    kind, _, options = KINDS[name]
    server = golden_run.SERVERS[kind]
    return Model(name, *server.options(), *options, files="golden",
                 served=golden_run.MODEL, block_size=server.block_size,
                 zone=server.block_size, by_model=kind)


class Proven(Fleet):
    """The model of the zone is used where it is proven, and there is a turn
    cache."""

    def _write_conf(self, *args):
        super()._write_conf(*args)
        path = self.directory / "nginx.conf"
        conf = path.read_text()
        for old, new in (
                ('tokenizer = "local"', 'tokenizer = "auto"'),
                (" engine=vllm;", " engine=vllm turns=32m;")):
            assert conf.count(old) == 1, conf
            conf = conf.replace(old, new)
        path.write_text(conf)


def drawn_text(rng, n):
    """N words."""
    return " ".join(rng.choice(WORDS) for _ in range(n))


class Drawn:
    """A golden request with other texts, and then its answer; its own texts
    without `rng`."""

    def __init__(self, case, rng):
        self.case, self.form = case, case["name"].partition(":")[0]
        self.body = case["body"]
        for text, words in TEXTS.items() if rng else ():
            self.body = self.body.replace(text, drawn_text(
                rng, rng.randrange(words // 4, words)))

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
        by = self.explained["rung"]
        return by if by != "load" else f"load ({self.explained['reason']})"


def echoes(at):
    """The routes of the model's ids: what the worker's echoes say."""
    return {echo["route"]: echo for echo in at.workers()["w1"]["echo"]
            if echo["route"].endswith("_local")}


def run(runner, name):
    """All phases, with one of KINDS."""
    kind, engine, _ = KINDS[name]
    golden_run.SERVERS[kind].install()
    golden_serve.make_model(GOLDEN / "model", golden_run.FOLDER)
    rng = random.Random(runner.options.seed)
    with Proven("drawn", model(name), engine=engine) as at:
        cases = [case for case in recorded(kind)[1]
                 if golden_run.comparable(case, at.model.options)
                 and any(text in case["body"] for text in TEXTS)]
        runner.say(f"{name}: the engine answers; {len(cases)} cases")
        golden_run.wait_asked(at)
        # the beginnings that several cases share are cached from now on
        for case in cases:
            Drawn(case, None).send(at)
        at.settle("w1")
        thousand(runner, at, cases, rng)
        turns(runner, at, rng)
        refused(runner, at)
        chats = [case for case in cases if case["name"].startswith("chat:")]
        another_engine(at)
        never_proven(runner, at, chats, rng, "chat, another engine")
        published_model(at)
        never_proven(runner, at, chats, rng, "chat, published model")


def thousand(runner, at, cases, rng):
    """Batches, each twice: nothing of the second time is told more or less
    where there are token ids, and the echoes are full."""
    name, states = at.model.name, {}
    rungs, less = collections.Counter(), collections.Counter()
    n = runner.options.requests or REQUESTS
    forms = collections.defaultdict(list)
    for case in cases:
        forms[case["name"].partition(":")[0]].append(case)
    for first in range(0, n, 2 * BATCH):
        batch = [Drawn(rng.choice(forms[rng.choice(list(forms))]), rng)
                 for _ in range(BATCH)]
        for _ in "ab":
            for it in batch:
                it.send(at)
                form = f"{it.form}, drawn"
                what = runner.count(name, form, it)
                if it.status == 200:
                    rungs[it.form, it.rung()] += 1
                if what == "less":
                    less[it.case["name"], it.rung()] += 1
            at.settle("w1")
        for route, echo in echoes(at).items():
            if states.get(route) != echo["trust"]:
                states[route] = echo["trust"]
                runner.say(f"{name}: {route} is {echo['trust']} after "
                           f"{first + 2 * BATCH} requests")
    for (form, rung), times in sorted(rungs.items()):
        runner.say(f"{name}, {form}: {times} by {rung}")
    runner.say(f"{name}: {json.dumps(at.status().get('model'))}")
    for (case, rung), times in sorted(less.items()):
        runner.say(f"{name}, told less: {case}: {times} by {rung}")
    for form in sorted({form for form, _ in rungs}):
        row = runner.rows[name, f"{form}, drawn"]
        wrong = [f"{row[what]} {what}: "
                 f"{runner.examples[name, f'{form}, drawn', what]}"
                 for what in ("more", "failed") if row[what]]
        wrong += [f"told less: {case} by {rung}, {times}"
                  for (case, rung), times in less.items()
                  if case.startswith(f"{form}:")
                  and not rung.startswith("load")]
        if not rungs[form, "local"]:
            wrong.append("the model has made no token ids")
        runner.check(name, f"{form}, drawn", "; ".join(wrong) or None)

    def proven():
        found = echoes(at)
        return found and all(echo["trust"] == "proven"
                             for echo in found.values()) and found

    found = wait_until("all routes are proven", proven, PATIENCE)
    runner.say(f"{name}: echoes: {found}")
    parted = {route: echo["parted"] for route, echo in found.items()
              if echo["parted"]}
    runner.check(name, "all echoes are full", str(parted) if parted else None)


def turns(runner, at, rng):
    """Chats that go on with the engine's own answers: each turn but the first
    one is found in the turn cache, with the same ids."""
    name, form = at.model.name, "chat, next turns"
    before, rungs, prompts = at.status()["turn_cache"], set(), 0
    systems = [drawn_text(rng, 250) for _ in range(SYSTEMS)]
    chats = [[{"role": "system", "content": systems[i % SYSTEMS]}]
             for i in range(SESSIONS)]
    for _ in range(TURNS):
        rng.shuffle(chats)
        for messages in chats:
            messages.append({"role": "user", "content": drawn_text(
                rng, rng.randrange(5, 40))})
            answer = at.ask(CHATS, {
                "model": golden_run.MODEL, "messages": messages,
                "max_tokens": 16, "temperature": 0})
            runner.count(name, form, answer)
            if answer.status == 200:
                rungs.add(answer.explained["rung"])
                prompts += answer.prompt
                messages.append({"role": "assistant",
                                 "content": answer.text or ""})
        at.settle("w1")
    after = at.status()["turn_cache"]
    found = {what: after[what] - before[what] for what in (
        "hits", "misses", "tokens", "kept", "lost", "torn")}
    runner.say(f"{name}, {form}: {dict(runner.rows[name, form])}, turn cache "
               f"{found}, of {prompts} tokens")
    runner.judge(name, form)
    again = SESSIONS * (TURNS - 1)
    runner.check(name, "next turns are found in the turn cache",
                 None if found["hits"] >= again and rungs == {"local"}
                 and found["lost"] == found["torn"] == 0
                 else f"{found}, rungs {rungs}; {again} turns are no first "
                 "ones")


def checked(folder):
    """What kv-model-check says of a directory, and its status."""
    done = subprocess.run([ROOT / "util" / "kv-model-check", folder],
                          capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).strip()


def refused(runner, at):
    """A dumped directory whose template was changed afterwards is refused:
    by its digest, and if the digest is changed too, by its conversations."""
    name = at.model.name
    dumped, changed = at.directory / "model", at.directory / "changed"
    status, said = checked(dumped)
    runner.check(name, "the dumped directory is ready",
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
        runner.say(f"{name}: another template, {what}: {status}, {said}")
        runner.check(name, f"another template is refused by {what}",
                     None if status == 1 else f"{status}: {said}")
        about.write_text(about.read_text().replace(
            *(hashlib.sha256(data).hexdigest() for data in (old, new))))


def another_engine(at):
    """The engine ends, and comes back with a chat template of its own; the
    router goes on with the model as it was dumped."""
    path = at.directory / "other.jinja"
    text = (golden_run.FOLDER / "chat_template.jinja").read_text()
    assert LITERAL in text
    path.write_text(text.replace(LITERAL, OTHER))
    engine = at.engines["w1"]
    engine.stop()
    at.model.options += ("--chat-template", str(path))
    engine.start()
    engine.start_relay()
    at.wait_served("w1")
    golden_run.wait_asked(at)


def published_model(at):
    """The same engine, and the published files of the model: nothing of them
    tells of its flags, and there is nothing that they are compared with."""
    at.stop_nginx()
    folder = at.directory / "model"
    shutil.rmtree(folder)
    folder.mkdir(mode=0o755)
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json",
                 "chat_template.jinja"):
        shutil.copy(golden_run.FOLDER / name, folder)
    at.start_nginx({})
    at.wait_served("w1")
    golden_run.wait_asked(at)


def never_proven(runner, at, chats, rng, form):
    """The echoes part, and the model's ids are never used."""
    name, rungs, seen = at.model.name, collections.Counter(), set()
    for first in range(0, OTHERS, BATCH):
        for _ in range(BATCH):
            it = Drawn(rng.choice(chats), rng)
            it.send(at)
            runner.count(name, form, it)
            rungs[it.rung()] += 1
        at.settle("w1")
        seen.add(echoes(at).get("chat_local", {}).get("trust"))
        runner.say(f"{name}, {form}: {first + BATCH} asked")
    found = wait_until("the route is in mismatch", lambda: (
        lambda echo: echo["trust"] == "mismatch" and echo)(
            echoes(at).get("chat_local", {"trust": None})), PATIENCE)
    lines = [line for line in at.log().splitlines() if "chat_local" in line]
    runner.say(f"{name}, {form}: {dict(rungs)}, {found}, log: {lines}, "
               f"status: {json.dumps(at.status().get('model'))}")
    row = runner.rows[name, form]
    wrong = [f"{row[what]} {what}: {runner.examples[name, form, what]}"
             for what in ("more", "failed") if row[what]]
    if rungs["local"]:
        wrong.append(f"{rungs['local']} requests had the model's ids")
    if "proven" in seen:
        wrong.append("the route was proven")
    if "have parted" not in "".join(lines):
        wrong.append(f"the log does not say it: {lines}")
    runner.check(name, form, "; ".join(wrong) or None)
