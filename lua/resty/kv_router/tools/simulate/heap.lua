-- Copyright (C) the nginx-kv-router authors
--
-- A binary heap.  before(a, b) says whether a is taken out before b.


local _M = {}
local mt = { __index = _M }


function _M.new(before)
    return setmetatable({ before = before, n = 0 }, mt)
end


function _M:push(entry)
    local before = self.before
    local i = self.n + 1

    self.n = i

    while i > 1 do
        local up = (i - i % 2) / 2

        if not before(entry, self[up]) then
            break
        end

        self[i] = self[up]
        i = up
    end

    self[i] = entry
end


-- Takes the first one out; there must be one.
function _M:pop()
    local before, n = self.before, self.n
    local top, last = self[1], self[n]

    self[n] = nil
    n = n - 1
    self.n = n

    local i = 1

    while 2 * i <= n do
        local child = 2 * i

        if child < n and before(self[child + 1], self[child]) then
            child = child + 1
        end

        if not before(self[child], last) then
            break
        end

        self[i] = self[child]
        i = child
    end

    if n > 0 then
        self[i] = last
    end

    return top
end


return _M
