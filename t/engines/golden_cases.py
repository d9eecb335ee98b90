"""The golden requests: one of each form, and of each field that changes what
the engine reads.
"""

import json

COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
COUNT, GENERATE = "/v1/messages/count_tokens", "/generate"
VLLM_GENERATE = "/inference/v1/generate"
MODEL, ADAPTERS = "golden", ("sql", "chat")
PREVIOUS = "@previous@"         # the id of the response before

SYSTEM = (
    "You are the assistant of a harbour master. The harbour master keeps a "
    "list of all ships that lie at the quay, of what they carry, and of the "
    "tide with which they want to leave. Answer briefly.")
QUESTION = (
    "Which ship has wool, which has salt, and which of these leaves with the "
    "tide of this morning? Think before you answer.")
SAID = "The ship with wool leaves in the morning, the one with salt later."
UNICODE = "Grüße aus Århus, 東京 😀 \u2028 \"quoted\"\\ \t end"
IDS = [7 + (i * i * 31 + i) % 480 for i in range(100)]
MORE = IDS[:70] + [9, 8, 7]
PICTURE = ("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwC"
           "AAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=")

WEATHER = {
    "name": "weather", "description": "Tells the weather of a city.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "its name"},
        "days": {"type": "integer", "minimum": 1}}, "required": ["city"]}}
TIDE = {"name": "tide", "description": "Tells the next tide.",
        "parameters": {"type": "object", "properties": {}}}
SYSTEM_MESSAGE = {"role": "system", "content": SYSTEM}
USER = {"role": "user", "content": QUESTION}
CALL = {"id": "call_1", "type": "function", "function": {
    "name": "weather", "arguments": '{"city": "Århus",  "days": 2}'}}


class Case:
    """A request, and for which engines it is."""

    def __init__(self, name, path, body, engines=("vllm", "sglang"), *,
                 before=None, method="POST"):
        self.name, self.path, self.method = name, path, method
        self.body = body if body is None or isinstance(body, str) \
            else json.dumps(body, ensure_ascii=False)
        self.engines = engines
        self.before = before            # a body for RESPONSES


VLLM, SGLANG = ("vllm",), ("sglang",)


def function(tool, **more):
    """A tool, as OpenAI's chats have it."""
    return {"type": "function", "function": {**tool, **more}}


def anthropic_tool(tool):
    """A tool, as Anthropic's messages have it."""
    return {"name": tool["name"], "description": tool["description"],
            "input_schema": tool["parameters"]}


