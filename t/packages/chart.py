#!/usr/bin/python3
"""deploy/chart: what helm renders of it fits the schemas of Kubernetes,
Prometheus' operator and KEDA, nginx accepts the configuration, and the patch
fits the example of an engine.  TAP.

    t/packages/chart.py --build DIR

helm comes from Go's module proxy, as do both operators' schemas.
"""

import argparse
import copy
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jsonschema
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "demo"), str(ROOT / "t/system")]

# pylint: disable=wrong-import-position
import tap                                                      # noqa: E402
import test_fences as fences                                    # noqa: E402

CHART = ROOT / "deploy/chart"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
KUBERNETES = "1.31"             # the version whose schemas are taken
VALIDATE = "kubernetes-validate==1.37.0"
OPERATORS = {
    "PodMonitor": ("github.com/prometheus-operator/prometheus-operator@v0.85.0",
                   "example/prometheus-operator-crd/"
                   "monitoring.coreos.com_podmonitors.yaml"),
    "ScaledObject": ("github.com/kedacore/keda/v2@v2.21.0",
                     "config/crd/bases/keda.sh_scaledobjects.yaml")}
GO = {**os.environ, "GOTOOLCHAIN": "auto", "GOFLAGS": "-buildvcs=false"}

NO_NAMES = {"byName": False}
KEDA = {"enabled": True, "prometheus": "http://prometheus:9090"}
CASES = {                       # values, and the kinds that they make
    "default": ({}, "ConfigMap Deployment Service Service"),
    "events": ({"engines": NO_NAMES, "redis": {"enabled": True}},
               "ConfigMap Deployment Deployment NetworkPolicy Service Service"),
    "another Redis": ({"redis": {"urlSecret": "redis"}},
                      "ConfigMap Deployment Service Service"),
    "all": ({"replicas": 3, "processes": 4, "zone": "64m max_active=8",
             "settings": 'policy = "p2c", tokenizer = "none"',
             "resources": {"limits": {"memory": "2Gi"}},
             "engines": {"selector": {"app": "sglang", "tier": "gpu"},
                         "port": 30000, "parameters": "max_active=64"},
             "redis": {"enabled": True, "image": "valkey/valkey:8"},
             "nginx": {"http": "server_tokens off;",
                       "server": "location = /a { return 204; }\nroot /var;"},
             "podMonitor": {"enabled": True}, "keda": KEDA},
            "ConfigMap Deployment Deployment NetworkPolicy PodMonitor "
            "ScaledObject Service Service Service")}
WRONG = [                       # values, and what helm says of them
    ({"engines": NO_NAMES}, "there is no Redis"),
    ({"redis": {"enabled": True, "urlSecret": "a"}}, "clear one of them"),
    ({"keda": {"enabled": True}}, "needs keda.prometheus"),
    ({"keda": {**KEDA, "min": 3, "max": 2}}, "keda.min is 3"),
    ({"replica": 2}, "replica"), ({"replicas": "two"}, "replicas"),
    ({"zone": "big"}, "zone"), ({"engines": {"port": 0}}, "port")]

tools = None                    # where helm and the validator are: main()
directory = None                # of this run


def fetch_helm():
    """Brings helm there, unless it is."""
    if not shutil.which("go"):
        sys.exit("chart.py: there is no \"go\" in PATH: install Go 1.21 or "
                 "newer (https://go.dev/dl), which brings the toolchain that "
                 "helm asks for; Debian 12's is too old")
    if not (tools / "helm").exists():
        print("# go install", HELM, flush=True)
        subprocess.run(["go", "install", HELM], check=True,
                       env={**GO, "GOBIN": str(tools)})


def fetch_tools():
    """Brings helm and the validator there, unless they are."""
    fetch_helm()
    if not (tools / "bin/kubernetes-validate").exists():
        subprocess.run([sys.executable, "-m", "venv", tools], check=True)
        subprocess.run([tools / "bin/pip", "-q", "install", VALIDATE],
                       check=True)


def helm(values):
    """helm template with these values: (status, output, errors)."""
    path = directory / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    done = subprocess.run([tools / "helm", "template", "kv-router", CHART,
                           "-f", path], text=True, check=False,
                          capture_output=True)
    return done.returncode, done.stdout, done.stderr


@functools.cache
def manifests(case):
    """The manifests of a case of CASES."""
    status, text, said = helm(CASES[case][0])
    assert status == 0, said
    return [one for one in yaml.safe_load_all(text) if one]


