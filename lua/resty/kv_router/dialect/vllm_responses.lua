-- Copyright (C) the nginx-kv-router authors
--
-- vLLM's /v1/responses: from a body to the variables of the chat template, as
-- vLLM 0.32 makes them (openai/responses/protocol.py, openai/responses/
-- utils.py).  The text gets the special tokens that the tokenizer adds,
-- although the template has BOS, too.


local chat = require "resty.kv_router.dialect.vllm_chat"
local fields = require "resty.kv_router.dialect.fields"
local items = require "resty.kv_router.dialect.items"
local kwargs = require "resty.kv_router.dialect.kwargs"
local options = require "resty.kv_router.dialect.options"
local value = require "resty.kv_router.template.value"

local check = fields.check
local dict = value.dict
local dset = value.dset
local format = string.format
local get = fields.get
local is_dict = value.is_dict
local list = value.list
local raise = value.raise
local type = type
local unsupported = value.unsupported


local _M = {}


_M.FIELDS = {
    input = "any", instructions = "string?", tools = "list",
    tool_choice = "any", reasoning = "dict?", chat_template_kwargs = "dict?",
    model = "string?", background = "boolean?", include = "strings?",
    include_reasoning = "boolean", max_output_tokens = "int?",
    max_tool_calls = "int?", metadata = "texts?", logit_bias = "weights?",
    parallel_tool_calls = "boolean?", previous_response_id = "null",
    prompt = "null", store = "boolean?", stream = "boolean?",
    temperature = "number?", top_p = "number?", top_k = "int?",
    min_p = "number?", service_tier = "string", text = "dict?",
    top_logprobs = "int",
    truncation = "string", user = "string?",
    skip_special_tokens = "boolean", include_stop_str_in_output = "boolean",
    presence_penalty = "number?", frequency_penalty = "number?",
    prompt_cache_key = "string?", watermarking = "boolean?",
    request_id = "string", session_id = "string?", priority = "int",
    cache_salt = "string?", repetition_penalty = "number?", seed = "int?",
    stop = "stop?", stop_token_ids = "numbers?", ignore_eos = "boolean",
    structured_outputs = "null", kv_transfer_params = "any",
    ec_transfer_params = "null", vllm_xargs = "null",
    media_io_kwargs = "null", mm_processor_kwargs = "null",
    -- not vLLM's: it ignores them
    safety_identifier = "any", stream_options = "null",
}

local BODY = fields.table(_M.FIELDS)

local TOOL = fields.table {
    type = "string", name = "string", description = "string?",
    parameters = "dict?", strict = "boolean?",
}

local REASONING = fields.table {
    effort = "string?", summary = "string?", generate_summary = "null",
}

local EFFORTS = { none = true, minimal = true, low = true, medium = true,
                  high = true, xhigh = true, max = true }

local OPEN = { in_progress = true, incomplete = true }


-- ---- messages ---------------------------------------------------------------

local function message(role)
    local made = dict()

    dset(made, "role", role)

    return made
end


