-- affinity_gate: the least loaded of those that have nearly all of the prompt,
-- unless they are much busier than the others.


local tap = require "lib.tap"
local testing = require "resty.kv_router.testing"
local policy = require "resty.kv_router.policy"

local is = tap.is


local PROMPT = { prompt_tokens = 160, prompt_blocks = 10, block_size = 16 }

local function new(conf)
    return assert(policy.load("affinity_gate", conf))
end

local function choose(list, conf, match)
    local loaded = new(conf)
    local got, _, reason = loaded:pick(
                                       testing.ctx(list, match or PROMPT))

    return got[0] .. " " .. reason
end


-- ---- near -------------------------------------------------------------------

is(choose { { device = 8, decode_blocks = 900 }, { device = 7 }, {} },
   "1 overlap", "four fifths of the prompt decide")
is(choose { { device = 7, decode_blocks = 900 }, {} }, "2 no overlap",
   "less than that is nothing")
is(choose({ { device = 7, decode_blocks = 900 }, {} }, { threshold = 0.7 }),
   "1 overlap", "the threshold can be set")
is(choose { { device = 8, decode_blocks = 3 },
            { device = 10, decode_blocks = 4 }, {} }, "1 overlap",
   "of those that are near the least loaded, whatever more is cached")
is(choose { { device = 0, host = 10, disk = 10, decode_blocks = 1 }, {} },
   "2 no overlap", "only device memory counts")
is(choose { { device = 10, confidence_id = 2, decode_blocks = 9 }, {} },
   "2 no overlap", "a view that is not to be trusted is never near")
is(choose({ { decode_blocks = 1 }, {} }, nil,
          { prompt_tokens = 0, prompt_blocks = 0, block_size = 16 }),
   "2 no overlap", "without a prompt nobody is near")


-- ---- the gate ---------------------------------------------------------------

-- 2 seconds of 80 tokens are 160 tokens: 10 blocks
local SLOW = { penalty = 2, prefill_speed = 80 }

is(choose({ { device = 9, decode_blocks = 15 }, { decode_blocks = 5 } }, SLOW),
   "1 overlap", "those that are near may be behind by the penalty")
is(choose({ { device = 9, decode_blocks = 16 }, { decode_blocks = 5 } }, SLOW),
   "2 load", "and not by more")
is(choose({ { device = 9, decode_blocks = 99 },
            { device = 9, decode_blocks = 12 }, { decode_blocks = 5 } }, SLOW),
   "2 overlap", "one that is near and has room is enough")
is(choose({ { device = 9, decode_blocks = 99 }, { device = 9,
                                                  decode_blocks = 98 } }, SLOW),
   "2 overlap", "when all are near there is nobody to leave for")
-- 18 s * 15928 tokens/s are 17919 blocks
is(choose { { device = 9, decode_blocks = 17919 }, {} }, "1 overlap",
   "by default 286,704 tokens are not too many")
is(choose { { device = 9, decode_blocks = 17920 }, {} }, "2 load",
   "and a block more is")


-- ---- explore ----------------------------------------------------------------

local loaded = new { explore = 0.25 }
local ctx = testing.ctx({ { device = 9, decode_blocks = 4 }, {} }, PROMPT)
local reasons = { overlap = 0, explore = 0 }
local wrong = 0

for _ = 1, 8000 do
    local got, _, reason = loaded:pick(ctx)

    reasons[reason] = reasons[reason] + 1

    if got[0] ~= (reason == "explore" and 2 or 1) then
        wrong = wrong + 1
    end
end

tap.near(reasons.explore / 8000, 0.25, 0.02,
         "as often as it is set, affinity is not heeded")
is(wrong, 0, "and then the least loaded of all is taken")


-- ---- the ranking ------------------------------------------------------------

local list, k

loaded = new()
list, k = loaded:pick(
                      testing.ctx({ { decode_blocks = 1 },
                                 { device = 9, decode_blocks = 7 }, {},
                                 { device = 8, decode_blocks = 6 } }, PROMPT))
is(k .. " " .. list[0] .. list[1] .. list[2], "3 423",
   "retries follow those that are near, then the others")

local ties = {}
local full = testing.ctx({ { decode_blocks = 300000 }, { decode_blocks = 400000 },
                        { decode_blocks = 900000 } }, PROMPT)

for _ = 1, 6000 do
    list = loaded:pick(full)
    ties[list[0]] = (ties[list[0]] or 0) + 1
end

tap.even(ties, 3, "above 4,194,304 tokens all are alike")

for _, case in ipairs {
    { { threshold = 0 }, '"threshold" must be from 0.001 to 1' },
    { { explore = 2 }, '"explore" must be from 0 to 1' },
    { { prefill_speed = 0 }, '"prefill_speed" must be from 1' },
    { { penalty = "5" }, '"penalty" must be a number' },
    { { margin = 1 }, 'unknown setting "margin"' },
} do
    tap.has(select(2, policy.load("affinity_gate", case[1])), case[2],
            "refused: " .. case[2])
end


tap.done()
