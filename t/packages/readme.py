#!/usr/bin/python3
"""README's two commands, from a clean clone in a bare Debian 12; TAP.

    t/packages/readme.py --build DIR
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "demo"), str(Path(__file__).resolve().parent)]

# pylint: disable=wrong-import-position
import tap                                                      # noqa: E402
from root import Root                                           # noqa: E402

# not below /root: the workers of the nginx of tests, another user, read it
WHERE = "/srv/nginx-kv-router"
LINES = 30                      # of the output that are shown

machine = None                  # the bare Debian, set by main()


def commands():
    """The commands of README's "Try it without an engine"."""
    text = re.search(r"^## Try it without an engine\n(.*?)^## ",
                     (ROOT / "README.md").read_text(), re.M | re.S)[1]
    found = re.findall(r"`(make \w+)`", text)
    assert found == ["make demo", "make check"], found
    return found


def works(command):
    """A command of README ends well."""
    status, said = machine.run(*command.split(), cwd=WHERE, check=False)
    lines = said.splitlines()
    bad = [at for at, line in enumerate(lines) if line.startswith("not ok")]
    for at in bad:
        print("".join(f"# {line}\n" for line in lines[at:at + LINES]))
    print("".join(f"# {line}\n" for line in lines[-LINES:]), end="",
          flush=True)
    assert status == 0, f"{command}: status {status}"
    return said


def demo_works():
    """make demo compares its policies in a bare Debian 12"""
    assert "with kv_cost the caches gave" in works(commands()[0])


def check_works():
    """make check passes in a bare Debian 12"""
    assert re.search(r"^\d+ passed, 0 failed$", works(commands()[1]), re.M)


def main():
    """The program."""
    global machine
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=ROOT / "build", type=Path)
    build = parser.parse_args().build.resolve() / "deb"
    build.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="readme-", dir=build))
    directory.chmod(0o755)
    try:
        machine = Root("bookworm", build / "roots", directory / "machine")
        machine.apt("update")
        machine.apt("install", "git", "make")
        subprocess.run(["git", "clone", "-q", f"file://{ROOT}",
                        machine.path / WHERE.lstrip("/")], check=True)
        return tap.run([demo_works, check_works])
    finally:
        if machine:
            machine.remove()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
