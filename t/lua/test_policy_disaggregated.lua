-- disaggregated: who generates, who prefills, and when nobody need.


local tap = require "lib.tap"
local fake = require "lib.fake"
local policy = require "resty.kv_router.policy"

local has, is = tap.has, tap.is

local BOTH, PREFILL, DECODE = 0, 1, 2


local function new(conf)
    return assert(policy.load("disaggregated", conf))
end

-- "order reason": the choice and where retries go, and what is planned.
local function pick(loaded, list, tokens, match)
    match = match or {}
    match.prompt_tokens = tokens or 4096
    match.prompt_blocks = math.floor(match.prompt_tokens / 16)

    local ctx = fake.ctx(list, match)
    local got, k, reason, why, plan = policy.decide(loaded, ctx)

    if why then
        error(fake.log[#fake.log])
    end

    local order = {}

    for i = 0, k - 1 do
        order[i + 1] = got[i] + 1
    end

    return table.concat(order, " ") .. " " .. reason, plan
end

local function fleet()
    return { { role_id = PREFILL, active_requests = 5, prefill_tokens = 800 },
             { role_id = DECODE, decode_blocks = 9 },
             { role_id = PREFILL },
             { role_id = DECODE, decode_blocks = 3 } }
end


-- ---- pairs ------------------------------------------------------------------

local got, plan = pick(new(), fleet())

is(got, "4 2 pair", "a worker of role decode generates, as its policy says")
is(table.concat(plan.prefill, " "), "3 1",
   "one of role prefill prefills, and there is another one")
is(plan.protocol, "vllm", "in vLLM's way")
is(plan.timeout, 60, "with a bound of time")
is(plan.headers, nil, "without headers")

local list = fleet()

list[1].device = 200
is(select(2, pick(new(), list)).prefill[1], 1,
   "who prefills is chosen by overlap, too")

list = fleet()
list[2].device = 100
is(pick(new(), list), "2 4 pair", "and so is who generates")

is(pick(new { decode = "least_loaded", prefill = "least_loaded" }, fleet()),
   "4 2 pair", "either may be chosen by another policy")

local three = fleet()

three[5] = { role_id = PREFILL, active_requests = 1, prefill_tokens = 160 }
is(#select(2, pick(new(), three)).prefill, 2, "two are tried, no more")


-- ---- when a pair is not worth it --------------------------------------------

list = fleet()
list[4].device = 224
is(pick(new(), list), "4 2 short",
   "512 uncached tokens or less are prefilled where they are decoded")
list[4].device = 223
is(pick(new(), list), "4 2 pair", "more are not")
is(pick(new { local_prefill = 600 }, list), "4 2 short", "the bound can be set")
is(pick(new(), fleet(), 100), "4 2 short", "a short prompt is short")
is(select(2, pick(new(), fleet(), 100)), nil, "and nothing is planned for it")
is(pick(new(), fleet(), 0), "4 2 pair",
   "a prompt of unknown length may be long")

list = fleet()
list[5] = { role_id = BOTH }
is(pick(new(), list), "5 4 2 no overlap",
   "a worker of role both takes whole requests, when it is the best")
list[5].decode_blocks = 50
is(pick(new(), list), "4 2 5 pair", "else it doesn't")

is(pick(new(), { { role_id = DECODE }, { role_id = DECODE, device = 1 } }),
   "2 1 no pair", "without anyone to prefill decoders do it all")
is(pick(new(), { { role_id = PREFILL }, { role_id = PREFILL, device = 1 } }),
   "2 1 no pair", "without anyone to decode prefillers do")
got, plan = pick(new(), { { role_id = DECODE, device = 1 }, { role_id = DECODE } },
                 nil, { full_roles = 2 })
is(got, "1 2 full", "full, those who prefill are waited for")
is(plan.wait, true, "which the plan says")
is(pick(new(), { { role_id = DECODE } }, 100, { full_roles = 2 }), "1 short",
   "but not with a short prompt")
got, plan = pick(new(), { { role_id = PREFILL } }, nil, { full_roles = 4 })
is(got, "1 full", "and so are those who generate")
is(plan.wait, true, "by the same plan")
is(pick(new(), { {}, { device = 1 } }), "2 1 overlap",
   "and without any roles it is the policy for decoding")


-- ---- SGLang -----------------------------------------------------------------

local sglang = new { protocol = "sglang", bootstrap_port = 9000,
                     bootstrap_ports = { ["0"] = 9100 } }

got, plan = pick(sglang, fleet())
is(got, "4 2 pair", "sglang: a pair")
is(plan.protocol, "sglang", "sglang: in its way")
is(table.concat(plan.ports, " "), "9000 9100",
   "sglang: with the ports of those who prefill")
is(pick(sglang, fleet(), 100), "4 2 pair",
   "sglang: a short prompt has to be a pair")
list = fleet()
list[5] = { role_id = BOTH, decode_blocks = 50 }
is(pick(sglang, list, 100), "5 short",
   "sglang: unless a worker can do it all")
list = { { role_id = DECODE }, { role_id = BOTH, decode_blocks = 5000 } }
is(pick(sglang, list), "2 no pair", "sglang: the same when nobody prefills")
list[2] = nil
is(pick(sglang, list), "1 no pair", "sglang: there may be no way out")


-- ---- a sidecar --------------------------------------------------------------

local sidecar = new { protocol = "sidecar" }

got, plan = pick(sidecar, fleet())
is(got, "4 2 pair", "sidecar: a pair")
is(plan.headers["x-prefiller-host-port"], "10.0.0.3:8000",
   "sidecar: a header says who prefills")
is(plan.prefill, nil, "sidecar: and it is all there is to do")
is(select(2, pick(sidecar, fleet(), 100)).headers["x-prefiller-host-port"],
   false, "sidecar: without a pair the client's own header is removed")


-- ---- settings ---------------------------------------------------------------

is(new().roles, 7, "it chooses from all roles")
is(new().done, nil, "done() is for policies that have one")

local told
local watching = new { decode = {
    pick = function() return 1 end,
    done = function(_, _, outcome) told = outcome end
} }

watching.done(watching.policy, {}, "outcome")
is(told, "outcome", "such as the one for decoding")

local sticky = new { decode = "session", decode_conf = { next = "p2c" } }
local request = { headers = { ["x-session-id"] = "s" }, fields = {} }
local at = {}

for _ = 1, 50 do
    local ctx = fake.ctx(fleet(), { prompt_tokens = 4096 },
                         { request = request })

    at[policy.decide(sticky, ctx)[0]] = true
end

is((at[1] or at[3]) and at[1] ~= at[3], true,
   "sessions stay at the worker that generates")

for _, case in ipairs {
    { { protocol = "smoke" }, '"protocol" must be "vllm", "sglang" or' },
    { { decode = "nothing" }, '"decode": unknown policy "nothing"' },
    { { prefill_conf = { x = 1 } }, '"prefill": policy "kv_cost": unknown' },
    { { decode = "disaggregated" }, "can't be in another" },
    { { bootstrap_port = 0 }, '"bootstrap_port" must be from 1 to 65535' },
    { { bootstrap_ports = { a = "x" } }, '"bootstrap_ports" of "a"' },
    { { bootstrap_ports = { 1 } }, '"bootstrap_ports" of "1"' },
    { { timeout = 0 }, '"timeout" must be from' },
    { { x = 1 }, 'unknown setting "x"' },
} do
    has(select(2, policy.load("disaggregated", case[1])), case[2],
        "refused: " .. case[2])
end

tap.raises("boom", "an error of either is an error", pick, new {
    prefill = { pick = function() error("boom") end }
}, fleet())


tap.done()
