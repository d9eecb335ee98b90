#!/usr/bin/python3
"""Whole requests: what the dialects make of them, beside what vLLM's and
SGLang's own functions make of them: requests.py [--seed N] [--count N]
[--golden].  With --golden some of the requests, and what the engines read of
them, are written to t/vectors/dialect; t/vectors/dialect/README.md has the
format.

The engines are installed below build/engines, as t/engines/run.py does it; no
engine is started.  The exit status is 0 if nothing differs.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "t" / "engines"))

# pylint: disable=wrong-import-position
import golden_serve
import radix
import request_bodies

HERE = ROOT / "t" / "parity"
WORK = ROOT / "build" / "parity" / "requests"
VECTORS = ROOT / "t" / "vectors" / "dialect"
TEMPLATES = ROOT / "t" / "vectors" / "dialect" / "templates"
GOLDEN = 30                     # requests of a form, template and engine
FORMS = ("chat", "messages", "responses", "completions")
CONFIGURATION = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_key_value_heads": 4, "num_hidden_layers": 2, "vocab_size": 512,
    "max_position_embeddings": 8192, "dtype": "float32",
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
PARSER = {"tool_call_parser": "hermes", "enable_auto_tool_choice": True}
# the flags of the engine's command line: the first with most bodies
FLAGS = {
    "vllm": (PARSER, {}, PARSER | {
        "exclude_tools_when_tool_choice_none": True,
        "default_chat_template_kwargs": {"enable_thinking": False,
                                         "flavour": "sour"}},
        PARSER | {"chat_template_content_format": "openai",
                  "anthropic_disabled_thinking_effort": "low"},
        {"chat_template_content_format": "string",
         "tool_call_parser": "hermes"}),
    "sglang": ({"tool_call_parser": "qwen25"}, {}, {
        "default_chat_template_kwargs": {"reasoning_effort": "low",
                                         "flavour": "sour"}},
        {"reasoning_parser": "qwen3", "tool_call_parser": "qwen25"})}


def engines():
    """The program and the environment of each engine's functions."""
    plain = {name: value for name, value in os.environ.items()
             if name != "PYTHONPATH"} | {
        "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1"}
    return {"vllm": plain,
            "sglang": plain | {"PYTHONPATH": str(radix.PACKAGES)}}


def make_model(folder):
    """The golden model's tokenizer, and a configuration: no weights."""
    shutil.copytree(ROOT / "t" / "vectors" / "golden" / "model", folder,
                    dirs_exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIGURATION))


def requests(seed, count):
    """All requests, those of one engine, template and flags together."""
    sources = [path.read_text() for path in sorted(TEMPLATES.glob("*.jinja"))]
    number = 0
    for engine, flags in FLAGS.items():
        for i, source in enumerate(sources):
            for j, flag in enumerate(flags):
                for form in FORMS:
                    chosen = random.Random(f"{seed} {form} {i} {j}")
                    for body in request_bodies.made(
                            chosen, form, count if j == 0 else count // 4):
                        number += 1
                        yield {"id": number, "engine": engine, "form": form,
                               "key": f"{i} {j}", "template": source,
                               "options": flag, "body": body}


def answered(engine, environment, asked, model):
    """The answers of an engine's functions, and what it said."""
    result = subprocess.run(
        ["nice", golden_serve.PYTHON, "-P", "-B",
         HERE / f"requests_{engine}.py",
         model], input="".join(json.dumps(r) + "\n" for r in asked),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
        env=environment)
    if result.returncode:
        sys.exit(f"requests_{engine}.py failed:\n{result.stderr[-4000:]}")
    return result.stdout


def fnv(text):
    """A hash of a text, which a few lines of Lua can make, too."""
    value = 0xcbf29ce484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return f"{value:016x}"


def golden(asked, answers, alike):
    """Writes some requests of each engine, form, template and flags."""
    names = [path.stem for path in sorted(TEMPLATES.glob("*.jinja"))]
    chosen = random.Random(1)
    for engine in FLAGS:
        groups = {}
        for request in asked:
            if request["engine"] == engine and request["id"] in alike:
                groups.setdefault(request["key"], {}).setdefault(
                    request["form"], []).append(request)
        with open(VECTORS / f"{engine}.jsonl", "w", encoding="utf-8") as out:
            def write(value):
                out.write(json.dumps(value, ensure_ascii=False) + "\n")
            for key, forms in groups.items():
                template, flags = (int(part) for part in key.split())
                facts = answers[next(iter(forms.values()))[0]["id"]]
                write({"engine": engine, "template": names[template],
                       "flags": FLAGS[engine][flags],
                       "probed": facts["probed"],
                       "transformers": facts["transformers"]})
                for form, requests_ in forms.items():
                    for request in chosen.sample(
                            requests_, GOLDEN if flags == 0 else GOLDEN // 5):
                        answer = answers[request["id"]]
                        found = {"form": form, "body": request["body"]}
                        if alike[request["id"]] == "same":
                            if form != "completions":
                                found["text"] = fnv(answer["text"])
                            found["specials"] = answer["ids"][0][:2].count(0)
                        write(found)


def main():
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--count", type=int, default=1000,
                        help="bodies of each form, template and engine with "
                             "its usual flags; a quarter with others")
    parser.add_argument("--golden", action="store_true")
    options = parser.parse_args()
    for kind in golden_serve.KINDS.values():
        kind.install()
    model = WORK / "model"
    make_model(model)
    asked = list(requests(options.seed, options.count))
    (WORK / "requests.jsonl").write_text(
        "".join(json.dumps(r) + "\n" for r in asked))
    with open(WORK / "answers.jsonl", "w", encoding="utf-8") as out:
        for engine, environment in engines().items():
            out.write(answered(engine, environment, [
                r for r in asked if r["engine"] == engine], model))
    status = subprocess.run(
        ["luajit", HERE / "requests.lua", WORK / "requests.jsonl",
         WORK / "answers.jsonl", WORK / "alike"], check=False).returncode
    if options.golden and status == 0:
        lines = (WORK / "answers.jsonl").read_text().splitlines()
        golden(asked, {answer["id"]: answer for answer
                       in map(json.loads, lines)},
               {int(number): what for number, what in (
                   line.split() for line
                   in (WORK / "alike").read_text().splitlines())})
    sys.exit(status)


if __name__ == "__main__":
    main()
