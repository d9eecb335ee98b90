#!/usr/bin/python3
"""deploy/: the images' RUN lines work in bare Debians, nginx accepts the
configuration for Kubernetes, and the manifests are valid.  TAP.

    t/packages/deploy.py --build DIR
"""

import argparse
import json
import re
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
KUBERNETES = "1.31"             # the version whose schemas are taken
VALIDATE = "kubernetes-validate==1.37.0"

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


def image(name):
    """The root that the Containerfile makes."""
    path = DEPLOY / f"Containerfile.{name}"
    parts, built = [], None
    for word, rest in instructions(path):
        if word == "FROM":
            assert rest.split()[0] == "debian:bookworm-slim", rest
            parts.append([])
        else:
            parts[-1].append((word, rest))
    assert len(parts) == 2, parts
    for lines in parts:
        lines = [(word, rest) for word, rest in lines
                 if word in ("COPY", "RUN")]
        built = stage(path, lines, built)
    return built


# -------------------------------------------------------------------- tests

def manifests_are_valid():
    """the manifests fit Kubernetes' own schemas"""
    tools = build / "kubernetes"
    if not (tools / "bin/kubernetes-validate").exists():
        subprocess.run([sys.executable, "-m", "venv", tools], check=True)
        subprocess.run([tools / "bin/pip", "-q", "install", VALIDATE],
                       check=True)
    # what KEDA defines is not among them
    files = sorted(file for file in (DEPLOY / "kubernetes").glob("*.yaml")
                   if file.name != "keda.yaml")
    assert len(files) == 3, files
    done = subprocess.run([tools / "bin/kubernetes-validate", "--strict",
                           "-k", KUBERNETES, *files], text=True, check=False,
                          capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = directory / "wrong.yaml"
    wrong.write_text(files[0].read_text().replace("replicas: 1",
                                                  "replicas: one"))
    assert subprocess.run([tools / "bin/kubernetes-validate", "--strict",
                           "-k", KUBERNETES, wrong], check=False,
                          capture_output=True).returncode != 0


def pod_of(name):
    """The pod of that manifest's Deployment."""
    (one,) = [one for one in yaml.safe_load_all(
        (DEPLOY / f"kubernetes/{name}.yaml").read_text())
        if one["kind"] == "Deployment"]
    return one["spec"]["template"]["spec"]


def engine_and_relay_meet():
    """vLLM listens where the relay connects, and the relay may do so"""
    vllm, relay = pod_of("vllm")["containers"]
    (events,) = [json.loads(word.split("=", 1)[1]) for word in vllm["args"]
                 if word.startswith("--kv-events-config=")]
    settings = {one["name"]: one.get("value") for one in relay["env"]}
    for name, option in (("endpoint", "EVENTS"), ("replay_endpoint", "REPLAY")):
        place = events[name]
        # vLLM connects to an endpoint of tcp:// without a "*"
        assert place.startswith("ipc://"), place
        assert settings[f"KV_RELAY_{option}"] == place, settings
        for one in vllm, relay:
            assert [mount["mountPath"] for mount in one["volumeMounts"]] == [
                str(Path(place.removeprefix("ipc://")).parent)], one
    # vLLM's image runs as root, and only the same user can connect
    assert relay["securityContext"]["runAsUser"] == 0


def streams_have_time():
    """a pod is not killed before its nginx ends the last streams"""
    (conf,) = [one["data"]["nginx.conf"] for one in yaml.safe_load_all(
        (DEPLOY / "kubernetes/router.yaml").read_text())
        if one["kind"] == "ConfigMap"]
    seconds = int(re.search(r"worker_shutdown_timeout (\d+)s;", conf)[1])
    pod = pod_of("router")
    (hook,) = [one["lifecycle"]["preStop"]["exec"]["command"]
               for one in pod["containers"]]
    before = int(re.search(r"sleep (\d+); nginx -s quit", hook[-1])[1])
    assert pod["terminationGracePeriodSeconds"] > seconds + before


def the_router_is_made():
    """the router's image is made, and nginx takes the manifest's configuration"""
    can_be_made()
    root = image("router")
    maps = [one for one in yaml.safe_load_all(
        (DEPLOY / "kubernetes/router.yaml").read_text())
        if one["kind"] == "ConfigMap"]
    text = maps[0]["data"]["nginx.conf"].replace("kv-redis", "127.0.0.1")
    (root.path / "etc/nginx/kubernetes.conf").write_text(text)
    said = root.run("nginx", "-t", "-c", "/etc/nginx/kubernetes.conf")[1]
    assert "test is successful" in said, said
    assert not re.search(r"\[(emerg|alert|crit|error|warn)\]", said), said


def the_relay_is_made():
    """the relay's image is made, and the relay takes the manifest's settings"""
    can_be_made()
    root = image("relay")
    relay = pod_of("vllm")["containers"][1]
    settings = [f"{one['name']}={one['value']}" for one in relay["env"]
                if "value" in one]
    settings = [one.replace("$(POD_IP)", "10.0.0.1").replace(
        "0.0.0.0:9560", "127.0.0.1:0").replace("kv-redis:6379",
                                               "127.0.0.1:1")
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
        return tap.run([manifests_are_valid, engine_and_relay_meet,
                        streams_have_time, the_router_is_made,
                        the_relay_is_made])
    finally:
        for root in images:
            root.remove()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
