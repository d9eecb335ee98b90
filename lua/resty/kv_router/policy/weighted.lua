-- Copyright (C) the nginx-kv-router authors
--
-- weighted: each worker has a score, a weighted sum of scores from 0 to 1; the
-- shape and the names of llm-d's scheduler.  To be tuned by weights, where
-- kv_cost is tuned by what things cost.
--
--     prefix           blocks of the prompt in device memory, of all its
--                      blocks, times the discount of a view that is not to be
--                      trusted (0.5 for DEGRADED and SYNCING)
--     queue            1 for the shortest queue of all workers, 0 for the
--                      longest, in between as its length; the engine's waiting
--                      requests, or, when it does not report them, requests
--                      that are being prefilled
--     kv_usage         1 - the share of the engine's KV blocks in use; when it
--                      does not report that, as queue, by decode_blocks
--     active_requests  as queue, by active requests for the worker's weight
--     lora             1 where the request's adapter is loaded, 0 where it is
--                      not, 0.5 where that is not known; 1 without an adapter
--     session          1 for the worker that served the session last
--
-- Settings:
--
--     scorers  their weights: { prefix = 3, queue = 2, kv_usage = 2, lora = 1,
--              active_requests = 0, session = 0 }; those not named keep these
--     picker   "max"     the highest score, ties at random
--              "weighted"  at random, in proportion to the score
--              "random"  at random, whatever the score (retries go by it)
--     header, field, ttl, dict, entries   of sessions, as in the policy of that
--              name


local checked = require "resty.kv_router.request.conf".check
local discounts = require "resty.kv_router.request.discounts"
local find = string.find
local order = require "resty.kv_router.request.order"
local sessions = require "resty.kv_router.request.sessions"

local costs = order.costs
local explained = order.explained
local floor = math.floor
local huge = math.huge
local lowest = order.lowest
local max = math.max
local min = math.min
local number_of = sessions.number
local setmetatable = setmetatable


local _M = { name = "weighted" }
local mt = { __index = _M }


local SETTINGS = {
    scorers = { type = "table", default = {} },
    picker = { type = "string", default = "max",
               words = { "max", "weighted", "random" } },
    header = { type = "string", default = "x-session-id" },
    field = { type = "string", default = "session_id" },
    ttl = { type = "number", default = 600, min = 1 },
    dict = { type = "string" },
    entries = { type = "number", default = 65536, min = 2 },
}

local SCORERS = {
    prefix = { type = "number", default = 3 },
    queue = { type = "number", default = 2 },
    kv_usage = { type = "number", default = 2 },
    active_requests = { type = "number", default = 0 },
    lora = { type = "number", default = 1 },
    session = { type = "number", default = 0 },
}

local MIN_WEIGHT = 0.001     -- the smallest that is not 0


function _M.new(conf)
    local complete, err = checked(conf, SETTINGS)
    if not complete then
        return nil, err
    end

    local scorers, kept

    scorers, err = checked(complete.scorers, SCORERS)
    if not scorers then
        return nil, '"scorers": ' .. err
    end

    if scorers.session > 0 then
        kept, err = sessions.new(complete.dict, complete.ttl, complete.entries)
        if not kept then
            return nil, err
        end
    end

    -- done() costs, and is for sessions alone
    return setmetatable({ conf = complete, scorers = scorers,
                          sessions = kept, done = kept and sessions.moved }, mt)
end


-- ---- scorers: each subtracts from cost[1] and so on -------------------------

local function add_prefix(cost, weight, candidates, blocks)
    if blocks == 0 then
        return
    end

    for i = 1, #candidates do
        local c = candidates[i]

        cost[i] = cost[i] - weight * discounts[c.confidence_id]
                            * min(c.device / blocks, 1)
    end
end


local function queue_of(c)
    return c.waiting_requests or c.active_prefills
end


local function requests_of(c)
    return c.active_requests / max(c.weight, MIN_WEIGHT)
end


local function blocks_of(c)
    return c.decode_blocks
end


