-- Copyright (C) the nginx-kv-router authors
--
-- Jinja's filters: functions of the value and of the filter's arguments, nil:
-- not given.  A filter that Jinja has and that is not here is not supported.


local attributes = require "resty.kv_router.template.attributes"
local case = require "resty.kv_router.template.case"
local fuel = require "resty.kv_router.template.fuel"
local operators = require "resty.kv_router.template.operators"
local printer = require "resty.kv_router.template.printer"
local sequence_filters = require "resty.kv_router.template.sequence_filters"
local string_methods = require "resty.kv_router.template.string_methods"
local strings = require "resty.kv_router.template.strings"
local tests = require "resty.kv_router.template.tests"
local value = require "resty.kv_router.template.value"

local burn = fuel.burn
local find = string.find
local floor = math.floor
local getmetatable = getmetatable
local getter = attributes.getter
local gsub = string.gsub
local huge = math.huge
local markup = operators.markup
local number = operators.number
local pairs = pairs
local raise = value.raise
local rep = string.rep
local result = operators.result
local sequence = operators.sequence
local setmetatable = setmetatable
local spend = fuel.string
local str = printer.str
local sub = string.sub
local tonumber = tonumber
local truth = operators.truth
local type = type
local type_name = value.type_name
local unsupported = value.unsupported


local BIG = value.BIG
local GENERATOR = value.GENERATOR
local LIST = value.LIST
local MARKUP = value.MARKUP
local NONE = value.NONE
local TUPLE = value.TUPLE
local UNDEFINED = value.UNDEFINED


local _M = {}
local _F = {}

_M.named = _F       -- the filters by their names

-- The arguments of each filter behind its value, in order.
_M.ARGUMENTS = {
    capitalize = {},
    default = { "default_value", "boolean" },
    dictsort = { "case_sensitive", "by", "reverse" }, escape = {},
    first = {}, indent = { "width", "first", "blank" }, int = { "default", "base" },
    items = {}, join = { "d", "attribute" }, last = {}, length = {}, list = {},
    lower = {}, max = { "case_sensitive", "attribute" }, min = { "case_sensitive", "attribute" },
    replace = { "old", "new", "count" }, safe = {},
    sort = { "reverse", "case_sensitive", "attribute" }, string = {},
    title = {},
    tojson = { "ensure_ascii", "indent", "separators", "sort_keys" },
    trim = { "chars" },
    unique = { "case_sensitive", "attribute" }, upper = {},
}
_M.ARGUMENTS.count = _M.ARGUMENTS.length
_M.ARGUMENTS.d = _M.ARGUMENTS.default
_M.ARGUMENTS.e = _M.ARGUMENTS.escape

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


-- An argument that must be an int.
local function int(x, filter)
    local n, as_float = number(x)

    if not n or as_float then
        raise(filter .. ": an int is wanted, not " .. type_name(x))
    end

    return n
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


function _F.escape(x)
    return is(x, MARKUP) and x or markup(operators.escape(str(x)))
end


_F.e = _F.escape


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


function _F.trim(x, characters)
    characters = given(characters)

    if characters and type(characters) ~= "string" then
        raise("trim: a str is wanted")
    end

    if is(x, MARKUP) then
        return markup(strings.strip(x.s, characters, true, true))
    end

    return strings.strip(type(x) == "string" and x or str(x), characters, true,
                         true)
end


function _F.replace(x, part, by, count)
    if part == nil or by == nil then
        raise("replace: two arguments are wanted")
    end

    return string_methods.replace(plain(x), plain(part), plain(by),
                                  given(count))
end


function _F.indent(x, width, first, blank)
    if type(x) ~= "string" then
        unsupported("indent of " .. type_name(x))
    end

    local pad = width

    if type(width) ~= "string" then
        local n = width == nil and 4 or int(width, "indent")

        spend(n)
        pad = rep(" ", n)
    end

    local lines = strings.lines(x .. "\n")
    local n = lines.n

    if not flag(blank) then
        for i = 2, n do
            if lines[i] ~= "" then
                lines[i] = pad .. lines[i]
            end
        end

        pad = flag(first) and pad or ""
        return pad .. strings.join(lines, n, "\n")
    end

    return (flag(first) and pad or "") .. strings.join(lines, n, "\n" .. pad)
end


function _F.tojson(x, ensure_ascii, indent, separators, sort_keys)
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

    return printer.json(x, flag(ensure_ascii), indent, separators,
                        flag(sort_keys))
end


-- ---- numbers ----------------------------------------------------------------

local function truncated(x)
    if x ~= x or x == huge or x == -huge then
        return nil
    end

    return result(x >= 0 and floor(x) or -floor(-x), false)
end


function _F.int(x, default, base)
    if default == nil then
        default = 0
    end

    if base ~= nil and base ~= 10 then
        unsupported("int with a base")
    elseif is(x, BIG) then
        return x
    elseif x == UNDEFINED then
        raise("int of an undefined value")
    end

    local n, as_float = number(x)

    if n then
        if not as_float then
            return n
        end

        return truncated(n) or default
    elseif type(x) ~= "string" then
        if is(x, MARKUP) then
            unsupported("int of Markup")
        end

        return default
    end

    local s = strings.strip(x, nil, true, true)

    if find(s, "^[+-]?%d+$") then
        return result(tonumber((gsub(s, "^%+", ""))), false)
    elseif find(s, "^[+-]?%d+%.%d*$") or find(s, "^[+-]?%.%d+$") then
        return truncated(tonumber((gsub(s, "^%+", ""))))
    elseif not find(s, "[%d\128-\255]") and not find(string.lower(s), "^[+-]?inf")
    then
        return default
    end

    return unsupported("int of " .. sub(s, 1, 40))
end


for name, filter in pairs(sequence_filters) do
    _F[name] = filter
end


-- ---- with other filters and tests -------------------------------------------

-- map(attribute=, default=)
function _M.map_attribute(x, attribute, default)
    if not truth(x) then
        return generator({}, 0)         -- even of None
    end

    local elements, n = sequence(x)
    local get, made = getter(attribute), {}

    burn(n)

    for i = 1, n do
        local found = get(elements[i])

        if found == UNDEFINED and default ~= nil then
            found = default
        end

        made[i] = found
    end

    return generator(made, n)
end


-- map(name, ...)
function _M.map(x, name, ...)
    if not truth(x) then
        return generator({}, 0)
    end

    local elements, n = sequence(x)
    local filter, made = _F[name], {}

    burn(n)

    for i = 1, n do
        made[i] = filter(elements[i], ...)
    end

    return generator(made, n)
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
