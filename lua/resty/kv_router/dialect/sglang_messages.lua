-- Copyright (C) the nginx-kv-router authors
--
-- SGLang's /v1/messages, Anthropic's API: from a body to the variables of the
-- chat template, as SGLang 0.5.23 makes them (anthropic/serving.py,
-- anthropic/protocol.py): the body becomes that of a chat.


local anthropic = require "resty.kv_router.dialect.anthropic"
local chat = require "resty.kv_router.dialect.sglang_chat"
local fields = require "resty.kv_router.dialect.fields"
local options = require "resty.kv_router.dialect.options"
local text_ffi = require "resty.kv_router.tokens.text_ffi"
local tool_forms = require "resty.kv_router.dialect.tools"
local value = require "resty.kv_router.template.value"

local check = fields.check
local concat = table.concat
local dict = value.dict
local dset = value.dset
local find = string.find
local format = string.format
local get = fields.get
local is_list = value.is_list
local list = value.list
local lstrip = text_ffi.lstrip
local object = value.object
local part = chat.part
local raise = value.raise
local rstrip = text_ffi.rstrip
local sub = string.sub
local type = type
local unsupported = value.unsupported


local _M = {}


-- ---- what is known ----------------------------------------------------------

_M.FIELDS = fields.with(fields.any [[
    betas bootstrap_host bootstrap_port bootstrap_room cache_salt
    chat_template_kwargs disagg_prefill_dp_rank kv_transfer_params
    routed_dp_rank
]], anthropic.FIELDS)

local BODY = fields.table(_M.FIELDS)

local BLOCKS = anthropic.blocks ""

local REQUIRED = { text = { "text" }, thinking = { "thinking" },
                   tool_use = { "id", "name" }, redacted_thinking = {},
                   tool_result = {} }

local THINKING = fields.table {
    type = "string", budget_tokens = "int?", display = "string?",
}

local DISPLAYS = { summarized = true, omitted = true }

local OUTPUT = fields.table { effort = "string?", format = "dict?",
                              task_budget = "null" }

local EFFORTS = { minimal = "minimal", low = "low", medium = "medium",
                  high = "high", xhigh = "max", max = "max" }

-- ---- messages ---------------------------------------------------------------

local function kind_of(block)
    local kind = anthropic.kind(block, BLOCKS)

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
    if block.v.id == "" then
        unsupported "a tool_use with an empty id"
    end

    return object("id", block.v.id, "type", "function", "function",
                  object("name", block.v.name,
                         "arguments", block.v.input or dict()))
end


local function result_of(block)
    local content = get(block, "content")
    local parts = {}

    if is_list(content) then
        for i = 1, content.n do
            if kind_of(content[i]) ~= "text" then
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

    return object("role", "tool",
                  "tool_call_id", get(block, "tool_use_id") or "",
                  "content", content or "")
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


-- Appends what a message becomes.
local function append_turn(o, made, role, content)
    local turn, parts, calls = object("role", role), {}, {}

    if type(content) == "string" then
        dset(turn, "content", content)
        made[#made + 1] = turn

        return
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
                made[#made + 1] = object("role", "user",
                                         "content", content_of(parts))
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
        kind_of(given[i])

        local text = given[i].v.type == "text" and given[i].v.text

        if text and text ~= "" then
            system[#system + 1] = text
        end
    end
end


local WAYS = { kind = kind_of, text = system_text, between = "\n",
               append = append_turn }


-- ---- tools and thinking -----------------------------------------------------

local function tool_of(tool, schema)
    tool_forms.check_schema(schema)

    return chat.tool_of(object(
        "name", tool.v.name, "description", get(tool, "description") or "",
        "parameters", schema, "strict", get(tool, "strict") or false))
end


local function choice_of(body, tools)
    local choice, name = anthropic.choice(body)

    if choice == nil or choice == "auto" then
        return tools and "auto" or "none"
    end

    return choice == "named" and { name = name } or choice
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
    local effort, formed = anthropic.effort(body, OUTPUT, EFFORTS)

    if formed and choice ~= "auto" and choice ~= "none" then
        unsupported "a tool_choice beside another constraint"
    end

    return effort and EFFORTS[effort]
end


-- ---- requests ---------------------------------------------------------------

local function prepared(body, o)
    anthropic.checked(body)

    local system = {}

    append_system(system, get(body, "system"))

    local messages = anthropic.messages(o, body, system, WAYS)
    local tools, variables = get(body, "tools"), dict()

    tools = tools and tools.n > 0 and anthropic.tools(tools, tool_of)
            or nil
    think(o, body, variables)

    local choice = choice_of(body, tools)

    return chat.rendered(
        o, messages, chat.shown_tools(tools, choice),
        chat.variables(o, variables, effort_of(body, choice)))
end


-- The variables of the template; nil, a sentence and the kind of failure.
_M.prepare = options.preparing(prepared, BODY)


return _M
