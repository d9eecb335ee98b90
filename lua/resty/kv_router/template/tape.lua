-- Copyright (C) the nginx-kv-router authors
--
-- JSON text as values of templates, by the tape of src/wire: keys in order, of
-- a key that comes twice the last value in the first place, integers apart
-- from floats, as json.loads() of Python has them.
--
--     local body, err, kind = tape.decode(text)
--     local body, err, kind = tape.body(scanned, pause)
--
-- Three things that json.loads() takes are unsupported here: NaN and Infinity,
-- halves of surrogate pairs, and nesting beyond the tape's depth.


local fuel = require "resty.kv_router.template.fuel"
local text_ffi = require "resty.kv_router.tokens.text_ffi"
local value = require "resty.kv_router.template.value"

local aside = fuel.aside
local burn = fuel.burn
local byte = string.byte
local caught = value.caught
local decode = text_ffi.decode
local ffi_string = require "ffi".string
local find = string.find
local floor = math.floor
local format = string.format
local min = math.min
local pcall = pcall
local raise = value.raise
local scan = text_ffi.scan
local setmetatable = setmetatable
local tonumber = tonumber
local unsupported = value.unsupported


local BIG = value.BIG
local DICT = value.DICT
local FLOAT = value.FLOAT
local LIST = value.LIST
local MAX = value.MAX
local NONE = value.NONE

-- kvr_tape_kind_t, and the flags
local K_NULL, K_FALSE, K_TRUE, K_INT, K_FLOAT, K_STRING = 1, 2, 3, 4, 5, 6
local K_KEY, K_ARRAY, K_OBJECT, K_IDS = 7, 8, 9, 10
local ESCAPED, CUT = 1, 2

-- the arrays that are kept: entries of a body that is not all punctuation
local KEPT = 65536
local ENTRIES_MAX = 524288

-- the work between two calls of pause(): bytes of strings, and so many for each
-- entry; some 0.1 ms
local STEP = 65536
local STEP_ENTRY = 64

-- an int of more digits is a ValueError of Python
local DIGITS_MAX = 4300


local _M = {}


local function int(digits)
    local n = #digits

    if n > 15 then
        local x = tonumber(digits)

        if x > MAX or x < -MAX then
            if n > DIGITS_MAX then
                raise(format("an integer of %d digits, Python reads 4300", n))
            end

            return setmetatable({ s = digits }, BIG)
        end

        return x
    end

    local x = tonumber(digits)

    return x == 0 and 0 or x         -- -0 is 0
end


local function ids(t, entry)
    local first, n = entry.first, entry.len
    local list = { n = n }

    for i = 1, n do
        list[i] = t.ids[first + i - 1]
    end

    return setmetatable(list, LIST)
end


