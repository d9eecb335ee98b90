"""Captures of what an engine was asked and what it published, in the format
of t/vectors/vllm, as JSON lines.
"""

import json
from pathlib import Path

import zmq


def subscribed(endpoint):
    """A socket that gets all that an engine publishes from now on."""
    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(endpoint)
    return socket


class Recorder:
    """Writes FOLDER/MODEL.jsonl; nothing without a folder, nor of an engine
    with several ranks, whose messages have no order among them."""

    def __init__(self, fleet, folder):
        self.fleet = fleet
        self.file = self.socket = None
        model = fleet.model
        if folder is None or model.ranks > 1:
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.file = open(Path(folder) / f"{model.name}.jsonl", "w",
                         encoding="utf-8")
        self.socket = subscribed(fleet.engines["w1"].events)
        self.write({"header": {
            "vllm": model.version, "model": model.name,
            "block_size": model.block_size,
            "lora": list(model.adapters), "salted": True,
            "options": list(model.options)}})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.file:
            self.socket.close(linger=0)
            self.file.close()

    def write(self, step):
        """One line."""
        self.file.write(json.dumps(step, separators=(",", ":")) + "\n")

    def took(self, path, body, answer):
        """A request, and what the engine published because of it."""
        if not self.file:
            return
        request = {"path": path, "body": body, "status": answer.status}
        if answer.status == 200:
            request |= {"prompt_tokens": answer.prompt,
                        "cached_tokens": answer.had}
            if not isinstance(body.get("prompt"), list):
                request["prompt_token_ids"] = answer.tokens
        self.write({"request": request})
        while self.socket.poll(50):
            frames = self.socket.recv_multipart()
            self.write({"message": {
                "rank": 0, "frames": [frame.hex() for frame in frames]}})