-- 1 for the least of what a worker has, 0 for the most; 1 when all are alike.
local function add_less(cost, weight, candidates, value_of)
    local lo, hi = huge, -huge

    for i = 1, #candidates do
        local value = value_of(candidates[i])

        lo = min(lo, value)
        hi = max(hi, value)
    end

    local scale = hi > lo and 1 / (hi - lo) or 0

    for i = 1, #candidates do
        local value = value_of(candidates[i])

        cost[i] = cost[i] - weight * (1 - (value - lo) * scale)
    end
end


local function add_kv_usage(cost, weight, candidates)
    for i = 1, #candidates do
        -- a mixture of both would compare what can't be compared
        if not candidates[i].kv_usage then
            add_less(cost, weight, candidates, blocks_of)
            return
        end
    end

    for i = 1, #candidates do
        cost[i] = cost[i] - weight * (1 - candidates[i].kv_usage)
    end
end


local function add_lora(cost, weight, candidates, lora)
    if not lora or lora == "" then
        return
    end

    lora = "," .. lora .. ","

    for i = 1, #candidates do
        local loaded = candidates[i].lora
        local score = 0.5

        if loaded then
            score = find("," .. loaded .. ",", lora, 1, true) and 1 or 0
        end

        cost[i] = cost[i] - weight * score
    end
end


-- ---- the choice -------------------------------------------------------------

-- Draws a candidate in proportion to its score, -cost; uniformly when all
-- scores are 0.
local function draw(cost, n, random)
    local total = 0

    for i = 1, n do
        total = total - cost[i]
    end

    if total <= 0 then
        return floor(random() * n) + 1
    end

    local left = random() * total

    for i = 1, n do
        left = left + cost[i]

        if left < 0 then
            return i
        end
    end

    -- rounding left a little over
    return n
end


-- Writes the costs of all candidates, their scores below zero; returns the
-- session's key, and the candidate that served it last.
local function fill(cost, ctx, self)
    local scorers = self.scorers
    local candidates = ctx.candidates
    local at, key

    for i = 1, #candidates do
        cost[i] = 0
    end

    if scorers.prefix > 0 then
        add_prefix(cost, scorers.prefix, candidates, ctx.prompt_blocks)
    end

    if scorers.queue > 0 then
        add_less(cost, scorers.queue, candidates, queue_of)
    end

    if scorers.kv_usage > 0 then
        add_kv_usage(cost, scorers.kv_usage, candidates)
    end

    if scorers.active_requests > 0 then
        add_less(cost, scorers.active_requests, candidates, requests_of)
    end

    if scorers.lora > 0 then
        add_lora(cost, scorers.lora, candidates, ctx.request.lora)
    end

    if self.sessions then
        key = sessions.key_of(ctx, self.conf.header, self.conf.field)
        at = key and self.sessions:find(key, candidates)

        if at then
            cost[at] = cost[at] - scorers.session
        end
    end

    return key, at
end


-- A score of 5 costs -5.
function _M:explain(ctx)
    return explained(fill, ctx, self)
end


-- The reason is "session" or "overlap" when that counted for the choice, else
-- "load"; "random" for that picker.
function _M:pick(ctx)
    local scorers = self.scorers
    local candidates = ctx.candidates
    local n = #candidates
    local cost = costs(n)
    local key, at = fill(cost, ctx, self)
    local picker = self.conf.picker
    local first

    if picker == "weighted" then
        first = draw(cost, n, ctx.random)

    elseif picker == "random" then
        first = floor(ctx.random() * n) + 1
    end

    local list, k = lowest(cost, n, ctx.wanted, ctx.random, first)
    local chosen = candidates[list[0]]
    local reason = "load"

    if key and not ctx.dry then
        self.sessions:set(key, number_of(chosen))
    end

    if picker == "random" then
        reason = "random"

    elseif at == list[0] then
        reason = "session"

    elseif scorers.prefix > 0 and chosen.device > 0 then
        reason = "overlap"
    end

    return list, k, reason
end


return _M
