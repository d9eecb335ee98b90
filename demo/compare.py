#!/usr/bin/python3
"""Compares policies and settings: four workloads, several seeds, one table.

The workloads are three parts of the Mooncake trace, one for each seed, with
the demo's fleet; and drawn chats (conversations.py), with caches that together
hold 40 % and 75 % of their distinct tokens; and sessions of coding agents.  Each (workload, seed) has a fleet
of its own, to which all policies come in turn; --jobs of them run at once.
The text workloads are the same ones as chats in words.  A policy can be
another router (rival_routers.py); or "estimated", which is kv_cost in a zone
that hears no events of the engines.  CPU is the router's processor time.

The fleets keep time by deadlines, so that the machine's speed matters little.
A run in which the replay or an engine missed too many of these is void, and
is done again.  The status is 1 when a run failed, or was void each time.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import conversations
from demo import (AGENTS, AGENTS_ENGINES, ENGINES, PERCENTILES, REQUESTS,
                  SESSIONS, TRACE)
from fleet import (BLOCK_SIZE, ESTIMATED, WORKERS, Engines, Policy,
                   add_options, milliseconds, print_table, session, terminate)
from processes import DemoError, Process
from rival_routers import NAMES

POLICIES = ("round_robin", "kv_cost={ dynamo = true }", "kv_cost",
            "cache_aware", "weighted")
SKIP = 4000                     # requests of the trace from part to part
CHATS = 190
CHATS_PREFILL_US = 50
LATE_SHARE = 0.02               # of missed deadlines: more, and a run is void
TRIES = 3


# ---------------------------------------------------------------- workloads

def trace(seed):
    """Another part of the trace for each seed: (engines, replay's options)."""
    return (Engines(ENGINES.blocks, ENGINES.prefill_us, seed),
            (*TRACE, "--requests", str(REQUESTS),
             "--skip", str(SKIP * (seed - 1))))


def chats(share, seed):
    """Other chats for each seed; caches for a share of their tokens."""
    tokens = conversations.distinct_tokens(conversations.draw(CHATS, seed))
    return (Engines(round(share * tokens / BLOCK_SIZE / len(WORKERS)),
                    CHATS_PREFILL_US, seed),
            ("--chats", str(CHATS), "--seed", str(seed), "--speedup", "1"))


def agents(seed):
    """Other sessions of coding agents for each seed, with the demo's fleet."""
    return (replace(AGENTS_ENGINES, seed=seed, model=False),
            (*AGENTS, "--agents", str(SESSIONS), "--seed", str(seed)))


def in_words(workload):
    """The same workload, as chats in words, to engines with the demo's model,
    which name blocks alike: Dynamo needs that, as vLLM's PYTHONHASHSEED."""
    def words(seed):
        engines, options = workload(seed)
        return (replace(engines, model=True, alike=True),
                (*options, "--text"))
    return words


IDS = {
    "trace": trace,
    "chats40": lambda seed: chats(0.40, seed),
    "chats75": lambda seed: chats(0.75, seed),
    "agents": agents,
}
WORKLOADS = IDS | {f"{name}-text": in_words(workload)
                   for name, workload in IDS.items()}


# ----------------------------------------------------- one workload and seed

def busiest_share(tokens):
    """The part of all prompt tokens that one engine had, the largest."""
    return max(tokens.values()) / max(1, sum(tokens.values()))


def run_cell(options):
    """All policies on one workload and seed; prints a line of JSON a run."""
    name, seed = options.cell[0], int(options.cell[1])
    engines, workload = WORKLOADS[name](seed)

    def work(fleet):
        for policy in map(policy_of, options.policies):
            if fleet.policy:
                fleet.reload(policy)
            else:
                fleet.start(policy)
            for _ in range(TRIES):
                summary = fleet.replay(workload, progress=False)
                if summary["errors"]:
                    raise DemoError(f"{policy.title}: {summary['errors']} "
                                    f"requests failed: "
                                    f"{summary['error_kinds']}")
                void = summary["late"] > LATE_SHARE
                print(json.dumps({
                    "workload": name, "seed": seed, "policy": policy.title,
                    "hit_rate": summary["hit_rate"], "ttft": summary["ttft"],
                    "busiest": busiest_share(summary["tokens"]),
                    "cpu": summary["cpu"], "late": summary["late"],
                    "void": void}), flush=True)
                if not void:
                    break
        return 0

    return session(options, engines, work)


# -------------------------------------------------------------- all of them

class Comparison:
    """The cells that wait and run, and the runs that they have told of."""

    def __init__(self, options, directory):
        self.options = options
        self.directory = directory
        self.waiting = [(name, seed) for seed in range(1, options.seeds + 1)
                        for name in options.workloads]
        self.running = {}               # cell -> its process
        self.told = Counter()           # cell -> runs read from its log
        self.runs = []

    def run(self):
        """Runs all cells; DemoError when one fails."""
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < self.options.jobs:
                    self._start(self.waiting.pop(0))
                for cell, process in list(self.running.items()):
                    status = process.status()
                    self._read(cell, process)
                    if status is not None:
                        del self.running[cell]
                    if status:
                        raise DemoError(f"{process.name}: {process.tail()}")
                time.sleep(1)
        finally:
            for process in self.running.values():
                process.stop()

    def _start(self, cell):
        name, seed = cell
        self.running[cell] = Process(f"{name}-{seed}", [
            sys.executable, "-B", str(Path(__file__).resolve()),
            "--module", str(self.options.module.resolve()),
            "--relay", str(self.options.relay.resolve()),
            "--rivals", str(self.options.rivals.resolve()),
            *(f"--policy={text}" for text in self.options.policies),
            "--cell", name, str(seed)], self.directory)

    def _read(self, cell, process):
        lines = [line for line in process.log.read_text(
            errors="replace").splitlines(keepends=True)
            if line.startswith("{") and line.endswith("\n")]
        for line in lines[self.told[cell]:]:
            run = json.loads(line)
            self.told[cell] += 1
            self.runs.append(run)
            print(f"{run['workload']}, seed {run['seed']}, {run['policy']}: "
                  f"hit rate {run['hit_rate']:.1%}, TTFT mean "
                  f"{milliseconds(run['ttft']['mean'])}, late "
                  f"{run['late']:.2%}{', void' * run['void']}, load "
                  f"{os.getloadavg()[0]:.1f}", flush=True)


def rows_of(runs, workloads, titles, seeds):
    """The table's rows, and whether every run was valid at last.

    A row has the means of the valid runs' figures; beside them the hit rate
    and the mean TTFT of each seed, `-` for one that stayed void.
    """
    rows, complete = [], True
    for name in workloads:
        for title in titles:
            valid = {run["seed"]: run for run in runs if not run["void"]
                     and (run["workload"], run["policy"]) == (name, title)}
            complete = complete and len(valid) == seeds
            found = [valid.get(seed) for seed in range(1, seeds + 1)]
            rows.append((
                name, title,
                percent(mean(run["hit_rate"] for run in valid.values())),
                *(milliseconds(mean(run["ttft"][figure]
                                    for run in valid.values()))
                  for figure in ("mean", *PERCENTILES)),
                percent(mean(run["busiest"] for run in valid.values())),
                seconds(mean(run["cpu"] for run in valid.values())),
                ", ".join(percent(run and run["hit_rate"]) for run in found),
                ", ".join(milliseconds(run and run["ttft"]["mean"])
                          for run in found)))
    return rows, complete


def mean(values):
    """The mean; None of nothing."""
    values = list(values)
    return sum(values) / len(values) if values else None


def seconds(value):
    """Seconds as text, `-` for none."""
    return "-" if value is None else f"{value:.1f} s"


def percent(share):
    """A share as text, `-` for none."""
    return "-" if share is None else f"{share:.1%}"


def compare(options):
    """Runs everything and prints the table; the program's status."""
    signal.signal(signal.SIGTERM, terminate)
    directory = Path(tempfile.mkdtemp(prefix="kv-router-compare-"))
    comparison = Comparison(options, directory)
    try:
        comparison.run()
    except DemoError as err:
        print(f"compare: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ncompare: stopped", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    rows, complete = rows_of(
        comparison.runs, options.workloads,
        [policy_of(text).title for text in options.policies], options.seeds)
    print_table(("workload", "policy", "hit rate", "TTFT mean", *PERCENTILES,
                 "busiest", "CPU", "hit rate by seed", "TTFT mean by seed"), rows)
    if not complete:
        print(f"Some runs were void {TRIES} times: this machine is too busy.")
    return 0 if complete else 1


# --------------------------------------------------------------------- main

def policy_of(text):
    """NAME or NAME={ Lua table }"""
    name, _, conf = text.partition("=")
    return Policy(name, conf)


def parse_options(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Compare policies and settings on a recorded trace and "
                    "on chats.")
    add_options(parser)
    add = parser.add_argument
    add("--policy", dest="policies", action="append", metavar="NAME[=CONF]",
        help="a policy, with policy_conf as a Lua table, or another router ("
             + ", ".join(NAMES) + f"), or {ESTIMATED}: kv_cost without "
             "events; repeatable; default: "
             + ", ".join(POLICIES))
    add("--workload", dest="workloads", action="append", choices=WORKLOADS,
        help="repeatable; default: " + ", ".join(IDS))
    add("--seeds", type=int, default=3, help="how many; default: 3")
    add("--jobs", type=int, default=2,
        help="fleets that run at once; one takes some 15 %% of a processor; "
             "default: 2")
    add("--cell", nargs=2, metavar=("WORKLOAD", "SEED"),
        help="only this, as lines of JSON")
    options = parser.parse_args(argv)
    options.policies = options.policies or list(POLICIES)
    options.workloads = options.workloads or list(IDS)
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs must be positive")
    return options


def main():
    """The program."""
    options = parse_options()
    return run_cell(options) if options.cell else compare(options)


if __name__ == "__main__":
    sys.exit(main())
