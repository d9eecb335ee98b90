#!/usr/bin/python3
"""Who goes first, live: one greedy tenant and nine small ones.

The fleet is the demo's: real nginx with four processes, Redis, relays, and
four stand-ins of engines with bounds.  kv-simulate draws the chats (--tenants
noisy): nine tenants ask together for a tenth of what the fleet serves, a
greedy one for five times as much.  The columns come in turns, each with an
nginx that knows nothing yet:

    alone         the nine without the greedy one
    first come    one tenant for all, and no locality
    fair          the tenant is a header
    strict        so is the class: the nine's has the weight 1000, the other 1

A run ends after --seconds, whoever is not answered; the first quarter does not
count, and who still waits has waited until the end.  429 is no error: it is
counted, and whoever gets one does not come back.  All times are multiplied by
--slow, and what is measured is divided by it.  With --routers 2 each request
goes to one of two nginx that share their load, at random.  A run in which too
many deadlines were missed is void, and is done again.

The status is 1 when a run failed or was void each time, or when the fair order
does not keep its bounds: the nine's TTFT p90 at most 1.2 times that of strict,
all tokens/s at least 0.98 of those of first come, the hit rate at most 2
points lower.
"""

import argparse
import contextlib
import resource
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import repeat
from compare import TRIES
from fleet import Policy, add_options, print_table, session
from processes import DemoError
from replay import percentile

ENGINES = 4
LOAD = 1.6                      # what the fleet serves at these bounds, in
                                # kv-simulate's measure
MAX_ACTIVE, MAX_PREFILL_TOKENS = 16, 8192
QUEUE, WAIT = 10000, 600        # nobody is refused
WARM = 0.25                     # of the time, which does not count
LATE_SHARE = 0.10               # of missed deadlines: more, and a run is void
SMALL, GREEDY = "small", "greedy"

SLOWER, THROUGHPUT, POINTS = 1.2, 0.98, 0.02


TENANT, CLASS = 'tenant = "$http_x_tenant"', 'class = "$http_x_class"'

# By name: fields of kv.new(), the weights of classes, and the quantum.
COLUMNS = {
    "alone": ((TENANT,), {"default": 1}, 16384),
    "first come": ((), {"default": 1}, 0),
    "fair": ((TENANT,), {"default": 1}, 16384),
    "strict": ((TENANT, CLASS), {SMALL: 1000, GREEDY: 1}, 16384),
}


def policy_of(column, wait):
    """The policy of a column, whose requests wait for so many seconds."""
    fields, weights, quantum = COLUMNS[column]
    classes = ", ".join(f"{name} = {{ weight = {weight}, wait = {wait} }}"
                        for name, weight in weights.items())
    return Policy("kv_cost", quantum=quantum, order=", ".join(
        (*fields, f"classes = {{ {classes} }}")))


def figures(summary, seconds, slow):
    """What a run measured, of each group of tenants and of "all"; as if
    nothing had been slower."""
    warm = WARM * seconds
    asked = summary["results"] + summary["unanswered"]
    found = {}
    for group in ("all", *sorted({one["group"] for one in asked})):
        mine = [one for one in asked if group in ("all", one["group"])]
        counted = [one for one in mine if one["at"] >= warm
                   and "error" not in one]
        ended = [one for one in mine if "seconds" in one
                 and one["at"] + one["seconds"] >= warm]
        found[group] = {
            "requests": len(counted),
            "refused": sum("error" in one for one in mine),
            "wait": percentile([
                float(one.get("wait") or seconds - one["at"])
                for one in counted], 90) / slow if counted else None,
            "ttft": percentile([one.get("ttft", seconds - one["at"])
                                for one in counted], 90) / slow
            if counted else None,
            "tokens": slow / (seconds - warm) * sum(
                tokens for name, second, tokens in summary["streamed"]
                if group in ("all", name) and warm <= second < seconds),
            "had": sum(one["cached_tokens"] for one in ended) / max(
                1, sum(one["prompt_tokens"] for one in ended))}
    return found


def run(options, fleet, file, column):
    """The figures of a column; None if it was void each time."""
    policy = policy_of(column, options.wait)
    if fleet.policy:
        fleet.restart(policy)
    else:
        fleet.start(policy)
    seconds = options.seconds * options.slow
    workload = ("--simulated", str(file), "--seed", str(options.seed),
                "--speedup", str(1 / options.slow), "--seconds", str(seconds),
                "--max-in-flight", "100000",
                *(("--group", SMALL) if column == "alone" else ()))
    for tries in range(TRIES):
        if tries:
            fleet.restart(policy)
        summary = fleet.replay(workload, routers=options.routers, label=column)
        strange = {kind: n for kind, n in summary["error_kinds"].items()
                   if "status 429" not in kind}
        if strange:
            raise DemoError(f"{column}: requests have failed: {strange}")
        found = figures(summary, seconds, options.slow)
        void = summary["late"] > options.late
        print(f"{column}: TTFT p90 of the nine "
              f"{time(found[SMALL]['ttft'])}, late "
              f"{summary['late']:.2%}{', void' * void}", *(
                  f"{n} x {kind}" for kind, n
                  in summary["error_kinds"].items()), sep="; ", flush=True)
        if not void:
            return found
    return None


