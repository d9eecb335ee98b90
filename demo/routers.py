#!/usr/bin/python3
"""Several nginx before one fleet, live: what they have from sharing their load.

The fleet is the demo's, with eight engines; kv-simulate's draws of a cell of
bench/matrix.py are sent to it, as demo/repeat.py does.  Each request goes to
one of the nginx, at random.  The columns come in turns, by reloads:

    apart         kv_router_sync off
    home 0        the load is shared, and no worker has a home
    shared        the default
    one           one nginx gets all requests; the others are apart

The table has TTFT p90 by cell, the mean over the seeds, and each column by that
of one nginx.  All times are multiplied by --slow, and what is measured is divided
by it.  A run in which too many deadlines were missed is void, and is done again.
The status is 1 when a run failed, or was void each time.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import repeat
from compare import LATE_SHARE, TRIES
from fleet import Policy, add_options, print_table, session
from processes import DemoError

CELLS = tuple(f"{workload}-8w-load0.5-cache200-delay5-routers4"
              for workload in ("burst", "rag", "chat"))

# By name: the policy of all nginx, and whether all of them get requests.
COLUMNS = {
    "apart": (Policy("kv_cost", sync=False), True),
    "home 0": (Policy("kv_cost", "{ home = 0 }"), True),
    "shared": (Policy("kv_cost"), True),
    "one": (Policy("kv_cost", sync=False), False),
}


def run(options, cell, seed):
    """TTFT p90 in milliseconds by column; void ones are left out."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="kv-router-cell-") as folder:
        file = Path(folder) / "conversations.json"
        drawn = repeat.conversations_of(cell, seed, file)
        workload = ("--simulated", str(file), "--seed", str(seed), "--speedup",
                    str(1 / options.slow), "--max-in-flight", "100000")

        def work(fleet):
            for name, (policy, every) in COLUMNS.items():
                if fleet.policy:
                    fleet.reload(policy)
                else:
                    fleet.start(policy)
                for _ in range(TRIES):
                    summary = fleet.replay(
                        workload, routers=options.routers if every else 1)
                    if summary["errors"]:
                        raise DemoError(f"{name}: {summary['errors']} requests"
                                        f" failed: {summary['error_kinds']}")
                    p90 = 1000 * summary["ttft"]["p90"] / options.slow
                    void = summary["late"] > LATE_SHARE
                    print(f"{repeat.matrix.name_of(cell)}, seed {seed}, "
                          f"{name}: TTFT p90 {p90:.0f} ms, hit rate "
                          f"{summary['hit_rate']:.1%}, late "
                          f"{summary['late']:.2%}{', void' * void}",
                          flush=True)
                    if not void:
                        found[name] = p90
                        break
            return 0

        if session(options, repeat.engines_of(drawn, seed, options.slow),
                   work, routers=options.routers):
            raise DemoError("a run has failed")
    return found


def shown(column, name):
    """The mean of a column, and by that of one nginx."""
    if not column.get(name):
        return "-"
    mean = sum(column[name]) / len(column[name])
    text = f"{mean:.0f} ms"
    if name != "one" and len(column.get("one", ())) == len(column[name]):
        text += f", {repeat.ratio(column[name], column['one']):.2f}"
    return text


def main():
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    add = parser.add_argument
    add("--routers", type=int, default=4, help="how many nginx; default: 4")
    add("--cell", dest="cells", action="append", metavar="NAME",
        help=f"a cell of the matrix; repeatable; default: {', '.join(CELLS)}")
    add("--first-seed", type=int, default=1, help="default: 1")
    add("--seeds", type=int, default=3, help="how many; default: 3")
    add("--slow", type=float, default=2.0,
        help="multiplies all times; default: 2")
    options = parser.parse_args()
    cells = {repeat.matrix.name_of(cell): cell
             for cell in repeat.matrix.cells(False)
             if cell["workers"] == repeat.ENGINES}
    if options.routers < 2 or options.seeds < 1 or options.slow <= 0:
        parser.error("--routers must be 2 or more; --seeds and --slow must be "
                     "positive")
    for name in options.cells or ():
        if name not in cells:
            parser.error(f"there is no cell {name} with {repeat.ENGINES} "
                         f"engines; there are: {', '.join(cells)}")
    rows, complete = [], True
    for name in options.cells or CELLS:
        columns = {}
        for seed in range(options.first_seed,
                          options.first_seed + options.seeds):
            try:
                found = run(options, cells[name], seed)
            except DemoError as err:
                print(f"routers: {err}", file=sys.stderr)
                return 1
            complete = complete and len(found) == len(COLUMNS)
            for column, p90 in found.items():
                columns.setdefault(column, []).append(p90)
        rows.append((name, *(shown(columns, column) for column in COLUMNS)))
    print_table(("cell", *COLUMNS), rows)
    if not complete:
        print(f"Some runs were void {TRIES} times: this machine is too busy.")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
