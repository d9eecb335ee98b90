-- Copyright (C) the nginx-kv-router authors
--
-- The directives of an nginx.conf and of the files that it includes, in their
-- order, each with its file and line.  Blocks are not nested: the directives
-- within follow the one that opens it.


local concat = table.concat
local find = string.find
local gsub = string.gsub
local ipairs = ipairs
local match = string.match
local open = io.open
local popen = io.popen
local rep = string.rep
local sub = string.sub


local _M = {}


local DEPTH = 20                 -- files that include each other


-- The end of a Lua string, comment or long bracket that begins at i, or nil.
local function skip_lua(text, i)
    local level = match(text, "^%-%-%[(=*)%[", i) or match(text, "^%[(=*)%[", i)

    if level then
        local _, last = find(text, "]" .. level .. "]", i, true)

        return last
    end

    if sub(text, i, i + 1) == "--" then
        return find(text, "\n", i, true)
    end

    local quote = match(text, "^[\"']", i)

    if not quote then
        return nil
    end

    i = i + 1

    while i <= #text and sub(text, i, i) ~= quote do
        i = i + (sub(text, i, i) == "\\" and 2 or 1)
    end

    return i
end


-- The place of the brace that ends a block of Lua; i: behind the first brace.
local function lua_end(text, i)
    local depth = 1

    while i <= #text do
        local c = sub(text, i, i)
        local last = skip_lua(text, i)

        if last then
            i = last

        elseif c == "{" then
            depth = depth + 1

        elseif c == "}" then
            depth = depth - 1

            if depth == 0 then
                return i
            end
        end

        i = i + 1
    end

    return nil
end


-- The word that begins at i, and the place behind it.
local function word(text, i)
    local quote = match(text, "^[\"']", i)

    if not quote then
        local found = match(text, "^[^%s;{]+", i)

        return found, i + #found
    end

    local parts = {}

    i = i + 1

    while i <= #text and sub(text, i, i) ~= quote do
        if find(text, "^\\[\\\"']", i) then
            i = i + 1
        end

        parts[#parts + 1] = sub(text, i, i)
        i = i + 1
    end

    return concat(parts), i + 1
end


local function count_lines(text, from, to)
    local _, n = gsub(sub(text, from, to), "\n", "")

    return n
end


local read


-- The files that an include names; a name with no "*", "?" or "[" must be there.
local function include(pattern, base, out, depth)
    if sub(pattern, 1, 1) ~= "/" then
        pattern = base .. pattern
    end

    if not find(pattern, "[*?[]") then
        return read(pattern, base, out, depth)
    end

    -- all else that means something to the shell is quoted
    local list = popen("ls -d -- " .. gsub(pattern, "[^%w_./*?%[%]-]", "\\%0")
                       .. " 2>/dev/null")

    for file in list:lines() do
        local ok, err = read(file, base, out, depth)

        if not ok then
            list:close()
            return nil, err
        end
    end

    list:close()

    return true
end


-- Puts the directives of a file behind those in out.
function read(path, base, out, depth)
    local file, err = open(path)
    local text = file and file:read("*a")

    if file then
        file:close()
    end

    if not text then
        return nil, err or path .. " can't be read"
    end

    if depth > DEPTH then
        return nil, path .. ": more than " .. DEPTH .. " files include each other"
    end

    local i, line, now = 1, 1, nil

    while true do
        local at = find(text, "%S", i)

        if not at then
            return true
        end

        line = line + count_lines(text, i, at - 1)
        i = at

        local c = sub(text, i, i)

        if c == "#" then
            i = find(text, "\n", i, true) or #text + 1

        elseif c == ";" or c == "{" or c == "}" then
            i = i + 1

            if c == "{" and now and find(now.name, "_by_lua_block$") then
                local last = lua_end(text, i)

                if not last then
                    return nil, path .. ":" .. now.line .. ": the block of "
                                .. now.name .. " has no end"
                end

                now.lua = rep("\n", line - 1) .. sub(text, i, last - 1)
                line = line + count_lines(text, i, last)
                i = last + 1

            elseif now and now.name == "include" and now[1] then
                local ok

                ok, err = include(now[1], base, out, depth + 1)

                if not ok then
                    return nil, path .. ":" .. now.line .. ": " .. err
                end
            end

            now = nil

        else
            local found, behind = word(text, i)

            if now then
                now[#now + 1] = found
            else
                now = { name = found, file = path, line = line }
                out[#out + 1] = now
            end

            line = line + count_lines(text, i, behind - 1)
            i = behind
        end
    end
end


-- Reads the file of that name.  Returns an array of directives, each { name =,
-- file =, line =, arguments..., lua = the text of a block of Lua, on its line },
-- or nil and a sentence.  Names of included files are relative to its folder, as
-- they are for nginx.
function _M.read(path)
    local out = {}
    local base = match(path, "^.*/") or "./"
    local ok, err = read(path, base, out, 1)

    if not ok then
        return nil, err
    end

    return out
end


-- Those of that name.
function _M.named(directives, name)
    local out = {}

    for _, directive in ipairs(directives) do
        if directive.name == name then
            out[#out + 1] = directive
        end
    end

    return out
end


return _M
