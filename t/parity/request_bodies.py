"""Bodies of requests, for the dialects: corner cases written by hand, and
random ones of a seed.
"""

import json

TEXTS = ("Why?", "", "two\nlines ", "Grüße, 東京 😀", "<|im_end|>",
         "a\u2028b\\n",
         "x-anthropic-billing-header: cc=1", " \t",
         "x-anthropic-billing-header: cc=1\nAnswer briefly.")
ODD = (None, 1, 1.5, True, "x", [], {}, ["x"], {"a": 1}, [None])
SCHEMA = {"type": "object", "properties": {
    "city": {"type": "string", "description": "its name"},
    "days": {"type": "integer", "minimum": 1}}, "required": ["city"]}
SCHEMAS = (SCHEMA, {"type": "object", "properties": {}}, {},
           {"properties": {"type": {"type": ["string", "null"]}}},
           {"type": "object", "additionalProperties": False, "properties": {
               "how": {"enum": ["a", 1, None], "default": "a"},
               "list": {"type": "array", "items": {"anyOf": [
                   {"type": "number"}, {"$ref": "#/$defs/n"}]}}},
            "$defs": {"n": {"type": "integer", "format": "int64"}}},
           {"type": "dict", "properties": {"a": {"type": "varchar(255)"}}},
           {"type": "object", "required": "city"},
           {"type": "object", "properties": {"a": {"pattern": "["}}},
           {"$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object", "propertyNames": {"pattern": "^[a-z-]+$"},
            "properties": {"a": {"type": "string",
                                 "pattern": "^(?:[\\w.-]{2,8}|x*?)$"}},
            "patternProperties": {"^x-": {"type": "string"}}})
ARGUMENTS = ('{"city": "Århus",  "days": 2}', "{}", "", "[]", "nonsense",
             '{"b": 1.0, "a": [1, {"c": null}], "b": 12345678901234567890}',
             '{"a": 1e400}', '{"a": NaN}', " {\"a\": -0}", '{"a": "\\ud800"}',
             "null", '{"x": 1.50, "y": 1e5}')
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max",
           "ultra", "no_think")
PICTURE = "data:image/png;base64,iVBORw0KGgo="
# fields of OpenAI's bodies without effect on the prompt, right and wrong
PLAIN = {
    "temperature": (0, 0.5, "hot"), "top_p": (1, 0.9), "n": (1, 2, 1.5),
    "seed": (1, None), "stop": ("x", ["x", "y"], 1), "user": ("u", 1),
    "max_tokens": (5, "5"), "stream": (True, False, "yes"),
    "logit_bias": ({"1": 2}, {"1": "x"}), "metadata": ({"a": "b"},),
    "stream_options": ({"include_usage": True}, None, {"x": 1}),
    "frequency_penalty": (0.1, None), "presence_penalty": (0, None),
    "cache_salt": ("s", "", None), "store": (True,), "top_k": (5,),
    "min_p": (0.1,), "repetition_penalty": (1.1,), "ignore_eos": (True, 1),
    "skip_special_tokens": (False,), "min_tokens": (1,),
    "stop_token_ids": ([1], ["x"]), "priority": (0, 1),
    "response_format": ({"type": "json_object"}, {"type": "text"},
                        {"type": "json_schema"},
                        {"type": "json_schema", "json_schema": {
                            "name": "n", "schema": {"type": "object"}}}),
    "model": ("m", None), "nonsense": (1,), "prompt_logprobs": (1,),
    "truncate_prompt_tokens": (4, None), "session_id": ("s",),
    "session_params": ({"id": "s"},), "lora_path": ("a", None),
    "extra_key": ("k",), "rid": ("r",), "regex": ("a",)}
