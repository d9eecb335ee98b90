-- Copyright (C) the nginx-kv-router authors
--
-- The made-up contexts that kv-router-check asks policies with.


local ffi = require "ffi"
local host = require "resty.kv_router.tools.host"
local lib = require "resty.kv_router.ffi"
local new_random = require "resty.kv_router.request.random".new
local new_request = require "resty.kv_router.request.request".new
local policy = require "resty.kv_router.policy"


local _M = {}

local BLOCK = 16                 -- tokens
local WANTED = 3                 -- by default: max_tries is 2
local DRAWN = 280                -- contexts that are made by random numbers
local MOST = 512                 -- their workers

local random = new_random(1)


local function below(n)
    return math.floor(random() * n)
end


local function workers(n, of)
    local list = {}

    for i = 1, n do
        list[i] = of(i)
        list[i].worker = list[i].worker or "w" .. i
    end

    return list
end


local function loaded(i)
    return { active_requests = i, active_prefills = i % 2,
             prefill_tokens = 1000 * i, prefill_tps = 2000 * i,
             decode_blocks = 70 * i }
end


local function of_any_kind()
    local held = below(64)
    local state = loaded(below(30))

    state.device, state.host, state.disk = held, held + below(9), held + 9
    state.confidence_id = below(#lib.CONFIDENCES + 1)

    return state
end


local CHAT = '{"model":"m","messages":[{"role":"user","content":"Hi"}],'
             .. '"session_id":"s1","priority":5,"max_tokens":64,'
             .. '"cache_salt":"tenant"}'

-- Each is { title, workers } with optional fields: tokens, those of the prompt
-- (1000); headers and body of the request; frequencies, the number of blocks
-- that have one; hashes, false: the blocks have none; ctx, further fields of
-- ctx.  all_roles: the workers have all roles that the policy chooses from, in
-- turn, instead of "both".
--
-- nginx answers a request without workers with 503, and asks no policy: only a
-- policy that asks another one can do that, see empty().
local CONTEXTS = {
    { "one worker, a prompt without tokens",
      workers(1, function() return {} end), tokens = 0 },
    { "one worker, which has the whole prompt",
      workers(1, function() return { device = 62 } end) },
    { "two workers, alike", workers(2, function() return {} end) },
    { "one of two has the prompt, and is busy",
      workers(2, function(i)
          return i == 1 and { device = 60, active_requests = 40,
                              decode_blocks = 3000 } or {}
      end) },
    { "nobody has the prompt", workers(4, loaded) },
    { "three of five are equally good",
      workers(5, function(i) return i < 4 and { device = 9 } or loaded(i) end) },
    { "blocks in host memory and on disk alone",
      workers(3, function(i) return { host = 10 * i, disk = 62 } end) },
    { "blocks that are predicted",
      workers(2, function(i) return { device = 20, predicted = 10 * i } end) },
    { "each confidence",
      workers(#lib.CONFIDENCES + 1, function(i)
          return { device = 30, confidence_id = i - 1, age = i,
                   confidence_reason = "silent" }
      end) },
    { "a slow start, a probe, unequal weights",
      workers(3, function(i)
          return { health_id = i - 1, share = i == 2 and 0.1 or 1,
                   weight = i == 2 and 0.1 or 1000 }
      end) },
    { "all workers have failed",
      workers(3, function(i) return { health_id = 2 + i } end) },
    { "four ranks of one worker",
      workers(4, function(i)
          return { worker = "w1", rank = i - 1, device = i }
      end) },
    { "all roles that it chooses from", workers(6, loaded), all_roles = true },
    { "what engines report, adapters, max_active",
      workers(3, function(i)
          return { model = "m", lora = "a,b", reported_waiting = i,
                   reported_running = 2 * i, reported_usage = i / 3,
                   max_active = 8 }
      end), body = CHAT },
    { "a prompt of 131072 tokens",
      workers(4, function(i) return { device = 2000 * i } end),
      tokens = 131072 },
    { "a prompt below one block", workers(2, loaded), tokens = 7 },
    { "a request with headers and fields", workers(4, loaded), body = CHAT,
      headers = { ["x-session-id"] = "s1", ["x-tier"] = "batch",
                  ["authorization"] = "Bearer 1" } },
    { "a request whose body is no JSON, no retries",
      workers(4, loaded), body = "no JSON",
      ctx = { params = {}, wanted = 1 } },
    { "128 workers, and how often blocks are asked for",
      workers(128, of_any_kind), frequencies = 40 },
    { "1024 workers", workers(1024, of_any_kind) },
    { "a text at workers without events",
      workers(3, function(i)
          return { device = 20 * i, confidence_id = #lib.CONFIDENCES }
      end), body = CHAT, hashes = false },
    { "all workers are full",
      workers(5, function(i)
          return { active_requests = 8 * i, max_active = 8, device = 3 * i }
      end) },
}


-- A worker of the contexts that are drawn: perhaps full, perhaps like the one
-- before, perhaps without all that may be missing.
local function drawn_worker(i, before)
    local kind = below(5)

    if kind == 0 and before then
        local same = {}

        for key, value in pairs(before) do
            same[key] = value
        end

        same.worker = "w" .. i

        return same
    end

    local state = kind == 1 and {} or of_any_kind()

    state.worker = "w" .. i

    if kind == 2 then
        state.max_active = 1 + below(8)
        state.active_requests = state.max_active + below(3)

    elseif kind == 3 then
        state.health_id = below(#lib.HEALTHS + 1)
        state.age = below(100) - 1
        state.model, state.lora = "m", "a"
        state.reported_waiting = below(50)
        state.reported_running = below(50)
        state.reported_usage = random()
    end

    return state
end


-- One of the contexts that are drawn.
local function draw()
    local n = below(4) == 0 and 1 + below(MOST) or 1 + below(12)
    local list = {}

    for i = 1, n do
        list[i] = drawn_worker(i, list[i - 1])
    end

    local tokens = below(5) == 0 and below(2 * BLOCK) or below(4096)

    return { n .. " workers, a prompt of " .. tokens .. " tokens", list,
             tokens = tokens, all_roles = below(2) == 0,
             body = below(2) == 0 and CHAT or nil,
             frequencies = below(4) == 0 and 1 + below(64) or nil }
end


-- Gives each worker a role that the policy chooses from.
local function assign_roles(list, bits, all)
    local roles = {}

    for id, bit in ipairs { lib.ROLE_BITS.both, lib.ROLE_BITS.prefill,
                            lib.ROLE_BITS.decode }
    do
        if bits % (2 * bit) >= bit then
            roles[#roles + 1] = id - 1
        end
    end

    for i, given in ipairs(list) do
        given.role_id = roles[(all or roles[1] > 0) and i % #roles + 1 or 1]
    end
end


-- Makes the ctx that pick() is given, see resty.kv_router.policy.
function _M.make(case, bits)
    local tokens = case.tokens or 1000
    local n = math.floor(tokens / BLOCK)
    local match = { block_size = BLOCK, prompt_tokens = tokens,
                    prompt_blocks = n }
    local list = case[2]

    assign_roles(list, bits, case.all_roles)

    for _, given in ipairs(list) do
        given.additional_blocks = math.ceil(tokens / BLOCK)
    end

    if n > 0 and case.hashes ~= false then
        match.hashes = ffi.new("uint64_t[?]", n)

        for i = 0, n - 1 do
            match.hashes[i] = below(2^31) * 0x9e3779b97f4a7c15ULL
        end
    end

    if case.frequencies then
        match.nfrequencies = case.frequencies
        match.frequencies = ffi.new("uint32_t[?]", case.frequencies, 7)
    end

    host.request = { method = "POST", uri = "/v1/chat/completions",
                     headers = case.headers,
                     body = case.body or '{"prompt":"Hi"}' }

    local ctx = policy.context(host.match(list, match), new_request(),
                               nil, random, lib.now_us() / 1e6, WANTED,
                               "main")

    for key, value in pairs(case.ctx or {}) do
        ctx[key] = value
    end

    return ctx
end


-- Without workers.
function _M.empty()
    return { "no workers", {}, tokens = 100 }
end


-- Calls each(case) with all contexts but that without workers, first those with
-- a title of their own and false, then those drawn and true.  A policy is asked
-- with the same ones each time.
function _M.each(each)
    random = new_random(1)

    for _, case in ipairs(CONTEXTS) do
        each(case, false)
    end

    for _ = 1, DRAWN do
        each(draw(), true)
    end
end


return _M
