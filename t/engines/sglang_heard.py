#!/usr/bin/python3
"""SGLang's own server with an ear at its scheduler: sglang_heard.py FILE
WORDS...

WORDS are those of `python -m sglang.launch_server`.  What the server hands to
the scheduler of each request, after all conversion, goes to FILE as a JSON
line: token ids, namespace, and whether the cache is read.  Nothing else is
changed.  What a request with several choices sends ahead, to fill the cache,
generates nothing and is left out.

Runs in an environment with torch, SGLang on its path.
"""

import functools
import json
import sys

import torch
from sglang.launch_server import run_server
from sglang.srt.managers.io_struct import (BatchTokenizedGenerateReqInput,
                                           TokenizedGenerateReqInput)
from sglang.srt.managers.tokenizer_manager import TokenizerManager
from sglang.srt.server_args import prepare_server_args


def unpinned(make):
    """A function of torch that pins no memory: adapters ask for that, and
    without a GPU's driver it fails.  Processes that are started import this
    module, too."""
    @functools.wraps(make)
    def made(*args, pin_memory=False, **options):
        del pin_memory
        return make(*args, **options)
    return made


for name in ("tensor", "empty", "zeros"):
    setattr(torch, name, unpinned(getattr(torch, name)))
torch.Tensor.pin_memory = lambda self, *_: self


def listen(path):
    """Lets an ear hear what the scheduler gets."""
    given = TokenizerManager._dispatch_to_scheduler
    heard = open(path, "a", encoding="utf-8")

    def hear(request):
        params = request.sampling_params
        if params.n > 1 and params.max_new_tokens == 0:
            return
        reads = len(request.input_ids) if request.input_ids else 0
        if request.return_logprob and request.logprob_start_len >= 0:
            reads = min(reads, request.logprob_start_len)
        print(json.dumps({
            "ids": request.input_ids and list(request.input_ids),
            "cache_salt": request.cache_salt,
            "extra_key": request.extra_key,
            "lora": request.lora_name,
            "reads_cache": reads == len(request.input_ids or ()),
        }), file=heard, flush=True)

    def dispatch(self, obj):
        if isinstance(obj, TokenizedGenerateReqInput):
            hear(obj)
        elif isinstance(obj, BatchTokenizedGenerateReqInput):
            for request in obj.batch:
                hear(request)
        given(self, obj)

    TokenizerManager._dispatch_to_scheduler = dispatch


if __name__ == "__main__":
    listen(sys.argv[1])
    run_server(prepare_server_args(sys.argv[2:]))
