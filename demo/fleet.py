"""The fleet: four engine stand-ins with their relays, Redis, and a real nginx.

All of it runs in a temporary directory on free loopback ports.  A workload is
what replay.py is told to send (its command line); between two policies there
is an `nginx -s reload`, and the caches are emptied before each run.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import redis

import replay
import rival_routers
from lateness import missed_share
from processes import (WAIT_SECONDS, DemoError, Process, check_port,
                       free_port, run_attached, wait_until)
from worker import MODEL, Worker

DEMO = Path(__file__).resolve().parent
REPOSITORY = DEMO.parent

WORKERS = ("w1", "w2", "w3", "w4")
BLOCK_SIZE = 16
DECODE_US = 4000
MODEL_OF_ZONE = """
    # the zone's own model, for the token ids of chats
    kv_router_model  main model engine=vllm;
"""
UNKNOWN = """
    # another zone: the template of its model can't be rendered here, which its
    # status says
    kv_router_zone   zone=unknown:8m block_size=16;
    kv_router_model  unknown unknown engine=vllm;
"""
ROUTERS = """
        require("resty.kv_router").new("unknown", { tokenizer = "auto" })
"""
PROBE = list(range(1, 1 + 4 * BLOCK_SIZE))      # a prompt no workload has
PROBES = 20                                     # of the workload
ESTIMATED = "estimated"         # a policy's name
RETURN_SECONDS = 20.0           # until an engine that was killed comes back


@dataclass(frozen=True)
class Policy:
    """A policy's name, and its policy_conf as a Lua table, or nothing."""

    name: str
    conf: str = ""
    sync: bool = True           # several nginx share their load
    order: str = ""             # who goes first: fields of kv.new()
    quantum: int = 16384        # of the queue

    @property
    def title(self):
        """What tables and progress call it."""
        return f"{self.name} {self.conf}".rstrip()

    @property
    def rival(self):
        """Whether this is another router, with its own policy."""
        return self.name in rival_routers.NAMES

    @property
    def estimated(self):
        """Whether the router hears no events: kv_cost, with estimates."""
        return self.name == ESTIMATED

    @property
    def apart(self):
        """Whether the router is another one than that which hears events."""
        return self.rival or self.estimated


# what watches the caches for a router apart
WATCHER = Policy("round_robin")


@dataclass(frozen=True)
class Engines:
    """What the engine stand-ins are like."""

    blocks: int                 # of each cache
    prefill_us: int             # to compute a token that is not cached
    seed: int = 0               # of the names that they give to blocks
    alike: bool = False         # all give a block the same name
    model: bool = False         # they have the model of words.py; the toy
                                # tokenizer otherwise
    unknown: bool = False       # nginx has a zone with a model that it refuses
    queue: int = 0              # requests that may wait in an nginx
    bounds: str = ""            # of each: parameters of kv_router_worker
    registered: bool = False    # nginx knows them by their relays alone
    processes: int = 2          # of each nginx
    names: tuple = WORKERS      # one an engine
    options: tuple = ()         # more of engine.py's


