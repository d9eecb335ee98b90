-- Copyright (C) the nginx-kv-router authors
--
-- lmetric: the smallest product of what must be prefilled before the first
-- token and of the requests that share the worker.  The formula is that of
-- LMetric (arXiv 2603.15202); it has no weights.
--
--     matched  = discount * device, in blocks
--     uncached = prompt_tokens - min(prompt_tokens, matched * block_size)
--     cost     = max(block_size, prefill_tokens + uncached)
--                * (active_requests + 1) / share
--
-- Equal costs: the fewest active requests, then at random.
--
-- The paper's product is 0 for a prompt that is cached as a whole at a worker
-- which prefills nothing, however many requests run there.  Here at least one
-- block counts, which an engine computes even then.  The discount is that of a
-- view that is not to be trusted (0.5 for DEGRADED and SYNCING, 0.7 for
-- BOUND).  share is below 1 while a worker starts slowly.  Weights are not
-- heeded.  No settings.


local discounts = require "resty.kv_router.request.discounts"
local maker = require "resty.kv_router.request.conf".maker
local order = require "resty.kv_router.request.order"

local costs = order.costs
local explained = order.explained
local lowest = order.lowest
local max = math.max
local min = math.min


local _M = { name = "lmetric" }
local mt = { __index = _M }


local REQUESTS = 2^20        -- more than any worker has


_M.new = maker({}, mt)


-- Writes the cost of each candidate, in tokens times requests.  What is behind
-- the point orders equal costs by active requests.
local function fill(cost, ctx)
    local candidates = ctx.candidates
    local bs, isl = ctx.block_size, ctx.prompt_tokens

    for i = 1, #candidates do
        local c = candidates[i]
        local matched = discounts[c.confidence_id] * c.device * bs
        local tokens = c.prefill_tokens + isl - min(isl, matched)
        local active = c.active_requests

        cost[i] = max(bs, tokens) * (active + 1) / c.share
                  + min(active, REQUESTS - 1) / REQUESTS
    end
end


function _M:explain(ctx)
    return explained(fill, ctx)
end


-- As that of kv_cost, for device memory.
local function reason_of(ctx, list)
    if ctx.candidates[list[0]].device > 0 then
        return "overlap"
    end

    return ctx.best > 0 and "load" or "no overlap"
end


-- The reason is "overlap" when something of the prompt is cached where it goes,
-- "load" when it was elsewhere, but load decided, else "no overlap".
function _M:pick(ctx)
    local n = #ctx.candidates
    local cost = costs(n)

    fill(cost, ctx)

    local list, k = lowest(cost, n, ctx.wanted, ctx.random)

    return list, k, reason_of(ctx, list)
end


return _M
