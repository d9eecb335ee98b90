#!/usr/bin/python3 -B
"""An inference engine stand-in: to a router it behaves as vLLM does.

HTTP in front (serving.py), with the paths of vLLM or of SGLang: what of a
request is read (bodies.py), and how it is answered (answers.py).  Behind it a
modelled KV cache (kv_cache.py), modelled time (scheduler.py), and KV events by
ZeroMQ (kv_events.py).  It computes nothing: answers are words drawn by a hash
of the prompt.

The program kv-stand-in of the package of that name.  Each port is an engine of
its own.  Prints `ready on 127.0.0.1:PORT` for each when all serve; SIGTERM and
SIGINT stop them.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import logging
import signal
import sys
import time
from collections import OrderedDict

import answers
import bodies
import bodies_sglang
from kv_cache import KVCache, Sequence
from kv_events import Publisher
from lateness import LATE_SECONDS
from bodies import BadRequest
from scheduler import Request, Scheduler, Times
from serving import Server
from tokenizer import ModelError, Toy

HOST = "127.0.0.1"
DEFAULT_COMPLETION_TOKENS = 16      # as vLLM; a chat's default is what fits
MAX_SEQUENCES = 128                 # of one request
MAX_STORED = 1024                   # responses that later ones can follow
# what is served: path -> how its prompts are read, and how it is answered
FORMS = {
    "vllm": {
        "/v1/completions": (bodies.completion, answers.Completion),
        "/v1/chat/completions": (bodies.chat, answers.Chat),
        "/v1/messages": (bodies.anthropic, answers.Messages),
        "/v1/responses": (bodies.response, answers.Responses),
        "/inference/v1/generate": (bodies.tokens_in, answers.TokensOut)},
    "sglang": {
        "/v1/completions": (bodies_sglang.completion, answers.Completion),
        "/v1/chat/completions": (bodies_sglang.chat, answers.Chat),
        "/v1/messages": (bodies_sglang.anthropic, answers.Messages),
        "/v1/responses": (bodies_sglang.response, answers.Responses),
        "/generate": (bodies.generate, answers.Generate)}}


# ---------------------------------------------------------------- requests

def json_body(http):
    """The request's body, a JSON object."""
    try:
        body = json.loads(http.body)
    except ValueError as err:
        raise BadRequest(f"the body is not JSON: {err}") from err
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    for field in ("stream_options", "sampling_params"):
        if not isinstance(body.get(field) or {}, dict):
            raise BadRequest(f"{field}: an object is expected", field)
    return body


def fields_of_tokenize(body):
    """Of a chat what vLLM's /tokenize reads: it knows thoughts by one of
    their two names."""
    found = {name: body[name] for name in (
        "messages", "tools", "add_generation_prompt",
        "continue_final_message", "add_special_tokens",
        "chat_template_kwargs") if name in body}
    if isinstance(found["messages"], list):
        found["messages"] = [
            {name: value for name, value in message.items()
             if name != "reasoning_content"}
            if isinstance(message, dict) else message
            for message in found["messages"]]
    return found


def params_of(body):
    """Where a body has its parameters of sampling."""
    return body.get("sampling_params") or body


def choices_of(body):
    """How many answers to each prompt are wanted: n."""
    n = params_of(body).get("n")
    if n is not None and (type(n) is not int or n < 1):
        raise BadRequest("n: an integer of at least 1 is expected", "n")
    return n or 1


# ------------------------------------------------------------------ engine

