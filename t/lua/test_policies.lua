-- least_loaded, round_robin, and the order that policies end with.


local tap = require "lib.tap"
local testing = require "resty.kv_router.testing"
local least_loaded = require "resty.kv_router.policy.least_loaded"
local order = require "resty.kv_router.request.order"
local random = require "resty.kv_router.request.random"
local round_robin = require "resty.kv_router.policy.round_robin"

local ctx, is = testing.ctx, tap.is


local function choose(policy, list)
    local c = ctx(list)

    return policy:pick(c)[0]
end


-- ---- least_loaded -----------------------------------------------------------

local least = assert(least_loaded.new())

is(choose(least, { { active_requests = 3 }, { active_requests = 1 },
                   { active_requests = 2 } }), 2,
   "least_loaded: the fewest active requests")
is(choose(least, { { active_requests = 3, weight = 4 },
                   { active_requests = 1 } }), 1,
   "least_loaded: for the weight")
is(choose(least, { { active_requests = 1, decode_blocks = 1 },
                   { active_requests = 2 } }), 1,
   "least_loaded: requests before blocks")
is(choose(least, { { decode_blocks = 9 }, { prefill_tokens = 128 },
                   { decode_blocks = 8.5 } }), 2,
   "least_loaded: then blocks to prefill and decode")
is(choose(least, { { active_requests = 5, weight = 0 },
                   { active_requests = 90 } }), 2,
   "least_loaded: a weight of 0 is as good as none")
is(choose(least, { { active_requests = 2000, decode_blocks = 1 },
                   { active_requests = 2000 } }), 2,
   "least_loaded: blocks count at thousands of requests, too")

local counts = {}
local idle = ctx { {}, {}, { active_requests = 1 }, {}, {} }

for _ = 1, 8000 do
    local i = least:pick(idle)[0]

    counts[i] = (counts[i] or 0) + 1
end

is(counts[3], nil, "least_loaded: a tie is among the least loaded alone")
tap.even(counts, 4, "least_loaded: ties are drawn uniformly")

local list, k, reason = least:pick(ctx { { active_requests = 2 }, {},
                                         { active_requests = 1 },
                                         { active_requests = 3 } })

is(k, 3, "least_loaded: ranks what is wanted")
is(list[0] .. list[1] .. list[2], "231", "least_loaded: in order")
is(reason, "load", "least_loaded: the reason")

local refused, err = least_loaded.new({ x = 1 })

is(refused, nil, "least_loaded: has no settings")
tap.has(err, 'unknown setting "x"', "least_loaded: says so")


-- ---- round_robin ------------------------------------------------------------

local function turns(policy, c, times)
    local drawn = {}

    for _ = 1, times do
        local i = policy:pick(c)[0]

        drawn[i] = (drawn[i] or 0) + 1
    end

    return drawn
end

local equal = ctx { {}, {}, {}, {}, {} }
local drawn = turns(round_robin.new(), equal, 1000)

for i = 1, 5 do
    is(drawn[i], 200, "round_robin: worker " .. i .. " of 5 has its fifth")
end

local weighted = ctx { { weight = 5 }, { weight = 1 }, { weight = 2 } }

drawn = turns(round_robin.new(), weighted, 800)
tap.near(drawn[1], 500, 1, "round_robin: weight 5 of 8")
tap.near(drawn[2], 100, 1, "round_robin: weight 1 of 8")
tap.near(drawn[3], 200, 1, "round_robin: weight 2 of 8")

local policy = round_robin.new()
local last
local longest, run = 0, 0

for _ = 1, 800 do
    local i = policy:pick(weighted)[0]

    run = i == last and run + 1 or 1
    longest = math.max(longest, run)
    last = i
end

tap.ok(longest <= 3, "round_robin: smooth, a heavy one doesn't go in bursts")

local starts = {}

for seed = 1, 2000 do
    local one = ctx { {}, {}, {}, {} }

    one.random = random.new(seed)

    local i = round_robin.new():pick(one)[0]

    starts[i] = (starts[i] or 0) + 1
end

tap.even(starts, 4, "round_robin: processes begin at random places")

policy = round_robin.new()
turns(policy, equal, 50)
drawn = turns(policy, ctx { { holder = 5000 }, { holder = 1 } }, 100)
tap.near(drawn[1], 50, 1, "round_robin: a new worker, its number beyond all")
tap.near(drawn[2], 50, 1, "round_robin: and the one beside it")

local one = turns(policy, ctx { { holder = 1, generation = 9, weight = 1 } }, 3)

is(one[1], 3, "round_robin: a number used again has a turn of its own")

list, k = round_robin.new():pick(equal)
is(k, 3, "round_robin: ranks what is wanted")
tap.ok(list[0] ~= list[1] and list[1] ~= list[2] and list[0] ~= list[2],
       "round_robin: each once")


-- ---- order ------------------------------------------------------------------

local draw = random.new(7)

local function costs(t)
    local cost = order.costs(#t)

    for i, c in ipairs(t) do
        cost[i] = c
    end

    return cost, #t
end

local cost, n = costs { 3, 1, 2 }

list, k = order.lowest(cost, n, 9, draw)
is(k, 3, "lowest: no more than there are")
is(list[0] .. list[1] .. list[2], "231", "lowest: in order")

cost, n = costs { 3, 1, 2 }
list = order.lowest(cost, n, 2, draw, 1)
is(list[0] .. list[1], "12", "lowest: first goes first, whatever its cost")

cost, n = costs { 0 / 0, 5, math.huge }
list, k = order.lowest(cost, n, 3, draw)
is(k, 1, "lowest: what is no finite cost is left out")
is(list[0], 2, "lowest: the others are not")

-- a model: sorting
local wrong = 0

for _ = 1, 500 do
    local size = 1 + math.floor(draw() * 200)
    local model = {}

    cost = order.costs(size)

    for i = 1, size do
        cost[i] = math.floor(draw() * 50)
        model[i] = cost[i]
    end

    local kept = { unpack(model) }

    table.sort(model)
    list, k = order.lowest(cost, size, size, draw)

    local seen = {}

    for i = 0, k - 1 do
        if kept[list[i]] ~= model[i + 1] or seen[list[i]] then
            wrong = wrong + 1
        end

        seen[list[i]] = true
    end

    wrong = wrong + size - k
end

is(wrong, 0, "lowest: as sorting, for 500 random lists")


-- ---- random -----------------------------------------------------------------

local buckets = {}
local a, b = random.new(1), random.new(2)
local same = 0
local outside = 0

for _ = 1, 100000 do
    local x = a()

    if x == b() then
        same = same + 1
    end

    if x < 0 or x >= 1 then
        outside = outside + 1
    end

    buckets[math.floor(x * 100)] = (buckets[math.floor(x * 100)] or 0) + 1
end

is(outside, 0, "random: in [0, 1)")
tap.ok(same < 5, "random: neighbouring seeds draw other numbers")
tap.even(buckets, 100, "random: evenly")
is(random.new(5)(), random.new(5)(), "random: the same seed, the same numbers")


tap.done()