CHAT = PLAIN | {
    "tool_choice": ("auto", "none", "required", None, "x", {
        "type": "function", "function": {"name": "f0"}}, {
        "type": "function", "function": {"name": "nobody"}},
        {"function": {"name": "f1"}}),
    "reasoning_effort": EFFORTS + (None, 0.5),
    "chat_template_kwargs": (
        {"enable_thinking": False}, {"flavour": "sweet", "style": None},
        {"style": "auto", "thinking": True}, None, {}, {"bos": 1},
        {"reasoning_effort": "low"}, {"chat_template": "x"},
        {"tools": []}, {"style": {"a": [1, 2.0]}}),
    "add_generation_prompt": (True, False, None),
    "continue_final_message": (True, False),
    "add_special_tokens": (True, False),
    "documents": ([{"title": "t", "text": "x"}], [{"a": 1}], [], None, "x"),
    "chat_template": ("{{ messages }}", None),
    "logprobs": (True, False, None), "top_logprobs": (0, 1, -2),
    "echo": (True, False), "parallel_tool_calls": (True, False),
    "max_completion_tokens": (5,), "separate_reasoning": (False,),
    "kv_transfer_params": ({"do_remote_decode": True},
                           {"prompt_token_ids": [1, 2]}, None),
    "reasoning": ({"effort": "low"}, {"enabled": True}, None),
    "functions": ([],), "include_reasoning": (True,),
    "input_ids": (None, [1, 2])}
