#!/usr/bin/python3
"""What SGLang's own functions make of requests: requests_sglang.py MODEL, with
requests on the standard input and answers on the standard output, as
requests_vllm.py has them.

Two things are put in place of an engine's: the manager of the tokenizer is a
plain object with the tokenizer and the configuration, and a response ends
once its prompt is made.

Runs in vLLM's environment, SGLang on its path.
"""

import asyncio
import functools
import json
import logging
import sys
from types import SimpleNamespace

logging.disable(logging.CRITICAL)

# pylint: disable=wrong-import-position
import transformers
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from sglang.srt.entrypoints.anthropic.serving import AnthropicServing
from sglang.srt.entrypoints.openai.protocol import (
    ChatCompletionRequest, CompletionRequest, ResponsesRequest)
from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
from sglang.srt.entrypoints.openai.serving_completions import (
    OpenAIServingCompletion)
from sglang.srt.entrypoints.openai.serving_responses import (
    OpenAIServingResponses)
from sglang.srt.parser.template_manager import TemplateManager
from sglang.srt.runtime_context import get_context, publish
from sglang.srt.server_args import ServerArgs
from transformers import AutoTokenizer

ABOUT_CALL = ("tokenize", "return_dict")


def finite(value):
    """A copy; None: it has a number that JSON has not, or no text."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        return json.loads(text.encode())
    except ValueError:
        return None


class Refused(Exception):
    """The engine answers with an error."""


class Prepared(Exception):
    """A response whose prompt is made."""


class Responses(OpenAIServingResponses):
    """Those of SGLang, until the prompt is made."""

    async def _make_request(self, *words, **named):
        _, _, (ids,), _ = await super()._make_request(*words, **named)
        raise Prepared(ids)


class Engine:
    """SGLang's preparation with a template and options."""

    def __init__(self, model, template, options):
        self.got, self.text = None, None
        publish(ServerArgs(
            model_path=model, device="cpu", context_length=8192,
            tool_call_parser=options.get("tool_call_parser"),
            reasoning_parser=options.get("reasoning_parser"),
            default_chat_template_kwargs=options.get(
                "default_chat_template_kwargs")), role="tokenizer")
        tokenizer = AutoTokenizer.from_pretrained(model)
        tokenizer.chat_template = template
        self._watch(tokenizer)
        self.manager = SimpleNamespace(
            tokenizer=tokenizer, processor=None, server_args=None,
            served_model_name="m",
            model_path=model, model_config=ModelConfig(model),
            config_value=lambda name: get_context().config_leaf(name),
            lora_registry=SimpleNamespace(get_all_adapters=lambda: {}))
        templates = TemplateManager()
        templates.load_chat_template(self.manager, None, model)
        self.serving = OpenAIServingChat(self.manager, templates)
        self.anthropic = AnthropicServing(self.serving)
        self.answering = Responses(self.manager, templates)
        self.completing = OpenAIServingCompletion(self.manager, templates)
        self.facts = {"transformers": transformers.__version__,
                      "format": templates.jinja_template_content_format,
                      "probed": self._probed(templates)}

    def _probed(self, templates):
        """What dialect/options.lua asks for."""
        config, chat = templates.reasoning_config, self.serving
        toggle = chat._get_reasoning_toggle_param()
        always = config is not None and config.special_case is not None
        probed = {
            "merge_inline_system": not chat.supports_inline_system,
            "encode_adds_special": chat._tokenizer_auto_adds_specials,
            "thinking_native": chat.supports_native_reasoning_history(),
            "effort_kwarg": config and config.effort_kwarg or ""}
        if not always and chat._reasoning_default_mode() not in (
                "always", "mistral"):
            probed["thinking_toggle"] = toggle if toggle and (
                config is None or config.default_enabled is not None) else ""
        if chat._reasoning_detector is not None:
            text = chat.wrap_reasoning_history("\0")
            probed["thinking_start"], _, end = text.partition("\0")
            probed["thinking_end"] = end
        return probed

    def _watch(self, tokenizer):
        """Lets what the template gets be kept in `got`: the last call's, that
        which was rendered."""
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

    def _ids(self, request):
        """The ids of a chat that is checked and converted."""
        refused = self.serving._validate_request(request)
        if refused:
            raise Refused(refused)
        made, _ = self.serving._convert_to_internal_request(request)
        return [list(made.input_ids)]

    def chat(self, body):
        """/v1/chat/completions"""
        return self._ids(ChatCompletionRequest.model_validate(body))

    def messages(self, body):
        """/v1/messages"""
        return self._ids(self.anthropic._convert_to_chat_completion_request(
            AnthropicMessagesRequest.model_validate(body)))

    def responses(self, body):
        """/v1/responses"""
        request = ResponsesRequest.model_validate(body)
        try:
            answer = asyncio.run(self.answering.create_responses(request))
        except Prepared as prepared:
            return [list(prepared.args[0])]
        raise Refused(answer.body.decode())

    def completions(self, body):
        """/v1/completions"""
        request = CompletionRequest.model_validate(body)
        refused = self.completing._validate_request(request)
        if refused:
            raise Refused(refused)
        made, _ = self.completing._convert_to_internal_request(request)
        made.normalize_batch_and_arguments()
        if made.input_ids is not None:
            ids = made.input_ids
            return [list(ids)] if isinstance(ids[0], int) else ids
        texts = [made.text] if isinstance(made.text, str) else made.text
        return [list(ids) for ids in self.manager.tokenizer(texts).input_ids]

    def answer(self, form, body):
        """What is to be known of a request."""
        try:
            found = {"ids": getattr(self, form)(json.loads(body))}
        except Exception as err:      # pylint: disable=broad-except
            return {"error": f"{type(err).__name__}: {err}"[:300]}
        if form != "completions":
            found |= {"vars": self.got, "text": finite(self.text)}
        return found


def main(model):
    """The program."""
    engine, of_engine = None, None
    for line in sys.stdin:
        request = json.loads(line)
        key = (request["template"], request["options"])
        if key != of_engine:
            engine, of_engine = Engine(model, *key), key
        engine.got = None
        print(json.dumps({"id": request["id"]} | engine.facts | engine.answer(
            request["form"], request["body"])), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
