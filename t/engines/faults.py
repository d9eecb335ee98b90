"""Faults, with requests going on meanwhile: until when a view is not trusted,
what is told that is not so, and what fails.
"""

import json
import signal
import threading
import time

from fleet import Fleet
from prompts import Prompts

GAP = 0.15                      # seconds between two requests
LOOK = 0.05                     # seconds between two looks at the workers
AFTER = 2.0                     # seconds of requests after all is well again
SAMPLE = 12                     # requests that are held one by one in the end

# seconds are those since the fault
HEADING = ("| fault | undone after | some view not EXACT | requests "
           "| told more, EXACT | told more, not EXACT | told less | failed |\n"
           "|---|---|---|---|---|---|---|---|")


class Traffic:
    """Requests one after the other, and looks at the workers."""

    def __init__(self, fleet, prompts):
        self.fleet, self.prompts = fleet, prompts
        self.answers = []               # Answer, or the OSError
        self.looks = []                 # (time, whether all are EXACT)
        self.going = True
        self.threads = [threading.Thread(target=self._send, daemon=True),
                        threading.Thread(target=self._look, daemon=True)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.going = False
        for thread in self.threads:
            thread.join()

    def _send(self):
        for request in self.prompts.token_ids(1 << 30):
            if not self.going:
                break
            try:
                self.answers.append(self.fleet.ask(*request))
            except OSError as err:
                self.answers.append(err)
            time.sleep(GAP)

    def _look(self):
        while self.going:
            try:
                status = json.loads(self.fleet.call("GET", "/status"))
                known = {worker["worker_id"]: worker["confidence"]
                         for worker in status["workers"]}
                well = all(known.get(worker) == "EXACT"
                           for worker in self.fleet.engines)
            except OSError:
                well = False
            self.looks.append((time.monotonic(), well))
            time.sleep(LOOK)

    def doubts(self, moment):
        """From when to when, in seconds since then, some worker was seen not
        to be EXACT."""
        seen = [at - moment for at, well in self.looks
                if not well and at >= moment]
        return f"{seen[0]:.1f} to {seen[-1]:.1f} s" if seen else "never seen"


class Faults:
    """Each fault is a row of the table, and a check."""

    def __init__(self, run, fleet, prompts):
        self.run, self.fleet, self.prompts = run, fleet, prompts
        self.rows = []

    def during(self, name, break_, mend=None, away=3.0, refused=False):
        """A fault, and what undoes it, with requests going on.  With
        `refused`, nginx itself is away: connections may be refused, and those
        that it served when it was told to end (SIGTERM) are cut."""
        self.run.say(f"{name}")
        with Traffic(self.fleet, self.prompts) as traffic:
            time.sleep(1)
            begun = time.monotonic()
            break_()
            if mend:
                time.sleep(away)
                mend()
            mended = time.monotonic()
            # the first word of a fault may come late: at most as late as
            # stale= has it
            time.sleep(6)
            for worker in self.fleet.engines:
                self.fleet.wait_trusted(worker)
            time.sleep(AFTER)
        self._row(name, traffic, begun, mended, refused)

    def _row(self, name, traffic, begun, mended, refused):
        more, bound, less, failed = [], 0, 0, []
        for answer in traffic.answers:
            if isinstance(answer, OSError):
                if not refused or not isinstance(
                        answer, (ConnectionRefusedError,
                                 ConnectionResetError)):
                    failed.append(str(answer))
            elif answer.status != 200:
                failed.append(f"{answer.status} {answer.data[:100]}")
            elif answer.told > answer.had:
                if answer.confidence == "EXACT":
                    more.append(f"told {answer.told}, had {answer.had}")
                else:
                    bound += 1
            else:
                less += answer.told < answer.had
        self.rows.append(
            f"| {name} | {mended - begun:.1f} s | {traffic.doubts(begun)} "
            f"| {len(traffic.answers)} | {len(more)} | {bound} | {less} "
            f"| {len(failed)} |")
        self.run.say(self.rows[-1])
        self.run.check("faults", f"{name}: no request fails",
                       str(failed[:3]) if failed else None)
        self.run.check("faults", f"{name}: no EXACT view tells more",
                       str(more[:3]) if more else None)
        self._sample(name)

    def _sample(self, name):
        """In silence, what is told is what the engine has."""
        form = f"after: {name}"
        for worker in self.fleet.engines:
            self.fleet.settle(worker)
        self.run.one_by_one(self.fleet, form, (
            self.prompts.completion(self.prompts.prompt())
            for _ in range(SAMPLE)), model="faults")
        self.run.judge("faults", form)

    # -------------------------------------------------------------- faults

    def reset(self):
        """An idle engine's reset, which it publishes with its next step."""
        prompt = self.prompts.ids(200)
        pin = {"x-kv-worker": "w1"}
        path, body, _ = self.prompts.completion(prompt)
        self.fleet.ask(path, body, pin)
        self.fleet.settle("w1", prompt)
        status, _ = self.fleet.engines["w1"].call(
            "POST", "/reset_prefix_cache")
        assert status == 200, status
        answer = self.fleet.ask(path, body, pin)
        self.run.count("faults", "reset of an idle engine", answer)
        self.run.check(
            "faults", "reset of an idle engine",
            f"told {answer.told}, had {answer.had}"
            if answer.told > answer.had else None)
        self._sample("reset of an idle engine")

    def relays(self):
        """The relay of w1 is killed, stopped, and ended."""
        engine = self.fleet.engines["w1"]
        self.during("relay killed (KILL), started 3 s later",
                    lambda: engine.relay.kill(), engine.start_relay)
        self.during("relay stopped (STOP) for 8 s",
                    lambda: engine.relay.signal(signal.SIGSTOP),
                    lambda: engine.relay.signal(signal.SIGCONT), away=8.0)
        self.during("relay ended (TERM), started 5 s later",
                    lambda: engine.relay.stop(), engine.start_relay, away=5.0)

    def redis(self):
        """Redis loses all."""
        self.during("Redis killed, empty 3 s later",
                    lambda: self.fleet.stop_redis(signal.SIGKILL),
                    self.fleet.start_redis)

    def nginx(self):
        """Reloads and a restart."""
        self.during("nginx reloaded", self.fleet.reload)

        def thrice():
            for _ in range(3):
                self.fleet.reload()
                time.sleep(1)

        self.during("nginx reloaded three times", thrice)
        self.during("nginx restarted", self.fleet.stop_nginx,
                    lambda: self.fleet.start_nginx({}), away=0.0,
                    refused=True)

    def engine(self):
        """The engine of w1 is killed, with its relay and without."""
        engine = self.fleet.engines["w1"]

        def back():
            engine.start()
            engine.wait_ready()

        self.during("engine killed (KILL), started 3 s later",
                    lambda: engine.process.kill(), back)

        def both():
            engine.process.kill()
            engine.relay.kill()

        def without():
            back()
            time.sleep(3)
            engine.start_relay()

        self.during("engine and relay killed, the engine back, then the relay",
                    both, without)
        self.fleet.wait_served("w1")


def run(runner, model):
    """All faults, with two engines."""
    prompts = Prompts(model, runner.options.seed)
    runner.say("faults: two engines start")
    with Fleet("faults", model, ("w1", "w2")) as fleet:
        faults = Faults(runner, fleet, prompts)
        runner.say("faults: both engines answer")
        try:
            for fault in (faults.reset, faults.relays, faults.redis,
                          faults.nginx, faults.engine):
                fault()
        finally:
            runner.tables.append("\n".join([HEADING, *faults.rows]))
