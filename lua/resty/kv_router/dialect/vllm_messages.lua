-- Copyright (C) the nginx-kv-router authors
--
-- vLLM's /v1/messages, Anthropic's API: from a body to the variables of the
-- chat template, as vLLM 0.32 makes them (anthropic/serving.py,
-- anthropic/protocol.py): the body becomes that of a chat.


local anthropic = require "resty.kv_router.dialect.anthropic"
local chat = require "resty.kv_router.dialect.vllm_chat"
local fields = require "resty.kv_router.dialect.fields"
local options = require "resty.kv_router.dialect.options"
local value = require "resty.kv_router.template.value"

local check = fields.check
local concat = table.concat
local dict = value.dict
local dset = value.dset
local get = fields.get
local is_list = value.is_list
local list = value.list
local object = value.object
local raise = value.raise
local sub = string.sub
local type = type
local unsupported = value.unsupported

local NONE = value.NONE
local BILLING = chat.BILLING


local _M = {}


-- ---- what is known ----------------------------------------------------------

_M.FIELDS = fields.with({
    ec_transfer_params = "null", vllm_xargs = "null",
    chat_template_kwargs = "dict?",
}, fields.with(anthropic.FIELDS, fields.any [[
    betas cache_salt kv_transfer_params watermarking
]]))

local BODY = fields.table(_M.FIELDS)

-- Where it matters, that fields are given is tested below.
local BLOCKS = anthropic.blocks "?"

local THINKING = {
    disabled = fields.table { type = "string" },
    adaptive = fields.table { type = "string", display = "string?" },
    enabled = fields.table { type = "string", budget_tokens = "int",
                             display = "string?" },
}

local DISPLAYS = { summarized = true, omitted = true, updates = true }

local OUTPUT = fields.table { effort = "string?", format = "dict?" }

local EFFORTS = { low = true, medium = true, high = true, xhigh = true,
                  max = true }

-- ---- messages ---------------------------------------------------------------

local function kind_of(block)
    return anthropic.kind(block, BLOCKS)
end


