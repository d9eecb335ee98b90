-- Copyright (C) the nginx-kv-router authors
--
-- Tries a policy without nginx: the program behind the command
-- kv-router-check, which runs it in a process of its own and ends it when the
-- time is up.
--
--     luajit check.lua NAME [CONF]
--
-- Loads the policy as resty.kv_router's new() does, and asks it as
-- router:access() does, once for each of the contexts below.  Each step is
-- named before it begins: the last line printed tells at which step a policy
-- was when the process was ended.
--
-- The command translates these exit statuses to 0, 1 and 2.  Any other status
-- means that the process did not come to its end, perhaps because the policy
-- has called os.exit(0).


local FINE = 10
local FAULT = 11
local USAGE = 12

local ffi = require "ffi"
local host = require "resty.kv_router.host"

local errors = 0                 -- lines that resty.kv_router.log logged
local within_line = false

local function out(text)
    io.stdout:write(text)
    io.stdout:flush()
    within_line = text:sub(-1) ~= "\n"
end

local function fail(status, text)
    if within_line then
        out("\n")
    end

    io.stderr:write("kv-router-check: ", text, "\n")
    os.exit(status)
end

host.install(function(level, ...)
    local said = { ... }

    for i = 1, select("#", ...) do
        said[i] = tostring(said[i])
    end

    -- resty.kv_router.log begins its lines so; a policy's own lines do not
    if level == ngx.ERR and said[1] == "kv_router: " then
        errors = errors + 1
        said[1] = ""
    end

    if within_line then
        out("\n")
    end

    io.stderr:write("  ", table.concat(said), "\n")
end)

local costs = require "resty.kv_router.explain".costs
local lib = require "resty.kv_router.ffi"
local new_random = require "resty.kv_router.random".new
local new_request = require "resty.kv_router.request".new
local policy = require "resty.kv_router.policy"

local BLOCK = 16                 -- tokens
local WANTED = 3                 -- by default: max_tries is 2

local random = new_random(1)


-- ---- contexts ---------------------------------------------------------------

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
             prefill_tokens = 1000 * i, decode_blocks = 70 * i }
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
-- that have one; ctx, further fields of ctx.  all_roles: the workers have all
-- roles that the policy chooses from, in turn, instead of "both".
--
-- No context is without workers: nginx answers such a request with 503, and
-- asks no policy.
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
}


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
local function context(case, bits)
    local tokens = case.tokens or 1000
    local n = math.floor(tokens / BLOCK)
    local match = { block_size = BLOCK, prompt_tokens = tokens,
                    prompt_blocks = n }
    local list = case[2]

    assign_roles(list, bits, case.all_roles)

    for _, given in ipairs(list) do
        given.additional_blocks = math.ceil(tokens / BLOCK)
    end

    if n > 0 then
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
                               nil, random, lib.now_us() / 1e6, WANTED)

    for key, value in pairs(case.ctx or {}) do
        ctx[key] = value
    end

    return ctx
end


-- ---- asking -----------------------------------------------------------------

-- Asks the policy, and tells it what came of the request.  Returns how many
-- microseconds the decision took, whether pick() took too long, and a text with
-- the choice.
local function ask(self, ctx)
    if self.policy.explain then
        costs(self, ctx)
    end

    local started = lib.now_us()
    local list, _, reason, failed, _, slow = policy.decide(self, ctx)
    local took = lib.now_us() - started
    local c = ctx.candidates[list[0] + 1]

    if self.done then
        local outcome = ffi.new("ngx_http_kv_router_outcome_t")

        outcome.worker_data = c.worker_data
        outcome.worker_len = c.worker_len
        outcome.holder, outcome.rank = c.holder, c.rank
        outcome.tries, outcome.status = 1, 200
        outcome.first_byte_us, outcome.total_us = 50000, 900000

        policy.finish(self, ctx, outcome)
    end

    return took, slow, failed and "FAULT: the least loaded worker is taken"
                       or string.format('"%s" rank %d%s', c.worker, c.rank,
                                        reason and ": " .. reason or "")
end


local function settings(text)
    local chunk, err = loadstring("return " .. text, "=CONF")

    if not chunk then
        fail(USAGE, "CONF is no Lua table: " .. err)
    end

    local ok, conf = pcall(setfenv(chunk, { math = math }))

    if not ok or type(conf) ~= "table" then
        fail(USAGE, "CONF is no Lua table: "
                    .. (ok and "it is a " .. type(conf) or tostring(conf)))
    end

    return conf
end


local function load(name, conf)
    local ok, self, err = xpcall(policy.load, debug.traceback, name, conf)

    if not ok then
        err = self
    end

    if not ok or not self then
        fail(FAULT, err .. (err:find("unknown policy", 1, true)
                            and ": it is in no folder of the Lua path, "
                                .. package.path or ""))
    end

    return self
end


local function main(name, text)
    local conf = text and settings(text)

    out('policy "' .. name .. '"\n load: ')

    local self = load(name, conf)
    local slowest, slow_picks = 0, 0

    out("ok\n")

    for i, case in ipairs(CONTEXTS) do
        out(string.format(" %d %s: ", i, case[1]))

        local took, slow, chosen = ask(self, context(case, self.roles))

        slowest = math.max(slowest, took)
        slow_picks = slow_picks + (slow and 1 or 0)
        out(string.format("%s%s, %.2f ms%s\n", within_line and "" or "   ",
                          chosen, took / 1000, slow and ", SLOW" or ""))
    end

    out(string.format("%d contexts, kinds of faults: %d, picks over 10 ms: "
                      .. "%d, the slowest: %.2f ms\n", #CONTEXTS, errors,
                      slow_picks, slowest / 1000))

    os.exit(errors > 0 and FAULT or FINE)
end


main(...)