def completions():
    """/v1/completions"""
    def case(name, engines=VLLM + SGLANG, **fields):
        return Case(f"completions: {name}", COMPLETIONS, {
            "model": MODEL, "max_tokens": 2, "temperature": 0, **fields},
            engines)

    yield case("text", prompt=SYSTEM)
    yield case("text, special tokens in it",
               prompt="<|im_start|>user\n" + SYSTEM + "<|im_end|>")
    yield case("text, beyond ASCII", prompt=UNICODE + SYSTEM)
    yield case("text, add_special_tokens false", prompt=SYSTEM,
               add_special_tokens=False)
    yield case("texts", prompt=[SYSTEM, QUESTION, SAID])
    yield case("one text in a list", prompt=[SYSTEM])
    yield case("ids", prompt=IDS)
    yield case("lists of ids", prompt=[IDS, MORE])
    yield case("one list of ids in a list", prompt=[IDS])
    yield case("ids, streamed", prompt=IDS, stream=True,
               stream_options={"include_usage": True})
    yield case("ids, streamed without usage", prompt=IDS, stream=True)
    yield case("ids, streamed, usage in every chunk", prompt=IDS, stream=True,
               stream_options={"include_usage": True,
                               "continuous_usage_stats": True})
    yield case("lists of ids, streamed", prompt=[IDS, MORE], stream=True,
               stream_options={"include_usage": True})
    yield case("n", prompt=IDS, n=3, temperature=1)
    yield case("n, of several texts", prompt=[SYSTEM, QUESTION], n=2,
               temperature=1)
    yield case("best_of", prompt=IDS, best_of=3, temperature=1)
    yield case("beam search", VLLM, prompt=IDS, use_beam_search=True, n=2)
    yield case("cache_salt", prompt=IDS, cache_salt="tenant-a")
    yield case("extra_key", prompt=IDS, extra_key="tenant-b")
    yield case("cache_salt and extra_key", SGLANG, prompt=IDS,
               cache_salt="tenant-a", extra_key="tenant-b")
    yield case("several cache salts", SGLANG, prompt=[IDS, MORE],
               cache_salt=["tenant-a", "tenant-b"])
    yield case("adapter by model", VLLM, prompt=IDS, model="sql")
    yield case("adapter and salt of one name", VLLM, prompt=IDS, model="sql",
               cache_salt="sql")
    yield case("adapter by model, base:adapter", SGLANG, prompt=IDS,
               model=f"{MODEL}:sql")
    yield case("adapter by lora_path", SGLANG, prompt=IDS, lora_path="sql")
    yield case("adapter by model and by lora_path", SGLANG, prompt=IDS,
               model=f"{MODEL}:sql", lora_path="chat")
    yield case("truncated ids", prompt=IDS, truncate_prompt_tokens=40)
    yield case("truncated ids, the left side stays", VLLM, prompt=IDS,
               truncate_prompt_tokens=40, truncation_side="right")
    yield case("truncated to the model's length", VLLM, prompt=IDS,
               truncate_prompt_tokens=-1)
    yield case("truncated text", prompt=SYSTEM, truncate_prompt_tokens=40)
    yield case("prompt_logprobs", VLLM, prompt=IDS, prompt_logprobs=1)
    yield case("echo", prompt=IDS, echo=True)
    yield case("echo of a text", prompt=SYSTEM, echo=True)
    yield case("echo and logprobs", prompt=SYSTEM, echo=True, logprobs=1)
    yield case("suffix", prompt=SYSTEM, suffix=SAID)
    yield case("return_token_ids", VLLM, prompt=SYSTEM, return_token_ids=True)
    yield case("an id too large", VLLM, prompt=[1, 2, 600])
    yield case("no prompt")
    yield case("an empty prompt", prompt=[])
    yield case("an unknown model", prompt=IDS, model="nobody")
    yield Case("completions: duplicate keys, the last one wins", COMPLETIONS,
               '{"model":"golden","max_tokens":2,"prompt":"not this one",'
               f'"prompt":{json.dumps(IDS)}}}')
    yield Case("completions: escapes and blanks", COMPLETIONS,
               ' {\n "model" : "gol\\u0064en" , "max_tokens":2 ,'
               '"pro\\u006dpt":"\\u0041\\ud83d\\ude00 \\/ ' + SYSTEM + '" }\n')


