-- agent: sessions of coding agents stay, new ones go where few tokens are
-- bound.


local tap = require "lib.tap"
local fake = require "lib.fake"
local policy = require "resty.kv_router.policy"

local has, is = tap.has, tap.is

local PROMPT = { prompt_tokens = 1600, prompt_blocks = 100 }


local function new(conf)
    return assert(policy.load("agent", conf))
end

-- Three idle workers, of which the second has nearly all of the prompt.
local function three()
    return { {}, { device = 99 }, {} }
end

-- Where a request goes, and why: "2 session".
local function pick(loaded, headers, list, fields, match)
    local ctx = fake.ctx(list or three(), match or PROMPT,
                         { request = { headers = headers or {},
                                       fields = fields or {} } })
    local got, _, reason = loaded:pick(ctx)

    return (type(got) == "number" and got or got[0]) .. " " .. reason, ctx
end

local function id(name)
    return { ["x-session-id"] = name }
end


-- ---- stay or leave ----------------------------------------------------------

local loaded = new()
local first = three()

is(pick(loaded, id "s"), "2 new session",
   "a new session goes where it costs the least while nothing is bound")
first[2].device = 0
first[1].device = 40
is(pick(loaded, id "s", first), "2 session",
   "a session stays while its worker costs at most twice the least")

local busy = three()

busy[2].prefill_tokens, busy[2].decode_blocks = 9000, 4000
is(pick(loaded, id "s", busy):sub(1, 2) ~= "2 ", true,
   "it leaves when its worker is dearer and has more than its share")
busy[2].decode_blocks = 0
loaded = new()
pick(loaded, id "s")
is(pick(loaded, id "s", busy), "2 session",
   "a dear worker with little in flight keeps it")

local gone = three()

gone[2].holder, gone[2].generation = 9, 1
is(pick(loaded, id "s", gone):match("session"), nil,
   "when its worker is gone the other policy chooses")

loaded = new()
pick(loaded, id "s")
gone = three()
gone[2].max_active, gone[2].active_requests = 4, 4
is(pick(loaded, id "s", gone):match("session"), nil,
   "so it does when the worker's own bound is reached")


-- ---- new sessions -----------------------------------------------------------

loaded = new()

local function plain() return { {}, {}, {} } end
local seen = {}

for i = 1, 30 do
    local where = pick(loaded, id("s" .. i), plain()):match("%d")

    seen[where] = (seen[where] or 0) + 1
end

is(seen["1"] .. seen["2"] .. seen["3"], "101010",
   "a new session goes where the fewest tokens are bound")

local long = { prompt_tokens = 160000, prompt_blocks = 10000 }
local at = pick(loaded, id "long", plain(), nil, long):match("%d")
local shared = false

for i = 1, 20 do
    shared = shared or pick(loaded, id("t" .. i), plain()):match("%d") == at
end

is(shared, false, "one long session counts for many short ones")


-- ---- ids and parents --------------------------------------------------------

loaded = new()

for _, name in ipairs { "x-claude-code-agent-id", "x-claude-code-session-id",
                        "session-id", "x-opencode-session",
                        "x-session-affinity", "x-session-id" }
do
    pick(loaded, { [name] = "by " .. name })
    is(pick(loaded, { [name] = "by " .. name }):match("%a.*"), "session",
       name .. " names a session")
end

pick(loaded, nil, nil, { prompt_cache_key = '"key"' })
is(pick(loaded, nil, nil, { prompt_cache_key = '"key"' }), "2 session",
   "so does the body's prompt_cache_key")
is(pick(loaded, nil, nil, { prompt_cache_key = "{}" }):match("session"), nil,
   "one that is no string names none")

local turn1 = '[{"role":"system","content":"S"},'
              .. '{"role":"user","content":[{"type":"text","text":"a"}]}]'
local turn2 = turn1:sub(1, -2) .. ', {"role":"assistant","content":"b"},'
              .. '{"role":"user","content":"c"}]'
local other = turn1:gsub('"a"', '"z"')

pick(loaded, nil, nil, { messages = turn1 })
is(pick(loaded, nil, nil, { messages = turn2 }):match("%a.*"), "session",
   "without a name the first messages do")
has(pick(loaded, nil, nil, { messages = other }), "new session",
    "another first message is another session")
is(pick(loaded):match("session"), nil, "without any the other policy chooses")

-- clients that write the members of a message in another order
local sorted1 = '[{"content":"S","role":"system"},'
                .. '{"content":"hi","role":"user"}]'
local sorted2 = sorted1:sub(1, -2) .. ',{"content":"ok","role":"assistant"},'
                .. '{"content":"more","role":"user"}]'

