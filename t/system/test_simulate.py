#!/usr/bin/python3
"""kv-simulate, as a user runs it; TAP."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path
from types import SimpleNamespace

from stage import NOBODY, ROOT, Stage, tap, wait_until

sys.path.insert(0, str(ROOT / "bench"))

import matrix                                               # noqa: E402

SIMULATE = ROOT / "util" / "kv-simulate"
BUILD = Path(os.environ.get("KVR_BUILD") or ROOT / "build").resolve()
SMALL = ("--requests", "200", "--seeds", "2", "--workers", "3",
         "--blocks", "800")
HANGS = 300                                 # seconds: no test takes so long

at = None                                   # a folder, set by main()


def simulate(*args, **env):
    """Its exit status, and both outputs."""
    done = subprocess.run(
        [SIMULATE, *map(str, args)], capture_output=True, text=True, cwd=at,
        timeout=HANGS, check=False, env={"PATH": os.environ["PATH"],
                                         "KVR_BUILD": str(BUILD), **env})
    return done.returncode, done.stdout, done.stderr


def help_is_there():
    """--help tells every option"""
    status, out, _ = simulate("--help")
    assert status == 0
    for word in ("--policy", "--workload", "--trace", "--sessions",
                 "--tokenizer", "--system", "azure-conv", "--event-delay",
                 "--plots", "--compare", "Exit status"):
        assert word in out, word


def policies_are_compared():
    """a table has a row for each policy, and the ladder above them"""
    status, out, err = simulate(*SMALL, "--policy", "kv_cost",
                                "--policy", "round_robin")
    assert status == 0, err
    assert "ideal, one cache without a bound: " in out
    heads = [line.split("|")[1].strip() for line in out.splitlines()
             if line.startswith("|")]
    assert heads[0] == "policy" and heads[2:] == ["kv_cost", "round_robin"]
    assert "seed 2, kv_cost: hit rate" in err, err


def results_are_files():
    """--json has every seed, --plots are SVG, --compare reads the first"""
    for name in "ab":
        status, _, err = simulate(
            *SMALL, "--policy", "kv_cost", "--json", f"{name}.json",
            "--plots", at)
        assert status == 0, err
    told = json.loads((at / "a.json").read_text())
    assert told["parameters"]["workers"] == 3
    assert len(told["runs"][0]["seeds"]) == len(told["ceilings"]) == 2
    assert told["runs"] == [
        {**run, "seeds": [{**seed, "cpu_seconds": mine["cpu_seconds"]}
                          for seed, mine in zip(run["seeds"],
                                                first["seeds"])]}
        for run, first in zip(json.loads((at / "b.json").read_text())["runs"],
                              told["runs"])], "the same again is the same"
    for plot in ("ladder.svg", "ttft.svg"):
        assert xml.etree.ElementTree.parse(at / plot).getroot() \
            .tag.endswith("svg")
    status, out, _ = simulate("--compare", "a.json", "b.json")
    assert status == 0 and "0.00 points" in out, out


def events_get_lost_and_engines_restart():
    """--event-loss and --restart are in the parameters, and are counted"""
    status, out, err = simulate(
        *SMALL, "--policy", "kv_cost", "--event-loss", 0.1,
        "--repair-delay", 500, "--restart", 30, "--restart-time", 5,
        "--json", "lossy.json")
    assert status == 0, err
    told = json.loads((at / "lossy.json").read_text())
    wanted = {"event-loss": 0.1, "repair-delay": 500, "restart": 30,
              "restart-time": 5}
    assert wanted.items() <= told["parameters"].items(), told["parameters"]
    for seed in told["runs"][0]["seeds"]:
        assert seed["lost"] > 0 and seed["restarts"] > 0, seed
    assert "| failed" in out, out


def routers_share_their_load():
    """routers share their load, unequal ones that come and go, too"""
    results = []
    for more in ((), ("--share", "5"),
                 ("--share", "5", "--share-loss", "0.2"),
                 ("--share", "5", "--router-shares", "80,20,0"),
                 ("--share", "5", "--router-restart", "2")):
        status, _, err = simulate(
            *SMALL, "--workload", "burst", "--routers", "3", *more,
            "--json", "shared.json", "--policy", "kv_cost={ home = 0.3 }")
        assert status == 0, err
        result = json.loads((Path(at) / "shared.json").read_text())
        results.append([run["ttft_p90"] for run in result["runs"][0]["seeds"]])
    assert len({tuple(result) for result in results}) == len(results), results


def tenants_take_turns():
    """a second table tells what each group of tenants has"""
    rows = {}

    for order in ("fair", "fifo"):
        status, out, err = simulate(
            "--workers", "2", "--seeds", "1", "--seconds", "40", "--tenants",
            "noisy", "--max-active", "8", "--order", order, "--policy",
            "kv_cost", "--json", f"{order}.json")
        assert status == 0, err
        assert "Jain's index" in out
        seed = json.loads((at / f"{order}.json").read_text())[
            "runs"][0]["seeds"][0]
        rows[order] = {group["name"]: group for group in seed["groups"]}

    assert set(rows["fair"]) == {"small", "greedy"}
    assert (rows["fair"]["small"]["wait_p90"]
            < rows["fifo"]["small"]["wait_p90"] / 2), rows


def conclusions_are_tried_with_other_times():
    """--sensitivity: four tables more, and what becomes of each order"""
    status, out, err = simulate(
        *SMALL, "--policy", "kv_cost", "--policy", "round_robin",
        "--sensitivity", "--seeds", 4, "--json", "sensitivity.json")
    assert status == 0, err
    assert out.count("| policy ") == 5, out
    assert "Pairs of policies: 1, conclusions: 1, of which hold: 1" in out, out
    row = [cell.strip() for cell in out.splitlines()[-1].split("|")]
    assert row[1:3] == ["kv_cost", "round_robin"] and row[-2] == "holds", out
    variants = json.loads((at / "sensitivity.json").read_text())["sensitivity"]
    assert sorted(variant["times"]["decode"] for variant in variants) \
        == [1.5e-5, 1.5e-5, 6e-5, 6e-5]
    assert all(len(variant["runs"][1]["seeds"]) == 4 for variant in variants)
    status, _, err = simulate("--sensitivity", "--seeds", 1)
    assert status == 2 and "--sensitivity needs at least 2 seeds" in err, err


def what_everybody_asks_for_spreads():
    """where the longest match always wins, one worker gets all requests of a
    prefix that everybody asks for; by kv_cost it spreads by itself"""
    status, _, err = simulate(
        "--workload", "surge", "--load", 0.2, "--requests", 1500, "--seeds", 2,
        "--policy", "kv_cost", "--policy", "cache_aware",
        "--json", "surge.json")
    assert status == 0, err
    for ours, longest in zip(*(run["seeds"] for run in json.loads(
            (at / "surge.json").read_text())["runs"])):
        assert longest["spirals"] >= 1 and longest["worst_share"] == 8, longest
        assert ours["spirals"] == 0 and ours["worst_share"] < 5, ours
        assert 50 * ours["ttft_p90"] < longest["ttft_p90"], (ours, longest)


def a_matrix_is_printed_and_drawn():
    """matrix.py has tables, plots and conclusions of all cells, and fails
    when one is missing"""
    status, _, err = simulate(
        "--requests", 60, "--seeds", 3, "--workers", 3, "--blocks", 800,
        "--sensitivity", "--json", "cell.json",
        *(word for policy in matrix.POLICIES for word in ("--policy", policy)))
    assert status == 0, err

    def there(kind, **asked):
        cells = at / "results" / kind
        cells.mkdir(parents=True)
        for cell in matrix.design_of(SimpleNamespace(**asked)):
            (cells / f"{matrix.name_of(cell)}.json").symlink_to(
                at / "cell.json")
        return cells

    def printed(*more):
        return subprocess.run(
            [ROOT / "bench" / "matrix.py", *more, "--print",
             "--results", at / "results", "--plot", at / "plots"],
            capture_output=True, text=True, timeout=HANGS, check=False)

    there("sessions-1-3", sessions="a", tokenizer="b")
    assert "8 of 8 cells" in printed("--sessions", "a").stdout
    there("shapes-1-3", sessions=None, shapes=True)
    assert "9 of 9 cells" in printed("--shapes").stdout
    cells = there("sensitivity-101-3", sessions=None, shapes=False, quick=True)
    done = printed("--sensitivity")
    assert "24 of 24 cells, 3 seeds" in done.stdout, done.stderr
    assert "| chat | `lmetric` |" in done.stdout, done.stdout
    assert "No results" not in done.stdout, done.stdout
    for plot in ("regret", "ladder", "ttft"):
        drawn = xml.etree.ElementTree.parse(at / "plots" / f"value-{plot}.svg")
        assert len(drawn.getroot()) > 40, plot
    gone = sorted(cells.iterdir())[0]
    gone.unlink()
    done = printed("--sensitivity")
    assert done.returncode == 1, done.stdout
    assert f"No results: {gone.stem}." in done.stdout, done.stdout


def own_policies_are_found():
    """a policy of one's own is found by LUA_PATH, and one that fails told"""
    (at / "acme.lua").write_text(
        "return { new = function() return { pick = function() return 1 end }"
        " end }")
    (at / "acme").mkdir(exist_ok=True)
    (at / "acme" / "first.lua").write_text((at / "acme.lua").read_text())
    (at / "acme" / "broken.lua").write_text(
        "return { new = function() return { pick = function() error('no') end"
        " } end }")
    status, out, err = simulate(*SMALL, "--policy", "acme.first",
                                LUA_PATH=f"{at}/?.lua")
    assert status == 0 and "| acme.first" in out, err
    status, _, err = simulate(*SMALL, "--policy", "acme.broken",
                              LUA_PATH=f"{at}/?.lua")
    assert status == 1 and "a policy has failed" in err, err
    assert 'policy "acme.broken"' in err and "broken.lua:1: no" in err, err


