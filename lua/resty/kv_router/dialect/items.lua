-- Copyright (C) the nginx-kv-router authors
--
-- What bodies of responses have in common for all engines: the items of the
-- input that are understood (messages, calls and their outputs, reasoning),
-- each with the fields that OpenAI's API has, and fields that do not reach the
-- prompt.


local fields = require "resty.kv_router.dialect.fields"
local value = require "resty.kv_router.template.value"

local check = fields.check
local format = string.format
local get = fields.get
local is_dict = value.is_dict
local is_list = value.is_list
local object = value.object
local raise = value.raise
local type = type
local unsupported = value.unsupported

local NONE = value.NONE


local _M = {}


local ITEMS = {
    message = fields.table {
        type = "string", role = "string", content = "any", id = "string",
        status = "string",
    },
    function_call = fields.table {
        type = "string", call_id = "string", name = "string",
        arguments = "string", id = "string", status = "string",
    },
    function_call_output = fields.table {
        type = "string", call_id = "string", output = "any", id = "string",
        status = "string",
    },
    reasoning = fields.table {
        type = "string", id = "string", summary = "list", content = "list?",
        encrypted_content = "string?", status = "string",
    },
}

local REQUIRED = {
    message = { "role", "content" },
    function_call = { "call_id", "name", "arguments" },
    function_call_output = { "call_id", "output" },
    reasoning = { "summary" },
}

local INPUT = fields.table { type = "string", text = "string" }
local OUTPUT = fields.table {
    type = "string", text = "string", annotations = "list", logprobs = "list",
}

local ROLES = { user = true, system = true, developer = true,
                assistant = true }
local STATUS = { in_progress = true, completed = true, incomplete = true }


-- "message" of a client, "said" of the assistant in parts, or the item's type.
function _M.kind(item)
    local kind = item.v.type or "message"

    if kind == "message" and item.v.role == "assistant"
       and is_list(item.v.content)
    then
        return "said"
    end

    return kind
end


-- The text of a part that must be of that type.
function _M.text(part, kind)
    if not is_dict(part) or part.v.type ~= kind
       or type(part.v.text) ~= "string" or part.n ~= 2
    then
        unsupported(format("a part that is no %s", kind))
    end

    return part.v.text
end


local function checked_parts(item, kind)
    local content = item.v.content

    if type(content) == "string" then
        return
    elseif not is_list(content) then
        unsupported "a content that is neither text nor a list"
    end

    local fields_of, wanted = INPUT, "input_text"

    if kind == "said" then
        fields_of, wanted = OUTPUT, "output_text"

        if item.v.type == nil or content.n == 0 then
            unsupported "an assistant's message of another form"
        end
    end

    for i = 1, content.n do
        local part = content[i]

        if not is_dict(part) or part.v.type ~= wanted or part.v.text == nil
        then
            unsupported(format("a part that is no %s", wanted))
        end

        check(part, fields_of, "a part")

        if (part.v.annotations and part.v.annotations.n > 0)
           or (part.v.logprobs and part.v.logprobs.n > 0)
        then
            unsupported "a part with annotations or logprobs"
        end
    end
end


local function checked_item(item)
    if not is_dict(item) then
        unsupported "an item that is no object"
    end

    local name = item.v.type or "message"
    local known = type(name) == "string" and ITEMS[name]

    if not known then
        unsupported(format("an item of the type %s",
                           type(name) == "string" and name or "unknown"))
    end

    check(item, known, "an item")

    local required = REQUIRED[name]

    for i = 1, #required do
        local x = item.v[required[i]]

        if x == nil or x == NONE then
            unsupported(format("an item of the type %s without %s", name,
                               required[i]))
        end
    end

    if get(item, "status") and not STATUS[item.v.status] then
        unsupported "an item of another status"
    end

    if name == "message" then
        if not ROLES[item.v.role] then
            unsupported(format("an item of the role %s", item.v.role))
        end

        checked_parts(item, _M.kind(item))

    elseif name == "reasoning" then
        for i = 1, item.v.summary.n do
            _M.text(item.v.summary[i], "summary_text")
        end

        local content = get(item, "content")

        for i = 1, content and content.n or 0 do
            _M.text(content[i], "reasoning_text")
        end
    end
end


-- The input of a body must be text, or items that are understood.
function _M.check(body)
    local input = body.v.input

    if body.v.background == true then
        unsupported "a response in the background"
    elseif input == nil or input == NONE then
        raise "a body without input"
    elseif type(input) == "string" then
        return
    elseif not is_list(input) then
        unsupported "an input that is neither text nor a list"
    end

    for i = 1, input.n do
        checked_item(input[i])
    end
end


-- The first messages of a body, a table: its instructions, and its input where
-- that is text; and the input where that is a list.
function _M.begun(body)
    local instructions, input = get(body, "instructions"), body.v.input
    local made = {}

    if instructions and instructions ~= "" then
        made[1] = object("role", "system", "content", instructions)
    end

    if type(input) == "string" then
        made[#made + 1] = object("role", "user", "content", input)

        return made, nil
    end

    return made, input
end


return _M
