#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""What it is worth that routers share their load, by kv-simulate.

    routers.py [--results DIR] [--choose] [--print] [--seeds N] [TRIAL...]

Runs the cells of a trial with four routers, and prints their TTFT p90 in
milliseconds, the mean over the seeds, as Markdown.  A trial is a name of
TRIALS: cells, and columns of options.  Without names all trials are run but
"matrix": the cells of bench/matrix.py that have four routers.  Behind its table
are, for each workload, the geometric mean of the p90 by that of one router with
the same seed, and the cells that are slower than without sharing.  The exit
status is 1 if a mean is above 1.2 with news of 1 ms (whole nginx have 0.2 to
0.6 ms: bench/README.md, "Whole nginx"), or if there is such a cell.

--choose: the seeds from 111 on, which are for choosing; otherwise those from 1
on, for the report.  --print: nothing is run, the results that are there are
printed.  One run is done at a time.  Results are kept in DIR, and a run that is
there is not done again.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True

import matrix                                               # noqa: E402

CELLS = {
    "rag 64": ("rag", 64, 0.5, 25, 50, 8000),
    "burst 64": ("burst", 64, 0.3, 50, 200, 6400),
    "burst 64, 0.5": ("burst", 64, 0.5, 25, 50, 8000),
    "burst 8": ("burst", 8, 0.5, 200, 5, 1333),
    "rag 8": ("rag", 8, 0.5, 50, 50, 1333),
    "chat 8": ("chat", 8, 0.5, 50, 50, 1333),
    "batch 512": ("batch", 512, 0.9, 25, 1000, 8000),
    "burst 512": ("burst", 512, 0.9, 25, 1000, 8000),
}
MATRIX = {
    matrix.name_of(cell).removesuffix("-routers4"):
        tuple(cell[key] for key in ("workload", "workers", "load", "cache",
                                    "event-delay", "requests"))
    for cell in matrix.cells(False) if cell["routers"] == 4}
CELLS.update(MATRIX)

MOST = ("burst 8", "burst 64", "rag 64")
BURSTS = ("burst 8", "burst 64")
LARGE = ("batch 512", "burst 512", "burst 64, 0.5")
HOME = 0.3


def column(home=0, routers=4, **options):
    """Options of kv-simulate."""
    found = ["--routers", str(routers), "--policy",
             f"kv_cost={{ home = {home} }}"]

    for name, value in options.items():
        found += ["--" + name.replace("_", "-"), str(value)]

    return found


def homes(weights, **options):
    """Columns of some weights of the home."""
    return {f"home {home}": column(home, **options) for home in weights}


NONE = {"none": column()}
ONE = {"one router": column(routers=1)}
ALONE = {"share": 200}  # the homes are known, the load is never fresh
WEIGHTS = (0.1, 0.3, 1)

# The columns of the matrix that share their load, then what they are held
# against.
SHARED = {
    **{f"{lag} ms": column(HOME, share=lag) for lag in (1, 4, 30, 200)},
    "4 ms, 5 % lost": column(HOME, share=4, share_loss=0.05),
}
BESIDE = {**NONE, **ONE}
FACTOR = 1.2                            # of one router's p90,
JUDGED = "1 ms"                         # with these news

# By name: cells, and columns.
TRIALS = {
    "matrix": (tuple(MATRIX), {**SHARED, **BESIDE}),
    "report": (MOST, {**NONE, **homes((0, HOME), share=5), **ONE}),
    "alone": (MOST, {**NONE, **homes(WEIGHTS, **ALONE), **ONE}),
    "shared": (MOST, {**NONE, **homes((0, *WEIGHTS), share=5), **ONE}),
    "small": (("rag 8", "chat 8"),
              {**NONE, **homes((0, *WEIGHTS), share=5), **ONE}),
    "large": (LARGE, {**NONE, **homes((0, HOME), share=5), **ONE}),
    "lag": (MOST, {f"{lag} ms, home {home}": column(home, share=lag)
                   for lag in (5, 30, 50, 100, 140, 200)
                   for home in (0, HOME)}),
    "loss": (BURSTS, {f"{loss} lost, home {home}": column(
        home, share=5, share_loss=loss) for loss in (0.05, 0.3)
                    for home in (0, HOME)}),
    "unequal": (BURSTS, {
        f"{shares}, {name}": column(router_shares=shares, **options)
        for shares in ("80,20,0,0", "80,10,10,0", "100,0,0,0")
        for name, options in (("none", {}), ("home 0", {"share": 5}),
                              (f"home {HOME}", {"share": 5, "home": HOME}))}),
    "turns": (BURSTS, {
        f"{seconds} s, {name}": column(router_restart=seconds, **options)
        for seconds in (5, 20)
        for name, options in (("none", {}), ("home 0", {"share": 5}),
                              (f"home {HOME}", {"share": 5, "home": HOME}))}),
}


