-- Copyright (C) the nginx-kv-router authors
--
-- Values as text: str() and repr() of Python, and the filter tojson as
-- transformers has it.


local case = require "resty.kv_router.template.case"
local fuel = require "resty.kv_router.template.fuel"
local strings = require "resty.kv_router.template.strings"
local text_ffi = require "resty.kv_router.tokens.text_ffi"
local value = require "resty.kv_router.template.value"

local abs = math.abs
local append_json = text_ffi.append_json
local ascii = text_ffi.ascii
local byte = string.byte
local burn = fuel.burn
local find = string.find
local format = string.format
local format_double = text_ffi.format
local getmetatable = getmetatable
local gsub = string.gsub
local huge = math.huge
local join = strings.join
local match = string.match
local plain = text_ffi.plain
local raise = value.raise
local rep = string.rep
local reset = text_ffi.reset
local spend = fuel.string
local sub = string.sub
local text_string = text_ffi.string
local tonumber = tonumber
local type = type
local type_name = value.type_name
local unsupported = value.unsupported


local BIG = value.BIG
local DICT = value.DICT
local FLOAT = value.FLOAT
local LIST = value.LIST
local MARKUP = value.MARKUP
local NONE = value.NONE
local TUPLE = value.TUPLE
local UNDEFINED = value.UNDEFINED
local VIEW = value.VIEW

-- values within each other
local DEPTH = 100


local _M = {}


-- ---- numbers ----------------------------------------------------------------

local function int(x)
    return format("%.0f", x)
end


