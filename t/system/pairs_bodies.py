"""Requests for the tests in pairs: ordinary ones of all forms, and a corpus of
hostile ones.  Each is (path, body in bytes, headers).
"""

import json

COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
PATHS = (COMPLETIONS, CHATS, MESSAGES, RESPONSES, "/generate",
         "/inference/v1/generate", "/v1/embeddings", "/v1/other")
SESSIONS = 3                    # few, so that their requests meet
PROMPTS = 6

SURROGATES = '"a\\ud800b"', '"\\udc00"', '"\\ud83d\\ude00"', '"\\u0000"'
ODD = ["null", "true", "0", "-1", "1e999", "-0.0", "18446744073709551616",
       "1" * 400, '""', '"x"', "[]", "{}", "[[]]", "[null]", "[[1,2],[3]]",
       "[[1,[2]]]", "[1,2.5]", "[-1]", "[4294967296]", '[1,"a"]', "[{}]",
       '[{"role":"user"}]', '[{"role":null,"content":null}]',
       '[{"role":"user","content":[{"type":"text"}]}]',
       '[{"content":"a","role":"user"},{"role":"user","role":"x"}]',
       "[" * 70 + "]" * 70, '{"a":' * 70 + "1" + "}" * 70, *SURROGATES]
FIELDS = ["model", "prompt", "messages", "input", "input_ids", "text",
          "token_ids", "system", "tools", "instructions", "stream", "n",
          "max_tokens", "priority", "cache_salt", "session_id",
          "prompt_cache_key", "chat_template_kwargs", "stream_options",
          "truncate_prompt_tokens", "reasoning", "previous_response_id",
          "add_generation_prompt", "documents", "logprobs", "user",
          "sampling_params", "kv_transfer_params", "bootstrap_room",
          "lora_path", "response_format", "tool_choice"]

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
CALL = {"id": "c1", "type": "function",
        "function": {"name": "f", "arguments": '{"a":1}'}}
TOOL = {"type": "function", "function": {
    "name": "f", "description": "d\u00e9", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}}}}}

HEADERS = [
    {"x-session-id": "s" * 4000}, {"x-session-id": "\xe9\xff"},
    {"x-session-id": ""}, {"x-parent-session-id": "0"},
    {"x-claude-code-agent-id": "a", "x-claude-code-session-id": "0"},
    {"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-01"},
    {"traceparent": "zz"}, {"tracestate": "a=b," * 200},
    {"content-encoding": "gzip"}, {"content-type": "text/plain; charset=x"},
    {"x-data-parallel-rank": "-1"}, {"x-kv-worker": "nobody"},
    {"x-kv-worker": "w1,w1,w2"}, {"x-kv-worker": ","},
    {"x-prefiller-host-port": "127.0.0.1:1"}, {"x-request-id": "r" * 300},
    {"x-session-final": "1"}]


def _json(path, fields, headers):
    return path, json.dumps(fields).encode(), headers


class Ordinary:
    """Requests as clients send them."""

    def __init__(self, rng):
        self.rng = rng
        self.prompts = [[rng.randrange(50000)
                         for _ in range(16 * rng.randrange(2, 40) + 5)]
                        for _ in range(PROMPTS)]
        self._chats = [[] for _ in range(SESSIONS)]
        self._last = None

    def next(self):
        """A request; one of four is the one before it again."""
        if not self._last or self.rng.random() > 0.25:
            self._last = getattr(self, "_" + self.rng.choice((
                "ids", "ids", "text", "text", "chat", "chat", "chat",
                "messages", "responses", "generate", "tokens", "short")))()
        return self._last

    def words(self, n):
        """So many words."""
        return " ".join(str(self.rng.randrange(1000)) for _ in range(n))

    def _common(self):
        common = {"model": "m", "max_tokens": 2,
                  "stream": self.rng.random() < 0.4}
        if self.rng.random() < 0.1:
            common["priority"] = self.rng.randrange(-2, 3)
        return common

    def _headers(self):
        headers = {}
        if self.rng.random() < 0.6:
            headers["x-session-id"] = str(self.rng.randrange(SESSIONS))
            if self.rng.random() < 0.3:
                headers["x-session-final"] = "1"
        return headers

    def _ids(self):
        prompt = self.rng.choice(self.prompts)
        prompt = prompt[:self.rng.randrange(1, len(prompt) + 1)]
        many = self.rng.random() < 0.1
        return _json(COMPLETIONS, {
            **self._common(), "prompt": [prompt, prompt] if many else prompt},
            self._headers())

    def _text(self):
        text = "The same beginning. " * 60 + self.words(
            self.rng.choice((0, 1, 200)))
        return _json(COMPLETIONS, {**self._common(), "prompt": text},
                     self._headers())

    def _short(self):
        return _json(COMPLETIONS, {**self._common(), "prompt": "hi"},
                     self._headers())

    def _turns(self):
        """A chat that goes on, or begins again; its number is the session's.
        """
        chat = self._chats[self.rng.randrange(SESSIONS)]
        if len(chat) > 12:
            del chat[:]
        if not chat:
            chat.append({"role": "user", "content": self.words(150)})
        else:
            chat += [{"role": "assistant", "content": self.words(20)},
                     {"role": "user", "content": self.words(20)}]
        return list(chat)

    def _chat(self):
        fields = {**self._common(), "messages": [
            {"role": "system", "content": "You are here."}, *self._turns()]}
        if self.rng.random() < 0.1:
            fields["tools"] = [TOOL]
        if self.rng.random() < 0.1:
            fields["n"] = 3
        return _json(CHATS, fields, self._headers())

    def _messages(self):
        return _json(MESSAGES, {**self._common(), "system": "You are here.",
                                "messages": self._turns()}, self._headers())

    def _responses(self):
        said = self._turns()
        return _json(RESPONSES, {
            **self._common(), "input": said if self.rng.random() < 0.7
            else said[0]["content"]}, self._headers())

    def _generate(self):
        fields = ({"input_ids": self.rng.choice(self.prompts)}
                  if self.rng.random() < 0.5 else {"text": self.words(100)})
        return _json("/generate", {**fields, "stream": False},
                     self._headers())

    def _tokens(self):
        return _json("/inference/v1/generate", {
            "token_ids": self.rng.choice(self.prompts)}, self._headers())


