-- lmetric: what must be prefilled, times the requests that share the worker.


local tap = require "lib.tap"
local testing = require "resty.kv_router.testing"
local policy = require "resty.kv_router.policy"

local is = tap.is


local loaded = assert(policy.load("lmetric"))

local PROMPT = { prompt_tokens = 160, prompt_blocks = 10, block_size = 16 }

-- The costs without what orders equal ones, joined.
local function costs(list, match)
    local all = policy.costs(loaded, testing.ctx(list, match or PROMPT))

    for i = 1, #all do
        all[i] = string.format("%d", all[i])
    end

    return table.concat(all, " ")
end

local function choose(list, match)
    local got, _, reason = loaded:pick(
                                       testing.ctx(list, match or PROMPT))

    return got[0] .. " " .. reason
end


-- ---- the formula ------------------------------------------------------------

is(costs { {}, { device = 4 }, { prefill_tokens = 100 } }, "160 96 260",
   "what is queued and what is not cached is to be prefilled")
is(costs { { active_requests = 1 }, { device = 4, active_requests = 9 } },
   "320 960", "times the active requests and this one")
is(costs { { device = 10 }, { device = 10, active_requests = 4 } }, "16 80",
   "of a prompt that is cached as a whole one block counts")
is(costs { { device = 10, prefill_tokens = 500 } }, "500",
   "behind others it waits for what they prefill, and no more")
is(costs { { device = 4, host = 9, disk = 10 } }, "96",
   "only device memory counts")
is(costs { { device = 8, confidence_id = 2 }, { device = 8 } }, "96 32",
   "half of a match for a view that is not to be trusted")
is(costs { { share = 0.25 }, {} }, "640 160",
   "a worker that starts slowly costs more")
is(costs({ {}, { active_requests = 1 } },
         { prompt_tokens = 0, prompt_blocks = 0, block_size = 16 }), "16 32",
   "without a prompt the requests decide")


-- ---- the choice -------------------------------------------------------------

is(choose { { device = 9, active_requests = 3 }, { active_requests = 1 } },
   "1 overlap", "64 before 320")
is(choose { { device = 9, active_requests = 30 }, { active_requests = 1 } },
   "2 load", "a busy worker loses a prompt that it has cached")
is(choose { { active_requests = 1 }, {} }, "2 no overlap",
   "nothing is cached anywhere")
is(choose { { device = 10, active_requests = 9 },
            { device = 10, active_requests = 2 },
            { device = 10, active_requests = 5 } }, "2 overlap",
   "of those that have all of it the one with the fewest requests")
is(choose { { prefill_tokens = 160, active_requests = 0 },
            { active_requests = 1 } }, "1 no overlap",
   "of equal products the one with the fewest requests")

local ties = {}
local equal = testing.ctx({ { device = 3 }, { device = 3 }, {}, { device = 3 } },
                       PROMPT)

for _ = 1, 6000 do
    local i = loaded:pick(equal)[0]

    ties[i] = (ties[i] or 0) + 1
end

is(ties[3], nil, "a worker that costs more is not among equals")
tap.even(ties, 3, "equals are drawn evenly")

local list, k = loaded:pick(
                            testing.ctx({ { device = 3 }, { device = 9 },
                                       { device = 5 }, {} }, PROMPT))

is(k .. " " .. list[0] .. list[1] .. list[2], "3 231",
   "as many are ranked as are wanted")

-- A prefix that all requests have: one worker has it, the others learn it from
-- the requests that they get.
local fleet = { {}, {}, {}, {} }
local most = 0

fleet[1].device = 9

for _ = 1, 64 do
    local got = loaded:pick(testing.ctx(fleet, PROMPT))
    local worker = fleet[got[0]]

    worker.active_requests = (worker.active_requests or 0) + 1
    worker.device = 9
    most = math.max(most, worker.active_requests)
end

is(most, 16, "a prefix that all requests have spreads to all workers")

tap.has(select(2, policy.load("lmetric", { weight = 1 })),
        'unknown setting "weight"', "it has no settings")


tap.done()
