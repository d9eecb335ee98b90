-- kv_cost: the formula, its oracles, ties, temperature, settings.


local tap = require "lib.tap"
local fake = require "lib.fake"
local kv_cost = require "resty.kv_router.policy.kv_cost"
local order = require "resty.kv_router.request.order"

local ctx, is, near = fake.ctx, tap.is, tap.near


-- The cost of the first of some candidates, which pick() left in the buffer:
-- nothing is wanted, so that nothing is taken out of it.  The oracles are
-- Dynamo's numbers, so that conf is completed by dynamo = true.
local function cost(list, match, conf, params)
    conf = conf or {}

    if conf.dynamo == nil then
        conf.dynamo = true
    end

    local policy = assert(kv_cost.new(conf))
    local c = ctx(list, match, { wanted = 0, params = params })

    -- pick() has no choice to name when nothing is wanted
    pcall(policy.pick, policy, c)

    return order.costs(#list)[1]
end


local function near_cost(wanted, name, ...)
    near(cost(...), wanted, 1e-9, name)
end


-- Who is chosen: the candidate's number, and the reason.
local function choice(policy, c)
    local list, k, reason = policy:pick(c)

    assert(k > 0)

    return list[0], reason
end


-- ---- oracles ----------------------------------------------------------------

local busy = { prefill_tokens = 16, device = 6, host = 6, disk = 6,
               decode_blocks = 2, additional_blocks = 3 }
local isl64 = { prompt_tokens = 64, prompt_blocks = 4 }

near_cost(7, "16 active tokens, isl 64, overlap 6, decode 2+3, scale 2: 7.0",
          { busy }, isl64, { prefill_load_scale = 2 })

near_cost(5, "the same with prefill untracked: 5.0",
          { busy }, isl64, { prefill_load_scale = 2, track_prefill = false })

near_cost(228, "decode 100 and 4 active requests of weight 32: 228",
          { { decode_blocks = 100, active_requests = 4 } },
          { prompt_tokens = 0 }, { active_request_weight = 32 })

near_cost(4 * 228, "the same, with a quarter of its share: four times as much",
          { { decode_blocks = 100, active_requests = 4, share = 0.25,
              weight = 0.25 } },
          { prompt_tokens = 0 }, { active_request_weight = 32 })


-- ---- each term --------------------------------------------------------------

local isl160 = { prompt_tokens = 160, prompt_blocks = 10 }

near_cost(10, "nothing cached: the whole prompt", { {} }, isl160)
near_cost(6, "4 blocks in device memory save 4",
          { { device = 4, host = 4, disk = 4 } }, isl160)
near_cost(7, "4 blocks in host memory save 3",
          { { device = 0, host = 4, disk = 4 } }, isl160)
near_cost(9, "4 blocks on disk save 1",
          { { device = 0, host = 0, disk = 4 } }, isl160)
near_cost(10 - 2 - 0.75 * 3 - 0.25 * 4,
          "tiers are cumulative: only what is beyond the tier above counts",
          { { device = 2, host = 5, disk = 9 } }, isl160)
near_cost(10 - 0.5 * 4 - 0.1 * 4, "each tier has a weight of its own",
          { { device = 0, host = 4, disk = 8 } }, isl160,
          { host = 0.5, disk = 0.1 })
near_cost(10 - 2 * 3, "overlap_credit 2 counts device blocks twice",
          { { device = 3, host = 3, disk = 3 } }, isl160,
          { overlap_credit = 2 })
near_cost(0, "the prefill part is never below 0",
          { { device = 10, host = 10, disk = 10 } }, isl160,
          { overlap_credit = 5 })
near_cost(15 + 7, "prefill that waits counts with the prompt",
          { { prefill_tokens = 80, decode_blocks = 7 } }, isl160)
near_cost(10, "cached beyond the prompt: only what waits is left",
          { { device = 0, host = 12, disk = 12, prefill_tokens = 160 } },
          { prompt_tokens = 32, prompt_blocks = 2 })
near_cost(0, "isl 0", { {} }, { prompt_tokens = 0 }, { decay = 1 })

-- 320 and 160 tokens wait: (320 + 160) / 16 blocks, credit of 6 / (1 + 0.5)
near_cost(30 - 6 / (1 + 0.5 * (160 / 16) / 10),
          "decay: credit fades with the prefill beyond the least busy",
          { { prefill_tokens = 320, device = 6, host = 6, disk = 6 },
            { prefill_tokens = 160 } }, isl160, { decay = 0.5 })
near_cost(30 - 6 / (1 + 0.5 * (160 / 16) / 11),
          "decay: the prompt's blocks are rounded up",
          { { prefill_tokens = 319, device = 6, host = 6, disk = 6 },
            { prefill_tokens = 159 } },
          { prompt_tokens = 161, prompt_blocks = 10 }, { decay = 0.5 })
near_cost(20 - 6 - 3, "decay: host and disk don't fade",
          { { prefill_tokens = 160, device = 0, host = 12, disk = 12 },
            {} }, { prompt_tokens = 160, prompt_blocks = 10 },
          { decay = 0.5 })


-- ---- confidence -------------------------------------------------------------

local names = { "UNKNOWN", "EXACT", "DEGRADED", "SYNCING", "UNVERIFIED",
                "BOUND", "ESTIMATED" }
local discounts = { 1, 1, 0.5, 0.5, 1, 0.7, 1 }

for i, name in ipairs(names) do
    local c = { device = 4, host = 6, disk = 8, confidence_id = i - 1 }

    near_cost(10 - discounts[i] * (4 + 0.75 * 2 + 0.25 * 2),
              name .. " discounts overlap by " .. discounts[i], { c }, isl160,
              { dynamo = false, prefill_load_scale = 1 })
    near_cost(10 - 6, name .. " discounts nothing with dynamo = true", { c },
              isl160, { dynamo = true })
    is(fake.match({ c })[1].confidence, name, name .. " is what it is called")
end

local syncing = { device = 4, host = 4, disk = 4, confidence_id = 3 }
local degraded = { device = 4, host = 4, disk = 4, confidence_id = 2 }

near_cost(10 - 0.1 * 4, "a discount can be set",
          { syncing }, isl160, { discount = { SYNCING = 0.1 } })
near_cost(10 - 0.5 * 4, "and leaves the others alone",
          { degraded }, isl160,
          { dynamo = false, prefill_load_scale = 1, discount = { SYNCING = 0.1 } })
near_cost(10 - 4, "dynamo = true for one request takes discounts away",
          { degraded }, isl160, { dynamo = false, prefill_load_scale = 1 },
          { dynamo = true })


-- ---- settings ---------------------------------------------------------------

local function refused(conf, part, name)
    local policy, err = kv_cost.new(conf)

    is(policy, nil, name)
    tap.has(err, part, name .. ": says so")
end

refused({ overlap_weight = 1 }, 'unknown setting "overlap_weight"',
        "an unknown setting is refused")
refused({ temperature = -1 }, '"temperature" must be from 0',
        "a negative temperature is refused")
refused({ temperature = 0 / 0 }, '"temperature" must be from 0',
        "a temperature that is no number is refused")
refused({ decay = "1" }, 'the value of "decay" must be a number',
        "a string for a number is refused")
refused({ discount = { FRESH = 1 } }, 'unknown setting "FRESH"',
        "an unknown confidence is refused")
refused({ discount = { SYNCING = 2 } }, '"SYNCING" must be from 0 to 1',
        "a discount over 1 is refused")
refused({ discount = { STALE = 1 } },
        '"STALE" was removed: a silent worker is "DEGRADED"',
        "a confidence of before is told its successor")
refused({ pull = { base_ms = 1 } }, '"pull" is of kv-simulate alone',
        "nginx does not take what a pull costs")
refused("x", "a table is expected", "settings that are no table are refused")
refused({ dynamo = 1 }, 'the value of "dynamo" must be a boolean',
        "dynamo is true or false")
refused({ in_flight = 1 }, 'the value of "in_flight" must be a boolean',
        "in_flight is true or false")
refused({ churn = -1 }, '"churn" must be from 0',
        "a negative weight of churn is refused")

-- 160 tokens wait, 10 of the prompt's 10 blocks are to be computed, 3 decode
local both = { prefill_tokens = 160, decode_blocks = 3 }

near_cost(8 * 20 + 3, "by default a block to prefill costs 8 that are decoded",
          { both }, isl160, { dynamo = false })
near_cost(20 + 3, "with dynamo = true it costs 1", { both }, isl160,
          { dynamo = true })
near_cost(2 * 20 + 3, "a setting beside dynamo = true has its own value",
          { both }, isl160, { dynamo = true, prefill_load_scale = 2 })
near_cost(20 + 3, "dynamo can be set for one request", { both }, isl160,
          { dynamo = false }, { dynamo = true })
near_cost(8 * 20 + 3, "or unset", { both }, isl160, { dynamo = true },
          { dynamo = false })
near_cost(2 * 20 + 3, "what the policy's settings name stays then",
          { both }, isl160, { dynamo = false, prefill_load_scale = 2 },
          { dynamo = true })

near_cost(10 - 2 * 3, "params change a setting for one request",
          { { device = 3, host = 3, disk = 3 } }, isl160, nil,
          { overlap_credit = 2 })
-- each setting of its own, for one request and for all
local rich = { device = 3, host = 5, disk = 7, prefill_tokens = 160,
               decode_blocks = 2, active_requests = 4, confidence_id = 3 }

for name, value in pairs { overlap_credit = 0.3, host = 0.1, disk = 0.9,
                           prefill_load_scale = 3, track_prefill = false,
                           decay = 0.7, active_request_weight = 6,
                           discount = { SYNCING = 0.25 } }
do
    local usual = cost({ rich, {} }, isl160)
    local set = cost({ rich, {} }, isl160, { [name] = value })

    tap.ok(usual ~= set, name .. " counts")
    near_cost(set, name .. " can be set for one request", { rich, {} }, isl160,
              nil, { [name] = value })
end

near_cost(10 - 0.1 * 4, "params may name a discount, the rest stays",
          { syncing }, isl160, { discount = { DEGRADED = 0.2 } },
          { discount = { SYNCING = 0.1 } })
near_cost(10 - 0.2 * 4, "params keep the policy's own discounts",
          { degraded }, isl160, { discount = { DEGRADED = 0.2 } },
          { discount = { SYNCING = 0.1 } })
tap.raises('unknown setting "x"', "params are checked too",
           kv_cost.pick, kv_cost.new(), ctx({ {} }, isl160,
                                            { params = { x = 1 } }))


-- ---- the cost of a pull -----------------------------------------------------

do
    kv_cost.simulated = true

    local policy = assert(kv_cost.new {
        dynamo = true, pull = { base_ms = 1, ms_per_1000_tokens = 10 } })

    local function costs(tps, now)
        local c = ctx({ { device = 10, decode_blocks = 90 },
                             { prefill_tps = tps } },
                           { prompt_tokens = 160, prompt_blocks = 10 },
                           { wanted = 0 })

        rawset(c, "now", now)

        local list = policy:explain(c)

        c.wanted = 1
        policy:pick(c)

        return list[2]
    end

    near(costs(0, 5), 10, 1e-9, "without a speed all is to be computed")
    near(costs(16000, 5), 2.6, 1e-9, "1 ms and 1.6 ms are 2.6 blocks")
    near(costs(16000, 5), 2.6 + 1.6, 1e-9,
         "then the holder sends for 1.6 ms, and the next one waits")
    near(costs(16000, 9), 2.6, 1e-9, "later it does not")
    near(costs(1e6, 19), 10, 1e-9, "who computes faster computes")
    tap.has(select(2, kv_cost.new { pull = { ms = 1 } }), '"pull": unknown setting',
        "settings of a pull are checked")
    kv_cost.simulated = nil
end


-- ---- homes ------------------------------------------------------------------

do
    local foreign = require "ffi".new("uint8_t[?]", 2, { 0, 1 })

    -- the cost of a candidate with that holder, beside so many of home
    local function at(holder, conf, more, others)
        local list = { { holder = holder, device = 2, host = 3, disk = 4,
                         in_flight = 3 } }

        for i = 1, others or 16 do
            list[1 + i] = { holder = 0 }
        end

        local c = ctx(list, isl160, { wanted = 0 })

        for name, value in pairs(more or { foreign = foreign }) do
            rawset(c, name, value)
        end

        pcall(kv_cost.pick, assert(kv_cost.new(conf)), c)

        return order.costs(1)[1]
    end

    local set = { home = 0.5 }
    local usual = at(0, { home = 0 })

    near(at(1, set) - usual, 8 * 0.5 * (10 - 4), 1e-9,
         "away from home, what is neither cached nor in flight costs more")
    near(at(1, set, nil, 8) - usual, 8 * 0.25 * (10 - 4), 1e-9,
         "half as much where half of 16 workers have their home here")
    is(at(1, set, nil, 0), usual, "and nothing where none has")
    is(at(0, set), usual, "at home it does not")
    near(at(1, {}) - usual, 8 * 0.3 * (10 - 4), 1e-9, "so it does by default")
    is(at(1, { dynamo = true }), at(0, { dynamo = true }),
       "but not by Dynamo's weights")
    is(at(1, set, {}), usual, "nor where no router shares its load")
end


-- ---- what is in flight ------------------------------------------------------

local ours = { dynamo = false, prefill_load_scale = 1 }

near_cost(10 - 6, "what is in flight counts as cached",
          { { in_flight = 6 } }, isl160, ours)
near_cost(10 - 6, "once, where it is cached, too",
          { { in_flight = 6, device = 4, host = 4, disk = 4 } }, isl160, ours)
near_cost(10 - 7, "what is cached beyond it counts as before",
          { { in_flight = 6, device = 7, host = 7, disk = 7 } }, isl160, ours)
near_cost(10 - 6 - 0.75 * 1 - 0.25 * 2,
          "of the lower tiers, what is beyond it",
          { { in_flight = 6, device = 2, host = 7, disk = 9 } }, isl160, ours)
near_cost(10 - 6, "it is not discounted: no event said it",
          { { in_flight = 6, device = 4, host = 4, disk = 4,
              confidence_id = 4 } }, isl160, ours)
near_cost(10, "in_flight = false does without",
          { { in_flight = 6 } }, isl160,
          { dynamo = false, prefill_load_scale = 1, in_flight = false })
near_cost(10, "and so does dynamo = true",
          { { in_flight = 6 } }, isl160, { dynamo = true })
near_cost(10 - 6, "unless both are set",
          { { in_flight = 6 } }, isl160, { dynamo = true, in_flight = true })
near_cost(10, "it can be unset for one request",
          { { in_flight = 6 } }, isl160, ours, { in_flight = false })


-- ---- churn ------------------------------------------------------------------

-- the first one stored 12,288 tokens, the mean one 4,096: turn is 16 / 8
local worn = { { churn = 768, device = 4, host = 4, disk = 4,
                prefill_tokens = 32, decode_blocks = 5 },
              { churn = 0 }, { churn = 0 } }
local weighed = { dynamo = false, prefill_load_scale = 1, churn = 1 }

near_cost(2 + 6 * 1.5 + 5,
          "churn makes dear what is to be prefilled, not what waits",
          worn, isl160, weighed)
near_cost(2 + 6 * 1.4 + 5, "its weight is 0.8", worn, isl160, ours)
near_cost(2 + 6 + 5, "churn = 0 does without", worn, isl160,
          { dynamo = false, prefill_load_scale = 1, churn = 0 })
near_cost(2 + 6 + 5, "and so does dynamo = true", worn, isl160)
near_cost(2 + 6 + 5, "it can be unset for one request", worn, isl160, weighed,
          { churn = 0 })
near_cost(10, "equal churn is no difference",
          { { churn = 700 }, { churn = 700 } }, isl160, weighed)
near_cost(10 * 0.25, "a worker that stored nothing is less dear",
          { { churn = 0 }, { churn = 1536 } }, isl160, weighed)
near_cost(10, "what a few prompts stored hardly counts",
          { { churn = 0 }, { churn = 1e-9 } }, isl160, weighed)

is(choice(kv_cost.new(), ctx({ { churn = 1e9, device = 860, host = 860,
                                 disk = 860 }, {}, {}, {} },
                             { prompt_tokens = 16000, prompt_blocks = 1000 })),
   1, "a worker with nearly all of a prompt keeps it, whatever the churn")


-- ---- the choice -------------------------------------------------------------

-- one request more is decoded where 4 of the prompt's 10 blocks are cached
local warm = { device = 4, host = 4, disk = 4, decode_blocks = 12 }

is(choice(kv_cost.new(), ctx({ warm, {} }, isl160)), 1,
   "a conversation stays with its cache")
is(choice(kv_cost.new({ dynamo = true }), ctx({ warm, {} }, isl160)), 2,
   "with Dynamo's weights it leaves for the worker with less to decode")

local policy = kv_cost.new()
local list = { { decode_blocks = 5 }, { device = 8, host = 8, disk = 8 },
               { decode_blocks = 1 }, { decode_blocks = 9 } }
local got, k, reason = policy:pick(ctx(list, isl160))

is(got[0], 2, "the smallest cost is chosen")
is(reason, "overlap", "because of what is cached there")
is(k, 3, "as many are ranked as are wanted")
is(got[1], 3, "the next is the second smallest")
is(got[2], 1, "and so on")

got, k = policy:pick(ctx({ {}, {} }, isl160))
is(k, 2, "no more are ranked than there are")
is(got[0] + got[1], 3, "each once")

local n, why = choice(policy, ctx({ { decode_blocks = 5 },
                              { device = 2, host = 2, disk = 2,
                                decode_blocks = 90 } }, isl160))

is(n, 1, "load may outweigh overlap")
is(why, "load", "which is then the reason")

n, why = choice(policy, ctx({ {}, { in_flight = 9, prefill_tokens = 16 } },
                            isl160))

is(n, 2, "a prompt follows its sibling before there is an event")
is(why, "in flight", "and the reason says so")

n = choice(policy, ctx({ { churn = 0 },
                         { device = 4, host = 4, disk = 4, churn = 9000 },
                         { churn = 0 } }, isl160))

is(n == 2, false, "a prefix does not draw all requests to those who had it")

n = choice(policy, ctx({ { churn = 0 },
                         { device = 9, host = 9, disk = 9, churn = 9000 },
                         { churn = 0 } }, isl160))

is(n, 2, "a conversation stays in a cache that is worn")

n, why = choice(policy, ctx({ { decode_blocks = 5 }, {} }, isl160))
is(n, 2, "without overlap load decides")
is(why, "no overlap", "and the reason says that there was none")


-- ---- ties and temperature ---------------------------------------------------

local function counts_of(p, c, times)
    local counts = {}

    for _ = 1, times do
        local i = choice(p, c)

        counts[i] = (counts[i] or 0) + 1
    end

    return counts
end

local ties = {}

for i = 1, 10 do
    ties[i] = { decode_blocks = i % 2 }
end

local counts = counts_of(policy, ctx(ties, isl160), 10000)

is(counts[1], nil, "what costs more is never drawn among ties")
tap.even(counts, 5, "ties are drawn uniformly")

-- retries too
local seconds = {}
local c = ctx(ties, isl160)

for _ = 1, 10000 do
    local second = policy:pick(c)[1]

    seconds[second] = (seconds[second] or 0) + 1
end

tap.even(seconds, 5, "and so are those that retries follow")

local two = ctx({ { decode_blocks = 0 }, { decode_blocks = 10 },
                  { decode_blocks = 5 } }, { prompt_tokens = 0 })
local hot = kv_cost.new({ temperature = 0.5 })

counts = counts_of(hot, two, 30000)

-- normalised costs 0, 1, 0.5
local e1, e2 = math.exp(-1 / 0.5), math.exp(-0.5 / 0.5)
local sum = 1 + e1 + e2

near(counts[1] / 30000, 1 / sum, 0.015, "temperature 0.5: the best")
near(counts[2] / 30000, e1 / sum, 0.015, "temperature 0.5: the worst")
near(counts[3] / 30000, e2 / sum, 0.015, "temperature 0.5: the middle")

tap.even(counts_of(hot, ctx({ {}, {}, {}, {} }, isl160), 10000), 4,
         "temperature and equal costs: uniform")

is(counts_of(kv_cost.new({ temperature = 1e-6 }), two, 1000)[1], 1000,
   "a temperature near 0 is as good as 0")

two.wanted = 3
got, k = hot:pick(two)
is(k, 3, "with a temperature all are ranked too")
is(got[0] + got[1] + got[2], 6, "each once")


tap.done()
