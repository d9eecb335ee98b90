#!/usr/bin/python3
"""The demo: one trace, two policies, four engine stand-ins, a real nginx.

Starts Redis, the engines, a kv-relay beside each, and nginx with the module in
a temporary directory on free loopback ports, replays the same part of the Mooncake trace once with
round_robin and once with kv_cost (between them an `nginx -s reload`), and
prints what the clients saw.  The status is 0 when no request failed and
kv_cost was better in hit rate and time to first token.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import redis

import mooncake
from processes import (DemoError, Process, free_port, run_attached,
                       wait_until)
from worker import Worker

DEMO = Path(__file__).resolve().parent
REPOSITORY = DEMO.parent

# The fleet and the load are chosen together: with round_robin the engines
# prefill about 55 % of the time, and a cache holds some 110 of the prompts.
WORKERS = ("w1", "w2", "w3", "w4")
BLOCK_SIZE = 16
BLOCKS = 24_000
PREFILL_US, DECODE_US = 35, 4000
SCALE = 4
SPEEDUP = 6.5
REQUESTS = 800
KEEP_REQUESTS = 200             # with --keep only a taste

POLICIES = ("round_robin", "kv_cost")
PROBE = list(range(1, 1 + 4 * BLOCK_SIZE))      # a prompt no trace has
PROBES_OF_TRACE = 20
PERCENTILES = ("p50", "p90", "p99")


def http(method, url, body=None):
    """One request on a new connection: the body of a 200, else OSError."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data=data, method=method,
        headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return response.read()
    except urllib.error.HTTPError as err:
        raise OSError(f"{method} {url}: {err.code} "
                      f"{err.read(200).decode(errors='replace')}") from err


