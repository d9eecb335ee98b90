"""The bodies of answers in each dialect: whole, or as server-sent events, with
the usage where that dialect has it.

An answer is made of the requests of all its choices: `each` choices for one
prompt, then those of the next prompt.
"""

import json
import time
import uuid


def sse(data, event=None):
    """One server-sent event."""
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + json.dumps(data).encode() + b"\n\n"


class Answer:
    """What is the same in all dialects."""

    prefix = ""                     # of ids

    def __init__(self, engine, body, model, requests, each):
        """`engine`: vllm or sglang."""
        self.engine, self.body, self.model = engine, body, model
        self.requests, self.each = requests, each
        self.done = [0] * len(requests)         # tokens of each choice
        self.id = self.prefix + uuid.uuid4().hex
        self.created = int(time.time())

    def figures(self):
        """Tokens of the prompts, of these cached, and answered.  vLLM says
        of one prompt only how much of it was cached: the last one, and in
        streams the first one."""
        prompts = self.requests[::self.each]
        cached = [prompt.cached_tokens for prompt in prompts]
        return (sum(prompt.prompt_tokens for prompt in prompts),
                sum(cached) if self.engine == "sglang" else
                cached[0 if self.body.get("stream") else -1],
                sum(self.done))

    def finish(self, index):
        """Why a choice ends; None while it does not."""
        request = self.requests[index]
        return (request.finish_reason
                if self.done[index] == request.answer_tokens else None)

    def opening(self):
        """Events before the first text."""
        return b""

    def closing(self):
        """Events behind the last text."""
        return b""


class OpenAI(Answer):
    """Completions and chats."""

    object = chunk_object = "text_completion"

    def usage(self):
        """OpenAI's usage object."""
        prompt, cached, answered = self.figures()
        return {"prompt_tokens": prompt, "total_tokens": prompt + answered,
                "completion_tokens": answered,
                "prompt_tokens_details": {"cached_tokens": cached}}

    def head(self, kind):
        """What every body begins with."""
        return {"id": self.id, "object": kind, "created": self.created,
                "model": self.model}

    def choice(self, index, text):
        """A choice of a whole answer."""
        return self.part(index, text)

    def part(self, index, text):
        """A choice of a chunk."""
        return {"index": index, "text": text, "logprobs": None,
                "finish_reason": self.finish(index)}

    def whole(self, texts):
        """The whole answer."""
        return {**self.head(self.object), "choices": [
            self.choice(index, text) for index, text in enumerate(texts)],
            "usage": self.usage()}

    def chunk(self, index, pieces):
        """More text of a choice."""
        more = self.body.get("stream_options") or {}
        usage = self.usage()
        del usage["prompt_tokens_details"]
        return sse({**self.head(self.chunk_object), "choices": [
            self.part(index, "".join(pieces))]} | (
                {"usage": usage} if more.get("continuous_usage_stats")
                else {}))

    def closing(self):
        events = b""
        if (self.body.get("stream_options") or {}).get("include_usage"):
            events = sse({**self.head(self.chunk_object), "choices": [],
                          "usage": self.usage()})
        return events + b"data: [DONE]\n\n"


class Completion(OpenAI):
    """/v1/completions"""

    prefix = "cmpl-"


class Chat(OpenAI):
    """/v1/chat/completions"""

    prefix = "chatcmpl-"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self):
        return b"".join(sse({**self.head(self.chunk_object), "choices": [{
            "index": index, "delta": {"role": "assistant", "content": ""},
            "logprobs": None, "finish_reason": None}]})
            for index in range(len(self.requests)))

    def choice(self, index, text):
        return {"index": index,
                "message": {"role": "assistant", "content": text},
                "logprobs": None, "finish_reason": self.finish(index)}

    def part(self, index, text):
        return {"index": index, "delta": {"content": text}, "logprobs": None,
                "finish_reason": self.finish(index)}


class TokensOut(OpenAI):
    """vLLM's /inference/v1/generate"""

    prefix = "generate-tokens-"

    def head(self, kind):
        return {"request_id": self.id, "model": self.model,
                "created": self.created}

    def part(self, index, text):
        return {"index": index, "token_ids": self.requests[index].ids(text),
                "finish_reason": self.finish(index), "logprobs": None}


