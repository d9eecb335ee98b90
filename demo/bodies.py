"""From a request's body to the prompts that an engine reads: vLLM's manner of
each form, and SGLang's own path.

A reader takes the body and the tokenizer, and returns a list of prompts, each
a list of token ids.  Mistakes raise BadRequest.
"""

import json

LIMIT = 1 << 32                 # ids are below


class BadRequest(Exception):
    """The client's mistake, with OpenAI's error type and HTTP status."""

    def __init__(self, message, param=None, status=400,
                 kind="BadRequestError"):
        super().__init__(message)
        self.body = {"error": {"message": message, "type": kind,
                               "param": param, "code": status}}
        self.status = status


def token_ids(value, field):
    """A list of token ids as the client gave it, checked."""
    if not isinstance(value, list) or not value:
        raise BadRequest(f"{field}: a list of token ids is expected", field)
    for token in value:
        if type(token) is not int or not 0 <= token < LIMIT:
            raise BadRequest(f"{field}: token ids are integers below 2^32",
                             field)
    return value


def one_or_many(value, field, read):
    """A text, a list of ids, or a list of either; `read` makes ids of a
    text."""
    if isinstance(value, str):
        value = [value]
    elif isinstance(value, list) and value and type(value[0]) is int:
        value = [value]
    if not isinstance(value, list) or not value:
        raise BadRequest(f"{field}: text, a list of token ids, or a list of "
                         "these is expected", field)
    found = [read(part) if isinstance(part, str) else token_ids(part, field)
             for part in value]
    if not all(found):
        raise BadRequest(f"{field}: it is empty", field)
    return found


def truncated(body, prompt, first=0):
    """A prompt cut as the body says, by default to its end; its `first`
    tokens, which the tokenizer has added, stay."""
    keep = body.get("truncate_prompt_tokens")
    if keep is None or keep == -1 or len(prompt) <= keep:
        return prompt
    if type(keep) is not int or keep <= first:
        raise BadRequest("truncate_prompt_tokens: an integer of at least 1, "
                         "or -1, is expected", "truncate_prompt_tokens")
    if body.get("truncation_side") == "right":
        return prompt[:keep]
    return prompt[:first] + prompt[first - keep:]


def completion(body, tokenizer):
    """/v1/completions, and a question of /tokenize for a text."""
    special = body.get("add_special_tokens", True)

    def read(text):
        return truncated(body, tokenizer.text_ids(text, special),
                         tokenizer.added if special else 0)

    prompts = one_or_many(body.get("prompt"), "prompt", read)
    return [truncated(body, prompt) for prompt in prompts]


def generate(body, tokenizer):
    """SGLang's /generate: ids before text."""
    field = "input_ids" if "input_ids" in body else "text"
    return one_or_many(body.get(field), field, tokenizer.text_ids)


def tokens_in(body, _tokenizer):
    """vLLM's /inference/v1/generate."""
    return [token_ids(body.get("token_ids"), "token_ids")]


# ------------------------------------------------------------------- chats

def text_of(content):
    """The text of a message's content; of parts one line each."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
            isinstance(part, dict)
            and part.get("type") in ("text", "input_text", "output_text")
            and isinstance(part.get("text"), str) for part in content):
        return "\n".join(part["text"] for part in content)
    raise BadRequest("messages: content must be text or a list of text parts",
                     "messages")


def message_of(message):
    """One message, as the template gets it."""
    if not isinstance(message, dict) \
            or not isinstance(message.get("role"), str):
        raise BadRequest("messages: each must be an object with a role",
                         "messages")
    found = {name: message[name] for name in ("role", "name", "tool_call_id")
             if message.get(name) is not None}
    if found["role"] == "developer":
        found["role"] = "system"
    found["content"] = text_of(message.get("content"))
    thought = message.get("reasoning") or message.get("reasoning_content")
    if thought:
        found["reasoning"] = found["reasoning_content"] = thought
    calls = message.get("tool_calls") or []
    if calls:
        found["tool_calls"] = [{**call, "function": {
            **call["function"], "arguments": arguments_of(
                call["function"].get("arguments"))}} for call in calls]
    return found


def arguments_of(text):
    """A call's arguments: an object, as the template wants it."""
    try:
        return json.loads(text) if isinstance(text, str) and text else (
            text or {})
    except ValueError as err:
        raise BadRequest(f"tool_calls: arguments are no JSON: {err}",
                         "messages") from err


def tool_of(tool):
    """A tool, as the template gets it."""
    return {"type": "function", "function": {
        name: value for name, value in {
            **{field: tool["function"].get(field)
               for field in ("name", "description", "parameters")},
            **{field: tool["function"][field] for field in ("strict",)
               if tool["function"].get(field) is not None}}.items()}}