def http(method, url, body=None):
    """One request on a new connection: the body of a 200, else OSError."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data=data, method=method,
        headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request,
                                    timeout=WAIT_SECONDS) as response:
            return response.read()
    except urllib.error.HTTPError as err:
        raise OSError(f"{method} {url}: {err.code} "
                      f"{err.read(200).decode(errors='replace')}") from err


def filled(template, names):
    """A configuration, with names in the place of those between at signs."""
    return re.sub(r"@([A-Z_]+)@", lambda name: names[name[1]],
                  (DEMO / template).read_text())


class Fleet:
    """Everything that runs."""

    def __init__(self, options, directory, engines, port=None, routers=1):
        self.module = options.module.resolve()
        self.relay = options.relay.resolve()
        self.directory = directory
        self.kind = engines
        self.processes = {}
        self.engines = {}                       # worker -> host:port
        self.workers = {}
        self.ended = {}                         # worker -> since when
        self.rivals = options.rivals.resolve()
        self.policy = None
        self.generation = 0                     # of nginx's configuration
        self.redis_port = free_port()
        self.port = port or free_port()
        self.alone_port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # each nginx has a directory of its own: {directory: its URL}
        self.routers = {directory: self.url} | {
            directory / f"nginx{number}": f"http://127.0.0.1:{free_port()}"
            for number in range(2, routers + 1)}

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
        if self.kind.model:
            # only here: it needs jinja2
            import words            # pylint: disable=import-outside-toplevel
            words.write(self.directory / "model")
            if self.kind.unknown:
                words.write(self.directory / "unknown", words.UNKNOWN)
        self.workers = {name: Worker(
            name, self.directory, str(free_port()),
            "--block-size", str(BLOCK_SIZE),
            "--blocks", str(self.kind.blocks),
            "--prefill-us-per-token", str(self.kind.prefill_us),
            "--decode-us-per-token", str(DECODE_US),
            "--seed", str(self.kind.seed * len(self.kind.names)
                          + (0 if self.kind.alike else number)),
            *self.tokenizer(), *self.kind.options)
            for number, name in enumerate(self.kind.names)}
        for worker in self.workers.values():
            self._note_engine(worker)
        for worker in self.workers.values():
            self._start_relay(worker)
        for place in self.routers:
            place.mkdir(exist_ok=True)
        self._start_nginx(policy)

    def _start_relay(self, worker):
        """Starts the relay of an engine, once that is ready."""
        worker.wait_ready()
        self.engines[worker.name] = worker.address
        worker.start_relay(self.relay, self._redis_url(),
                           "--block-size", str(BLOCK_SIZE),
                           "--listen", "127.0.0.1:0")
        self.processes[worker.relay.name] = worker.relay

    def renew(self, name):
        """Ends an engine and its relay at once, as a pod ends, and starts
        both again, at the old address and with an empty cache."""
        worker = self.workers[name]
        for process in worker.processes():
            process.signal(signal.SIGTERM)
        for process in worker.processes():
            wait_until(f"{process.name} ends",
                       lambda ended=process: ended.status() is not None)
        worker.start_engine()
        self._note_engine(worker)
        self._start_relay(worker)

    def _start_nginx(self, policy):
        self._write_conf(policy)
        for name, place in self._nginx().items():
            self._spawn(name, ["nginx", "-p", f"{place}/",
                               "-c", "nginx.conf", "-e", "error.log"])
        for name in self._nginx():
            self._wait(name, "nginx answers", self._configured)

    def _nginx(self):
        """The directory of each nginx: {name of its process: directory}."""
        return {f"nginx{number if number > 1 else ''}": place
                for number, place in enumerate(self.routers, 1)}

    def _note_engine(self, worker):
        """An engine was started; FILE.pid is for whoever wants to kill it."""
        self.processes[worker.name] = worker.engine
        (self.directory / f"{worker.name}.pid").write_text(
            f"{worker.engine.pid()}\n")

    def revive(self):
        """Starts engines again that ended RETURN_SECONDS ago, at their old
        addresses, with empty caches: the names of those that were started."""
        revived = []
        for name, worker in self.workers.items():
            if worker.engine.status() is None:
                self.ended.pop(name, None)
            elif time.monotonic() - self.ended.setdefault(
                    name, time.monotonic()) > RETURN_SECONDS:
                worker.start_engine()
                self._note_engine(worker)
                revived.append(name)
        return revived

    def _start_rival(self):
        """Starts the router that the policy names: its URL.

        It begins anew for each run, as what it remembers can't be emptied.
        """
        name = self.policy.name
        port = free_port()
        if name in rival_routers.NGINX:
            self._spawn(name, self._plain_nginx(name, port))
        else:
            try:
                python = rival_routers.install(self.rivals, name)
            except (OSError, subprocess.CalledProcessError) as err:
                raise DemoError(f"{name} can't be installed: {err}") from err
            if name == rival_routers.DYNAMO:
                self._start_dynamo(python, port)
            else:
                self._spawn(name, rival_routers.command(
                    python, name, port, free_port(), self.engines.values()))
        self._wait(name, f"{name} answers",
                   lambda: rival_routers.answers(port, MODEL))
        return f"http://127.0.0.1:{port}"

    def _plain_nginx(self, name, port):
        """The command of an nginx without the module."""
        (self.directory / "plain.conf").write_text(filled(
            "plain.conf.in", self._names("main", port, "") | {
                "BALANCE": rival_routers.NGINX[name],
                "SERVERS": "\n".join(f"        server  {address};" for
                                     address in self.engines.values())}))
        return ["nginx", "-p", f"{self.directory}/", "-c", "plain.conf",
                "-e", "plain-error.log"]

    def _start_dynamo(self, python, port):
        """Dynamo's frontend, after a worker of its runtime for each engine."""
        if not self.kind.model:
            raise DemoError(f"{rival_routers.DYNAMO} needs engines with a "
                            f"model: compare it on a workload in words")
        folder = Path(tempfile.mkdtemp(prefix="dynamo-", dir=self.directory))
        for name, worker in self.workers.items():
            self._spawn(f"dynamo-{name}", rival_routers.dynamo(
                python, folder, rival_routers.WORKER,
                "--engine", worker.address, "--events", worker.events,
                "--model", self.directory / "model", "--name", MODEL,
                "--blocks", self.kind.blocks, "--block-size", BLOCK_SIZE))
        for name in self.workers:
            self._wait(f"dynamo-{name}", "Dynamo's worker is ready",
                       lambda log=self.processes[f"dynamo-{name}"].log:
                       "ready\n" in log.read_text(errors="replace"))
        self._spawn(rival_routers.DYNAMO, rival_routers.dynamo(
            python, folder, *rival_routers.dynamo_frontend(port)))

    def _stop_rival(self):
        """Stops the other router, and what belongs to it."""
        for name in [self.policy.name, *(
                name for name in self.processes
                if name.startswith("dynamo-w"))]:
            self.processes.pop(name).stop()

    def tokenizer(self):
        """What engines and replay are told of the model."""
        return ["--tokenizer", str(self.directory / "model")] \
            if self.kind.model else []

    def relay_addresses(self):
        """Where each relay tells its metrics: {worker: host:port}."""
        def address(worker):
            log = self.processes[f"{worker}-relay"].log.read_text()
            return re.search(r'msg="started".* listen=(\S+)', log)
        return {worker: wait_until(f"the relay of {worker}",
                                   lambda name=worker: address(name))[1]
                for worker in self.engines}

    def stop(self):
        """Stops what was started, the last one first.  A second signal ends a
        relay's wait for its engine."""
        for worker in self.workers.values():
            if worker.relay and worker.relay.status() is None:
                worker.relay.signal(signal.SIGTERM)
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

    def _spawn(self, name, command, attached=False):
        try:
            self.processes[name] = Process(name, command, self.directory,
                                           attached)
        except OSError as err:
            raise DemoError(f"{command[0]} can't be started: {err}") from err

    def _wait(self, name, what, check):
        def alive_and_checked():
            self.processes[name].check_alive()
            return check()
        return wait_until(what, alive_and_checked)

    def start_load(self, options):
        """Starts a load without an end, of load.py with these options; what it
        says goes to our terminal."""
        self._spawn("load", [
            sys.executable, "-B", str(DEMO / "load.py"), "--url",
            self.url + "/v1/chat/completions", *options], attached=True)

    # ---------------------------------------------------------------- nginx

    def _redis_url(self):
        return f"redis://127.0.0.1:{self.redis_port}"

    def _write_conf(self, policy):
        self.policy = policy
        self.generation += 1
        for place, url in self.routers.items():
            (place / "nginx.conf").write_text(
                self.conf(policy, url.rpartition(":")[2]))

    def conf(self, policy, port=None):
        """nginx's configuration with a policy."""
        names = self._names("main", port or self.port, policy.conf) \
            | self._queue_names(policy)
        names["SYNC"] = "" if policy.sync else "    kv_router_sync main off;\n"
        if policy.apart:
            names |= {"POLICY": WATCHER.name, "CONF": "nil"}
        else:
            names["POLICY"] = policy.name
        conf = filled("nginx.conf.in", names)
        if policy.estimated:
            # a zone of its own for each run: nothing is estimated yet
            zone = f"alone{self.generation}"
            conf = conf.rstrip().removesuffix("}") + filled(
                "alone.conf.in",
                self._names(zone, self.alone_port, policy.conf)) + "}\n"
        return conf

    def _names(self, zone, port, conf):
        """What the templates have between at signs."""
        return {
            "ZONE": zone,
            "MODULE": str(self.module),
            "USER": "user  root;" if os.geteuid() == 0 else "",
            "BLOCK_SIZE": str(BLOCK_SIZE),
            "REDIS": self._redis_url(),
            "WORKERS": "\n".join(
                f"    kv_router_worker {zone} {worker} {address}"
                f"{' ' * bool(self.kind.bounds)}{self.kind.bounds};"
                for worker, address in self.engines.items()
                if not self.kind.registered),
            "LUA": str(REPOSITORY / "lua"),
            "ROUTERS": ROUTERS if self.kind.unknown else "",
            "MODELS": (MODEL_OF_ZONE if self.kind.model else "")
            + (UNKNOWN if self.kind.unknown else ""),
            "PROCESSES": str(self.kind.processes),
            "TOKENIZER": "auto" if self.kind.model else "remote",
            "UNKNOWN": "unknown" if self.kind.unknown else "main",
            "CONF": conf or "nil",
            "GENERATION": str(self.generation),
            "PORT": str(port)}

    def _queue_names(self, policy):
        queue = self.kind.queue
        return {
            "SIZE": "256m" if queue else "64m",
            "QUEUE": f" queue={queue} queue_quantum={policy.quantum}"
                     if queue else "",
            "ORDER": f"            {policy.order},\n" if policy.order else "",
            "WAIT": "            add_header  x-kv-wait $kv_router_wait;\n"
                    if queue else ""}

    def _configured(self):
        """The configuration that was written last answers."""
        return all(http("GET", url + "/demo/generation").decode()
                   == str(self.generation) for url in self.routers.values())

    def reload(self, policy):
        """Another policy by `nginx -s reload`, as a user would."""
        if policy.rival:
            self.policy = policy
            return
        self._write_conf(policy)
        for name in self._nginx():
            self.processes[name].signal(signal.SIGHUP)
        self._wait("nginx", f"the policy is {policy.title} after the reload",
                   lambda: all(self._configured() for _ in range(10)))

    def _idle(self):
        for url in self.routers.values():
            status = json.loads(http("GET", url + "/status"))
            if status["waiting"] or any(
                    rank["active_requests"] for worker in status["workers"]
                    for rank in worker["load"]):
                return False
        return True

    def restart(self, policy):
        """Another policy by another nginx, when all that it had to do is
        over: it begins with nothing."""
        wait_until("no request waits or is served", self._idle)
        for name in self._nginx():
            self.processes.pop(name).stop()
        self._start_nginx(policy)

    # --------------------------------------------------------------- caches

    def check_events(self):
        """A prompt computed by every engine is known for every worker."""
        for address in self.engines.values():
            http("POST", f"http://{address}/v1/completions",
                 {"prompt": PROBE, "max_tokens": 2})
        wait_until("the router has seen events of all engines",
                   lambda: all(self._holders(PROBE, url)
                               == set(self.kind.names)
                               for url in self.routers.values()))

    def reset_caches(self, probes):
        """Empties all engines and waits until the router knows it."""
        for address in self.engines.values():
            wait_until("the caches are reset", lambda url=address: http(
                "POST", f"http://{url}/reset_prefix_cache") == b"")
        wait_until("the router has seen that the caches are empty",
                   lambda: not any(self._holders(probe, url)
                                   for url in self.routers.values()
                                   for probe in probes))

    def _holders(self, tokens, url):
        answer = json.loads(http("POST", url + "/kv/query",
                                 {"tokens": tokens}))
        return {score["worker_id"] for score in answer["scores"]}

    def status(self, zone="main"):
        """The status of a zone: "main", or "unknown" where its model is."""
        path = "/status" if zone == "main" else "/status/unknown"
        return json.loads(http("GET", self.url + path))

    def _missed(self):
        """(met, missed) deadlines of each engine since it was started."""
        return [[self._metric(address, f"stand_in:deadlines_{which}_total")
                 for which in ("met", "missed")]
                for address in self.engines.values()]

    def _prompt_tokens(self):
        """{worker: tokens of all prompts} of each engine since its start."""
        return {worker: self._metric(address,
                                     "vllm:prefix_cache_queries_total")
                for worker, address in self.engines.items()}

    def cached(self, worker):
        """(tokens of prompts, those of them that were cached), as an engine
        counts them since its start."""
        return [self._metric(self.engines[worker],
                             f"vllm:prefix_cache_{what}_total")
                for what in ("queries", "hits")]

    @staticmethod
    def _metric(address, name):
        metrics = http("GET", f"http://{address}/metrics").decode()
        return int(re.search(rf"^{name}\S* (\d+)$", metrics,
                             re.MULTILINE)[1])

    # --------------------------------------------------------------- replay

    def replay(self, workload, progress=True, routers=1, label=None):
        """One run, of replay.py with these options; the summary it wrote.

        routers: how many nginx get the requests.  "late" is the largest share of missed deadlines, of the replay or of
        an engine: see lateness.py.  "cpu" is the router's processor time in
        seconds: without relays and Redis.
        """
        options = replay.parse_options(workload)
        if self.policy.estimated:
            self.reload(self.policy)
        urls = list(self.routers.values())[:routers]
        if self.policy.rival:
            urls = [self._start_rival()]
        if self.policy.estimated:
            urls = [f"http://127.0.0.1:{self.alone_port}"]
        self.check_events()
        self.reset_caches([PROBE] + [
            talk.turns[0].tokens for talk in replay.load(options)[:PROBES]])
        router = self.processes[self.policy.name if self.policy.rival
                                else "nginx"]
        before = self._missed()
        cpu = router.cpu_seconds()
        prompts = self._prompt_tokens()
        rungs = self.status()["requests"]["by_rung"]
        output = self.directory / "replay.json"
        output.unlink(missing_ok=True)
        run_attached([
            sys.executable, str(DEMO / "replay.py"),
            *workload, "--url", *(
                url + ("/v1/chat/completions" if options.text
                       else "/v1/completions") for url in urls),
            "--block-size", str(BLOCK_SIZE), "--output", str(output),
            *self.tokenizer(),
            "--label", f"{label or self.policy.title}: ",
            *(["--progress"] if progress else [])], self.directory)
        for process in self.processes.values():
            process.check_alive()
        cpu = router.cpu_seconds() - cpu
        if self.policy.rival:
            self._stop_rival()
        if not output.exists():
            raise DemoError("the replay was broken off")
        summary = json.loads(output.read_text())
        engines = missed_share(
            [now - then for now, then in zip(*pair)]
            for pair in zip(self._missed(), before))
        return {**summary, "late": max(summary["late"], engines), "cpu": cpu,
                "tokens": {worker: now - prompts[worker] for worker, now
                           in self._prompt_tokens().items()},
                "rungs": {rung: now - rungs[rung] for rung, now in
                          self.status()["requests"]["by_rung"].items()}}


