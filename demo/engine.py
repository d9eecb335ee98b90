#!/usr/bin/python3
"""An inference engine stand-in: to a router it behaves as vLLM does.

OpenAI-compatible HTTP in front, a modelled KV cache (kv_cache.py), modelled
time (scheduler.py), and KV events by ZeroMQ (kv_events.py).  It computes
nothing: answers are words drawn by a hash of the prompt.

Prints `ready on 127.0.0.1:PORT` when it serves; SIGTERM and SIGINT stop it.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import signal
import sys
import time
import uuid

from aiohttp import web

from kv_cache import KVCache, Sequence
from kv_events import Publisher
from lateness import LATE_SECONDS
from scheduler import Request, Scheduler
from tokenizer import chat_text, tokenize

HOST = "127.0.0.1"
MAX_BODY_BYTES = 64 << 20
DEFAULT_COMPLETION_TOKENS = 16      # as vLLM; a chat's default is what fits


class BadRequest(Exception):
    """The client's mistake, with OpenAI's error type and HTTP status."""

    def __init__(self, message, param=None, status=400,
                 kind="BadRequestError"):
        super().__init__(message)
        self.body = {"error": {"message": message, "type": kind,
                               "param": param, "code": status}}
        self.status = status


# ---------------------------------------------------------------- requests

async def json_body(http):
    """The request's body, a JSON object."""
    try:
        body = json.loads(await http.read())
    except ValueError as err:
        raise BadRequest(f"the body is not JSON: {err}") from err
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    return body


def token_ids(value):
    """A list of token ids as the client gave it, checked."""
    for token in value:
        if type(token) is not int or not 0 <= token < 1 << 32:
            raise BadRequest("prompt: token ids are integers below 2^32",
                             "prompt")
    return value


def prompt_tokens(prompt):
    """The tokens of a completion's `prompt` in any of its forms."""
    if isinstance(prompt, list) and prompt \
            and isinstance(prompt[0], (list, str)):
        if len(prompt) > 1:
            raise BadRequest("prompt: one prompt per request is supported",
                             "prompt")
        prompt = prompt[0]
    if isinstance(prompt, str):
        tokens = tokenize(prompt)
    elif isinstance(prompt, list):
        tokens = token_ids(prompt)
    else:
        raise BadRequest("prompt: text or a list of token ids is expected",
                         "prompt")
    if not tokens:
        raise BadRequest("prompt: it is empty", "prompt")
    return tokens


def chat_tokens(messages):
    """The tokens of a conversation under the engine's chat template."""
    try:
        return tokenize(chat_text(messages))
    except ValueError as err:
        raise BadRequest(str(err), "messages") from err


# ----------------------------------------------------------- answer bodies

class CompletionAnswer:
    """The bodies of /v1/completions."""

    object = chunk_object = "text_completion"
    id_prefix = "cmpl-"

    def opening(self):
        """Choices of chunks sent before the first text."""
        return []

    def chunk(self, text, finish_reason):
        return {"index": 0, "text": text, "logprobs": None,
                "finish_reason": finish_reason}

    def whole(self, text, finish_reason):
        return self.chunk(text, finish_reason)


class ChatAnswer:
    """The bodies of /v1/chat/completions."""

    object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    id_prefix = "chatcmpl-"

    def opening(self):
        return [{"index": 0, "delta": {"role": "assistant", "content": ""},
                 "logprobs": None, "finish_reason": None}]

    def chunk(self, text, finish_reason):
        return {"index": 0, "delta": {"content": text}, "logprobs": None,
                "finish_reason": finish_reason}

    def whole(self, text, finish_reason):
        return {"index": 0,
                "message": {"role": "assistant", "content": text},
                "logprobs": None, "finish_reason": finish_reason}


def usage(request, completion_tokens):
    """OpenAI's usage object."""
    return {"prompt_tokens": request.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": request.prompt_tokens + completion_tokens,
            "prompt_tokens_details": {
                "cached_tokens": request.cached_tokens}}


# ------------------------------------------------------------------ engine