pick(loaded, nil, nil, { messages = sorted1 })
is(pick(loaded, nil, nil, { messages = sorted2 }):match("%a.*"), "session",
   "whatever the order of a message's members")
is(pick(loaded, nil, nil, { messages = '[{"role":"system","content":'
                                       .. '"a \\"role\\":\\"user\\" b"}]' })
   :match("session"), nil, "a text that looks like a role is none")

loaded = new()
pick(loaded, { ["x-claude-code-session-id"] = "p" })
is(pick(loaded, { ["x-claude-code-session-id"] = "p",
                  ["x-claude-code-agent-id"] = "a" }), "2 parent",
   "an agent of a session begins where that is")
is(pick(loaded, { ["x-parent-session-id"] = "p", ["x-session-id"] = "b" }),
   "2 parent", "so does one with the header x-parent-session-id")


-- ---- ends -------------------------------------------------------------------

loaded = new()

local final = { ["x-session-id"] = "f", ["x-session-final"] = "1" }
local _, ctx = pick(loaded, final)

loaded.policy:done(ctx, { tries = 1, holder = 1 })
is(pick(loaded, id "f"):match("%a.*"), "new session",
   "a final request ends its session")

loaded = new { ttl = 60 }
pick(loaded, id "s")
fake.time = fake.time + 61
is(pick(loaded, id "s"):match("%a.*"), "new session",
   "a session lives as long as ttl")

loaded = new { entries = 100 }

for i = 1, 1000 do
    pick(loaded, id("s" .. i), plain())
end

local bound = loaded.policy.bound
local sum, count = 0, 0

for _, part in ipairs { bound.young, bound.old } do
    for _, tokens in pairs(part.sums) do
        sum = sum + tokens
    end

    count = count + part.n
end

is(count <= 100, true, "the table is bounded")
is(bound.dropped, 1000 - count, "what did not fit is counted")
is(sum, count * 1600, "and the sums are those of what is left")


-- Bytes of memory that are kept of 100 sessions with ids of 100 kB.
local function kept_of(new_loaded)
    collectgarbage()
    collectgarbage()

    local before = collectgarbage("count")

    for i = 1, 100 do
        pick(new_loaded, nil, plain(),
             { prompt_cache_key = '"' .. i .. (" "):rep(100000) .. '"' })
    end

    collectgarbage()
    collectgarbage()

    return (collectgarbage("count") - before) * 1024
end

local md5_bin = ngx.md5_bin

package.loaded["resty.kv_router.request.sessions"] = nil
package.loaded["resty.kv_router.policy.agent"] = nil
fake.ngx.md5_bin = function(s) return "md5 of " .. ngx.crc32_long(s) end
loaded = new()
is(kept_of(loaded) < 1e6, true, "long ids are not kept")
is(loaded.policy.bound.young.n, 100, "their sessions are")
fake.ngx.md5_bin = md5_bin

loaded = new()
pick(loaded, id "full", { {} })
local nothing = { prompt_tokens = 0, prompt_blocks = 0 }

pick(loaded, id "empty", { {} }, nil, nothing)
loaded.policy:done(select(2, pick(loaded, { ["x-session-id"] = "full",
                                           ["x-session-final"] = "1" },
                                  { {} })), { tries = 1, holder = 0 })
is(pick(loaded, id "empty", { {} }, nil, nothing), "1 session",
   "a session without tokens outlives the others of its worker")
is(loaded.policy.bound:tokens(0), 0, "of which nothing is bound then")


-- ---- a prefix that all have -------------------------------------------------

-- The shared prompt is cached at one worker; requests in flight pile up.
for _, name in ipairs { "kv_cost", "agent" } do
    local one = assert(policy.load(name))
    local list = { { device = 90 }, {}, {} }
    local got = { 0, 0, 0 }

    for i = 1, 60 do
        local request = { headers = id("n" .. i), fields = {} }
        local list_now = {}

        for k = 1, 3 do
            local cached = list[k].device or 0

            list_now[k] = { device = cached, active_requests = got[k],
                            prefill_tokens = got[k] * 160,
                            decode_blocks = 90 + got[k] * 10 }
        end

        local ranked = policy.decide(one, fake.ctx(list_now, PROMPT,
                                                   { request = request }))
        local k = ranked[0] + 1

        got[k] = got[k] + 1
        list[k].device = 90
    end

    is(math.max(got[1], got[2], got[3]) <= 30, true,
       name .. ": a prefix that all requests have spreads to all workers")
end


-- ---- settings ---------------------------------------------------------------

has(select(2, policy.load("agent", { slack = 0.5 })), "slack",
    "a slack below 1 is refused")
has(select(2, policy.load("agent", { next = "disaggregated" })),
    "policy of pairs", "a policy of pairs can't be the other one")


tap.done()
