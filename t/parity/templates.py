#!/usr/bin/python3
"""Chat templates rendered here and by transformers: byte for byte the same?

    templates.py [--build DIR] [--templates DIR] [--python PYTHON]
                 [--snippets N] [--seed N]

Each template of a folder (those of ../shared/vectors/chat_templates where they
are present, and those of t/vectors/templates) with each conversation of
template_chats.py; then corners, white space and expressions by chance.  In
front of them each "<" of a template's literal text is changed: if one is not
noticed, nothing is proven.

PYTHON has transformers: of PyPI, installed into DIR/parity once."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from template_chats import chats                                # noqa: E402
from template_snippets import DATA, snippets                    # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT.parent / "shared/vectors/chat_templates"
OURS = ROOT / "t/vectors/templates"
PACKAGES = ("transformers==5.23.0", "jinja2==3.1.6", "numpy")


def oracle(build):
    """a Python that has transformers"""
    folder = build / "parity/transformers"
    python = folder / "bin/python"
    stamp = folder / "installed"
    if not stamp.is_file() or stamp.read_text() != " ".join(PACKAGES):
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder],
                       check=True)
        subprocess.run([python, "-m", "pip", "--no-input", "-q", "install",
                        "--disable-pip-version-check", *PACKAGES], check=True)
        stamp.write_text(" ".join(PACKAGES))
    return python


def write(path, values):
    """JSON, one value a line"""
    path.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n"
                            for value in values), encoding="utf-8")
    return path


class Parity:
    """a folder for what is compared, and both sides"""

    def __init__(self, args, folder):
        self.folder = Path(folder)
        self.python = args.python or oracle(args.build)
        self.environment = {
            **os.environ, "LD_LIBRARY_PATH": str(args.build),
            "LUA_PATH": f"{ROOT}/lua/?.lua;{ROOT}/t/lua/?.lua;;"}

    def theirs(self, name, *words):
        """the oracle's answers, in a file"""
        out = self.folder / f"{name}.oracle"
        print(subprocess.run(
            [self.python, ROOT / "t/parity/template_oracle.py", *words, out],
            check=True, stdout=subprocess.PIPE, text=True).stdout, end="")
        return out

    def ours(self, *words, shown=True):
        """are they ours?"""
        run = subprocess.run(
            ["luajit", ROOT / "t/parity/templates.lua", *words],
            env=self.environment, stdout=subprocess.PIPE, text=True,
            check=False)
        if shown:
            print(run.stdout, end="")
        return run.returncode == 0

    def unnoticed(self, source, cases):
        """the places of "<" in a source, each in a literal text, where another
        byte is not noticed; nothing but an error without a change"""
        (self.folder / "changed").mkdir()
        changed = self.folder / "changed/t.jinja"
        changed.write_text(source)
        told = self.theirs("few", "chats", changed.parent, cases)
        if not self.ours("chats", changed.parent, cases, told):
            sys.exit("the template differs as it is")
        places = [at for at, c in enumerate(source) if c == "<"]
        found = []
        for at in places:
            changed.write_text(source[:at] + "(" + source[at + 1:])
            if self.ours("chats", changed.parent, cases, told, shown=False):
                found.append(at)
        return found, len(places)


def main():
    """exit status 0: all is the same"""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--templates", type=Path, action="append")
    parser.add_argument("--python")
    parser.add_argument("--snippets", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--golden", action="store_true",
                        help="write the golden files of t/vectors/templates")
    args = parser.parse_args()
    args.build = args.build.resolve()
    folders = args.templates or [VECTORS, OURS]
    with tempfile.TemporaryDirectory() as folder:
        parity = Parity(args, folder)
        cases = write(Path(folder) / "chats", chats())
        if args.golden:
            write(OURS / "chats.jsonl", chats())
        found, places = parity.unnoticed((OURS / "tools.jinja").read_text(),
                                         cases)
        print(f"one byte of a template changed, {places} times: "
              f"{places - len(found)} times noticed")
        good = not found
        for templates in folders:
            if not templates.is_dir():
                print(f"{templates} is not there: its templates are left out")
                continue
            told = parity.theirs("chats", "chats", templates, cases)
            golden = [OURS / f"{'ours' if templates == OURS else 'shared'}"
                             ".golden"] if args.golden else []
            good = parity.ours("chats", templates, cases, told,
                               args.build / "parity-templates.txt",
                               *golden) and good
        told = parity.theirs("snippets", "snippets", write(
            Path(folder) / "snippets",
            [DATA, *snippets(args.snippets, args.seed)]))
        good = parity.ours("snippets", told,
                           args.build / "parity-snippets.txt") and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
