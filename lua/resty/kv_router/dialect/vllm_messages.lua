-- Copyright (C) the nginx-kv-router authors
--
-- vLLM's /v1/messages, Anthropic's API: from a body to the variables of the
-- chat template, as vLLM 0.32 makes them (anthropic/serving.py,
-- anthropic/protocol.py): the body becomes that of a chat.


local chat = require "resty.kv_router.dialect.vllm_chat"
local fields = require "resty.kv_router.dialect.fields"
local kwargs = require "resty.kv_router.dialect.kwargs"
local options = require "resty.kv_router.dialect.options"
local value = require "resty.kv_router.template.value"

local check = fields.check
local concat = table.concat
local dict = value.dict
local dset = value.dset
local format = string.format
local get = fields.get
local is_dict = value.is_dict
local is_list = value.is_list
local list = value.list
local raise = value.raise
local sub = string.sub
local type = type
local unsupported = value.unsupported

local NONE = value.NONE
local BILLING = chat.BILLING


local _M = {}


-- ---- what is known ----------------------------------------------------------

_M.FIELDS = {
    model = "string", messages = "list", max_tokens = "int",
    metadata = "dict?", output_config = "dict?", thinking = "dict?",
    stop_sequences = "strings?", stream = "boolean?", system = "any",
    temperature = "number?", tool_choice = "dict?", tools = "list?",
    top_k = "int?", top_p = "number?", cache_salt = "string?",
    watermarking = "boolean?", kv_transfer_params = "any",
    ec_transfer_params = "null", vllm_xargs = "null",
    chat_template_kwargs = "dict?",
    -- not vLLM's: it ignores them
    betas = "any", service_tier = "any", container = "null",
    context_management = "any", mcp_servers = "null",
}

local BODY = fields.table(_M.FIELDS)

local MESSAGE = fields.table { role = "string", content = "any" }

-- Fields of blocks.  Where it matters, that they are given is tested below.
local BLOCKS = {
    text = fields.table {
        type = "string", text = "string?", cache_control = "any",
        citations = "any" },
    thinking = fields.table {
        type = "string", thinking = "string?", signature = "string?",
        cache_control = "any" },
    redacted_thinking = fields.table {
        type = "string", data = "string?", cache_control = "any" },
    tool_use = fields.table {
        type = "string", id = "string", name = "string?", input = "dict?",
        cache_control = "any", caller = "any" },
    tool_result = fields.table {
        type = "string", tool_use_id = "string?", content = "any",
        is_error = "boolean?", cache_control = "any" },
}

local TOOL = fields.table {
    name = "string", description = "string?", input_schema = "dict",
    strict = "boolean?", cache_control = "any", type = "any",
    eager_input_streaming = "any", defer_loading = "null",
}

local CHOICE = fields.table {
    type = "string", name = "string?", disable_parallel_tool_use = "boolean?",
}

local THINKING = {
    disabled = fields.table { type = "string" },
    adaptive = fields.table { type = "string", display = "string?" },
    enabled = fields.table { type = "string", budget_tokens = "int",
                             display = "string?" },
}

local DISPLAYS = { summarized = true, omitted = true, updates = true }

local OUTPUT = fields.table { effort = "string?", format = "dict?" }

local FORMAT = fields.table { type = "string", schema = "dict" }

local EFFORTS = { low = true, medium = true, high = true, xhigh = true,
                  max = true }

local CHOICES = { auto = "auto", any = "required", none = "none",
                  tool = "named" }


-- ---- messages ---------------------------------------------------------------

