-- Copyright (C) the nginx-kv-router authors
--
-- Who holds how much of a prompt: what index:find_matches() returns and what
-- a policy finds in ctx.matches.
--
--     for worker, rank, device, host, disk in m:each() do ... end
--     local device, host, disk = m:blocks(worker, rank)
--     m.prompt_blocks
--     m.frequencies[i]
--     m.cut
--
-- Blocks, cumulative: device <= host <= disk.  Holders of nothing are absent.
-- Frequencies: of each block, up to the deepest that anybody holds, how many
-- lookups matched it lately, before this one; nil when the zone counts none.
-- Cut: true when the lookup ended at the maximum number of runs, or blocks, so
-- that holders may have more.


local setmetatable = setmetatable


local _M = {}
local mt = { __index = _M }


-- list: an array, from 0, of n cdata with worker, rank, device, host, disk.
-- counts: nil, or cdata, a number for each of the first k blocks, copied.
function _M.new(list, n, prompt_blocks, counts, k, cut)
    local frequencies

    if counts ~= nil then
        frequencies = {}

        for i = 1, k do
            frequencies[i] = counts[i - 1]
        end
    end

    return setmetatable({ list = list, n = n, prompt_blocks = prompt_blocks,
                          frequencies = frequencies, cut = cut }, mt)
end


-- The function keeps nothing; the loop's place is in the loop's own table.
local function step(loop)
    local m = loop.matches
    local i = loop.next

    while i < m.n do
        local e = m.list[i]

        i = i + 1

        if e.disk > 0 then
            loop.next = i
            return e.worker, e.rank, e.device, e.host, e.disk
        end
    end

    return nil
end


-- For a generic for, in order of holders; loops may be nested.
function _M:each()
    return step, { matches = self, next = 0 }
end


-- Blocks of the prompt that (worker, rank) holds; rank 0 when it is not given.
function _M:blocks(worker, rank)
    rank = rank or 0

    for i = 0, self.n - 1 do
        local e = self.list[i]

        if e.rank == rank and e.worker_len == #worker and e.worker == worker
        then
            return e.device, e.host, e.disk
        end
    end

    return 0, 0, 0
end


return _M
