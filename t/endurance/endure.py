#!/usr/bin/python3
"""A fleet with everything on, for hours, with faults at random: two routers of
two processes, Redis, six engines with events and their relays, two engines
without, clients, and a gateway that selects.

    t/endurance/endure.py [--requests N] [--seconds N] [--fault SECONDS]
                          [--report FILE]

It ends after so many requests, or so many seconds, whichever comes first.  Then
all faults end, and it waits until nothing is on its way.  It ends with 1, if

  * a request was lost without a reason: a stream of an engine that died, or a
    process of nginx that was killed;
  * an answer was another request's;
  * load, a reservation, or a request that waits is left in a router;
  * a router's index is not what the engines have;
  * a log has an alert, or a mistake of Lua;
  * the memory of a process which was never restarted grew by more than a tenth
    (and 4 MB) in the last two fifths of the time, if that is 20 minutes at
    least.

Router a, Redis' memory apart, the engines w1 and w2 and their relays are never
killed or reloaded, so that their memory can be compared: they only feel what
happens to the others.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "t/endurance"
sys.path[:0] = [str(ROOT / "t/system")]

# pylint: disable=wrong-import-position
import stage                                                    # noqa: E402
from stage import scores_of                                     # noqa: E402
from processes import Process, free_port, wait_until             # noqa: E402

BUILD = Path(os.environ.get("KVR_BUILD") or ROOT / "build")
MODEL = ROOT / "t/vectors/model"
EVENTS = [f"w{i}" for i in range(1, 7)]         # engines with events
ESTIMATED = ["e1", "e2"]
SPARED = ("a", "w1", "w2")                      # never killed
BLOCKS = 16000                  # of an engine's cache
MAX_ACTIVE = 8                  # requests of an engine
CLIENTS = 64
SAMPLE = 10                     # seconds between two looks at the memory
PATIENCE = 180                  # seconds until nothing is on its way
LATE = 0.5                      # seconds after a death that it still explains
PROMPTS = 300                   # that are looked for in the end
GROWTH, GROWTH_BYTES = 1.1, 4 << 20
LEAST = 1200                    # seconds: before them memory may grow
# in a router's log, whatever happens to the others
WRONG = re.compile(r"\[(alert|emerg|crit)\]|lua entry thread aborted"
                   r"|runtime error|exited on signal|below_zero")

args = None                     # of the command line
directory = None                # of this run


def call(port, method, path, body=None, timeout=30):
    """The answer of a server here, decoded; OSError unless it is a 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body and json.dumps(body))
        answer = connection.getresponse()
        data = answer.read()
    except http.client.HTTPException as err:
        raise ConnectionError(f"{method} {path}: {err!r}") from err
    finally:
        connection.close()
    if answer.status != 200:
        raise OSError(f"{method} {path}: {answer.status} {data[:200]}")
    return json.loads(data) if data[:1] in b"{[" else data


