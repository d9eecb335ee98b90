#!/usr/bin/python3
"""The demo: two workloads, four engine stand-ins, a real nginx.

Replays the same part of the Mooncake trace with round_robin, with kv_cost and
Dynamo's weights, and with kv_cost as it comes, then sessions of coding agents
with round_robin and kv_cost; and prints what the clients saw.  The status is 0
when each policy answered all requests and the hit rate of kv_cost was above
that of round_robin by at least half of the usual gap.  What is sent is always
the same; times depend on the machine, so they are printed and decide nothing.
"""

import argparse
import sys
import time
from dataclasses import dataclass

from fleet import (RETURN_SECONDS, WORKERS, Engines, Policy, add_options,
                   milliseconds, print_table, session)

BASE = Policy("round_robin")
BEST = Policy("kv_cost")
PERCENTILES = ("p50", "p90", "p99")
PORT = 8080                     # of --keep

# The fleet and the load are chosen together: with round_robin the engines
# prefill about 55 % of the time, and a cache holds some 110 of the prompts.
ENGINES = Engines(blocks=24_000, prefill_us=35, model=True, unknown=True)
TRACE = ("--text", "--speedup", "6.5", "--scale", "4")
REQUESTS = 800

# The four caches together hold some 85 % of the distinct tokens.
AGENTS_ENGINES = Engines(blocks=2_600, prefill_us=50, model=True)
AGENTS = ("--speedup", "24")
SESSIONS = 20
KEPT_SESSIONS = 12              # at once, with --keep


@dataclass(frozen=True)
class Workload:
    """What is replayed, to which engines, with which policies."""

    title: str
    engines: Engines
    options: tuple              # of replay.py
    policies: tuple
    gap: float                  # the usual one between the two hit rates


RECORDED = Workload(
    f"{REQUESTS} requests of a recorded trace; most of its prompts are new:",
    ENGINES, (*TRACE, "--requests", str(REQUESTS)),
    (BASE, Policy("kv_cost", "{ dynamo = true }"), BEST), 0.065)
CODING = Workload(
    f"{SESSIONS} sessions of coding agents, whose prompts repeat the turns "
    "before:",
    AGENTS_ENGINES, ("--text", *AGENTS, "--agents", str(SESSIONS)), (BASE, BEST),
    0.40)


# ------------------------------------------------------------------ reports

def print_summaries(summaries):
    """One line per policy."""
    rows = []
    for policy, summary in summaries.items():
        total = sum(summary["workers"].values()) or 1
        rows.append((
            policy.title, str(summary["requests"]), str(summary["errors"]),
            f"{summary['hit_rate']:.1%} of the possible "
            f"{summary['ceiling']:.1%}",
            *(milliseconds(summary["ttft"][p])
              for p in ("mean", *PERCENTILES)),
            f"{summary['late']:.1%}",
            "  ".join(f"{worker} {count / total:.0%}" for worker, count
                      in summary["workers"].items()) or "-"))
    print_table(("policy", "requests", "errors", "cache hit rate",
                 "TTFT mean", *PERCENTILES, "late", "share per worker"),
                rows)


def print_rungs(summaries, fleet):
    """Where the token ids of the chats came from, and a model that can't be
    taken."""
    print("Where the router had the token ids of the chats:")
    for policy, summary in summaries.items():
        print(f"  {policy.title}: " + ", ".join(
            f"{rung} {count}" for rung, count in summary["rungs"].items()
            if count))
    print("  (local: the zone's own model, once the engines' events have "
          "proven it;\n  remote: an engine was asked; load: by load, without "
          "token ids)")
    if fleet.kind.unknown:
        model = fleet.status("unknown")["local_model"]
        print(f"Another zone's model is {model['state']}: {model['why']}; "
              f"such chats go the other ways.")
    print()


