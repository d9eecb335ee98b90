"""Engines with a relay each, and whoever starts a relay again."""

import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path

from clock import Clock
from stage import ROOT, Process, free_port

from .blocks import INDEX_BLOCK, Prompts
from .engine import LARGE, PAIRS, PROFILES, TOO_LARGE, Engine
from .proxy import Proxy
from .trtllm import TrtEngine

RELAY = Path(os.environ.get("KVR_BUILD") or ROOT / "build") / "kv-relay"
SUPERSEDED = 3                  # a relay's exit code
EXPECTED = (None, 0, SUPERSEDED, -signal.SIGKILL)
DRAINED = "drained"             # the engine that is polled
MIXED = "mixed"                 # ... whose ranks nobody can tell apart
SMALL = tuple(profile.name for profile in PROFILES
              if profile.name != LARGE) + (DRAINED, MIXED)
EAGLE = tuple(profile.name for profile in PAIRS)


class Relay:
    """The relay of one engine; start() as often as it is needed."""

    def __init__(self, engine, loop, redis_port, ports, directory,
                 clock=None):
        self.engine, self.directory = engine, directory
        self.ports = ports              # {rank: (PUB, ROUTER)}, or HTTP's
        self.proxy = Proxy(loop, redis_port)
        self.process = None
        self.statuses = []              # exit codes of those that have ended
        self.clock = clock or Clock(directory / f"{engine.name}.clock")
        self._twin = (engine, loop, redis_port, ports, directory, self.clock)

    def twin(self):
        """Another relay of the same engine, not started."""
        return Relay(*self._twin)

    def start(self):
        """Starts it; it goes by its clock."""
        self.engine.relays += 1
        self._note()
        self.process = Process(
            f"{self.engine.name}-{self.engine.relays:04}",
            [*self.clock.prefix(), *self._command()], self.directory)

    def ensure(self):
        """Starts it when it has ended, as a supervisor does."""
        if self.process is None or self.status() is not None:
            self.start()

    def crashed(self):
        """The exit codes that nobody has asked for."""
        self._note()
        return [status for status in self.statuses if status not in EXPECTED]

    def status(self):
        """The exit code; None while it runs."""
        return self.process.status()

    def works(self):
        """Whether it has the lease, by what it has said last."""
        said = self.process.log.read_text(errors="replace")
        return said.rfind('msg="lease taken"') > said.rfind('msg="standby"')

    def waits(self):
        """How often it has begun to wait for another relay's lease."""
        return self.process.log.read_text(errors="replace").count(
            'msg="standby"')

    def kill(self):
        """Ends it as kill -9 does."""
        with contextlib.suppress(ProcessLookupError):
            self.process.signal(signal.SIGKILL)
        self.process.stop()

    def signal(self, number):
        """Sends it a signal."""
        with contextlib.suppress(ProcessLookupError):
            self.process.signal(number)

    def stop(self):
        """Ends it gently."""
        if self.process is not None:
            self.signal(signal.SIGCONT)
            self.process.stop()

    def log(self):
        """What all that were started have said."""
        return "".join(
            f"--- {path.name}\n" + path.read_text(errors="replace")
            for path in sorted(self.directory.glob(
                self.engine.name + "-*.log")))

    def _note(self):
        if self.process is not None:
            self.statuses.append(self.status())

    def _command(self):
        profile = self.engine.profile
        command = [str(RELAY), "--worker", self.engine.name,
                   "--redis", f"redis://127.0.0.1:{self.proxy.port}",
                   "--block-size", str(INDEX_BLOCK),
                   "--address", "127.0.0.1:80", "--listen", "127.0.0.1:0",
                   "--snapshot-interval", "100", "--memory",
                   str(2 * TOO_LARGE)]
        if isinstance(self.ports, int):
            command += ["--trtllm", f"http://127.0.0.1:{self.ports}"]
        else:
            for _, (events, replay) in sorted(self.ports.items()):
                command += ["--events", f"tcp://127.0.0.1:{events}",
                            "--replay", f"tcp://127.0.0.1:{replay}"]
        if not profile.refcount:
            command += ["--refcount", "off"]
        if profile.pairs:
            command += ["--eagle", "on"]
        return command


class Fleet:
    """The engines, their relays, and the load."""

    def __init__(self, loop, redis_port, directory, seed, rate,
                 kinds):
        self.rng = random.Random(seed + 1)
        self.engines, self.relays = {}, {}
        self._relay = lambda engine, ports: Relay(engine, loop, redis_port,
                                                  ports, directory)
        for number, profile in enumerate(PROFILES + PAIRS):
            if profile.name not in kinds:
                continue
            prompts = Prompts(random.Random(seed),
                              tokens=profile.prompt_tokens)
            engine = Engine(profile.name, profile, prompts, seed + number)
            ports = {rank: (free_port(), free_port())
                     for rank in range(profile.ranks)}
            self._add(engine, ports)
        for name, ranks in ((DRAINED, 1), (MIXED, 2)):
            if name in kinds:
                self._add(TrtEngine(name, Prompts(random.Random(seed)), seed,
                                    ranks), free_port())
        self._pause = 1 / rate
        self._going = False
        self._thread = None

    def _add(self, engine, ports):
        engine.start(ports)
        self.engines[engine.name] = engine
        self.relays[engine.name] = self._relay(engine, ports)

    def workers(self, scope):
        """The engines that faults of a scope are about."""
        return sorted(name for name in self.sure()
                      if (name == DRAINED) == (scope == "drain"))

    def sure(self):
        """The engines of which all can be known."""
        return set(self.engines) - {MIXED}

    def start(self):
        """Starts the relays and the load."""
        for relay in self.relays.values():
            relay.start()
        self._going = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def rest(self):
        """Ends the load."""
        self._going = False
        if self._thread:
            self._thread.join()

    def stop(self):
        """Ends all."""
        self.rest()
        for relay in self.relays.values():
            relay.stop()
        for engine in self.engines.values():
            engine.stop()

    def ensure(self, names):
        """Starts those relays that have ended."""
        for name in names:
            self.relays[name].ensure()

    def lost(self, worker):
        """Whether what an engine holds can't be known."""
        engine = self.engines[worker]
        with engine.lock:
            return any(rank.lives[-1].lost(rank.lives[-1].last())
                       for rank in engine.ranks)

    def urge(self, positions):
        """Has those engines work that have said nothing since: the load's
        thread may be late."""
        for name, position in positions.items():
            if self.engines[name].position() == position:
                self.engines[name].step()

    def positions(self):
        """What every engine, of which all can be known, sent last:
        {worker: [(life, seq) of a rank]}."""
        return {name: self.engines[name].position() for name in self.sure()}

    def _run(self):
        engines = list(self.engines.values())
        while self._going:
            self.rng.choice(engines).step()
            time.sleep(self._pause)
