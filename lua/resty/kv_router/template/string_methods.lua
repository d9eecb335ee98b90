-- Copyright (C) the nginx-kv-router authors
--
-- The methods of Python's str: functions of the string and of the arguments,
-- nil: not given.


local case = require "resty.kv_router.template.case"
local fuel = require "resty.kv_router.template.fuel"
local operators = require "resty.kv_router.template.operators"
local printer = require "resty.kv_router.template.printer"
local strings = require "resty.kv_router.template.strings"
local text_ffi = require "resty.kv_router.tokens.text_ffi"
local value = require "resty.kv_router.template.value"

local ascii = text_ffi.ascii
local burn = fuel.burn
local bytes = fuel.bytes
local find = string.find
local getmetatable = getmetatable
local gsub = string.gsub
local huge = math.huge
local lower = string.lower
local match = string.match
local number = operators.number
local raise = value.raise
local select = select
local str = printer.str
local sub = string.sub
local tonumber = tonumber
local type = type
local type_name = value.type_name
local unsupported = value.unsupported
local upper = string.upper


local MARKUP = value.MARKUP
local NONE = value.NONE
local TUPLE = value.TUPLE


local _M = {}


-- ---- arguments --------------------------------------------------------------

-- A string, which a method needs.
local function text(x, method)
    if type(x) == "string" then
        return x
    elseif type(x) == "table" and getmetatable(x) == MARKUP then
        return x.s
    end

    return raise(method .. "(): a str is wanted, not "
                 .. (x == nil and "nothing" or type_name(x)))
end


-- A number that may be left out: below 0 stands for all.
local function most(x, method)
    if x == nil then
        return huge
    end

    local n, as_float = number(x)

    if not n or as_float then
        raise(method .. "(): an int is wanted, not " .. type_name(x))
    end

    return n < 0 and huge or n
end


local function given(x)
    if x ~= NONE then
        return x
    end
end


local function only_ascii(s, method)
    burn(#s / 32)

    return case.ascii(s, method)
end


local function none(x, method)
    if x ~= nil then
        unsupported(method .. "() with these arguments")
    end
end


-- ---- ends -------------------------------------------------------------------

local function stripper(name, left, right)
    _M[name] = function(s, characters)
        characters = given(characters)

        return strings.strip(s, characters and text(characters, name), left,
                             right)
    end
end


stripper("strip", true, true)
stripper("lstrip", true, false)
stripper("rstrip", false, true)


local function affix(name, test)
    _M[name] = function(s, part, start)
        none(start, name)
        bytes(#s)

        if type(part) == "table" and getmetatable(part) == TUPLE then
            for i = 1, part.n do
                if test(s, text(part[i], name)) then
                    return true
                end
            end

            return false
        end

        return test(s, text(part, name))
    end
end


affix("startswith", function(s, part) return sub(s, 1, #part) == part end)
affix("endswith", function(s, part)
    return part == "" or sub(s, -#part) == part
end)


function _M.removeprefix(s, part)
    part = text(part, "removeprefix")
    bytes(#s)

    return sub(s, 1, #part) == part and sub(s, #part + 1) or s
end


-- ---- parts ------------------------------------------------------------------

function _M.split(s, separator, max)
    separator = given(separator)

    return strings.split(s, separator and text(separator, "split"),
                         most(max, "split"))
end


function _M.splitlines(s, keep)
    none(keep, "splitlines")

    return strings.lines(s)
end


function _M.replace(s, part, by, count)
    part, by = text(part, "replace"), text(by, "replace")

    local max = most(count, "replace")

    if part == "" then
        return strings.spread(s, by, max)
    end

    return strings.replace(s, part, by, max)
end


function _M.count(s, part, start)
    none(start, "count")

    return strings.count(s, text(part, "count"))
end


-- ---- case -------------------------------------------------------------------

_M.upper = case.upper
_M.lower = case.lower
_M.capitalize = case.capitalize


function _M.title(s)
    return (gsub(only_ascii(s, "title"), "%a+", function(word)
        return upper(sub(word, 1, 1)) .. lower(sub(word, 2))
    end))
end


function _M.casefold(s)
    return lower(only_ascii(s, "casefold"))
end


-- ---- what a string consists of ----------------------------------------------

local function all_of(name, other)
    _M[name] = function(s)
        return only_ascii(s, name) ~= "" and not find(s, other)
    end
end


all_of("isdigit", "%D")
all_of("isdecimal", "%D")
all_of("isnumeric", "%D")
all_of("isalpha", "%A")
all_of("isalnum", "%W")


function _M.isascii(s)
    bytes(#s)

    return ascii(s)
end


function _M.isspace(s)
    return s ~= "" and strings.strip(s, nil, true, false) == ""
end


function _M.isupper(s)
    only_ascii(s, "isupper")

    return find(s, "%u") ~= nil and not find(s, "%l")
end


function _M.islower(s)
    only_ascii(s, "islower")

    return find(s, "%l") ~= nil and not find(s, "%u")
end


-- ---- format -----------------------------------------------------------------

-- One field of a format; state.auto counts those without a number.
local function field(name, state, named, n, ...)
    local way

    if name == "" then
        name, way = state.auto, "automatic"
        state.auto = state.auto + 1
    elseif find(name, "^%d+$") then
        name, way = tonumber(name), "manual"
    end

    if way then
        state.way = state.way or way

        if way ~= state.way then
            raise("cannot switch from " .. state.way .. " field numbering")
        elseif name >= n then
            raise("Replacement index out of range")
        end

        return (select(name + 1, ...))
    elseif not find(name, "^[%a_][%w_]*$") then
        unsupported("the field {" .. name .. "} of format()")
    end

    for i = 1, named and #named or 0, 2 do
        if named[i] == name then
            return named[i + 1]
        end
    end

    return raise("format(): no " .. name)
end


-- format() with named arguments: { name, value, name, value, ... } or nil.
function _M.formatted(s, named, ...)
    local out, n, from = {}, 0, 1
    local state = { auto = 0 }
    local count = select("#", ...)

    bytes(#s)
    burn(#s / 32)

    while true do
        local at = find(s, "[{}]", from)

        n = n + 1
        out[n] = sub(s, from, at and at - 1 or #s)

        if not at then
            break
        end

        local c, next_c = sub(s, at, at), sub(s, at + 1, at + 1)

        if c == next_c then
            n = n + 1
            out[n] = c
            from = at + 2

        elseif c == "}" then
            raise("Single '}' encountered in format string")

        else
            local name, after = match(s, "^([^{}]*)}()", at + 1)

            if not name then
                unsupported("this format string")
            end

            n = n + 1
            out[n] = str(field(name, state, named, count, ...))
            from = after
        end

        burn(1)
    end

    return strings.join(out, n)
end


function _M.format(s, ...)
    return _M.formatted(s, nil, ...)
end


-- The order of the arguments that may be named.
_M.NAMES = {
    split = { "sep", "maxsplit" },
    splitlines = { "keepends" },
}


return _M
