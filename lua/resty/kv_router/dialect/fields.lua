-- Copyright (C) the nginx-kv-router authors
--
-- The fields of request bodies: what they must be so that their effect on the
-- prompt is known.
--
-- A table of fields maps a name to its kind.  A field that the table does not
-- have could change the tokens: unsupported.  So is a field of another kind than
-- the table's, since engines convert some wrong types and refuse others.  Fields
-- that never change the prompt are "any": the engine judges them.  The kinds:
--
--     boolean int string dict list     as they are called
--     null                             null alone
--     any                              whatever it is
--
-- A "?" behind the kind: null is the same as no field.

local fuel = require "resty.kv_router.template.fuel"
local value = require "resty.kv_router.template.value"

local burn = fuel.burn
local floor = math.floor
local format = string.format
local is_dict = value.is_dict
local is_list = value.is_list
local pairs = pairs
local type = type
local unsupported = value.unsupported

local NONE = value.NONE

local _M = {}

local function is_int(x)
    return type(x) == "number" and floor(x) == x
end

local function is_string(x)
    return type(x) == "string"
end

local function is_boolean(x)
    return type(x) == "boolean"
end

local KINDS = {
    boolean = is_boolean, int = is_int, string = is_string, dict = is_dict,
    list = is_list,

    null = function()
        return false
    end,

    any = function()
        return true
    end,
}

-- { name = "kind?" } → what check() takes.
function _M.table(kinds)
    local made = {}

    for name, kind in pairs(kinds) do
        local word, mark = kind:match "^(%a+)(%??)$"

        made[name] = { test = KINDS[word], word = word,
                       null = mark == "?" or word == "null" or word == "any" }
    end

    return made
end

-- Every field of a dict must be of a table.  of: whose fields these are, for
-- messages.
function _M.check(dict, fields, of)
    local names, values = dict.k, dict.v

    burn(1 + dict.n)

    for i = 1, dict.n do
        local name = names[i]
        local field = fields[name]

        if not field then
            unsupported(format("the field %q of %s", name, of))
        end

        local x = values[name]

        if x == NONE then
            if not field.null then
                unsupported(format("the field %q of %s is null", name, of))
            end

        elseif not field.test(x) then
            unsupported(format("the field %q of %s: %s", name, of,
                               field.word == "null" and "given"
                               or "no " .. field.word))
        end
    end
end

-- A table of fields that never change the prompt, whatever they are.
function _M.any(names)
    local made = {}

    for name in names:gmatch "%S+" do
        made[name] = "any"
    end

    return made
end

-- The kinds of one table, and those of another that it does not have.
function _M.with(kinds, more)
    local made = {}

    for name, kind in pairs(more) do
        made[name] = kind
    end

    for name, kind in pairs(kinds) do
        made[name] = kind
    end

    return made
end

-- A member's value; nil: there is none, or it is null.
function _M.get(dict, name)
    local x = dict.v[name]

    if x == NONE then
        return nil
    end

    return x
end

return _M
