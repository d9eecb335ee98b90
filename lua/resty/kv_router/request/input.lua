-- Copyright (C) the nginx-kv-router authors
--
-- Tokens and hashes from Lua, as arrays for C; resty.kv_router.index says in
-- which forms.  A wrong type raises an error, a wrong value gives nil and a
-- sentence.


local ffi = require "ffi"

local cast = ffi.cast
local copy = ffi.copy
local error = error
local find = string.find
local format = string.format
local getinfo = debug.getinfo
local istype = ffi.istype
local sizeof = ffi.sizeof
local sub = string.sub
local tonumber = tonumber
local tostring = tostring
local type = type
local typeof = ffi.typeof


local _M = {}

local u32s = typeof("uint32_t[?]")
local u64s = typeof("uint64_t[?]")
local u64 = typeof("uint64_t")
local i64 = typeof("int64_t")

local EXACT = 2^53
local MAX_U32 = 2^32 - 1
local MAX_U64 = "18446744073709551615"


-- Raises the error of a wrong argument, in the code that called the library:
-- argument n of the function named what.
function _M.bad(n, what, wanted, got)
    local level = 1

    while getinfo(level + 1, "S")
          and find(getinfo(level, "S").source, "resty/kv_router/", 1, true)
    do
        level = level + 1
    end

    error("bad argument #" .. n .. " to '" .. what .. "' (" .. wanted
          .. " expected, got " .. type(got) .. ")", level)
end


-- The number of elements of cdata, arrays and pointers of that C type alone.
local function count_cdata(arg, what, values, n, ctype, size)
    local name = tostring(typeof(values))

    if n ~= nil and (type(n) ~= "number" or n < 0 or n % 1 ~= 0) then
        _M.bad(arg, what, "a number of elements", n)
    end

    if find(name, "^ctype<" .. ctype .. " %[") then
        local all = sizeof(values) / size

        if n and n > all then
            _M.bad(arg, what, "an array of " .. n, values)
        end

        return n or all
    end

    if not n or not find(name, "^ctype<c?o?n?s?t? ?" .. ctype .. " %*>") then
        _M.bad(arg, what, ctype .. " and their number", values)
    end

    return n
end


-- tokens as const uint32_t * and their number, or nil and a sentence; the
-- third is what keeps the memory alive.
function _M.tokens(what, tokens, opts)
    local t = type(tokens)

    if t == "string" then
        if #tokens % 4 ~= 0 then
            return nil, "a packed string of tokens has 4 bytes for each"
        end

        local n = #tokens / 4
        local out = u32s(n)

        -- a string needn't be aligned
        copy(out, tokens, #tokens)

        return out, n
    end

    if t == "cdata" then
        return tokens, count_cdata(1, what, tokens, opts and opts.n,
                                   "unsigned int", 4)
    end

    if t ~= "table" then
        _M.bad(1, what, "table, cdata or string", tokens)
    end

    local n = #tokens
    local out = u32s(n)

    for i = 1, n do
        local token = tokens[i]

        if type(token) ~= "number" or not (token >= 0 and token <= MAX_U32)
           or token % 1 ~= 0
        then
            return nil, "token " .. i .. " is no number from 0 to 2^32 - 1: "
                        .. tostring(token)
        end

        out[i - 1] = token
    end

    return out, n
end


-- A decimal string as uint64_t, or nil.
local function parse_u64(s)
    if not find(s, "^%d+$") or #s > #MAX_U64
       or (#s == #MAX_U64 and s > MAX_U64)
    then
        return nil
    end

    -- two halves, each exact as a number
    return cast(u64, tonumber(sub(s, 1, -11)) or 0) * 10000000000ULL
           + cast(u64, tonumber(sub(s, -10)))
end


-- The name that a LoRA's blocks are hashed with: lora_name, or else the decimal
-- digits of lora_id, a whole number from 0 to 2^53; nil without both.
function _M.lora(lora_name, lora_id)
    if lora_name or not lora_id then
        return lora_name
    end

    return format("%.0f", lora_id)
end


-- One hash as cdata uint64_t, or nil and a sentence that begins with where.
function _M.hash(value, where)
    local t = type(value)

    if t == "number" then
        if value >= 0 and value <= EXACT and value % 1 == 0 then
            return cast(u64, value)
        end

        return nil, where .. ": a number has to be whole and at most 2^53; "
                    .. "pass larger hashes as decimal strings or cdata"
    end

    if t == "string" then
        local hash = parse_u64(value)

        if hash then
            return hash
        end

        return nil, where .. ': "' .. value .. '" is no decimal u64'
    end

    if istype(u64, value) or istype(i64, value) then
        return cast(u64, value)
    end

    return nil, where .. ": no hash, but a " .. t
end


-- hashes as an array of uint64_t and their number, or nil and a sentence.
function _M.hashes(arg, what, hashes, n)
    if type(hashes) == "cdata" then
        return hashes, count_cdata(arg, what, hashes, n, "uint64_t", 8)
    end

    if type(hashes) ~= "table" then
        _M.bad(arg, what, "table or cdata", hashes)
    end

    n = #hashes

    local out = u64s(n)

    for i = 1, n do
        local hash, err = _M.hash(hashes[i], "hash " .. i)
        if not hash then
            return nil, err
        end

        out[i - 1] = hash
    end

    return out, n
end


return _M
