-- Copyright (C) the nginx-kv-router authors
--
-- kv_cost: the worker where the request costs the least, counting what it
-- must prefill there, what it finds cached, and what already runs.  The
-- formula is that of Dynamo's KV router, and four things more: the weight of
-- prefill (prefill_load_scale), what is being prefilled for other requests
-- (in_flight), how fast a cache loses what it has (churn), and which router is
-- the home of the worker (home).
--
-- Lower is better; bs is the block size, isl the prompt's tokens, device, host
-- and disk the blocks of the prompt cached there (host and disk: those beyond
-- the tier above), each times the discount of the worker's confidence:
--
--     device        = max(device, in_flight)
--     cached_tokens = round(bs * (device + HOST * host + DISK * disk))
--     uncached      = isl - min(cached_tokens, isl)
--     decay         = 1 / (1 + DECAY * ((prefill_tokens - min prefill_tokens)
--                                       / bs) / ceil(isl / bs))
--     credit        = OVERLAP_CREDIT * decay * device + HOST * host
--                     + DISK * disk
--     turn          = (bs * churn + 4096) / (bs * mean churn + 4096)
--     wear          = 1 + CHURN * (min(1.5, turn) - 1)
--     prefill       = prefill_tokens / bs
--                     + wear * ((uncached + cached_tokens) / bs - credit)
--     decode        = decode_blocks + additional_blocks
--     away          = HOME * min(1, own / 16)
--                     * max(0, isl / bs - max(disk, in_flight)) at another
--                     router's home worker, 0 elsewhere; own: the candidates
--                     whose home this router is
--     cost          = PREFILL_LOAD_SCALE * (max(0, prefill) + away)
--                     + decode + ACTIVE_REQUEST_WEIGHT * active_requests
--
-- and all of it divided by the worker's share, which is below 1 while it starts
-- slowly.  Weights are not heeded.  wear is 1 as long as no worker has churn, and
-- near 1 as long as the workers have stored little.
--
-- in_flight: the blocks of the prompt that the worker already prefills or has
-- prefilled for requests that are not over: the next request shares them.
-- Without it, all requests of a burst with one prompt are prefilled until the
-- first event comes.
--
-- churn: the blocks that the worker has stored lately.  A block that is stored
-- in a full cache pushes out another one, which is asked for again where many
-- conversations are.  So what is not cached is dearer at a worker that stores
-- more than the mean one, whoever sends the requests to it, and cheaper at one
-- that stores less: by a factor of 0.2 to 1.4.  Conversations leave a worker
-- that has lost most of what they had there.  And a prefix that all requests
-- have spreads: new conversations do not follow it to the few workers that had
-- it first.  A conversation that is cached nearly whole stays.
--
-- away: where several routers share their load, each worker has one of them as
-- its home.  A prompt that nobody has goes to one of the router's own workers
-- first, so that routers do not all choose one worker before they hear of one
-- another.  What is cached or in flight is followed wherever it is.  A router
-- which is the home of few workers would keep a prefix that all requests have at
-- these few: with less than 16 the home counts for less.
--
-- pull: kv-simulate alone has it.  What the candidate with the most blocks has
-- more than another one can be computed there or pulled from it.  The lesser of
-- both counts:
--
--     missing       = held - device, of the candidate that holds the most
--     pulled        = (wait + BASE_MS + MS_PER_1000_TOKENS * bs * missing / 1000)
--                     / 1000 * prefill_tps / bs
--     prefill       = prefill_tokens / bs + wear * (... - max(0, missing - pulled))
--
-- wait: a holder sends what it is asked for one after the other, as far as this
-- policy has asked it.  While a candidate's speed is not known nothing is pulled.
--
-- Settings (policy_conf; every one also for one request, by
-- router:access { params = { ... } }):
--
--                            default  Dynamo's
--     dynamo                 false    true      true: the defaults are those
--                                               of the second column
--     overlap_credit         1        1         worth of a block cached in
--                                               device memory
--     host                   0.75     0.75      of one in host memory
--     disk                   0.25     0.25      of one on disk
--     prefill_load_scale     8        1         weight of prefill against
--                                               decode
--     in_flight              true     false     false: what is in flight is
--                                               not counted as cached
--     churn                  0.8      0         weight of churn, up to 1
--     home                   0.3      0         weight of the home: blocks that
--                                               a block which is not there
--                                               costs more
--     track_prefill          true     true      false: prefill is 0
--     decay                  0        0         how fast credit fades as
--                                               prefill queues up
--     active_request_weight  0        0         blocks that a running request
--                                               counts for
--     temperature            0        0         0: the smallest cost, ties at
--                                               random; above: softmax over
--                                               normalised costs
--     discount               by confidence, 0 to 1, those not named keep their
--                            default: { EXACT = 1, UNVERIFIED = 1,
--                            UNKNOWN = 1, BOUND = 0.7, DEGRADED = 0.5,
--                            SYNCING = 0.5, ESTIMATED = 1 };
--                            Dynamo has none: 1 for each
--     pull                   nil      nil       { base_ms = ...,
--                                               ms_per_1000_tokens = ... }
--
-- A setting that is named, in policy_conf or in params, has the named value
-- whatever dynamo is.
--
-- With prefill_load_scale = 1 a block of a running request costs as much as a
-- block to prefill, so that a conversation leaves the worker that has it
-- cached for one with less to decode, and is then cached twice.
--
-- A policy is a module with new(conf), which returns an object with
-- pick(self, ctx) and, if it likes, done(self, ctx, outcome).  What they are
-- given and may return is told in resty.kv_router.policy.


