-- Copyright (C) the nginx-kv-router authors
--
-- Jinja's filters: functions of the value and of the filter's arguments, nil:
-- not given.  A filter that Jinja has and that is not here is not supported.


local attributes = require "resty.kv_router.template.attributes"
local case = require "resty.kv_router.template.case"
local fuel = require "resty.kv_router.template.fuel"
local methods = require "resty.kv_router.template.methods"
local operators = require "resty.kv_router.template.operators"
local printer = require "resty.kv_router.template.printer"
local strings = require "resty.kv_router.template.strings"
local tests = require "resty.kv_router.template.tests"
local value = require "resty.kv_router.template.value"

local burn = fuel.burn
local eq = operators.eq
local find = string.find
local floor = math.floor
local getmetatable = getmetatable
local getter = attributes.getter
local gsub = string.gsub
local huge = math.huge
local list = value.list
local lt = operators.lt
local markup = operators.markup
local number = operators.number
local raise = value.raise
local rep = string.rep
local result = operators.result
local sequence = operators.sequence
local setmetatable = setmetatable
local sort = table.sort
local spend = fuel.string
local str = printer.str
local sub = string.sub
local tonumber = tonumber
local truth = operators.truth
local type = type
local type_name = value.type_name
local unsupported = value.unsupported


local BIG = value.BIG
local DICT = value.DICT
local GENERATOR = value.GENERATOR
local LIST = value.LIST
local MARKUP = value.MARKUP
local NONE = value.NONE
local RANGE = value.RANGE
local TUPLE = value.TUPLE
local UNDEFINED = value.UNDEFINED
local VIEW = value.VIEW


local _M = {}
local _F = {}

_M.named = _F       -- the filters by their names

-- The arguments of each filter behind its value, in order.
_M.ARGUMENTS = {
    capitalize = {}, default = { "default_value", "boolean" }, dictsort = {},
    first = {}, indent = { "width", "first" }, int = {}, items = {},
    join = { "d" }, last = {}, length = {}, list = {}, lower = {}, max = {},
    min = {}, replace = { "old", "new" }, safe = {},
    sort = { "reverse", "case_sensitive", "attribute" }, string = {},
    title = {}, tojson = { "ensure_ascii", "indent", "separators" }, trim = {},
    unique = {}, upper = {},
}
_M.ARGUMENTS.count = _M.ARGUMENTS.length
_M.ARGUMENTS.d = _M.ARGUMENTS.default

-- filters with arguments of their own: map, select, ... are of generator.lua
_M.OTHERS = { map = true, select = true, reject = true, selectattr = true,
              rejectattr = true }


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


-- A str that is no Markup: of Markup most filters make Markup again.
local function plain(x)
    if is(x, MARKUP) then
        unsupported("a filter on Markup")
    end

    return type(x) == "string" and x or str(x)
end


-- ---- strings ----------------------------------------------------------------

function _F.string(x)
    return is(x, MARKUP) and x or str(x)
end


function _F.safe(x)
    return is(x, MARKUP) and x or markup(str(x))
end


function _F.upper(x)
    return case.upper(plain(x))
end


function _F.lower(x)
    return case.lower(plain(x))
end


function _F.capitalize(x)
    return case.capitalize(plain(x))
end