def conversation(body, tokenizer, special=False):
    """The prompt of messages, tools and the template's arguments."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages: a non-empty list is expected", "messages")
    tools = body.get("tools")
    if tools is not None and (not isinstance(tools, list) or not tools):
        raise BadRequest("tools: a non-empty list is expected", "tools")
    effort = body.get("reasoning_effort")
    arguments = dict(body.get("chat_template_kwargs") or {})
    if effort is not None:
        arguments.setdefault("enable_thinking", effort != "none")
    for name, value in (
            ("add_generation_prompt",
             body.get("add_generation_prompt", True)),
            ("continue_final_message",
             body.get("continue_final_message", False)),
            ("documents", body.get("documents")),
            ("reasoning_effort", effort)):
        if value is not None:
            arguments[name] = value
    return tokenizer.chat_ids(
        [message_of(message) for message in messages],
        [tool_of(tool) for tool in tools] if tools else None,
        arguments, special)


def chat(body, tokenizer):
    """/v1/chat/completions, and a question of /tokenize for a chat."""
    given = (body.get("kv_transfer_params") or {}).get("prompt_token_ids")
    if given and not body.get("echo"):
        return [token_ids(given, "kv_transfer_params")]
    return [truncated(body, conversation(
        body, tokenizer, body.get("add_special_tokens", False)))]


# ---------------------------------------------------- Anthropic's messages

BILLING = "x-anthropic-billing-header"      # such blocks are left out


def joined(content):
    """The text of system blocks."""
    blocks = content if isinstance(content, list) else [
        {"type": "text", "text": content or ""}]
    return "".join(block["text"] for block in blocks
                   if block.get("type") == "text" and block.get("text")
                   and not block["text"].startswith(BILLING))


def turn(message):
    """One message of Anthropic's as messages of a chat; results of tools
    come first."""
    role, content = message.get("role"), message.get("content")
    if role == "system":
        text = joined(content)
        return [{"role": role, "content": text}] if text else []
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    found, parts, calls, thoughts = [], [], [], []
    for block in content or []:
        kind = block.get("type")
        if kind == "text" and block.get("text"):
            parts.append({"type": "text", "text": block["text"]})
        elif kind == "thinking":
            thoughts.append(block.get("thinking") or "")
        elif kind == "tool_use":
            calls.append({"id": block.get("id"), "type": "function",
                          "function": {"name": block.get("name"),
                                       "arguments": block.get("input")}})
        elif kind == "tool_result":
            found.append({
                "role": "tool", "tool_call_id": block.get("tool_use_id"),
                "content": block.get("content")})
        elif kind != "redacted_thinking":
            raise BadRequest(f"messages: blocks of the type {kind} are not "
                             "supported", "messages")
    last = {"role": role}
    if parts:
        last["content"] = parts
    if thoughts:
        last["reasoning"] = "".join(thoughts)
    if calls:
        last["tool_calls"] = calls
    return found + ([last] if role != "user" or parts else [])


def count(body, tokenizer):
    """/v1/messages/count_tokens"""
    return anthropic(body, tokenizer, True)


def anthropic(body, tokenizer, counting=False):
    """/v1/messages, as vLLM has it."""
    return [conversation(anthropic_chat(body, counting), tokenizer)]


def anthropic_chat(body, counting, more=()):
    """Anthropic's body as that of a chat; tools have `more` fields."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages: a non-empty list is expected", "messages")
    if body.get("max_tokens") is None and not counting:
        raise BadRequest("max_tokens: Field required", "max_tokens")
    system = joined(body.get("system"))
    turns = [{"role": "system", "content": system}] if system else []
    for message in messages:
        turns += turn(message)
    asked = {"messages": turns, "chat_template_kwargs":
             body.get("chat_template_kwargs")}
    if body.get("tools"):
        asked["tools"] = [{"function": {
            "name": tool.get("name"), "description": tool.get("description"),
            "parameters": tool.get("input_schema"), **dict(more)}}
            for tool in body["tools"]]
    effort = (body.get("output_config") or {}).get("effort")
    if (body.get("thinking") or {}).get("type") == "disabled":
        effort = "none"
    if effort:
        asked["reasoning_effort"] = effort
    return asked


# ------------------------------------------------------ OpenAI's responses

def items(value):
    """The messages of `input`; what an assistant thought, said and called
    is one message."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    found = []
    for item in value or []:
        kind = item.get("type", "message")
        before = found[-1] if found and found[-1]["role"] == "assistant" \
            else None
        if kind == "function_call":
            call = {"type": "function", "function": {
                "name": item.get("name"), "arguments": item.get("arguments")}}
            if before:
                before.setdefault("tool_calls", []).append(call)
            else:
                found.append({"role": "assistant", "tool_calls": [call]})
        elif kind == "function_call_output":
            found.append({"role": "tool", "content": item.get("output"),
                          "tool_call_id": item.get("call_id")})
        elif kind == "reasoning":
            found.append({"role": "assistant", "reasoning": "".join(
                part.get("text", "") for part in item.get("content") or [])})
        elif (item.get("role") == "assistant" and before
              and isinstance(item.get("content"), list)
              and "content" not in before):
            before["content"] = item["content"]
        else:
            found.append({"role": item.get("role"),
                          "content": item.get("content")})
    return found


def response(body, tokenizer):
    """/v1/responses, as vLLM has it: with the BOS that a text has, although
    the template has one, too."""
    return [conversation(response_chat(body), tokenizer, True)]


def response_chat(body):
    """The body of responses as that of a chat."""
    messages = [{"role": "system", "content": body["instructions"]}] \
        if body.get("instructions") else []
    given = body.get("input")
    asked = {"messages": messages + items(given), "chat_template_kwargs":
             body.get("chat_template_kwargs")}
    if body.get("tools"):
        asked["tools"] = [{"function": tool} for tool in body["tools"]
                          if tool.get("type") == "function"]
    effort = (body.get("reasoning") or {}).get("effort")
    if effort:
        asked["reasoning_effort"] = effort
    if isinstance(given, list) and given and given[-1].get("status") in (
            "in_progress", "incomplete"):
        asked |= {"add_generation_prompt": False,
                  "continue_final_message": True}
    return asked
