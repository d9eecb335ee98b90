#!/usr/bin/python3
"""The engine stand-in reads and answers the golden requests as vLLM and SGLang
do, t/vectors/golden; TAP.
"""

import http.client
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

import tap
from processes import WAIT_SECONDS, Process, wait_until
from worker import DEMO

sys.path.insert(0, str(DEMO.parent / "t" / "engines"))

from golden_answers import (GOLDEN, ids_of, recorded,           # noqa: E402
                            usage_of)

# What the stand-in has otherwise than an engine, by a beginning of the name.
# Each must be seen: what is right has to be taken off the list.
FOLLOWS = "responses: previous_response_id"     # the id of another answer
OTHERWISE = {
    "vllm": [
        "completions: beam search",             # it says what was cached
        "completions: suffix",                  # taken, and ignored
        "completions: an id too large",         # there is no vocabulary
        "chat: chat_template in the body",      # taken, and ignored
        "chat: a batch",                        # no such path
        "messages: thinking enabled",           # needs no parser
        FOLLOWS,
        "detokenize", "invocations"],           # no such path
    "sglang": [
        "completions: several cache salts",     # one for all
        "messages: redacted_thinking",          # taken, and ignored
        "responses: streamed",      # SGLang has no text in so few tokens
        FOLLOWS,
        "generate: several extra keys",         # one for all
        "generate: input logprobs",             # taken, and ignored
        "generate: session_params", "generate: custom_logit_processor",
        "detokenize", "embeddings", "score", "rerank"]}     # no such path


class Stand:
    """A stand-in of one engine, with the golden tokenizer."""

    def __init__(self, kind, directory, scale_out=True):
        self.directory = directory
        header, self.cases = recorded(kind)
        self.kind = kind
        self.process = Process(kind, [
            sys.executable, "-B", str(DEMO / "engine.py"), "--engine", kind,
            *["--enable-scale-out"] * scale_out, "--tokenizer", str(GOLDEN / "model"),
            "--model", "golden", "--lora", "sql", "--lora", "chat",
            "--block-size", str(header["block_size"]), "--blocks", "256",
            "--prefill-us-per-token", "0", "--decode-us-per-token", "0"],
            directory)

        def ready():
            self.process.check_alive()
            return re.search(r"^ready on \S+:(\d+)$",
                             self.process.log.read_text(), re.MULTILINE)

        self.port = int(wait_until(kind, ready)[1])

    def send(self, method, path, body):
        """A request: status, the answer's type, its text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=WAIT_SECONDS)
        try:
            connection.request(method, path,
                               None if body is None else body.encode())
            response = connection.getresponse()
            return (response.status,
                    response.headers["Content-Type"].partition(";")[0],
                    response.read().decode())
        finally:
            connection.close()

    def sizes(self, case):
        """What follows is answered: a prompt with the one before in it."""
        first = self.send("POST", case["path"], case["before"])
        body = json.loads(case["body"])
        body["previous_response_id"] = json.loads(first[2])["id"]
        _, kind, text = self.send("POST", case["path"], json.dumps(body))
        return usage_of(*first[1:])["prompt"], usage_of(kind, text)["prompt"]

    def differs(self, case):
        """In what the stand-in differs from the engine; None: in nothing."""
        read = [sequence["ids"] for sequence in case["sequences"]]
        self.send("POST", "/flush_cache" if self.kind == "sglang"
                  else "/reset_prefix_cache", "")
        for _ in "ab":
            status, kind, text = self.send(case["method"], case["path"],
                                           case["body"])
        if status != case["status"]:
            return f"status {status}, not {case['status']}: {text[:200]}"
        if status != 200:
            return None
        if kind != case["answer"]["type"]:
            return f"type {kind}"
        if events(text) != events(case["answer"]["text"]):
            return f"events {events(text)}"
        for path, asked in ((case["path"] + "/render", case.get("render")),
                            ("/tokenize", case.get("tokenize"))):
            wanted = asked and asked.get("ids")
            if wanted:
                ids = ids_of(self.send("POST", path, asked.get(
                    "body", case["body"]))[2])
                if wanted == "as_read":
                    wanted = read if ids and isinstance(ids[0], list) \
                        else read[0]
                if ids != wanted:
                    return f"{path}: {ids}, not {wanted}"
        usage, wanted = usage_of(kind, text), case["usage"]
        for part in ("prompt", "cached"):
            if (usage or {}).get(part) != (wanted or {}).get(part):
                return f"usage {usage}, not {wanted}"
        if ids_of(text) is not None and not case["sequences"] \
                and ids_of(text) != ids_of(case["answer"]["text"]):
            return f"other ids than the engine's: {text[:200]}"
        return None


def events(text):
    """The names of a stream's events, each once, in their order."""
    return list(dict.fromkeys(re.findall(r"^event: (\S+)$", text, re.M)))


def all_of(stand):
    """All cases of an engine, but those which are otherwise."""
    wrong, seen = [], set()
    for case in stand.cases:
        why = stand.differs(case)
        known = [name for name in OTHERWISE[stand.kind]
                 if case["name"].startswith(name)]
        if why and not known:
            wrong.append(f"{case['name']}: {why}")
        elif why:
            seen.update(known)
    wrong += [f"{name}: is right, take it off the list"
              for name in OTHERWISE[stand.kind] if name not in seen]
    assert not wrong, "\n".join(wrong)


at = {}                         # the stand-ins, set by main()


def as_vllm_does():
    """the golden requests of vLLM are read and answered as vLLM does"""
    all_of(at["vllm"])


def as_sglang_does():
    """the golden requests of SGLang are read and answered as SGLang does"""
    all_of(at["sglang"])


def responses_follow():
    """a response that follows another one has it in its prompt"""
    for stand in at.values():
        (case,) = (case for case in stand.cases if case["name"] == FOLLOWS)
        before, after = stand.sizes(case)
        assert after > before, (before, after)


def disabled_paths_say_so():
    """/render of vLLM is forbidden unless it was asked for"""
    stand = Stand("vllm", at["vllm"].directory, scale_out=False)
    try:
        status, _, text = stand.send("POST", "/v1/completions/render",
                                     '{"prompt":[1]}')
        assert status == 403 and "--enable-scale-out" in text, text
    finally:
        stand.process.stop()


def main():
    """The program."""
    directory = Path(tempfile.mkdtemp(prefix="kv-router-test-"))
    try:
        for kind in OTHERWISE:
            at[kind] = Stand(kind, directory)
        return tap.run([as_vllm_does, as_sglang_does, responses_follow,
                        disabled_paths_say_so])
    finally:
        for stand in at.values():
            stand.process.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
