#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""Which policy has the lowest TTFT, over many fleets and workloads.

    matrix.py [--results DIR] [--quick] [--jobs N] [--choose] [--print]
              [--sensitivity] [--shapes] [--sessions FILE --tokenizer DIR]
              [--plot FOLDER]

Runs util/kv-simulate for each cell of a fractional design: six workloads times
16 combinations of load, cache, fleet, delay of events and number of routers,
in which each pair of levels is as frequent as any other.  Each cell has the
same ten seeds for all policies.  The regret of a policy is its p90 of TTFT,
divided by that of the best policy with the same seed: 1 is the best.

Half of the seeds, from 101 on, are for choosing parameters: --choose and
--quick use those alone.  The other half, from 1 on, is for the report.

--quick: four combinations of each workload, and three seeds.
--sensitivity: the cells of --quick, each five times: as they are, and with the
times decode and decode_context of a step halved and doubled.  Prints which
orders of the default and another policy hold.
--shapes: nine workloads that others have published, a cell each.
--sessions: four combinations for recorded sessions (kv-simulate tells their
form, and what --tokenizer is), with and without a system prompt that all share.
Both take the seeds 1 to 3.
--print: nothing is run, the results that are there are printed.

A cell's results are written to DIR when the cell is done, and a cell that is
there is not run again.  The tables are printed as Markdown.  --plot: FOLDER
gets value-regret.svg, value-ladder.svg, and value-ttft.svg.  Exit status: 0
when the default policy passes, 1 when it does not or when a cell is missing.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True

TOP = pathlib.Path(__file__).resolve().parent.parent

DEFAULT = "kv_cost"

# The default first; then formulas of other projects as they are, and baselines.
POLICIES = {
    "kv_cost": "the default",
    "kv_cost={ dynamo = true }": "Dynamo's cost",
    "kv_cost={ dynamo = true, overlap_credit = 2, prefill_load_scale = 4, "
    "active_request_weight = 64 }": "Dynamo's agentic preset",
    "cache_aware": "SGLang's rule",
    "affinity_gate": "llm-d's filter and scorer",
    "weighted": "llm-d's weights",
    "prefix_hash": "KubeAI's prefix hash",
    "lmetric": "LMetric",
    "agent": "sessions, on top of the default",
}

# Settings of kv_cost that could become its defaults: run by --choose.
CANDIDATES = {
    "kv_cost={ in_flight = false, churn = 0 }": "the default before",
    "kv_cost={ churn = 0 }": "candidate",
    "kv_cost={ churn = 0.4 }": "candidate",
    "kv_cost={ churn = 0.6 }": "candidate",
    "kv_cost={ churn = 1 }": "candidate",
    "kv_cost={ prefill_load_scale = 4 }": "candidate",
    "kv_cost={ prefill_load_scale = 16 }": "candidate",
}

LOADS = (0.3, 0.5, 0.7, 0.9)
CACHES = (25, 50, 100, 200)
DELAYS = (5, 50, 200, 1000)
ROUTERS = (1, 4, 1, 4)

# By workload: sizes of the fleet, requests of a worker at a load of 0.6, and
# the most requests of a cell.  Conversations of many turns last for minutes,
# so that a fleet of 512 that is busy with them needs millions of requests.
WORKLOADS = {
    "agents": ((8, 16, 8, 16), 100, 1600),
    "batch": ((8, 64, 8, 512), 200, 8000),
    "burst": ((8, 64, 8, 512), 200, 8000),
    "chat": ((8, 64, 8, 64), 200, 6000),
    "rag": ((8, 64, 8, 512), 200, 8000),
    "shared": ((8, 64, 8, 512), 200, 8000),
}

# Recorded sessions, by the tokens of a system prompt; as above.
SESSIONS = {0: "sessions", 3000: "sessions-3000"}
OF_SESSIONS = ((8, 16, 8, 16), 300, 5000)

# Workloads that others have published: load and requests.
SHAPES = {
    "agentic-trace-replay": (0.7, 1600),
    "code-generation": (0.7, 800),
    "deep-research": (0.7, 800),
    "interactive-chat": (0.7, 2000),
    "azure-code": (0.7, 3000),
    "azure-conv": (0.7, 3000),
    "batch-summarization-rag": (0.5, 500),
    "batch-synthetic-data-generation": (0.7, 300),
    "reasoning": (0.7, 150),
}

QUICK = ((0, 2), (1, 0), (2, 3), (3, 1))

# The bounds that the default has to keep.
MEAN_REGRET = 1.05
CELL_REGRET = 1.15

