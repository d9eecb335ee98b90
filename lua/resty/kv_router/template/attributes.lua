-- Copyright (C) the nginx-kv-router authors
--
-- Attributes, items and slices of values, as Jinja's sandbox gives them: x.name
-- is the attribute, else the item; x[key] is the item, else the attribute.  So
-- x.items of a dict is its method, whatever keys it has.


local operators = require "resty.kv_router.template.operators"
local fuel = require "resty.kv_router.template.fuel"
local strings = require "resty.kv_router.template.strings"
local value = require "resty.kv_router.template.value"

local at = strings.at
local burn = fuel.burn
local getmetatable = getmetatable
local gmatch = string.gmatch
local key_of = operators.key_of
local length = strings.length
local number = operators.number
local raise = value.raise
local setmetatable = setmetatable
local sub = string.sub
local type = type
local type_name = value.type_name
local unsupported = value.unsupported


local BIG = value.BIG
local DICT = value.DICT
local FLOAT = value.FLOAT
local FUNCTION = value.FUNCTION
local GENERATOR = value.GENERATOR
local LIST = value.LIST
local MACRO = value.MACRO
local MARKUP = value.MARKUP
local METHOD = value.METHOD
local NAMESPACE = value.NAMESPACE
local NONE = value.NONE
local RANGE = value.RANGE
local TUPLE = value.TUPLE
local UNDEFINED = value.UNDEFINED
local VIEW = value.VIEW


local _M = {}


local function set(names)
    local made = {}

    for name in gmatch(names, "%S+") do
        made[name] = true
    end

    return made
end


-- the public attributes of Python's types
local OF_DICT = set [[clear copy fromkeys get items keys pop popitem setdefault
    update values]]
local OF_LIST = set [[append clear copy count extend index insert pop remove
    reverse sort]]
local OF_TUPLE = set "count index"
local OF_STRING = set [[capitalize casefold center count encode endswith
    expandtabs find format format_map index isalnum isalpha isascii isdecimal
    isdigit isidentifier islower isnumeric isprintable isspace istitle isupper
    join ljust lower lstrip maketrans partition removeprefix removesuffix
    replace rfind rindex rjust rpartition rsplit rstrip split splitlines
    startswith strip swapcase title translate upper zfill]]
local OF_NUMBER = set [[as_integer_ratio bit_count bit_length conjugate
    denominator from_bytes fromhex hex imag is_integer numerator real
    to_bytes]]

-- those of generators, views, ranges, macros and functions, together
local OF_OBJECT = set [[arguments caller catch_kwargs catch_varargs close count
    explicit_caller fromkeys gi_code gi_frame gi_running gi_suspended
    gi_yieldfrom index isdisjoint mapping mro name send sep start step stop
    throw used]]

local BY_KIND = { [DICT] = OF_DICT, [LIST] = OF_LIST, [TUPLE] = OF_TUPLE }

-- their attributes are left out here
local OPAQUE = { [RANGE] = true, [GENERATOR] = true, [VIEW] = true,
                 [MACRO] = true, [FUNCTION] = true }


-- the methods of str and list, by name
_M.METHODS = { str = OF_STRING, list = OF_LIST }


local function method(object, name)
    return setmetatable({ object = object, name = name }, METHOD)
end


-- The attribute that the value's type has, or undefined.
local function own(object, name)
    local t = type(object)

    if sub(name, 1, 2) == "__" then
        unsupported("the attribute " .. name)
    end

    if t == "string" then
        return OF_STRING[name] and method(object, name) or UNDEFINED
    elseif t ~= "table" then
        if OF_NUMBER[name] then
            unsupported("the attribute " .. name .. " of a number")
        end

        return UNDEFINED
    end

    local kind = getmetatable(object)
    local names = BY_KIND[kind]

    if names then
        return names[name] and method(object, name) or UNDEFINED
    elseif kind == MARKUP and (OF_STRING[name] or name == "striptags"
                               or name == "unescape")
           or (kind == FLOAT or kind == BIG) and OF_NUMBER[name]
           or OPAQUE[kind] and (OF_OBJECT[name] or sub(name, 1, 1) == "_")
    then
        unsupported("the attribute " .. name .. " of " .. type_name(object))
    end

    return UNDEFINED
end


-- object.name
function _M.attribute(object, name)
    if type(object) == "table" then
        local kind = getmetatable(object)

        if kind == DICT and OF_DICT[name] then
            return method(object, name)

        elseif kind == DICT or kind == NAMESPACE then
            local found = object.v[name]

            if found == nil then
                return UNDEFINED
            end

            return found

        elseif object == UNDEFINED then
            raise("the attribute " .. name .. " of an undefined value")

        elseif object == NONE then
            return UNDEFINED
        end
    end

    return own(object, name)