class Demo:
    """Everything that runs, and the steps of the demo."""

    def __init__(self, module, relay, directory):
        self.module = module
        self.relay = relay
        self.directory = directory
        self.processes = {}
        self.engines = {}                       # worker -> host:port
        self.redis_port = free_port()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    # ------------------------------------------------------------- starting

    def start(self, policy):
        """Starts all and waits until events flow from engines to router."""
        self._spawn("redis", [
            "redis-server", "--bind", "127.0.0.1", "--port",
            str(self.redis_port), "--save", "", "--appendonly", "no",
            "--maxmemory-policy", "noeviction"])
        client = redis.Redis(host="127.0.0.1", port=self.redis_port)

        def redis_answers():
            try:
                return client.ping()
            except redis.ConnectionError as err:
                raise OSError(str(err)) from err

        self._wait("redis", "redis answers", redis_answers)
        workers = [Worker(
            name, self.directory, "--block-size", str(BLOCK_SIZE),
            "--blocks", str(BLOCKS),
            "--prefill-us-per-token", str(PREFILL_US),
            "--decode-us-per-token", str(DECODE_US), "--seed", str(seed))
            for seed, name in enumerate(WORKERS)]
        for worker in workers:
            self.processes[worker.name] = worker.engine
        for worker in workers:
            worker.wait_ready()
            self.engines[worker.name] = worker.address
            worker.start_relay(self.relay, self._redis_url(),
                               "--block-size", str(BLOCK_SIZE))
            self.processes[worker.relay.name] = worker.relay
        self._write_conf(policy)
        self._spawn("nginx", ["nginx", "-p", f"{self.directory}/",
                              "-c", "nginx.conf", "-e", "error.log"])
        self._wait("nginx", "nginx answers", lambda: self._policy_is(policy))

    def stop(self):
        """Stops what was started, the last one first."""
        for process in reversed(self.processes.values()):
            process.stop()

    def tails(self):
        """The ends of the logs, for a failure's report."""
        logs = [(process.log.name, process.tail())
                for process in self.processes.values()]
        with contextlib.suppress(OSError):
            lines = (self.directory / "error.log").read_text(
                errors="replace").splitlines()
            logs.append(("error.log", "\n".join(lines[-20:])))
        return "\n".join(f"--- {name}\n{text}" for name, text in logs if text)

    def _spawn(self, name, command):
        try:
            self.processes[name] = Process(name, command, self.directory)
        except OSError as err:
            raise DemoError(f"{command[0]} can't be started: {err}") from err

    def _wait(self, name, what, check):
        def alive_and_checked():
            self.processes[name].check_alive()
            return check()
        return wait_until(what, alive_and_checked)

    # ---------------------------------------------------------------- nginx

    def _redis_url(self):
        return f"redis://127.0.0.1:{self.redis_port}"

    def _write_conf(self, policy):
        names = {
            "MODULE": str(self.module),
            "USER": "user  root;" if os.geteuid() == 0 else "",
            "BLOCK_SIZE": str(BLOCK_SIZE),
            "REDIS": self._redis_url(),
            "WORKERS": "\n".join(
                f"    kv_router_worker main {worker} {address};"
                for worker, address in self.engines.items()),
            "LUA": str(REPOSITORY / "lua"),
            "POLICY": policy,
            "PORT": str(self.port)}
        text = (DEMO / "nginx.conf.in").read_text()
        conf = re.sub(r"@([A-Z_]+)@", lambda name: names[name[1]], text)
        (self.directory / "nginx.conf").write_text(conf)

    def _policy_is(self, policy):
        return http("GET", self.url + "/demo/policy").decode() == policy

    def reload(self, policy):
        """Another policy by `nginx -s reload`, as a user would."""
        self._write_conf(policy)
        self.processes["nginx"].signal(signal.SIGHUP)
        self._wait("nginx", f"the policy is {policy} after the reload",
                   lambda: all(self._policy_is(policy) for _ in range(10)))

    # --------------------------------------------------------------- caches

    def check_events(self):
        """A prompt computed by every engine is known for every worker."""
        for address in self.engines.values():
            http("POST", f"http://{address}/v1/completions",
                 {"prompt": PROBE, "max_tokens": 2})
        wait_until("the router has seen events of all engines",
                   lambda: self._holders(PROBE) == set(WORKERS))

    def reset_caches(self, probes):
        """Empties all engines and waits until the router knows it."""
        for address in self.engines.values():
            wait_until("the caches are reset", lambda url=address: http(
                "POST", f"http://{url}/reset_prefix_cache") == b"")
        wait_until("the router has seen that the caches are empty",
                   lambda: not any(map(self._holders, probes)))

    def _holders(self, tokens):
        answer = json.loads(http("POST", self.url + "/kv/query",
                                 {"tokens": tokens}))
        return {score["worker_id"] for score in answer["scores"]}

    # --------------------------------------------------------------- replay

    def replay(self, policy, count):
        """One run of the trace; the summary as replay.py wrote it."""
        probes = [PROBE] + [request.prompt() for request in mooncake.load(
            DEMO / "conversation_trace.jsonl", PROBES_OF_TRACE, SCALE)]
        self.check_events()
        self.reset_caches(probes)
        output = self.directory / f"{policy}.json"
        run_attached([
            sys.executable, str(DEMO / "replay.py"),
            "--url", self.url + "/v1/completions", "--requests", str(count),
            "--speedup", str(SPEEDUP), "--scale", str(SCALE),
            "--block-size", str(BLOCK_SIZE), "--output", str(output),
            "--progress", "--label", f"{policy}: "], self.directory)
        for process in self.processes.values():
            process.check_alive()
        if not output.exists():
            raise DemoError("the replay was broken off")
        return json.loads(output.read_text())


# ------------------------------------------------------------------ reports

