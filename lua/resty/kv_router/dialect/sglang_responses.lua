-- Copyright (C) the nginx-kv-router authors
--
-- SGLang's /v1/responses: from a body to the variables of the chat template, as
-- SGLang 0.5.23 makes them (openai/serving_responses.py): the body becomes that
-- of a chat.


local chat = require "resty.kv_router.dialect.sglang_chat"
local fields = require "resty.kv_router.dialect.fields"
local items = require "resty.kv_router.dialect.items"
local options = require "resty.kv_router.dialect.options"
local tape = require "resty.kv_router.template.tape"
local tool_forms = require "resty.kv_router.dialect.tools"
local value = require "resty.kv_router.template.value"

local check = fields.check
local concat = table.concat
local dset = value.dset
local find = string.find
local format = string.format
local get = fields.get
local is_dict = value.is_dict
local is_list = value.is_list
local list = value.list
local object = value.object
local part = chat.part
local raise = value.raise
local type = type
local unsupported = value.unsupported

local NONE = value.NONE


local _M = {}


_M.FIELDS = fields.with({
    input = "any", instructions = "string?", tools = "list",
    tool_choice = "any", reasoning = "dict?", chat_template_kwargs = "dict?",
    background = "boolean?", include = "list?", metadata = "dict?",
    previous_response_id = "null", stream = "boolean", text = "dict?",
    truncation = "string?", extra_key = "string?", prompt = "any",
}, fields.any [[
    bootstrap_host bootstrap_port bootstrap_room cache_salt frequency_penalty
    kv_transfer_params max_output_tokens max_tool_calls min_p model
    parallel_tool_calls presence_penalty priority prompt_cache_key
    repetition_penalty request_id routed_dp_rank safety_identifier seed
    service_tier session_id stop store stream_options temperature top_k
    top_logprobs top_p user
]])

local BODY = fields.table(_M.FIELDS)

local REASONING = fields.table { effort = "string?", summary = "string?" }

local TRUNCATIONS = { auto = true, disabled = true }

local LABEL = "Developer instructions:\n"


-- ---- messages ---------------------------------------------------------------

-- The arguments of a call as a JSON object's text: {} for what is none.
local function arguments_of(text)
    if text == "" then
        return "{}"
    elseif find(text, "-0", 1, true) then
        unsupported "arguments of a function_call with -0"
    end

    local made, err, kind = tape.decode(text)

    if kind == "unsupported" then
        unsupported("arguments of a function_call: " .. err)
    end

    return is_dict(made) and text or "{}"
end


local function call_message(item)
    local call = object("id", item.v.call_id ~= "" and item.v.call_id
                              or item.v.id or NONE,
                        "type", "function", "function",
                        object("name", item.v.name,
                               "arguments", arguments_of(item.v.arguments)))

    return object("role", "assistant", "tool_calls", list { call })
end