-- Words begin behind white space, "-" and opening brackets.
function _F.title(x)
    local s = case.ascii(plain(x), "title")

    burn(#s / 32)

    return (gsub(s, "[^%-%s\28-\31({%[<]+", case.capitalize))
end


function _F.trim(x)
    return strings.strip(plain(x), nil, true, true)
end


function _F.replace(x, part, by)
    if part == nil or by == nil then
        raise("replace: two arguments are wanted")
    end

    return strings.replace(plain(x), plain(part), plain(by))
end


function _F.indent(x, width, first)
    local n = width == nil and 4 or width

    if type(x) ~= "string" or type(n) ~= "number" then
        unsupported("indent of " .. type_name(x) .. " by " .. type_name(n))
    end

    local lines = strings.lines(x .. "\n")

    spend(n * lines.n)

    local pad = rep(" ", n)

    for i = flag(first) and 1 or 2, lines.n do
        if lines[i] ~= "" or i == 1 then
            lines[i] = pad .. lines[i]
        end
    end

    return strings.join(lines, lines.n, "\n")
end


function _F.tojson(x, ensure_ascii, indent, separators)
    indent, separators = given(indent), given(separators)

    if type(indent) == "boolean" then
        indent = indent and 1 or 0
    elseif indent and type(indent) ~= "number" and type(indent) ~= "string" then
        unsupported("tojson with an indent of " .. type_name(indent))
    end

    if separators then
        if not (is(separators, TUPLE) or is(separators, LIST))
           or separators.n ~= 2 or type(separators[1]) ~= "string"
           or type(separators[2]) ~= "string"
        then
            unsupported("tojson with these separators")
        end
    end

    return printer.json(x, flag(ensure_ascii), indent, separators)
end


-- ---- numbers ----------------------------------------------------------------

local function truncated(x)
    if x ~= x or x == huge or x == -huge then
        return nil
    end

    return result(x >= 0 and floor(x) or -floor(-x), false)
end


function _F.int(x)
    if is(x, BIG) then
        return x
    elseif x == UNDEFINED then
        raise("int of an undefined value")
    elseif is(x, MARKUP) then
        unsupported("int of Markup")
    end

    local n, as_float = number(x)

    if n then
        return as_float and (truncated(n) or 0) or n
    elseif type(x) ~= "string" then
        return 0
    end

    local s = strings.strip(x, nil, true, true)

    if find(s, "^[+-]?%d+$") then
        return result(tonumber(s), false)
    elseif find(s, "^[+-]?%d+%.%d*$") or find(s, "^[+-]?%.%d+$") then
        return truncated(tonumber(s))
    elseif find(s, "[%d\128-\255]") or find(s, "^[+-]?[iI][nN][fF]") then
        unsupported("int of " .. sub(s, 1, 40))
    end

    return 0
end


-- ---- sequences --------------------------------------------------------------

function _F.length(x)
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


_F.count = _F.length


function _F.default(x, default, boolean)
    if x == UNDEFINED or (flag(boolean) and not truth(x)) then
        if default == nil then
            return ""
        end

        return default
    end

    return x
end


_F.d = _F.default


function _F.items(x)
    if x == UNDEFINED then
        return generator({}, 0)
    elseif not is(x, DICT) then
        raise("Can only get item pairs from a mapping.")
    end

    return generator(methods.pairs(x))
end


local function itself(x)
    return x
end


-- f of each element, and the number of these.
local function each(x, f)
    local elements, n = sequence(x)
    local made = {}

    burn(n)

    for i = 1, n do
        made[i] = f(elements[i])
    end

    return made, n
end


function _F.list(x)
    return list(each(x, itself))
end


function _F.join(x, separator)
    local made, n = each(x, str)

    return strings.join(made, n, separator == nil and "" or str(separator))
end


function _F.first(x)
    if is(x, GENERATOR) and not x.used then
        unsupported("first of a generator")
    end

    local elements, n = sequence(x)

    return n == 0 and UNDEFINED or elements[1]
end


function _F.last(x)
    if is(x, GENERATOR) then
        raise("'generator' object is not reversible")
    end

    local elements, n = sequence(x)

    return n == 0 and UNDEFINED or elements[n]
end


-- ---- orders -----------------------------------------------------------------

-- What strings are compared by: in lower case.
local function folded(x)
    return type(x) == "string" and case.lower(x) or x
end


-- The elements in the order of their keys, stable; listed: equal keys are not
-- compared further, as Python does with lists of one key.
local function in_order(elements, n, key, listed)
    local places, keys, made = {}, {}, {}

    burn(4 * n)

    for i = 1, n do
        places[i] = i
        keys[i] = key(elements[i])
    end

    sort(places, function(a, b)
        local x, y = keys[a], keys[b]

        if listed and eq(x, y) then
            return a < b
        elseif lt(x, y) then
            return true
        end

        return not lt(y, x) and a < b
    end)

    for i = 1, n do
        made[i] = elements[places[i]]
    end

    return made, n
end


function _F.dictsort(x)
    if not is(x, DICT) then
        raise("dictsort of " .. type_name(x))
    end

    local pairs_of, n = methods.pairs(x)

    return list(in_order(pairs_of, n, function(pair)
        return folded(pair[1])
    end))
end


function _F.sort(x, reverse, sensitive, attribute)
    local elements, n = sequence(x)
    local get = attribute ~= nil and getter(attribute)

    if reverse ~= nil or sensitive ~= nil
       or type(attribute) == "string" and find(attribute, ",", 1, true)
    then
        unsupported("sort with these arguments")
    end

    return list(in_order(elements, n, function(element)
        if get then
            element = get(element)
        end

        return folded(element)
    end, true))
end


function _F.unique(x)
    local elements, n = sequence(x)
    local made, m, seen = {}, 0, {}

    burn(n)

    for i = 1, n do
        local key = folded(elements[i])

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


-- The least element by an order, or undefined.
local function least(x, before)
    local elements, n = sequence(x)
    local best, best_key = UNDEFINED, nil

    burn(n)

    for i = 1, n do
        local key = folded(elements[i])

        if i == 1 or before(key, best_key) then
            best, best_key = elements[i], key
        end
    end

    return best
end


function _F.min(x)
    return least(x, lt)
end


function _F.max(x)
    return least(x, function(a, b) return lt(b, a) end)
end


-- ---- with other filters and tests -------------------------------------------

-- f of each element.
local function mapped(x, f)
    if not truth(x) then
        return generator({}, 0)         -- even of None
    end

    return generator(each(x, f))
end


-- map(attribute=)
function _M.map_attribute(x, attribute)
    return mapped(x, getter(attribute))
end


-- map(name)
function _M.map(x, name)
    return mapped(x, _F[name])
end


-- select, reject, selectattr and rejectattr: those elements for which a test
-- says what is wanted; get, nil: of the element itself.
function _M.select(x, wanted, attribute, name, ...)
    if not truth(x) then
        return generator({}, 0)
    end

    local elements, n = sequence(x)
    local get = attribute ~= nil and getter(attribute)
    local test = name and tests.named[name] or truth
    local made, m = {}, 0

    burn(n)

    for i = 1, n do
        local x_i = elements[i]

        if get then
            x_i = get(x_i)
        end

        if test(x_i, ...) == wanted then
            m = m + 1
            made[m] = elements[i]
        end
    end

    return generator(made, m)
end


return _M