def one_of(found, kind, name="kv-router"):
    (one,) = [one for one in found
              if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return one


def pod_of(deployment):
    return deployment["spec"]["template"]["spec"]


# ------------------------------------------------------------------ schemas

def closed(schema):
    """A CRD's schema that refuses fields which the API would drop."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) \
            and "additionalProperties" not in schema \
            and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found["additionalProperties"] = False
    return found


@functools.cache
def schema_of(kind, version):
    """The schema of an operator's kind, from the operator's Go module."""
    module, path = OPERATORS[kind]
    said = subprocess.run(["go", "mod", "download", "-json", module], env=GO,
                          cwd=directory, capture_output=True, text=True,
                          check=True).stdout
    crd = yaml.safe_load((Path(json.loads(said)["Dir"]) / path).read_text())
    (one,) = [one for one in crd["spec"]["versions"] if version
              == f"{crd['spec']['group']}/{one['name']}"]
    return closed(one["schema"]["openAPIV3Schema"])


def faults(found):
    """What the schemas have against manifests: "" for nothing."""
    said, own = [], []
    for one in found:
        if one["kind"] in OPERATORS:
            said += [error.message for error in jsonschema.Draft7Validator(
                schema_of(one["kind"], one["apiVersion"])).iter_errors(one)]
        else:
            own.append(one)
    path = directory / "manifests.yaml"
    path.write_text(yaml.safe_dump_all(own))
    done = subprocess.run([tools / "bin/kubernetes-validate", "--strict", "-k",
                           KUBERNETES, path], text=True, check=False,
                          capture_output=True) if own else None
    if done and done.returncode != 0:
        said.append(done.stdout + done.stderr)
    return "\n".join(said)


# ---------------------------------------------------------- engine and relay

KEYS = {"volumeMounts": "mountPath", "ports": "containerPort"}


def patched(old, new, field=""):
    """A strategic merge, as kubectl patch does it, of what relay.yaml has."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{name: patched(old[name], value, name)
                          if name in old else value
                          for name, value in new.items()}}
    if isinstance(new, list) and new and isinstance(new[0], dict):
        key = KEYS.get(field, "name")
        more = {one[key]: one for one in new}
        return [patched(one, more.pop(one[key], {})) for one in old] \
            + list(more.values())
    return new


def example():
    """The example of an engine: its manifests."""
    return list(yaml.safe_load_all(
        (CHART / "examples/vllm.yaml").read_text()))


def with_relay():
    """The example's Deployment with the relay."""
    return patched(one_of(example(), "Deployment", "vllm"), yaml.safe_load(
        (CHART / "examples/relay.yaml").read_text()))


def meet(deployment):
    """Asserts that the relay can connect where vLLM listens."""
    vllm, relay = pod_of(deployment)["containers"]
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
    for option in "model", "block-size":
        assert f"--{option}=" + settings["KV_RELAY_" + option.upper().replace(
            "-", "_")] in vllm["args"], settings
    port = settings["KV_RELAY_LISTEN"].rsplit(":", 1)[1]
    assert f"http://127.0.0.1:{port}/drain" in \
        vllm["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert pod_of(deployment)["terminationGracePeriodSeconds"] > int(
        settings["KV_RELAY_DRAIN_TIMEOUT"])


# -------------------------------------------------------------------- nginx

def against(found):
    """What nginx has against the configuration of these manifests."""
    place = fences.at = fences.Place(Path(tempfile.mkdtemp(dir=directory)))
    place.folder.chmod(0o755)
    (place.etc / "modules-enabled").mkdir(parents=True)
    (place.etc / "modules-enabled/50.conf").write_text("".join(
        f"load_module {module};\n" for module in place.modules()))
    (nginx,) = pod_of(one_of(found, "Deployment"))["containers"]
    if "command" in nginx:
        # the container's start writes a file before it starts nginx
        script, end = re.subn("exec nginx.*", "", nginx["command"][-1])
        assert end == 1, script
        subprocess.run([*nginx["command"][:-1],
                        script.replace("/tmp/", f"{place.folder}/")],
                       check=True, env={**os.environ, "KV_ROUTER_REDIS":
                                        "redis://:a%3Bb@127.0.0.1:1"})
    text = one_of(found, "ConfigMap")["data"]["nginx.conf"]
    return place.accepts(text.replace("pid /tmp/nginx.pid;", "").replace(
        "/tmp/", f"{place.folder}/").replace(
            "kube-dns.kube-system.svc.cluster.local", "127.0.0.1"))


# -------------------------------------------------------------------- tests

def schemas_fit():
    """each case renders the manifests that it should, and they fit schemas"""
    for case, (_, kinds) in CASES.items():
        found = manifests(case)
        assert sorted(one["kind"] for one in found) == kinds.split(), found
        assert not faults(found), (case, faults(found))


def wrong_values_are_told():
    """wrong values end helm, which says what is wrong"""
    for values, text in WRONG:
        status, _, said = helm(values)
        assert status != 0 and text in said, (values, said)


