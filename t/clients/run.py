#!/usr/bin/python3
"""Runs npm's openai and @anthropic-ai/sdk through the router; TAP.

They come from the npm registry, into build/clients.  Where Node or the
registry is not to be had it says so, and runs nothing.  The engine's answers
are recorded ones of vLLM and SGLang, t/vectors/golden.
"""

import json
import queue
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "t" / "system")]

import stage                                                    # noqa: E402
import test_as_it_came as way                                   # noqa: E402
from golden_answers import recorded                             # noqa: E402
from scripted import Engine, chunk, fixed, head_of_chunks       # noqa: E402

PACKAGES = ("openai@7.57.0", "@anthropic-ai/sdk@1.12.0")
FOLDER = stage.MODULE.resolve().parent / "clients"
# which recorded answer is given: (path, streamed) -> the case's name
ANSWERS = {
    ("/v1/completions", False): "completions: text",
    ("/v1/completions", True): "completions: ids, streamed",
    ("/v1/chat/completions", False): "chat: system and user",
    ("/v1/chat/completions", True): "chat: streamed",
    ("/v1/responses", False): "responses: instructions",
    ("/v1/responses", True): "responses: streamed",
    ("/v1/messages", False): "messages: system",
    ("/v1/messages", True): "messages: streamed",
    ("/v1/messages/count_tokens", False): "messages: count_tokens",
    ("/v1/models", False): "models"}


def installed():
    """Whether the packages are there; installs them, once."""
    stamp, wanted = FOLDER / "installed", " ".join(PACKAGES)
    if stamp.is_file() and stamp.read_text() == wanted:
        return True
    FOLDER.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["npm", "install", "--prefix", FOLDER, "--no-audit", "--no-fund",
         "--ignore-scripts", "--loglevel", "error", *PACKAGES], check=False)
    if done.returncode == 0:
        stamp.write_text(wanted)
    return done.returncode == 0


def main():
    """The program."""
    if not shutil.which("node") or not shutil.which("npm"):
        print("1..0 # SKIP node and npm are not installed")
        return 0
    if not installed():
        print("1..0 # SKIP npm could not install " + " ".join(PACKAGES))
        return 0
    cases = {name: {case["name"]: case["answer"] for case in
                    recorded(name)[1]} for name in ("vllm", "sglang")}
    left = queue.Queue()

    def answer(peer, head, body):
        _, path, _ = head.decode().split(" ", 2)
        said = json.loads(body) if body else {}
        engine = re.search(r"(?i)\r\nx-engine: (\S+)", head.decode())[1]
        streamed = bool(said.get("stream"))
        found = cases[engine][ANSWERS[path.partition("?")[0], streamed]]
        data = found["text"].encode()
        if not streamed:
            peer.sendall(fixed(200, found["type"], data))
            return True
        peer.sendall(head_of_chunks(200, found["type"]))
        parts = data.split(b"\n\n")
        if said.get("user") == "leaves":
            peer.sendall(chunk(parts[0] + b"\n\n"))
            peer.settimeout(stage.PATIENCE)
            left.put(peer.recv(1))
            return False
        for part in parts[:-1]:
            peer.sendall(chunk(part + b"\n\n"))
        peer.sendall(chunk(b""))
        return True

    with way.Stage() as at:
        engine = Engine(answer)
        at.start_nginx({"w1": engine.address}, url="")
        done = subprocess.run(
            ["node", ROOT / "t" / "clients" / "clients.mjs", FOLDER,
             f"http://{engine.address}", f"http://127.0.0.1:{at.port}"],
            check=False, timeout=600)
        for _ in cases:
            assert left.get(timeout=stage.PATIENCE) == b""
        at.check_idle()
        at.check_log()
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