end


local function item_of_dict(object, key)
    local kind = type(key) == "table" and getmetatable(key)

    -- a list or dict has no hash, so it is no key
    if kind == LIST or kind == DICT then
        return UNDEFINED
    end

    local known = type(key) == "string" and key or key_of(key)
    local found

    if known ~= nil then
        found = object.v[known]
    end

    if found ~= nil then
        return found
    end

    return type(known) == "string" and own(object, known) or UNDEFINED
end


-- object[key]
function _M.item(object, key)
    local kind = type(object) == "table" and getmetatable(object)

    if kind == DICT then
        return item_of_dict(object, key)
    elseif object == UNDEFINED then
        raise("an item of an undefined value")
    elseif kind == MARKUP then
        unsupported("an item of Markup")
    end

    if type(key) == "boolean" then
        key = key and 1 or 0
    end

    if type(key) == "number" then
        if type(object) == "string" then
            return at(object, key) or UNDEFINED
        elseif kind == LIST or kind == TUPLE or kind == RANGE then
            local found = object[key < 0 and key + object.n + 1 or key + 1]

            return found == nil and UNDEFINED or found
        end

        return UNDEFINED
    elseif getmetatable(key) == MARKUP then
        key = key.s
    end

    if type(key) ~= "string" then
        return UNDEFINED
    elseif kind == NAMESPACE then
        return _M.attribute(object, key)
    end

    return own(object, key)
end


-- ---- slices -----------------------------------------------------------------

-- A bound of a slice over n elements; default, of one that is not given;
-- backwards: the step is below 0.
local function bound(x, default, n, backwards)
    if x == nil or x == NONE then
        return default
    end

    local i, as_float = number(x)

    if not i or as_float then
        raise("slice indices must be integers or None")
    end

    if i < 0 then
        i = i + n

        if i < 0 then
            i = backwards and -1 or 0
        end

    elseif i > n then
        i = n
    end

    if backwards and i >= n then
        i = n - 1
    end

    return i
end


-- object[from:to:step]; what is not given is nil.
function _M.slice(object, from, to, step)
    local kind = type(object) == "table" and getmetatable(object)
    local by = 1
    local n

    if type(object) == "string" then
        n = length(object)
    elseif kind == LIST or kind == TUPLE then
        n = object.n
    elseif kind == RANGE or kind == MARKUP then
        unsupported("a slice of " .. type_name(object))
    else
        raise("a slice of " .. type_name(object))
    end

    if step ~= nil and step ~= NONE then
        local as_float

        by, as_float = number(step)

        if not by or as_float then
            raise("slice indices must be integers or None")
        elseif by == 0 then
            raise("slice step cannot be zero")
        end
    end

    local first, last

    if by > 0 then
        first, last = bound(from, 0, n), bound(to, n, n)
    else
        first, last = bound(from, n - 1, n, true), bound(to, -1, n, true)
    end

    if not kind then
        if by == 1 then
            return strings.range(object, first, last)
        end

        return strings.stepped(object, first, last, by)
    end

    local made, m = {}, 0

    for i = first, by > 0 and last - 1 or last + 1, by do
        m = m + 1
        made[m] = object[i + 1]
    end

    burn(m)
    made.n = m

    return setmetatable(made, kind)
end


-- ---- namespaces -------------------------------------------------------------

-- Names that a namespace may not have: from transformers 5.23 on, those with an
-- underscore in front.
_M.private_names = true


function _M.check_name(name)
    if _M.private_names == false and sub(name, 1, 1) == "_" then
        raise("a namespace's attribute " .. name)
    end
end


-- object.name = val
function _M.set(object, name, val)
    if type(object) ~= "table" or getmetatable(object) ~= NAMESPACE then
        raise("cannot assign attribute on non-namespace object")
    end

    _M.check_name(name)
    object.v[name] = val
end


-- ---- paths ------------------------------------------------------------------

-- The function behind attribute= of filters: "a.b.0", or an index.
function _M.getter(path)
    local item = _M.item

    if type(path) == "number" then
        return function(x) return item(x, path) end
    elseif type(path) ~= "string" then
        unsupported("an attribute's name of " .. type_name(path))
    end

    local parts = {}

    for part in gmatch(path .. ".", "([^.]*)%.") do
        parts[#parts + 1] = string.find(part, "^%d+$") and tonumber(part)
                            or part
    end

    return function(x)
        for i = 1, #parts do
            x = item(x, parts[i])
        end

        return x
    end
end


return _M