local checked = require "resty.kv_router.request.conf".check
local ffi = require "ffi"
local names = require "resty.kv_router.ffi".CONFIDENCES
local usual = require "resty.kv_router.ffi".DISCOUNTS
local order = require "resty.kv_router.request.order"

local ceil = math.ceil
local costs = order.costs
local error = error
local explained = order.explained
local ffi_new = ffi.new
local floor = math.floor
local huge = math.huge
local lowest = order.lowest
local max = math.max
local min = math.min
local sample = order.sample
local pairs = pairs
local setmetatable = setmetatable


local _M = { name = "kv_cost" }
local mt = { __index = _M }


local SETTINGS = {
    overlap_credit = { type = "number", default = 1 },
    host = { type = "number", default = 0.75 },
    disk = { type = "number", default = 0.25 },
    dynamo = { type = "boolean", default = false },
    prefill_load_scale = { type = "number" },
    in_flight = { type = "boolean" },
    churn = { type = "number", max = 1 },
    home = { type = "number" },
    track_prefill = { type = "boolean", default = true },
    decay = { type = "number", default = 0 },
    active_request_weight = { type = "number", default = 0 },
    temperature = { type = "number", default = 0 },
    discount = { type = "table" },
    pull = { type = "table" },
}

local PULL = { base_ms = { type = "number", default = 0 },
               ms_per_1000_tokens = { type = "number", default = 0 } }

-- The defaults of the settings that depend on `dynamo`.
local OWN = { prefill_load_scale = 8, in_flight = true, churn = 0.8,
              home = 0.3 }
local DYNAMO = { prefill_load_scale = 1, in_flight = false, churn = 0,
                 home = 0 }

local HOMES = 16                     -- workers of a router: the home is whole
local FRESH = 4096                   -- tokens of churn that make no difference
local WORN = 1.5                     -- the most that counts, of the mean churn

local DISCOUNTS = {
    STALE = { gone = 'a silent worker is "DEGRADED"' },
    EXTERNAL = { gone = 'what the API writes is "UNVERIFIED"' },
}

for _, name in pairs(names) do
    DISCOUNTS[name] = { type = "number", max = 1 }
end


