"""What SGLang reads of chats, messages and responses otherwise than vLLM."""

import bodies
from bodies import BadRequest


def spaced(content):
    """The text of a message's content, parts with a blank between them."""
    if isinstance(content, list):
        return " ".join(bodies.text_of([part]) for part in content)
    return bodies.text_of(content)


def message_of(message):
    """One message, as the template gets it."""
    found = bodies.message_of({**message, "content": None, "name": None,
                               "reasoning": None})
    return {**found, "role": message["role"],
            "content": spaced(message.get("content"))}


def conversation(body, tokenizer):
    """The prompt of messages, tools and the template's arguments.  An
    assistant's message at the end is the user's, unless it goes on."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("Messages cannot be empty.")
    messages = [message_of(message) for message in messages]
    goes_on = bool(body.get("continue_final_message"))
    if messages[-1]["role"] == "assistant" and not goes_on:
        messages[-1] = {"role": "user", "content": messages[-1]["content"]}
    chosen, tools = body.get("tool_choice"), body.get("tools") or []
    if chosen == "none":
        tools = []
    elif isinstance(chosen, dict):
        tools = [tool for tool in tools if tool["function"]["name"]
                 == chosen["function"]["name"]]
    effort, arguments = body.get("reasoning_effort"), {}
    if effort is not None:
        arguments = {"reasoning_effort": effort,
                     "enable_thinking": effort != "none"}
    return tokenizer.chat_ids(
        messages,
        [{**bodies.tool_of(tool), "defer_loading": None} for tool in tools]
        or None,
        arguments | (body.get("chat_template_kwargs") or {}) | {
            "add_generation_prompt": not goes_on,
            "continue_final_message": goes_on}, False)


def chat(body, tokenizer):
    """/v1/chat/completions, and a question of /tokenize for a chat."""
    if body.get("input_ids"):
        return [bodies.token_ids(body["input_ids"], "input_ids")]
    return [conversation(body, tokenizer)]


def completion(body, tokenizer):
    """/v1/completions: neither truncation nor add_special_tokens."""
    return bodies.completion({"prompt": body.get("prompt")}, tokenizer)


def anthropic(body, tokenizer, counting=False):
    """/v1/messages"""
    if (body.get("thinking") or {}).get("type", "disabled") != "disabled":
        raise BadRequest("Anthropic thinking is not supported for models "
                         "without a reasoning parser")
    system = body.get("system")
    if isinstance(system, list):
        system = "\n".join(block["text"] for block in system)
    turns = [{"role": "system", "content": system}] if system else []
    asked = bodies.anthropic_chat(
        {name: value for name, value in body.items()
         if name not in ("system", "thinking", "chat_template_kwargs")},
        counting, {"strict": False})
    for message in asked["messages"]:
        if isinstance(message.get("content"), list):
            message["content"] = spaced(message["content"])
    asked["messages"] = turns + asked["messages"]
    chosen = body.get("tool_choice") or {}
    if chosen.get("type") == "tool":
        asked["tool_choice"] = {"function": {"name": chosen["name"]}}
    elif chosen.get("type") == "none":
        asked["tool_choice"] = "none"
    return [conversation(asked, tokenizer)]


def count(body, tokenizer):
    """/v1/messages/count_tokens"""
    return anthropic(body, tokenizer, True)


def response(body, tokenizer):
    """/v1/responses"""
    asked = bodies.response_chat(body)
    for message in asked["messages"]:
        if message["role"] == "developer":
            message["role"] = "system"
            message["content"] = ("Developer instructions:\n"
                                  + spaced(message["content"]))
        if message.get("reasoning"):
            message["reasoning_content"] = message.pop("reasoning")
    for name in ("add_generation_prompt", "continue_final_message"):
        asked.pop(name, None)
    if body.get("tool_choice") == "none":
        asked["tool_choice"] = "none"
    return [conversation(asked, tokenizer)]
