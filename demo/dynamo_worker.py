"""A worker of Dynamo's runtime before an engine stand-in, for the comparison.

It runs with the Python of Dynamo's environment.  Dynamo's frontend makes the
token ids, chooses a worker, and sends it the ids; the worker asks the engine
for a completion of them, and gives back the ids of its words.  The engine's
events go to Dynamo's own publisher.

Where workers and frontend find each other: DYN_FILE_KV, a folder.
"""

import argparse
import asyncio
import json
from pathlib import Path

# pylint: disable=import-error
from dynamo.llm import (KvEventPublisher, ModelInput, ModelRuntimeConfig,
                        ModelType, WorkerType, register_model)
from dynamo.runtime import DistributedRuntime

ENDPOINT = "demo.backend.generate"
SPACE = "\u0120"                # how the vocabulary has a word's space


class Engine:
    """The engine stand-in, and the words of its model."""

    def __init__(self, address, name, folder):
        self.host, _, self.port = address.rpartition(":")
        self.name = name
        self.ids = json.loads((folder / "tokenizer.json").read_text())[
            "model"]["vocab"]

    def _request(self, request):
        wanted = (request.get("stop_conditions") or {}).get("max_tokens")
        body = json.dumps({
            "model": self.name, "prompt": request["token_ids"],
            "max_tokens": wanted or 16, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}).encode()
        return (f"POST /v1/completions HTTP/1.0\r\nHost: {self.host}\r\n"
                f"Content-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode() + body

    async def generate(self, request):
        """The engine's answer, as Dynamo's workers give it."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(self._request(request))
            usage = None
            async for line in reader:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                usage = chunk.get("usage") or usage
                words = [word for choice in chunk["choices"]
                         for word in choice["text"].split()]
                if words:
                    yield {"token_ids": [self.ids[SPACE + word]
                                         for word in words]}
            if usage is None:
                raise ConnectionError("the engine broke its answer off")
            yield {"token_ids": [], "finish_reason": "length",
                   "completion_usage": usage}
        finally:
            writer.close()


async def main():
    """The program; SIGTERM stops it."""
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--engine", required=True, metavar="HOST:PORT")
    add("--events", required=True, metavar="ENDPOINT")
    add("--model", required=True, metavar="DIR", type=Path)
    add("--name", required=True)
    add("--blocks", required=True, type=int)
    add("--block-size", required=True, type=int)
    options = parser.parse_args()
    engine = Engine(options.engine, options.name, options.model)

    runtime = DistributedRuntime(asyncio.get_running_loop(), "file", "tcp")
    endpoint = runtime.endpoint(ENDPOINT)
    config = ModelRuntimeConfig()
    config.total_kv_blocks = options.blocks
    config.kv_event_publishing_enabled = True
    await register_model(
        ModelInput.Tokens, ModelType.Chat | ModelType.Completions, endpoint,
        str(options.model), model_name=options.name,
        worker_type=WorkerType.Aggregated,
        kv_cache_block_size=options.block_size, runtime_config=config,
        ignore_weights=True)

    async def generate(request, *, context):
        # pylint: disable=unused-argument
        async for part in engine.generate(request):
            yield part

    serving = asyncio.ensure_future(endpoint.serve_endpoint(generate))
    # kept as long as the program runs
    _publisher = KvEventPublisher(
        endpoint, kv_block_size=options.block_size,
        zmq_endpoint=options.events, zmq_topic="")
    print("ready", flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(main())