# Student's t of a 95 % interval, by degrees of freedom from 1.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)


def times(a, b):
    """The product of two elements of the field of four."""
    if a == 0 or b == 0:
        return 0

    return (a + b - 2) % 3 + 1


def cells(quick, workloads=None):
    """The design: an orthogonal array of strength 2 for each workload."""
    rows = QUICK if quick else [(a, b) for a in range(4) for b in range(4)]
    found = []

    for a, b in rows:
        for workload, (fleet, requests, most) in (workloads
                                                  or WORKLOADS).items():
            workers = fleet[a ^ b]

            found.append({
                "workload": workload, "load": LOADS[a], "cache": CACHES[b],
                "workers": workers,
                "event-delay": DELAYS[a ^ times(2, b)],
                "routers": ROUTERS[a ^ times(3, b)],
                "requests": min(most,
                                round(requests * workers * LOADS[a] / 0.6)),
            })

    return found


def design_of(options):
    """What is asked for: the cells."""
    if options.sessions:
        return [{**cell, "sessions": options.sessions, "system": system,
                 "tokenizer": options.tokenizer}
                for system, name in SESSIONS.items()
                for cell in cells(True, {name: OF_SESSIONS})]

    if options.shapes:
        return [{"workload": name, "load": load, "cache": 50, "workers": 8,
                 "event-delay": 50, "routers": 1, "requests": requests}
                for name, (load, requests) in SHAPES.items()]

    return cells(options.quick)


def name_of(cell):
    """A short name of a cell."""
    return (f"{cell['workload']}-{cell['workers']}w-load{cell['load']}"
            f"-cache{cell['cache']}-delay{cell['event-delay']}"
            f"-routers{cell['routers']}")


def run(cell, policies, seeds, path, more):
    """Runs one cell, with more options; None, or why there are no results."""
    part = path.with_suffix(".part")
    command = [str(TOP / "util/kv-simulate"), "--json", str(part),
               "--first-seed", str(seeds[0]), "--seeds", str(seeds[1]), *more]

    for key, value in cell.items():
        if key != "workload" or "sessions" not in cell:
            command += [f"--{key}", str(value)]

    for policy in policies:
        command += ["--policy", policy]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    if done.returncode != 0:
        return "\n".join(done.stderr.splitlines()[-3:])

    part.rename(path)

    return None


# ---- figures ----------------------------------------------------------------

def workloads_of(found):
    """The workloads of the cells, in their order."""
    return list(dict.fromkeys(cell["workload"] for cell, _ in found))


def interval(values):
    """Mean and half of the 95 % interval."""
    n = len(values)
    mean = sum(values) / n

    if n == 1:
        return mean, math.inf

    variance = sum((value - mean) ** 2 for value in values) / (n - 1)

    return mean, STUDENT[n - 2] * math.sqrt(variance / n)


def ratios(logs):
    """Geometric mean of ratios, with both bounds, from their logarithms."""
    mean, half = interval(logs)

    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def regrets(result, figure="ttft_p90"):
    """Logarithms of the regret by policy, a list over the seeds."""
    runs = {run["policy"].replace(" {", "={"): run["seeds"]
            for run in result["runs"]}
    best = [min(seeds) for seeds in zip(*(
        [seed[figure] for seed in run] for run in runs.values()))]

    return {policy: [math.log(seed[figure] / least)
                     for seed, least in zip(run, best)]
            for policy, run in runs.items()}


def of_policy(policy, figure):
    """A function of a result: a figure of a policy by seed."""
    def read(result):
        for entry in result["runs"]:
            if entry["policy"].replace(" {", "={") == policy:
                return [seed[figure] for seed in entry["seeds"]]

        raise KeyError(f"no results of the policy {policy}")

    return read


def mean_of(result, policy, figure):
    """The mean of one figure of a policy over the seeds."""
    return interval(of_policy(policy, figure)(result))[0]


def of_ceiling(figure):
    """A function of a result: an upper rung of the ladder by seed."""
    return lambda result: [seed[figure] for seed in result["ceilings"]]


def over_seeds(results, figure):
    """The mean of a figure over cells, a list over the seeds."""
    return [sum(seeds) / len(seeds)
            for seeds in zip(*(figure(result) for result in results))]


def by_workload(found, policies):
    """(workload, policy): geometric mean of the regret, and its bounds.

    Cells of one seed are averaged first: what varies is the seed.
    """
    table = {}

    for workload in workloads_of(found):
        own = [regrets(result) for cell, result in found
               if cell["workload"] == workload]

        for policy in policies:
            table[workload, policy] = ratios(
                [sum(seeds) / len(own)
                 for seeds in zip(*(logs[policy] for logs in own))])

    return table


