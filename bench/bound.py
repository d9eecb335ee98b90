#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""How far the default policy is from what no choice of workers can do better.

    bound.py [--results DIR] [--print] [--look-ahead]

Runs util/kv-simulate --bound for the cells of "matrix.py --quick", with the
same three seeds, and prints the default's time to first token (TTFT) beside
its bounds.  The regret, p90 divided by that of the best policy, is taken from
what "matrix.py --quick" has left in the same DIR.

--look-ahead: those with eight engines, but with four, 120 requests and one
seed, also by a router that knows the next 16 requests: each of them is tried at
each engine, in a copy of the process.  Not agents, of which 16 take minutes.
--print: nothing is run, the results that are there are printed.
"""

import argparse
import json
import math
import pathlib
import sys

sys.dont_write_bytecode = True

import matrix                                               # noqa: E402

SEEDS = (101, 3)
SMALL = {"workers": 4, "requests": 120}
LOOK_AHEAD = "look_ahead"


def ms(seconds):
    """Seconds as milliseconds."""
    return f"{1000 * seconds:.0f} ms" if seconds > 0.1 \
        else f"{1000 * seconds:.1f} ms"


def regret_of(folder, cell):
    """The default's regret in a cell of the matrix, or a dash."""
    path = folder / "report-101-3" / f"{matrix.name_of(cell)}.json"

    if not path.exists():
        return "-"

    logs = matrix.regrets(json.loads(path.read_text()))[matrix.DEFAULT]

    return f"{math.exp(sum(logs) / len(logs)):.2f}"


def print_bounds(found, folder, policies):
    """A row a cell: each policy's TTFT, by its bound."""
    matrix.row("cell", *(f"{head} {name}" for name in ("mean", "p90")
                         for head in ("bound of the", *(
                             f"`{policy}`," for policy in policies))),
               "regret")
    matrix.row(*["---"] * (4 + 2 * len(policies)))

    for cell, result in found:
        cells = []

        for name in ("mean", "p90"):
            bound = matrix.mean_of(result, policies[0], f"bound_{name}")
            cells.append(ms(bound))

            for policy in policies:
                ttft = matrix.mean_of(result, policy, f"ttft_{name}")
                own = matrix.mean_of(result, policy, f"bound_{name}")
                cells.append(f"{ms(ttft)}, {ttft / own:.2f}")

        matrix.row(matrix.name_of(cell), *cells, regret_of(folder, cell))


def main():
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--results", type=pathlib.Path,
                        default=matrix.TOP / "build/matrix")
    parser.add_argument("--print", action="store_true", dest="only_print")
    parser.add_argument("--look-ahead", action="store_true")
    options = parser.parse_args()

    policies, seeds, design = [matrix.DEFAULT], SEEDS, matrix.cells(True)
    path = options.results / "bound"

    if options.look_ahead:
        policies.append(LOOK_AHEAD)
        seeds, path = (SEEDS[0], 1), options.results / "look-ahead"
        design = [{**cell, **SMALL} for cell in design
                  if cell["workers"] == 8 and cell["workload"] != "agents"]

    path.mkdir(parents=True, exist_ok=True)
    found = []

    for cell in design:
        file = path / f"{matrix.name_of(cell)}.json"

        if not file.exists() and not options.only_print:
            failed = matrix.run(cell, policies, seeds, file, ["--bound"])
            print(f"{file.stem}: {failed or 'done'}", file=sys.stderr)

        if file.exists():
            found.append((cell, json.loads(file.read_text())))

    print_bounds(found, options.results, policies)

    return 0 if len(found) == len(design) else 1


if __name__ == "__main__":
    sys.exit(main())
