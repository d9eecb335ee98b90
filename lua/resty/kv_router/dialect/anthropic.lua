-- Copyright (C) the nginx-kv-router authors
--
-- What bodies of Anthropic's API have in common for all engines: their fields,
-- messages, tools and choices.


local fields = require "resty.kv_router.dialect.fields"
local value = require "resty.kv_router.template.value"

local check = fields.check
local concat = table.concat
local dict = value.dict
local dset = value.dset
local dset_all = value.dset_all
local format = string.format
local get = fields.get
local is_dict = value.is_dict
local is_list = value.is_list
local list = value.list
local object = value.object
local raise = value.raise
local type = type
local unsupported = value.unsupported

local NONE = value.NONE


local _M = {}


_M.FIELDS = fields.with({
    model = "string", messages = "list", max_tokens = "int",
    metadata = "dict?", output_config = "dict?", thinking = "dict?",
    stream = "boolean?", system = "any", tool_choice = "dict?",
    tools = "list?", container = "null", mcp_servers = "null",
}, fields.any [[
    context_management service_tier stop_sequences temperature top_k top_p
]])

local MESSAGE = fields.table { role = "string", content = "any" }

local CHOICE = fields.table {
    type = "string", name = "string?", disable_parallel_tool_use = "boolean?",
}

local CHOICES = { auto = "auto", any = "required", none = "none",
                  tool = "named" }

local TOOL = fields.table {
    name = "string", description = "string?", input_schema = "dict",
    strict = "boolean?", cache_control = "any", type = "any",
    eager_input_streaming = "any", defer_loading = "null",
}

local FORMAT = fields.table { type = "string", schema = "dict" }


-- The kinds of blocks with their fields.  mark: "?" where null is no value.
function _M.blocks(mark)
    return {
        text = fields.table {
            type = "string", text = "string" .. mark, cache_control = "any",
            citations = "any" },
        thinking = fields.table {
            type = "string", thinking = "string" .. mark,
            signature = "string?", cache_control = "any" },
        redacted_thinking = fields.table {
            type = "string", data = "string?", cache_control = "any" },
        tool_use = fields.table {
            type = "string", id = "string", name = "string" .. mark,
            input = "dict" .. mark, cache_control = "any", caller = "any" },
        tool_result = fields.table {
            type = "string", tool_use_id = "string?", content = "any",
            is_error = "boolean?", cache_control = "any" },
    }
end


-- The kind of a block, which must be one of these.
function _M.kind(block, blocks)
    local kind = is_dict(block) and block.v.type
    local known = type(kind) == "string" and blocks[kind]

    if not known then
        unsupported(format("a block of the type %s",
                           type(kind) == "string" and kind or "unknown"))
    end

    check(block, known, "a block")

    return kind
end


-- What a body must have.
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


local function checked_turn(turn, kind_of)
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
            kind_of(content[i])
        end
    elseif type(content) ~= "string" then
        unsupported "a content that is neither text nor a list"
    end
end


-- The messages of the chat.  system: the texts of the body's system, a table.
-- how, an engine's ways: kind(block), which fails unless it is known;
-- text(content) of a system message, "" for none; between such texts; append(o,
-- made, role, content), which appends what a message becomes.
function _M.messages(o, body, system, how)
    local turns, made = body.v.messages, {}
    local merge = o.probed.merge_inline_system

    for i = 1, turns.n do
        checked_turn(turns[i], how.kind)

        if turns[i].v.role == "system" then
            if merge == nil then
                unsupported("a system message among others, of which the "
                            .. "engine's way with this template is not known")
            elseif merge then
                local text = how.text(turns[i].v.content)

                system[#system + 1] = text ~= "" and text or nil
            end
        end
    end

    if #system > 0 then
        made[1] = object("role", "system",
                         "content", concat(system, how.between))
    end

    for i = 1, turns.n do
        local role = turns[i].v.role

        if role ~= "system" or not merge then
            how.append(o, made, role, turns[i].v.content)
        end
    end

    return list(made)
end


-- A schema without a type is that of an object.
local function schema_of(given)
    if given.v.type ~= nil then
        return given
    end

    local made = dset_all(dict(), given)

    dset(made, "type", "object")

    return made
end


-- The tools: a list of what make(tool, schema) makes of each.
function _M.tools(given, make)
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

        made[i] = make(tool, schema_of(tool.v.input_schema))
    end

    return list(made, given.n)
end


-- As of a chat: "auto", "none", "required", or "named" and a name; nil: none is
-- given.
function _M.choice(body)
    local given = get(body, "tool_choice")

    if given == nil then
        return nil
    end

    check(given, CHOICE, "tool_choice")

    local choice = CHOICES[given.v.type or ""]

    if not choice then
        raise "a tool_choice of an unknown type"
    elseif choice == "named" and (get(given, "name") or "") == "" then
        raise "a tool_choice without a name"
    end

    return choice, given.v.name
end


-- The output_config, whose effort must be one of these: the effort, and whether
-- there is a form of the answer, which the prompt does not show; nil: none.
function _M.effort(body, known, efforts)
    local given = get(body, "output_config")

    if not given then
        return nil
    end

    check(given, known, "output_config")

    local effort, wanted = get(given, "effort"), get(given, "format")

    if wanted then
        check(wanted, FORMAT, "output_config.format")

        if wanted.v.type ~= "json_schema" or wanted.v.schema == nil then
            unsupported "an output_config.format of another form"
        end
    end

    if effort and not efforts[effort] then
        raise(format("the effort %q", effort))
    end

    return effort, wanted ~= nil
end


return _M