def against(found, workload, policy):
    """Ratios of the default's TTFT p90 to another policy's, with bounds.

    A list: as assumed, and then with each of the other times of a step.
    """
    by_times = []

    for cell, result in found:
        if cell["workload"] == workload:
            by_times.append([
                [mine - other for mine, other in zip(logs[DEFAULT],
                                                     logs[policy])]
                for logs in (regrets(one)
                             for one in (result, *result["sensitivity"]))])

    return [ratios([sum(seeds) / len(seeds) for seeds in zip(*cells)])
            for cells in zip(*by_times)]


def verdict(found):
    """What becomes of an order of two policies, as kv-simulate has it."""
    ratio, low, high = found[0]

    if low <= 1 <= high:
        return "none"

    if any((other[0] < 1) != (ratio < 1) for other in found[1:]):
        return "changes"

    return ("is open" if any(other[1] <= 1 <= other[2] for other in found[1:])
            else "holds")


# ---- output -----------------------------------------------------------------

def row(*values):
    """Prints one row of a table."""
    print("| " + " | ".join(values) + " |")


def print_summary(table, workloads, policies):
    """Regret by workload and policy."""
    print("Geometric mean of the regret (upper 95 % bound):\n")
    row("policy", *workloads)
    row(*["---"] * (len(workloads) + 1))

    for policy, what in policies.items():
        row(f"`{policy}`, {what}", *(
            "{0:.2f} ({2:.2f})".format(*table[workload, policy])
            for workload in workloads))


def print_hits(found):
    """The default's hit rate, of that of perfect routing."""
    print("\nHit rate of the default, of the two bounds:\n")
    row("workload", "hit rate", "one cache as large as the fleet's",
        "share of it", "share of the best worker's")
    row(*["---"] * 5)

    for workload in workloads_of(found):
        own = [result for cell, result in found
               if cell["workload"] == workload]
        had, best, capacity = (
            interval(over_seeds(own, figure))[0]
            for figure in (of_policy(DEFAULT, "had"),
                           of_policy(DEFAULT, "best"), of_ceiling("capacity")))
        row(workload, *(
            f"{100 * part / whole:.1f} %" if whole else "-"
            for part, whole in ((had, 1), (capacity, 1), (had, capacity),
                                (had, best))))


def print_cells(found):
    """One row a cell; returns the cells that the default has lost."""
    lost = []

    print("\nCells: TTFT p90 and regret of the default, with both 95 % bounds:"
          "\n")
    row("cell", "blocks", "busy", "hit rate", "TTFT p90", "regret",
        "lowest p90")
    row(*["---"] * 7)

    for cell, result in found:
        logs = regrets(result)
        mean, low, high = ratios(logs[DEFAULT])
        best = min(logs, key=lambda policy, of=logs: sum(of[policy]))

        row(name_of(cell), str(result["ceilings"][0]["blocks"]),
            f"{100 * mean_of(result, DEFAULT, 'busy'):.0f} %",
            f"{100 * mean_of(result, DEFAULT, 'had'):.1f} %",
            f"{1000 * mean_of(result, DEFAULT, 'ttft_p90'):.0f} ms",
            f"{mean:.2f} ({low:.2f} to {high:.2f})", f"`{best}`")

        if low > CELL_REGRET:
            lost.append(f"{name_of(cell)}: {mean:.2f}, best: {best}")

    return lost


def print_sensitivity(found, policies):
    """Which orders of the default and another policy hold."""
    factors = ("0.5, 0.5", "0.5, 2", "2, 0.5", "2, 2")

    print("\nTTFT p90 of the default, divided by that of another policy: as "
          "assumed (both 95 % bounds), and with decode and decode_context "
          "multiplied:\n")
    row("workload", "policy", "as assumed", *factors, "conclusion")
    row(*["---"] * (4 + len(factors)))

    for workload in workloads_of(found):
        for policy in policies:
            if policy != DEFAULT:
                rates = against(found, workload, policy)
                row(workload, f"`{policy}`",
                    "{:.2f} ({:.2f} to {:.2f})".format(*rates[0]),
                    *(f"{rate[0]:.2f}" for rate in rates[1:]), verdict(rates))


def ladder_of(found):
    """By workload: the rungs of the default's hit rate, with intervals."""
    groups = []

    for workload in workloads_of(found):
        own = [result for cell, result in found
               if cell["workload"] == workload]
        groups.append([workload, [
            [what, *interval(over_seeds(own, figure))]
            for what, figure in (
                ("ideal", of_ceiling("ideal")),
                ("the fleet's capacity", of_ceiling("capacity")),
                ("best worker", of_policy(DEFAULT, "best")),
                ("predicted", of_policy(DEFAULT, "predicted")),
                ("had", of_policy(DEFAULT, "had")))]])

    return groups


