-- conf/policy/tiers.lua does what it says.


package.path = package.path .. ";conf/?.lua"

local tap = require "lib.tap"
local testing = require "resty.kv_router.testing"
local policy = require "resty.kv_router.policy"

local is = tap.is


local tiers = assert(policy.load("policy.tiers"))

-- Who gets it, by number: workers "0" and "2" are those without batch jobs.
local function pick(tier, list, tokens)
    local request = { headers = { ["x-tier"] = tier }, fields = {} }
    local ctx = testing.ctx(list, { prompt_tokens = tokens or 160,
                                 prompt_blocks = (tokens or 160) / 16 },
                         { request = request })
    local got, k, _, why = policy.decide(tiers, ctx)

    assert(not why, testing.log[#testing.log])

    local order = {}

    for i = 0, k - 1 do
        order[i + 1] = got[i]
    end

    return table.concat(order, " ")
end

local function four()
    return { { decode_blocks = 30 }, { decode_blocks = 10, device = 2 },
             { decode_blocks = 40 }, { decode_blocks = 20 } }
end

is(pick(nil, four()), "1 3 0", "without a tier it is kv_cost")
is(pick("batch", four()), "1 3", "batch jobs go to every second worker")
is(pick("premium", four()), "0 2", "premium tenants to the others")

local full = four()

full[1].decode_blocks, full[3].decode_blocks = 900, 950
is(pick("premium", full), "0 2", "where no batch job ever is")
full[2].decode_blocks, full[4].decode_blocks = 9000, 9000
is(pick("batch", full), "1 3", "and however long batch jobs have to wait")

local busy = four()

busy[2].active_requests = 1
is(pick(nil, busy, 16384), "1 3 0", "a prompt that is not long goes by cost")
is(pick(nil, busy, 16400), "3 0 2", "a long one prefers idle workers")
is(pick("batch", busy, 16400), "3 1", "in its tier")
is(pick("premium", { [1] = { holder = 1 } }), "0",
   "the only worker serves everybody")

local shards = { { worker = "w1", holder = 0 },
                 { worker = "w2", holder = 2, decode_blocks = 1 },
                 { worker = "w3", holder = 4, decode_blocks = 2 },
                 { worker = "w4", holder = 6, decode_blocks = 3 } }

is(pick("premium", shards), "1 3",
   "who is kept free goes by names, not by where workers are in a zone")
is(pick("batch", shards), "0 2", "so does who is not")
is(pick("batch", { { worker = "w2" }, { worker = "w3" }, { worker = "w4" } }),
   "1", "one other worker is enough for batch jobs")
is(pick("batch", { { worker = "w2" }, { worker = "w4", decode_blocks = 1 } }),
   "0 1",
   "when only those kept free are left, batch jobs may go there")

local lines = 0

for _ in io.lines("conf/policy/tiers.lua") do
    lines = lines + 1
end

tap.ok(lines < 30, "it has less than 30 lines")


tap.done()