class Engine:
    """The HTTP side of one engine."""

    def __init__(self, options):
        self.options = options
        self.cache = KVCache(options.blocks, options.block_size)
        self.max_model_len = options.blocks * options.block_size
        self.publisher = None           # set by serve(), with --events
        self.scheduler = Scheduler(
            self.cache, self._publish, options.max_num_seqs,
            options.prefill_us_per_token, options.decode_us_per_token)

    def application(self):
        """The aiohttp application."""
        app = web.Application(client_max_size=MAX_BODY_BYTES,
                              middlewares=[self._errors])
        app.add_routes([
            web.post("/v1/completions", self.completions),
            web.post("/v1/chat/completions", self.chat_completions),
            web.get("/v1/models", self.models),
            web.post("/tokenize", self.tokenize),
            web.post("/reset_prefix_cache", self.reset_prefix_cache),
            web.get("/health", self.health),
            web.get("/metrics", self.metrics)])
        return app

    def _publish(self, events):
        if self.publisher is not None:
            self.publisher.publish(events)

    @web.middleware
    async def _errors(self, http, handler):
        try:
            return await handler(http)
        except BadRequest as err:
            return web.json_response(err.body, status=err.status)

    # ---- completions

    async def completions(self, http):
        """POST /v1/completions"""
        body = await json_body(http)
        return await self._complete(
            http, body, prompt_tokens(body.get("prompt")),
            CompletionAnswer(), DEFAULT_COMPLETION_TOKENS)

    async def chat_completions(self, http):
        """POST /v1/chat/completions"""
        body = await json_body(http)
        tokens = chat_tokens(body.get("messages"))
        return await self._complete(http, body, tokens, ChatAnswer(),
                                    self.max_model_len - len(tokens))

    async def _complete(self, http, body, tokens, answer, default_tokens):
        request = self._request(http, body, tokens, default_tokens)
        head = {"id": answer.id_prefix + uuid.uuid4().hex,
                "created": int(time.time()),
                "model": body.get("model") or self.options.model}
        options = body.get("stream_options") or {}
        if not isinstance(options, dict):
            raise BadRequest("stream_options: an object is expected",
                             "stream_options")
        if body.get("stream"):
            return await self._stream(http, request, head, answer,
                                      bool(options.get("include_usage")))
        pieces = []
        async for more in self.scheduler.generate(request):
            pieces += more
        return web.json_response({
            **head, "object": answer.object,
            "choices": [answer.whole("".join(pieces), request.finish_reason)],
            "usage": usage(request, len(pieces))})

    async def _stream(self, http, request, head, answer, include_usage):
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8"})
        head = {**head, "object": answer.chunk_object}
        done = 0
        try:
            async with contextlib.aclosing(
                    self.scheduler.generate(request)) as generated:
                async for pieces in generated:
                    choices = []
                    if done == 0:
                        await response.prepare(http)
                        choices = answer.opening()
                    done += len(pieces)
                    last = done == request.answer_tokens
                    choices.append(answer.chunk(
                        "".join(pieces),
                        request.finish_reason if last else None))
                    await response.write(b"".join(
                        sse({**head, "choices": [choice]})
                        for choice in choices))
            if include_usage:
                await response.write(sse({**head, "choices": [],
                                          "usage": usage(request, done)}))
            await response.write(b"data: [DONE]\n\n")
            await response.write_eof()
        except ConnectionResetError:        # the client has hung up
            pass
        return response

    def _request(self, http, body, tokens, default_tokens):
        known = (self.options.model, *self.options.lora)
        model = body.get("model") or self.options.model
        if model not in known:
            raise BadRequest(f"The model `{model}` does not exist.", "model",
                             404, "NotFoundError")
        if body.get("n", 1) != 1:
            raise BadRequest("n: only 1 is supported", "n")
        salt = body.get("cache_salt") or ""
        if not isinstance(salt, str):
            raise BadRequest("cache_salt: text is expected", "cache_salt")
        limit = self.max_model_len - len(tokens)
        max_tokens = body.get("max_completion_tokens",
                              body.get("max_tokens"))
        if max_tokens is None:
            max_tokens = max(1, min(default_tokens, limit))
        if type(max_tokens) is not int or max_tokens < 1:
            raise BadRequest("max_tokens: an integer of at least 1 is "
                             "expected", "max_tokens")
        if max_tokens > limit:
            raise BadRequest(
                f"This model's maximum context length is "
                f"{self.max_model_len} tokens. However, you requested "
                f"{len(tokens) + max_tokens} tokens.", "max_tokens")
        sequence = Sequence(
            tokens, self.options.block_size,
            lora_name="" if model == self.options.model else model,
            cache_salt=salt, secret=self.options.seed)
        return Request(sequence, max_tokens, bool(body.get("ignore_eos")),
                       lambda: http.transport is None
                       or http.transport.is_closing())

    # ---- the rest

    async def tokenize(self, http):
        """POST /tokenize"""
        body = await json_body(http)
        if "messages" in body:
            tokens = chat_tokens(body["messages"])
        elif isinstance(body.get("prompt"), str):
            tokens = tokenize(body["prompt"])
        else:
            raise BadRequest("prompt or messages is expected")
        return web.json_response({"count": len(tokens),
                                  "max_model_len": self.max_model_len,
                                  "tokens": tokens})

    async def models(self, _http):
        """GET /v1/models"""
        names = (self.options.model, *self.options.lora)
        return web.json_response({"object": "list", "data": [
            {"id": name, "object": "model", "created": 0,
             "owned_by": "engine-stand-in",
             "max_model_len": self.max_model_len} for name in names]})

    async def reset_prefix_cache(self, _http):
        """POST /reset_prefix_cache: 409 while requests run"""
        if not self.scheduler.clear():
            raise BadRequest("the cache is in use by running requests",
                             status=409, kind="ConflictError")
        return web.Response()

    async def health(self, _http):
        """GET /health"""
        return web.Response()

    async def metrics(self, _http):
        """GET /metrics, under vLLM's names, and the deadlines"""
        scheduler = self.scheduler
        lines = []
        for name, kind, text, value in (
                ("vllm:num_requests_running", "gauge",
                 "Number of requests in model execution batches.",
                 scheduler.running),
                ("vllm:num_requests_waiting", "gauge",
                 "Number of requests waiting to be processed.",
                 len(scheduler.waiting)),
                ("vllm:kv_cache_usage_perc", "gauge",
                 "KV-cache usage. 1 means 100 percent usage.",
                 self.cache.usage()),
                ("vllm:prefix_cache_queries_total", "counter",
                 "Prefix cache queries, in number of queried tokens.",
                 scheduler.queried_tokens),
                ("vllm:prefix_cache_hits_total", "counter",
                 "Prefix cache hits, in number of cached tokens.",
                 scheduler.hit_tokens),
                ("stand_in:deadlines_met_total", "counter",
                 "Wake-ups of the stand-in in time.",
                 scheduler.deadlines.met),
                ("stand_in:deadlines_missed_total", "counter",
                 f"Wake-ups later than {LATE_SECONDS} s.",
                 scheduler.deadlines.missed)):
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}",
                      f'{name}{{model_name="{self.options.model}"}} {value}']
        return web.Response(text="\n".join(lines) + "\n",
                            headers={"Content-Type":
                                     "text/plain; version=0.0.4"})