local function unbilled(text)
    return sub(text, 1, #BILLING) ~= BILLING and text or ""
end


-- The text of a system message; "": there is none.
local function system_text(content)
    if type(content) == "string" then
        return unbilled(content)
    elseif not is_list(content) then
        unsupported "a system text that is neither text nor a list"
    end

    local texts = {}

    for i = 1, content.n do
        local kind = kind_of(content[i])
        local text = kind == "text" and get(content[i], "text")

        if text then
            texts[#texts + 1] = unbilled(text)
        end
    end

    return concat(texts)
end


local function call_of(block)
    if block.v.id == nil or block.v.id == "" then
        -- the engine makes one of its clock
        unsupported "a tool_use without an id"
    end

    -- in the order in which the chat's types have them
    return object("id", block.v.id, "function",
                  object("arguments", get(block, "input") or dict(),
                         "name", get(block, "name") or ""),
                  "type", "function")
end


local function result_of(block)
    local content = get(block, "content")
    local texts = {}

    if is_list(content) then
        for i = 1, content.n do
            if kind_of(content[i]) ~= "text" then
                unsupported "a tool_result with other blocks than text"
            end

            if content[i].v.text == NONE then
                unsupported "a tool_result with a text that is null"
            end

            texts[i] = content[i].v.text or ""
        end
    elseif type(content) == "string" then
        texts[1] = content
    elseif content ~= nil then
        unsupported "a tool_result that is neither text nor a list"
    end

    return object("role", "tool",
                  "tool_call_id", get(block, "tool_use_id") or "",
                  "content", concat(texts, "\n"))
end


-- Appends what a message becomes.
local function append_turn(_, made, role, content)
    local turn = object("role", role)
    local parts, calls, thoughts = {}, {}, {}

    if role == "system" then
        content = system_text(content)

        if content == "" then
            return
        end
    end

    if type(content) == "string" then
        dset(turn, "content", content)
        made[#made + 1] = turn

        return
    end

    for i = 1, content.n do
        local block = content[i]
        local kind = kind_of(block)

        if kind == "text" then
            local text = get(block, "text")

            if text and text ~= "" then
                parts[#parts + 1] = object("type", "text", "text", text)
            end

        elseif kind == "thinking" then
            thoughts[#thoughts + 1] = get(block, "thinking")

        elseif kind == "tool_use" then
            calls[#calls + 1] = call_of(block)

        elseif kind == "tool_result" then
            if role ~= "user" then
                unsupported "a tool_result of another role than user"
            end

            made[#made + 1] = result_of(block)
        end
    end

    if #thoughts > 0 then
        dset(turn, "reasoning", concat(thoughts))
    end

    if #calls > 0 then
        dset(turn, "tool_calls", list(calls))
    end

    if #parts == 1 then
        dset(turn, "content", parts[1].v.text)
    elseif #parts > 1 then
        dset(turn, "content", list(parts))
    end

    if role ~= "user" or #parts > 0 then
        made[#made + 1] = turn
    end
end


local WAYS = { kind = kind_of, text = system_text, between = "",
               append = append_turn }


-- The messages of the chat.
local function messages_of(o, body)
    local given = get(body, "system")

    -- as it is: only blocks of it lose the line with the bill
    if given ~= nil and type(given) ~= "string" then
        given = system_text(given)
    end

    return anthropic.messages(o, body, { given ~= "" and given or nil }, WAYS)
end


-- ---- tools and thinking -----------------------------------------------------

local function tool_of(tool, schema)
    return chat.tool_of(object(
        "name", tool.v.name, "description", tool.v.description or NONE,
        "parameters", schema, "strict", tool.v.strict))
end


-- As of a chat: "auto", "none", "required", "named"; nil: none is given.
local function choice_of(body, tools)
    local choice, name = anthropic.choice(body)

    if choice == "named" and tools and tools.n > 0 then
        chat.tool_named(tools, name)
    end

    return choice or tools and "auto" or nil
end


-- The reasoning_effort that the body asks for; nil: none.
local function effort_of(o, body)
    local effort = anthropic.effort(body, OUTPUT, EFFORTS)
    local thinking = get(body, "thinking")

    if not thinking then
        return effort
    end

    local kind = thinking.v.type
    local known = type(kind) == "string" and THINKING[kind]

    if not known then
        raise "thinking of an unknown type"
    end

    check(thinking, known, "thinking")

    if get(thinking, "display") and not DISPLAYS[thinking.v.display] then
        raise "a display of thinking that is not known"
    end

    if kind == "enabled" then
        local budget = thinking.v.budget_tokens

        if not budget or budget < 1024 then
            raise "a budget of thinking that is missing or below 1024"
        elseif budget >= body.v.max_tokens then
            unsupported "a budget of thinking that is not below max_tokens"
        end

    elseif kind == "disabled" then
        effort = o.disabled_thinking_effort
                 or unsupported("thinking that is disabled, of which the "
                                .. "engine's way with this template is not "
                                .. "known")
    end

    return effort
end


-- ---- requests ---------------------------------------------------------------

local function prepared(body, o)
    anthropic.checked(body)
    chat.checked(body)

    local messages = messages_of(o, body)
    local tools = get(body, "tools")

    tools = tools and anthropic.tools(tools, tool_of)

    return chat.rendered(o, {
        messages = messages,
        tools = chat.shown_tools(o, tools, choice_of(body, tools)),
        kwargs = chat.variables(o, options.kwargs(body, o.trusts),
                                effort_of(o, body)),
        add_generation_prompt = true,
        continue_final_message = false,
        add_special_tokens = false,
    })
end


-- The variables of the template; nil, a sentence and the kind of failure.
_M.prepare = options.preparing(prepared, BODY)


return _M
