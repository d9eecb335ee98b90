-- weighted: scores from 0 to 1, their weights, and how one is picked.


local tap = require "lib.tap"
local fake = require "lib.fake"
local policy = require "resty.kv_router.policy"
local order = require "resty.kv_router.request.order"

local is, near = tap.is, tap.near


local NONE = { prefix = 0, queue = 0, kv_usage = 0, lora = 0,
               active_requests = 0, session = 0 }

local function only(name, weight)
    local scorers = {}

    for key in pairs(NONE) do
        scorers[key] = key == name and (weight or 1) or 0
    end

    return scorers
end

-- Candidates as tables may have fields that nginx doesn't know yet.
local function tables(list)
    local at = {}

    for i, given in ipairs(list) do
        at[i] = { holder = i - 1, generation = 0, weight = 1, device = 0,
                  active_requests = 0, active_prefills = 0,
                  decode_blocks = 0, confidence_id = 1 }

        for key, value in pairs(given) do
            at[i][key] = value
        end
    end

    return at
end

-- The scores of all, joined, and what was picked.
local function scores(conf, list, request)
    local loaded = assert(policy.load("weighted", conf))
    local ctx = fake.ctx({ {} }, { prompt_blocks = 10 },
                         { candidates = tables(list), wanted = 0,
                           request = request or { headers = {},
                                                  fields = {} } })

    -- pick() has no choice to name when nothing is wanted
    pcall(loaded.pick, loaded, ctx)

    local cost = order.costs(#list)
    local got = {}

    for i = 1, #list do
        got[i] = string.format("%.3g", 0 - cost[i])
    end

    return table.concat(got, " ")
end

local function one(name, list, request, conf)
    conf = conf or {}
    conf.scorers = only(name)

    return scores(conf, list, request)
end


-- ---- scorers ----------------------------------------------------------------

is(one("prefix", { { device = 10 }, { device = 4 }, {} }), "1 0.4 0",
   "prefix: the share of the prompt's blocks")
is(one("prefix", { { device = 10, confidence_id = 2 },
                   { device = 10, confidence_id = 4 } }), "0.5 1",
   "prefix: half for a view that is not to be trusted")
is(one("queue", { { waiting_requests = 4 }, { waiting_requests = 0 },
                  { waiting_requests = 1 } }), "0 1 0.75",
   "queue: 1 for the shortest, 0 for the longest")
is(one("queue", { { waiting_requests = 4 }, { waiting_requests = 4 } }), "1 1",
   "queue: 1 for all when they are alike")
is(one("queue", { { active_prefills = 2 }, { active_prefills = 0 } }), "0 1",
   "queue: requests without a first byte when engines don't tell")
is(one("kv_usage", { { kv_usage = 0.9 }, { kv_usage = 0.2 } }), "0.1 0.8",
   "kv_usage: what is free")
is(one("kv_usage", { { kv_usage = 0.9, decode_blocks = 1 },
                     { decode_blocks = 5 } }), "1 0",
   "kv_usage: by decode blocks when an engine doesn't tell")
is(one("active_requests", { { active_requests = 4, weight = 2 },
                            { active_requests = 1 },
                            { active_requests = 3 } }), "0.5 1 0",
   "active_requests: for the weight")

local adapter = { headers = {}, fields = {}, lora = "a" }

is(one("lora", { { lora = "a,b" }, { lora = "b" }, { lora = "aa" }, {} },
       adapter), "1 0 0 0.5", "lora: where it is loaded, or may be")
is(one("lora", { { lora = "a" }, {} }), "0 0",
   "lora: nothing for a request without one")
is(one("lora", { { lora = "a" }, {} }, { headers = {}, fields = {},
                                         lora = "" }), "0 0",
   "lora: a name without letters is none")
is(one("session", { {}, {} }, { headers = { ["x-session-id"] = "s" },
                                fields = {} }), "0 0",
   "session: nothing for one that was not seen")
is(scores({ scorers = { prefix = 4, queue = 3, kv_usage = 0, lora = 0 } },
          { { device = 5, waiting_requests = 9 }, { waiting_requests = 0 } }),
   "2 3", "the score is the weighted sum")
is(scores(nil, { { device = 10, active_prefills = 1, decode_blocks = 2 },
                 {} }), "3 4",
   "by default prefix 3, queue 2, kv_usage 2, and no more")


-- ---- pickers ----------------------------------------------------------------

local function draw(conf, list, times, match)
    local loaded = assert(policy.load("weighted", conf))
    local ctx = fake.ctx(list, match or { prompt_blocks = 10 })
    local counts, why = {}, nil

    for _ = 1, times do
        local got, k, reason = loaded:pick(ctx)

        assert(k == math.min(3, #list))
        counts[got[0]] = (counts[got[0]] or 0) + 1
        why = reason
    end

    return counts, why
end

local prefix = only("prefix")
local counts, why = draw({ scorers = prefix },
                         { { device = 4 }, { device = 6 }, {} }, 100)

is(counts[2], 100, "max: the highest score")
is(why, "overlap", "which overlap has made")
tap.even(draw({ scorers = prefix }, { { device = 6 }, { device = 6 }, {} },
              4000), 2, "max: ties at random")

counts = draw({ scorers = prefix, picker = "weighted" },
              { { device = 2 }, { device = 6 }, {} }, 8000)
near(counts[2] / 8000, 0.75, 0.02, "weighted: in proportion to the score")
is(counts[3], nil, "weighted: never a score of 0")
tap.even(draw({ scorers = prefix, picker = "weighted" }, { {}, {}, {} },
              6000), 3, "weighted: evenly when all are 0")

counts, why = draw({ scorers = prefix, picker = "random" },
                   { { device = 9 }, {}, {}, {} }, 8000)
tap.even(counts, 4, "random: whatever the score")
is(why, "random", "which is the reason")

is(select(2, draw(nil, { {}, {} }, 1)), "load", "without overlap load decides")
is(select(2, draw(nil, { {} }, 1, { prompt_blocks = 0 })), "load",
   "a prompt without blocks is no error")


-- ---- sessions ---------------------------------------------------------------

local loaded = assert(policy.load("weighted", {
    scorers = { session = 10, queue = 1 }
}))

local function where(id, busy)
    local list = { { active_prefills = 2 }, { active_prefills = busy or 1 } }
    local request = { headers = { ["x-session-id"] = id }, fields = {} }
    local ctx = fake.ctx(list, nil, { request = request })
    local got, _, reason = loaded:pick(ctx)

    return got[0] .. " " .. reason, ctx
end

is(where("s"), "2 load", "a session goes by the other scores")
is(where("s", 50), "2 session", "and stays, when its weight says so")
is(where("t", 50), "1 load", "others don't")

local ctx = select(2, where("r"))

is(where("r", 50), "2 session", "a session that was served where it went stays")
loaded.done(loaded.policy, ctx, { tries = 2, holder = 0 })
is(where("r", 1), "1 session", "after a retry it is where it was served")
is(policy.load("weighted").done, nil, "without sessions nothing is to be told")


-- ---- settings ---------------------------------------------------------------

for _, case in ipairs {
    { { scorers = { cache = 1 } }, '"scorers": unknown setting "cache"' },
    { { scorers = { prefix = -1 } }, '"prefix" must be from 0' },
    { { picker = "best" }, '"picker" must be "max", "weighted" or "random"' },
    { { scorers = { session = 1 }, dict = "no" }, 'no lua_shared_dict "no"' },
    { { x = 1 }, 'unknown setting "x"' },
} do
    tap.has(select(2, policy.load("weighted", case[1])), case[2],
            "refused: " .. case[2])
end


tap.done()