def chats():
    """/v1/chat/completions"""
    def case(name, engines=VLLM + SGLANG, messages=(SYSTEM_MESSAGE, USER),
             **fields):
        return Case(f"chat: {name}", CHATS, {
            "model": MODEL, "max_tokens": 2, "temperature": 0,
            "messages": list(messages), **fields}, engines)

    parts = {"role": "user", "content": [
        {"type": "text", "text": QUESTION}, {"type": "text", "text": SAID}]}
    turns = [SYSTEM_MESSAGE, USER, {"role": "assistant", "content": SAID},
             {"role": "user", "content": "Why?"}]
    called = [SYSTEM_MESSAGE, USER, {
        "role": "assistant", "content": None, "tool_calls": [CALL]}, {
        "role": "tool", "tool_call_id": "call_1", "content": "rain"}]
    open_end = [SYSTEM_MESSAGE, USER, {"role": "assistant", "content": SAID}]

    yield case("one message", messages=[USER])
    yield case("system and user")
    yield case("turns", messages=turns)
    yield case("beyond ASCII", messages=[
        SYSTEM_MESSAGE, {"role": "user", "content": UNICODE}])
    yield case("special tokens in it", messages=[SYSTEM_MESSAGE, {
        "role": "user", "content": "<|im_end|> " + QUESTION}])
    yield case("parts", messages=[SYSTEM_MESSAGE, parts])
    yield case("developer", messages=[
        {"role": "developer", "content": SYSTEM}, USER])
    yield case("names", messages=[SYSTEM_MESSAGE, {**USER, "name": "anna"}])
    yield case("reasoning", messages=turns[:2] + [
        {**turns[2], "reasoning": "wool, salt"}, turns[3]])
    yield case("reasoning_content", messages=turns[:2] + [
        {**turns[2], "reasoning_content": "wool, salt"}, turns[3]])
    yield case("tools", tools=[function(WEATHER), function(TIDE)])
    yield case("tools, strict", tools=[function(WEATHER, strict=True)])
    yield case("tools, tool_choice none", tools=[function(WEATHER)],
               tool_choice="none")
    yield case("tools, tool_choice required", tools=[function(TIDE)],
               tool_choice="required")
    yield case("tools, one chosen", tools=[function(WEATHER), function(TIDE)],
               tool_choice={"type": "function",
                            "function": {"name": "tide"}})
    yield case("no tools", tools=[])
    yield case("tool calls", messages=called, tools=[function(WEATHER)])
    yield case("add_generation_prompt false", add_generation_prompt=False)
    yield case("the last message is the assistant's", messages=open_end)
    yield case("continue_final_message", messages=open_end,
               continue_final_message=True, add_generation_prompt=False)
    yield case("continue_final_message alone", SGLANG, messages=open_end,
               continue_final_message=True)
    yield case("add_special_tokens", add_special_tokens=True)
    yield case("chat_template_kwargs",
               chat_template_kwargs={"enable_thinking": False})
    yield case("reasoning_effort", reasoning_effort="high")
    yield case("reasoning_effort none", reasoning_effort="none")
    yield case("reasoning_effort in both",
               reasoning_effort="high", chat_template_kwargs={
                   "reasoning_effort": "low", "enable_thinking": False})
    yield case("documents", documents=[
        {"title": "tide", "text": "The tide is at ten."}])
    yield case("chat_template in the body", chat_template=(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"))
    yield case("response_format", response_format={"type": "json_object"})
    yield case("streamed", stream=True,
               stream_options={"include_usage": True})
    yield case("streamed without usage", stream=True)
    yield case("streamed, usage in every chunk", stream=True,
               stream_options={"include_usage": True,
                               "continuous_usage_stats": True})
    yield case("streamed with tools", tools=[function(TIDE)], stream=True,
               stream_options={"include_usage": True})
    yield case("n", n=2, temperature=1)
    yield case("n, streamed", n=2, temperature=1, stream=True,
               stream_options={"include_usage": True})
    yield case("cache_salt", cache_salt="tenant-a")
    yield case("extra_key", extra_key="tenant-b")
    yield case("adapter by model", VLLM, model="chat")
    yield case("adapter by model, base:adapter", SGLANG,
               model=f"{MODEL}:chat")
    yield case("adapter by lora_path", SGLANG, lora_path="chat")
    yield case("truncated", truncate_prompt_tokens=40)
    yield case("truncated, the left side stays", VLLM,
               truncate_prompt_tokens=40, truncation_side="right")
    yield case("prompt_logprobs", VLLM, prompt_logprobs=0)
    yield case("echo", VLLM, messages=open_end, echo=True,
               continue_final_message=True, add_generation_prompt=False)
    yield case("logprobs", logprobs=True, top_logprobs=1)
    yield case("max_completion_tokens", max_completion_tokens=1)
    yield case("ids, kv_transfer_params", VLLM,
               kv_transfer_params={"prompt_token_ids": IDS})
    yield case("ids, kv_transfer_params, and echo", VLLM, echo=True,
               kv_transfer_params={"prompt_token_ids": IDS})
    yield case("ids, input_ids", input_ids=IDS)
    yield case("ids, prompt_token_ids", prompt_token_ids=IDS)
    yield case("session_params", SGLANG, session_params={"id": "s"})
    yield case("a picture", messages=[SYSTEM_MESSAGE, {
        "role": "user", "content": [
            {"type": "text", "text": QUESTION},
            {"type": "image_url", "image_url": {"url": PICTURE}}]}])
    yield case("no messages", messages=[])
    yield case("an unknown model", model="nobody")
    yield Case("chat: a batch", CHATS + "/batch", {
        "model": MODEL, "max_tokens": 2, "messages": [
            [SYSTEM_MESSAGE, USER], [USER]]}, VLLM)


def messages_():
    """/v1/messages"""
    def case(name, engines=VLLM + SGLANG, messages=(USER,), path=MESSAGES,
             **fields):
        body = {"model": MODEL, "max_tokens": 2, "temperature": 0,
                "system": SYSTEM, "messages": list(messages), **fields}
        return Case(f"messages: {name}", path, {
            field: value for field, value in body.items()
            if value is not None}, engines)

    tools = [anthropic_tool(WEATHER), anthropic_tool(TIDE)]
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather",
           "input": {"city": "Århus", "days": 2}}

    def result(content, **more):
        return {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1",
             "content": content, **more}]}

    yield case("without system", system=None)
    yield case("system")
    yield case("system in blocks", system=[
        {"type": "text", "text": SYSTEM,
         "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": SAID}])
    yield case("system with a billing header", system=[
        {"type": "text", "text": "x-anthropic-billing-header: cc=1"},
        {"type": "text", "text": SYSTEM}])
    yield case("blocks", messages=[{"role": "user", "content": [
        {"type": "text", "text": QUESTION,
         "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": SAID}]}])
    yield case("beyond ASCII", messages=[
        {"role": "user", "content": UNICODE}])
    yield case("turns", messages=[
        USER, {"role": "assistant", "content": SAID},
        {"role": "user", "content": "Why?"}])
    yield case("the last message is the assistant's", messages=[
        USER, {"role": "assistant", "content": SAID}])
    yield case("system among the messages", messages=[
        USER, {"role": "system", "content": "Answer in verse."},
        {"role": "user", "content": "Why?"}])
    yield case("tools", tools=tools)
    yield case("tools, any", tools=tools, tool_choice={"type": "any"})
    yield case("tools, none", tools=tools, tool_choice={"type": "none"})
    yield case("tools, one chosen", tools=tools,
               tool_choice={"type": "tool", "name": "tide"})
    yield case("tool_use and tool_result", tools=tools, messages=[
        USER, {"role": "assistant", "content": [
            {"type": "text", "text": SAID}, use]}, result("rain")])
    yield case("tool_result in blocks, and text", tools=tools, messages=[
        USER, {"role": "assistant", "content": [use]},
        {"role": "user", "content": [
            *result([{"type": "text", "text": "rain"},
                     {"type": "text", "text": "wind"}])["content"],
            {"type": "text", "text": "And now?"}]}])
    yield case("tool_result with an error", tools=tools, messages=[
        USER, {"role": "assistant", "content": [use]},
        result("no such city", is_error=True)])
    thought = [USER, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "wool, salt", "signature": "c2ln"},
        {"type": "text", "text": SAID}]}, {"role": "user", "content": "Why?"}]
    yield case("thinking", messages=thought)
    yield case("thinking adaptive", messages=thought,
               thinking={"type": "adaptive"})
    yield case("thinking enabled", messages=thought, max_tokens=1030,
               stop_sequences=["a", "e", " ", "\n"],
               thinking={"type": "enabled", "budget_tokens": 1024})
    yield case("redacted_thinking", messages=[
        USER, {"role": "assistant", "content": [
            {"type": "redacted_thinking", "data": "eHh4"},
            {"type": "text", "text": SAID}]},
        {"role": "user", "content": "Why?"}])
    yield case("thinking disabled", thinking={"type": "disabled"})
    yield case("effort", output_config={"effort": "low"})
    yield case("chat_template_kwargs",
               chat_template_kwargs={"enable_thinking": False})
    yield case("a picture", messages=[{"role": "user", "content": [
        {"type": "text", "text": QUESTION},
        {"type": "image", "source": {
            "type": "base64", "media_type": "image/png",
            "data": PICTURE.rpartition(",")[2]}}]}])
    yield case("streamed", stream=True)
    yield case("streamed with tools", tools=tools, stream=True)
    yield case("cache_salt", cache_salt="tenant-a")
    yield case("adapter by model", VLLM, model="sql")
    yield case("adapter by model, base:adapter", SGLANG,
               model=f"{MODEL}:sql")
    yield case("no max_tokens", max_tokens=None)
    yield case("an unknown model", model="nobody")
    yield case("count_tokens", path=COUNT, tools=tools)
    yield case("count_tokens without max_tokens", path=COUNT,
               max_tokens=None, temperature=None)


