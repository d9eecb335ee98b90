-- Copyright (C) the nginx-kv-router authors
--
-- SGLang's /v1/messages, Anthropic's API: from a body to the variables of the
-- chat template, as SGLang 0.5.23 makes them (anthropic/serving.py,
-- anthropic/protocol.py): the body becomes that of a chat.


local chat = require "resty.kv_router.dialect.sglang_chat"
local fields = require "resty.kv_router.dialect.fields"
local options = require "resty.kv_router.dialect.options"
local schema = require "resty.kv_router.dialect.schema"
local text_ffi = require "resty.kv_router.text_ffi"
local value = require "resty.kv_router.template.value"
local vllm_messages = require "resty.kv_router.dialect.vllm_messages"

local check = fields.check
local concat = table.concat
local dict = value.dict
local dset = value.dset
local find = string.find
local format = string.format
local get = fields.get
local is_dict = value.is_dict
local is_list = value.is_list
local list = value.list
local lstrip = text_ffi.lstrip
local raise = value.raise
local rstrip = text_ffi.rstrip
local sub = string.sub
local type = type
local unsupported = value.unsupported

local NONE = value.NONE


local _M = {}


-- ---- what is known ----------------------------------------------------------

_M.FIELDS = {
    model = "string", messages = "list", max_tokens = "int",
    metadata = "dict?", output_config = "dict?", thinking = "dict?",
    stop_sequences = "strings?", stream = "boolean?", system = "any",
    temperature = "number?", tool_choice = "dict?", tools = "list?",
    top_k = "int?", top_p = "number?", betas = "strings?",
    bootstrap_host = "string?", bootstrap_port = "int?",
    bootstrap_room = "int?", routed_dp_rank = "int?",
    disagg_prefill_dp_rank = "int?",
    -- not SGLang's: it ignores them
    cache_salt = "any", chat_template_kwargs = "any", service_tier = "any",
    kv_transfer_params = "any", container = "null",
    context_management = "any", mcp_servers = "null",
}

local BODY = fields.table(_M.FIELDS)

local MESSAGE = fields.table { role = "string", content = "any" }

local BLOCKS = {
    text = fields.table {
        type = "string", text = "string", cache_control = "any",
        citations = "any" },
    thinking = fields.table {
        type = "string", thinking = "string", signature = "string?",
        cache_control = "any" },
    redacted_thinking = fields.table {
        type = "string", data = "string?", cache_control = "any" },
    tool_use = fields.table {
        type = "string", id = "string", name = "string", input = "dict",
        cache_control = "any", caller = "any" },
    tool_result = fields.table {
        type = "string", tool_use_id = "string?", content = "any",
        is_error = "boolean?", cache_control = "any" },
}

local REQUIRED = { text = { "text" }, thinking = { "thinking" },
                   tool_use = { "id", "name" }, redacted_thinking = {},
                   tool_result = {} }

local TOOL = fields.table {
    name = "string", description = "string?", input_schema = "dict",
    strict = "boolean", cache_control = "any", type = "any",
    eager_input_streaming = "any", defer_loading = "null",
}

local CHOICE = fields.table {
    type = "string", name = "string?", disable_parallel_tool_use = "boolean",
}

local THINKING = fields.table {
    type = "string", budget_tokens = "int?", display = "string?",
}

local DISPLAYS = { summarized = true, omitted = true }

local OUTPUT = fields.table { effort = "string?", format = "dict?",
                              task_budget = "null" }

local EFFORTS = { minimal = "minimal", low = "low", medium = "medium",
                  high = "high", xhigh = "max", max = "max" }

local CHOICES = { auto = "auto", any = "required", none = "none",
                  tool = "named" }


-- ---- messages ---------------------------------------------------------------

local function message(role, content)
    local made = dict()

    dset(made, "role", role)

    if content ~= nil then
        dset(made, "content", content)
    end

    return made
end


local function part(text)
    local made = dict()

    dset(made, "type", "text")
    dset(made, "text", text)

    return made
end


local function checked_block(block)
    local kind = is_dict(block) and block.v.type
    local known = type(kind) == "string" and BLOCKS[kind]

    if not known then
        unsupported(format("a block of the type %s",
                           type(kind) == "string" and kind or "unknown"))
    end

    check(block, known, "a block")

    for _, name in ipairs(REQUIRED[kind]) do
        if block.v[name] == nil then
            raise(format("a block of the type %s without %s", kind, name))
        end
    end

    return kind
end


-- The text without white space around it, as Python's strip() has it.
local function stripped(text)
    return sub(text, lstrip(text, 0) + 1, rstrip(text))
end


