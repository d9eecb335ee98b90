#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""Chat templates: a body read and rendered, beside Jinja2 in Python and, where
it is installed, minijinja.

    render.py [--build DIR]

A chat of 16 KB with 21 messages, and an agent's of 480 KB with 402 messages and
20 tools; with a template of ours and with those of models, where they are
beside this tree.  "make parity" installs transformers in DIR/parity; without it
the rows of Jinja2 are missing, and stderr says so.  One line of JSON a figure,
as of bench/index.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT.parent / "shared/vectors/chat_templates"
TEMPLATES = [
    ("tools of ours", ROOT / "t/vectors/templates/tools.jinja"),
    ("Qwen3", MODELS / "Qwen-Qwen3-0.6B.jinja"),
    ("GLM 4.6", MODELS / "GLM-4.6.jinja"),
    ("DeepSeek V3.1", MODELS / "deepseek-ai-DeepSeek-V3.1.jinja"),
    ("Gemma 4", MODELS / "google-gemma-4-31B-it-interleaved.jinja"),
]
WORDS = ("the a of to model cache router token page block prefix nginx worker "
         "request answer when which byte hash tree node lookup error value "
         "list (see below), e.g. `x = 1;` and \"quoted\" text.\n").split(" ")

# run by another Python: medians of render(), us of processor time
THEIRS = """
import json, statistics, sys, time
name, template, body = sys.argv[1:]
body = json.loads(open(body).read())
source = open(template, newline="").read()
given = dict(messages=body["messages"], tools=body["tools"], documents=None,
             add_generation_prompt=True, bos_token="<s>", eos_token="</s>")
if name == "Jinja2":
    from transformers.utils.chat_template_utils import (
        _cached_compile_jinja_template as compiled)
    tpl = compiled(source)
    render = lambda: tpl.render(**given)
else:
    import minijinja
    env = minijinja.Environment(templates={"t": source}, trim_blocks=True,
                                lstrip_blocks=True, pycompat=True)
    def raised(message):
        raise ValueError(message)
    env.add_function("raise_exception", raised)
    render = lambda: env.render_template("t", **given)
render()
times, begun = [], time.process_time()
while time.process_time() - begun < 1.5 or len(times) < 5:
    at = time.process_time()
    render()
    times.append((time.process_time() - at) * 1e6)
print(statistics.median(times))
"""


def say(who, name, value):
    """One figure."""
    print(json.dumps({"who": who, "name": "render: " + name, "unit": "us",
                      "value": value}), flush=True)


# ---- bodies -----------------------------------------------------------------


def bodies(folder):
    """Writes the two bodies: (name, path) each."""
    draw = random.Random(1)

    def prose(n):
        out = ""
        while len(out) < n:
            out += draw.choice(WORDS) + " "
        return out[:n]

    def code(n):
        out = ""
        while len(out) < n:
            out += (f"    if (x->{draw.choice(['node', 'page'])}"
                    f"[{draw.randint(0, 99)}] != \"{draw.choice(WORDS)}\") "
                    "{\n\t\treturn \\n;\n    }\n")
        return out[:n]

    chat = [{"role": "system", "content": prose(1500)}]
    for _ in range(10):
        chat += [{"role": "user", "content": prose(500)},
                 {"role": "assistant", "content": prose(950)}]
    chat.append({"role": "user", "content": prose(300)})
    tools = [{"type": "function", "function": {
        "name": f"tool_{i}", "description": prose(600), "parameters": {
            "type": "object", "required": ["arg0"], "properties": {
                f"arg{j}": {"type": "string", "description": prose(80)}
                for j in range(6)}}}} for i in range(20)]
    agent = [{"role": "system", "content": prose(8000)},
             {"role": "user", "content": prose(2000)}]
    for i in range(200):
        agent.append({
            "role": "assistant", "content": prose(120),
            "reasoning_content": prose(300), "tool_calls": [{
                "id": f"call{i:05d}", "type": "function", "function": {
                    "name": f"tool_{draw.randint(0, 19)}", "arguments": {
                        "arg0": f"/src/file_{i}.c", "arg1": code(150)}}}]})
        agent.append({"role": "tool", "tool_call_id": f"call{i:05d}",
                      "content": code(1150)})
    out = []
    for name, messages, given in (("chat of 16 KB", chat, None),
                                  ("agent of 480 KB", agent, tools)):
        path = Path(folder) / name.replace(" ", "-")
        path.write_text(json.dumps({"messages": messages, "tools": given}))
        out.append((name, path))
    return out


# ---- rows -------------------------------------------------------------------


def ours(build, template, body):
    """us to read and to render."""
    run = subprocess.run(
        ["luajit", ROOT / "bench/render.lua", template, body], check=True,
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(build),
             "LUA_PATH": f"{ROOT}/lua/?.lua;;"})
    decoded, rendered, _ = run.stdout.split()
    return float(decoded), float(rendered)


def theirs(python, name, template, body):
    """us to render, or None: not installed, or it can't."""
    run = subprocess.run([python, "-c", THEIRS, name, template, body],
                         check=False, stdout=subprocess.PIPE, text=True,
                         stderr=subprocess.DEVNULL)
    return float(run.stdout) if run.returncode == 0 else None


def main():
    """All rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--python", type=Path)
    args = parser.parse_args()
    build = args.build.resolve()
    python = args.python or build / "parity/transformers/bin/python"
    if not python.is_file():
        print(f"render.py: {python} is not there: no rows of Jinja2; "
              "\"make parity\" installs it", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for name, body in bodies(folder):
            for title, template in TEMPLATES:
                if not template.is_file():
                    continue
                decoded, rendered = ours(build, template, body)
                if template == TEMPLATES[0][1]:
                    say("ours", f"{name}, JSON read", decoded)
                    say("ours", f"{name}, read and rendered",
                        decoded + rendered)
                row = f"{name}, {title}"
                say("ours", row, rendered)
                for other in (("Jinja2", "minijinja")
                              if python.is_file() else ()):
                    value = theirs(python, other, template, body)
                    if value is not None:
                        say(other, row, value)


if __name__ == "__main__":
    main()
