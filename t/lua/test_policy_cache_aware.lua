-- cache_aware: the longest match when it is long enough, else load.


local tap = require "lib.tap"
local testing = require "resty.kv_router.testing"
local policy = require "resty.kv_router.policy"

local ctx, is = testing.ctx, tap.is


local function choose(list, conf, blocks)
    local loaded = assert(policy.load("cache_aware", conf))
    local got, _, reason = loaded:pick(
                                       ctx(list, { prompt_blocks = blocks
                                                                   or 10 }))
    return got[0] .. " " .. reason
end

is(choose { { device = 3, active_requests = 9 }, { device = 2 }, {} },
   "1 overlap", "a match of the threshold or more decides, whatever the load")
is(choose { { device = 2, active_requests = 9 }, { device = 1 }, {
                active_requests = 1 } },
   "2 load", "below the threshold load does")
is(choose({ { device = 2, active_requests = 9 }, {} },
          { cache_threshold = 0.2 }), "1 overlap", "the threshold can be set")
is(choose({ { active_requests = 9 }, {} }, { cache_threshold = 0 }), "2 load",
   "nothing is no match, even for a threshold of 0")
is(choose { { device = 5, active_requests = 3 },
            { device = 5, active_requests = 1 },
            { device = 4 } }, "2 overlap",
   "of equal matches the less loaded")
is(choose { { device = 5, active_requests = 2 },
            { device = 5, active_requests = 3, weight = 2 } }, "2 overlap",
   "for its weight")
is(choose { { device = 0, host = 9, disk = 9, active_requests = 1 }, {} },
   "2 load", "only device memory counts")
is(choose({ { active_requests = 1 }, {} }, nil, 0), "2 load",
   "a prompt without blocks goes by load")

local uneven = { { device = 9, active_requests = 100 },
                 { active_requests = 10 }, { active_requests = 20 } }

is(choose(uneven), "1 overlap", "the switch is off")
is(choose(uneven, { balance = true }), "2 uneven load",
   "when it is on, an uneven load sends all to the least loaded")
is(choose(uneven, { balance = true, balance_abs_threshold = 90 }),
   "1 overlap", "not when the difference is the threshold's")
is(choose(uneven, { balance = true, balance_rel_threshold = 10 }),
   "1 overlap", "nor when the ratio is")

local loaded = assert(policy.load("cache_aware"))
local list, k = loaded:pick(
                            ctx({ { device = 3 }, { device = 9 },
                                  { device = 5 }, {} },
                                { prompt_blocks = 10 }))

is(k, 3, "as many are ranked as are wanted")
is(list[0] .. list[1] .. list[2], "231", "by their matches")

local ties = {}
local equal = ctx({ { device = 9 }, { device = 9 }, { device = 9 }, {} },
                  { prompt_blocks = 10 })

for _ = 1, 6000 do
    local i = loaded:pick(equal)[0]

    ties[i] = (ties[i] or 0) + 1
end

is(ties[4], nil, "who has less is not among equals")
tap.even(ties, 3, "equals are drawn evenly")

for _, case in ipairs {
    { { cache_threshold = 1.1 }, '"cache_threshold" must be from 0 to 1' },
    { { balance = 1 }, '"balance" must be a boolean' },
    { { threshold = 1 }, 'unknown setting "threshold"' },
} do
    tap.has(select(2, policy.load("cache_aware", case[1])), case[2],
            "refused: " .. case[2])
end


tap.done()
