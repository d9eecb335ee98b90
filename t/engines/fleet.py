"""Real engines, Redis, kv-relays and nginx, as the documentation's "Attaching
engines" has them: its commands and its configuration, with other ports, sizes
and folders.
"""

import contextlib
import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT = Path(os.environ.get("KVR_BUILD") or ROOT / "build").resolve()
os.environ.setdefault("KVR_RELAY", str(BUILT / "kv-relay"))
sys.path.insert(0, str(ROOT / "t" / "system"))

import stage                                                    # noqa: E402
from processes import DemoError, Process, wait_until            # noqa: E402
from relay import Relay                                         # noqa: E402
from test_docs import DOCS, TEMP_PATHS, blocks, section       # noqa: E402

BUILD = BUILT / "engines"
MODELS = BUILD / "models"
VLLM = "0.32.0"
PATIENCE = 60.0                 # seconds that a router or a relay may take
STARTING = 900.0                # seconds that an engine may take to start
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",      # nothing is fetched, nothing is told
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_SERVER_DEV_MODE": "1"}        # for /reset_prefix_cache


def documented_command(program):
    """The documentation's command that begins so, as words."""
    (line,) = (line for text in blocks("sh", section("Attaching engines"))
               for line in text.splitlines()
               if line.startswith(program))
    return shlex.split(line)


def documented_relay(program):
    """The documentation's kv-relay beside an engine that is started so, as words."""
    lines = "".join(blocks("sh", section("Attaching engines"))).splitlines()
    return shlex.split(lines[next(
        i for i, line in enumerate(lines)
        if line.startswith(program)) + 1])