def hostile(rng, count):
    """So many requests that are wrong, or odd: each time others of each kind,
    in the end all kinds."""
    kinds = [_odd_field, _odd_field, _odd_field, _odd_message, _cut, _flipped,
             _raw, _long, _known]
    for number in range(count):
        path, body, headers = kinds[number % len(kinds)](rng)
        if rng.random() < 0.5:
            headers = {**headers, **rng.choice(HEADERS)}
        yield path, body, headers


def _whole(rng):
    """A good body, as text, without its last bracket."""
    path = rng.choice(PATHS[:6])
    fields = {
        COMPLETIONS: {"prompt": list(range(rng.randrange(80)))},
        CHATS: {"messages": [{"role": "user", "content": "Hi. " * 50}]},
        MESSAGES: {"messages": [{"role": "user", "content": "Hi. " * 50}]},
        RESPONSES: {"input": "Hi. " * 50},
        "/generate": {"text": "Hi. " * 50},
        "/inference/v1/generate": {"token_ids": list(range(64))}}[path]
    return path, json.dumps({"model": "m", **fields})[:-1]


def _odd_field(rng):
    """Fields more, that are there already, or not."""
    path, body = _whole(rng)
    for _ in range(rng.randrange(1, 4)):
        body += f',"{rng.choice(FIELDS)}":{rng.choice(ODD)}'
    return path, body.encode() + b"}", {}


def _odd_message(rng):
    """A conversation with something odd in it."""
    path = rng.choice((CHATS, MESSAGES, RESPONSES))
    odd = [
        {"role": rng.choice(("system", "tool", "developer", "x", "", 1)),
         "content": rng.choice(("", None, 1, [], [[]], "a"))},
        {"role": "user", "content": [IMAGE, {"type": "text", "text": "a"}]},
        {"role": "user", "content": [{"type": "input_audio"}, None, 1]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "tool_calls": [{"function": {
            "arguments": "{cut"}}]},
        {"role": "tool", "tool_call_id": 1, "content": [[{}]]},
        {"type": "function_call", "name": "f", "arguments": "[", "call_id": 1},
        {"type": "function_call_output", "output": {"a": None}},
        {"type": "reasoning", "summary": [], "content": "x"},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": "b"},
            {"type": "thinking", "thinking": "c"}]},
        {"role": "system", "content": "x" + " " * 3000 + "y"},
        {"role": "user", "content": " " * 3000 + "x"}]
    said = ([{"role": "user", "content": "One. " * 40}]
            + rng.sample(odd, rng.randrange(1, 4))
            + [{"role": "user", "content": "Two."}])
    fields = {"model": "m", "input" if path == RESPONSES else "messages": said}
    if rng.random() < 0.4:
        fields["tools"] = rng.choice(([TOOL], [], [{}], [None], {}, [TOOL] * 9))
    if rng.random() < 0.3:
        fields["system"] = rng.choice((None, "", [], [{"text": 1}]))
    return path, json.dumps(fields).encode(), {}


def _cut(rng):
    path, body = _whole(rng)
    return path, body[:rng.randrange(len(body))].encode(), {}


def _flipped(rng):
    path, body = _whole(rng)
    data = bytearray(body.encode() + b"}")
    for _ in range(rng.randrange(1, 5)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return path, bytes(data), {}


def _raw(rng):
    """No JSON, or hardly."""
    return rng.choice(PATHS), rng.choice((
        b"", b"{}", b"[]", b"null", b'"', b"\xef\xbb\xbf{}", b"\0" * 100,
        b'{"prompt":"\xed\xa0\x80"}', b'{"prompt":"\xff"}', b"[" * 10000,
        b'{"a":' * 5000, b'{"":1,"":2}', b'{"\\u0070rompt":[1,2,3]}',
        b" " * 5000 + b"{}", b'{"prompt":[1,2,3]} trailing')), {}


def _long(rng):
    """Much of something."""
    path, body = _whole(rng)
    return path, (body + rng.choice((
        ',"session_id":"' + "s" * 20000 + '"',
        ',"prompt_cache_key":"' + "\\u00e9" * 5000 + '"',
        "".join(f',"f{n}":{n}' for n in range(1000)),
        ',"prompt":[' + "7," * 40000 + "7]",
        ',"prompt":"' + "word " * 20000 + '"',
        ',"model":"' + "m" * 3000 + '"',
        ',"n":' + "9" * 30))).encode() + b"}", {}


def _known(rng):
    """What went wrong once: sessions with ids and with none of them, and a
    session's end."""
    session = {"x-session-id": str(rng.randrange(SESSIONS))}
    if rng.random() < 0.5:
        session["x-session-final"] = "1"
    return COMPLETIONS, rng.choice((
        b'{"prompt":"hi"}', b'{"prompt":[' + b"1," * 99 + b"1]}")), session
