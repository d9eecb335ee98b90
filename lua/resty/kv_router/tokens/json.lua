-- Copyright (C) the nginx-kv-router authors
--
-- Finds the fields of a JSON object without decoding it: their values stay
-- the client's own bytes.  What is passed on (a chat, its tools) is then
-- exactly what was received, which decoding and encoding would not give:
-- cjson makes objects of empty arrays and rounds large numbers.
--
-- Not a validator: who gets a value judges it.


local byte = string.byte
local concat = table.concat
local find = string.find
local pairs = pairs
local sub = string.sub


local _M = {}


local QUOTE = byte '"'
local BACKSLASH = byte '\\'
local OPEN_OBJECT = byte '{'
local CLOSE_OBJECT = byte '}'
local OPEN_ARRAY = byte '['
local CLOSE_ARRAY = byte ']'


-- The position after the string that begins at pos, or nil.  Most of a body is
-- in long strings: of 16 KB a plain find() takes 2 us, a pattern 100 us.
--
-- A quote ends the string unless the number of backslashes before the quote
-- is odd.  Counting these backslashes ends at the quote before them at the
-- latest, and so no byte is looked at more than twice, whatever the string is.
local function after_string(text, pos)
    local from = pos + 1

    while true do
        local quote = find(text, '"', from, true)

        if not quote then
            return nil
        end

        local before = quote - 1

        while byte(text, before) == BACKSLASH do
            before = before - 1
        end

        if (quote - before) % 2 == 1 then
            return quote + 1
        end

        from = quote + 1
    end
end


-- The position after the value that begins at pos, or nil.
local function after_value(text, pos)
    local b = byte(text, pos)

    if b == QUOTE then
        return after_string(text, pos)
    end

    if b ~= OPEN_OBJECT and b ~= OPEN_ARRAY then
        local _, last = find(text, "^[%w%.%+%-]+", pos)

        return last and last + 1
    end

    local depth = 0

    -- one loop over bytes: LuaJIT compiles it, but no search for a pattern
    while b do
        if b == QUOTE then
            pos = after_string(text, pos)

            if not pos then
                return nil
            end

        else
            pos = pos + 1

            if b == OPEN_OBJECT or b == OPEN_ARRAY then
                depth = depth + 1

            elseif b == CLOSE_OBJECT or b == CLOSE_ARRAY then
                depth = depth - 1

                if depth == 0 then
                    return pos
                end
            end
        end

        b = byte(text, pos)
    end

    return nil
end


-- Returns a table, name -> the text of the value, of the object that text is;
-- of a name that occurs twice the last; names with escapes as they are
-- written.  nil when text is no object.
function _M.fields(text)
    local found = {}
    local _, pos = find(text, "^%s*{%s*")

    if not pos then
        return nil
    end

    pos = pos + 1

    if find(text, "^}%s*$", pos) then
        return found
    end

    while true do
        if byte(text, pos) ~= QUOTE then
            return nil
        end

        local stop = after_string(text, pos)
        if not stop then
            return nil
        end

        local _, colon = find(text, "^%s*:%s*", stop)
        if not colon then
            return nil
        end

        local start = colon + 1
        local name = sub(text, pos + 1, stop - 2)

        stop = after_value(text, start)
        if not stop then
            return nil
        end

        found[name] = sub(text, start, stop - 1)

        if find(text, "^%s*}%s*$", stop) then
            return found
        end

        _, pos = find(text, "^%s*,%s*", stop)
        if not pos then
            return nil
        end

        pos = pos + 1
    end
end


-- Where the element of an array begins, and the position after it.  pos: nil for
-- the first one, else the position after the one before.  nil: there is none.
function _M.element(text, pos)
    local _, last = find(text, pos and "^%s*,%s*" or "^%s*%[%s*", pos)
    local stop = last and after_value(text, last + 1)

    return stop and last + 1, stop
end


-- The text of the object of these fields (name -> the text of the value), with
-- those of changes instead of its own; false there leaves one out.
function _M.object(fields, changes)
    local parts = {}
    local n = 0

    for name, value in pairs(fields) do
        if changes[name] == nil then
            n = n + 1
            parts[n] = '"' .. name .. '":' .. value
        end
    end

    for name, value in pairs(changes) do
        if value then
            n = n + 1
            parts[n] = '"' .. name .. '":' .. value
        end
    end

    return "{" .. concat(parts, ",") .. "}"
end


return _M