class Server(Process):
    """An engine: several processes."""

    def kill(self):
        """SIGKILL for all of them."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()


class Model:
    """A kind of model, and how an engine is started for it."""

    def __init__(self, name, *options, block_size=32, zone=32, ranks=1,
                 hybrid=False, adapters=(), files=None, version=VLLM,
                 computed=1, served="tiny", relay=(), by_model=None):
        self.name, self.options, self.version = name, options, version
        self.files = files or name              # the folder of models.py
        self.block_size, self.zone = block_size, zone
        self.ranks, self.hybrid, self.adapters = ranks, hybrid, adapters
        self.served = served            # the name that requests have
        self.by_model = by_model        # "vllm" or "sglang" if the router
                                        # makes the token ids
        self.relay = relay              # more options of its kv-relay
        self.computed = computed        # tokens of a prompt, at its end, that
                                        # are never taken from the cache


class Engine:
    """A vLLM with its kv-relay; both can be killed, stopped, and started."""

    program = "vllm serve "         # what the documented command begins with

    def __init__(self, fleet, worker, model):
        self.fleet, self.worker, self.model = fleet, worker, model
        self.programs = BUILD / f"vllm-{model.version}" / "bin"
        self.port = stage.free_port()
        self.runs = 0
        self.process = self.relay = None
        if model.ranks == 1:
            self.events, self.replay = (
                f"ipc://{fleet.directory}/{worker}.{kind}"
                for kind in ("events", "replay"))
            self.listened = (self.events, self.replay)
        else:
            # rank r is at the port + r
            ports = (stage.free_port() for _ in "er")
            self.events, self.replay = (
                f"tcp://127.0.0.1:{port}" for port in ports)
            self.listened = [endpoint.replace("127.0.0.1", "*")
                             for endpoint in (self.events, self.replay)]

    def _words(self, words, events, replay):
        names = {"MODEL": str(MODELS / self.model.files), "w1": self.worker,
                 "8001": str(self.port), "16": str(self.model.zone),
                 "redis://127.0.0.1:6379": self.fleet.redis_url(),
                 "127.0.0.1:8001": f"127.0.0.1:{self.port}",
                 "ipc:///run/kv/w1.events": events,
                 "ipc:///run/kv/w1.replay": replay}
        return [names.get(word, word.replace(
            "ipc:///run/kv/w1.events", events).replace(
            "ipc:///run/kv/w1.replay", replay)) for word in words]

    def environment(self):
        """The words that set its environment."""
        return ["env", *(f"{name}={value}"
                         for name, value in ENVIRONMENT.items())]

    def start(self):
        """Starts the engine; it answers later."""
        words = self._words(documented_command(self.program), *self.listened)
        self.runs += 1
        self._run(words)

    def _run(self, words):
        """Starts the documented command, with what a CPU needs."""
        words[words.index("--block-size") + 1] = "32"
        self.process = Server(f"{self.worker}-{self.runs}", [
            *self.environment(),
            "nice", "-n", "10", str(self.programs / words[0]), *words[1:],
            "--host", "127.0.0.1", "--served-model-name", "tiny",
            "--load-format", "dummy", "--enforce-eager",
            "--enable-prompt-tokens-details", *self.model.options],
            self.fleet.directory)

    def start_relay(self):
        """Starts its relay."""
        words = self._words(documented_relay(self.program)[1:], self.events,
                            self.replay)
        at = words.index("--worker")
        self.relay = Relay(self.fleet, self.worker,
                           *words[:at], *words[at + 2:],
                           "--salted", "on", *self.model.relay,
                           *(["--ranks", str(self.model.ranks)]
                             if self.model.ranks > 1 else []))
        self.relay.wait_for("started")

    def wait_ready(self):
        """Until the engine answers."""
        def answers():
            self.process.check_alive()
            return self.call("GET", "/health")[0] == 200

        wait_until(f"{self.worker} answers", answers, STARTING)

    def call(self, method, path):
        """One request to the engine itself: status and body."""
        return exchange(self.port, method, path)[::2]

    def dump(self):
        """What runs kv-model-dump beside it: its own Python, and options."""
        return [str(self.programs / "python"), "-",
                str(MODELS / self.model.files)]

    def stop(self):
        """Ends both."""
        if self.relay:
            self.relay.stop()
        if self.process:
            self.process.signal(signal.SIGTERM)
            with contextlib.suppress(DemoError):
                wait_until("the engine ends",
                           lambda: self.process.status() is not None, 20.0)
            self.process.kill()


class Fleet(stage.Stage):
    """Everything, on loopback."""

    def __init__(self, name, model, workers=("w1",), engine=Engine):
        super().__init__(f"engines-{name}")
        self.model = model
        self.engines = {worker: engine(self, worker, model)
                        for worker in workers}

    def __enter__(self):
        super().__enter__()
        try:
            self.start_redis()
            for engine in self.engines.values():
                engine.start()
                engine.start_relay()
            if self.model.by_model:
                self._dump_model()
            self.start_nginx({})
            for worker in self.engines:
                self.wait_served(worker)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for engine in self.engines.values():
            with contextlib.suppress(OSError):
                engine.stop()
        self._keep_logs()
        super().__exit__()

    def _dump_model(self):
        """What the first engine runs, by the documented command, beside it."""
        engine = next(iter(self.engines.values()))
        engine.wait_ready()
        folder = self.directory / "model"
        folder.mkdir(mode=0o755)
        with open(ROOT / "util" / "kv-model-dump", "rb") as program:
            archive = subprocess.run(
                engine.dump(), stdin=program, stdout=subprocess.PIPE,
                check=True, env={**os.environ, **ENVIRONMENT,
                     "CUDA_VISIBLE_DEVICES": ""}).stdout
        subprocess.run(["tar", "x", "-C", folder], input=archive, check=True)

    def _keep_logs(self):
        """The logs of the last run, for those who look for a cause."""
        logs = BUILD / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        for log in self.directory.glob("*.log"):
            (logs / f"{self.model.name}-{log.name}").write_bytes(
                log.read_bytes())

    def _write_conf(self, engines, policy, url, log):
        """The documentation's synopsis; relays bring the workers."""
        (text,) = blocks("nginx", section("Synopsis"))

        def put(pattern, new):
            nonlocal text
            text, times = re.subn(pattern, lambda _: new, text)
            assert times, f"the synopsis has no {pattern}"

        put(r"modules/(?=ndk|ngx_http_lua)", "/usr/lib/nginx/modules/")
        put(r"modules/ngx_http_kv_router_module.so", str(stage.MODULE))
        put(r"worker_processes  auto;",
            f"worker_processes {stage.PROCESSES};\ndaemon off;\n"
            f"pid nginx.pid;\n" + "user root;\n" * (os.geteuid() == 0))
        put(r"/var/log/nginx/error.log", log)
        put(r"/var/log/nginx/access.log", "access.log")
        put(r"listen  8080;", f"listen 127.0.0.1:{self.port};")
        put(r"redis://127.0.0.1:6379", url)
        put(r"block_size=16", f"block_size={self.model.zone}")
        put(r"\n *kv_router_worker .*(?=\n)", "")
        put(r"\nhttp \{\n", "\nhttp {\n" + "".join(
            f"    {name}_temp_path {name};\n" for name in TEMP_PATHS)
            + f'    lua_package_path "{ROOT}/lua/?.lua;;";\n')
        put(r'policy = "kv_cost",',
            'policy = "kv_cost", pin = true, '
            'tokenizer_timeout = 10,'
            + ' tokenizer = "local",' * bool(self.model.by_model))
        if self.model.by_model:
            put(r"\n *kv_router_redis .*(?=\n)",
                f"\n    kv_router_redis  main {url};\n"
                f"    kv_router_model  main {self.directory}/model "
                f"engine={self.model.by_model};")
        # vLLM and SGLang have a path of their own each, for token ids
        put(r"location /v1/ ", "location ~ ^/(v1/|inference/|generate) ")
        # as the documentation says of adapters, from a header here
        put(r"\{ router:access\(\) \}",
            "{ router:access { lora_name = ngx.var.http_x_lora } }\n"
            + stage.DECIDED)
        (self.directory / "nginx.conf").write_text(text)

    # ------------------------------------------------------------- requests

    def ask(self, path, body, headers=None):
        """A request through nginx: its Answer."""
        stream = {"stream": True, "stream_options": {"include_usage": True}}
        if body.get("stream"):
            body = body | stream
        status, explained, _, data = self.explained(
            "POST", path, json.dumps(body), headers)
        return Answer(self.model, body, status, explained, data)

    def explained(self, method, path, body, headers=None):
        """A request through nginx: the answer's status, what the router
        decided, the answer's type and its bytes."""
        status, head, data = exchange(
            self.port, method, path, body,
            headers or {})
        return (status, stage.decision(head.get("x-decided")),
                (head.get("Content-Type") or "").partition(";")[0], data)

    def wait_served(self, worker):
        """Until a worker's engine answers, requests for it get there, and
        its view is what it should be."""
        self.engines[worker].wait_ready()
        self.wait_trusted(worker)

        def served():
            answer = self.ask("/v1/completions", {
                "model": self.model.served, "prompt": [100, 101],
                "max_tokens": 1},
                {"x-kv-worker": worker})
            return (answer.status == 200
                    and answer.explained["reason"] != "no_eligible")

        wait_until(f"{worker} gets requests", served, STARTING)

    def wait_trusted(self, worker):
        """Until a worker's view is whole."""
        return wait_until(f"{worker} is EXACT", lambda: self.workers().get(
            worker, {}).get("confidence") == "EXACT", STARTING)

    def settle(self, worker, tokens=None, rank=0, last=None):
        """Until the router knows what the engine has said: up to its message
        `last`, or until these tokens' blocks are there, where its model has
        full attention alone; or for a quarter of a second nothing comes."""
        engine = self.engines[worker]
        seen = None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            known = self.workers().get(worker, {})
            metrics = metrics_of(engine.relay)
            now = [metrics.get(name) for name in (
                "epoch", "seq", 'engine_seq{rank="0"}', "unsent")]
            settled = (known.get("epoch"), known.get("seq")) == tuple(
                int(value) for value in now[:2]) and not now[3]
            if last is not None:
                if settled and now[2] == last:
                    return
            elif settled and tokens and not self.model.hybrid:
                held = self.query(tokens).get((worker, rank), (0,))[0]
                if held >= len(tokens) // self.model.block_size * (
                        self.model.block_size // self.model.zone):
                    return
            elif settled and now == seen:
                return
            seen = now
            time.sleep(0.02 if last is not None or tokens
                       and not self.model.hybrid else 0.25)
        raise AssertionError(
            f"{worker}: what it has computed is not in the index after "
            f"{PATIENCE:.0f} s")


