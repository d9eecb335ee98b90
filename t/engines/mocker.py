"""Dynamo's mocker behind kv-relay: a third party's cache and publisher, with
vLLM's events.  Dynamo's frontend is the engine's HTTP server.
"""

import install
import stage
from fleet import BUILD, MODELS, STARTING, Fleet, Model, Server, exchange
from processes import wait_until
from prompts import Prompts
from relay import Relay

VERSION = "1.6.1"
BLOCK = 32
BLOCKS = 600                    # of the cache
# the frontend and the mocker find each other in a folder, and talk by TCP
PLANES = ("--discovery-backend", "file", "--request-plane", "tcp",
          "--event-plane", "zmq")


class Mocker:
    """A mocker, its frontend, and a relay beside them."""

    def __init__(self, fleet, python, engine_type):
        self.port = stage.free_port()
        events, replay = stage.free_port(), stage.free_port()
        (fleet.directory / "discovery").mkdir()
        command = ["env", f"DYN_FILE_KV={fleet.directory}/discovery",
                   "HF_HUB_OFFLINE=1", "nice", "-n", "10", str(python), "-B", "-m"]
        self.processes = [
            Server("mocker", [
                *command, "dynamo.mocker", *PLANES,
                "--model-path", str(MODELS / "llama"), "--model-name", "tiny",
                "--engine-type", engine_type, "--speedup-ratio", "100",
                "--num-gpu-blocks-override", str(BLOCKS),
                "--block-size", str(BLOCK),
                "--zmq-kv-events-ports", str(events),
                "--zmq-replay-ports", str(replay)], fleet.directory),
            Server("frontend", [
                *command, "dynamo.frontend", *PLANES, "--http-host",
                "127.0.0.1", "--http-port", str(self.port),
                "--router-mode", "round-robin"], fleet.directory)]
        self.relay = Relay(
            fleet, "w1", "--events", f"tcp://127.0.0.1:{events}",
            "--replay", f"tcp://127.0.0.1:{replay}", "--block-size",
            str(BLOCK), "--address", f"127.0.0.1:{self.port}")
        self.relay.wait_for("started")

    def wait_ready(self):
        """Until the frontend knows the mocker's model."""
        def answers():
            for process in self.processes:
                process.check_alive()
            return b'"tiny"' in exchange(self.port, "GET", "/v1/models")[2]

        wait_until("Dynamo's frontend has the model", answers, STARTING)

    def stop(self):
        """Ends all."""
        self.relay.stop()
        for process in self.processes:
            process.kill()


def run(runner):
    """Token ids, on block's edges too, and evictions."""
    folder = BUILD / f"ai-dynamo-{VERSION}"
    install.install(folder, f"ai-dynamo=={VERSION}", "uvloop")
    for engine_type, computed in (("vllm", 1), ("trtllm", 0)):
        model = Model(f"Dynamo {VERSION}, mocker of {engine_type}",
                      block_size=BLOCK, zone=BLOCK, computed=computed)
        prompts = Prompts(model, runner.options.seed)
        with Fleet("mocker", model, workers=()) as fleet:
            fleet.engines["w1"] = Mocker(fleet, folder / "bin" / "python",
                                         engine_type)
            fleet.wait_served("w1")
            n = runner.options.requests or 100
            for form, requests in (("token ids", prompts.token_ids(2 * n)),
                                   ("block's edge", prompts.edges(n))):
                runner.one_by_one(fleet, form, requests)
                runner.judge(model.name, form)
            runner.evicted(fleet, prompts, 250, 90)
