-- resty.kv_router.request.admission: classes and tenants as kv.new() has them,
-- what the zone is told of them, and how a request waits.


local tap = require "lib.tap"
local fake = require "lib.fake"
local ffi = require "ffi"
local admission = require "resty.kv_router.request.admission"

local c, has, is, ok = fake.c, tap.has, tap.is, tap.ok

local WAITS, GOES, REFUSED = 0, 1, 2
local zones = 0


-- ---- the module -------------------------------------------------------------

local told               -- what the zone was told of its rules, how often
local begun              -- of the last request: class, tenant, tokens, seconds
local answers            -- of the queue, one after the other
local has_queue

local function list(rules, n)
    local names = {}

    for i = 0, n - 1 do
        names[#names + 1] = ffi.string(rules[i].text, rules[i].text_len) .. " "
                            .. rules[i].weight .. " " .. rules[i].most .. " "
                            .. rules[i].max_active
    end

    return table.concat(names, ", ")
end

function c.queue_rules(_, classes, n, tenants, m)
    told[#told + 1] = list(classes, n) .. "; " .. list(tenants, m)

    return has_queue and 0 or -5
end

function c.queue_begin(_, _, class, tenant, len, tokens, wait)
    begun = class .. " " .. ffi.string(tenant, len) .. " " .. tokens .. " "
            .. wait

    return 0
end

local function answer()
    return table.remove(answers, 1)
end

c.queue_line, c.queue_poll, c.queue_leave = answer, answer, answer

function c.queue_expected()
    return 7.5
end

local function reset()
    told, begun, answers, has_queue = {}, nil, {}, true
    fake.vars, fake.log = {}, {}
    fake.time = fake.time + 3600
    zones = zones + 1

    return "zone" .. zones
end

-- The gate of a zone of its own.
local function new(conf)
    return assert(admission.new(reset(), conf))
end

local function begin(gate, request)
    return gate:begin(nil, nil, request or {})
end


-- ---- settings ---------------------------------------------------------------

local function wrong(conf)
    local gate, err = admission.new(reset(), conf)

    return gate and "fine" or err
end

local function many(n)
    local names = {}

    for i = 1, n do
        names["n" .. i] = {}
    end

    return names
end

is(wrong {}, "fine", "nothing has to be given")
is(wrong { classes = many(8), tenants = many(64) }, "fine", "8 and 64")
is(wrong { classes = many(9) }, '"classes" must be at most 8, not 9', "9")
is(wrong { tenants = many(65) }, '"tenants" must be at most 64, not 65', "65")
is(wrong { classes = {} }, '"classes" must have at least one', "none")
is(wrong { classes = { [("x"):rep(31)] = {} } }, "fine",
   "a name of 31 bytes")

for _, case in ipairs {
    { { classes = { [("x"):rep(32)] = {} } }, "1 to 31 bytes", "a long name" },
    { { classes = { [""] = {} } }, "1 to 31 bytes", "an empty name" },
    { { classes = { {} } }, "1 to 31 bytes", "a number as a name" },
    { { classes = { a = 7 } }, '"classes" of "a"', "a number as a class" },
    { { classes = { a = { weigth = 1 } } }, 'did you mean "weight"', "a typo" },
    { { classes = { a = { weight = 0 } } }, '"weight"', "no weight" },
    { { classes = { a = { weight = 1e7 } } }, '"weight"', "a great weight" },
    { { classes = { a = { wait = 0.001 } } }, '"wait"', "no wait" },
    { { classes = { a = { wait = 3601 } } }, '"wait"', "a long wait" },
    { { classes = { a = { most = 0 } } }, '"most"', "most of 0" },
    { { classes = { a = { most = 1.1 } } }, '"most"', "most above 1" },
    { { tenants = { t = { weight = -1 } } }, '"tenants" of "t"', "below 0" },
    { { tenants = { t = { max_active = 1.5 } } }, '"max_active"', "one and a half" },
    { { tenants = { t = { most = 1 } } }, '"most"', "a class's setting" },
    { { class = 1 }, '"class" must be a string or a function', "class" },
    { { tenant = {} }, '"tenant" must be a string or a function', "tenant" },
} do
    has(wrong(case[1]), case[2], case[3])
end

-- several routers of a zone

local zone = reset()
local conf = { classes = { a = { weight = 2 } }, tenants = { t = {} } }
local first = assert(admission.new(zone, {}))

ok(admission.new(zone, conf), "others have classes")
ok(admission.new(zone, { classes = { a = { weight = 2, wait = 5 } },
                         tenants = { t = { weight = 1 } } }), "the same ones")
has(select(2, admission.new(zone, { classes = { a = {} } })),
    "are not those of another kv.new()", "other ones")
ok(admission.new(reset(), { classes = { a = {} } }), "but of another zone")

begin(first)
is(told[1], "a 2 1 0; t 1 1 0", "the zone has the rules of the router with some")
begin(first)
is(#told, 1, "and is told once")


-- ---- requests ---------------------------------------------------------------

local gate = new { class = "$kv_class", tenant = "$jwt_sub",
                   classes = { chat = { weight = 20, wait = 10 },
                               batch = { wait = 600, most = 0.5 },
                               also = {} },
                   tenants = { ["team-a"] = { weight = 4, max_active = 64 } } }

begin(gate)
is(told[1], "also 1 1 0, batch 1 0.5 0, chat 20 1 0; team-a 4 1 64",
   "what the zone is told")
is(begun, "0  0 5", "without a class: that of the least weight, the first by name")

fake.vars = { kv_class = "chat", jwt_sub = "team-a" }
begin(gate, { max_tokens = 16 })
is(begun, "2 team-a 16 10", "class and tenant of variables")

fake.vars = { kv_class = "chat", jwt_sub = "someone else" }
begin(gate)
is(begun, "2 someone else 0 10", "any tenant")

fake.vars = { kv_class = "made up" }
begin(gate)
is(begun, "0  0 5", "a class that nobody knows")

for _, case in ipairs { { "2500", 2.5 }, { "20000", 10 }, { "0", 10 },
                        { "-1", 10 }, { "soon", 10 }, { "nan", 10 } } do
    fake.vars = { kv_class = "chat", http_x_request_timeout_ms = case[1] }
    begin(gate)
    is(begun, "2  0 " .. case[2], "x-request-timeout-ms: " .. case[1])
end

begin(new { class = "gold", classes = { gold = { wait = 1 }, default = { weight = 3 } } })
is(begun, "1  0 1", "a class as it is")
is(told[1], "default 3 1 0, gold 1 1 0; ", "default is that of all others")

gate = new {
    class = function(request) return request.class end,
    tenant = function(request) return request.tenant end,
    classes = { a = {}, b = { wait = 2 } } }

begin(gate, { class = "b", tenant = "t" })
is(begun, "1 t 0 2", "functions of the request")
begin(gate, {})
is(begun, "0  0 5", "that return nil")
is(#fake.log, 0, "of which the log says nothing")
begin(gate, { class = 7, tenant = "t" })
is(begun, "0 t 0 5", "that return a number")
has(fake.log[1], 'the function "class" of kv.new() returned a number', "is logged")

gate = new { tenant = function() error("oh") end }
begin(gate)
is(begun, "0  0 5", "that fail")
has(fake.log[1], 'the function "tenant" of kv.new() returned an error', "as well")

gate = new {}
has_queue = false
is(begin(gate), nil, "a zone without a queue: nobody may wait")


-- ---- waiting ----------------------------------------------------------------

-- Waits, with these answers of the queue; woken: each pause ends by a wake.
-- Returns what wait() does, and how long it took.
local function wait(place, given, woken)
    local co = coroutine.create(function()
        return gate:wait(nil, nil, place)
    end)
    local start = fake.time

    answers = given

    local alive, one, two, three = coroutine.resume(co)

    while coroutine.status(co) ~= "dead" do
        fake.time = fake.time + (woken and 0 or two)
        alive, one, two, three = coroutine.resume(co, woken)
    end

    assert(alive, one)

    return one, two, three, fake.time - start
end

gate = new { classes = { default = { wait = 5 } } }

local place = begin(gate)

is(wait(place, { GOES }), true, "there is room by now")
is(wait(place, { WAITS, WAITS, GOES }, true), true, "it is woken")
is(begin(gate).tries, 0, "each request has its own place")

place = begin(gate)

local goes, why, after, time = wait(place, { WAITS, WAITS, WAITS, WAITS, WAITS,
                                             REFUSED + 3 })

is(goes, nil, "waited out")
is(why, "overload", "waited out: the code")
is(after, 7.5, "waited out: when to come again")
is(time, 5, "waited out: at the end of its wait, with looks before it")

for number, code in ipairs { "queue_full", "tenant_limit", "too_late" } do
    goes, why = wait(begin(gate), { REFUSED + number - 1 })
    ok(not goes and why == code, "refused at once: " .. code)
end

place = begin(gate)
fake.time = fake.time + 6
is(select(2, wait(place, { WAITS, REFUSED + 5 })), "no_worker",
   "the zone says whether there was a worker")


tap.done()
