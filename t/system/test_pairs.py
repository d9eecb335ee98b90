#!/usr/bin/python3
"""Features in pairs, with sanitizers; and accounts heal; TAP.

    test_pairs.py [--help | --table | all | NUMBER...]

nginx is started with each configuration of pairs.py: the first ones, all, or
those of these numbers.  Ordinary and hostile requests are sent, engines fail
and are asked again, clients leave at any moment, nginx is reloaded, and an
engine is killed and returns.  Then it is quiet: no sanitizer, crash or error
was told, nothing is counted any more that has ended, what was counted agrees
with the access log, and each process asks engines as before.

--table prints which configurations have which pair.
"""

import collections
import contextlib
import itertools
import json
import random
import re
import sys

import pairs
from pairs_bodies import CHATS, hostile
from pairs_clients import ENDS, Clients
from pairs_stage import ENDED, MODULE, Stage
from scripted import ask
from stage import SEED, tap, wait_until

FIRST = len(pairs.GIVEN)        # configurations, unless others are named
WARM, MIXED, HOSTILE = 24, 120, 90      # requests
LEAVERS = 64                    # who leave while an engine is asked: more than
                                # engines are asked at once by two processes
COUNTERS = ("active_requests", "active_prefills", "prefill_tokens",
            "decode_blocks")
LOG = re.compile(r"\[(alert|emerg)\]|exited on signal|lua entry thread aborted"
                 r"|runtime error|attempt to |policy .* failed")


class Run:
    """One configuration, from start to end."""

    def __init__(self, on, number):
        self.on, self.rng = on, random.Random(SEED * 1000 + number)
        self.clients = Clients(on.port, SEED * 1000 + number)
        self._words = itertools.count()

    def traffic(self):
        """All that is sent, and done meanwhile."""
        on = self.on
        for _ in range(WARM):
            self._add(on.ordinary.next(), "whole")
        self.clients.run()
        for engine in on.engines.values():
            engine.faulty = True
        requests = ([(on.ordinary.next(), self.rng.choice(ENDS))
                     for _ in range(MIXED)]
                    + [(request, self.rng.choice(("whole", "whole", "chunked",
                                                  "question")))
                       for request in hostile(self.rng, HOSTILE)])
        self.rng.shuffle(requests)
        for request, end in requests:
            self._add(request, end)
        killed = on.engines[self.rng.choice(("w1", "w2", "d1"))]
        change = [on.feed.change] if on.feed else [on.status]
        self.clients.run([self._prefix, *change, killed.die, *change, on.hup,
                          self._prefix, *change, killed.live, *change])
        for engine in on.engines.values():
            engine.faulty = False
        wait_until("all engines are well", self._well, ENDED)
        for engine in on.engines.values():
            engine.pensive = True
        asking = [number for number, (_, tokenizer)
                  in enumerate(on.row["routers"])
                  if tokenizer in ("remote", "auto")]
        for number, _ in zip(itertools.cycle(asking), range(LEAVERS)):
            self.clients.add(number, (CHATS, self._chat(), {}), "asked")
        self.clients.run()
        for engine in on.engines.values():
            engine.pensive = False

    def _well(self):
        """Whether all engines that are asked are well, after some requests
        more."""
        for _ in range(8):
            self._add(self.on.ordinary.next(), "whole")
        self.clients.run()
        roles = {"both"}
        for policy, _ in self.on.row["routers"]:
            roles.update({"disaggregated-vllm": ("prefill", "decode"),
                          "disaggregated-sglang": ("prefill", "decode"),
                          "disaggregated-sidecar": ("decode",)}.get(
                              policy, ()))
        return all(worker["health"]["state"] == "ok"
                   for worker in self.on.workers().values()
                   if worker["role"] in roles)

    def _chat(self):
        """A chat that nobody knows."""
        text = f"Number {next(self._words)} of all. " * 12
        return json.dumps({"model": "m", "messages": [
            {"role": "user", "content": text}]}).encode()

    def _add(self, request, end):
        self.clients.add(self.rng.randrange(pairs.ROUTERS), request, end)

    def _prefix(self):
        if self.on.on("prefix"):
            self.on.call("GET", "/prefix")

    # ---------------------------------------------------------------- checks

    def accounts(self):
        """Nothing is counted that has ended, in any process."""
        on = self.on

        def left():
            status = on.status()
            found = {(worker["worker_id"], name): row[name]
                     for worker in status["workers"]
                     for row in worker["load"] for name in COUNTERS
                     if row[name]}
            for name, count in (
                    ("waiting", status["waiting"]),
                    ("unread", status["routed"]["unread"]),
                    *((name, status["index"][name])
                      for name in ("load_below_zero", "load_uncounted"))):
                if count:
                    found[name] = count
            return found

        try:
            wait_until("no load", lambda: not left(), ENDED)
        except Exception as err:
            raise AssertionError(f"{err}: {left()}") from err
        for prompt in on.ordinary.prompts:
            on.of_each_process(lambda prompt=prompt: self._inside(prompt),
                               lambda said: said == 0)
        if on.on("prefix"):
            assert int(on.call("GET", "/prefix")) == 0

    def _inside(self, prompt):
        """Blocks of a prompt that are in flight, as some process knows."""
        status, _, body = ask(self.on.port, "POST", "/probe/completions",
                              json.dumps({"prompt": prompt}))
        assert status == 200, (status, body)
        said = json.loads(body)
        return said["pid"], said["in_flight"]

    def questions(self):
        """Each process makes token ids of a text as before."""
        sources = {"remote": ("remote",), "auto": ("render", "remote"),
                   "local": ("local",), "none": ("load", "text")}
        for number, (_, tokenizer) in enumerate(self.on.row["routers"]):
            self.on.of_each_process(
                lambda number=number: self._ask(number),
                lambda said, tokenizer=tokenizer: said[0] == 200
                and said[1] in sources[tokenizer])

    def _ask(self, number):
        """Which process had a chat, and what came of it."""
        status, route = self.on.route(number, CHATS, self._chat())
        return int(route[0]) if route[0] != "-" else 0, (status, *route[1:])

    def counters(self):
        """What was counted agrees with the access log."""
        def differences():
            status = self.on.status()
            lines = self.on.routed()
            logged = collections.Counter(
                (worker, _kind(status)) for status, worker, asked in lines
                if asked != "-")
            counted = collections.Counter()
            for worker in status["workers"]:
                for kind, count in worker["responses"].items():
                    if count:
                        counted[worker["worker_id"],
                                kind if kind in ("2xx", "5xx")
                                else "other"] += count
            requests = status["requests"]
            return {key: (counted[key], logged[key])
                    for key in counted.keys() | logged.keys()
                    if counted[key] != logged[key]} or (
                        requests["routed"] != len(lines)
                        and (requests, len(lines)))
        try:
            wait_until("the counters agree", lambda: not differences(), ENDED)
        except Exception as err:
            raise AssertionError(f"{err}: {differences()}") from err
        reasons = self.on.status()["requests"]["by_reason"]
        assert reasons["policy_error"] == 0, reasons

    def figures(self):
        """What happened, in a line."""
        status = self.on.status()
        reasons = {name: count for name, count
                   in status["requests"]["by_reason"].items() if count}
        return (f"{self.clients.sent} requests, {reasons}, "
                f"tokens {status['requests']['by_rung']}")

    def log(self):
        """The error log has no alert, and no error of Lua."""
        wrong = [line for line in self.on.log().splitlines()
                 if LOG.search(line)]
        assert not wrong, "\n".join(list(dict.fromkeys(wrong))[:10])

    def reports(self):
        """No sanitizer has said anything."""
        reports = self.on.reports()
        assert not reports, reports


