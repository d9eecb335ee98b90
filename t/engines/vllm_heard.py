#!/usr/bin/python3
"""vLLM's own server with an ear at its engine: vllm_heard.py FILE WORDS...

WORDS are those of the command `vllm`.  What the server hands to the engine of
each request, after all conversion, goes to FILE as a JSON line: token ids,
namespace, and whether the cache is read.  Nothing else is changed.

Runs in vLLM's environment.
"""

import json
import sys

from vllm.entrypoints.cli.main import main
from vllm.v1.engine.core_client import AsyncMPClient


def listen(path):
    """Lets an ear hear what the engine gets."""
    given = AsyncMPClient.add_request_async
    heard = open(path, "a", encoding="utf-8")

    async def add_request_async(self, request):
        params = request.sampling_params
        print(json.dumps({
            "ids": request.prompt_token_ids,
            "cache_salt": request.cache_salt,
            "lora": request.lora_request and request.lora_request.lora_name,
            "reads_cache": not (params and params.skip_reading_prefix_cache),
        }), file=heard, flush=True)
        await given(self, request)

    AsyncMPClient.add_request_async = add_request_async


if __name__ == "__main__":
    listen(sys.argv[1])
    sys.argv = ["vllm", *sys.argv[2:]]
    main()