def how_far_from_perfect():
    """--bound has a second table, and bench/bound.py prints a row a cell"""
    status, out, err = simulate(
        *SMALL, "--requests", 40, "--bound", "--policy", "kv_cost", "--policy",
        "look_ahead={ requests = 2 }", "--json", "bound.json")
    assert status == 0, err
    rows = [[cell.strip() for cell in line.split("|")[1:-1]]
            for line in out.split("\n\n")[-1].splitlines()]
    assert rows[0][1:4] == ["TTFT mean", "bound", "times"], out
    assert [row[0] for row in rows[2:]] \
        == ["kv_cost", "look_ahead { requests = 2 }"], out
    assert all(float(row[3]) >= 1 and float(row[6]) >= 1 for row in rows[2:])
    (at / "bound").mkdir()
    (at / "bound" / "chat-8w-load0.9-cache50-delay50-routers1.json") \
        .symlink_to(at / "bound.json")
    done = subprocess.run(
        [ROOT / "bench" / "bound.py", "--print", "--results", at],
        capture_output=True, text=True, timeout=HANGS, check=False)
    assert done.returncode == 1, "cells are missing"
    assert done.stdout.splitlines()[-1].startswith("| chat-8w"), done.stderr


def engines_pull():
    """--pull lets engines pull what another one has, which kv_cost weighs"""
    status, _, err = simulate(
        "--workload", "fork", "--requests", 44, "--seeds", 1, "--pull", "26,4",
        "--json", "pull.json", "--policy",
        "kv_cost={ pull = { base_ms = 26, ms_per_1000_tokens = 4 } }")
    assert status == 0, err
    told = json.loads((at / "pull.json").read_text())
    assert told["runs"][0]["seeds"][0]["pulled"] > 0, told