-- A call goes into the assistant's message before, if there is one.
local function append_call(made, item)
    local call, of = dict(), dict()
    local last = made[#made]

    dset(of, "name", item.v.name)
    dset(of, "arguments", item.v.arguments)
    dset(call, "id", item.v.call_id)
    dset(call, "function", of)
    dset(call, "type", "function")

    if not last or last.v.role ~= "assistant" then
        last = message "assistant"
        made[#made + 1] = last
    end

    local calls = last.v.tool_calls

    if calls then
        calls.n = calls.n + 1
        calls[calls.n] = call
    else
        dset(last, "tool_calls", list { call })
    end
end


-- So does a text or a thought, if the message has none.
local function append_said(made, name, text)
    local last = made[#made]

    if last and last.v.role == "assistant" and last.v[name] == nil then
        dset(last, name, text)

        return
    end

    last = message "assistant"
    dset(last, name, text)
    made[#made + 1] = last
end


local function append_item(made, item)
    local kind = items.kind(item)

    if kind == "function_call" then
        append_call(made, item)

    elseif kind == "function_call_output" then
        if type(item.v.output) ~= "string" then
            unsupported "an output that is no text"
        end

        made[#made + 1] = message "tool"
        dset(made[#made], "content", item.v.output)
        dset(made[#made], "tool_call_id", item.v.call_id)

    elseif kind == "reasoning" then
        local content, summary = get(item, "content"), item.v.summary
        local text = ""

        if get(item, "encrypted_content") ~= nil then
            unsupported "a reasoning that is encrypted"
        end

        if content and content.n > 0 then
            text = items.text(content[1], "reasoning_text")
        elseif summary.n > 0 then
            text = items.text(summary[1], "summary_text")
        end

        append_said(made, "reasoning", text)

    elseif kind == "said" then
        -- the first part alone is read
        append_said(made, "content", item.v.content[1].v.text)

    elseif item.v.role == "assistant" then
        append_said(made, "content", item.v.content)

    else
        made[#made + 1] = message(item.v.role)
        dset(made[#made], "content", item.v.content)
    end
end


local function messages_of(body)
    local made = {}
    local instructions, input = get(body, "instructions"), body.v.input

    if instructions and instructions ~= "" then
        made[1] = message "system"
        dset(made[1], "content", instructions)
    end

    if type(input) == "string" then
        made[#made + 1] = message "user"
        dset(made[#made], "content", input)

        return list(made), false
    end

    for i = 1, input.n do
        append_item(made, input[i])
    end

    local last = input[input.n]
    local kind = last and items.kind(last)

    return list(made), last ~= nil and kind ~= "function_call"
                       and kind ~= "function_call_output"
                       and OPEN[get(last, "status") or ""] == true
end


-- ---- tools ------------------------------------------------------------------

local function tools_of(body)
    local given = body.v.tools

    if given == nil or given.n == 0 then
        return nil
    end

    local made = {}

    for i = 1, given.n do
        local tool = given[i]

        if not is_dict(tool) or tool.v.type ~= "function" then
            unsupported "a tool of another type than function"
        end

        check(tool, TOOL, "a tool")

        if tool.v.name == nil then
            raise "a tool without a name"
        end

        made[i] = chat.tool_of(tool)
    end

    return list(made, given.n)
end


-- "auto", "none", "required", "named"
local function choice_of(body, tools)
    local choice = body.v.tool_choice

    if choice == nil then
        choice = "auto"
    end

    if is_dict(choice) then
        local name = choice.v.name

        if choice.v.type ~= "function" or type(name) ~= "string"
           or choice.n ~= 2
        then
            unsupported "a tool_choice of another form"
        end

        chat.tool_named(tools, name)

        return "named"
    end

    if choice ~= "auto" and choice ~= "none" and choice ~= "required" then
        unsupported "a tool_choice of another form"
    elseif choice == "required" and not tools then
        raise "a tool_choice without tools"
    end

    return choice
end


-- ---- requests ---------------------------------------------------------------

local function effort_of(body)
    local given = get(body, "reasoning")
    local effort

    if given then
        check(given, REASONING, "reasoning")
        effort = get(given, "effort")

        if effort and not EFFORTS[effort] then
            raise(format("the effort %q", effort))
        end
    end

    return effort
end


local function checked(body)
    chat.checked(body)

    if body.v.truncation and body.v.truncation ~= "disabled" then
        unsupported "a truncation"
    end
end


local function prepared(body, given)
    if not is_dict(body) then
        raise "a body that is no object"
    end

    check(body, BODY, "the body")
    items.check(body)
    checked(body)

    local o = options.read(given)
    local messages, continued = messages_of(body)
    local tools = tools_of(body)

    if choice_of(body, tools) == "none" and o.excluded then
        tools = nil
    end

    return chat.rendered(o, {
        messages = messages,
        tools = tools,
        kwargs = chat.variables(o, kwargs.of(body, o.trusts),
                                effort_of(body), true),
        add_generation_prompt = not continued,
        continue_final_message = continued,
        add_special_tokens = true,
    })
end


-- The variables of the template; nil, a sentence and the kind of failure.
_M.prepare = fields.preparing(prepared)


return _M
