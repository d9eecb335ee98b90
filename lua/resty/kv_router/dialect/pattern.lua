-- Copyright (C) the nginx-kv-router authors
--
-- Regular expressions that Python takes: SGLang refuses a tool with one that
-- it does not take.  plain() knows the usual ones, and says no to many that
-- Python takes, too.


local byte = string.byte
local find = string.find
local match = string.match
local sub = string.sub
local tonumber = tonumber
local type = type


local _M = {}


-- The end of an element of a class that begins at i, and its character; 0: it
-- stands for several.  nil: not known.
local function element(s, i)
    local c = sub(s, i, i)

    if c == "\\" then
        if find(s, "^[dDwWsS]", i + 1) then
            return i + 1, 0
        elseif find(s, "^%p", i + 1) then
            return i + 1, byte(s, i + 1)
        end

        return nil
    elseif c == "" or c == "[" or c == "]" or byte(c) > 127 then
        return nil
    end

    return i, byte(c)
end


-- The end of the class whose bracket is at i; nil: not known.
local function class(s, i)
    i = i + 1

    if sub(s, i, i) == "^" then
        i = i + 1
    end

    local from = i

    while sub(s, i, i) ~= "]" or i == from do
        local last, first = element(s, i)

        if not last then
            return nil
        end

        -- a range
        if find(s, "^%-[^%]]", last + 1) then
            local to, second = element(s, last + 2)

            if not to or first == 0 or second == 0 or first > second then
                return nil
            end

            last = to
        end

        i = last + 1
    end

    return i
end


-- The end of what begins at i, and what it is: "atom", can be repeated; "mark",
-- can't; "times", repeats; "open", "close", "or".  nil: not known.
local function token(s, i)
    local c = sub(s, i, i)

    if c == "[" then
        return class(s, i), "atom"
    elseif c == "\\" then
        if find(s, "^[dDwWsS%p]", i + 1) then
            return i + 1, "atom"
        end

        return nil
    elseif c == "(" then
        if sub(s, i + 1, i + 1) ~= "?" then
            return i, "open"
        end

        return sub(s, i + 2, i + 2) == ":" and i + 2 or nil, "open"
    elseif c == ")" then
        return i, "close"
    elseif c == "|" then
        return i, "or"
    elseif c == "^" or c == "$" then
        return i, "mark"
    elseif c == "*" or c == "+" or c == "?" then
        return i, "times"
    elseif c == "{" then
        local least, _, most = match(s, "^{(%d%d?%d?)(,?)(%d?%d?%d?)}", i)
        local _, last = find(s, "^{%d%d?%d?,?%d?%d?%d?}", i)

        if not least or (most ~= "" and tonumber(most) < tonumber(least))
           or (most ~= "" and not find(s, "^{%d+,", i))
        then
            return nil
        end

        return last, "times"
    elseif c == "}" or c == "]" then
        return nil
    end

    return i, "atom"
end


-- Does Python take this text as a regular expression, surely?
function _M.plain(s)
    if type(s) ~= "string" then
        return false
    end

    local i, depth, before = 1, 0, "mark"

    while i <= #s do
        local last, kind = token(s, i)

        if not last then
            return false
        elseif kind == "times" then
            -- what is repeated can be made lazy once
            if before == "times" and sub(s, i, last) == "?" then
                kind = "mark"
            elseif before ~= "atom" then
                return false
            end
        elseif kind == "open" then
            depth = depth + 1
            kind = "mark"
        elseif kind == "close" then
            depth = depth - 1
            kind = "atom"

            if depth < 0 then
                return false
            end
        elseif kind == "or" then
            kind = "mark"
        end

        i, before = last + 1, kind
    end

    return depth == 0
end


return _M