def traces_are_read():
    """a trace of Mooncake's form and one of a log; a wrong line is named"""
    (at / "trace").write_text("".join(json.dumps(record) + "\n" for record in (
        {"timestamp": 0, "input_length": 1000, "output_length": 5,
         "hash_ids": [1, 2]},
        {"timestamp": 1000, "input_length": 1000, "output_length": 5,
         "hash_ids": [1, 3]},
        {"at": 9, "hashes": "00112233445566ff,ffffffffffffffff",
         "output_tokens": 3})))
    status, out, err = simulate("--trace", at / "trace", "--seeds", 1,
                                "--policy", "kv_cost")
    assert status == 0 and "seed 1, kv_cost" in err, err
    ideal = 512 / 2040
    assert f"bound: {ideal:.1%}".replace("%", " %") in out, out
    with open(at / "trace", "a", encoding="utf-8") as trace:
        trace.write('{"timestamp": 3}\n')
    status, _, err = simulate("--trace", at / "trace")
    assert status == 2 and "trace:4: neither" in err, err
    (at / "without").write_text('{"at":1.5,"hashes":"-"}\n')
    status, _, err = simulate("--trace", at / "without")
    assert status == 2 and "no line has hashes of a prompt" in err, err


def logs_of_nginx_are_read():
    """nginx writes a trace by the log_format of the documentation"""
    page = (ROOT / "docs" / "kv-simulate.md").read_text()
    log_format = re.search(r"^log_format +trace .*?;$", page, re.M | re.S)[0]

    class Logging(Stage):
        """nginx logs a trace."""

        def _write_conf(self, *args):
            super()._write_conf(*args)
            path = self.directory / "nginx.conf"
            path.write_text(path.read_text().replace(
                "http {", f"http {{ {log_format}", 1).replace(
                    "access.log routing", "trace.log trace"))

    with Logging("simulate") as stage:
        stage.start_nginx({"w0": NOBODY})
        for body in ({"prompt": list(range(100))},
                     {"prompt": list(range(64)) + [7] * 40},
                     {"prompt": "a text whose tokens nobody knows"}):
            with contextlib.suppress(OSError):      # no engine is there
                stage.call("POST", "/v1/completions", body)
        log = stage.directory / "trace.log"
        wait_until("three requests are logged",
                   lambda: log.read_text().count("\n") == 3)
        status, out, err = simulate("--trace", log, "--seeds", 1,
                                    "--policy", "kv_cost")
    assert status == 0, err
    assert "trace.log: left out 1 lines without hashes" in err, err
    shared = 64 / (6 * 16 + 8 + 6 * 16 + 8)
    assert f"bound: {shared:.1%}".replace("%", " %") in out, out


