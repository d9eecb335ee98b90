-- p2c: the better of two.


local tap = require "lib.tap"
local testing = require "resty.kv_router.testing"
local policy = require "resty.kv_router.policy"

local ctx, is = testing.ctx, tap.is


local p2c = assert(policy.load("p2c"))

local function draw(c, times)
    local first, second = {}, {}

    for _ = 1, times do
        local list, k = p2c:pick(c)

        assert(k == 2 and list[0] ~= list[1])
        first[list[0]] = (first[list[0]] or 0) + 1
        second[list[1]] = (second[list[1]] or 0) + 1
    end

    return first, second
end

local first, second = draw(ctx { { active_requests = 1 },
                                 { active_requests = 2 },
                                 { active_requests = 3 } }, 9000)

tap.near(first[1] / 9000, 2 / 3, 0.02, "the least loaded wins where it is one")
tap.near(first[2] / 9000, 1 / 3, 0.02, "the next one where it is not")
is(first[3], nil, "the most loaded never wins")
tap.near(second[3] / 9000, 2 / 3, 0.02, "but a retry may go there")

tap.even(draw(ctx { {}, {}, {}, {}, {} }, 10000), 5,
         "among equals all are drawn evenly")

first = draw(ctx { { active_requests = 3, weight = 4 },
                   { active_requests = 1 } }, 100)
is(first[1], 100, "load is for the weight")

first = draw(ctx { { prefill_tokens = 320 }, { decode_blocks = 3 } }, 100)
is(first[2], 100, "and blocks count when requests are equal")

is(p2c:pick(ctx { { active_requests = 9 } }), 1,
   "one worker is the one")

local refused, err = policy.load("p2c", { choices = 3 })

is(refused, nil, "it has no settings")
tap.has(err, 'unknown setting "choices"', "and says so")


tap.done()