def pressure_of(found, policies):
    """By cache: the geometric mean of TTFT p90 of each policy, in ms."""
    groups = []

    for cache in CACHES:
        own = [result for cell, result in found if cell["cache"] == cache]

        if own:
            groups.append([f"caches of {cache} % of the workload", [
                [policy, *ratios(over_seeds(own, lambda result, name=policy: [
                    math.log(1000 * value)
                    for value in of_policy(name, "ttft_p90")(result)]))]
                for policy in policies]])

    return groups


def draw(path, *plot):
    """Writes a plot of kv-simulate's."""
    done = subprocess.run(
        ["luajit", str(TOP / "bench/plot.lua")], input=json.dumps(plot),
        capture_output=True, text=True, check=True,
        env={**os.environ, "LUA_PATH": f"{TOP}/lua/?.lua;{TOP}/?.lua;;"})
    path.write_text(done.stdout)


def plots(found, table, policies, folder):
    """The plots of docs/value.md and bench/measured.md."""
    folder.mkdir(parents=True, exist_ok=True)
    draw(folder / "value-regret.svg", "dots",
         "Regret: TTFT p90, divided by that of the best policy (95 % bounds)",
         [[workload, [[policy, *table[workload, policy]]
                      for policy in policies]]
          for workload in workloads_of(found)])
    draw(folder / "value-ladder.svg", "ladder",
         "Hit rates of the default (95 % intervals)", ladder_of(found))
    draw(folder / "value-ttft.svg", "dots",
         "TTFT p90 in ms, geometric mean of the cells (95 % bounds)",
         pressure_of(found, policies))


def report(found, missing, policies, folder):
    """Prints all tables.  Did the default pass?"""
    if not found:
        print("There are no results.")
        return False

    table = by_workload(found, policies)
    seeds = len(found[0][1]["ceilings"])

    print(f"{len(found)} of {len(found) + len(missing)} cells, {seeds} "
          "seeds.\n")
    print_summary(table, workloads_of(found), policies)
    print_hits(found)
    lost = print_cells(found)

    if folder:
        plots(found, table, policies, folder)

    above = [workload for workload in workloads_of(found)
             if table[workload, DEFAULT][2] > MEAN_REGRET]

    print(f"\nCells lost (lower bound above {CELL_REGRET}): "
          + ("; ".join(lost) or "none") + ".")
    print(f"Workloads above {MEAN_REGRET} (upper bound): "
          + (", ".join(above) or "none") + ".")

    for name in missing:
        print(f"No results: {name}.")

    return not lost and not above and not missing


def main():
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--results", type=pathlib.Path,
                        default=TOP / "build/matrix")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--print", action="store_true", dest="only_print")
    parser.add_argument("--sensitivity", action="store_true")
    parser.add_argument("--shapes", action="store_true")
    parser.add_argument("--sessions", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path)
    parser.add_argument("--plot", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    options.quick = options.quick or options.sensitivity

    policies = {**POLICIES, **(CANDIDATES if options.choose else {})}
    few = options.quick or options.sessions or options.shapes
    seeds = (101 if options.quick or options.choose else 1, 3 if few else 10)
    kind = ("sensitivity" if options.sensitivity
            else "choose" if options.choose
            else "sessions" if options.sessions
            else "shapes" if options.shapes else "report")
    kind += f"-{seeds[0]}-{seeds[1]}"
    path = options.results / kind
    path.mkdir(parents=True, exist_ok=True)
    design = design_of(options)
    wanted = {name_of(cell): path / f"{name_of(cell)}.json"
              for cell in design}

    if not options.only_print:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            started = {
                pool.submit(run, cell, policies, seeds, wanted[name_of(cell)],
                            ["--sensitivity"] if options.sensitivity else []):
                name_of(cell)
                for cell in design if not wanted[name_of(cell)].exists()}

            for done in concurrent.futures.as_completed(started):
                print(f"{started[done]}: {done.result() or 'done'}",
                      file=sys.stderr)

    found = [(cell, json.loads(wanted[name_of(cell)].read_text()))
             for cell in design if wanted[name_of(cell)].exists()]
    missing = [name for name, file in wanted.items() if not file.exists()]

    passes = report(found, missing, policies, options.plot)

    if options.sensitivity and found:
        print_sensitivity(found, policies)

    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
