#!/usr/bin/python3
"""Repeats cells of bench/matrix.py live: real nginx, Redis, relays and sockets.

The fleet is the demo's, with as many engines as the cell has; kv-simulate's
draws of the cell are sent to it, by the policies in turns.  The engines have
the cell's caches and times of a step.  Two things differ: events come at once,
whatever the cell's delay is, and there is one router, so that cells with four
are not repeated.

All times are multiplied by --slow, and what is measured is divided by it: on a
small machine the stand-ins can't keep the pace of engines otherwise.  A run in
which the replay or an engine missed too many deadlines is void, and is done
again.  The status is 1 when a run failed, or was void each time.

Without --cell: the cells with the default's largest wins and losses against
the best of the other projects' formulas, among those with results that can be
repeated.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

DEMO = Path(__file__).resolve().parent
sys.path.append(str(DEMO.parent / "bench"))

# pylint: disable=wrong-import-position
import matrix                                                   # noqa: E402
from compare import LATE_SHARE, TRIES, policy_of                # noqa: E402
from fleet import (Engines, add_options,                        # noqa: E402
                   print_table, session)
from processes import DemoError                                 # noqa: E402

ENGINES = 8                     # of the cells that are repeated
OURS = (matrix.DEFAULT, "agent")
MICRO, NANO = 1e6, 1e9


def repeatable(cell):
    """Whether one router and this machine's engines are enough for a cell."""
    return cell["workers"] == ENGINES and cell["routers"] == 1


def p90s(result):
    """The TTFT p90 of each policy of a result, seed by seed, in seconds."""
    return {run["policy"].replace(" {", "={"):
            [seed["ttft_p90"] for seed in run["seeds"]]
            for run in result["runs"]}


def ratio(ours, others):
    """The geometric mean of the ratios of two lists."""
    return math.exp(sum(math.log(our / other) for our, other
                        in zip(ours, others)) / len(ours))


def against_best(result):
    """The best formula of another project, and the default's ratio to it."""
    found = p90s(result)
    ours = found[matrix.DEFAULT]
    return max((ratio(ours, values), policy)
               for policy, values in found.items() if policy not in OURS)


def results_of(folder):
    """The matrix's results of what can be repeated: {name: (cell, result)}."""
    found = {}
    for cell in filter(repeatable, matrix.cells(False)):
        file = folder / f"{matrix.name_of(cell)}.json"
        if file.exists():
            found[matrix.name_of(cell)] = (cell, json.loads(file.read_text()))
    return found


def chosen(results, count):
    """Names of the cells with the largest wins and losses, `count` each."""
    order = sorted(results, key=lambda name: against_best(results[name][1]))
    return order[:count] + order[-count:]


def conversations_of(cell, seed, path):
    """Has kv-simulate draw a cell's conversations; what it says of them."""
    command = [str(DEMO.parent / "util/kv-simulate"), "--first-seed",
               str(seed), "--conversations", str(path)]
    for key, value in cell.items():
        command += [f"--{key}", str(value)]
    subprocess.run(command, check=True)
    return json.loads(path.read_text())


def engines_of(drawn, seed, slow):
    """Engines like those of the cell, so many times slower."""
    times = {name: value * slow for name, value in drawn["times"].items()}
    return Engines(
        drawn["blocks"], round(times["prefill"] * MICRO), seed,
        names=tuple(f"w{n}" for n in range(1, drawn["workers"] + 1)),
        options=(
            "--max-num-seqs", str(drawn["max_requests"]),
            "--max-num-batched-tokens", str(drawn["max_tokens"]),
            "--decode-us-per-token", str(times["base"] * MICRO),
            "--prefill-ns-per-context", str(times["prefill_context"] * NANO),
            "--decode-us-per-request", str(times["decode"] * MICRO),
            "--decode-ns-per-context", str(times["decode_context"] * NANO)))


def run_live(options, cell, seed, policies):
    """All policies on one cell and seed: {policy: summary}, with errors and
    what is void told."""
    summaries = {}
    with tempfile.TemporaryDirectory(prefix="kv-router-cell-") as folder:
        file = Path(folder) / "conversations.json"
        drawn = conversations_of(cell, seed, file)
        workload = ("--simulated", str(file), "--speedup",
                    str(1 / options.slow), "--max-in-flight", "100000")

        def work(fleet):
            for policy in map(policy_of, policies):
                if fleet.policy:
                    fleet.reload(policy)
                else:
                    fleet.start(policy)
                for _ in range(TRIES):
                    summary = fleet.replay(workload)
                    if summary["errors"]:
                        raise DemoError(
                            f"{policy.title}: {summary['errors']} requests "
                            f"failed: {summary['error_kinds']}")
                    void = summary["late"] > LATE_SHARE
                    print(f"{matrix.name_of(cell)}, seed {seed}, "
                          f"{policy.title}: TTFT p90 "
                          f"{1000 * summary['ttft']['p90'] / options.slow:.0f}"
                          f" ms, hit rate {summary['hit_rate']:.1%}, late "
                          f"{summary['late']:.2%}{', void' * void}",
                          flush=True)
                    if not void:
                        summaries[policy.title.replace(" {", "={")] = summary
                        break
            return 0

        if session(options, engines_of(drawn, seed, options.slow), work):
            raise DemoError("a run has failed")
    return summaries


