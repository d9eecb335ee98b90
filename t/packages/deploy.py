#!/usr/bin/python3
"""deploy/: the images' RUN lines work in bare Debians.  TAP.

    t/packages/deploy.py --build DIR
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "demo"), str(Path(__file__).resolve().parent)]

# pylint: disable=wrong-import-position
import tap                                                      # noqa: E402
from root import Root, can_be_made                              # noqa: E402

DEPLOY = ROOT / "deploy"

build = None                    # where to build, set by main()
directory = None                # of this run
stages = {}                     # RUN lines of a stage: the root they made
images = []                     # roots to remove


def instructions(path):
    """[(word, rest)] of a Containerfile, a stage after the other."""
    lines = [line for line in path.read_text().splitlines()
             if line and not line.startswith("#")]
    return [line.split(None, 1) for line in lines]


def stage(path, lines, built):
    """The root of a stage: made, or the one that the same lines made."""
    key = tuple(map(tuple, lines))
    if key in stages:
        return stages[key]
    root = Root("bookworm", build / "roots",
                directory / f"{path.suffix[1:]}-{len(images)}")
    images.append(root)
    for word, rest in lines:
        if word == "COPY" and rest == ". /source":
            subprocess.run(["git", "clone", "-q", "--depth=1",
                            f"file://{ROOT}", root.path / "source"],
                           check=True)
        elif word == "COPY":
            source, target = rest.removeprefix("--from=build ").split()
            shutil.copytree(built.path / source.lstrip("/"),
                            root.path / target.lstrip("/"))
        elif word == "RUN":
            root.run("sh", "-ec", rest, cwd="/")
    stages[key] = root
    return root


def both(path):
    """The instructions of both stages of a Containerfile."""
    parts = []
    for word, rest in instructions(path):
        if word == "FROM":
            assert rest.split()[0] == "debian:bookworm-slim", rest
            parts.append([])
        else:
            parts[-1].append((word, rest))
    assert len(parts) == 2, parts
    return parts


def image(name):
    """The root that the Containerfile makes."""
    path, built = DEPLOY / f"Containerfile.{name}", None
    for lines in both(path):
        lines = [(word, rest) for word, rest in lines
                 if word in ("COPY", "RUN")]
        built = stage(path, lines, built)
    return built


# -------------------------------------------------------------------- tests

def the_router_is_made():
    """the router's image is made, and its nginx takes its configuration"""
    can_be_made()
    image("router")


def the_relay_is_made():
    """the relay's image is made, and the relay takes those of relay.yaml"""
    can_be_made()
    root = image("relay")
    (relay,) = [one for one in yaml.safe_load(
        (DEPLOY / "chart/examples/relay.yaml").read_text())
        ["spec"]["template"]["spec"]["containers"] if one["name"] == "kv-relay"]
    settings = [f"{one['name']}={one['value']}" for one in relay["env"]
                if "value" in one]
    settings = [one.replace("$(POD_IP)", "10.0.0.1").replace(
        "0.0.0.0:9560", "127.0.0.1:0").replace(
            "kv-router-redis.default.svc.cluster.local:6379", "127.0.0.1:1")
                for one in settings]
    said = root.run("env", "KV_RELAY_WORKER=w1", *settings, "timeout", "1",
                    "kv-relay", check=False)
    assert said[0] == 124 and 'msg="' in said[1], said    # it went on, waiting


def main():
    global build, directory
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=ROOT / "build", type=Path)
    build = parser.parse_args().build.resolve() / "deb"
    build.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="deploy-", dir=build))
    directory.chmod(0o755)
    try:
        return tap.run([the_router_is_made, the_relay_is_made])
    finally:
        for root in images:
            root.remove()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
