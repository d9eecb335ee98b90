-- session: where it was last, while that is there and has room.


local tap = require "lib.tap"
local fake = require "lib.fake"
local policy = require "resty.kv_router.policy"

local has, is = tap.has, tap.is


local function new(conf)
    return assert(policy.load("session", conf))
end

-- Of three workers: the second is the one that the other policy would choose.
local function three()
    return { { active_requests = 2 }, { active_requests = 1 },
             { active_requests = 3 } }
end

local LEAST = { next = "least_loaded" }

-- Who gets a request of that session, and why: "2 load".
local function pick(loaded, id, list, more)
    local request = { headers = { ["x-session-id"] = id }, fields = {} }
    local ctx = fake.ctx(list or three(), nil, { request = request })

    for key, value in pairs(more or {}) do
        request[key] = value
    end

    local got, k, reason = loaded:pick(ctx)

    if type(got) == "number" then
        return got .. " " .. reason
    end

    return got[0] .. " " .. reason, k, ctx
end


-- ---- sticky -----------------------------------------------------------------

local loaded = new(LEAST)
local busy = three()

busy[2].active_requests = 50

is(pick(loaded, "s"), "2 load", "the first request goes by the other policy")
is(pick(loaded, "s", busy), "2 session", "the next ones where it went")
is(pick(loaded, "t", busy), "1 load",
   "another session has nothing to do with it")
is(pick(loaded, nil, busy):sub(3), "load",
   "a request without a session goes by the other policy")
is(pick(loaded, "", busy):sub(3), "load", "so does an empty id")
is(select(2, pick(loaded, nil)), 3, "its ranking is passed on")

local gone = three()

gone[2].holder, gone[2].generation = 9, 1
gone[1].active_requests = 0
is(pick(loaded, "s", gone), "1 load", "its worker is gone: the other policy")
is(pick(loaded, "s"), "1 session", "and the session stays with that choice")

local again = three()

again[1].generation = 1
is(pick(loaded, "s", again), "2 load",
   "a worker that came back with nothing is another one")


-- ---- overload ---------------------------------------------------------------

loaded = new { next = "least_loaded", max_active = 10 }
pick(loaded, "s")

local full = three()

full[2].active_requests = 9
is(pick(loaded, "s", full), "2 session", "below the bound it stays")
full[2].active_requests = 10
is(pick(loaded, "s", full), "1 load", "at the bound it moves")

loaded = new { next = "least_loaded", max_active = 10 }
pick(loaded, "s")
full[2].weight = 2
is(pick(loaded, "s", full), "2 session", "the bound is for a weight of 1")

loaded = new(LEAST)
pick(loaded, "s")
full[2].max_active = 10
is(pick(loaded, "s", full), "1 load", "the worker's own bound counts too")


-- ---- zones ------------------------------------------------------------------

fake.dict "both"
loaded = new { next = "least_loaded", dict = "both" }

local other = new { next = "least_loaded", dict = "both" }

is(pick(loaded, "s"), "2 load", "a session of one zone")
is(pick(other, "s", busy), "2 session",
   "is that of all routers of the zone which share its dictionary")

local two = fake.ctx(busy, nil, { zone = "two", request = {
    headers = { ["x-session-id"] = "s" }, fields = {} } })

is(select(3, other:pick(two)), "load",
   "but not of another zone, whose sessions are in the same dictionary")


-- ---- time -------------------------------------------------------------------

loaded = new { next = "least_loaded", ttl = 60 }
pick(loaded, "s")
fake.time = fake.time + 59
is(pick(loaded, "s", busy), "2 session", "a session lives as long as ttl")
fake.time = fake.time + 59
is(pick(loaded, "s", busy), "2 session", "from its last request on")
fake.time = fake.time + 61
is(pick(loaded, "s", busy), "1 load", "then it is a new one")

loaded = new { next = "least_loaded", entries = 100 }
pick(loaded, "first")

for i = 1, 60 do
    pick(loaded, "s" .. i)
end

is(pick(loaded, "first", busy), "2 session", "a table half full forgets none")

for i = 1, 1000 do
    pick(loaded, "t" .. i)
end

is(pick(loaded, "first", busy), "1 load", "those not used for longest go")
is(loaded.policy.sessions.entries <= 50, true, "and the table is bounded")


-- ---- a dict -----------------------------------------------------------------

fake.dict("sessions")

local one = new { next = "least_loaded", dict = "sessions" }
local other = new { next = "least_loaded", dict = "sessions" }

pick(one, "s")
is(pick(other, "s", busy), "2 session", "a dict is of all processes")
fake.time = fake.time + 601
is(pick(other, "s", busy), "1 load", "it forgets as well")
pick(one, ("x"):rep(9000))
is(pick(other, ("x"):rep(9000), busy), "2 session", "ids may be long")


-- ---- ids --------------------------------------------------------------------

loaded = new { next = "least_loaded", header = "x-user", field = "user" }

local function by(headers, fields, list)
    return pick(loaded, nil, list, { headers = headers, fields = fields })
end

by({}, { user = '"ann"' })
is(by({}, { user = '"ann"' }, busy), "2 session", "the id may be in the body")
is(by({ ["x-user"] = "ann" }, {}, busy), "2 session", "or in a header")
is(by({ ["x-user"] = "bob" }, { user = '"ann"' }, busy), "1 load",
   "the header counts first")
by({}, { user = "17" })
is(by({}, { user = "17" }, busy), "2 session", "a number is an id")

for _, text in ipairs { "null", "{}", '""', "tru" } do
    by({}, { user = text })
    is(by({}, { user = text }, busy):sub(3), "load", text .. " is none")
end

loaded = new { next = "least_loaded", header = "", field = "" }
is(by({ [""] = "x" }, { [""] = '"x"' }):sub(3), "load", "neither need be used")


-- ---- what came of it --------------------------------------------------------

loaded = new(LEAST)

local ctx = select(3, pick(loaded, "s"))

loaded.done(loaded.policy, ctx, { tries = 2, holder = 2 })
is(pick(loaded, "s"), "3 session", "after a retry it is where it was served")
loaded.done(loaded.policy, nil, { tries = 2, holder = 0 })
is(pick(loaded, "s"), "3 session", "without ctx nothing is learned")

local told
local watched = new { next = {
    pick = function() return 1, nil, "so" end,
    done = function(_, _, outcome) told = outcome.tries end,
} }

is(pick(watched, "x"), "1 so", "any policy may be the other one")
watched.done(watched.policy, nil, { tries = 1 })
is(told, 1, "its done() is called")

local nonsense = new { next = { pick = function() return "nobody" end } }

tap.raises("which is no candidate", "its nonsense is an error", pick,
           nonsense, "s")


-- ---- settings ---------------------------------------------------------------

is(new().policy.next.name, "kv_cost", "the other policy is kv_cost by default")
is(new({ next_conf = { decay = 1 } }).policy.next.policy.conf.decay, 1,
   "which has settings of its own")

for _, case in ipairs {
    { { next = "nothing" }, 'unknown policy "nothing"' },
    { { next_conf = { x = 1 } }, 'unknown setting "x"' },
    { { ttl = 0 }, '"ttl" must be from 1' },
    { { dict = "nowhere" }, 'there is no lua_shared_dict "nowhere"' },
    { { cookie = "x" }, 'unknown setting "cookie"' },
    { { next = "disaggregated" }, 'give session as its "decode"' },
} do
    has(select(2, policy.load("session", case[1])), case[2],
        "refused: " .. case[2])
end


tap.done()
