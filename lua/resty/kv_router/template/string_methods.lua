-- Copyright (C) the nginx-kv-router authors
--
-- The methods of Python's str: functions of the string and of the arguments,
-- nil: not given.


local case = require "resty.kv_router.template.case"
local fuel = require "resty.kv_router.template.fuel"
local operators = require "resty.kv_router.template.operators"
local printer = require "resty.kv_router.template.printer"
local strings = require "resty.kv_router.template.strings"
local text_ffi = require "resty.kv_router.text_ffi"
local value = require "resty.kv_router.template.value"

local ascii = text_ffi.ascii
local burn = fuel.burn
local bytes = fuel.bytes
local find = string.find
local floor = math.floor
local getmetatable = getmetatable
local gsub = string.gsub
local huge = math.huge
local lower = string.lower
local match = string.match
local number = operators.number
local raise = value.raise
local rep = string.rep
local select = select
local setmetatable = setmetatable
local spend = fuel.string
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


function _M.removesuffix(s, part)
    part = text(part, "removesuffix")
    bytes(#s)

    if part ~= "" and sub(s, -#part) == part then
        return sub(s, 1, #s - #part)
    end

    return s
end


-- ---- parts ------------------------------------------------------------------

function _M.split(s, separator, max)
    separator = given(separator)

    return strings.split(s, separator and text(separator, "split"),
                         most(max, "split"))
end


function _M.rsplit(s, separator, max)
    local n = most(max, "rsplit")

    separator = given(separator)

    if n == huge then
        return strings.split(s, separator and text(separator, "rsplit"), n)
    elseif not separator then
        unsupported("rsplit() at white space with a maximum")
    end

    separator = text(separator, "rsplit")

    -- of a separator such as "aa" the places depend on the side
    if find(separator, sub(separator, 1, 1), 2, true) then
        unsupported("rsplit() with this separator")
    end

    return strings.rsplit(s, separator, n)
end


function _M.splitlines(s, keep)
    none(keep, "splitlines")

    return strings.lines(s)
end


local function tuple(...)
    return setmetatable({ n = 3, ... }, TUPLE)
end


function _M.partition(s, separator)
    separator = text(separator, "partition")

    if separator == "" then
        raise("empty separator")
    end

    local at = strings.find(s, separator)

    if not at then
        return tuple(s, "", "")
    end

    return tuple(sub(s, 1, at), separator, sub(s, at + #separator + 1))
end


function _M.rpartition(s, separator)
    separator = text(separator, "rpartition")

    if separator == "" then
        raise("empty separator")
    end

    local at = strings.rfind(s, separator)

    if not at then
        return tuple("", "", s)
    end

    return tuple(sub(s, 1, at), separator, sub(s, at + #separator + 1))
end


function _M.replace(s, part, by, count)
    part, by = text(part, "replace"), text(by, "replace")

    local max = most(count, "replace")

    if part == "" then
        return strings.spread(s, by, max)
    end

    return strings.replace(s, part, by, max)
end


local function position(name, look, needed)
    _M[name] = function(s, part, start)
        none(start, name)

        local at = look(s, text(part, name))

        if at then
            return strings.length(sub(s, 1, at))
        elseif needed then
            raise("substring not found")
        end

        return -1
    end
end


position("find", strings.find)
position("index", strings.find, true)
position("rfind", strings.rfind)
position("rindex", strings.rfind, true)


function _M.count(s, part, start)
    none(start, "count")

    return strings.count(s, text(part, "count"))
end


function _M.join(s, all)
    local elements, n = operators.sequence(all)
    local out = {}

    for i = 1, n do
        local x = elements[i]

        if type(x) == "table" and getmetatable(x) == MARKUP then
            x = x.s
        elseif type(x) ~= "string" then
            raise("sequence item: expected str instance, " .. type_name(x)
                  .. " found")
        end

        out[i] = x
    end

    return strings.join(out, n, s)
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


function _M.swapcase(s)
    return (gsub(only_ascii(s, "swapcase"), "%a", function(c)
        local other = lower(c)

        return other == c and upper(c) or other
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


-- ---- widths -----------------------------------------------------------------

local function padded(name, sides)
    _M[name] = function(s, width, fill)
        local n, as_float = number(width)

        fill = fill == nil and " " or text(fill, name)

        if not n or as_float then
            raise(name .. "(): an int is wanted")
        elseif strings.length(fill) ~= 1 then
            raise("The fill character must be exactly one character long")
        end

        n = n - strings.length(s)

        if n <= 0 then
            return s
        end

        spend(#s + n * #fill)

        local left, right = sides(n, width)

        return rep(fill, left) .. s .. rep(fill, right)
    end
end


padded("ljust", function(n) return 0, n end)
padded("rjust", function(n) return n, 0 end)
padded("center", function(n, width)
    -- an odd rest goes to the left when the width is odd, too
    local left = floor(n / 2) + (n % 2 == 1 and width % 2 == 1 and 1 or 0)

    return left, n - left
end)


function _M.zfill(s, width)
    local n, as_float = number(width)

    if not n or as_float then
        raise("zfill(): an int is wanted")
    end

    n = n - strings.length(s)

    if n <= 0 then
        return s
    end

    spend(#s + n)

    local sign = match(s, "^[+-]?")

    return sign .. rep("0", n) .. sub(s, #sign + 1)
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


-- ---- others -----------------------------------------------------------------

function _M.expandtabs(s, size)
    none(size, "expandtabs")

    if find(s, "\t", 1, true) then
        unsupported("expandtabs() of text with tabs")
    end

    return s
end


-- The order of the arguments that may be named.
_M.NAMES = {
    split = { "sep", "maxsplit" },
    rsplit = { "sep", "maxsplit" },
    splitlines = { "keepends" },
    expandtabs = { "tabsize" },
}


return _M
