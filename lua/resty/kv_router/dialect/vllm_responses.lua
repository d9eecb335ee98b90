-- Copyright (C) the nginx-kv-router authors
--
-- vLLM's /v1/responses: from a body to the variables of the chat template, as
-- vLLM 0.32 makes them (openai/responses/protocol.py, openai/responses/
-- utils.py).  The text gets the special tokens that the tokenizer adds,
-- although the template has BOS, too.


local chat = require "resty.kv_router.dialect.vllm_chat"
local fields = require "resty.kv_router.dialect.fields"
local items = require "resty.kv_router.dialect.items"
local options = require "resty.kv_router.dialect.options"
local tool_forms = require "resty.kv_router.dialect.tools"
local value = require "resty.kv_router.template.value"

local check = fields.check
local dset = value.dset
local format = string.format
local get = fields.get
local list = value.list
local object = value.object
local raise = value.raise
local type = type
local unsupported = value.unsupported


local _M = {}


_M.FIELDS = fields.with({
    input = "any", instructions = "string?", tools = "list",
    tool_choice = "any", reasoning = "dict?", chat_template_kwargs = "dict?",
    background = "boolean?", include = "list?",
    previous_response_id = "null", prompt = "null", stream = "boolean?",
    text = "dict?", truncation = "string", structured_outputs = "null",
    ec_transfer_params = "null", vllm_xargs = "null",
    media_io_kwargs = "null", mm_processor_kwargs = "null",
    stream_options = "null",
}, fields.any [[
    cache_salt frequency_penalty ignore_eos include_reasoning
    include_stop_str_in_output kv_transfer_params logit_bias max_output_tokens
    max_tool_calls metadata min_p model parallel_tool_calls presence_penalty
    priority prompt_cache_key repetition_penalty request_id safety_identifier
    seed service_tier session_id skip_special_tokens stop stop_token_ids store
    temperature top_k top_logprobs top_p user watermarking
]])

local BODY = fields.table(_M.FIELDS)

local REASONING = fields.table {
    effort = "string?", summary = "string?", generate_summary = "null",
}

local OPEN = { in_progress = true, incomplete = true }


-- ---- messages ---------------------------------------------------------------

-- A call goes into the assistant's message before, if there is one.
local function append_call(made, item)
    local call = object("id", item.v.call_id, "function",
                        object("name", item.v.name,
                               "arguments", item.v.arguments),
                        "type", "function")
    local last = made[#made]

    if not last or last.v.role ~= "assistant" then
        last = object("role", "assistant")
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

    made[#made + 1] = object("role", "assistant", name, text)
end


local function append_item(made, item)
    local kind = items.kind(item)

    if kind == "function_call" then
        append_call(made, item)

    elseif kind == "function_call_output" then
        if type(item.v.output) ~= "string" then
            unsupported "an output that is no text"
        end

        made[#made + 1] = object("role", "tool", "content", item.v.output,
                                 "tool_call_id", item.v.call_id)

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
        made[#made + 1] = object("role", item.v.role,
                                 "content", item.v.content)
    end
end


local function messages_of(body)
    local made, input = items.begun(body)

    if not input then
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

-- "auto", "none", "required", "named"
local function choice_of(body, tools)
    local choice, name = tool_forms.choice_of_response(body.v.tool_choice)

    if choice == "named" then
        chat.tool_named(tools, name)
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

        if effort and not chat.EFFORTS[effort] then
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


local function prepared(body, o)
    items.check(body)
    checked(body)

    local messages, continued = messages_of(body)
    local tools = tool_forms.of_response(body.v.tools, chat.tool_of)

    if choice_of(body, tools) == "none" and o.excluded then
        tools = nil
    end

    return chat.rendered(o, {
        messages = messages,
        tools = tools,
        kwargs = chat.variables(o, options.kwargs(body, o.trusts),
                                effort_of(body), true),
        add_generation_prompt = not continued,
        continue_final_message = continued,
        add_special_tokens = true,
    })
end


-- The variables of the template; nil, a sentence and the kind of failure.
_M.prepare = options.preparing(prepared, BODY)


return _M