def sse(data):
    """One server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


# -------------------------------------------------------------------- main

async def serve(options):
    """Serves until SIGTERM or SIGINT."""
    engine = Engine(options)
    runner = web.AppRunner(engine.application(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, HOST, options.port, shutdown_timeout=1)
    await site.start()
    port = runner.addresses[0][1]
    tasks = [asyncio.create_task(engine.scheduler.run())]
    if options.events:
        engine.publisher = Publisher(options.events, options.replay)
        tasks.append(asyncio.create_task(engine.publisher.run()))

    stop = asyncio.Event()
    failures = []

    def ended(task):
        if not task.cancelled() and task.exception():
            failures.append(task.exception())
            stop.set()

    for task in tasks:
        task.add_done_callback(ended)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    print(f"ready on {HOST}:{port}", flush=True)
    await stop.wait()

    await runner.cleanup()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if engine.publisher is not None:
        engine.publisher.close()
    if failures:
        raise failures[0]


def parse_options(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description="An inference engine stand-in with vLLM's HTTP API, a "
                    "modelled KV cache and vLLM's KV events.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--port", type=int, default=0,
        help=f"port on {HOST}; 0: a free one, see the `ready` line")
    add("--events", metavar="ENDPOINT",
        help="publish KV events there, as tcp://127.0.0.1:5557 (vLLM's "
             "endpoint)")
    add("--replay", metavar="ENDPOINT",
        help="answer there what was published (vLLM's replay_endpoint)")
    add("--model", default="demo", help="the model's name")
    add("--lora", action="append", default=[], metavar="NAME",
        help="serve an adapter under this model name (repeatable)")
    add("--block-size", type=int, default=16, help="tokens per cache block")
    add("--blocks", type=int, default=4096, help="blocks in the cache")
    add("--max-num-seqs", type=int, default=64,
        help="requests that may run at once")
    add("--prefill-us-per-token", type=float, default=50,
        help="microseconds to prefill one token that isn't cached")
    add("--decode-us-per-token", type=float, default=5000,
        help="microseconds between two tokens of an answer")
    add("--seed", type=int, default=0,
        help="of block handles: engines of another seed name the same block "
             "differently")
    options = parser.parse_args(argv)
    for name in ("block_size", "blocks", "max_num_seqs"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return options


def main():
    """The program."""
    options = parse_options()
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(serve(options))


if __name__ == "__main__":
    main()
