-- Copyright (C) the nginx-kv-router authors
--
-- The fields of request bodies: what they must be so that their effect on the
-- prompt is known.
--
-- A table of fields maps a name to its kind.  A field that the table does not
-- have could change the tokens: unsupported, and so is a field of another kind
-- than the table's, since engines convert some wrong types and refuse others.
-- The kinds:
--
--     boolean int number string dict list     as they are called
--     strings  a list of strings              numbers  a list of numbers
--     weights  a dict of numbers              null     null alone
--     stop     a string or a list of strings  any      whatever it is
--     texts    a dict of strings
--
-- A "?" behind the kind: null is the same as no field.

local fuel = require "resty.kv_router.template.fuel"
local value = require "resty.kv_router.template.value"

local burn = fuel.burn
local floor = math.floor
local format = string.format
local getmetatable = getmetatable
local is_dict = value.is_dict
local is_list = value.is_list
local pairs = pairs
local type = type
local unsupported = value.unsupported

local FLOAT = value.FLOAT
local NONE = value.NONE

local _M = {}

local function is_int(x)
    return type(x) == "number" and floor(x) == x
end

local function is_number(x)
    return type(x) == "number" or getmetatable(x) == FLOAT
end

local function is_string(x)
    return type(x) == "string"
end

local function is_boolean(x)
    return type(x) == "boolean"
end

local function list_of(test)
    return function(x)
        if not is_list(x) then
            return false
        end

        for i = 1, x.n do
            if not test(x[i]) then
                return false
            end
        end

        return true
    end
end

local function dict_of(test)
    return function(x)
        if not is_dict(x) then
            return false
        end

        for i = 1, x.n do
            if not test(x.v[x.k[i]]) then
                return false
            end
        end

        return true
    end
end

local strings = list_of(is_string)

local KINDS = {
    boolean = is_boolean, int = is_int, number = is_number,
    string = is_string, dict = is_dict, list = is_list,
    strings = strings, numbers = list_of(is_number),
    weights = dict_of(is_number), texts = dict_of(is_string),

    stop = function(x)
        return is_string(x) or strings(x)
    end,

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
