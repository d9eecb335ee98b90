-- Copyright (C) the nginx-kv-router authors
--
-- cache_aware: the rule of SGLang's gateway.  When the worker with the longest
-- match has at least cache_threshold of the prompt, the request goes there;
-- else to the least loaded one.  Among equal matches the least loaded.
--
-- Simpler than kv_cost: load counts only when the cache does not, so that a
-- popular prefix may pile up requests at one worker.  The gateway's answer is
-- a switch: while the load is uneven, all requests go to the least loaded
-- worker,
--
--     max active - min active > balance_abs_threshold  and
--     max active > balance_rel_threshold * min active
--
-- It is off here: it throws affinity away just when the fleet is busy, the
-- misses add to the load, and that keeps the switch on.
--
-- Settings:
--
--     cache_threshold        0.3    share of the prompt's blocks, 0 to 1
--     balance                false  true: the switch
--     balance_abs_threshold  64     requests
--     balance_rel_threshold  1.5


local maker = require "resty.kv_router.request.conf".maker
local order = require "resty.kv_router.request.order"
local least_loaded = require "resty.kv_router.policy.least_loaded"

local costs = order.costs
local huge = math.huge
local lowest = order.lowest
local max = math.max
local min = math.min


local _M = { name = "cache_aware" }
local mt = { __index = _M }


local SETTINGS = {
    cache_threshold = { type = "number", default = 0.3, max = 1 },
    balance = { type = "boolean", default = false },
    balance_abs_threshold = { type = "number", default = 64 },
    balance_rel_threshold = { type = "number", default = 1.5 },
}

local REQUESTS = 2^20        -- more than any worker has
local MIN_WEIGHT = 0.001     -- the smallest that is not 0


_M.new = maker(SETTINGS, mt)


local function uneven(conf, candidates)
    local lo, hi = huge, 0

    for i = 1, #candidates do
        local active = candidates[i].active_requests

        lo = min(lo, active)
        hi = max(hi, active)
    end

    return hi - lo > conf.balance_abs_threshold
           and hi > conf.balance_rel_threshold * lo
end


-- Why the match doesn't count: "uneven load", "load"; nil: it does.
local function refused(conf, ctx)
    if conf.balance and uneven(conf, ctx.candidates) then
        return "uneven load"
    end

    if ctx.best == 0 or ctx.best < conf.cache_threshold * ctx.prompt_blocks
    then
        return "load"
    end

    return nil
end


-- The match first, then the load: two keys in one number.
local function cost_of(c)
    local requests = c.active_requests / max(c.weight, MIN_WEIGHT)

    return min(requests, REQUESTS - 1) - c.device * REQUESTS
end


-- As least_loaded when the load decides; else the blocks of the match below
-- zero, and the load behind the point.
function _M:explain(ctx)
    local candidates = ctx.candidates
    local found = {}

    if refused(self.conf, ctx) then
        return least_loaded.explain(self, ctx)
    end

    for i = 1, #candidates do
        found[i] = cost_of(candidates[i]) / REQUESTS
    end

    return found
end


-- The reason is "overlap", "load" when too little of the prompt is cached
-- anywhere, or "uneven load" when the switch decided.
function _M:pick(ctx)
    local candidates = ctx.candidates
    local why = refused(self.conf, ctx)

    if why then
        local list, k = order.least(candidates, ctx.block_size, ctx.wanted,
                              ctx.random)

        return list, k, why
    end

    local n = #candidates
    local cost = costs(n)

    for i = 1, n do
        cost[i] = cost_of(candidates[i])
    end

    local list, k = lowest(cost, n, ctx.wanted, ctx.random)

    return list, k, "overlap"
end


return _M