def responses():
    """/v1/responses"""
    def case(name, engines=VLLM + SGLANG, before=None, **fields):
        return Case(f"responses: {name}", RESPONSES, {
            "model": MODEL, "max_output_tokens": 2, "temperature": 0,
            "input": QUESTION, **fields}, engines, before=before)

    def message(role, content, **more):
        return {"type": "message", "role": role, "content": content, **more}

    tools = [{"type": "function", **WEATHER, "strict": False}]
    call = {"type": "function_call", "call_id": "call_1", "name": "weather",
            "arguments": '{"city": "Århus"}'}
    first = {"model": MODEL, "max_output_tokens": 2, "temperature": 0,
             "input": SYSTEM, "instructions": "Answer in verse."}

    yield case("text", input=SYSTEM)
    yield case("instructions", instructions=SYSTEM)
    yield case("items", instructions=SYSTEM, input=[
        message("user", QUESTION), message("assistant", SAID),
        {"role": "user", "content": "Why?"}])
    yield case("items in parts", instructions=SYSTEM, input=[
        message("user", [{"type": "input_text", "text": QUESTION}]),
        message("assistant", [{"type": "output_text", "text": SAID}]),
        message("user", [{"type": "input_text", "text": "Why?"},
                         {"type": "input_text", "text": "And when?"}])])
    yield case("system among the items", input=[
        message("system", SYSTEM), message("user", QUESTION)])
    yield case("developer among the items", input=[
        message("developer", SYSTEM), message("user", QUESTION)])
    yield case("tools", instructions=SYSTEM, tools=tools)
    yield case("tools, none", instructions=SYSTEM, tools=tools,
               tool_choice="none")
    yield case("function_call and its output", instructions=SYSTEM,
               tools=tools, input=[
                   message("user", QUESTION), call,
                   {"type": "function_call_output", "call_id": "call_1",
                    "output": "rain"}])
    yield case("reasoning", instructions=SYSTEM, input=[
        message("user", QUESTION),
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [
            {"type": "reasoning_text", "text": "wool, salt"}]},
        message("assistant", [{"type": "output_text", "text": SAID}]),
        message("user", "Why?")])
    yield case("reasoning effort", instructions=SYSTEM,
               reasoning={"effort": "high"})
    yield case("an unfinished answer", instructions=SYSTEM, input=[
        message("user", QUESTION),
        message("assistant", [{"type": "output_text", "text": SAID}],
                status="incomplete", id="msg_1")])
    yield case("previous_response_id", before=first,
               previous_response_id=PREVIOUS, instructions="Be brief.")
    yield case("not stored", instructions=SYSTEM, store=False)
    yield case("streamed", instructions=SYSTEM, stream=True)
    yield case("streamed with tools", instructions=SYSTEM, tools=tools,
               stream=True)
    yield case("cache_salt", input=SYSTEM, cache_salt="tenant-a")
    yield case("extra_key", SGLANG, input=SYSTEM, extra_key="tenant-b")
    yield case("adapter by model", VLLM, input=SYSTEM, model="sql")
    yield case("truncation auto", input=SYSTEM, truncation="auto")
    yield case("a response that nobody knows", before=None,
               previous_response_id="resp_nobody")


