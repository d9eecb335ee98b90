#!/usr/bin/python3
"""The demo: one trace, three policies, four engine stand-ins, a real nginx.

Replays the same part of the Mooncake trace with round_robin, with kv_cost and
Dynamo's weights, and with kv_cost as it comes, and prints what the clients
saw.  The status is 0 when no request failed and kv_cost was better than
round_robin in hit rate and time to first token.
"""

import argparse
import contextlib
import json
import signal
import sys

from fleet import (BLOCK_SIZE, PROBE, Engines, Policy, add_options,
                   milliseconds, print_table, session)

# The fleet and the load are chosen together: with round_robin the engines
# prefill about 55 % of the time, and a cache holds some 110 of the prompts.
ENGINES = Engines(blocks=24_000, prefill_us=35, model=True)
TRACE = ("--text", "--speedup", "6.5", "--scale", "4")
REQUESTS = 800
KEEP_REQUESTS = 200             # with --keep only a taste

BASE = Policy("round_robin")
BEST = Policy("kv_cost")
POLICIES = (BASE, Policy("kv_cost", "{ dynamo = true }"), BEST)
PERCENTILES = ("p50", "p90", "p99")


# ------------------------------------------------------------------ reports

def print_summaries(summaries):
    """One line per policy."""
    rows = []
    for policy, summary in summaries.items():
        total = sum(summary["workers"].values()) or 1
        rows.append((
            policy.title, str(summary["requests"]), str(summary["errors"]),
            f"{summary['hit_rate']:.1%}",
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
    model = fleet.status("unknown")["model"]
    print(f"Another zone's model is {model['state']}: {model['why']}; such "
          f"chats go the other ways.\n")


def verdict(summaries):
    """What is to be said at the end, and whether kv_cost has won."""
    failed = sum(summary["errors"] for summary in summaries.values())
    if failed:
        return f"{failed} requests failed.", False
    base, best = summaries[BASE], summaries[BEST]
    won = best["hit_rate"] > base["hit_rate"] and all(
        best["ttft"][p] < base["ttft"][p] for p in ("p50", "p90"))
    hits = f"{best['hit_rate'] / base['hit_rate']:.2f} times" \
        if base["hit_rate"] else "more than none of"
    ratios = ", ".join(
        f"{best['ttft'][p] / base['ttft'][p]:.2f} times at {p}"
        for p in PERCENTILES)
    text = (f"Same requests, same engines: with kv_cost the caches gave "
            f"{hits} the tokens that they gave with round_robin, and time to "
            f"first token was {ratios}.")
    if not won:
        text += " kv_cost did not win in hit rate, TTFT p50 and p90."
    return text, won


def print_hints(fleet):
    """What to try while everything is up."""
    prompt = json.dumps(PROBE, separators=(",", ":"))
    data = "-H 'Content-Type: application/json' -d"
    print(f"""Everything is up, logs are in {fleet.directory}. To try:

  # a completion of a prompt of token ids; again, and it is cached
  curl -si {fleet.url}/v1/completions {data} '{{"prompt":{prompt},"max_tokens":8}}'

  # a chat
  curl -s {fleet.url}/v1/chat/completions {data} '{{"messages":[{{"role":"user","content":"Hello"}}],"max_tokens":8}}'

  # who has how many blocks of a prompt
  curl -s {fleet.url}/kv/query {data} '{{"tokens":{prompt}}}'

  # the workers, and the metrics
  curl -s {fleet.url}/kv/workers
  curl -s '{fleet.url}/status?format=prometheus'

  # how each request was routed
  tail -f {fleet.directory}/access.log

Ctrl-C stops everything.""", flush=True)


# --------------------------------------------------------------------- main

def compare(fleet):
    """All runs and their report; returns the program's status."""
    summaries = {}
    for policy in POLICIES:
        if summaries:
            fleet.reload(policy)
        else:
            fleet.start(policy)
        summaries[policy] = fleet.replay((*TRACE, "--requests", str(REQUESTS)))
    print_summaries(summaries)
    print_rungs(summaries, fleet)
    text, won = verdict(summaries)
    print(text)
    return 0 if won else 1


def keep(fleet):
    """A short run, then everything stays up until a signal."""
    fleet.start(BEST)
    summary = fleet.replay((*TRACE, "--requests", str(KEEP_REQUESTS)))
    print_summaries({BEST: summary})
    print_rungs({BEST: summary}, fleet)
    print_hints(fleet)
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()
    return 1 if summary["errors"] else 0


def parse_options():
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Compare round_robin and kv_cost on a recorded trace.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add_options(parser)
    parser.add_argument("--keep", action="store_true",
                        help="replay a little with kv_cost, then leave "
                             "everything up until Ctrl-C")
    return parser.parse_args()


def main():
    """The program."""
    options = parse_options()
    return session(options, ENGINES, keep if options.keep else compare)


if __name__ == "__main__":
    sys.exit(main())
