-- Copyright (C) the nginx-kv-router authors
--
-- Upper and lower case of Python's str, and which characters repr() escapes.
--
-- A character that the tables' version of Unicode does not have may be one of
-- the engine's version: what becomes of such a one is unsupported.


local fuel = require "resty.kv_router.template.fuel"
local lexer = require "resty.kv_router.template.lexer"
local strings = require "resty.kv_router.template.strings"
local text_ffi = require "resty.kv_router.text_ffi"
local unicode = require "resty.kv_router.template.unicode"
local value = require "resty.kv_router.template.value"

local ascii = text_ffi.ascii
local byte = string.byte
local by_parts = strings.by_parts
local floor = math.floor
local format = string.format
local gsub = string.gsub
local lower = string.lower
local spend = fuel.string
local sub = string.sub
local unsupported = value.unsupported
local upper = string.upper
local utf8 = lexer.utf8


local _M = {}

local WIDE = "[\194-\244][\128-\191]+"    -- one character
local SIGMA = 0x3A3                  -- becomes another letter at a word's end


-- The code point of a character.
local function code_point(c)
    local a, b, d, e = byte(c, 1, 4)

    if not b then
        return a
    elseif not d then
        return (a - 0xC0) * 64 + b - 128
    elseif not e then
        return (a - 0xE0) * 4096 + (b - 128) * 64 + d - 128
    end

    return (a - 0xF0) * 262144 + (b - 128) * 4096 + (d - 128) * 64 + e - 128
end


_M.code_point = code_point


-- Ranges from their distances: { first, last } each, in order.
local function ranges(numbers)
    local out, last = {}, 0

    for i = 1, #numbers, 2 do
        local first = last + numbers[i]

        last = first + numbers[i + 1]
        out[#out + 1] = { first, last }
    end

    return out
end


local function mappings(numbers)
    local out = {}

    for i = 1, #numbers, 4 do
        out[#out + 1] = { numbers[i], numbers[i + 1], numbers[i + 2],
                          numbers[i + 3] }
    end

    return out
end


-- The range that a code point is in, or nil.
local function within(list, code)
    local low, high = 1, #list

    while low <= high do
        local middle = floor((low + high) / 2)
        local range = list[middle]

        if code < range[1] then
            high = middle - 1
        elseif code > range[2] then
            low = middle + 1
        else
            return range
        end
    end
end


local unprintable = ranges(unicode.unprintable)
local unassigned = ranges(unicode.unassigned)


local function known(code)
    if within(unassigned, code) then
        unsupported(format("the character U+%04X: not in Unicode %s", code,
                           unicode.version))
    end
end


-- Does repr() leave a code point beyond ASCII as it is?
function _M.printable(code)
    known(code)

    return not within(unprintable, code)
end


local function mapper(numbers, others)
    local list = mappings(numbers)

    return function(c)
        local code = code_point(c)

        known(code)

        if others[code] then
            return others[code]
        elseif unicode.changed[code] then
            unsupported(format("upper case of U+%04X", code))
        elseif code == SIGMA and others == unicode.lowers then
            unsupported("lower case of a capital sigma")
        end

        local range = within(list, code)

        if range and (code - range[1]) % range[3] == 0 then
            return utf8(code + range[4])
        end
    end
end


local lower_one = mapper(unicode.lower, unicode.lowers)
local upper_one = mapper(unicode.upper, unicode.uppers)


local function wide_part(s, one)
    return (gsub(s, WIDE, one))
end


local function mapped(s, plain, one)
    spend(#s)

    if ascii(s) then
        return plain(s)
    end

    return by_parts(plain(s), wide_part, one)
end


function _M.lower(s)
    return mapped(s, lower, lower_one)
end


function _M.upper(s)
    return mapped(s, upper, upper_one)
end


-- The first character of a string that is not empty, and the rest.
function _M.first(s)
    local lead = byte(s)
    local n = lead < 0x80 and 1 or lead < 0xE0 and 2 or lead < 0xF0 and 3 or 4

    return sub(s, 1, n), sub(s, n + 1)
end


function _M.capitalize(s)
    if s == "" then
        return s
    end

    local c, rest = _M.first(s)
    local title = #c > 1 and unicode.titles[code_point(c)]

    return (title or _M.upper(c)) .. _M.lower(rest)
end


return _M