def time(seconds):
    """Seconds as text, `-` for none."""
    return "-" if seconds is None else (
        f"{seconds:.1f} s" if seconds >= 10 else f"{1000 * seconds:.0f} ms")


def row(column, found):
    """The row of a column."""
    small, everyone = found[SMALL], found["all"]
    return (column, str(small["requests"]), time(small["wait"]),
            time(small["ttft"]), f"{small['tokens']:.0f}",
            f"{small['had']:.1%}", str(small["refused"]),
            f"{everyone['tokens']:.0f}", f"{everyone['had']:.1%}",
            str(everyone["refused"]))


def judge(found):
    """Prints each bound; whether all are kept."""
    fair, first, strict = (found[name] for name in ("fair", "first come",
                                                    "strict"))
    points = fair["all"]["had"] - first["all"]["had"]
    kept = True
    for what, value, held in (
            ("TTFT p90 of the nine by strict",
             fair[SMALL]["ttft"] / strict[SMALL]["ttft"],
             lambda value: value <= SLOWER),
            ("tokens/s by first come",
             fair["all"]["tokens"] / first["all"]["tokens"],
             lambda value: value >= THROUGHPUT),
            ("hit rate less first come, points", 100 * points,
             lambda value: value >= -100 * POINTS)):
        kept = kept and held(value)
        print(f"{what}: {value:.2f}{'' if held(value) else '  NOT KEPT'}")
    return kept


def engines_of(drawn, options):
    """Engines as drawn, with bounds, before nginx with queues."""
    return replace(
        repeat.engines_of(drawn, options.seed, options.slow),
        queue=options.queue, processes=4,
        bounds=f"max_active={options.max_active} "
               f"max_prefill_tokens={options.max_prefill_tokens}")


def parse_options(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    add = parser.add_argument
    add("--routers", type=int, default=1, help="how many nginx; default: 1")
    add("--column", dest="columns", action="append", choices=COLUMNS,
        help="repeatable; default: all")
    add("--seed", type=int, default=11, help="default: 11")
    add("--seconds", type=float, default=30,
        help="of a run, before --slow; default: 30")
    add("--slow", type=float, default=1.5,
        help="multiplies all times; default: 1.5")
    add("--load", type=float, default=LOAD,
        help=f"what the fleet serves, as kv-simulate measures it; default: "
             f"{LOAD}")
    add("--max-active", type=int, default=MAX_ACTIVE,
        help=f"of an engine; default: {MAX_ACTIVE}")
    add("--max-prefill-tokens", type=int, default=MAX_PREFILL_TOKENS,
        help=f"of an engine; default: {MAX_PREFILL_TOKENS}")
    add("--queue", type=int, default=QUEUE,
        help=f"requests that may wait; default: {QUEUE}")
    add("--wait", type=float, default=WAIT,
        help=f"seconds that one may wait; default: {WAIT}")
    add("--late", type=float, default=LATE_SHARE,
        help=f"of deadlines that may be missed; default: {LATE_SHARE}")
    options = parser.parse_args(argv)
    if min(options.routers, options.seconds, options.slow, options.load,
           options.max_active, options.max_prefill_tokens, options.queue,
           options.wait) <= 0:
        parser.error("all numbers must be positive")
    return options


def main():
    """The program."""
    options = parse_options()
    # some thousand requests wait, each on a connection of its own
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found = {}
    with tempfile.TemporaryDirectory(prefix="kv-router-fair-") as folder:
        file = Path(folder) / "conversations.json"
        drawn = repeat.conversations_of({
            "workload": "chat", "tenants": "noisy", "workers": ENGINES,
            "seconds": options.seconds, "load": options.load},
            options.seed, file)

        def work(fleet):
            for column in options.columns or COLUMNS:
                found[column] = run(options, fleet, file, column)
            return 0

        if session(options, engines_of(drawn, options), work,
                   routers=options.routers):
            return 1
    print_table(("order", "requests of the nine", "wait p90", "TTFT p90",
                 "tokens/s", "hit rate", "429", "tokens/s of all",
                 "hit rate of all", "429 of all"),
                [row(*item) for item in found.items() if item[1]])
    if not all(found.values()):
        print(f"Some runs were void {TRIES} times: this machine is too busy.")
        return 1
    return 0 if len(found) < len(COLUMNS) or judge(found) else 1


if __name__ == "__main__":
    sys.exit(main())