local function message(role)
    local made = dict()

    dset(made, "role", role)

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

    return kind
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
        local kind = checked_block(content[i])
        local text = kind == "text" and get(content[i], "text")

        if text then
            texts[#texts + 1] = unbilled(text)
        end
    end

    return concat(texts)
end


local function call_of(block)
    local call, of = dict(), dict()

    if block.v.id == nil or block.v.id == "" then
        -- the engine makes one of its clock
        unsupported "a tool_use without an id"
    end

    -- in the order in which the chat's types have them
    dset(of, "arguments", get(block, "input") or dict())
    dset(of, "name", get(block, "name") or "")
    dset(call, "id", block.v.id)
    dset(call, "function", of)
    dset(call, "type", "function")

    return call
end


local function result_of(block)
    local content = get(block, "content")
    local made = message "tool"
    local texts = {}

    if is_list(content) then
        for i = 1, content.n do
            if checked_block(content[i]) ~= "text" then
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

    dset(made, "tool_call_id", get(block, "tool_use_id") or "")
    dset(made, "content", concat(texts, "\n"))

    return made
end


-- Appends what a user's or an assistant's message becomes.
local function append_turn(made, role, content)
    local turn = message(role)
    local parts, calls, thoughts = {}, {}, {}

    if type(content) == "string" then
        dset(turn, "content", content)
        made[#made + 1] = turn

        return
    elseif not is_list(content) then
        unsupported "a content that is neither text nor a list"
    end

    for i = 1, content.n do
        local block = content[i]
        local kind = checked_block(block)

        if kind == "text" then
            local text = get(block, "text")

            if text and text ~= "" then
                local part = dict()

                dset(part, "type", "text")
                dset(part, "text", text)
                parts[#parts + 1] = part
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
    end
end


-- The messages of the chat.
local function messages_of(o, body)
    local turns, made, system = body.v.messages, {}, {}
    local merge = o.probed.merge_inline_system
    local given = get(body, "system")

    if type(given) == "string" then
        -- as it is: only blocks of it lose the line with the bill
        system[1] = given ~= "" and given or nil
    elseif given ~= nil then
        local text = system_text(given)

        system[1] = text ~= "" and text or nil
    end

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
        made[1] = message "system"
        dset(made[1], "content", concat(system))
    end

    for i = 1, turns.n do
        local role, content = turns[i].v.role, turns[i].v.content

        if role ~= "system" then
            append_turn(made, role, content)
        elseif not merge then
            local text = system_text(content)

            if text ~= "" then
                made[#made + 1] = message "system"
                dset(made[#made], "content", text)
            end
        end
    end

    return list(made)
end


-- ---- tools and thinking -----------------------------------------------------

-- A schema without a type is that of an object.
function _M.schema_of(given)
    if given.v.type ~= nil then
        return given
    end

    local made = dict()

    for i = 1, given.n do
        dset(made, given.k[i], given.v[given.k[i]])
    end

    dset(made, "type", "object")

    return made
end


local function tools_of(given)
    local made = {}

    for i = 1, given.n do
        local tool = given[i]

        if not is_dict(tool) then
            raise "a tool that is no object"
        end

        check(tool, TOOL, "a tool")

        if tool.v.name == nil or tool.v.input_schema == nil then
            raise "a tool without name or input_schema"
        elseif get(tool, "type") ~= nil and tool.v.type ~= "custom" then
            unsupported "a tool of another type than custom"
        end

        local of = dict()

        dset(of, "name", tool.v.name)
        dset(of, "description", tool.v.description or NONE)
        dset(of, "parameters", _M.schema_of(tool.v.input_schema))
        dset(of, "strict", tool.v.strict == nil and NONE or tool.v.strict)

        made[i] = chat.tool_of(of)
    end

    return list(made, given.n)
end


-- As of a chat: "auto", "none", "required", "named"; nil: none is given.
local function choice_of(body, tools)
    local given = get(body, "tool_choice")

    if given == nil then
        return tools and "auto" or nil
    end

    check(given, CHOICE, "tool_choice")

    local choice = CHOICES[given.v.type or ""]

    if not choice then
        raise "a tool_choice of an unknown type"
    elseif choice == "named" then
        if (get(given, "name") or "") == "" then
            raise "a tool_choice without a name"
        elseif tools and tools.n > 0 then
            chat.tool_named(tools, given.v.name)
        end
    end

    return choice
end


-- The form of the answer, which the prompt does not show.
function _M.checked_format(given)
    if given == nil then
        return
    end

    check(given, FORMAT, "output_config.format")

    if given.v.type ~= "json_schema" or given.v.schema == nil then
        unsupported "an output_config.format of another form"
    end
end


-- The reasoning_effort that the body asks for; nil: none.
local function effort_of(o, body)
    local output, thinking = get(body, "output_config"), get(body, "thinking")
    local effort

    if output then
        check(output, OUTPUT, "output_config")
        effort = get(output, "effort")
        _M.checked_format(get(output, "format"))

        if effort and not EFFORTS[effort] then
            raise(format("the effort %q", effort))
        end
    end

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

-- What Anthropic's bodies must have.
function _M.checked(body)
    local most = body.v.max_tokens

    if body.v.model == nil or body.v.model == "" then
        raise "a body without a model"
    elseif body.v.messages == nil then
        raise "a body without messages"
    elseif most == nil or most <= 0 then
        raise "max_tokens that is missing or not positive"
    end
end


local function prepared(body, given)
    if not is_dict(body) then
        raise "a body that is no object"
    end

    check(body, BODY, "the body")
    _M.checked(body)
    chat.checked(body)

    local o = options.read(given)
    local messages = messages_of(o, body)
    local tools = get(body, "tools")

    tools = tools and tools_of(tools)

    return chat.rendered(o, {
        messages = messages,
        tools = chat.shown_tools(o, tools, choice_of(body, tools)),
        kwargs = chat.variables(o, kwargs.of(body, o.trusts),
                                effort_of(o, body)),
        add_generation_prompt = true,
        continue_final_message = false,
        add_special_tokens = false,
    })
end


-- The variables of the template; nil, a sentence and the kind of failure.
_M.prepare = fields.preparing(prepared)


return _M