local function joined(parts, kind)
    local texts = {}

    for i = 1, parts and parts.n or 0 do
        local text = items.text(parts[i], kind)

        if text ~= "" then
            texts[#texts + 1] = text
        end
    end

    return concat(texts, "\n")
end


-- nil: nothing was thought.
local function reasoning_message(item)
    local text = joined(item.v.summary, "summary_text")

    if text == "" then
        text = joined(get(item, "content"), "reasoning_text")
    end

    if text == "" then
        if get(item, "encrypted_content") ~= nil then
            unsupported "a reasoning that is encrypted"
        end

        return nil
    end

    return object("role", "assistant", "reasoning_content", text)
end


local function content_of(given, developer)
    if type(given) == "string" then
        return developer and LABEL .. given or given
    end

    local parts = {}

    for i = 1, given.n do
        parts[i] = part(given[i].v.text)
    end

    if developer and parts[1] then
        parts[1] = part(LABEL .. parts[1].v.text)
    elseif developer then
        unsupported "a developer's message without parts"
    end

    return list(parts)
end


-- The message that an item becomes; nil: none.
local function message_of(item)
    local kind = items.kind(item)

    if kind == "function_call" then
        return call_message(item)

    elseif kind == "function_call_output" then
        if type(item.v.output) ~= "string" then
            unsupported "an output that is no text"
        end

        return object("role", "tool", "tool_call_id", item.v.call_id,
                      "content", item.v.output)

    elseif kind == "reasoning" then
        return reasoning_message(item)
    end

    local developer = item.v.role == "developer"

    return object("role", developer and "system" or item.v.role,
                  "content", content_of(item.v.content, developer))
end


local function as_parts(content)
    if is_list(content) then
        return content
    end

    return content ~= "" and list { part(content) } or list {}
end


-- The first list with the elements of the second one behind its own.
local function extended(a, b)
    for i = 1, b.n do
        a[a.n + i] = b[i]
    end

    a.n = a.n + b.n

    return a
end


-- Messages of the assistant that follow each other become the first of them: a
-- run has its message, and the texts and thoughts that go there in the end.

local function begin(first)
    local content = first.v.content

    return { message = first, thoughts = { first.v.reasoning_content },
             texts = { type(content) == "string" and content ~= ""
                       and content or nil } }
end


local function put_texts(run)
    if #run.texts > 0 then
        dset(run.message, "content", concat(run.texts, "\n\n"))
        run.texts = {}
    end
end


-- Puts another message of the assistant into the run.
local function join(run, new)
    local last, content, calls = run.message, new.v.content, new.v.tool_calls
    local before, texts = last.v.content, run.texts

    if type(content) == "string" and not is_list(before) then
        texts[#texts + 1] = content ~= "" and content or nil

    elseif content ~= nil and content ~= "" then
        put_texts(run)
        dset(last, "content", extended(as_parts(last.v.content or ""),
                                       as_parts(content)))
    end

    if calls then
        dset(last, "tool_calls", last.v.tool_calls
             and extended(last.v.tool_calls, calls) or calls)
    end

    run.thoughts[#run.thoughts + 1] = new.v.reasoning_content
end


-- Nothing more comes to the run.
local function finish(run)
    put_texts(run)

    if #run.thoughts > 0 then
        dset(run.message, "reasoning_content", concat(run.thoughts, "\n"))
    end
end


-- System messages as one, in front.
local function system_first(given)
    local system, rest = {}, {}

    for i = 1, #given do
        local content = given[i].v.content

        if given[i].v.role ~= "system" then
            rest[#rest + 1] = given[i]
        elseif type(content) == "string" then
            system[#system + 1] = content
        else
            for j = 1, content.n do
                system[#system + 1] = content[j].v.text
            end
        end
    end

    if #system > 0 then
        table.insert(rest, 1, object("role", "system",
                                     "content", concat(system, "\n\n")))
    end

    return rest
end


local function append_items(made, input)
    local run

    for i = 1, input.n do
        local new = message_of(input[i])

        if new and new.v.role == "assistant" then
            if run then
                join(run, new)
            else
                run = begin(new)
                made[#made + 1] = new
            end

        elseif new then
            if run then
                finish(run)
                run = nil
            end

            made[#made + 1] = new
        end
    end

    if run then
        finish(run)
    end
end


local function messages_of(o, body)
    local made, input = items.begun(body)

    if input then
        append_items(made, input)
    end

    local merge, moved = o.probed.merge_inline_system, false

    for i = 2, #made do
        moved = moved or made[i].v.role == "system"
    end

    if moved and merge == nil then
        unsupported("a system message among others, of which the engine's "
                    .. "way with this template is not known")
    end

    if merge ~= false then
        made = system_first(made)
    end

    return list(made)
end


-- ---- tools ------------------------------------------------------------------

local function tool_of(tool)
    if tool.v.name == "" then
        raise "a tool without a name"
    end

    return chat.tool_of(object(
        "name", tool.v.name, "description", tool.v.description or NONE,
        "parameters", tool.v.parameters or NONE,
        "strict", get(tool, "strict") or false))
end


-- As of a chat: "auto", "none", "required", or a table with a name.
local function choice_of(body, tools)
    local choice, name = tool_forms.choice_of_response(body.v.tool_choice)

    if choice == "named" then
        return { name = name }
    end

    return choice == "auto" and not tools and "none" or choice
end


-- ---- requests ---------------------------------------------------------------

-- reasoning_effort; nil: none.
local function effort_of(body)
    local given = get(body, "reasoning")

    if not given then
        return nil
    end

    check(given, REASONING, "reasoning")

    local effort = given.v.effort

    if effort == nil then
        return "medium"
    elseif effort == NONE then
        return nil
    elseif not chat.EFFORTS[effort] then
        raise(format("the effort %q", effort))
    end

    return effort
end


local function prepared(body, o)
    items.check(body)

    local truncation, include = get(body, "truncation"), get(body, "include")

    if truncation and not TRUNCATIONS[truncation] then
        raise "a truncation that is not known"
    elseif body.v.model == nil then
        raise "a body without a model"
    end

    for i = 1, include and include.n or 0 do
        if include[i] == "message.output_text.logprobs" and body.v.stream then
            raise "logprobs of a stream"
        end
    end

    local tools = tool_forms.of_response(body.v.tools, tool_of)
    local effort = effort_of(body)
    local choice = choice_of(body, tools)
    local text = get(body, "text")

    if text and get(text, "format") and text.v.format.v.type ~= "text"
       and choice ~= "auto" and choice ~= "none"
    then
        unsupported "a tool_choice beside another constraint"
    end

    local variables = chat.thinking(options.kwargs(body, true), effort)

    return chat.rendered(o, messages_of(o, body),
                         chat.shown_tools(tools, choice),
                         chat.variables(o, variables, effort))
end


-- The variables of the template; nil, a sentence and the kind of failure.
_M.prepare = options.preparing(prepared, BODY)


return _M