def verdict(summaries, gap):
    """What is to be said at the end, and whether all is as it should be."""
    failed = sum(summary["errors"] for summary in summaries.values())
    if failed:
        return f"{failed} requests failed.", False
    sent = {summary["requests"] for summary in summaries.values()}
    if len(sent) != 1 or 0 in sent:
        return f"The policies answered {sorted(sent)} requests.", False
    base, best = summaries[BASE], summaries[BEST]
    won = best["hit_rate"] - base["hit_rate"] >= gap / 2
    hits = f"{best['hit_rate'] / base['hit_rate']:.2f} times" \
        if base["hit_rate"] else "more than none of"
    ratios = ", ".join(
        f"{best['ttft'][p] / base['ttft'][p]:.2f} times at {p}"
        for p in PERCENTILES)
    text = (f"Same requests, same engines: with kv_cost the caches gave "
            f"{hits} the tokens that they gave with round_robin, and time to "
            f"first token was {ratios}.")
    if not won:
        text += (f" The hit rate of kv_cost should be above that of "
                 f"round_robin by {gap / 2:.1%} at least, and usually is by "
                 f"{gap:.1%}.")
    return text, won


def print_hints(fleet):
    """What to try while everything is up: commands to paste."""
    data = "-H 'Content-Type: application/json' -d"
    here = fleet.directory
    chat = ('{"messages":[{"role":"user","content":"Hello"}],'
            '"max_tokens":8}')

    def switch(policy):
        return (f"cp {here}/{policy.name}.conf {here}/nginx.conf && "
                f"kill -HUP $(cat {here}/nginx.pid)")

    print(f"""{KEPT_SESSIONS} sessions of coding agents go on, routed by \
{BEST.name}. Logs are in {here}.

Open the status page:

  {fleet.url}/status

Switch the policy to {BASE.name}, watch the hit rate, and switch back:

  {switch(BASE)}
  {switch(BEST)}

Kill an engine; {RETURN_SECONDS:.0f} seconds later it is started again, with \
an empty cache:

  kill -9 $(cat {here}/{WORKERS[1]}.pid)

Send a chat of your own, and see how each request is routed:

  curl -si {fleet.url}/v1/chat/completions {data} '{chat}'
  tail -f {here}/access.log

Ctrl-C stops everything.
""", flush=True)


# --------------------------------------------------------------------- main

def replay(fleet, workload):
    """A workload with each of its policies: {policy: summary}."""
    summaries = {}
    print(f"\n{workload.title}", flush=True)
    for policy in workload.policies:
        if summaries:
            fleet.reload(policy)
        else:
            fleet.start(policy)
        summaries[policy] = fleet.replay(workload.options)
    print_summaries(summaries)
    print_rungs(summaries, fleet)
    return summaries


def compare(options):
    """All workloads and their reports; returns the program's status."""
    for workload in (RECORDED, CODING):
        def work(fleet, workload=workload):
            text, won = verdict(replay(fleet, workload), workload.gap)
            print(text, flush=True)
            return 0 if won else 1

        status = session(options, workload.engines, work)
        if status:
            return status
    return 0


def keep(fleet):
    """Both policies, then a load goes on until a signal comes."""
    summaries = replay(fleet, CODING)
    for policy in CODING.policies:
        (fleet.directory / f"{policy.name}.conf").write_text(
            fleet.conf(policy))
    fleet.start_load(("--text", *AGENTS, "--agents", str(KEPT_SESSIONS)))
    print_hints(fleet)
    try:
        while True:
            fleet.processes["nginx"].check_alive()
            fleet.processes["load"].check_alive()
            for name in fleet.revive():
                print(f"engine {name} has ended; it is started again",
                      flush=True)
            time.sleep(1)
    except KeyboardInterrupt:
        print("\nstopping", flush=True)
    return 1 if any(summary["errors"] for summary in summaries.values()) \
        else 0


def parse_options():
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Compare round_robin and kv_cost on a recorded trace, and "
                    "on sessions of coding agents.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add_options(parser)
    parser.add_argument("--keep", action="store_true",
                        help="compare on the sessions only, then leave a load "
                             "and everything up until Ctrl-C")
    parser.add_argument("--port", type=int, default=PORT,
                        help="of 127.0.0.1, where nginx listens with --keep")
    return parser.parse_args()


def main():
    """The program."""
    options = parse_options()
    if options.keep:
        return session(options, CODING.engines, keep, options.port)
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
