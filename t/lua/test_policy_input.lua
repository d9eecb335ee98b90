-- Whatever workers and requests are like, no shipped policy fails, and each
-- answers with candidates, none of them twice.


package.path = package.path .. ";conf/?.lua"

local tap = require "lib.tap"
local fake = require "lib.fake"
local ffi = require "ffi"
local policy = require "resty.kv_router.policy"
local random = require "resty.kv_router.request.random"

local ROUNDS = 400

local draw = random.new(11)


local function below(n)
    return math.floor(draw() * n)
end


local function one_of(list)
    return list[below(#list) + 1]
end


-- ---- what there may be ------------------------------------------------------

local NUMBERS = { 0, 0, 1, 2, 17, 1000, 2^31, 2^53 }

local function worker(roles)
    local device = one_of { 0, 0, 1, 5, 256, 2^20 }

    return {
        holder = below(5000), generation = one_of { 0, 1, 2^31, 2^32 - 1 },
        rank = below(3), device = device, host = device + below(9),
        disk = device + 9 + below(9),
        active_requests = one_of(NUMBERS), active_prefills = one_of(NUMBERS),
        prefill_tokens = one_of(NUMBERS), decode_blocks = one_of(NUMBERS),
        additional_blocks = one_of { 0, 256 },
        in_flight = one_of { 0, 0, 1, 256 }, churn = one_of(NUMBERS),
        weight = one_of { 0, 0.001, 1, 1, 1000 },
        max_active = one_of { 0, 1, 1000000 },
        age = one_of { -1, 0, 1e9 },
        role_id = roles and below(3) or 0, confidence_id = below(7),
        model = one_of { "", "m" },
    }
end


local TEXTS = { "", "0", "x", ("y"):rep(9000), "\0", "null", "{", '"', '""',
                '"\\u0000"', "[]", '"a"', "-1", "1e999", "\255\254" }

local function request()
    local given = { headers = {}, fields = {} }

    for _, name in ipairs { "x-session-id", "x-tier" } do
        if draw() < 0.5 then
            given.headers[name] = one_of(TEXTS)
        end
    end

    for _, name in ipairs { "session_id", "prompt", "messages", "input" } do
        if draw() < 0.3 then
            given.fields[name] = one_of(TEXTS)
        end
    end

    if draw() < 0.3 then
        given.lora = one_of(TEXTS)
    end

    return given
end


local hashes = ffi.new("uint64_t[300]")

local function context(roles)
    local list = {}
    local blocks = one_of { 0, 1, 16, 300 }

    for i = 1, one_of { 1, 1, 2, 3, 40 } do
        list[i] = worker(roles)
    end

    local match = { block_size = one_of { 1, 16, 1024 },
                    prompt_blocks = blocks }

    match.prompt_tokens = blocks * match.block_size + below(match.block_size)

    if blocks > 0 and draw() < 0.9 then
        hashes[0] = below(2^31)
        match.hashes = hashes
    end

    return fake.ctx(list, match, { request = request(), random = draw,
                                   wanted = one_of { 1, 3, 101 } })
end


-- ---- each policy ------------------------------------------------------------

for _, case in ipairs {
    { "kv_cost", { decay = 1, active_request_weight = 1 } },
    { "kv_cost", { temperature = 0.5 } },
    { "kv_cost", { temperature = 1e9, overlap_credit = 1e9 } },
    { "cache_aware", { balance = true } },
    { "lmetric" },
    { "affinity_gate", { explore = 0.5, penalty = 0 } },
    { "weighted", { scorers = { session = 1, active_requests = 1 } } },
    { "weighted", { picker = "weighted" } },
    { "weighted", { picker = "random" } },
    { "session", { next = "p2c", entries = 4, max_active = 10 } },
    { "agent", { next = "p2c", entries = 4 } },
    { "disaggregated", { protocol = "sglang" } },
    { "disaggregated", { protocol = "sidecar", decode = "prefix_hash" } },
    { "disaggregated", { decode = "session", prefill = "random" } },
    { "prefix_hash", {} },
    { "least_loaded" }, { "p2c" }, { "round_robin" }, { "random" },
    { "policy.tiers" },
} do
    local loaded = assert(policy.load(case[1], case[2]))
    local wrong

    for _ = 1, ROUNDS do
        local ctx = context(case[1] == "disaggregated")
        local n = #ctx.candidates
        local list, k, _, why, plan = policy.decide(loaded, ctx)
        local seen = {}

        if why then
            wrong = fake.log[#fake.log]
        end

        if k < 1 or k > n then
            wrong = k .. " of " .. n
        end

        for i = 0, k - 1 do
            if list[i] >= n or seen[list[i]] then
                wrong = "candidate " .. list[i] .. " of " .. n
            end

            seen[list[i]] = true
        end

        for _, i in ipairs(plan and plan.prefill or {}) do
            if ctx.candidates[i].role ~= "prefill" then
                wrong = "prefill at " .. i
            end
        end

        if loaded.done then
            loaded.done(loaded.policy, ctx, { tries = 2,
                                              holder = below(5000) })
        end
    end

    tap.is(wrong, nil, case[1] .. ": " .. ROUNDS .. " odd inputs")
end


tap.done()
