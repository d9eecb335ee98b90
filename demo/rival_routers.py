"""The routers that ours is compared with.

Those from the Python registry have a virtual environment each.  Both route by
their own policy "cache_aware", a tree of texts with their defaults: vllm-router
needs engines that publish events for a better one.  Dynamo's frontend routes by
the engines' events (--router-mode kv), with its defaults; a worker of Dynamo's
runtime (dynamo_worker.py) stands before each engine.  The others are nginx
without the module.
"""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

# name -> version, module to run
PACKAGES = {"sglang-router": ("0.3.2", "sglang_router.launch_router"),
            "vllm-router": ("0.1.17", "vllm_router.launch_router")}
# name -> how the upstream balances; replay.py names the session of a request
NGINX = {"nginx-least_conn": "least_conn",
         "nginx-hash": "hash  $http_x_session_id consistent"}
DYNAMO = "dynamo-frontend"
DYNAMO_PACKAGES = ("ai-dynamo==1.6.1", "uvloop")
# frontend and workers find each other in a folder, and talk by TCP
DYNAMO_PLANES = ("DYN_DISCOVERY_BACKEND=file", "DYN_REQUEST_PLANE=tcp",
                 "DYN_EVENT_PLANE=zmq", "HF_HUB_OFFLINE=1")
NAMES = (*PACKAGES, DYNAMO, *NGINX)
INSTALL = Path(__file__).resolve().parents[1] / "t" / "engines" / "install.py"
WORKER = Path(__file__).resolve().parent / "dynamo_worker.py"
PROBE_SECONDS = 5


def install(folder, name):
    """The Python of an environment below `folder` that has the package; once.

    OSError or CalledProcessError: the package can't be installed.
    """
    home = Path(folder) / name
    python = home / "bin" / "python"
    if name == DYNAMO:          # not all that it requires is in the registry
        subprocess.run([sys.executable, "-B", INSTALL, home,
                        *DYNAMO_PACKAGES], check=True, stdout=sys.stderr)
        return python
    wanted = f"{name}=={PACKAGES[name][0]}"
    stamp = home / "installed"
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    print(f"installing {wanted}", file=sys.stderr, flush=True)
    for command in ([sys.executable, "-m", "venv", "--clear", home],
                    [python, "-m", "pip", "--no-input", "-q",
                     "--disable-pip-version-check", "install", wanted]):
        subprocess.run(command, check=True, stdout=sys.stderr)
    stamp.write_text(wanted)
    return python


def command(python, name, port, prometheus_port, addresses):
    """What starts the router on a port of 127.0.0.1, before engines at
    host:port."""
    return [str(python), "-m", PACKAGES[name][1], "--host", "127.0.0.1",
            "--port", str(port), "--prometheus-port", str(prometheus_port),
            "--policy", "cache_aware", "--log-level", "error",
            "--worker-urls", *(f"http://{address}" for address in addresses)]


def dynamo(python, folder, *command):
    """What starts a program of Dynamo's, which finds others in a folder."""
    return ["env", f"DYN_FILE_KV={folder}", *DYNAMO_PLANES, str(python), "-B",
            *map(str, command)]


def dynamo_frontend(port):
    """The frontend's command line, for dynamo()."""
    return ("-m", "dynamo.frontend", "--http-host", "127.0.0.1",
            "--http-port", port, "--router-mode", "kv")


def answers(port, model):
    """Whether a router on a port answers a chat: True or OSError."""
    urllib.request.urlopen(urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", method="POST",
        headers={"Content-Type": "application/json"}, data=json.dumps(
            {"model": model, "max_tokens": 1, "messages": [
                {"role": "user", "content": "hello"}]}).encode()),
        timeout=PROBE_SECONDS).close()
    return True