-- Complete settings.  Those of OWN and the discounts stay nil while nobody
-- names them; the loop reads scale, flying, wear and homing, and
-- by_confidence, an array by confidence_id.  base: settings for those not given.
local function settings(given, base)
    local conf, err = checked(given, SETTINGS, base)
    if not conf then
        return nil, err
    end

    local usually = conf.dynamo and DYNAMO or OWN

    conf.scale = conf.prefill_load_scale or usually.prefill_load_scale
    conf.wear = conf.churn or usually.churn
    conf.homing = conf.home or usually.home
    conf.flying = conf.in_flight

    if conf.flying == nil then
        conf.flying = usually.in_flight
    end

    if conf.pull and (not base or conf.pull ~= base.pull) then
        if not _M.simulated then
            return nil, '"pull" is of kv-simulate alone: no engine is told '
                        .. "what it costs, and so none need pull"
        end

        conf.pull, err = checked(conf.pull, PULL)
        if not conf.pull then
            return nil, '"pull": ' .. err
        end

        conf.pull.free = {}      -- by holder: when it has sent all that it must
    end

    if base and not given.discount and conf.dynamo == base.dynamo then
        conf.by_confidence = base.by_confidence
        return conf
    end

    conf.discount, err = checked(conf.discount, DISCOUNTS,
                                 base and base.discount)
    if not conf.discount then
        return nil, '"discount": ' .. err
    end

    conf.by_confidence = ffi_new("double[?]", #names + 1)

    for id = 0, #names do
        local name = names[id]

        conf.by_confidence[id] = conf.discount[name]
                                 or not conf.dynamo and usual[name] or 1
    end

    return conf
end


-- conf: the settings above, or nil.  Returns nil and a sentence when one is
-- unknown or out of range.
function _M.new(conf)
    local complete, err = settings(conf)
    if not complete then
        return nil, err
    end

    return setmetatable({ conf = complete }, mt)
end


-- The mean churn of the candidates.
local function mean_churn(candidates)
    local n, sum = #candidates, 0

    for i = 1, n do
        sum = sum + candidates[i].churn
    end

    return sum / n
end


-- The least number of tokens that a candidate has to prefill.
local function least_prefill(candidates)
    local least = huge

    for i = 1, #candidates do
        least = min(least, candidates[i].prefill_tokens)
    end

    return least
end


-- The weight of the home: of a router which is the home of few candidates it is
-- lower.
local function weight_of_home(candidates, foreign, home)
    local own = 0

    for i = 1, #candidates do
        own = own + 1 - foreign[candidates[i].holder]
    end

    return home * min(1, own / HOMES)
end


-- The candidate with the most of the prompt, as $kv_router_cache_source has it.
function _M.source_of(candidates)
    local source = candidates[1]

    for i = 2, #candidates do
        local c = candidates[i]

        if c.device > source.device
           or c.device == source.device
              and c.active_requests < source.active_requests
        then
            source = c
        end
    end

    return source
end


-- The blocks that a candidate with a speed need not compute when it pulls the
-- missing ones from a source.
local function saved(pull, ctx, source, missing, tps)
    local wait = max(0, (pull.free[source.holder] or 0) - ctx.now)
    local ms = 1000 * wait + pull.base_ms
               + pull.ms_per_1000_tokens * ctx.block_size * missing / 1000

    return tps > 0 and max(0, missing - ms / 1000 * tps / ctx.block_size) or 0
end


-- Writes the cost of each candidate to cost[1] to cost[#candidates], in
-- blocks.
local function fill(cost, ctx, conf)
    local candidates = ctx.candidates
    local bs, isl = ctx.block_size, ctx.prompt_tokens
    local overlap_credit = conf.overlap_credit
    local host_credit, disk_credit = conf.host, conf.disk
    local scale, flying = conf.scale, conf.flying
    local tracked = conf.track_prefill
    local request_weight = conf.active_request_weight
    local discounts = conf.by_confidence
    local fade = conf.decay / max(1, ceil(isl / bs)) / bs
    local least = fade > 0 and least_prefill(candidates) or 0
    local churn = conf.wear > 0 and mean_churn(candidates) or 0
    local foreign = conf.homing > 0 and ctx.foreign
    local home = foreign and weight_of_home(candidates, foreign, conf.homing)
    local fixed, slope, most = 1, 0, 1       -- of wear
    local pull, source, held = conf.pull, nil, 0

    if pull then
        source = _M.source_of(candidates)
        held = discounts[source.confidence_id] * source.device
    end

    if churn > 0 then
        slope = conf.wear / (churn + FRESH / bs)
        fixed = 1 - conf.wear + slope * FRESH / bs
        most = 1 - conf.wear + conf.wear * WORN
    end

    for i = 1, #candidates do
        local c = candidates[i]
        local discount = discounts[c.confidence_id]
        local shared = flying and c.in_flight or 0
        local device = max(discount * c.device, shared)
        local lower = discount
                      * (host_credit * (max(c.host, shared)
                                        - max(c.device, shared))
                         + disk_credit * (max(c.disk, shared)
                                          - max(c.host, shared)))
        local queued, own = 0, 0

        if tracked then
            queued = c.prefill_tokens / bs
            own = max(isl, floor(bs * (device + lower) + 0.5)) / bs
        end

        local missing = held - device

        if fade > 0 then
            device = device / (1 + fade * (c.prefill_tokens - least))
        end

        own = own - overlap_credit * device - lower

        if missing > 0 then
            own = own - saved(pull, ctx, source, missing, c.prefill_tps)
        end

        own = own * min(most, fixed + slope * c.churn)

        local away = 0

        if foreign and foreign[c.holder] > 0 then
            away = home * max(0, isl / bs - max(c.disk, shared))
        end

        cost[i] = (scale * (max(0, queued + own) + away)
                   + c.decode_blocks + c.additional_blocks
                   + request_weight * c.active_requests)
                  / c.share
    end
end


-- The settings for this request.
local function settings_of(self, ctx)
    if not ctx.params then
        return self.conf
    end

    local conf, err = settings(ctx.params, self.conf)
    if not conf then
        error("params: " .. err)
    end

    return conf
end


function _M:explain(ctx)
    return explained(fill, ctx, settings_of(self, ctx))
end


-- The reason is "overlap" when something of the prompt is cached where it
-- goes, "in flight" when something of it is prefilled there, "load" when it was
-- elsewhere, but load decided, else "no overlap".  A function of its own is
-- compiled; the end of pick(), behind its loops, is not.
local function reason_of(conf, ctx, list)
    local c = ctx.candidates[list[0]]

    if c.disk > 0 then
        return "overlap"
    end

    if conf.flying and c.in_flight > 0 then
        return "in flight"
    end

    return ctx.best > 0 and "load" or "no overlap"
end


-- The source will send the chosen candidate what this one does not compute.
local function book(ctx, conf, c)
    local pull, source = conf.pull, _M.source_of(ctx.candidates)
    local missing = conf.by_confidence[source.confidence_id] * source.device
                    - max(conf.by_confidence[c.confidence_id] * c.device,
                          conf.flying and c.in_flight or 0)

    if missing > 0 and saved(pull, ctx, source, missing, c.prefill_tps) > 0 then
        pull.free[source.holder] = max(ctx.now, pull.free[source.holder] or 0)
            + pull.ms_per_1000_tokens * ctx.block_size * missing / 1e6
    end
end


function _M:pick(ctx)
    local conf = settings_of(self, ctx)
    local n = #ctx.candidates
    local cost = costs(n)

    fill(cost, ctx, conf)

    local first

    if conf.temperature > 0 then
        first = sample(cost, n, conf.temperature, ctx.random)
    end

    local list, k = lowest(cost, n, ctx.wanted, ctx.random, first)

    if conf.pull and k > 0 and not ctx.dry then
        book(ctx, conf, ctx.candidates[list[0]])
    end

    return list, k, reason_of(conf, ctx, list)
end


return _M
