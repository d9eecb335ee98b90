-- random: by weight, and nothing else.


local tap = require "lib.tap"
local testing = require "resty.kv_router.testing"
local policy = require "resty.kv_router.policy"

local ctx, is = testing.ctx, tap.is


local random = assert(policy.load("random"))

local function draw(c, times)
    local counts = {}

    for _ = 1, times do
        local i, _, reason = random:pick(c)

        assert(reason == "random")
        counts[i] = (counts[i] or 0) + 1
    end

    return counts
end

tap.even(draw(ctx { { active_requests = 90 }, { device = 9 }, {}, {} }, 8000),
         4, "workers are drawn evenly, whatever their load and cache")

local counts = draw(ctx { { weight = 1 }, { weight = 3 }, { weight = 0 } },
                    8000)

tap.near(counts[2] / 8000, 0.75, 0.02, "or as their weights say")
is(counts[3], nil, "a worker without weight is never drawn")
is(draw(ctx { {} }, 10)[1], 10, "one worker is the one")
is(draw(ctx { { weight = 0 }, { weight = 0 } }, 10)[2], 10,
   "without any weight it is still a worker")

local refused, err = policy.load("random", { x = 1 })

is(refused, nil, "it has no settings")
tap.has(err, 'unknown setting "x"', "and says so")


tap.done()