-- The shortest text that reads as the same double.
local function float(x)
    if x ~= x then
        return "nan"
    elseif x == huge then
        return "inf"
    elseif x == -huge then
        return "-inf"
    elseif x == 0 then
        return 1 / x < 0 and "-0.0" or "0.0"
    end

    local text

    for digits = 0, 16 do
        text = format_double("%." .. digits .. "e", x)

        if tonumber(text) == x then
            break
        end
    end

    local sign, first, rest, e = match(text, "^(-?)(%d)%.?(%d*)e([+-]%d+)$")
    local digits = first .. rest

    e = tonumber(e)

    if e < -4 or e >= 16 then
        return format("%s%s%s%se%s%02d", sign, first, rest ~= "" and "." or "",
                      rest, e < 0 and "-" or "+", abs(e))
    elseif e < 0 then
        return sign .. "0." .. rep("0", -e - 1) .. digits
    elseif #digits <= e + 1 then
        return sign .. digits .. rep("0", e + 1 - #digits) .. ".0"
    end

    return sign .. sub(digits, 1, e + 1) .. "." .. sub(digits, e + 2)
end


-- ---- str() and repr() -------------------------------------------------------

local ESCAPES = { ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r",
                  ["\t"] = "\\t", ["'"] = "\\'" }

local function escaped(c)
    return ESCAPES[c] or format("\\x%02x", byte(c))
end


local function escaped_part(s, pattern)
    s = gsub(s, pattern, escaped)

    if not ascii(s) then
        s = gsub(s, "[\194-\244][\128-\191]+", case.escaped)
    end

    return s
end


local function string_repr(s)
    spend(2 * #s)

    if plain(s) then
        return "'" .. s .. "'"
    end

    local quote = "'"

    if find(s, "'", 1, true) and not find(s, '"', 1, true) then
        quote = '"'
    end

    s = strings.by_parts(s, escaped_part,
                         quote == "'" and "[%c\\']" or "[%c\\]")

    return quote .. s .. quote
end


local repr


local function elements(x, level)
    local out = {}

    for i = 1, x.n do
        out[i] = repr(x[i], level)
    end

    return join(out, x.n, ", ")
end


local function dict_repr(x, level)
    local out, v = {}, x.v

    for i = 1, x.n do
        local key = x.k[i]

        out[i] = repr(key, level) .. ": " .. repr(v[key], level)
    end

    return "{" .. join(out, x.n, ", ") .. "}"
end


-- repr(), of a value that is level deep in another one.
function repr(x, level)
    local t = type(x)

    burn(1)

    if t == "string" then
        return string_repr(x)
    elseif t == "number" then
        return int(x)
    elseif t == "boolean" then
        return x and "True" or "False"
    elseif x == NONE then
        return "None"
    elseif x == UNDEFINED then
        return "Undefined"
    end

    local kind = getmetatable(x)

    level = (level or 0) + 1

    if level > DEPTH then
        unsupported(format("values nested over %d levels", DEPTH))
    end

    if kind == FLOAT then
        return float(x.x)
    elseif kind == BIG then
        return x.s
    elseif kind == LIST then
        return "[" .. elements(x, level) .. "]"
    elseif kind == TUPLE then
        return "(" .. elements(x, level) .. (x.n == 1 and ",)" or ")")
    elseif kind == DICT then
        return dict_repr(x, level)
    elseif kind == VIEW then
        return "dict_" .. x.kind .. "([" .. elements(x, level) .. "])"
    elseif kind == MARKUP then
        return "Markup(" .. string_repr(x.s) .. ")"
    end

    -- an address, never the same twice
    return unsupported("the text of an object: " .. type_name(x))
end


function _M.str(x)
    local t = type(x)

    if t == "string" then
        return x
    elseif t == "number" then
        return int(x)
    elseif t == "boolean" then
        return x and "True" or "False"
    elseif x == NONE then
        return "None"
    elseif x == UNDEFINED then
        return ""
    elseif getmetatable(x) == MARKUP then
        return x.s
    end

    return repr(x)
end


-- ---- tojson -----------------------------------------------------------------

local scratch = text_ffi.text(0)

-- A string that needs no escapes is common, and short ones are looked at in Lua.
local function json_string(s, only_ascii)
    if #s < 24 and not find(s, '[%z\1-\31"\\\127-\255]') then
        return '"' .. s .. '"'
    end

    spend(2 * #s)
    reset(scratch, 12 * #s + 2)

    if not append_json(scratch, s, only_ascii) then
        unsupported("no memory")
    end

    return text_string(scratch)
end


local function json_float(x)
    if x ~= x then
        return "NaN"
    elseif x == huge then
        return "Infinity"
    elseif x == -huge then
        return "-Infinity"
    end

    return float(x)
end


local function json_key(key)
    local t = type(key)

    if t == "string" then
        return key
    elseif t == "number" then
        return int(key)
    elseif key == NONE then
        return "null"
    end

    return unsupported("a key of " .. type_name(key) .. " in JSON")
end


-- The state of one tojson: out, its pieces, n of them; how it is written.
local json


-- The elements or members between two brackets; keys: those of a dict, or nil.
local function json_parts(j, x, level, open, close, keys)
    local out = j.out

    if x.n == 0 then
        j.n = j.n + 1
        out[j.n] = open .. close
        return
    end

    local line = j.indent and "\n" .. rep(j.indent, level) or ""
    local between = j.between .. line

    j.n = j.n + 1
    out[j.n] = open .. line

    for i = 1, x.n do
        local n, part = j.n, x[i]

        if i > 1 then
            n = n + 1
            out[n] = between
        end

        if keys then
            part = x.v[keys[i]]
            out[n + 1] = json_string(json_key(keys[i]), j.ascii)
            out[n + 2] = j.colon
            n = n + 2
        end

        j.n = n
        json(j, part, level)
    end

    j.n = j.n + 1
    out[j.n] = j.indent and "\n" .. rep(j.indent, level - 1) .. close or close
end


function json(j, x, level)
    local t = type(x)

    burn(1)

    if t == "table" and x ~= NONE then
        local kind = getmetatable(x)

        if kind == DICT or kind == LIST or kind == TUPLE then
            if level >= DEPTH then
                unsupported(format("values nested over %d levels", DEPTH))
            end

            if kind == DICT then
                return json_parts(j, x, level + 1, "{", "}", x.k)
            end

            return json_parts(j, x, level + 1, "[", "]")
        end
    end

    local text

    if t == "string" then
        text = json_string(x, j.ascii)
    elseif t == "number" then
        text = int(x)
    elseif t == "boolean" then
        text = x and "true" or "false"
    elseif x == NONE then
        text = "null"
    else
        local kind = getmetatable(x)

        if kind == FLOAT then
            text = json_float(x.x)
        elseif kind == BIG then
            text = x.s
        elseif kind == MARKUP then
            text = json_string(x.s, j.ascii)
        else
            raise("Object of type " .. type_name(x)
                  .. " is not JSON serializable")
        end
    end

    j.n = j.n + 1
    j.out[j.n] = text
end


-- tojson of transformers.  only_ascii: a boolean; indent: nil, a number or a
-- string; separators: nil, or two strings.
function _M.json(x, only_ascii, indent, separators)
    if type(indent) == "number" then
        if indent > 1000 then
            unsupported("an indent of " .. int(indent))
        end

        indent = rep(" ", indent)
    end

    local j = { out = {}, n = 0, ascii = only_ascii,
                indent = indent, between = indent and "," or ", ",
                colon = ": " }

    if separators then
        j.between, j.colon = separators[1], separators[2]
    end

    json(j, x, 0)

    return join(j.out, j.n)
end


return _M
