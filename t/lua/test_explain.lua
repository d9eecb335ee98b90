-- What is told of a decision: costs of the shipped policies, and policies that
-- keep nothing of what is only to be explained.


local tap = require "lib.tap"
local fake = require "lib.fake"
local explain = require "resty.kv_router.request.explain"
local kv = require "resty.kv_router"
local policy = require "resty.kv_router.policy"

local has, is, ok, raises = tap.has, tap.is, tap.ok, tap.raises


local function texts(costs)
    local parts = {}

    for i, cost in ipairs(costs or {}) do
        parts[i] = ("%.6g"):format(cost)
    end

    return table.concat(parts, " ")
end


-- ---- costs ------------------------------------------------------------------

local function costs(name, conf, list, match, more)
    local loaded = assert(policy.load(name, conf))

    return texts(policy.costs(loaded, fake.ctx(list, match, more)))
end

local PROMPT = { prompt_tokens = 64, prompt_blocks = 4 }

is(costs("kv_cost", { prefill_load_scale = 2 },
         { { prefill_tokens = 16, device = 6, decode_blocks = 2,
             additional_blocks = 3 } },
         { prompt_tokens = 64, prompt_blocks = 6 }), "7",
   "kv_cost: the formula's")
is(costs("kv_cost", nil, { { decode_blocks = 100, active_requests = 4 } },
         nil, { params = { active_request_weight = 32 } }), "228",
   "kv_cost: the request's settings count")
is(costs("weighted", { scorers = { queue = 0, kv_usage = 0, lora = 0 } },
         { { device = 4 }, { device = 1 } }, PROMPT), "-3 -0.75",
   "weighted: the scores below zero")
is(costs("cache_aware", nil, { { device = 3, active_requests = 2^10 },
                               { device = 1 } }, PROMPT), "-2.99902 -1",
   "cache_aware: the match, then the load")
is(costs("cache_aware", nil, { { active_requests = 2 }, {} }, PROMPT), "2 0",
   "cache_aware: the load without a match")
is(costs("least_loaded", nil, { { active_requests = 3, weight = 2 },
                                { active_requests = 1 } }), "1.5 1",
   "least_loaded: requests for a weight of 1")
is(costs("session", { next = "least_loaded" }, { { active_requests = 3 } }),
   "3", "session: those of the other policy")
is(costs("session", { next = "random" }, { {} }), "",
   "session: none when that has none")
is(costs("round_robin", nil, { {} }), "", "a policy need not have any")

local LIST = function()
    return { { device = 1, active_requests = 3 },
             { device = 2, active_requests = 1 },
             { device = 3, active_requests = 2 }, { prefill_tokens = 300 } }
end

for _, name in ipairs { "kv_cost", "weighted", "cache_aware", "lmetric",
                        "affinity_gate", "least_loaded" }
do
    local loaded = assert(policy.load(name))
    local all = policy.costs(loaded, fake.ctx(LIST(), PROMPT))
    local list = policy.decide(loaded, fake.ctx(LIST(), PROMPT))
    local least = true

    for i = 1, #all do
        least = least and all[list[0] + 1] <= all[i]
    end

    ok(least, name .. ": the one that is chosen costs the least")
end


-- ---- policies that fail -----------------------------------------------------

local function broken(f)
    return { name = "broken", pick = function() return 1 end, explain = f }
end

local function raise()
    error("no cost")
end

local loaded = assert(policy.load(broken(raise)))

is(policy.costs(loaded, fake.ctx({ {} })), nil, "one that fails has no costs")
has(fake.log[1], 'policy "broken": explain: ', "which is logged")
has(fake.log[1], "no cost", "with what it said")

loaded = assert(policy.load(broken(function() return 7 end)))
is(policy.costs(loaded, fake.ctx({ {} })), nil, "nor has one without a table")

local none, err = policy.load(broken(7))

is(none, nil, "explain is a function")
has(err, '"explain" is not a function', "else it is refused")


-- ---- dry --------------------------------------------------------------------

local function pick(chosen, dry, id)
    local list = { {}, {}, {} }
    local ctx = fake.ctx(list, PROMPT, { dry = dry })

    ctx.request.headers["x-session-id"] = id

    return policy.decide(chosen, ctx)[0]
end

local turns = assert(policy.load("round_robin"))

pick(turns)
pick(turns)

local third = pick(turns, true)

is(pick(turns, true), third, "round_robin: explained twice, the same turn")
is(pick(turns), third, "which is the next one's")
ok(pick(turns) ~= third, "that has it then")

for name, conf in pairs { session = { next = "round_robin" },
                          weighted = { scorers = { session = 5 } } }
do
    loaded = assert(policy.load(name, conf))

    pick(loaded, true, "s")

    local kept = loaded.policy.sessions
    local key = require("resty.kv_router.request.sessions").key("main", "s")

    is(kept:get(key), nil, name .. ": no session of what is explained")
    pick(loaded, nil, "s")
    ok(kept:get(key), name .. ": but of what is routed")
end


-- ---- the router -------------------------------------------------------------

raises('the setting "explain" was removed: POST /route of the HTTP API',
       "a header with it is gone, and what has it is told", kv.new, "main",
       { explain = true })

local function asked(method, uri)
    fake.ngx.req.get_method = function() return method end
    fake.vars.uri = uri

    package.loaded["resty.kv_router.request.explain"] = nil

    return require("resty.kv_router.request.explain").asked()
end

is(asked("POST", "/kv/route"), true, "POST /kv/route is for the policy")
is(asked("GET", "/kv/route"), false, "GET is for the API to refuse")
is(asked("POST", "/kv/events"), false, "so are other calls")
is(asked("POST", "/kv/route/x"), false, "and what only looks like it")

explain.answer("{}")
is(fake.ngx.status .. " " .. fake.printed, "200 {}\n", "the answer is JSON")

fake.printed = ""
explain.answer(nil, 'no "worker"\n', true)
is(fake.ngx.status .. " " .. fake.printed, '503 {"error":"no  worker  "}\n',
   "without workers it says so")
is(fake.ngx.header["Retry-After"], 1, "and when to try again")

fake.printed = ""
explain.answer(nil, "no memory")
is(fake.ngx.status .. " " .. fake.printed, '500 {"error":"no memory"}\n',
   "what else fails is an error")


tap.done()
