-- Copyright (C) the nginx-kv-router authors
--
-- Jinja's filters of sequences: functions of the value and of the filter's
-- arguments, nil: not given.  filters.lua has the others.


local attributes = require "resty.kv_router.template.attributes"
local case = require "resty.kv_router.template.case"
local fuel = require "resty.kv_router.template.fuel"
local methods = require "resty.kv_router.template.methods"
local operators = require "resty.kv_router.template.operators"
local printer = require "resty.kv_router.template.printer"
local strings = require "resty.kv_router.template.strings"
local value = require "resty.kv_router.template.value"

local burn = fuel.burn
local eq = operators.eq
local find = string.find
local getmetatable = getmetatable
local getter = attributes.getter
local list = value.list
local lt = operators.lt
local raise = value.raise
local sequence = operators.sequence
local setmetatable = setmetatable
local sort = table.sort
local str = printer.str
local truth = operators.truth
local type = type
local type_name = value.type_name
local unsupported = value.unsupported


local DICT = value.DICT
local GENERATOR = value.GENERATOR
local LIST = value.LIST
local MARKUP = value.MARKUP
local NONE = value.NONE
local RANGE = value.RANGE
local TUPLE = value.TUPLE
local UNDEFINED = value.UNDEFINED
local VIEW = value.VIEW


local _S = {}


local function is(x, kind)
    return type(x) == "table" and getmetatable(x) == kind
end


-- A generator of the n elements made[1 .. n].
local function generator(made, n)
    made.n = n

    return setmetatable(made, GENERATOR)
end


local function given(x)
    if x ~= NONE then
        return x
    end
end


local function flag(x)
    return x ~= nil and truth(x)
end


function _S.length(x)
    local t = type(x)

    if t == "string" then
        return strings.length(x)
    elseif x == UNDEFINED then
        return 0
    elseif t == "table" then
        local kind = getmetatable(x)

        if kind == MARKUP then
            return strings.length(x.s)
        elseif kind == DICT or kind == LIST or kind == TUPLE or kind == RANGE
               or kind == VIEW
        then
            return x.n
        end
    end

    return raise("object of type '" .. type_name(x) .. "' has no len()")
end


_S.count = _S.length


function _S.default(x, default, boolean)
    if x == UNDEFINED or (flag(boolean) and not truth(x)) then
        if default == nil then
            return ""
        end

        return default
    end

    return x
end


_S.d = _S.default


function _S.items(x)
    if x == UNDEFINED then
        return generator({}, 0)
    elseif not is(x, DICT) then
        raise("Can only get item pairs from a mapping.")
    end

    return generator(methods.pairs(x))
end


function _S.list(x)
    local elements, n = sequence(x)
    local made = {}

    burn(n)

    for i = 1, n do
        made[i] = elements[i]
    end

    return list(made, n)
end


local function keyed(attribute, filter)
    attribute = given(attribute)

    if attribute == nil then
        return nil
    elseif type(attribute) == "string" and find(attribute, ",", 1, true) then
        unsupported(filter .. " by several attributes")
    end

    return getter(attribute)
end


function _S.join(x, separator, attribute)
    local elements, n = sequence(x)
    local get = keyed(attribute, "join")
    local made = {}

    separator = separator == nil and "" or str(separator)
    burn(n)

    for i = 1, n do
        local x_i = elements[i]

        if get then
            x_i = get(x_i)
        end

        made[i] = str(x_i)
    end

    return strings.join(made, n, separator)
end


function _S.first(x)
    if is(x, GENERATOR) and not x.used then
        unsupported("first of a generator")
    end

    local elements, n = sequence(x)

    return n == 0 and UNDEFINED or elements[1]
end


function _S.last(x)
    if is(x, GENERATOR) then
        raise("'generator' object is not reversible")
    end

    local elements, n = sequence(x)

    return n == 0 and UNDEFINED or elements[n]
end


-- ---- orders -----------------------------------------------------------------

-- What strings are compared by: in lower case, unless case counts.
local function folded(x, sensitive)
    if type(x) == "string" and not sensitive then
        return case.lower(x)
    end

    return x
end


-- The elements in the order of their keys, stable; listed: equal keys are not
-- compared further, as Python does with lists of one key.
local function in_order(elements, n, key, reverse, listed)
    local places, keys, made = {}, {}, {}

    burn(4 * n)

    for i = 1, n do
        places[i] = i
        keys[i] = key(elements[i])
    end

    -- equal ones keep their order, reversed or not
    sort(places, function(a, b)
        local x, y = keys[a], keys[b]

        if reverse then
            x, y = y, x
        end

        if listed and eq(x, y) then
            return a < b
        elseif lt(x, y) then
            return true
        elseif lt(y, x) then
            return false
        end

        return a < b
    end)

    if n == 1 then
        return { elements[1] }, 1
    end

    for i = 1, n do
        made[i] = elements[places[i]]
    end

    return made, n
end


function _S.dictsort(x, case_sensitive, by, reverse)
    if not is(x, DICT) then
        raise("dictsort of " .. type_name(x))
    end

    by = by == nil and "key" or by

    if by ~= "key" and by ~= "value" then
        raise('You can only sort by either "key" or "value"')
    end

    local sensitive, place = flag(case_sensitive), by == "key" and 1 or 2
    local pairs_of, n = methods.pairs(x)

    return list(in_order(pairs_of, n, function(pair)
        return folded(pair[place], sensitive)
    end, flag(reverse)))
end


function _S.sort(x, reverse, case_sensitive, attribute)
    local elements, n = sequence(x)
    local get, sensitive = keyed(attribute, "sort"), flag(case_sensitive)

    return list(in_order(elements, n, function(element)
        if get then
            element = get(element)
        end

        return folded(element, sensitive)
    end, flag(reverse), true))
end


function _S.unique(x, case_sensitive, attribute)
    local elements, n = sequence(x)
    local get, sensitive = keyed(attribute, "unique"), flag(case_sensitive)
    local made, m, seen = {}, 0, {}

    burn(n)

    for i = 1, n do
        local key = elements[i]

        if get then
            key = get(key)
        end

        key = folded(key, sensitive)

        if key == UNDEFINED then
            unsupported("unique of undefined values")
        end

        key = operators.key_of(key)

        if key == nil then
            unsupported("unique of these values")
        elseif not seen[key] then
            seen[key] = true
            m = m + 1
            made[m] = elements[i]
        end
    end

    return generator(made, m)
end


local function extreme(filter, before)
    return function(x, case_sensitive, attribute)
        local elements, n = sequence(x)
        local get, sensitive = keyed(attribute, filter), flag(case_sensitive)
        local best, best_key

        burn(n)

        for i = 1, n do
            local key = elements[i]

            if get then
                key = get(key)
            end

            key = folded(key, sensitive)

            if i == 1 or before(key, best_key) then
                best, best_key = elements[i], key
            end
        end

        return n == 0 and UNDEFINED or best
    end
end


_S.min = extreme("min", lt)
_S.max = extreme("max", function(a, b) return lt(b, a) end)


return _S
