"""SGLang's radix cache behind kv-relay: what the router tells against the
cache's own matches.
"""

import contextlib
import json
import random
import shlex
import subprocess
from types import SimpleNamespace

import install
from fleet import BUILD, ROOT, Fleet, Model, blocks, section
from relay import Relay

VERSION = "0.5.23"
PACKAGES = BUILD / f"sglang-{VERSION}"
# what it imports beside torch and what vLLM requires
BESIDE = ("orjson", "IPython", "traitlets", "gguf", "soundfile")
PAGE = 16
OPERATIONS = 3000
EVERY = 25                      # operations between two comparisons
COMPARED = 10                   # prompts of each
CAPACITY = 20000                # tokens, over which leaves are evicted


class Cache:
    """The cache, its publisher, and a relay beside them."""

    def __init__(self, fleet, python):
        words = shlex.split(next(
            line for text in blocks("sh", section("Attaching engines"))
            for line in text.splitlines() if "sglang.launch_server" in line))
        self.fleet = fleet
        config = words[words.index("--kv-events-config") + 1].replace(
            "/run/kv/", f"{fleet.directory}/")
        self.events = json.loads(config)["endpoint"]
        self.replay = json.loads(config)["replay_endpoint"]
        self.process = subprocess.Popen(
            ["nice", "-n", "10", python, "-B",
             ROOT / "t" / "engines" / "sglang_cache.py", config, str(PAGE)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=open(fleet.directory / "sglang.log", "w",
                        encoding="utf-8"),
            env={"PYTHONPATH": str(PACKAGES), "PATH": "/usr/bin:/bin",
                 "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"})
        self.relay = None
        self.start_relay()

    def start_relay(self):
        """Starts its relay."""
        self.relay = Relay(self.fleet, "w1", "--block-size", str(PAGE),
                           "--events", self.events, "--replay", self.replay)
        self.relay.wait_for("started")

    def do(self, command, what):
        """One command: its answer."""
        print(json.dumps({command: what}), file=self.process.stdin,
              flush=True)
        line = self.process.stdout.readline()
        assert line, "SGLang's cache has ended: build/engines/logs"
        return json.loads(line)

    def stop(self):
        """Ends both."""
        self.relay.stop()
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait(20)


def install_sglang(python):
    """Installs it, for use with vLLM's environment; once."""
    install.beside(PACKAGES, python, f"sglang=={VERSION}", *BESIDE)


def run(runner, python):
    """Inserts, splits and evictions at random, compared now and then."""
    install_sglang(python)
    model = Model("sglang", block_size=PAGE, zone=PAGE)
    draw = random.Random(runner.options.seed)
    name = f"SGLang {VERSION}, radix cache"

    def tokens(n):
        return [draw.randrange(100, 2000) for _ in range(n)]

    prefixes = [tokens(n) for n in (20, 64, 200, 500)]
    prompts = []
    with Fleet("sglang", model, workers=()) as fleet:
        cache = fleet.engines["w1"] = Cache(fleet, python)
        for number in range(1, OPERATIONS + 1):
            start = draw.choice(prompts[-200:] or prefixes) \
                if draw.random() < 0.5 else draw.choice(prefixes)
            prompt = (start[:draw.randrange(1, len(start) + 1)]
                      + tokens(draw.randrange(1, 200)))
            answer = cache.do("insert", prompt)
            prompts.append(prompt)
            if answer["tokens"] > CAPACITY:
                answer = cache.do("evict", draw.randrange(1, 3000))
            if number == OPERATIONS // 2:
                answer = cache.do("reset", True)
            if number == OPERATIONS // 3:
                cache.relay.kill()
                cache.start_relay()
            if number % EVERY:
                continue
            fleet.wait_trusted("w1")
            fleet.settle("w1", last=answer["messages"] - 1)
            for prompt in draw.sample(prompts[-400:], COMPARED):
                held = fleet.query(prompt).get(("w1", 0), (0,))[0]
                runner.count(name, "at random", SimpleNamespace(
                    status=200, told=held * PAGE, rank=0,
                    had=cache.do("match", prompt)["had"],
                    prompt=len(prompt), confidence="EXACT"))
        runner.say(f"{name}: {answer['messages']} messages, "
                   f"{dict(runner.rows[name, 'at random'])}")
        runner.judge(name, "at random")
