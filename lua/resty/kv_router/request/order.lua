-- Copyright (C) the nginx-kv-router authors
--
-- Puts candidates in order by a cost: what most policies end with.
--
--     local cost = order.costs(n)                 -- cost[1] .. cost[n]
--     for i = 1, n do cost[i] = ... end
--     return order.lowest(cost, n, ctx.wanted, ctx.random)
--
-- The buffers are the process's: good until the policy returns, as it may not
-- yield.  Everything is linear in n and compiles.


local ffi = require "ffi"

local exp = math.exp
local ffi_new = ffi.new
local floor = math.floor
local huge = math.huge
local max = math.max
local min = math.min


local _M = {}


-- Two keys in one number that a double holds exactly: requests for the weight
-- in steps of 1/1024, then blocks.
local STEPS = 1024
local BLOCKS = 2^22          -- more than any engine has
local MIN_WEIGHT = 0.001     -- the smallest that is not 0

-- the load of one request for a weight of 1
_M.REQUEST = STEPS * BLOCKS

local MIN_SIZE = 64
local capacity = 0
local costs
local list


-- A double array to write the costs of candidates 1 to n to; any finite
-- numbers.
function _M.costs(n)
    if n > capacity then
        local size = max(2 * n, MIN_SIZE)

        costs = ffi_new("double[?]", size + 1)
        list = ffi_new("uint32_t[?]", size)
        capacity = size
    end

    return costs
end


-- The costs of all candidates as a table: what a policy's explain() returns.
-- fill(cost, ctx, ...) writes them.
function _M.explained(fill, ctx, ...)
    local n = #ctx.candidates
    local cost = _M.costs(n)
    local found = {}

    fill(cost, ctx, ...)

    for i = 1, n do
        found[i] = cost[i]
    end

    return found
end


-- One of those with the smallest cost, uniformly at random; nil when no cost
-- is a number below infinity.
local function smallest(cost, n, random)
    local least = huge
    local ties = 0
    local at

    for i = 1, n do
        local c = cost[i]

        if c < least then
            least = c
            ties = 1
            at = i

        elseif c == least then
            ties = ties + 1
        end
    end

    if ties < 2 or least == huge then
        return at
    end

    -- the first one is at; go on to the one drawn
    local skip = floor(random() * ties)

    while skip > 0 do
        at = at + 1

        if cost[at] == least then
            skip = skip - 1
        end
    end

    return at
end


-- The k candidates of the smallest costs, ties at random, or all n when there
-- are fewer; first (optional) goes before them whatever its cost.  Overwrites
-- the costs of those it takes.  Returns an array of candidate numbers, from 0,
-- and its length: what pick() may return.
function _M.lowest(cost, n, k, random, first)
    local taken = 0

    if first then
        list[0] = first
        cost[first] = huge
        taken = 1
    end

    while taken < k do
        local i = smallest(cost, n, random)

        if not i then
            break
        end

        list[taken] = i
        cost[i] = huge
        taken = taken + 1
    end

    return list, taken
end


-- What orders workers by load: the smaller, the less.
function _M.load(c, block_size)
    local requests = c.active_requests / max(c.weight, MIN_WEIGHT)
    local blocks = c.prefill_tokens / block_size + c.decode_blocks

    return floor(requests * STEPS + 0.5) * BLOCKS + min(blocks, BLOCKS - 1)
end


-- The k least loaded of candidates (anything with #, [i] and a candidate's
-- fields): an array of their numbers, from 1, and its length.
function _M.least(candidates, block_size, k, random)
    local n = #candidates
    local cost = _M.costs(n)

    for i = 1, n do
        cost[i] = _M.load(candidates[i], block_size)
    end

    return _M.lowest(cost, n, k, random)
end


-- Draws a candidate with probabilities softmax(-cost / temperature), the costs
-- normalised by (max - min); temperature > 0, n > 0.
function _M.sample(cost, n, temperature, random)
    local lo, hi = huge, -huge

    for i = 1, n do
        local c = cost[i]

        if c < lo then
            lo = c
        end

        if c > hi then
            hi = c
        end
    end

    if hi == lo then
        return floor(random() * n) + 1
    end

    local scale = -1 / ((hi - lo) * temperature)
    local sum = 0

    for i = 1, n do
        sum = sum + exp((cost[i] - lo) * scale)
    end

    local left = random() * sum

    for i = 1, n do
        left = left - exp((cost[i] - lo) * scale)

        if left < 0 then
            return i
        end
    end

    -- rounding left a little over
    return n
end


return _M
