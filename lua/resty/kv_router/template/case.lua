-- Copyright (C) the nginx-kv-router authors
--
-- Upper and lower case of Python's str, and which characters repr() escapes.
--
-- Case is that of ASCII: of other text it is unsupported, and so is repr() of a
-- character that neither list has.


local fuel = require "resty.kv_router.template.fuel"
local text_ffi = require "resty.kv_router.tokens.text_ffi"
local value = require "resty.kv_router.template.value"

local ascii = text_ffi.ascii
local byte = string.byte
local format = string.format
local lower = string.lower
local spend = fuel.string
local sub = string.sub
local unsupported = value.unsupported
local upper = string.upper


local _M = {}

-- What repr() leaves as it is, with each Python: Latin, Greek, Cyrillic,
-- Hebrew, Arabic, Devanagari, Thai, punctuation, arrows and signs, kana,
-- Chinese, Hangul, wide forms, emoji.
local RANGES = {
    0xA1, 0xAC, 0xAE, 0x377, 0x38E, 0x3A1, 0x3A3, 0x52F, 0x5D0, 0x5EA, 0x620,
    0x66D, 0x900, 0x963, 0xE01, 0xE3A, 0xE40, 0xE5B, 0x1E00, 0x1EFF, 0x2010,
    0x2027, 0x2030, 0x205E, 0x20A0, 0x20BF, 0x2190, 0x23FE, 0x2500, 0x2B73,
    0x3001, 0x303F, 0x3041, 0x3096, 0x3099, 0x30FF, 0x4E00, 0x9FD5, 0xAC00,
    0xD7A3, 0xFE00, 0xFE0F, 0xFF01, 0xFFBE, 0x1F300, 0x1F64F, 0x1F680,
    0x1F6D2,
}

-- controls, blanks but " ", and marks that are not seen: each Python escapes
-- them
local UNPRINTABLE = {
    0x80, 0xA0, 0xAD, 0xAD, 0x2000, 0x200F, 0x2028, 0x202F, 0x205F, 0x2064,
    0x3000, 0x3000, 0xFEFF, 0xFEFF,
}


-- The code point of a character.
local function code_point(c)
    local a, b, d, e = byte(c, 1, 4)

    if not d then
        return (a - 0xC0) * 64 + b - 128
    elseif not e then
        return (a - 0xE0) * 4096 + (b - 128) * 64 + d - 128
    end

    return (a - 0xF0) * 262144 + (b - 128) * 4096 + (d - 128) * 64 + e - 128
end


local function within(ranges, code)
    for i = 1, #ranges, 2 do
        if code >= ranges[i] and code <= ranges[i + 1] then
            return true
        end
    end

    return false
end


-- What repr() writes for a character beyond ASCII; nil: the character.
function _M.escaped(c)
    local code = code_point(c)

    if within(UNPRINTABLE, code) then
        return format(code < 0x100 and "\\x%02x" or "\\u%04x", code)
    elseif not within(RANGES, code) then
        unsupported(format("repr() of the character U+%04X", code))
    end
end


-- A string of ASCII, which a method needs.
function _M.ascii(s, method)
    spend(#s)

    if not ascii(s) then
        unsupported(method .. "() of text beyond ASCII")
    end

    return s
end


function _M.lower(s)
    return lower(_M.ascii(s, "lower"))
end


function _M.upper(s)
    return upper(_M.ascii(s, "upper"))
end


function _M.capitalize(s)
    _M.ascii(s, "capitalize")

    return upper(sub(s, 1, 1)) .. lower(sub(s, 2))
end


return _M
