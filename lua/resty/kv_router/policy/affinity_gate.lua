-- Copyright (C) the nginx-kv-router authors
--
-- affinity_gate: the least loaded of the workers that have nearly all of the
-- prompt cached, unless they are much busier than the others.  The rule is that
-- of llm-d's prefix-cache-affinity-filter with its token-load-scorer, and so
-- are the defaults.
--
--     matched = discount * device / prompt_blocks
--     load    = decode_blocks * block_size: the tokens in flight
--     near    = the workers with matched >= threshold
--
-- All workers are in when none is near, when a draw below explore says so, or
-- when the nearest worker is too busy:
--
--     least load of near - least load of the others > penalty * prefill_speed
--
-- else those that are near.  Of those that are in, the smallest load, up to
-- 4,194,304 tokens; ties at random.
--
-- A block that several requests of a worker share counts once, where llm-d
-- counts it for each of them.  The discount is that of a view that is not to be
-- trusted (0.5 for DEGRADED and SYNCING, 0.7 for BOUND): by default such
-- a worker is never near.  Weights and slow starts are not heeded.
--
-- Settings:
--
--     threshold      0.8    share of the prompt's blocks, above 0, to 1
--     explore        0      probability, 0 to 1, that affinity is not heeded
--     penalty        18     seconds of prefill by which those that are near may
--                           be behind
--     prefill_speed  15928  tokens per second that a worker prefills; the
--                           default is of Qwen3-32B on two H100


local discounts = require "resty.kv_router.request.discounts"
local maker = require "resty.kv_router.request.conf".maker
local order = require "resty.kv_router.request.order"

local costs = order.costs
local explained = order.explained
local huge = math.huge
local lowest = order.lowest
local min = math.min


local _M = { name = "affinity_gate" }
local mt = { __index = _M }


local SETTINGS = {
    threshold = { type = "number", default = 0.8, min = 0.001, max = 1 },
    explore = { type = "number", default = 0, max = 1 },
    penalty = { type = "number", default = 18 },
    prefill_speed = { type = "number", default = 15928, min = 1 },
}

local FULL = 4194304         -- tokens; above, all loads are alike
local OUT = 2^40             -- tokens; what a worker that is not in costs more


_M.new = maker(SETTINGS, mt)


-- Writes the load of each candidate, and OUT more for those that are not near.
-- Returns the least cost of those that are near, and of the others; infinity
-- when there is none.
local function fill(cost, ctx, threshold)
    local candidates = ctx.candidates
    local bs, needed = ctx.block_size, threshold * ctx.prompt_blocks
    local near, others = huge, huge

    for i = 1, #candidates do
        local c = candidates[i]
        local matched = discounts[c.confidence_id] * c.device
        local load = c.decode_blocks * bs

        if matched > 0 and matched >= needed then
            cost[i] = load
            near = min(near, load)

        else
            cost[i] = load + OUT
            others = min(others, load)
        end
    end

    return near, others
end


-- Bounds the loads; with all, those that are not near are in, too.
local function bound(cost, n, all)
    for i = 1, n do
        local far = cost[i] >= OUT
        local load = min(far and cost[i] - OUT or cost[i], FULL)

        cost[i] = far and not all and load + OUT or load
    end
end


-- Writes the costs.  The reason why all workers are in, or nil.
local function weigh(cost, ctx, self, exploring)
    local conf = self.conf
    local near, others = fill(cost, ctx, conf.threshold)
    local why

    if near == huge then
        why = "no overlap"

    elseif exploring then
        why = "explore"

    elseif near - others > conf.penalty * conf.prefill_speed then
        why = "load"
    end

    bound(cost, #ctx.candidates, why)

    return why
end


-- The loads, 2^40 more for workers that are not in.  Nothing is drawn for it.
function _M:explain(ctx)
    return explained(weigh, ctx, self, false)
end


-- The reason is "overlap" when one of those that are near was chosen, else why
-- all were in: "no overlap", "explore" or "load".
function _M:pick(ctx)
    local explore = self.conf.explore
    local n = #ctx.candidates
    local cost = costs(n)
    local exploring = explore > 0 and ctx.random() < explore
    local why = weigh(cost, ctx, self, exploring)
    local list, k = lowest(cost, n, ctx.wanted, ctx.random)

    return list, k, why or "overlap"
end


return _M
