#!/usr/bin/python3
"""Records the golden requests: golden.py vllm|sglang [--only TEXT].

Starts the engine's own server with an ear at what it hands to its scheduler,
sends it each case of golden_cases.py, and writes what it read and answered to
t/vectors/golden/ENGINE.jsonl; t/vectors/golden/README.md has the format.  With
--only just the cases with this text in their name are printed, and no file is
written.
"""

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import golden_serve
from fleet import BUILD, MODELS, ROOT, STARTING, Server, exchange, stage
from golden_answers import GOLDEN, ids_of, usage_of
from golden_cases import (CHATS, COMPLETIONS, MESSAGES, PREVIOUS, RESPONSES,
                          cases)
from processes import DemoError, wait_until

MODEL = MODELS / "golden"
RENDERED = (COMPLETIONS, CHATS, MESSAGES, RESPONSES)


class Engine:
    """An engine's server, and what its ear hears."""

    def __init__(self, kind, directory):
        self.kind, self.directory = kind, Path(directory)
        self.port = stage.free_port()
        self.ear = self.directory / "heard.jsonl"
        self.ear.touch()
        self.process = None

    def __enter__(self):
        self.process = Server(self.kind.name, self.kind.command(
            self.ear, self.port, MODEL), self.directory)
        try:
            wait_until(f"{self.kind.name} answers", self._answers, STARTING)
        except DemoError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            self.process.signal(signal.SIGTERM)
        with contextlib.suppress(DemoError):
            wait_until("the engine ends",
                       lambda: self.process.status() is not None, 20.0)
        self.process.kill()
        logs = BUILD / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.process.log, logs / f"golden-{self.kind.name}.log")

    def _answers(self):
        self.process.check_alive()
        return exchange(self.port, "GET", "/health")[0] == 200

    def send(self, method, path, body):
        """A request: its status, the answer's type, its text."""
        status, head, data = exchange(
            self.port, method, path, None if body is None else body.encode())
        return (status, (head.get("Content-Type") or "").partition(";")[0],
                data.decode())

    def hear(self, method, path, body):
        """A request's answer, and what the scheduler got meanwhile."""
        known = len(self.heard())
        answer = self.send(method, path, body)
        return answer, self.heard()[known:]

    def heard(self):
        """All that the scheduler ever got."""
        return [json.loads(line) for line
                in self.ear.read_text(encoding="utf-8").splitlines()]


def sequences(heard):
    """Equal sequences in a row as one, with how many they are."""
    found = []
    for sequence in heard:
        if found and {**found[-1], "times": 1} == {**sequence, "times": 1}:
            found[-1]["times"] += 1
        else:
            found.append({**sequence, "times": 1})
    return found


def asked(engine, path, body, read):
    """What an engine answers to a question for ids; "as_read" where these
    are those of all sequences that it `read`."""
    status, _, text = engine.send("POST", path, body)
    ids = ids_of(text) if status == 200 else None
    if ids is None:
        return {"status": status, "answer": text}
    lists = [ids] if ids and isinstance(ids[0], int) else ids
    if lists == [sequence["ids"] for sequence in read]:
        return {"status": status, "ids": "as_read"}
    return {"status": status, "ids": ids}


def record(engine, case):
    """One case: sent to an empty cache, and again."""
    kind, body = engine.kind, case.body
    engine.send("POST", kind.reset, "")
    if case.before:
        _, _, text = engine.send("POST", RESPONSES, json.dumps(case.before))
        body = body.replace(PREVIOUS, json.loads(text)["id"])
    _, heard = engine.hear(case.method, case.path, body)
    (status, type_, text), again = engine.hear(case.method, case.path, body)
    found = {"name": case.name, "method": case.method, "path": case.path,
             "body": body, "status": status, "sequences": sequences(heard)}
    if sequences(heard) != sequences(again) and not case.before:
        raise AssertionError(f"{case.name}: other tokens at the second time: "
                             f"{heard}, {again}")
    if case.before:
        found["before"] = json.dumps(case.before)
        found["sequences"] = sequences(again)
    question = kind.question(case.path, body) if body else None
    if question:
        found["tokenize"] = {"body": question} | asked(
            engine, "/tokenize", question, found["sequences"])
    if case.path in RENDERED and kind.renders:
        found["render"] = asked(engine, case.path + "/render", body,
                                found["sequences"])
    found["answer"] = {"type": type_, "text": text}
    found["usage"] = usage_of(type_, text) if again else None
    return found


def main():
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=sorted(golden_serve.KINDS))
    parser.add_argument("--only", metavar="TEXT")
    options = parser.parse_args()
    kind = golden_serve.KINDS[options.engine]
    BUILD.mkdir(parents=True, exist_ok=True)
    kind.install()
    golden_serve.make_model(GOLDEN / "model", MODEL)
    lines = [{"header": {"engine": kind.name, "version": kind.version,
                         "block_size": kind.block_size,
                         "options": kind.options()}}]
    with tempfile.TemporaryDirectory(prefix="kv-router-golden-") as folder, \
            Engine(kind, folder) as engine:
        for case in cases(kind.name):
            if options.only and options.only not in case.name:
                continue
            found = record(engine, case)
            lines.append(found)
            print(f"{found['status']} {case.name}: "
                  f"{[len(it['ids'] or ()) for it in found['sequences']]} "
                  f"{found['usage']}", flush=True)
            if options.only:
                print(json.dumps(found, indent=1, ensure_ascii=False))
    if not options.only:
        text = "".join(json.dumps(line, ensure_ascii=True,
                                  separators=(",", ":")) + "\n"
                       for line in lines)
        text = text.replace(str(MODEL), "MODEL").replace(str(ROOT), "ROOT")
        (GOLDEN / f"{kind.name}.jsonl").write_text(text, encoding="ascii")


if __name__ == "__main__":
    sys.exit(main())