class Engine:
    """The HTTP side of one engine."""

    def __init__(self, options, tokenizer):
        self.options, self.tokenizer = options, tokenizer
        self.started = time.time()
        self.cache = KVCache(options.blocks, options.block_size)
        self.max_model_len = options.blocks * options.block_size
        self.publisher = None           # set by serve(), with --events
        self.stored = OrderedDict()     # a response's id -> its items
        self.scheduler = Scheduler(
            self.cache, self._publish, options.max_num_seqs,
            options.max_num_batched_tokens, Times(
                base=options.decode_us_per_token / 1e6,
                prefill=options.prefill_us_per_token / 1e6,
                prefill_context=options.prefill_ns_per_context / 1e9,
                decode=options.decode_us_per_request / 1e6,
                decode_context=options.decode_ns_per_context / 1e9))

    def routes(self):
        """What is served: {path: (method, handler)}."""
        sglang = self.options.engine == "sglang"
        found = {
            "/v1/models": ("GET", self.models),
            "/tokenize": ("POST", self.tokenize),
            "/v1/messages/count_tokens": ("POST", self.count_tokens),
            "/flush_cache" if sglang else "/reset_prefix_cache":
                ("POST", self.reset_prefix_cache),
            "/health": ("GET", self.health),
            "/metrics": ("GET", self.metrics)}
        for path, (read, kind) in FORMS[self.options.engine].items():
            found[path] = "POST", self._serves(read, kind)
            if not sglang and kind is not answers.TokensOut:
                found[path + "/render"] = "POST", self._renders(read)
        if sglang:
            found["/v1/tokenize"] = "POST", self.tokenize
        return found

    def _publish(self, events):
        if self.publisher is not None:
            self.publisher.publish(events)

    # ---- inference

    def _serves(self, read, kind):
        """The handler of a path."""
        async def handler(http):
            if read is bodies.tokens_in:
                self._scales_out()
            body = json_body(http)
            wanted = self._requests(http, body, self._read(body, read))
            answer = kind(self.options.engine, body, self._model(body),
                          wanted, choices_of(body))
            if body.get("stream"):
                return await self._stream(http, answer)
            texts = await asyncio.gather(*(
                self._text(answer, index) for index in range(len(wanted))))
            whole = answer.whole(texts)
            if kind is answers.Responses:
                self._store(body, whole)
            return 200, whole
        return handler

    def _renders(self, read):
        """The handler of a path with /render behind it."""
        async def handler(http):
            self._scales_out()
            body = json_body(http)
            self._model(body)
            rendered = [{"token_ids": prompt, "model": body.get("model"),
                         "cache_salt": body.get("cache_salt")}
                        for prompt in self._read(body, read)]
            return 200, rendered if read is bodies.completion else rendered[0]
        return handler

    def _scales_out(self):
        """Whether such paths are served at all."""
        if not self.options.enable_scale_out:
            raise BadRequest("Scale-out endpoints are disabled. Restart with "
                             "--enable-scale-out to enable them.", None, 403,
                             "PermissionDeniedError")

    def _read(self, body, read):
        """The prompts of a body."""
        previous = body.get("previous_response_id")
        if previous is not None and read in (bodies.response,
                                             bodies_sglang.response):
            if previous not in self.stored:
                raise BadRequest(f"Response with id '{previous}' not found.",
                                 "response_id", 404, "NotFoundError")
            given = body.get("input")
            body = {**body, "input": self.stored[previous] + (
                given if isinstance(given, list) else
                [{"role": "user", "content": given}])}
        try:
            return read(body, self.tokenizer)
        except (AttributeError, KeyError, TypeError) as err:
            raise BadRequest(f"the body has a field of a wrong type: {err}"
                             ) from err

    def _store(self, body, response):
        """Keeps a response for one that follows; the oldest one goes."""
        given = body["input"]
        self.stored[response["id"]] = (
            given if isinstance(given, list) else
            [{"role": "user", "content": given}]) + response["output"]
        if len(self.stored) > MAX_STORED:
            self.stored.popitem(last=False)

    async def _text(self, answer, index):
        """The text of one choice."""
        text = ""
        async with contextlib.aclosing(self.scheduler.generate(
                answer.requests[index])) as generated:
            async for pieces in generated:
                answer.done[index] += len(pieces)
                text += "".join(pieces)
        return text

    async def _stream(self, http, answer):
        more = asyncio.Queue()

        async def produce(index, request):
            try:
                async with contextlib.aclosing(
                        self.scheduler.generate(request)) as generated:
                    async for pieces in generated:
                        more.put_nowait((index, pieces))
            finally:
                more.put_nowait((index, None))

        running = [asyncio.create_task(produce(index, request))
                   for index, request in enumerate(answer.requests)]
        left = len(running)
        try:
            while left:
                index, pieces = await more.get()
                if pieces is None:
                    left -= 1
                    continue
                data = b""
                if not http.begun:
                    http.begin(200, "text/event-stream; charset=utf-8")
                    data = answer.opening()
                answer.done[index] += len(pieces)
                await http.write(data + answer.chunk(index, pieces))
            if http.begun:
                await http.write(answer.closing(), last=True)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _model(self, body):
        """The model's name, checked: SGLang takes any, and an adapter as
        base:adapter."""
        model = body.get("model") or self.options.model
        if self.options.engine == "sglang" or model in (
                self.options.model, *self.options.lora):
            return model
        raise BadRequest(f"The model `{model}` does not exist.", "model",
                         404, "NotFoundError")

    def _adapter(self, body):
        """The adapter's name; empty without one."""
        name = self._model(body)
        if self.options.engine == "sglang":
            name = name.partition(":")[2] or body.get("lora_path")
        return name if name in self.options.lora else ""

    def _requests(self, http, body, found):
        """A request for each choice of each prompt."""
        each = choices_of(body)
        if len(found) * each > MAX_SEQUENCES:
            raise BadRequest(f"{len(found)} prompts with {each} choices are "
                             f"more than {MAX_SEQUENCES} sequences", "n")
        for field in ("cache_salt", "extra_key"):
            if not isinstance(body.get(field) or "", str):
                raise BadRequest(f"{field}: text is expected", field)
        salt = body.get("cache_salt") or ""
        if self.options.engine == "sglang" and body.get("extra_key"):
            salt += "\0" + body["extra_key"]
        params = params_of(body)
        # whoever wants logprobs of the prompt has all of it computed
        reads = params.get("prompt_logprobs") is None and not (
            body.get("echo") and ("messages" in body or
                                  body.get("logprobs") is not None))
        wanted = []
        for tokens in found:
            max_tokens = self._max_tokens(body, len(tokens))
            for _ in range(each):
                sequence = Sequence(
                    tokens, self.options.block_size,
                    lora_name=self._adapter(body), cache_salt=salt,
                    secret=self.options.seed, reads_cache=reads)
                wanted.append(Request(
                    sequence, max_tokens, bool(params.get("ignore_eos")),
                    http.is_gone, self.tokenizer.token_of))
        return wanted

    def _max_tokens(self, body, prompt):
        """How many tokens may be answered to a prompt of so many."""
        limit, params = self.max_model_len - prompt, params_of(body)
        given = next((params[name] for name in (
            "max_completion_tokens", "max_tokens", "max_output_tokens",
            "max_new_tokens") if params.get(name) is not None), None)
        if given is None:
            default = limit if "messages" in body or "input" in body \
                else DEFAULT_COMPLETION_TOKENS
            return max(1, min(default, limit))
        if type(given) is not int or given < 1:
            raise BadRequest("max_tokens: an integer of at least 1 is "
                             "expected", "max_tokens")
        if given > limit:
            raise BadRequest(
                f"This model's maximum context length is "
                f"{self.max_model_len} tokens. However, you requested "
                f"{prompt + given} tokens.", "max_tokens")
        return given

    # ---- the rest

    async def tokenize(self, http):
        """POST /tokenize: vLLM takes some of a chat's fields, SGLang all, and
        lists of texts."""
        body = json_body(http)
        self._model(body)
        sglang = self.options.engine == "sglang"
        if "messages" in body:
            if sglang and body.get("stream"):
                raise BadRequest("/tokenize does not support streaming",
                                 "stream", 501, "NotImplementedError")
            (found,) = self._read(body, bodies_sglang.chat) if sglang \
                else self._read(fields_of_tokenize(body), bodies.chat)
        else:
            many = isinstance(body.get("prompt"), list)
            if many and not sglang or "prompt" not in body:
                raise BadRequest("prompt or messages is expected; the prompt "
                                 "is text", "prompt")
            found = self._read({name: body[name] for name in (
                "prompt", "add_special_tokens") if name in body},
                bodies.completion)
            found = found if many else found[0]
        return 200, {
            "count": [len(prompt) for prompt in found]
            if found and isinstance(found[0], list) else len(found),
            "max_model_len": self.max_model_len, "tokens": found}

    async def count_tokens(self, http):
        """POST /v1/messages/count_tokens"""
        body = json_body(http)
        self._model(body)
        (prompt,) = self._read(
            body, bodies_sglang.count if self.options.engine == "sglang"
            else bodies.count)
        return 200, {"input_tokens": len(prompt)}

    async def models(self, _http):
        """GET /v1/models"""
        names = (self.options.model, *self.options.lora)
        return 200, {"object": "list", "data": [
            {"id": name, "object": "model", "created": 0,
             "owned_by": "engine-stand-in",
             "max_model_len": self.max_model_len} for name in names]}

    async def reset_prefix_cache(self, _http):
        """POST /reset_prefix_cache: 409 while requests run"""
        if not self.scheduler.clear():
            raise BadRequest("the cache is in use by running requests",
                             status=409, kind="ConflictError")
        return 200,

    async def health(self, _http):
        """GET /health"""
        return 200,

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
        lines += [f'vllm:cache_config_info{{block_size="{self.cache.block_size}'
                  f'",engine="0",num_gpu_blocks="{self.options.blocks}"}} 1.0',
                  f"process_start_time_seconds {self.started}"]
        return 200, "\n".join(lines) + "\n"


