-- Copyright (C) the nginx-kv-router authors
--
-- The tools of bodies: of chats and of responses, and the choice among them.


local fields = require "resty.kv_router.dialect.fields"
local value = require "resty.kv_router.template.value"

local check = fields.check
local is_dict = value.is_dict
local is_list = value.is_list
local list = value.list
local raise = value.raise
local type = type
local unsupported = value.unsupported


local _M = {}


local TOOL = fields.table {
    type = "string", ["function"] = "dict", cache_control = "any",
    defer_loading = "null",
}

local FUNCTION = fields.table {
    name = "string", description = "string?", parameters = "dict?",
    strict = "boolean?", defer_loading = "null",
}

local FLAT = fields.table {
    type = "string", name = "string", description = "string?",
    parameters = "dict?", strict = "boolean?",
}

_M.CHOICES = { auto = true, none = true, required = true }


-- The tools of a chat: a list of what make(function, tool) makes of each.
function _M.of_chat(given, make)
    local made = {}

    for i = 1, given.n do
        local tool = given[i]

        if not is_dict(tool) or not is_dict(tool.v["function"]) then
            raise "a tool without a function"
        end

        check(tool, TOOL, "a tool")

        local of = tool.v["function"]

        check(of, FUNCTION, "a tool's function")

        if of.v.name == nil then
            raise "a tool without a name"
        end

        made[i] = make(of, tool)
    end

    return list(made, given.n)
end


-- The tools of a response: a list of what make(tool) makes of each; nil: none.
function _M.of_response(given, make)
    local made = {}

    for i = 1, given and given.n or 0 do
        local tool = given[i]

        if not is_dict(tool) or tool.v.type ~= "function" then
            unsupported "a tool of another type than function"
        end

        check(tool, FLAT, "a tool")

        if tool.v.name == nil then
            raise "a tool without a name"
        end

        made[i] = make(tool)
    end

    return #made > 0 and list(made) or nil
end


-- The choice of a chat that names a tool, that tool's name.
function _M.named(choice)
    local of = is_dict(choice) and choice.v["function"]
    local name = is_dict(of) and of.v.name
    local kind = is_dict(choice) and choice.v.type

    if type(name) ~= "string" or kind ~= nil and kind ~= "function" then
        unsupported "a tool_choice of another form"
    end

    return name
end


-- The choice of a response: "auto", "none", "required", or "named" and a name.
function _M.choice_of_response(choice)
    if choice == nil then
        return "auto"
    elseif _M.CHOICES[choice] then
        return choice
    end

    if not is_dict(choice) or choice.v.type ~= "function" or choice.n ~= 2
       or type(choice.v.name) ~= "string" or choice.v.name == ""
    then
        unsupported "a tool_choice of another form"
    end

    return "named", choice.v.name
end


-- ---- schemas ----------------------------------------------------------------

-- SGLang writes some names of types otherwise: a schema with other types than
-- those of JSON Schema's draft 2020-12 is unsupported.

local TYPES = { string = true, number = true, integer = true, object = true,
                array = true, boolean = true, null = true }


-- Fails unless each type in a value is one of the draft's.
local function check_types(x, of_type)
    if type(x) == "string" and of_type and not TYPES[x] then
        unsupported '"type" of a tool\'s schema'

    elseif is_list(x) then
        for i = 1, x.n do
            check_types(x[i], of_type)
        end

    elseif is_dict(x) then
        for i = 1, x.n do
            check_types(x.v[x.k[i]], x.k[i] == "type")
        end
    end
end


-- Fails unless SGLang shows the parameters of a tool as they are; nil: none.
function _M.check_schema(parameters)
    check_types(parameters, false)
end


return _M