-- The value of an entry of a tape, or nil: a part of it is not in the tape.
-- pause: nil, or as for body().  One loop, no recursion: LuaJIT compiles it.
local function build(t, root, pause)
    local entries, text = t.entries, t.text
    local i, last = root, entries[root].next
    local holder, closes, as_dict, count = nil, last + 1, false, 0
    local holders, ends, counts, depth = {}, {}, {}, 0
    local step = 0
    local key, made

    while true do
        if step > STEP and pause then
            step = 0
            aside(pause)
        end

        -- what ends here
        while i >= closes do
            holder.n = count

            if depth == 1 then
                return holder
            end

            depth = depth - 1
            holder, closes, count = holders[depth], ends[depth], counts[depth]
            as_dict = holder.k ~= nil
        end

        local entry = entries[i]
        local kind = entry.kind

        burn(1)
        step = step + STEP_ENTRY

        if entry.flags >= CUT then
            return nil
        end

        if kind == K_STRING or kind == K_KEY then
            local data, len = text + entry.at + 1, entry.len

            step = step + len

            if entry.flags == ESCAPED then
                made = decode(data, len)
            else
                made = ffi_string(data, len)
            end

            i = i + 1

        elseif kind == K_OBJECT then
            made = setmetatable({ k = {}, v = {}, n = 0 }, DICT)

        elseif kind == K_ARRAY then
            made = setmetatable({ n = 0 }, LIST)

        elseif kind == K_INT or kind == K_FLOAT then
            local digits = ffi_string(text + entry.at, entry.len)

            if kind == K_INT then
                made = int(digits)
            else
                made = setmetatable({ x = tonumber(digits) }, FLOAT)
            end

            i = i + 1

        elseif kind == K_TRUE or kind == K_FALSE then
            made = kind == K_TRUE
            i = i + 1

        elseif kind == K_NULL then
            made = NONE
            i = i + 1

        elseif kind == K_IDS then
            made = ids(t, entry)
            i = i + 1
        end

        if kind == K_KEY then
            key = made

        else
            if depth > 0 then
                if as_dict then
                    local v = holder.v

                    if v[key] == nil then
                        count = count + 1
                        holder.k[count] = key
                    end

                    v[key] = made

                else
                    count = count + 1
                    holder[count] = made
                end
            end

            if kind == K_OBJECT or kind == K_ARRAY then
                if depth > 0 then
                    counts[depth] = count
                end

                depth = depth + 1
                holders[depth], ends[depth] = made, entry.next
                holder, closes, count = made, entry.next, 0
                as_dict = kind == K_OBJECT
                i = i + 1

            elseif depth == 0 then
                return made
            end
        end
    end
end


-- The value of an entry of a tape.  Raises an error of value.lua.
function _M.value(t, root)
    local made = build(t, root)

    if made == nil then
        unsupported("JSON with too many members")
    end

    return made
end


-- ---- text -------------------------------------------------------------------

local arrays_n = 2048
local entries, id_array = text_ffi.entries(arrays_n), text_ffi.ids(arrays_n)

-- json.loads() takes these, the tape does not.
local function python_only(text, err, at)
    return err == "nested too deep"
           or err == "ill-formed UTF-8 in a string"
           or err == "a surrogate without its other half"
           or find(text, "^-?[NI]", at + 1) ~= nil
           or (byte(text, at + 1) == 73 and byte(text, at) == 45)
end


-- The value of a text by arrays of n, or nil: they are too short.
local function by_arrays(text, n)
    local e, d = entries, id_array

    if n > arrays_n then
        e, d = text_ffi.entries(n), text_ffi.ids(n)

        if n <= KEPT then
            entries, id_array, arrays_n = e, d, n
        end
    end

    local t, err, at = scan(text, e, n, d, n)

    if err then
        local message = format("JSON: %s at byte %d", err, at)

        if python_only(text, err, at) then
            unsupported(message)
        end

        raise(message)
    end

    -- the arrays must live until the value is built
    return t and build(t, 1), e, d
end


local function decoded(text)
    local most = min(floor(#text / 2) + 3, ENTRIES_MAX)
    local n = arrays_n

    while true do
        local made = by_arrays(text, n)

        if made ~= nil then
            return made
        end

        burn(n)

        if n >= most then
            unsupported(format("JSON with over %d members", ENTRIES_MAX))
        end

        n = min(n * 8, most)
    end
end


-- The value of a JSON text; nil, a sentence and the kind of failure: raise,
-- the text is no JSON for Python either, or unsupported.
function _M.decode(text)
    local good, made = pcall(decoded, text)

    if good then
        return made
    end

    return nil, caught(made)
end


local function in_steps(t, pause)
    if not pause then
        return build(t, 1)
    end

    aside(pause)

    local made = build(t, 1, pause)

    aside(pause)

    return made
end


-- The same of a text that was scanned.  pause: nil, or a function which is
-- called before each step and behind the last one, and may yield or raise an
-- error of value.lua; the tape must be kept meanwhile.
function _M.body(t, pause)
    local good, made = pcall(in_steps, t, pause)

    if not good then
        return nil, caught(made)
    end

    -- larger arrays may have room for what is not in this tape
    if made == nil then
        return _M.decode(ffi_string(t.text, t.text_len))
    end

    return made
end


return _M