class Answer:
    """What the engine answered, and what the router had told of it."""

    def __init__(self, model, body, status, explained, data):
        self.status, self.explained, self.data = status, explained, data
        self.usage = self.tokens = self.text = None
        if status != 200:
            return
        if body.get("stream"):
            chunks = [json.loads(line[6:]) for line
                      in data.decode().splitlines()
                      if line.startswith("data: {")]
            self.usage = chunks[-1]["usage"]
        else:
            answer = json.loads(data)
            self.usage = answer["usage"]
            choice = answer["choices"][0]
            self.tokens = (answer.get("prompt_token_ids")
                           or choice.get("prompt_token_ids"))
            self.text = choice.get("text") or choice.get(
                "message", {}).get("content")
        if isinstance(body.get("prompt"), list):
            first = body["prompt"][0]
            self.tokens = first if isinstance(first, list) else (
                body["prompt"] if isinstance(first, int) else self.tokens)
        self.prompt = self.usage["prompt_tokens"]
        length = len(self.tokens) if self.tokens else self.prompt
        had = self.usage.get("prompt_tokens_details") or {}
        self.had = had.get("cached_tokens") or 0
        self.told = told(model, explained, length)
        self.worker = self.explained["worker"]
        self.rank = self.explained["rank"]
        self.confidence = self.explained["confidence"]


def told(model, explained, length):
    """How many tokens of a prompt the router says to be cached: the engine
    reuses whole blocks of its own, and vLLM always computes the last
    token."""
    return model.block_size * min(
        explained["overlap"] * model.zone // model.block_size,
        (length - model.computed) // model.block_size)


def metrics_of(relay):
    """A relay's metrics."""
    return {name: float(value) for name, value in re.findall(
        r"^kv_relay_(\S+) (\S+)$", relay.http("/metrics")[1], re.M)}


def exchange(port, method, path, body=None, headers=None):
    """A request on a connection of its own: status, headers, body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request(method, path, body, {
            "Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    except http.client.HTTPException as err:
        raise ConnectionError(f"{method} {path}: {err!r}") from err
    finally:
        connection.close()