def children(pid):
    """The processes that a process has started."""
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(
            f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


class Server:
    """A program that runs: nginx, a relay, or Redis."""

    def __init__(self, name, command):
        self.name, self.command = name, command
        self.starts = 0
        self.port = free_port(1, 2)
        self.process = None

    def start(self):
        """Starts it."""
        self.starts += 1
        self.process = Process(f"{self.name}-{self.starts}",
                               [*map(str, self.command)], directory)

    def kill(self):
        """Kills it with all its processes at once."""
        os.killpg(self.process.pid(), signal.SIGKILL)
        self.process.wait()

    def signal(self, number):
        """Sends a signal to all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid(), number)

    def pids(self):
        """Its processes, the first one first."""
        return [self.process.pid(), *children(self.process.pid())]


class Nginx(Server):
    """An nginx of this folder: its conf is conf.in with names filled in."""

    def __init__(self, kind, name, **names):
        conf, self.log = (directory / f"{name}.{what}"
                          for what in ("conf", "error.log"))
        super().__init__(name, ["nginx", "-p", f"{directory}/", "-c", conf,
                                "-e", self.log])
        names |= {"NAME": name, "PORT": self.port, "HERE": HERE,
                  "LUA": ROOT / "lua", "MODEL": MODEL,
                  "USER": "user  root;" if os.geteuid() == 0 else ""}
        conf.write_text(re.sub(r"@([A-Z_]+)@", lambda at: str(names[at[1]]),
                               (HERE / f"{kind}.conf.in").read_text()))

    def answers(self, path):
        """Starts it, and waits until it answers."""
        self.start()
        wait_until(f"{self.name} answers",
                   lambda: call(self.port, "GET", path))

    def call(self, method, path, body=None):
        """The answer to a request."""
        return call(self.port, method, path, body)


class Fleet:
    """All servers."""

    def __init__(self):
        self.redis = Server("redis", [])
        self.redis.command = ["redis-server", "--bind", "127.0.0.1", "--port",
                              self.redis.port, "--save", "",
                              "--maxmemory-policy", "noeviction"]
        url = f"redis://127.0.0.1:{self.redis.port}"
        self.engines, self.relays = {}, {}
        for name in EVENTS + ESTIMATED:
            events = free_port(1) if name in EVENTS else "nil"
            engine = self.engines[name] = Nginx(
                "engine", name, LIBRARY=BUILD / "libkvr.so", BLOCKS=BLOCKS,
                EVENTS=events)
            if name in EVENTS:
                self.relays[name] = Server(f"relay-{name}", [
                    BUILD / "kv-relay", "--worker", name, "--redis", url,
                    "--events", f"tcp://127.0.0.1:{events}", "--replay",
                    f"tcp://127.0.0.1:{events + 1}", "--address",
                    f"127.0.0.1:{engine.port}", "--engine", "vllm"])
        workers = "\n".join(
            f"    kv_router_worker  main {name} 127.0.0.1:{engine.port} "
            f"engine=vllm max_active={MAX_ACTIVE} " + (
                "events=on" if name in EVENTS
                else f"events=off capacity={16 * BLOCKS}") + ";"
            for name, engine in self.engines.items())
        self.routers = {name: Nginx(
            "router", name, REDIS=url, WORKERS=workers, MODULE=stage.MODULE)
            for name in "ab"}
        self.client = Nginx(
            "client", "client", CLIENTS=CLIENTS, SEED=args.seed,
            LOG=directory / "lost.log",
            **{f"PORT_{name.upper()}": router.port
               for name, router in self.routers.items()})

    def start(self):
        """Starts all, the clients last."""
        self.redis.start()
        for engine in self.engines.values():
            engine.answers("/health")
        for relay in self.relays.values():
            relay.start()
        for router in self.routers.values():
            router.answers("/status")
        wait_until("the views are exact", self.exact)
        self.client.answers("/counts")

    def all(self):
        """All servers."""
        return [self.redis, *self.engines.values(), *self.relays.values(),
                *self.routers.values(), self.client]

    def exact(self):
        """Has each router exact views of all engines with events?"""
        return all(worker["confidence"] == "EXACT"
                   for router in self.routers.values()
                   for worker in router.call("GET", "/kv/workers")
                   if worker["worker_id"] in EVENTS)

    def stop(self):
        """Ends all."""
        for server in self.all():
            if server.process:
                server.signal(signal.SIGCONT)
        for server in reversed(self.all()):
            if server.process:
                server.process.stop()


class Faults(threading.Thread):
    """One fault after the other, of a random kind, at a random place.  The
    thread itself does not end: what it started would end with it."""

    def __init__(self, fleet):
        super().__init__(daemon=True)
        self.fleet = fleet
        self.rng = random.Random(args.seed)
        self.over, self.ended = threading.Event(), threading.Event()
        self.done = []                  # (kind, whom, from, to)
        self.failed = None

    def run(self):
        kinds = [getattr(self, name) for name in dir(self)
                 if name.startswith("do_")]
        try:
            while not self.over.wait(self.rng.uniform(0.5, 1.5) * args.fault):
                kind = self.rng.choice(kinds)
                begun = time.time()
                whom = kind()
                self.done.append((kind.__doc__, whom, begun, time.time()))
        except Exception as err:        # pylint: disable=broad-except
            self.failed = repr(err)
        self.ended.set()
        threading.Event().wait()

    def some(self, names):
        """One that may be killed."""
        return self.rng.choice([name for name in names if name not in SPARED])

    def pause(self, longest=3):
        """For how long something is away."""
        time.sleep(self.rng.uniform(0.2, longest))

    def halt(self, server, name, longest=3):
        """Stops processes for some time."""
        server.signal(signal.SIGSTOP)
        self.pause(longest)
        server.signal(signal.SIGCONT)
        return name

    def again(self, server, name):
        """Kills a server, and starts it again."""
        server.kill()
        self.pause()
        server.start()
        return name

    def do_engine_dies(self):
        """an engine is killed, and starts again, empty"""
        name = self.some(self.fleet.engines)
        return self.again(self.fleet.engines[name], name)

    def do_engine_stops(self):
        """an engine stands still"""
        name = self.rng.choice([*self.fleet.engines])
        return self.halt(self.fleet.engines[name], name)

    def do_engine_clears(self):
        """an engine clears its cache"""
        name = self.rng.choice([*self.fleet.engines])
        self.fleet.engines[name].call("POST", "/clear")
        return name

    def do_messages_lost(self):
        """messages of an engine are lost on their way to the relay"""
        name = self.rng.choice(EVENTS)
        self.fleet.engines[name].call("POST", f"/drop?n={self.rng.randint(1, 9)}")
        return name

    def do_relay_dies(self):
        """a relay is killed, and starts again"""
        name = self.some(EVENTS)
        return self.again(self.fleet.relays[name], name)

    def do_relay_stops(self):
        """a relay stands still"""
        name = self.rng.choice(EVENTS)
        return self.halt(self.fleet.relays[name], name)

    def do_redis_dies(self):
        """Redis is killed, and starts again, empty"""
        return self.again(self.fleet.redis, "redis")

    def do_redis_stops(self):
        """Redis stands still"""
        return self.halt(self.fleet.redis, "redis", 5)

    def do_router_dies(self):
        """a process of router b is killed"""
        pids = children(self.fleet.routers["b"].process.pid())
        os.kill(self.rng.choice(pids), signal.SIGKILL)
        return "b"

    def do_router_stops(self):
        """a process of a router stands still"""
        name = self.rng.choice("ab")
        pid = self.rng.choice(children(self.fleet.routers[name].process.pid()))
        os.kill(pid, signal.SIGSTOP)
        self.pause(2)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        return name

    def do_drain(self):
        """a worker drains in both routers, and serves again"""
        name = self.rng.choice([*self.fleet.engines])
        for drain in (True, False):
            for router in self.fleet.routers.values():
                router.call("POST", f"/kv/workers/{name}/drain",
                            {"drain": drain})
            self.pause()
        return name

    def do_reload(self):
        """router b is reloaded"""
        self.fleet.routers["b"].process.signal(signal.SIGHUP)
        return "b"


class Gateway(threading.Thread):
    """Selects workers itself, and forgets each tenth reservation."""

    def __init__(self, fleet):
        super().__init__(daemon=True)
        self.fleet = fleet
        self.rng = random.Random(args.seed + 1)
        self.over = threading.Event()
        self.counts = {"selected": 0, "forgotten": 0, "refused": 0, "failed": 0}

    def run(self):
        while not self.over.wait(0.1):
            try:
                self.counts[self.once()] += 1
            except OSError as err:
                self.counts["refused" if ": 429 " in str(err)
                            else "failed"] += 1

    def once(self):
        """One choice; what became of it."""
        router = self.rng.choice([*self.fleet.routers.values()])
        chosen = router.call("POST", "/kv/select?path=/v1/completions", {
            "prompt": [self.rng.randrange(1000) for _ in range(64)]})
        if self.rng.random() < 0.1:
            return "forgotten"
        for event in ("first", "renew", "end"):
            router.call("POST", f"/kv/reservations/{chosen['id']}",
                        {"event": event})
        return "selected"


class Watch(threading.Thread):
    """Memory and open files of all processes, from time to time."""

    def __init__(self, fleet):
        super().__init__(daemon=True)
        self.fleet = fleet
        self.over = threading.Event()
        self.begun = time.time()
        self.rows = {}          # (server, pid) -> [(second, bytes, files)]
        self.sent = []          # (second, requests)

    def run(self):
        while not self.over.wait(SAMPLE):
            self.look()

    def look(self):
        """One look at all."""
        second = time.time() - self.begun
        for server in self.fleet.all():
            for pid in server.pids():
                # OSError, TypeError: the process has ended
                with contextlib.suppress(OSError, TypeError):
                    found = re.search(r"^RssAnon:\s+(\d+) kB", Path(
                        f"/proc/{pid}/status").read_text(), re.M)
                    self.rows.setdefault((server.name, pid), []).append(
                        (second, int(found[1]) * 1024,
                         len(os.listdir(f"/proc/{pid}/fd"))))
        with contextlib.suppress(OSError):
            self.sent.append((second,
                              self.fleet.client.call("GET", "/counts")["sent"]))

    def lived(self):
        """The rows of those that were there all the time, by name; of a
        server's processes the master has the bare name."""
        end = self.sent[-1][0]
        found, seen = {}, {}
        for (name, _), rows in sorted(self.rows.items()):
            if rows[0][0] < 3 * SAMPLE and rows[-1][0] > end - 3 * SAMPLE:
                number = seen[name] = seen.get(name, -1) + 1
                found[f"{name}, process {number}" if number else name] = rows
        return found


def median(rows, first, last, column):
    """The middle value of a column between two seconds."""
    values = sorted(row[column] for row in rows if first <= row[0] <= last)
    return values[len(values) // 2] if values else 0


# -------------------------------------------------------------------- the end

def left(fleet):
    """What is on its way, or open, in a router; "": nothing."""
    found = []
    for name, router in fleet.routers.items():
        status = router.call("GET", "/status")
        for worker in status["workers"]:
            found += [f"{name}: {worker['worker_id']} {what}={row[what]}"
                      for row in worker["load"] for what in row
                      if what != "dp_rank" and row[what]]
        for kind in ("classes", "tenants"):
            rows = status["queue"][kind]
            rows = rows.items() if isinstance(rows, dict) else (
                (row.get("class") or row.get("tenant"), row) for row in rows)
            found += [f"{name}: {kind} {one} {what}={row[what]}"
                      for one, row in rows for what in ("waiting", "active")
                      if row.get(what)]
        if status["index"]["load_below_zero"]:
            found.append(f"{name}: load_below_zero="
                         f"{status['index']['load_below_zero']}")
        metrics = router.call("GET", "/status?format=prometheus").decode()
        found += re.findall(r"^kv_router_reservations\{.*\} [1-9].*$", metrics,
                            re.M)
    return ", ".join(found)


def prefix(i):
    """The same as in client.lua."""
    return [(i * 7919 + j * 31) % 30000 + 1000
            for j in range(1, 48 + i * 7 % 200 + 1)]


def compared(fleet):
    """The blocks that were compared, and where a router's index differs from
    the engines' caches."""
    rng, wrong, same = random.Random(args.seed), [], 0
    held = {name: fleet.engines[name].call("POST", "/depth", {
        "prompt": [1]})["blocks"] for name in EVENTS}
    for name, router in fleet.routers.items():
        for worker in router.call("GET", "/status")["workers"]:
            one = worker["worker_id"]
            has = sum(row["blocks"] for row in worker["held"])
            if one in EVENTS and has != held[one]:
                wrong.append(f"{name}: {one} has {has} blocks of {held[one]}")
    for _ in range(PROMPTS):
        prompt = prefix(int(4000 * rng.random() ** 3) + 1)
        depths = {name: fleet.engines[name].call("POST", "/depth", {
            "prompt": prompt})["depth"] for name in EVENTS}
        for name, router in fleet.routers.items():
            connection = http.client.HTTPConnection("127.0.0.1", router.port)
            connection.request("POST", "/kv/query", json.dumps(
                {"tokens": prompt}))
            scores = scores_of(connection.getresponse().read())
            connection.close()
            for one, depth in depths.items():
                has = scores.get((one, 0), (0,))[0]
                same += depth
                if has != depth:
                    wrong.append(f"{name}: {one} has {has} of {depth}")
    return same, wrong


def settled(fleet):
    """Waits until nothing is on its way, and all is exact."""
    try:
        wait_until("nothing is on its way", lambda: not left(fleet), PATIENCE)
        wait_until("the views are exact", fleet.exact, PATIENCE)
        wait_until("the caches are told", lambda: not compared(fleet)[1], 30)
    except Exception as err:            # pylint: disable=broad-except
        print(f"endure: {err}", flush=True)


def explained(lost, faults):
    """Why a request was lost, by what was done then; None: by nothing."""
    for kind, whom, begun, ended in faults:
        if lost["ended"] < begun or lost["begun"] > ended + LATE:
            continue
        if kind.startswith("an engine is killed") and (
                lost["worker"] in (None, whom)):
            return "its engine was killed"
        if kind.startswith("a process of router b is") \
                and lost["router"] == "b":
            return "its process of nginx was killed"
    return None


def judged(fleet, watch, faults, counts):
    """What is wrong in the end, in words; and why requests were lost."""
    wrong, reasons = [], {}
    path = directory / "lost.log"
    for line in path.read_text().splitlines() if path.exists() else ():
        lost = json.loads(line)
        why = lost["what"] == "lost" and explained(lost, faults.done)
        if why:
            reasons[why] = reasons.get(why, 0) + 1
        else:
            wrong.append(f"request: {line}")
    if faults.failed:
        wrong.append(f"faults: {faults.failed}")
    if counts["running"]:
        wrong.append(f"clients: {counts['running']} still run")
    if left(fleet):
        wrong.append(f"left: {left(fleet)}")
    killed = sum(kind == Faults.do_router_dies.__doc__
                 for kind, *_ in faults.done)
    for name, router in fleet.routers.items():
        lines = [line for line in router.log.read_text(
            errors="replace").splitlines() if WRONG.search(line)]
        deaths = [line for line in lines if "exited on signal 9" in line]
        if len(deaths) > (killed if name == "b" else 0):
            wrong.append(f"router {name}: {len(deaths)} processes died")
        wrong += [f"router {name}: {line}" for line in lines
                  if line not in deaths]
    end = watch.sent[-1][0]
    for name, rows in watch.lived().items() if end > LEAST else ():
        early, late = (median(rows, end * part, end * (part + .1), 1)
                       for part in (.6, .9))
        if late > GROWTH * early and late - early > GROWTH_BYTES:
            wrong.append(f"{name}: {early >> 10} KB became {late >> 10} KB")
    return wrong, reasons


def report(watch, faults, gateway, counts, same, wrong, reasons, fleet):
    """The report, as Markdown."""
    end = watch.sent[-1][0]
    lines = [
        "# A fleet with everything on", "",
        f"{counts['sent']:,} requests in {end / 60:.0f} minutes "
        f"({counts['sent'] / end:,.0f} a second), {len(faults.done)} faults, "
        f"seed {args.seed}. What runs, and what is looked at: "
        "[endure.py](endure.py).", "",
        "| requests | |", "|---|---|"]
    lines += [f"| {what} | {counts[name]:,} |" for what, name in (
        ("of token ids", "ids"), ("of texts", "texts"), ("chats", "chats"),
        ("of all, streams", "streams"), ("answered whole", "whole"),
        ("refused with 429", "refused"), ("left by the client", "left"),
        ("answered with what is another's", "wrong"), ("lost", "lost"))]
    lines += [f"| ... because {why} | {n:,} |" for why, n in
              sorted(reasons.items())]
    lines += [
        f"| cached tokens, of all | {counts['cached'] / counts['tokens']:.1%} |",
        "", "| the gateway | |", "|---|---|",
        *(f"| {what} | {n:,} |" for what, n in gateway.counts.items()),
        "", "| faults | |", "|---|---|"]
    kinds = [kind for kind, *_ in faults.done]
    lines += [f"| {kind} | {kinds.count(kind)} |" for kind in sorted(set(kinds))]
    parts = (.05, .25, .5, .6, .75, .85, .99)
    lines += [
        "", "Memory (RssAnon, KB; medians around that minute) and open files of "
        "the processes that lived through all of it:", "",
        "| process | " + " | ".join(f"{end * part / 60:.0f}" for part in parts)
        + " | files, first | last |",
        "|---|" + "---|" * (len(parts) + 2)]
    for name, rows in watch.lived().items():
        lines.append(f"| {name} | " + " | ".join(
            f"{median(rows, end * part - 60, end * part + 60, 1) >> 10}"
            for part in parts) + f" | {rows[0][2]} | {rows[-1][2]} |")
    lines += ["", "The most of the others, which were started again:", "",
              "| server | starts | KB | files |", "|---|---|---|---|"]
    for server in fleet.all():
        rows = [row for (name, _), all_rows in watch.rows.items()
                for row in all_rows if name == server.name]
        if server.starts > 1 or server.name == "b":
            lines.append(f"| {server.name} | {server.starts} | "
                         f"{max(row[1] for row in rows) >> 10} | "
                         f"{max(row[2] for row in rows)} |")
    lines += ["", f"In the end {PROMPTS} prompts were looked for: {same:,} blocks "
              "of engines and routers compared."]
    lines += ["", "**Wrong:**", "", *(f"* {line[:300]}" for line in wrong[:50])] \
        if wrong else ["", "Nothing was wrong: no request without a reason, no "
                       "load, reservation or waiting request left, each index "
                       "as cached, no alert in a log, no memory that grew."]
    return "\n".join(lines) + "\n"


def run(fleet):
    """All of it; True: nothing was wrong."""
    fleet.start()
    watch, faults, gateway = Watch(fleet), Faults(fleet), Gateway(fleet)
    for thread in (watch, faults, gateway):
        thread.start()
    until, said, counts = time.time() + args.seconds, 0, {}
    while time.time() < until and counts.get("sent", 0) < args.requests:
        time.sleep(1)
        counts = fleet.client.call("GET", "/counts")
        if time.time() - said > 60:
            said = time.time()
            print(f"endure: {said - watch.begun:.0f} s, {counts['sent']:,} "
                  f"requests, {len(faults.done)} faults, {counts['lost']} lost, "
                  f"{counts['refused']} refused", flush=True)
    watch.over.set()
    watch.join()
    watch.look()
    faults.over.set()
    gateway.over.set()
    faults.ended.wait()
    gateway.join()
    fleet.client.call("POST", "/stop")
    with contextlib.suppress(Exception):
        wait_until("the clients end", lambda: not fleet.client.call(
            "GET", "/counts")["running"], PATIENCE)
    counts = fleet.client.call("GET", "/counts")
    settled(fleet)
    same, differences = compared(fleet)
    wrong, reasons = judged(fleet, watch, faults, counts)
    wrong += differences
    text = report(watch, faults, gateway, counts, same, wrong, reasons, fleet)
    print(text)
    if args.report:
        args.report.write_text(text)
    return not wrong


def main():
    """The program."""
    global args, directory
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=8 * 3600)
    parser.add_argument("--fault", type=float, default=10,
                        help="seconds between two faults, about")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--report", type=Path, help="a file for the report")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = Path(tempfile.mkdtemp(prefix="kv-endure-"))
    directory.chmod(0o755)
    fleet, fine = Fleet(), False
    try:
        fine = run(fleet)
        return not fine
    finally:
        fleet.stop()
        if fine:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            print(f"endure: logs are in {directory}")


if __name__ == "__main__":
    sys.exit(main())
