-- Copyright (C) the nginx-kv-router authors
--
-- What the methods of Python's str do that look at bulk text: lengths, slices,
-- white space, parts.  Characters are code points.  Bytes are looked at in C;
-- each function spends the fuel for what it reads and makes.


local fuel = require "resty.kv_router.template.fuel"
local text_ffi = require "resty.kv_router.tokens.text_ffi"
local value = require "resty.kv_router.template.value"

local ascii = text_ffi.ascii
local burn = fuel.burn
local byte = string.byte
local bytes = fuel.bytes
local chars = text_ffi.chars
local concat = table.concat
local find = text_ffi.find
local gmatch = string.gmatch
local line_end = text_ffi.line_end
local list = value.list
local lstrip = text_ffi.lstrip
local offset = text_ffi.offset
local raise = value.raise
local rstrip = text_ffi.rstrip
local space_at = text_ffi.space_at
local spend = fuel.string
local sub = string.sub
local unsupported = value.unsupported


local _M = {}

local CHARACTER = "[%z\1-\127\194-\244][\128-\191]*"


-- ---- characters -------------------------------------------------------------

function _M.length(s)
    bytes(#s)

    return chars(s)
end


-- The characters: a table, and their number.
function _M.characters(s)
    local out, n = {}, 0

    for c in gmatch(s, CHARACTER) do
        burn(1)
        n = n + 1
        out[n] = c
    end

    return out, n
end


-- Character i, counted from 0, from the end if it is below 0; nil: none.
function _M.at(s, i)
    bytes(#s)

    if ascii(s) then
        if i < 0 then
            i = i + #s
        end

        if i >= 0 and i < #s then
            return sub(s, i + 1, i + 1)
        end

        return nil
    end

    if i < 0 then
        i = i + chars(s)

        if i < 0 then
            return nil
        end
    end

    local from = offset(s, i)

    if from < #s then
        return sub(s, from + 1, offset(s, i + 1))
    end
end


-- The characters from .. to - 1 of a string, counted from 0, in these bounds.
function _M.range(s, from, to)
    if to <= from then
        return ""
    end

    bytes(2 * #s)

    if ascii(s) then
        return sub(s, from + 1, to)
    end

    return sub(s, offset(s, from) + 1, offset(s, to))
end


-- The characters from, from + step, ... up to, but not, to.
function _M.stepped(s, from, to, step)
    local all = _M.characters(s)
    local out, n = {}, 0

    for i = from, step > 0 and to - 1 or to + 1, step do
        n = n + 1
        out[n] = all[i + 1]
    end

    return concat(out, "", 1, n)
end


-- f of each part of a string, joined: parts of at most CHUNK bytes, between which
-- the clock is looked at.  For functions that take long for a byte.
local CHUNK = 16384

function _M.by_parts(s, f, ...)
    if #s <= CHUNK then
        burn(#s / 32)
        return f(s, ...)
    end

    local out, n, from = {}, 0, 1

    while from <= #s do
        local to = from + CHUNK - 1

        -- a part ends with a whole character
        while to < #s and byte(s, to + 1) >= 0x80 and byte(s, to + 1) < 0xC0 do
            to = to + 1
        end

        burn(512)
        n = n + 1
        out[n] = f(sub(s, from, to), ...)
        from = to + 1
    end

    return concat(out, "", 1, n)
end


-- ---- white space and other ends ---------------------------------------------

local function set_of(characters)
    local set = {}

    for c in gmatch(characters, CHARACTER) do
        set[c] = true
    end

    return set
end


-- The lengths of the characters of a set at the start, and without those at
-- the end.
local function set_left(s, set)
    local at, n = 1, #s

    while at <= n do
        local lead = byte(s, at)
        local size = lead < 0x80 and 1 or lead < 0xE0 and 2
                     or lead < 0xF0 and 3 or 4

        if not set[sub(s, at, at + size - 1)] then
            break
        end

        burn(1)
        at = at + size
    end

    return at - 1
end


local function set_right(s, set)
    local n = #s

    while n > 0 do
        local at = n

        while at > 1 and byte(s, at) >= 0x80 and byte(s, at) < 0xC0 do
            at = at - 1
        end

        if not set[sub(s, at, n)] then
            break
        end

        burn(1)
        n = at - 1
    end

    return n
end


-- Without white space, or the characters of a set, on the sides wanted.
function _M.strip(s, characters, left, right)
    local from, to = 0, #s

    spend(to)

    if to == 0 then
        return s
    end

    local set = characters and set_of(characters)

    if left then
        from = set and set_left(s, set) or lstrip(s, 0)
    end

    if right and from < to then
        to = set and set_right(s, set) or rstrip(s)
    end

    if from == 0 and to == #s then
        return s
    end

    return sub(s, from + 1, to)
end


-- ---- parts ------------------------------------------------------------------

-- The offset of a part, or nil.
function _M.find(s, part, from)
    bytes(#s + #part)

    return find(s, part, from or 0)
end


-- The words of a string, at most max + 1 of them.
local function words(s, max)
    local out, n = {}, 0
    local from = lstrip(s, 0)

    bytes(4 * #s)

    while from < #s do
        local to = n < max and space_at(s, from) or #s

        burn(1)
        n = n + 1
        out[n] = sub(s, from + 1, to)
        from = to + lstrip(s, to)
    end

    return list(out, n)
end


-- A list of the parts between separators, nil: between white space; at most
-- max + 1 of them, counted from the left.
function _M.split(s, separator, max)
    if not separator then
        return words(s, max)
    elseif separator == "" then
        raise("empty separator")
    end

    bytes(2 * #s)

    local out, n, from = {}, 0, 0
    local size = #separator

    while n < max do
        local at = find(s, separator, from)

        if not at then
            break
        end

        burn(1)
        n = n + 1
        out[n] = sub(s, from + 1, at)
        from = at + size
    end

    out[n + 1] = sub(s, from + 1)

    return list(out, n + 1)
end


-- With each part replaced.
function _M.replace(s, part, by)
    local from, n = 0, 0
    local out, size = {}, #part

    if part == "" then
        unsupported("replace() of the empty string")
    end

    bytes(#s)

    while true do
        local at = find(s, part, from)

        if not at then
            break
        end

        burn(1)
        out[n + 1] = sub(s, from + 1, at)
        out[n + 2] = by
        n = n + 2
        from = at + size
    end

    if n == 0 then
        return s
    end

    spend(#s + n / 2 * (#by - size))
    out[n + 1] = sub(s, from + 1)

    return concat(out)
end


-- The lines, without their ends.
function _M.lines(s)
    local out, n, from = {}, 0, 0

    bytes(2 * #s)

    while from < #s do
        local at = line_end(s, from)
        local c, after = byte(s, at + 1, at + 2)

        burn(1)
        n = n + 1
        out[n] = sub(s, from + 1, at)

        -- of U+0085, U+2028 and U+2029, and of \r\n
        local size = c == 0xC2 and 2 or c == 0xE2 and 3
                     or c == 13 and after == 10 and 2 or 1

        from = at + size
    end

    return list(out, n)
end


-- ---- joined -----------------------------------------------------------------

-- The strings out[1 .. n] in one, with a separator in between.
function _M.join(out, n, separator)
    local size = separator and n > 1 and (n - 1) * #separator or 0

    for i = 1, n do
        size = size + #out[i]
    end

    spend(size)
    burn(n / 16)

    return concat(out, separator or "", 1, n)
end


return _M