class Messages(Answer):
    """/v1/messages"""

    prefix = "msg_"
    reasons = {"length": "max_tokens", "stop": "end_turn", None: None}

    def usage(self):
        """Anthropic's usage object."""
        prompt, cached, answered = self.figures()
        return {"input_tokens": prompt - cached, "output_tokens": answered,
                "cache_read_input_tokens": cached} | (
                    {"cache_creation_input_tokens": 0}
                    if self.engine == "vllm" else {})

    def message(self, content):
        """The message object."""
        return {"id": self.id, "type": "message", "role": "assistant",
                "content": content, "model": self.model}

    def whole(self, texts):
        """The whole answer."""
        return {**self.message([{"type": "text", "text": texts[0]}]),
                "stop_reason": self.reasons[self.finish(0)],
                "usage": self.usage()}

    def opening(self):
        """vLLM does not say yet what was cached, SGLang says it here only."""
        usage = self.usage()
        if self.engine == "vllm":
            usage = {"input_tokens": self.figures()[0], "output_tokens": 0}
        return (sse({"type": "message_start", "message": {
                    **self.message([]), "stop_reason": None,
                    "usage": usage}}, "message_start")
                + sse({"type": "content_block_start", "index": 0,
                       "content_block": {"type": "text", "text": ""}},
                      "content_block_start"))

    def chunk(self, _index, pieces):
        """More text."""
        return sse({"type": "content_block_delta", "index": 0,
                    "delta": {"type": "text_delta",
                              "text": "".join(pieces)}},
                   "content_block_delta")

    def closing(self):
        usage = self.usage()
        if self.engine == "sglang":
            usage = {"output_tokens": usage["output_tokens"]}
        return (sse({"type": "content_block_stop", "index": 0},
                    "content_block_stop")
                + sse({"type": "message_delta", "delta": {
                    "stop_reason": self.reasons[self.finish(0)],
                    "stop_sequence": None}, "usage": usage}, "message_delta")
                + sse({"type": "message_stop"}, "message_stop"))


class Responses(Answer):
    """/v1/responses"""

    prefix = "resp_"

    def __init__(self, *args):
        super().__init__(*args)
        self.item = "msg_" + uuid.uuid4().hex
        self.sent, self.text = 0, ""

    def usage(self):
        """The usage object of responses."""
        prompt, cached, answered = self.figures()
        return {"input_tokens": prompt,
                "input_tokens_details": {"cached_tokens": cached,
                                         "cache_write_tokens": 0},
                "output_tokens": answered,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": prompt + answered}

    def message(self, text, status="completed"):
        """The one item of the output."""
        return {"id": self.item, "type": "message", "role": "assistant",
                "status": status, "content": [
                    {"type": "output_text", "text": text, "annotations": []}]
                if status == "completed" else []}

    def response(self, output, status):
        """The response object."""
        ended = status != "in_progress"
        return {"id": self.id, "object": "response", "output": output,
                "created_at": self.created, "model": self.model,
                "instructions": self.body.get("instructions"),
                "previous_response_id": self.body.get("previous_response_id"),
                "status": status, "tools": self.body.get("tools") or [],
                "tool_choice": self.body.get("tool_choice") or "auto",
                "parallel_tool_calls": True, "error": None, "metadata": None,
                "incomplete_details": {"reason": "max_output_tokens"}
                if status == "incomplete" else None,
                "usage": self.usage() if ended else None}

    def whole(self, texts):
        """The whole answer."""
        return self.response(
            [self.message(texts[0])], "incomplete"
            if self.finish(0) == "length" else "completed")

    def event(self, kind, **fields):
        """The next event of the stream."""
        self.sent += 1
        return sse({"type": f"response.{kind}",
                    "sequence_number": self.sent - 1, **fields},
                   f"response.{kind}")

    def place(self, **fields):
        """Where text belongs to."""
        return {"item_id": self.item, "output_index": 0, "content_index": 0,
                **fields}

    def opening(self):
        part = {"type": "output_text", "text": "", "annotations": []}
        return b"".join([
            self.event("created", response=self.response([], "in_progress")),
            self.event("in_progress",
                       response=self.response([], "in_progress")),
            self.event("output_item.added", output_index=0,
                       item=self.message("", "in_progress")),
            self.event("content_part.added", **self.place(part=part))])

    def chunk(self, _index, pieces):
        """More text."""
        self.text += "".join(pieces)
        return self.event("output_text.delta", **self.place(
            delta="".join(pieces), logprobs=[]))

    def closing(self):
        whole = self.whole([self.text])
        item = whole["output"][0]
        return b"".join([
            self.event("output_text.done", **self.place(
                text=self.text, logprobs=[])),
            self.event("content_part.done", **self.place(
                part=item["content"][0])),
            self.event("output_item.done", output_index=0, item=item),
            self.event("completed", response=whole)])


class Generate(Answer):
    """SGLang's /generate: each choice has its own figures, and a chunk all
    text so far."""

    def __init__(self, *args):
        super().__init__(*args)
        self.texts = [""] * len(self.requests)

    def part(self, index, text):
        """What is said of a choice."""
        request, reason = self.requests[index], self.finish(index)
        if reason == "length":
            reason = {"type": reason, "length": request.answer_tokens}
        elif reason:
            reason = {"type": reason}
        return {"text": text, "output_ids": request.ids(text),
                "meta_info": {
                "id": f"{self.id}-{index}", "finish_reason": reason,
                "prompt_tokens": request.prompt_tokens,
                "completion_tokens": self.done[index],
                "cached_tokens": request.cached_tokens}}

    def whole(self, texts):
        """The whole answer; a list unless it is one choice of one prompt."""
        parts = [self.part(index, text) for index, text in enumerate(texts)]
        given = self.body.get("input_ids") or self.body.get("text")
        many = len(parts) > 1 or (isinstance(given, list)
                                  and not isinstance(given[0], int))
        return parts if many else parts[0]

    def chunk(self, index, pieces):
        """More text of a choice."""
        self.texts[index] += "".join(pieces)
        return sse({**self.part(index, self.texts[index]), "index": index})

    def closing(self):
        return b"data: [DONE]\n\n"