MESSAGES = {
    "temperature": (0, "x"), "top_p": (1,), "top_k": (5,),
    "stop_sequences": (["x"], None), "stream": (True, False, None),
    "metadata": ({"user_id": "u"},), "max_tokens": (5, 0, None, "x", 1024),
    "system": TEXTS + (None, [], [{"type": "text", "text": "a"}, {
        "type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}],
        [{"type": "text", "text": TEXTS[6]}, {"type": "text", "text": ""},
         {"type": "text", "text": "c"}], [{"type": "text"}]),
    "tool_choice": ({"type": "auto"}, {"type": "any"}, {"type": "none"}, None,
                    {"type": "tool", "name": "f0"}, {"type": "tool"},
                    {"type": "tool", "name": "nobody"},
                    {"type": "auto", "disable_parallel_tool_use": True}),
    "thinking": ({"type": "disabled"}, {"type": "adaptive"}, None,
                 {"type": "enabled", "budget_tokens": 1024},
                 {"type": "enabled", "budget_tokens": 3},
                 {"type": "enabled"}, {"type": "adaptive",
                                       "display": "omitted"}),
    "output_config": ({"effort": "low"}, {"effort": "xhigh"}, {}, None,
                      {"effort": "minimal"}, {"effort": None},
                      {"format": {"type": "json_schema",
                                  "schema": {"type": "object"}}}),
    "chat_template_kwargs": CHAT["chat_template_kwargs"],
    "cache_salt": ("s", None, ""), "nonsense": (1,), "betas": (["x"],),
    "model": ("m", "", None), "context_management": ({},),
    "kv_transfer_params": ({"do_remote_decode": True}, None)}
RESPONSES = {
    "temperature": (0, "x"), "top_p": (1,), "stream": (True, False, None),
    "max_output_tokens": (5, None), "metadata": ({"a": "b"}, None),
    "instructions": TEXTS + (None,), "store": (True, False),
    "tool_choice": ("auto", "none", "required", {
        "type": "function", "name": "f0"}, {
        "type": "function", "name": "nobody"}, {"type": "mcp"}),
    "reasoning": ({"effort": "low"}, {"effort": "none"}, None, {},
                  {"effort": None}, {"effort": "high", "summary": "auto"},
                  {"effort": "ultra"}, {"summary": "auto"}),
    "chat_template_kwargs": CHAT["chat_template_kwargs"],
    "truncation": ("disabled", "auto", None), "user": ("u",),
    "text": ({"format": {"type": "text"}}, None, {"verbosity": "low"}),
    "parallel_tool_calls": (True, None), "include": (
        ["reasoning.encrypted_content"], None, ["x"]),
    "previous_response_id": ("resp_1", None), "background": (False,),
    "service_tier": ("auto", "x"), "prompt_cache_key": ("k",),
    "nonsense": (1,), "model": ("m", None), "cache_salt": ("s", ""),
    "max_tool_calls": (1,), "top_logprobs": (0,), "prompt": (None, {})}
COMPLETIONS = PLAIN | {
    "add_special_tokens": (True, False), "echo": (True, False),
    "suffix": ("x", None), "logprobs": (1, None), "best_of": (1,),
    "add_generation_prompt": (True,)}


class Bodies:
    """Random ones: `random` is a random.Random."""

    def __init__(self, random):
        self.random = random

    def few(self, most, make, least=0):
        """Some of what `make` makes."""
        return [make() for _ in range(self.random.randint(least, most))]

    def odds(self, n):
        """One of n times."""
        return self.random.randrange(n) == 0

    def text(self):
        """A text."""
        return self.random.choice(TEXTS)

    def maybe(self, body, pool, most=3):
        """A body with some fields of a pool, and now and then one that is of
        another type."""
        for name in self.random.sample(sorted(pool),
                                       self.random.randint(0, most)):
            body[name] = self.random.choice(pool[name])
        if self.odds(40):
            name = self.random.choice(sorted(body))
            # SGLang would tell a model that it does not have apart
            if name != "model":
                body[name] = self.random.choice(ODD)
        return body

    # ---- chats

    def part(self):
        """A part of a chat's content."""
        part = {"type": "text", "text": self.text()}
        if self.odds(8):
            part["cache_control"] = {"type": "ephemeral"}
        if self.odds(12):
            kind = self.random.choice(("input_text", "output_text"))
            part["type"] = kind
        if self.odds(30):
            part = self.random.choice((
                {"type": "refusal", "refusal": "no"}, "bare", {"text": "x"},
                {"type": "thinking", "thinking": "hm"}, {"type": "text"},
                {"type": "text", "text": None}, {"type": "x"},
                {"type": "image_url", "image_url": {"url": PICTURE}}))
        return part

    def content(self):
        """A chat's content."""
        if self.odds(3):
            return self.few(3, self.part)
        return self.text()

    def call(self):
        """A call of a tool."""
        call = {"id": self.random.choice(("call_1", "call_2")),
                "type": "function", "function": {
                    "name": self.random.choice(("f0", "f1")),
                    "arguments": self.random.choice(ARGUMENTS)}}
        if self.odds(6):
            call = {"function": dict(reversed(call["function"].items())),
                    "type": "function", "id": "call_3"}
        if self.odds(10):
            call["index"] = 0
        if self.odds(20):
            call["function"]["more"] = 1
        if self.odds(30):
            call["function"]["arguments"] = self.random.choice(ODD)
        if self.odds(30):
            del call[self.random.choice(sorted(call))]
        return call

    def message(self):
        """A message of a chat."""
        role = self.random.choice(("user",) * 6 + ("assistant",) * 5 + (
            "system", "system", "tool", "tool", "developer", "function"))
        message = {"role": role, "content": self.content()}
        if role == "assistant":
            if self.odds(3):
                message["tool_calls"] = self.few(2, self.call)
                if self.odds(2):
                    message["content"] = None
            if self.odds(4):
                name = self.random.choice(("reasoning", "reasoning_content"))
                message[name] = self.random.choice(("hm", "", None))
            if self.odds(8):
                message |= {"refusal": None, "annotations": [],
                            "audio": None, "function_call": None}
        if role == "tool":
            message["tool_call_id"] = "call_1"
        if self.odds(12):
            message["name"] = self.random.choice(("anna", "", None, 1))
        if self.odds(40):
            message[self.random.choice(("more", "task", "phase", "prefix"))] \
                = self.random.choice(("x", None))
        if self.odds(40):
            message["content"] = self.random.choice(ODD)
        if self.odds(60):
            del message[self.random.choice(sorted(message))]
        if self.odds(60):
            message["role"] = self.random.choice(("User", "System", "me"))
        return message

    def tool(self, i=0):
        """A tool of a chat."""
        function = {"name": f"f{i}", "description": "Tells.",
                    "parameters": self.random.choice(SCHEMAS)}
        if self.odds(3):
            function = dict(reversed(function.items()))
        if self.odds(4):
            function["strict"] = self.random.choice((True, False, None))
        if self.odds(5):
            function.pop(self.random.choice(("description", "parameters")))
        if self.odds(15):
            function["more"] = 1
        tool = {"type": "function", "function": function}
        if self.odds(15):
            tool["cache_control"] = {"type": "ephemeral"}
        if self.odds(40):
            function[self.random.choice(sorted(function))] = \
                self.random.choice(ODD)
        return tool

    def chat(self):
        """/v1/chat/completions"""
        body = {"model": "m", "messages": self.few(5, self.message, 1)}
        if self.odds(3):
            body["tools"] = [self.tool(i) for i in range(
                self.random.randint(0 if self.odds(5) else 1, 2))]
        return self.maybe(body, CHAT)

    # ---- Anthropic's messages

    def block(self, role):
        """A block of a message's content."""
        kinds = ["text"] * 4 + (["thinking", "tool_use"] if role == "assistant"
                                else ["tool_result"])
        kind = self.random.choice(kinds)
        block = {"type": "text", "text": self.text()}
        if kind == "thinking":
            block = {"type": kind, "thinking": self.random.choice(("hm", "")),
                     "signature": "s"}
        elif kind == "tool_use":
            block = {"type": kind, "id": "toolu_1", "name": "f0",
                     "input": self.random.choice((
                         {"city": "Århus", "n": 1.0}, {}, {"b": 1, "a": []}))}
        elif kind == "tool_result":
            block = {"type": kind, "tool_use_id": "toolu_1",
                     "content": self.random.choice((
                         "rain", "", None, [], [
                             {"type": "text", "text": "rain"},
                             {"type": "text", "text": "wind"}], [
                             {"type": "text", "text": ""}]))}
            if self.odds(4):
                block["is_error"] = True
        if self.odds(8):
            block["cache_control"] = {"type": "ephemeral"}
        if kind == "tool_use" and self.odds(4):
            block["caller"] = {"type": "direct"}
        if self.odds(30):
            block = self.random.choice((
                {"type": "redacted_thinking", "data": "x"}, {"type": "x"},
                {"type": "image", "source": {"type": "url", "url": PICTURE}},
                {"type": "text"}, {"type": "tool_use", "name": "f"},
                {"type": "tool_result", "content": "x"}))
        return block

    def turn(self):
        """A message of Anthropic's."""
        role = self.random.choice(("user",) * 5 + ("assistant",) * 5
                                  + ("system",))
        content = self.text() if self.odds(2) else \
            self.few(3, lambda: self.block(role))
        turn = {"role": role, "content": content}
        if self.odds(60):
            turn[self.random.choice(sorted(turn))] = self.random.choice(ODD)
        return turn

    def anthropic_tool(self, i):
        """A tool of Anthropic's."""
        tool = {"name": f"f{i}", "description": "Tells.",
                "input_schema": self.random.choice(SCHEMAS)}
        if self.odds(4):
            del tool["description"]
        if self.odds(6):
            tool["strict"] = self.random.choice((True, False, None))
        if self.odds(8):
            tool["type"] = self.random.choice(("custom", None,
                                               "web_search_20250305"))
        if self.odds(8):
            tool["cache_control"] = {"type": "ephemeral"}
        return tool

    def messages(self):
        """/v1/messages"""
        body = {"model": "m", "max_tokens": 2000,
                "messages": self.few(5, self.turn, 1)}
        if self.odds(3):
            body["tools"] = [self.anthropic_tool(i) for i in range(
                self.random.randint(0 if self.odds(5) else 1, 2))]
        return self.maybe(body, MESSAGES)

    # ---- OpenAI's responses

    def item(self):
        """An item of a response's input."""
        kind = self.random.choice(("user",) * 4 + ("said",) * 2 + (
            "easy", "call", "output", "reasoning", "system", "developer",
            "odd"))
        if kind in ("user", "system", "developer"):
            item = {"role": kind, "content": self.text() if self.odds(2)
                    else self.few(2, lambda: {
                        "type": "input_text", "text": self.text()}, 1)}
            if self.odds(2):
                item["type"] = "message"
        elif kind == "said":
            item = {"type": "message", "role": "assistant", "content": [
                {"type": "output_text", "text": self.text()}
                for _ in range(self.random.randint(1, 2))]}
            if self.odds(2):
                item |= {"id": "msg_1", "status": "completed"}
            if self.odds(3):
                item["content"][0] |= {"annotations": [], "logprobs": []}
        elif kind == "easy":
            item = {"role": "assistant", "content": self.text()}
        elif kind == "call":
            item = {"type": "function_call", "call_id": "c1", "name": "f0",
                    "arguments": self.random.choice(ARGUMENTS)}
            if self.odds(2):
                item |= {"id": "fc_1", "status": "completed"}
        elif kind == "output":
            item = {"type": "function_call_output", "call_id": "c1",
                    "output": self.text()}
            if self.odds(6):
                item["output"] = [{"type": "input_text", "text": "x"}]
        elif kind == "reasoning":
            item = {"type": "reasoning", "summary": [], "content": [
                {"type": "reasoning_text", "text": self.text()}
                for _ in range(self.random.randint(0, 2))]}
            if self.odds(2):
                item["summary"] = [{"type": "summary_text", "text": "sum"}]
            if self.odds(3):
                item["id"] = "rs_1"
            if self.odds(5):
                item["encrypted_content"] = self.random.choice((None, "x"))
        else:
            item = self.random.choice((
                {"type": "item_reference", "id": "x"}, {"role": "user"},
                {"type": "web_search_call", "id": "w", "status": "completed"},
                {"type": "custom_tool_call", "call_id": "c", "name": "f",
                 "input": "x"}, {"type": "message", "role": "user",
                                 "content": [{"type": "input_image",
                                              "image_url": PICTURE}]}))
        if self.odds(20):
            item["status"] = self.random.choice(("in_progress", "incomplete",
                                                 "completed", None))
        if self.odds(60):
            item[self.random.choice(sorted(item))] = self.random.choice(ODD)
        return item

    def response_tool(self, i):
        """A tool of a response."""
        tool = {"type": "function", "name": f"f{i}", "description": "Tells.",
                "parameters": self.random.choice(SCHEMAS), "strict": True}
        if self.odds(3):
            tool.pop(self.random.choice(("description", "strict",
                                         "parameters")))
        if self.odds(20):
            tool = self.random.choice((
                {"type": "web_search"}, {"type": "custom", "name": "c"},
                {"type": "file_search", "vector_store_ids": ["x"]}))
        return tool

    def responses(self):
        """/v1/responses"""
        body = {"model": "m", "input": self.text() if self.odds(6)
                else self.few(5, self.item, 1)}
        if self.odds(3):
            body["tools"] = [self.response_tool(i) for i in range(
                self.random.randint(0 if self.odds(5) else 1, 2))]
        return self.maybe(body, RESPONSES)

    def completions(self):
        """/v1/completions"""
        return self.maybe({"model": "m", "prompt": self.random.choice(
            TEXTS + ([TEXTS[0]], [TEXTS[0], TEXTS[3]], [1, 2], [[1], [2]],
                     [], None))}, COMPLETIONS)


def every_field(bodies, form, pool):
    """Each field's values, each in a body of its own that has tools or not."""
    for name in sorted(pool):
        for value in pool[name]:
            for with_tools in (False, True):
                body = {"model": "m"}
                if form in ("chat", "messages"):
                    body["messages"] = [{"role": "user", "content": "Why?"}]
                elif form == "responses":
                    body["input"] = "Why?"
                else:
                    body["prompt"] = "Why?"
                if form == "messages":
                    body["max_tokens"] = 2000
                if with_tools and form == "completions":
                    continue
                if with_tools:
                    make = {"chat": bodies.tool,
                            "messages": bodies.anthropic_tool,
                            "responses": bodies.response_tool}[form]
                    body["tools"] = [make(i) for i in (0, 1)]
                yield body | {name: value}


POOLS = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES,
         "completions": COMPLETIONS}


def made(random, form, count):
    """As many bodies of a form as texts, those by hand first."""
    bodies = Bodies(random)
    found = list(every_field(bodies, form, POOLS[form]))
    while len(found) < count:
        found.append(getattr(bodies, form)())
    return [json.dumps(body, ensure_ascii=bool(random.randrange(2)))
            for body in found[:max(count, 1)]]