def rows_of(name, result, live, seeds, slow):
    """A row a policy: simulated and live, of the same seeds."""
    rows = []
    simulated = p90s(result)
    first = result["parameters"]["first-seed"]
    took = {}
    for policy in live[seeds[0]]:
        # a run that stayed void has no figures
        mine = [seed for seed in seeds if policy in live[seed]
                and matrix.DEFAULT in live[seed]]
        took[policy] = {seed: live[seed][policy]["ttft"]["p90"] / slow
                        for seed in mine}
        hits = [live[seed][policy]["hit_rate"] for seed in mine]
        had = matrix.of_policy(policy, "had")(result)
        default = took[matrix.DEFAULT]
        rows.append((
            name, f"`{policy}`", str(len(mine)),
            *(f"{1000 * sum(values) / len(values):.0f} ms" if values else "-"
              for values in ([simulated[policy][seed - first]
                              for seed in mine],
                             list(took[policy].values()))),
            *(f"{100 * sum(values) / len(values):.1f} %" if values else "-"
              for values in ([had[seed - first] for seed in mine], hits)),
            *("{:.2f}".format(ratio(ours, others)) if ours else "-"
              for ours, others in (
                  ([simulated[matrix.DEFAULT][seed - first] for seed in mine],
                   [simulated[policy][seed - first] for seed in mine]),
                  ([default[seed] for seed in mine],
                   [took[policy][seed] for seed in mine])))))
    return rows


def parse_options(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    add = parser.add_argument
    add("--results", type=Path, metavar="DIR",
        default=DEMO.parent / "build/matrix/report-1-10",
        help="the matrix's results; default: build/matrix/report-1-10")
    add("--cell", dest="cells", action="append", metavar="NAME",
        help="a cell, as the matrix names it; repeatable")
    add("--count", type=int, default=3,
        help="how many wins, and how many losses; default: 3")
    add("--policy", dest="policies", action="append", metavar="NAME[=CONF]",
        help="a policy beside the default; repeatable; default: the best "
             "formula of another project in the cell")
    add("--seeds", type=int, default=2, help="how many; default: 2")
    add("--slow", type=float, default=2.0,
        help="multiplies all times; default: 2")
    add("--list", action="store_true", help="only name the cells")
    options = parser.parse_args(argv)
    if options.seeds < 1 or options.slow <= 0 or options.count < 1:
        parser.error("--seeds, --slow and --count must be positive")
    return options


def main():
    """The program."""
    options = parse_options()
    results = results_of(options.results)
    for name in options.cells or ():
        if name not in results:
            sys.exit(f"repeat: {options.results} has no results of a cell "
                     f"{name} that has {ENGINES} engines and one router; "
                     f"there are: {', '.join(results) or 'none'}")
    if not results:
        sys.exit(f"repeat: there are no results in {options.results}: run "
                 f"`make matrix` first")
    names = options.cells or chosen(results, options.count)
    for name in names:
        print("{1}: {0:.2f} of {2}".format(
            against_best(results[name][1])[0], name,
            against_best(results[name][1])[1]))
    if options.list:
        return 0
    rows, complete = [], True
    for name in names:
        cell, result = results[name]
        first = result["parameters"]["first-seed"]
        seeds = range(first, first + options.seeds)
        policies = [matrix.DEFAULT, *(options.policies or
                                      [against_best(result)[1]])]
        try:
            live = {seed: run_live(options, cell, seed, policies)
                    for seed in seeds}
        except DemoError as err:
            print(f"repeat: {err}", file=sys.stderr)
            return 1
        complete = complete and all(len(runs) == len(policies)
                                    for runs in live.values())
        rows += rows_of(name, result, live, seeds, options.slow)
    print_table(("cell", "policy", "seeds", "TTFT p90 simulated", "live",
                 "hit rate simulated", "live", "default / policy, simulated",
                 "live"), rows)
    if not complete:
        print(f"Some runs were void {TRIES} times: this machine is too busy.")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