# -------------------------------------------------------------------- main

async def serve(options):
    """Serves until SIGTERM or SIGINT."""
    tokenizer = Toy()
    if options.tokenizer:
        # only here: it needs jinja2, which others do without
        from template import Template
        tokenizer = Template(options.tokenizer, options.engine)
    engines, addresses, tasks = [], [], []
    for port, events, replay in itertools.zip_longest(
            options.ports, options.events, options.replay):
        engine = Engine(options, tokenizer)
        engines.append(engine)
        server = await Server(engine.routes()).start(HOST, port)
        addresses.append("%s:%d" % server.sockets[0].getsockname())
        tasks.append(asyncio.create_task(engine.scheduler.run()))
        if events:
            engine.publisher = Publisher(events, replay)
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
    for address in addresses:
        print(f"ready on {address}", flush=True)
    await stop.wait()

    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for engine in engines:
        if engine.publisher is not None:
            engine.publisher.close()
    if failures:
        raise failures[0]


def parse_options(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="kv-stand-in", description="Stands in for inference engines: an "
        "engine at each port, with vLLM's HTTP API, a modelled KV cache and "
        "vLLM's KV events.  It computes nothing: its answers are words without "
        "a sense, and its times follow from what is not cached.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("ports", metavar="PORT", type=int, nargs="*", default=[0],
        help=f"an engine's port on {HOST}; 0: a free one, see the `ready` line")
    add("--events", metavar="ENDPOINT", action="append", default=[],
        help="publish KV events there, as tcp://127.0.0.1:5557 (vLLM's "
             "endpoint); once for each engine, in the order of the ports")
    add("--replay", metavar="ENDPOINT", action="append", default=[],
        help="answer there what was published (vLLM's replay_endpoint); "
             "likewise")
    add("--engine", choices=sorted(FORMS), default="vllm",
        help="whose paths are served, and whose usage")
    add("--enable-scale-out", action="store_true",
        help="serve /render behind the paths, and /inference/v1/generate, as "
             "vLLM does with this option")
    add("--tokenizer", metavar="DIR",
        help="a model's directory with tokenizer.json and a chat template, "
             "instead of the toy tokenizer: as of kv_router_model")
    add("--model", default="demo", help="the model's name")
    add("--lora", action="append", default=[], metavar="NAME",
        help="serve an adapter under this model name (repeatable)")
    add("--block-size", type=int, default=16, help="tokens per cache block")
    add("--blocks", type=int, default=4096, help="blocks in the cache")
    add("--max-num-seqs", type=int, default=64,
        help="requests that may run at once")
    add("--max-num-batched-tokens", type=int, default=8192,
        help="tokens that one step may compute")
    add("--decode-us-per-token", type=float, default=4000,
        help="microseconds of a step, whatever it computes: the least between "
             "two tokens of an answer")
    add("--prefill-us-per-token", type=float, default=35,
        help="microseconds more for one token of a prompt that isn't cached")
    add("--prefill-ns-per-context", type=float, default=1.5,
        help="nanoseconds more for one such token behind one other token")
    add("--decode-us-per-request", type=float, default=30,
        help="microseconds more for one request that decodes")
    add("--decode-ns-per-context", type=float, default=40,
        help="nanoseconds more for one token that such a request has before")
    add("--seed", type=int, default=0,
        help="of block handles: engines of another seed name the same block "
             "differently")
    options = parser.parse_args(argv)
    for name in ("block_size", "blocks", "max_num_seqs",
                 "max_num_batched_tokens"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    for name in ("events", "replay"):
        if len(getattr(options, name)) not in (0, len(options.ports)):
            parser.error(f"{len(options.ports)} engines need --{name} as "
                         f"often, not {len(getattr(options, name))} times")
    return options


def main():
    """The program."""
    options = parse_options()
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(serve(options))
    except (OSError, ModelError) as error:
        sys.exit(f"kv-stand-in: {error}")


if __name__ == "__main__":
    main()
