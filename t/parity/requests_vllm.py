#!/usr/bin/python3
"""What vLLM's own functions make of requests: requests_vllm.py MODEL, with
requests on the standard input, one JSON line each, and answers on the standard
output.

MODEL is a folder with a tokenizer and a configuration.  A request has `form`,
`body` (a text), `template` and `options`, the flags of dialect/options.lua.
An answer has `error`, or `vars`, what the tokenizer's apply_chat_template()
got, `text`, what it made of it, and `ids`, what the engine would read; besides
what the engine has found out about the template.  No engine is started, and no
function of vLLM is changed: the tokenizer is watched.

Runs in vLLM's environment.
"""

import asyncio
import functools
import json
import logging
import os
import sys

os.environ["VLLM_LOGGING_LEVEL"] = "CRITICAL"
logging.disable(logging.CRITICAL)

# pylint: disable=wrong-import-position
import transformers
from vllm.config import ModelConfig, VllmConfig
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import (
    ChatCompletionRequest)
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.renderers import hf, renderer_from_config
from vllm.renderers.online_renderer import OnlineRenderer

ABOUT_CALL = ("chat_template", "tokenize", "return_dict")


def finite(value):
    """A copy; None: it has a number that JSON has not, or no text."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        return json.loads(text.encode())
    except ValueError:
        return None


class Refused(Exception):
    """The engine answers with an error."""


class Engine:
    """vLLM's renderer with a template and options."""

    def __init__(self, config, template, options):
        self.got, self.text = None, None
        renderer = renderer_from_config(config)
        self._watch(renderer.tokenizer)
        self.online = OnlineRenderer(
            config.model_config, renderer, request_logger=None,
            chat_template=template,
            chat_template_content_format=options.get(
                "chat_template_content_format", "auto"),
            enable_auto_tools=options.get("enable_auto_tool_choice", False),
            exclude_tools_when_tool_choice_none=options.get(
                "exclude_tools_when_tool_choice_none", False),
            tool_parser=options.get("tool_call_parser"),
            default_chat_template_kwargs=options.get(
                "default_chat_template_kwargs"))
        self.anthropic = object.__new__(AnthropicServingMessages)
        self.anthropic.online_renderer = self.online
        self.anthropic.model_config = config.model_config
        self.anthropic.renderer = renderer
        merge = AnthropicServingMessages._should_merge_inline_system
        self.anthropic._merge_inline_system = merge(self.online)
        effort = options.get("anthropic_disabled_thinking_effort", "auto")
        self.anthropic._disabled_thinking_effort = \
            None if effort == "auto" else effort
        self.facts = {
            "transformers": transformers.__version__,
            "format": hf._detect_content_format(template, default="string"),
            "developer": hf._detect_developer_role_support(template),
            "probed": {
                "merge_inline_system": self.anthropic._merge_inline_system,
                "disabled_thinking_effort": asyncio.run(
                    self.anthropic._get_disabled_thinking_effort())}}

    def _watch(self, tokenizer):
        """Lets what the template gets be kept in `got`."""
        engine, given = self, type(tokenizer).apply_chat_template

        @functools.wraps(given)
        def watched(self, conversation, *words, **named):
            engine.got = finite({"messages": conversation} | {
                name: value for name, value in named.items()
                if name not in ABOUT_CALL})
            engine.text = given(self, conversation, *words, **named)
            return engine.text

        tokenizer.__class__ = type("Watched", (type(tokenizer),),
                                   {"apply_chat_template": watched})

    async def chat(self, body):
        """/v1/chat/completions"""
        return await self.online.render_chat(
            ChatCompletionRequest.model_validate(body))

    async def messages(self, body):
        """/v1/messages"""
        request = AnthropicMessagesRequest.model_validate(body)
        effort = "none"
        if request.thinking is not None \
                and request.thinking.type == "disabled":
            effort = await self.anthropic._get_disabled_thinking_effort()
        return await self.online.render_chat(
            self.anthropic.to_chat_completion_request(
                request,
                merge_inline_system=self.anthropic._merge_inline_system,
                disabled_thinking_effort=effort))

    async def responses(self, body):
        """/v1/responses"""
        result = await self.online.render_responses(
            ResponsesRequest.model_validate(body))
        if isinstance(result, ErrorResponse):
            return result
        return None, [result.engine_input]

    async def completions(self, body):
        """/v1/completions"""
        result = await self.online.render_completion(
            CompletionRequest.model_validate(body))
        if isinstance(result, ErrorResponse):
            return result
        return None, result

    async def answer(self, form, body):
        """What is to be known of a request."""
        try:
            result = await getattr(self, form)(json.loads(body))
            if isinstance(result, ErrorResponse):
                raise Refused(result.error.message)
        except Exception as err:      # pylint: disable=broad-except
            return {"error": f"{type(err).__name__}: {err}"[:300]}
        found = {"ids": [list(each["prompt_token_ids"])
                         for each in result[1]]}
        if form != "completions":
            found |= {"vars": self.got, "text": finite(self.text)}
        return found


def main(model):
    """The program."""
    config = VllmConfig(model_config=ModelConfig(
        model=model, max_model_len=8192))
    engines = {}
    for line in sys.stdin:
        request = json.loads(line)
        options = request["options"]
        key = json.dumps([request["template"], options])
        if key not in engines:
            engines[key] = Engine(config, request["template"], options)
        engine = engines[key]
        engine.got = None
        print(json.dumps({"id": request["id"]} | engine.facts | asyncio.run(
            engine.answer(request["form"], request["body"]))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