def run(cell, options, seeds, folder, only_print):
    """The results of one run; None: there are none."""
    names = ("workload", "workers", "load", "cache", "event-delay", "requests")
    command = [part for name, value in zip(names, CELLS[cell])
               for part in ("--" + name, str(value))] + options
    path = folder / ("-".join(command + [str(seeds[0])]).translate(
        str.maketrans("", "", "{}= ,")).replace("--", "-")[1:] + ".json")
    found = json.loads(path.read_text()) if path.exists() else {"ceilings": []}

    if len(found["ceilings"]) >= seeds[1]:
        return found

    if only_print:
        return None

    part = path.with_suffix(".part")
    done = subprocess.run(
        [str(matrix.TOP / "util/kv-simulate"), "--json", str(part), *command,
         "--first-seed", str(seeds[0]), "--seeds", str(seeds[1])],
        capture_output=True, text=True, check=False)

    if done.returncode != 0:
        sys.exit(done.stderr)

    part.rename(path)

    return json.loads(path.read_text())


def p90s(found, seeds):
    """TTFT p90 by seed, in milliseconds."""
    return [1000 * seed["ttft_p90"]
            for seed in found["runs"][0]["seeds"]][:seeds]


def logs(mine, other):
    """Logarithms of the ratios by seed."""
    return [math.log(a / b) for a, b in zip(mine, other)]


def judge(values):
    """Prints what the matrix shows; returns whether it is good.

    values: by cell and column, p90 by seed.
    """
    good = True

    print("\nTTFT p90 of four routers by that of one:\n")
    matrix.row("workload", *SHARED, "none")
    matrix.row(*["---"] * (len(SHARED) + 2))

    for workload in matrix.WORKLOADS:
        shown = []

        for name in (*SHARED, "none"):
            own = [logs(columns[name], columns["one router"])
                   for cell, columns in values.items()
                   if CELLS[cell][0] == workload]

            if not own:
                shown.append("-")
                continue

            mean, low, high = matrix.ratios(
                [sum(seeds) / len(own) for seeds in zip(*own)])
            shown.append(f"{mean:.2f} ({low:.2f} to {high:.2f})")
            good = good and (name != JUDGED or mean <= FACTOR)

        matrix.row(workload, *shown)

    print("\nSlower than without sharing, beyond the 95 % interval:\n")

    for cell, columns in values.items():
        for name in SHARED:
            mean, low, high = matrix.ratios(logs(columns[name],
                                                 columns["none"]))
            if low > 1:
                good = False
                print(f"* {cell}, {name}: {mean:.2f} ({low:.2f} to "
                      f"{high:.2f})")

    return good


def main():
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--results", type=pathlib.Path,
                        default=matrix.TOP / "build/routers")
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--print", action="store_true", dest="only_print")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("trials", nargs="*", choices=[[], *TRIALS])
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    seeds = (111 if options.choose else 1, options.seeds)
    good = True

    for trial in options.trials or [name for name in TRIALS
                                    if name != "matrix"]:
        cells, columns = TRIALS[trial]
        values = {}

        print(f"\n{trial}, seeds {seeds[0]} to {sum(seeds) - 1}:\n")
        matrix.row("cell", *columns)
        matrix.row(*["---"] * (len(columns) + 1))

        for cell in cells:
            shown = []

            for name, given in columns.items():
                found = run(cell, given, seeds, options.results,
                            options.only_print)
                shown.append("-")

                if found:
                    own = p90s(found, seeds[1])
                    values.setdefault(cell, {})[name] = own
                    mean, half = matrix.interval(own)
                    shown[-1] = f"{mean:.0f} ± {half:.0f}"

            matrix.row(cell, *shown)
            sys.stdout.flush()

        if trial == "matrix":
            good = judge({cell: by_column
                          for cell, by_column in values.items()
                          if len(by_column) == len(columns)})

    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
