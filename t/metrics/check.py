#!/usr/bin/python3
"""Metrics, held against Prometheus itself: promtool likes the format, each
alert fires in its case alone, and every panel of the dashboards shows
something of the demo's fleet, which a real Prometheus scraped.

    t/metrics/check.py [--module FILE] [--relay FILE]
"""

import argparse
import json
import math
import re
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [str(REPOSITORY / "demo")]

# pylint: disable=wrong-import-position
import tap                                                      # noqa: E402
from alerts import CASES, RULES, alerts, fires                  # noqa: E402
from fleet import (Engines, Policy, add_options, http, session)  # noqa: E402
from processes import Process, free_port, wait_until            # noqa: E402

ENGINES = Engines(blocks=4_000, prefill_us=20, queue=256)
BOARDS = sorted((REPOSITORY / "contrib/grafana").glob("*.json"))
LOAD = ("--requests", "40", "--speedup", "20", "--scale", "8")
TEXT = ("--chats", "12", "--text", "--speedup", "20")
SCRAPE = "1s"
RANGE = "15s"                   # of rates, here
FULL = 6                        # requests at once at workers with room for one

fleet = None                    # set by main()
prometheus = None               # its URL


def scraped(path, accept="*/*"):
    """A page of the router, as text."""
    done = subprocess.run(["curl", "-sSf", "-H", f"Accept: {accept}",
                           fleet.url + path], capture_output=True, text=True,
                          check=True)
    return done.stdout


def ask(expr):
    """What Prometheus answers to a query: the values."""
    url = prometheus + "/api/v1/query?query=" + urllib.parse.quote(expr)
    answer = json.loads(http("GET", url))
    assert answer["status"] == "success", answer
    return [float(one["value"][1]) for one in answer["data"]["result"]]


def queries():
    """Every query of the boards: (board, panel, expression)."""
    for path in BOARDS:
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                expr = target["expr"].replace("$__rate_interval", RANGE)
                expr = re.sub(r"\$(zone|worker)\b", ".*", expr)
                assert "$" not in expr, expr
                yield path.name, panel["title"], expr


# ------------------------------------------------------------------- checks

def the_format_is_liked():
    """promtool finds nothing wrong with the metrics of router and relay"""
    relay = next(iter(fleet.relay_addresses().values()))
    for text in (scraped("/status?format=prometheus"),
                 http("GET", f"http://{relay}/metrics").decode()):
        done = subprocess.run(["promtool", "check", "metrics"], input=text,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def rules_are_read():
    """promtool reads the rules of the alerts"""
    done = subprocess.run(["promtool", "check", "rules", RULES],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def no_alert_fires_when_all_is_well():
    """no alert fires when all is well"""
    good, said = fires("", {})
    assert good, said


def each_alert_has_a_case():
    """each alert has a case"""
    assert alerts() == {name.split()[0] for name in CASES}, alerts()


def each_alert_fires_alone():
    """each alert fires in its case, and no other does"""
    for name, changes in CASES.items():
        good, said = fires(name.split()[0], changes)
        assert good, f"{name}: {said}"


def everything_is_scraped():
    """Prometheus reads the router, by OpenMetrics, and each relay"""
    wait_until("Prometheus has scraped all",
               lambda: ask("up") == [1.0] * (1 + len(fleet.engines)), 60)


def every_panel_shows_something():
    """each query of each panel gives data while the fleet works"""
    missing = {}

    def look():
        for one in queries():
            values = [value for value in ask(one[2])
                      if not math.isnan(value)]
            if values:
                missing.pop(one, None)
            else:
                missing.setdefault(one)
        return not missing

    done = threading.Event()
    load = threading.Thread(target=work, args=(done,), daemon=True)
    load.start()
    try:
        wait_until("each panel has data", look, 240)
    except Exception as err:
        raise AssertionError("no data: " + "; ".join(
            f"{board}: {panel}: {expr}" for board, panel, expr in missing)
        ) from err
    finally:
        done.set()
        load.join()
    print(f"# {len(list(queries()))} queries of {len(BOARDS)} dashboards")


# --------------------------------------------------------------------- load

def work(done):
    """Replays, and fills the workers, until it is told to end."""
    while not done.is_set():
        fleet.replay(LOAD, progress=False)
        fleet.replay(TEXT, progress=False)
        fill()


def fill():
    """For a while every worker has room for one request, so that some wait
    for room."""
    bound(1)
    threads = [threading.Thread(target=http, args=(
        "POST", fleet.url + "/v1/completions",
        {"prompt": [n] * 2000, "max_tokens": 40}))
        for n in range(FULL * len(fleet.engines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bound(0)


def bound(most):
    """The maximum number of requests of each worker."""
    for worker, address in fleet.engines.items():
        http("PUT", f"{fleet.url}/kv/workers/{worker}",
             {"address": address, "max_active": most})


# --------------------------------------------------------------------- main

def start_prometheus():
    """Starts a Prometheus that scrapes the fleet; its URL."""
    port = free_port()
    relays = sorted(fleet.relay_addresses().values())
    conf = {
        "global": {"scrape_interval": SCRAPE},
        "scrape_configs": [
            {"job_name": "router", "metrics_path": "/status",
             "params": {"format": ["prometheus"]},
             "static_configs": [{"targets": [fleet.url[len("http://"):]]}]},
            {"job_name": "relays",
             "static_configs": [{"targets": relays}]}]}
    path = fleet.directory / "prometheus.yml"
    path.write_text(json.dumps(conf))
    fleet.processes["prometheus"] = Process("prometheus", [
        "prometheus", f"--config.file={path}",
        f"--storage.tsdb.path={fleet.directory}/prometheus",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"],
        fleet.directory)
    url = f"http://127.0.0.1:{port}"
    wait_until("Prometheus answers",
               lambda: http("GET", url + "/-/ready") is not None)
    return url


def run(one):
    """The checks; the status of the program."""
    global fleet, prometheus    # pylint: disable=global-statement
    fleet = one
    fleet.start(Policy("kv_cost"))
    prometheus = start_prometheus()
    started = time.monotonic()
    status = tap.run([rules_are_read, each_alert_has_a_case,
                      no_alert_fires_when_all_is_well,
                      each_alert_fires_alone, the_format_is_liked,
                      everything_is_scraped, every_panel_shows_something])
    print(f"# {time.monotonic() - started:.0f} s")
    return status


def main():
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n",
                                                               maxsplit=1)[0])
    add_options(parser)
    return session(parser.parse_args(), ENGINES, run)


if __name__ == "__main__":
    sys.exit(main())