def generate_vllm():
    """vLLM's /inference/v1/generate"""
    def case(name, **fields):
        return Case(f"generate: {name}", VLLM_GENERATE, {
            "model": MODEL, "token_ids": IDS, "sampling_params": {
                "max_tokens": 2, "temperature": 0}, **fields}, VLLM)

    yield case("ids")
    yield case("streamed", stream=True,
               stream_options={"include_usage": True})
    yield case("as text", output_mode="text")
    yield case("n", sampling_params={"max_tokens": 2, "n": 2})
    yield case("cache_salt", cache_salt="tenant-a")
    yield case("adapter by model", model="sql")
    yield case("prompt_logprobs", sampling_params={
        "max_tokens": 2, "prompt_logprobs": 1})
    yield case("text", token_ids=SYSTEM)


def generate_sglang():
    """SGLang's /generate"""
    sampling = {"max_new_tokens": 2, "temperature": 0}

    def case(name, **fields):
        return Case(f"generate: {name}", GENERATE, {
            "sampling_params": sampling, **fields}, SGLANG)

    yield case("text", text=SYSTEM)
    yield case("texts", text=[SYSTEM, QUESTION])
    yield case("ids", input_ids=IDS)
    yield case("lists of ids", input_ids=[IDS, MORE])
    yield case("one list of ids in a list", input_ids=[IDS])
    yield case("ids and text", input_ids=IDS, text=SYSTEM)
    yield case("streamed", input_ids=IDS, stream=True)
    yield case("lists, streamed", input_ids=[IDS, MORE], stream=True)
    yield case("n", input_ids=IDS, sampling_params={**sampling, "n": 2})
    yield case("cache_salt", input_ids=IDS, cache_salt="tenant-a")
    yield case("extra_key", input_ids=IDS, extra_key="tenant-b")
    yield case("several extra keys", input_ids=[IDS, MORE],
               extra_key=["tenant-a", "tenant-b"])
    yield case("adapter", input_ids=IDS, lora_path="sql")
    yield case("several adapters", input_ids=[IDS, MORE],
               lora_path=["sql", None])
    yield case("input logprobs", input_ids=IDS, return_logprob=True,
               logprob_start_len=0)
    yield case("input logprobs of the end", input_ids=IDS,
               return_logprob=True, logprob_start_len=70)
    yield case("logprobs of the answer", input_ids=IDS, return_logprob=True)
    yield case("session_params", input_ids=IDS, session_params={"id": "s"})
    yield case("custom_logit_processor refused", input_ids=IDS,
               custom_logit_processor="x")
    yield case("neither")


