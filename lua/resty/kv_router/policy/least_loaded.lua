-- Copyright (C) the nginx-kv-router authors
--
-- least_loaded: the fewest active requests for its weight; among equals the
-- fewest blocks to prefill and decode; among equals of these one at random.
-- Knows nothing of caches.  It is also what routing falls back to when a
-- policy fails.  No settings.


local checked = require "resty.kv_router.conf".check
local order = require "resty.kv_router.order"

local costs = order.costs
local floor = math.floor
local lowest = order.lowest
local max = math.max
local min = math.min
local setmetatable = setmetatable


local _M = { name = "least_loaded" }
local mt = { __index = _M }


-- Two keys in one number that a double holds exactly: requests for the weight
-- in steps of 1/1024, then blocks.
local STEPS = 1024
local BLOCKS = 2^22          -- more than any engine has
local MIN_WEIGHT = 0.001     -- the smallest that is not 0


function _M.new(conf)
    local ok, err = checked(conf, {})
    if not ok then
        return nil, err
    end

    return setmetatable({}, mt)
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
    local cost = costs(n)

    for i = 1, n do
        cost[i] = _M.load(candidates[i], block_size)
    end

    return lowest(cost, n, k, random)
end


-- Requests for a weight of 1, and behind the point what decides among equals.
function _M:explain(ctx)
    local candidates = ctx.candidates
    local found = {}

    for i = 1, #candidates do
        found[i] = _M.load(candidates[i], ctx.block_size) / (STEPS * BLOCKS)
    end

    return found
end


function _M:pick(ctx)
    local list, k = _M.least(ctx.candidates, ctx.block_size, ctx.wanted,
                             ctx.random)

    return list, k, "load"
end


return _M