def what_is_drawn_is_a_file():
    """--conversations writes what the seed draws, and runs no policy"""
    status, out, err = simulate(*SMALL, "--cache", 50, "--conversations",
                                "drawn.json")
    assert status == 0 and not out, (out, err)
    drawn = json.loads((at / "drawn.json").read_text())
    assert drawn["workers"] == 3 and drawn["block_size"] == 16, drawn
    status, _, err = simulate(*SMALL, "--cache", 50, "--policy",
                              "round_robin", "--json", "same.json")
    assert status == 0, err
    told = json.loads((at / "same.json").read_text())
    assert told["ceilings"][0]["blocks"] == drawn["blocks"]
    assert told["runs"][0]["seeds"][0]["requests"] == sum(
        len(talk["turns"]) for talk in drawn["conversations"])


def mistakes_are_told():
    """what is wrong with an option is told, with what there is"""
    for args, words in (
            (("--workload", "tea"), 'there is no workload "tea"; there are:'),
            (("--policy", "nobody"), 'unknown policy "nobody"'),
            (("--policy", "kv_cost={ x"), "no Lua table"),
            (("--policy", "kv_cost={ xyz = 1 }"), 'unknown setting "xyz"'),
            (("--workers", "0"), "--workers must be a whole number from 1"),
            (("--event-loss", "2"), "--event-loss must be a number from 0 to 1"),
            (("--restart", "9", "--workers", "1"), "at least 2 workers"),
            (("--wrkers", "3"), "there is no option --wrkers"),
            (("--seeds",), "--seeds needs a value"),
            (("--engine", "trtllm"), "--engine must be vllm or sglang"),
            (("--times", "speed=1"), "none of base, prefill"),
            (("--pull", "30"), '--pull: "30" is no pair of ms, as 30,4'),
            (("--pull", "30,4", "--restart", "9"),
             "--pull goes without --restart, and --bound without --tenants"),
            (("--trace", "/nowhere"), "/nowhere"),
            (("--trace", "a", "--conversations", "b"), "leave one of them out"),
            (("--share-loss", "0.1"),
             "--share-loss needs --share"),
            (("--routers", "2", "--router-shares", "1,2,3"),
             "--router-shares must have a number for each of the 2 --routers, "
             "not 3"),
            (("--routers", "2", "--router-shares", "0,0"),
             "--router-shares: one router must get requests"),
            (("--routers", "2", "--router-shares", "1,x"),
             '--router-shares must be a whole number from 0 to 1000000, not "x"'),
            (("--router-restart", "5"),
             "--router-restart needs at least 2 --routers, and no "
             "--router-shares"),
            (("--order", "fair"), "--classes and --order need "
             "--max-prefill-tokens or --max-active"),
            (("--order", "none"),
             '--order must be fair, fifo or strict, not "none"'),
            (("--max-active", "2", "--classes", "a"),
             '--classes: "a" is no list of 1 to 8 NAME=WEIGHT'),
            (("--tenants", "2", "--cache", "5"),
             "--tenants draws a workload for --blocks"),
            (("--sessions", "a"), "--sessions needs a --tokenizer"),
            (("--sessions", "a", "--tokenizer", "/nowhere"), "/nowhere: "),
            (("--compare", "a"), "--compare needs two files, 1 were given"),
            (("chat",), '"chat" is no option')):
        status, _, err = simulate(*args)
        assert status == 2, (args, status, err)
        assert words in err, (args, err)


def main():
    """Runs the tests, in a folder of their own."""
    global at
    with tempfile.TemporaryDirectory() as directory:
        at = Path(directory)
        return tap.run([
            help_is_there, policies_are_compared, results_are_files,
            events_get_lost_and_engines_restart, routers_share_their_load,
            tenants_take_turns,
            conclusions_are_tried_with_other_times,
            what_everybody_asks_for_spreads, a_matrix_is_printed_and_drawn,
            own_policies_are_found, how_far_from_perfect, engines_pull,
            traces_are_read, logs_of_nginx_are_read,
            what_is_drawn_is_a_file, mistakes_are_told])


if __name__ == "__main__":
    sys.exit(main())