def _kind(status):
    """2xx and 5xx; of others nginx may send none to who has left."""
    return f"{status // 100}xx" if status // 100 in (2, 5) else "other"


def run(number, row):
    """Runs a configuration; AssertionError with all that is wrong."""
    wrong = []

    def check(what):
        try:
            what()
        except Exception as err:        # pylint: disable=broad-except
            wrong.append(f"{what.__name__}: {type(err).__name__}: {err}")

    with Stage(row, SEED * 1000 + number) as on:
        one = Run(on, number)
        for what in (one.traffic, on.quiet, one.accounts, one.questions,
                     one.accounts, one.counters):
            check(what)
            if wrong:
                break
        with contextlib.suppress(OSError):
            print(f"# {number}: {one.figures()}")
        check(lambda: _ended(on))
        check(one.log)
        check(one.reports)
    assert not wrong, "\n".join([pairs.text_of(row), *wrong])


def _ended(on):
    """nginx has ended well."""
    status = on.quit()
    assert status == 0, status


def tests_of(numbers, rows):
    """The tests of the configurations of these numbers."""
    for number in numbers:
        def test(number=number):
            run(number, rows[number - 1])
        test.__doc__ = (f"configuration {number}: nothing breaks, and when it "
                        "is quiet all accounts are zero: "
                        + pairs.text_of(rows[number - 1]))
        yield test


def all_pairs_are_there():
    """some configuration has each pair"""
    rows = pairs.rows()
    missing = pairs.all_pairs().difference(*map(pairs.pairs_of, rows))
    assert not missing, missing
    assert all(map(pairs.allowed, rows))
    print(f"# {len(pairs.all_pairs())} pairs in {len(rows)} configurations")


def main():
    """Runs the tests, or prints the table."""
    rows = pairs.rows()
    arguments = sys.argv[1:]
    if arguments == ["--help"]:
        print(__doc__)
        return 0
    if arguments == ["--table"]:
        print("\n".join(pairs.table(rows)))
        return 0
    if not MODULE.is_file():
        print(f"Bail out!  {MODULE} isn't there: make module-asan")
        return 1
    numbers = (range(1, len(rows) + 1) if arguments == ["all"] else
               [int(word) for word in arguments] or range(1, FIRST + 1))
    return tap.run([all_pairs_are_there, *tests_of(numbers, rows)])


if __name__ == "__main__":
    sys.exit(main())