-- The text of a system message among others; "": there is none.
local function system_text(content)
    if type(content) == "string" then
        return stripped(content)
    end

    local texts = {}

    for i = 1, content.n do
        local text = content[i].v.text

        text = text and stripped(text) or ""

        if text ~= "" then
            texts[#texts + 1] = text
        end
    end

    return concat(texts, "\n")
end


local function content_of(parts)
    if #parts == 1 then
        return parts[1].v.text
    end

    return list(parts)
end


local function call_of(block)
    local call, of = dict(), dict()
    local id = block.v.id

    if id == "" then
        unsupported "a tool_use with an empty id"
    end

    dset(of, "name", block.v.name)
    dset(of, "arguments", block.v.input or dict())
    dset(call, "id", id)
    dset(call, "type", "function")
    dset(call, "function", of)

    return call
end


local function result_of(block)
    local content = get(block, "content")
    local made = message "tool"
    local parts = {}

    dset(made, "tool_call_id", get(block, "tool_use_id") or "")

    if is_list(content) then
        for i = 1, content.n do
            if checked_block(content[i]) ~= "text" then
                unsupported "a tool_result with other blocks than text"
            end

            if content[i].v.text ~= "" then
                parts[#parts + 1] = part(content[i].v.text)
            end
        end

        content = #parts == 0 and "" or content_of(parts)
    elseif content ~= nil and type(content) ~= "string" then
        unsupported "a tool_result that is neither text nor a list"
    end

    dset(made, "content", content or "")

    return made
end


-- What an assistant thought before: a text in front of the others, or nil; and
-- the template's own field for it.
local function thoughts_of(o, content)
    local texts = {}

    for i = 1, content.n do
        local kind = content[i].v.type

        if kind == "redacted_thinking" then
            raise "a redacted_thinking"
        elseif kind == "thinking" and content[i].v.thinking ~= "" then
            texts[#texts + 1] = content[i].v.thinking
        end
    end

    if #texts == 0 then
        return nil, nil
    end

    local text = concat(texts, "\n")

    if o.probed.thinking_native == nil then
        unsupported("a thinking block, of which the engine's way with this "
                    .. "template is not known")
    elseif o.probed.thinking_native then
        return nil, text
    elseif not o.reasoning_parser then
        return nil, nil
    elseif not o.probed.thinking_start or not o.probed.thinking_end then
        unsupported "a thinking block for a reasoning parser that is not known"
    end

    return o.probed.thinking_start .. text .. o.probed.thinking_end, nil
end


-- Appends what a message in blocks becomes.
local function append_blocks(o, made, role, content)
    local turn, parts, calls = message(role), {}, {}

    for i = 1, content.n do
        checked_block(content[i])
    end

    if role == "assistant" then
        local text, reasoning = thoughts_of(o, content)

        if reasoning then
            dset(turn, "reasoning_content", reasoning)
        end

        parts[1] = text and part(text) or nil
    end

    for i = 1, content.n do
        local block = content[i]
        local kind = block.v.type

        if kind == "text" then
            parts[#parts + 1] = part(block.v.text)

        elseif kind == "tool_use" then
            calls[#calls + 1] = call_of(block)

        elseif kind == "tool_result" then
            if role ~= "user" then
                unsupported "a tool_result of another role than user"
            end

            -- what was said before stays before
            if #parts > 0 then
                made[#made + 1] = message("user", content_of(parts))
                parts = {}
            end

            made[#made + 1] = result_of(block)
        end
    end

    if #calls > 0 then
        dset(turn, "tool_calls", list(calls))
    end

    if #parts > 0 then
        dset(turn, "content", content_of(parts))
    elseif #calls == 0 then
        if role == "user" then
            return
        end

        dset(turn, "content", "")
    end

    made[#made + 1] = turn
end


local function checked_turn(turn)
    if not is_dict(turn) then
        raise "a message that is no object"
    end

    check(turn, MESSAGE, "a message")

    local role, content = turn.v.role, turn.v.content

    if role ~= "user" and role ~= "assistant" and role ~= "system" then
        raise "a message without a role of Anthropic's"
    elseif content == nil or content == NONE then
        raise "a message without content"
    elseif is_list(content) then
        for i = 1, content.n do
            checked_block(content[i])
        end
    elseif type(content) ~= "string" then
        unsupported "a content that is neither text nor a list"
    end
end


local function append_system(system, given)
    if given == nil then
        return
    elseif type(given) == "string" then
        if find(given, "[^%s]") then
            if find(given, "^[^\1-\127]*$") then
                unsupported "a system text without a character of ASCII's"
            end

            system[#system + 1] = given
        end

        return
    elseif not is_list(given) then
        unsupported "a system text that is neither text nor a list"
    end

    for i = 1, given.n do
        checked_block(given[i])

        local text = given[i].v.type == "text" and given[i].v.text

        if text and text ~= "" then
            system[#system + 1] = text
        end
    end
end


local function messages_of(o, body)
    local turns, made, system = body.v.messages, {}, {}
    local merge = o.probed.merge_inline_system

    append_system(system, get(body, "system"))

    for i = 1, turns.n do
        checked_turn(turns[i])

        if turns[i].v.role == "system" then
            if merge == nil then
                unsupported("a system message among others, of which the "
                            .. "engine's way with this template is not known")
            elseif merge then
                local text = system_text(turns[i].v.content)

                system[#system + 1] = text ~= "" and text or nil
            end
        end
    end

    if #system > 0 then
        made[1] = message("system", concat(system, "\n"))
    end

    for i = 1, turns.n do
        local role, content = turns[i].v.role, turns[i].v.content

        if role ~= "system" or not merge then
            if type(content) == "string" then
                made[#made + 1] = message(role, content)
            else
                append_blocks(o, made, role, content)
            end
        end
    end

    return list(made)
end


-- ---- tools and thinking -----------------------------------------------------

local function tools_of(given)
    local made = {}

    for i = 1, given.n do
        local tool = given[i]

        if not is_dict(tool) then
            raise "a tool that is no object"
        end

        check(tool, TOOL, "a tool")

        if get(tool, "type") ~= nil and tool.v.type ~= "custom" then
            unsupported "a tool of another type than custom"
        elseif tool.v.name == nil or tool.v.input_schema == nil then
            raise "a tool without name or input_schema"
        end

        local of = dict()

        dset(of, "name", tool.v.name)
        dset(of, "description", get(tool, "description") or "")
        dset(of, "parameters", vllm_messages.schema_of(tool.v.input_schema))
        dset(of, "strict", tool.v.strict or false)
        schema.check(of.v.parameters)

        made[i] = chat.tool_of(of)
    end

    return list(made, given.n)
end


local function choice_of(body, tools)
    local given = get(body, "tool_choice")

    if given == nil then
        return tools and "auto" or "none"
    end

    check(given, CHOICE, "tool_choice")

    local choice = CHOICES[given.v.type or ""]

    if not choice then
        raise "a tool_choice of an unknown type"
    elseif choice == "named" then
        if not get(given, "name") then
            raise "a tool_choice without a name"
        end

        return { name = given.v.name }
    elseif choice == "auto" and not tools then
        return "none"
    end

    return choice
end


-- Lets thinking be as the body wants it: in the variables, or not at all.
local function think(o, body, variables)
    local given = get(body, "thinking")

    if not given then
        return
    end

    check(given, THINKING, "thinking")

    local kind, budget = given.v.type, get(given, "budget_tokens")

    if kind ~= "enabled" and kind ~= "disabled" and kind ~= "adaptive" then
        raise "thinking of an unknown type"
    elseif (kind == "enabled") ~= (budget ~= nil)
           or (budget and budget < 1024)
    then
        raise "a budget of thinking that does not fit"
    end

    local display = get(given, "display")

    if display and (not DISPLAYS[display] or kind == "disabled") then
        raise "a display of thinking that does not fit"
    end

    if not o.reasoning_parser then
        if kind ~= "disabled" then
            raise "thinking without a reasoning parser"
        end

        return
    end

    local toggle = o.probed.thinking_toggle

    if toggle == nil then
        unsupported("thinking, of which the engine's way with this template "
                    .. "is not known")
    elseif toggle ~= "" then
        dset(variables, toggle, kind ~= "disabled")
    elseif kind ~= "disabled" then
        raise "thinking that this reasoning parser can't turn on"
    end
end


local function effort_of(body, choice)
    local given = get(body, "output_config")

    if not given then
        return nil
    end

    check(given, OUTPUT, "output_config")

    local effort, wanted = get(given, "effort"), get(given, "format")

    vllm_messages.checked_format(wanted)

    if wanted and choice ~= "auto" and choice ~= "none" then
        unsupported "a tool_choice beside another constraint"
    end

    if effort and not EFFORTS[effort] then
        raise(format("the effort %q", effort))
    end

    return effort and EFFORTS[effort]
end


-- ---- requests ---------------------------------------------------------------

local function prepared(body, given)
    if not is_dict(body) then
        raise "a body that is no object"
    end

    check(body, BODY, "the body")
    vllm_messages.checked(body)

    local o = options.read(given)
    local messages = messages_of(o, body)
    local tools, variables = get(body, "tools"), dict()

    tools = tools and tools.n > 0 and tools_of(tools) or nil
    think(o, body, variables)

    local choice = choice_of(body, tools)

    return chat.rendered(
        o, messages, chat.shown_tools(tools, choice),
        chat.variables(o, variables, effort_of(body, choice)))
end


-- The variables of the template; nil, a sentence and the kind of failure.
_M.prepare = fields.preparing(prepared)


return _M
