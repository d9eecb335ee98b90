#!/usr/bin/python3
"""What routing is worth on real engines: the same conversations by six ways
to route, to four vLLMs that have a part of a processor each; and beside it what
kv-simulate makes of the same conversations.

Without the quotas an engine with nothing to do would give its processor to the
others, which no accelerator does.

    make engines PART=value         the run
    t/engines/value.py FILE         tables of its results, as Markdown
    t/engines/value.py FILE SVG     and a plot of them, in the file SVG
"""

import concurrent.futures
import contextlib
import datetime
import http.client
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import time
import zlib
from pathlib import Path

import fleet
import steps
sys.path.append(str(fleet.ROOT / "bench"))
from matrix import draw                                         # noqa: E402
from fleet import BUILD, BUILT, MODELS, ROOT, Fleet, Model, stage, wait_until
from prompts import CHATS

NAME = "value"
RESULTS = BUILD / "value.json"
WORKERS = ("w1", "w2", "w3", "w4")
SEEDS = (1, 2, 3)
MINUTES = 52                    # after which no other workload begins

PERIOD, QUOTA = 20000, 8000     # us: 0.4 of a processor
SHARES = 65536                  # all others have 1024
GROUPS = Path("/sys/fs/cgroup")

SIZES = {"hidden_size": 256, "intermediate_size": 768,
         "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2}
BLOCK, BLOCKS = 32, 321         # vLLM keeps one for itself
RUNNING, TOKENS = 16, 512       # in a step, at most
MODEL = Model(
    NAME, "--num-gpu-blocks-override", str(BLOCKS), "--max-model-len", "8192",
    "--max-num-seqs", str(RUNNING), "--max-num-batched-tokens", str(TOKENS),
    "--hf-overrides", json.dumps(SIZES), "--no-async-scheduling",
    "--distributed-executor-backend", "uni",
    "--scheduler-cls", "vllm_steps.Steps", files="llama", by_model="vllm")
DELAY = 0.05                    # seconds from a step's end to the index

# title: (upstream, kv-simulate's policy)
POLICIES = {
    "round robin": ("turns", "round_robin"),
    "`least_conn`": ("least", "least_conn"),
    "hash of the session": ("hashed", "home"),
    "ours, events": ("engines", "kv_cost"),
    "ours, events, `agent`": ("sessions", "agent"),
    "ours, estimates": ("estimates", "kv_cost")}

# sessions; seconds in which they begin; system prompts, in blocks; turns, and
# of each turn median and sigma of the tokens that it adds, tokens of its
# answer, and seconds before it
WORKLOADS = {
    "chats": {"sessions": 60, "begin": 55, "systems": (8, 12, 16, 20),
              "turns": (3, 6), "add": (180, 0.6), "answer": 6,
              "think": (2, 8)},
    "agents": {"sessions": 18, "begin": 30, "systems": (24,),
               "turns": (4, 14), "add": (130, 0.9), "answer": 6,
               "think": (0.5, 3)}}
MOST = 1000                     # tokens that a turn adds
CALIBRATED = 0                  # the seed that speeds are measured with

CONF = """
    kv_router_zone    zone=estimated:64m block_size={block};
{workers}
    lua_shared_dict   bound 1m;

    init_by_lua_block {{
        local kv = require "resty.kv_router"

        router = kv.new("main", {{ tokenizer = "local" }})
        sessions = kv.new("main", {{ tokenizer = "local", policy = "agent",
                                    policy_conf = {{ dict = "bound" }} }})
        estimates = kv.new("estimated", {{ tokenizer = "none" }})
    }}
{ours}{plain}
"""
OURS = """
    upstream {name} {{
        server  0.0.0.1;
        balancer_by_lua_block {{ {name}:balance() }}
        keepalive  64;
    }}
"""
PLAIN = """
    upstream {name} {{
        zone  {name} 64k;
        {by}
{servers}
        keepalive  64;
    }}
"""
BY = {"turns": "", "least": "least_conn;",
      "hashed": "hash $http_x_session_id;"}


# ---- groups of processes -----------------------------------------------------

class Groups:
    """A cgroup for each engine, and one for all else that is measured."""

    def __init__(self):
        there = GROUPS / "cgroup.controllers"           # version 2
        self.v2 = there.is_file() and "cpu" in there.read_text().split()
        self.root = GROUPS if self.v2 else GROUPS / "cpu"
        self.made = {}

    def __enter__(self):
        try:
            if self.v2:
                (self.root / "cgroup.subtree_control").write_text("+cpu")
            for name in ("others", *WORKERS):
                group = self.root / f"kv-router-{os.getpid()}-{name}"
                group.mkdir()
                self.made[name] = group
                (group / ("cpu.weight" if self.v2 else "cpu.shares")
                 ).write_text("10000" if self.v2 else str(SHARES))
            self.join("others", os.getpid())
        except OSError as err:
            self.__exit__()
            raise SystemExit(
                f"value: {err}: each engine needs a quota of its own, by "
                f"cgroups with the controller cpu, version 1 or 2, below "
                f"{GROUPS}: run it as root, where these are") from err
        return self

    def join(self, name, pid):
        """A process, and its children to come, enter a group."""
        (self.made[name] / "cgroup.procs").write_text(str(pid))

    def limit(self):
        """The engines have their quotas from now on."""
        for name in WORKERS:
            group = self.made[name]
            if self.v2:
                (group / "cpu.max").write_text(f"{QUOTA} {PERIOD}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD))
                (group / "cpu.cfs_quota_us").write_text(str(QUOTA))

    def __exit__(self, *_):
        if self.made:
            (self.root / "cgroup.procs").write_text(str(os.getpid()))
        for group in self.made.values():
            # until the last process that was killed is gone
            wait_until(f"{group} is empty", lambda group=group: (
                group.rmdir(), True)[1])


class Engine(fleet.Engine):
    """An engine in its group, which logs its steps."""

    def environment(self):
        """One process for scheduler and model, as two wait for each other in
        busy loops, within the quota.  Where its scheduler is, and where the
        steps go."""
        return [*super().environment(), "VLLM_ENABLE_V1_MULTIPROCESSING=0",
                f"STEPS={self.steps()}",
                f"PYTHONPATH={ROOT / 't' / 'engines'}"]

    def steps(self):
        """The file of its steps."""
        return self.fleet.directory / f"{self.worker}.steps"

    def start(self):
        """Starts it there."""
        super().start()
        self.fleet.groups.join(self.worker, self.process.pid())

    def dump(self):
        """The others run the same model."""
        return [*super().dump(), "--pid", str(self.process.pid())]

    def counters(self):
        """What it has counted since its start: tokens of prompts, and those
        of them that were cached."""
        return counters_of(fleet.exchange(self.port, "GET", "/metrics")[2])

    def reset(self):
        """An empty cache: the engine says so with its next step."""
        def empty():
            return self.call("POST", "/reset_prefix_cache")[0] == 200

        wait_until(f"{self.worker} has an empty cache", empty)
        body = {"model": MODEL.served, "prompt": [100, 101], "max_tokens": 1}
        fleet.exchange(self.port, "POST", "/v1/completions", json.dumps(body))


class Routes(Fleet):
    """The documented nginx, and all other ways to route, each on a port of
    its own."""

    def __init__(self, groups):
        super().__init__(NAME, MODEL, WORKERS, Engine)
        self.groups = groups
        self.ports = {name: stage.free_port() for name, _ in POLICIES.values()}
        self.ports["engines"] = self.port

    def _write_conf(self, *args):
        super()._write_conf(*args)
        path = self.directory / "nginx.conf"
        ports = {name: engine.port for name, engine in self.engines.items()}
        plain = "".join(PLAIN.format(
            name=name, by=by, servers="\n".join(
                f"        server  127.0.0.1:{port};"
                for port in ports.values())) for name, by in BY.items())
        path.write_text(routed(path.read_text(), CONF.format(
            block=BLOCK, plain=plain, ours="".join(
                OURS.format(name=name) for name in ("sessions", "estimates")),
            workers="\n".join(
                f"    kv_router_worker  estimated {name} 127.0.0.1:{port} "
                f"capacity={(BLOCKS - 1) * BLOCK};"
                for name, port in ports.items())), {
            name: port for name, port in self.ports.items()
            if name != "engines"}))

    def begin(self):
        """Empty caches, and routers that know nothing else."""
        for engine in self.engines.values():
            engine.reset()
        self.stop_nginx()
        self.start_nginx({})
        for worker in self.engines:
            self.wait_trusted(worker)
            self.settle(worker)

    def steps(self):
        """All steps so far, a list for each engine."""
        return [steps.read(engine.steps()) for engine in
                self.engines.values()]


def routed(conf, more, ports):
    """The documented configuration, and servers for the other ways to
    route."""
    init = re.search(r"\n    init_by_lua_block \{.*?\n    \}\n", conf, re.S)
    place = re.search(r"\n        location ~ [^{]*\{.*?\n        \}\n", conf,
                      re.S)
    servers = ""
    for name, port in ports.items():
        lines = place[0].replace("router:", f"{name}:").replace(
            "http://engines", f"http://{name}").splitlines()
        servers += (f"\n    server {{\n        listen  127.0.0.1:{port};"
                    + "\n".join(line for line in lines if name not in BY
                                or not re.match(" *(access_by|log_by|add_)",
                                                line)) + "\n    }\n")
    return conf.replace(init[0], more).rstrip()[:-1] + servers + "}\n"


# ---- conversations -----------------------------------------------------------

def words_of(vocabulary):
    """Words that are a token each, behind a space."""
    return sorted(word[1:] for word in vocabulary
                  if re.fullmatch("\u0120[a-z]{3,}", word))


def drawn(name, seed, words):
    """Conversations of a workload, as kv-simulate has them, and besides the
    messages of each turn, and the session's name."""
    of, rng = WORKLOADS[name], random.Random(f"{name} {seed}")

    def text(tokens):
        return "".join(f" {rng.choice(words)}" for _ in range(tokens))

    # half a block more, for the tokens of the template
    systems = [text(blocks * BLOCK + BLOCK // 2) for blocks in of["systems"]]
    talks = []
    for number in range(of["sessions"]):
        which = number % len(systems)
        turns = []
        for _ in range(rng.randint(*of["turns"])):
            median, sigma = of["add"]
            added = min(MOST, 10 + int(rng.lognormvariate(
                math.log(median), sigma)))
            turns.append({
                "think": rng.uniform(*of["think"]), "add": added,
                "output": of["answer"], "said": text(of["answer"]),
                "asked": text(added)})
        talks.append({
            "at": of["begin"] * rng.random(), "turns": turns,
            "session": f"{name}-{seed}-{number}", "own": 2 ** 32 + number,
            "system": systems[which],
            "parts": [[which + 1, of["systems"][which]]]})
    return sorted(talks, key=lambda talk: talk["at"])


def home_of(session):
    """The number of the worker that nginx's hash names, from 0."""
    return (zlib.crc32(session.encode()) >> 16 & 0x7fff) % len(WORKERS)


# ---- a run -------------------------------------------------------------------

def ask(port, session, messages, answer):
    """A streamed request: what came of it.  Times are seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    began, first, usage = time.monotonic(), None, None
    with contextlib.closing(connection):
        connection.request("POST", CHATS, json.dumps({
            "model": MODEL.served, "messages": messages, "temperature": 0,
            "max_tokens": answer, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}), {
                "Content-Type": "application/json", "x-session-id": session})
        response = connection.getresponse()
        for line in response:
            first = first or time.monotonic()
            if line.startswith(b"data: {"):
                usage = json.loads(line[6:]).get("usage") or usage
    if response.status != 200 or not usage:
        raise ConnectionError(f"status {response.status}")
    return {"at": began, "ttft": first - began,
            "end": time.monotonic(),
            "decided": response.headers.get("x-decided"),
            "prompt": usage["prompt_tokens"],
            "cached": (usage["prompt_tokens_details"] or {}).get(
                "cached_tokens") or 0}


def converse(port, talk, start):
    """A session, from its time on: what came of each turn."""
    messages = [{"role": "system", "content": talk["system"]}]
    time.sleep(max(0, start + talk["at"] - time.monotonic()))
    found = []
    for number, turn in enumerate(talk["turns"]):
        if number:
            time.sleep(turn["think"])
        messages.append({"role": "user", "content": turn["asked"]})
        found.append(ask(port, talk["session"], messages,
                         turn["output"]))
        # the text is drawn, so that all runs have the same prompts
        messages.append({"role": "assistant", "content": turn["said"]})
    return found


def sent(at, upstream, talks):
    """Sends all of it: a list for each conversation."""
    start = time.monotonic() + 1
    with concurrent.futures.ThreadPoolExecutor(len(talks)) as clients:
        return list(clients.map(lambda talk: converse(
            at.ports[upstream], talk, start), talks))


def counters_of(text):
    """(prompt tokens, cached ones), by vLLM's metrics."""
    return tuple(sum(float(value) for value in re.findall(
        rf"^vllm:prefix_cache_{what}_total\{{.*\}} (\S+)$", text.decode(),
        re.M)) for what in ("queries", "hits"))


def percentile(values, percent):
    """The nearest rank."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


def figures(answers, counted, shares):
    """Of a run: its answers, what the engines counted, tokens by engine."""
    ttfts = [it["ttft"] for it in answers]
    asked, cached = (sum(it) for it in zip(*counted))
    return {"requests": len(answers), "hit": cached / asked,
            "usage_hit": sum(it["cached"] for it in answers)
            / sum(it["prompt"] for it in answers),
            "ttft_mean": statistics.mean(ttfts),
            "ttft_p50": percentile(ttfts, 50),
            "ttft_p90": percentile(ttfts, 90),
            "seconds": max(it["end"] for it in answers)
            - min(it["at"] for it in answers),
            "worst_share": max(shares) * len(shares) / sum(shares)}


def turn_of(at, upstream, talks):
    """One run from empty caches: its figures, and the answers."""
    at.begin()
    before = [engine.counters() for engine in at.engines.values()]
    found = sent(at, upstream, talks)
    counted = [[now - then for now, then in zip(engine.counters(), known)]
               for engine, known in zip(at.engines.values(), before)]
    return figures([answer for talk in found for answer in talk], counted,
                   [asked for asked, _ in counted]), found


def period(step, following):
    """A step, until the next one began if that was soon: what an engine does
    between two steps takes time, too."""
    gap = following["at"] - step["end"]
    return step | {"end": following["at"]} if gap < 0.1 else step


def forecast(talks, lengths, parts):
    """What kv-simulate makes of the same conversations; `lengths` are those
    of their prompts: {policy: figures}."""
    given = {
        "conf": {"engine": "vllm", "workers": len(WORKERS),
                 "blocks": BLOCKS - 1, "block_size": BLOCK,
                 "max_tokens": TOKENS, "max_requests": RUNNING, "routers": 1,
                 "event_delay": DELAY, "event_loss": 0, "repair_delay": 1,
                 "share_loss": 0,
                 "times": {name: parts[name] for name in steps.PARTS}},
        "talks": [{
            "at": talk["at"], "own": talk["own"], "parts": talk["parts"],
            "turns": [{name: turn[name] for name in ("think", "add", "output")}
                      | {"prompt": prompt}
                      for turn, prompt in zip(talk["turns"], prompts)]}
            for talk, prompts in zip(talks, lengths)],
        "homes": {f"s{talk['own']}": home_of(talk["session"]) + 1
                  for talk in talks},
        "policies": sorted({policy for _, policy in POLICIES.values()})}
    done = subprocess.run(
        ["luajit", ROOT / "t" / "engines" / "value.lua",
         BUILT / "libkvr_simulate.so"], input=json.dumps(given), check=True,
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "LUA_PATH": f"{ROOT}/lua/?.lua;;"})
    return {it.pop("policy"): it for it in map(
        json.loads, done.stdout.splitlines())}


def speeds(runner, at, words):
    """What a step takes under the quota, by a workload of its own."""
    known = [len(found) for found in at.steps()]
    for name in WORKLOADS:
        turn_of(at, "least", drawn(name, CALIBRATED, words))
    parts = steps.fitted([
        period(*pair) for found, skipped in zip(at.steps(), known)
        for pair in zip(found[skipped:], found[skipped + 1:])])
    runner.say(f"{NAME}: seconds of a step: " + ", ".join(
        f"{part} {value:.3g}" for part, value in parts.items()))
    return parts


def run(runner):
    """All policies in turns, seed by seed, as long as there is time."""
    options = runner.options
    ends = time.monotonic() + 60 * MINUTES
    results = {
        "date": datetime.date.today().isoformat(),
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, check=False).stdout.strip(),
        "engine": f"vLLM {MODEL.version}", "options": MODEL.options,
        "quota": QUOTA / PERIOD, "workloads": WORKLOADS, "runs": []}
    with Groups() as groups, Routes(groups) as at:
        runner.say(f"{NAME}: the engines answer")
        words = words_of(json.loads((
            MODELS / MODEL.files / "tokenizer.json").read_text())[
                "model"]["vocab"])
        groups.limit()
        results["seconds"] = parts = speeds(runner, at, words)
        for seed in SEEDS[:options.requests]:
            for name in WORKLOADS:
                if time.monotonic() < ends:
                    one_seed(runner, at, results, parts,
                             (name, seed, drawn(name, seed, words)))
                    RESULTS.write_text(json.dumps(results).replace(
                        '{"workload"', '\n{"workload"') + "\n")
    runner.tables.append(tables(results))


def one_seed(runner, at, results, parts, what):
    """All policies with one draw of a workload."""
    name, seed, talks = what
    measured, folder = {}, runner.options.record
    for title, (upstream, _) in POLICIES.items():
        known = [len(found) for found in at.steps()]
        figure, found = turn_of(at, upstream, talks)
        if folder:
            (Path(folder) / f"{name}-{seed}-{upstream}.json").write_text(
                json.dumps({"answers": found, "steps": [
                    all_[n:] for all_, n in zip(at.steps(), known)]}))
        lengths = [[answer["prompt"] for answer in talk] for talk in found]
        measured[title] = figure
        runner.say(f"{NAME}, {name}, seed {seed}, {title}: " + shown(figure))
    simulated = forecast(talks, lengths, parts)
    for title, (_, policy) in POLICIES.items():
        results["runs"].append({
            "workload": name, "seed": seed, "policy": title,
            "measured": measured[title], "forecast": simulated[policy]})
        runner.say(f"{NAME}, {name}, seed {seed}, {title}, forecast: "
                   + shown(simulated[policy]))
        wanted = sum(len(talk["turns"]) for talk in talks)
        runner.check(NAME, f"{name}, seed {seed}, {title}: all are answered",
                     None if measured[title]["requests"] == wanted
                     else f"{measured[title]['requests']} of {wanted}")


# ---- tables ------------------------------------------------------------------

def shown(figure):
    """A line of figures."""
    return (f"hit rate {figure['hit']:.1%}, TTFT mean "
            f"{figure['ttft_mean']:.2f}, p50 {figure['ttft_p50']:.2f}, p90 "
            f"{figure['ttft_p90']:.2f} s, all in {figure['seconds']:.0f} s, "
            f"worst share {figure['worst_share']:.2f}")


def tables(results):
    """A table for each workload: measured, and in brackets the forecast."""
    lines = []
    for name in results["workloads"]:
        runs = [it for it in results["runs"] if it["workload"] == name]
        seeds = sorted({it["seed"] for it in runs})
        lines += ["", f"{name.capitalize()}, seeds "
                  f"{', '.join(map(str, seeds))}:", "",
                  "| policy | hit rate | TTFT mean | p50 | p90 | all answered "
                  "after |", "|" + " --- |" * 6]
        for title in dict.fromkeys(it["policy"] for it in runs):
            cells = []
            for what, form in (("hit", "{:.1%}"), ("ttft_mean", "{:.2f}"),
                               ("ttft_p50", "{:.2f}"), ("ttft_p90", "{:.2f}"),
                               ("seconds", "{:.0f}")):
                live, simulated = (statistics.mean(
                    it[kind][what] for it in runs if it["policy"] == title)
                    for kind in ("measured", "forecast"))
                unit = "" if what == "hit" else " s"
                cells.append((form.format(live) + unit + " ("
                              + form.format(simulated) + ")").replace(
                                  "%", " %"))
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines).strip()


def plot(results, path):
    """TTFT means of each policy, and the seeds with the least and the most."""
    def dots(name):
        runs = [it for it in results["runs"] if it["workload"] == name]
        for title in dict.fromkeys(it["policy"] for it in runs):
            means = [it["measured"]["ttft_mean"] for it in runs
                     if it["policy"] == title]
            yield [title.replace("`", ""), statistics.mean(means), min(means),
                   max(means)]

    draw(path, "dots", "Four vLLM engines: mean time to first token, in seconds "
         "(three seeds)", [[name, list(dots(name))]
                           for name in results["workloads"]])


if __name__ == "__main__":
    read = json.loads(Path(sys.argv[1]).read_text(encoding="ascii"))
    print(tables(read))
    if sys.argv[2:]:
        plot(read, Path(sys.argv[2]))
