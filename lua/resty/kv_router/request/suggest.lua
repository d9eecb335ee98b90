-- Copyright (C) the nginx-kv-router authors
--
-- What to write instead of a mistyped name.


local byte = string.byte
local concat = table.concat
local min = math.min
local sort = table.sort


local _M = {}


-- The number of letters to insert, delete or replace that makes b of a.
local function distance(a, b)
    local row = {}

    for j = 0, #b do
        row[j] = j
    end

    for i = 1, #a do
        local diagonal = row[0]

        row[0] = i

        for j = 1, #b do
            local replaced = diagonal + (byte(a, i) == byte(b, j) and 0 or 1)

            diagonal = row[j]
            row[j] = min(replaced, row[j] + 1, row[j - 1] + 1)
        end
    end

    return row[#b]
end


-- The end of a message about an unknown name: the nearest of the names that
-- there are, if one is near, and all of them.  names: an array, which is sorted
-- by this.
function _M.among(name, names)
    local nearest
    local least = min(3, #name / 2)

    if #names == 0 then
        return ": there is none"
    end

    sort(names)

    for i = 1, #names do
        local letters = distance(name, names[i])

        if letters <= least then
            nearest, least = names[i], letters - 1
        end
    end

    return (nearest and ': did you mean "' .. nearest .. '"? There are '
                    or ": there are ") .. concat(names, ", ")
end


return _M