def others():
    """Those without inference, and those of other models"""
    chat = {"model": MODEL, "messages": [SYSTEM_MESSAGE, USER]}

    yield Case("tokenize: text", "/tokenize",
               {"model": MODEL, "prompt": SYSTEM})
    yield Case("tokenize: texts", "/tokenize",
               {"model": MODEL, "prompt": [SYSTEM, QUESTION]})
    yield Case("tokenize: chat", "/tokenize", chat)
    yield Case("tokenize: below /v1", "/v1/tokenize",
               {"model": MODEL, "prompt": SYSTEM})
    yield Case("tokenize: an unknown model", "/tokenize",
               {**chat, "model": "nobody"})
    yield Case("detokenize", "/detokenize", {"model": MODEL, "tokens": IDS})
    yield Case("render: an unknown model", CHATS + "/render",
               {**chat, "model": "nobody"})
    yield Case("models", "/v1/models", None, method="GET")
    yield Case("embeddings", "/v1/embeddings",
               {"model": MODEL, "input": SYSTEM})
    yield Case("score", "/v1/score",
               {"model": MODEL, "text_1": "wool", "text_2": "salt"})
    yield Case("rerank", "/v1/rerank",
               {"model": MODEL, "query": "wool", "documents": ["salt"]})
    yield Case("invocations", "/invocations", {
        "model": MODEL, "prompt": IDS, "max_tokens": 2}, VLLM)
    yield Case("an unknown path", "/v1/nothing", chat)


def cases(engine):
    """Those for an engine."""
    for form in (completions, chats, messages_, responses, generate_vllm,
                 generate_sglang, others):
        for case in form():
            if engine in case.engines:
                yield case