# ----------------------------------------------------------------- programs

def add_options(parser):
    """What was built, for parse_options() of a program."""
    build = REPOSITORY / "build"
    parser.add_argument("--module", metavar="FILE", type=Path,
                        default=build / "ngx_http_kv_router_module.so",
                        help="the nginx module")
    parser.add_argument("--relay", metavar="FILE", type=Path,
                        default=build / "kv-relay",
                        help="the program beside each engine")
    parser.add_argument("--rivals", metavar="DIR", type=Path,
                        default=build / "bench-rivals",
                        help="where the other routers are installed")


def terminate(*_):
    """SIGTERM ends as Ctrl-C does."""
    raise KeyboardInterrupt


def session(options, engines, work, port=None, routers=1):
    """Calls work(fleet), whose answer is the program's status.  nginx listens
    on `port`, or on one that is free; with `routers` there are several.

    The fleet is not started yet; it is stopped afterwards, and what it wrote
    is removed, unless something went wrong.
    """
    for file in (options.module, options.relay):
        if not file.is_file():
            sys.exit(f"{file} isn't there: build it first, by `make`")
    if port:
        try:
            check_port(port)
        except DemoError as err:
            sys.exit(f"demo: {err}")
    signal.signal(signal.SIGTERM, terminate)
    directory = Path(tempfile.mkdtemp(prefix="kv-router-demo-"))
    fleet = Fleet(options, directory, engines, port, routers)
    status = 1
    keep_logs = False
    try:
        status = work(fleet)
    except DemoError as err:
        keep_logs = True
        print(f"{fleet.tails()}\n\ndemo: {err}\n"
              f"demo: logs are in {directory}", file=sys.stderr)
    except KeyboardInterrupt:
        status = 130
        print("\ndemo: stopped", file=sys.stderr)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        fleet.stop()
        if not keep_logs:
            shutil.rmtree(directory, ignore_errors=True)
    return status


# ------------------------------------------------------------------ reports

def print_table(heads, rows):
    """Rows of text below their heads, as Markdown has tables."""
    rows = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    rows.insert(1, ["-" * width for width in widths])
    print()
    for row in rows:
        print("| " + " | ".join(cell.ljust(width) for cell, width
                                in zip(row, widths)) + " |")
    print(flush=True)


def milliseconds(seconds):
    """Seconds as text, `-` for none."""
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"