def print_table(summaries):
    """One line per policy."""
    heads = ("policy", "requests", "errors", "cache hit rate", "TTFT p50",
             "p90", "p99", "share per worker")
    rows = [heads]
    for policy, summary in summaries.items():
        total = sum(summary["workers"].values()) or 1
        rows.append((
            policy, str(summary["requests"]), str(summary["errors"]),
            f"{summary['hit_rate']:.1%}",
            *(milliseconds(summary["ttft"][p]) for p in PERCENTILES),
            "  ".join(f"{worker} {count / total:.0%}" for worker, count
                      in summary["workers"].items()) or "-"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    rows.insert(1, ["-" * width for width in widths])
    print()
    for row in rows:
        print(" | ".join(cell.ljust(width)
                         for cell, width in zip(row, widths)).rstrip())
    print()


def milliseconds(seconds):
    """Seconds as text, `-` for none."""
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"


def verdict(summaries):
    """What is to be said at the end, and whether kv_cost has won."""
    failed = sum(summary["errors"] for summary in summaries.values())
    if failed:
        return f"{failed} requests failed.", False
    base, best = (summaries[policy] for policy in POLICIES)
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


def print_hints(demo):
    """What to try while everything is up."""
    prompt = json.dumps(PROBE, separators=(",", ":"))
    data = "-H 'Content-Type: application/json' -d"
    print(f"""Everything is up, logs are in {demo.directory}. To try:

  # a completion of a prompt of token ids; again, and it is cached
  curl -si {demo.url}/v1/completions {data} '{{"prompt":{prompt},"max_tokens":8}}'

  # a chat
  curl -s {demo.url}/v1/chat/completions {data} '{{"messages":[{{"role":"user","content":"Hello"}}],"max_tokens":8}}'

  # who has how many blocks of a prompt
  curl -s {demo.url}/kv/query {data} '{{"tokens":{prompt}}}'

  # the workers, and the metrics
  curl -s {demo.url}/kv/workers
  curl -s '{demo.url}/status?format=prometheus'

  # how each request was routed
  tail -f {demo.directory}/access.log

Ctrl-C stops everything.""", flush=True)


# --------------------------------------------------------------------- main

def parse_options():
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Compare round_robin and kv_cost on a recorded trace.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--module", metavar="FILE", type=Path, default=Path(
        REPOSITORY / "build" / "ngx_http_kv_router_module.so"),
        help="the nginx module")
    parser.add_argument("--relay", metavar="FILE", type=Path,
                        default=Path(REPOSITORY / "build" / "kv-relay"),
                        help="the program beside each engine")
    parser.add_argument("--keep", action="store_true",
                        help="replay a little with kv_cost, then leave "
                             "everything up until Ctrl-C")
    return parser.parse_args()


def compare(demo):
    """Both runs and their report; returns the program's status."""
    summaries = {}
    demo.start(POLICIES[0])
    for policy in POLICIES:
        if summaries:
            demo.reload(policy)
        summaries[policy] = demo.replay(policy, REQUESTS)
    print_table(summaries)
    text, won = verdict(summaries)
    print(text)
    return 0 if won else 1


def keep(demo):
    """A short run, then everything stays up until a signal."""
    demo.start("kv_cost")
    summary = demo.replay("kv_cost", KEEP_REQUESTS)
    print_table({"kv_cost": summary})
    print_hints(demo)
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()
    return 1 if summary["errors"] else 0


def terminate(*_):
    """SIGTERM ends as Ctrl-C does."""
    raise KeyboardInterrupt


def main():
    """The program."""
    options = parse_options()
    for file in (options.module, options.relay):
        if not file.is_file():
            sys.exit(f"{file} isn't there: build it first, by `make`")
    signal.signal(signal.SIGTERM, terminate)
    directory = Path(tempfile.mkdtemp(prefix="kv-router-demo-"))
    demo = Demo(options.module.resolve(), options.relay.resolve(), directory)
    status = 1
    keep_logs = False
    try:
        status = (keep if options.keep else compare)(demo)
    except DemoError as err:
        keep_logs = True
        print(f"{demo.tails()}\n\ndemo: {err}\n"
              f"demo: logs are in {directory}", file=sys.stderr)
    except KeyboardInterrupt:
        status = 130
        print("\ndemo: stopped", file=sys.stderr)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        demo.stop()
        if not keep_logs:
            shutil.rmtree(directory, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