def nginx_accepts():
    """nginx accepts the configuration of each case"""
    for case in CASES:
        assert not against(manifests(case)), (case, against(manifests(case)))


def streams_have_time():
    """a pod is not killed before its nginx ends the last streams"""
    found = manifests("default")
    conf = one_of(found, "ConfigMap")["data"]["nginx.conf"]
    seconds = int(re.search(r"worker_shutdown_timeout (\d+)s;", conf)[1])
    pod = pod_of(one_of(found, "Deployment"))
    (hook,) = [one["lifecycle"]["preStop"]["exec"]["command"]
               for one in pod["containers"]]
    before = int(re.search(r"sleep (\d+); nginx -s quit", hook[-1])[1])
    assert pod["terminationGracePeriodSeconds"] > seconds + before


def the_example_fits():
    """the example is what the chart's values say, with and without the relay"""
    found = manifests("default")
    vllm = one_of(example(), "Deployment", "vllm")
    service = one_of(found, "Service", "kv-router-engines")["spec"]
    labels = vllm["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items(), service
    assert service["clusterIP"] == "None"
    assert service["ports"][0]["port"] == \
        pod_of(vllm)["containers"][0]["ports"][0]["containerPort"]
    conf = one_of(found, "ConfigMap")["data"]["nginx.conf"]
    assert "kv-router-engines.default.svc.cluster.local:8000 resolve=all" \
        in conf, conf
    version = re.search(r":v([\d.]+)$", pod_of(vllm)["containers"][0]["image"])
    assert f"vLLM {version[1]}" in (ROOT / "docs/real-engines.md").read_text()
    relay = with_relay()
    assert not faults([*example(), relay]), faults([*example(), relay])
    (url,) = [one["value"] for one in pod_of(relay)["containers"][1]["env"]
              if one["name"] == "KV_RELAY_REDIS"]
    (nginx,) = pod_of(one_of(manifests("events"), "Deployment"))["containers"]
    assert [one["value"] for one in nginx["env"]] == [url]


def engine_and_relay_meet():
    """vLLM listens where the relay connects, and the relay may do so"""
    meet(with_relay())


def the_patch_is_merged_as_kubectl_does():
    """the patch gives what kubectl makes of it"""
    if not shutil.which("kubectl"):
        raise tap.Skip("kubectl is not installed")
    path = directory / "vllm.yaml"
    path.write_text(yaml.safe_dump(one_of(example(), "Deployment", "vllm")))
    said = subprocess.run(
        ["kubectl", "patch", "--local", "-f", path, "--patch-file",
         CHART / "examples/relay.yaml", "-o", "yaml"], check=True,
        capture_output=True, text=True).stdout

    def names(deployment):
        pod = pod_of(deployment)
        return [pod | {"containers": 0}, sorted(
            pod["containers"], key=lambda one: one["name"])]
    assert names(yaml.safe_load(said)) == names(with_relay())


def mistakes_are_found():
    """a mistake is found in a manifest of each kind, the patch and nginx.conf"""
    found = manifests("all")
    for kind, path, value in (
            ("Deployment", "spec replicas", "one"),
            ("Deployment", "spec template spec container", []),
            ("Service", "spec ports 0 port", "http"),
            ("PodMonitor", "spec podMetricsEndpoints 0 pth", "/status"),
            ("PodMonitor", "spec selector", "kv-router"),
            ("ScaledObject", "spec minReplicas", 1),
            ("ScaledObject", "spec triggers 0 type", 1)):
        one = copy.deepcopy(one_of(found, kind))
        *way, last = path.split()
        place = one
        for step in way:
            place = place[int(step) if step.isdigit() else step]
        place[last] = value
        assert faults([one]), (kind, path)
    relay = with_relay()
    pod_of(relay)["containers"][1]["env"][4]["value"] = "ipc:///run/kv/other"
    try:
        meet(relay)
    except AssertionError:
        pass
    else:
        raise AssertionError("a relay that connects elsewhere is not found")
    status, text, said = helm({"nginx": {"http": "kv_router_zome a;"}})
    assert status == 0, said
    assert "unknown directive" in against(
        [one for one in yaml.safe_load_all(text) if one])


def main():
    global tools, directory
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=ROOT / "build", type=Path)
    tools = parser.parse_args().build.resolve() / "deploy"
    tools.mkdir(parents=True, exist_ok=True)
    fetch_tools()
    directory = Path(tempfile.mkdtemp(prefix="chart-", dir=tools))
    directory.chmod(0o755)
    os.environ["LUA_PATH"] = f"{ROOT}/lua/?.lua;;"
    try:
        return tap.run([schemas_fit, wrong_values_are_told, nginx_accepts,
                        streams_have_time, the_example_fits,
                        engine_and_relay_meet,
                        the_patch_is_merged_as_kubectl_does,
                        mistakes_are_found])
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
