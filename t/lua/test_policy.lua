-- The door to policies: loading, what they see, and bad answers.


local tap = require "lib.tap"
local fake = require "lib.fake"
local lib = require "resty.kv_router.ffi"
local policy = require "resty.kv_router.policy"

local ctx, has, is = fake.ctx, tap.has, tap.is


-- ---- loading ----------------------------------------------------------------

local kv_cost = assert(policy.load("kv_cost", { temperature = 1 }))

is(kv_cost.name, "kv_cost", "a policy is loaded by its name")
is(kv_cost.policy.conf.temperature, 1, "and given its settings")
is(policy.load("resty.kv_router.policy.least_loaded").name,
   "resty.kv_router.policy.least_loaded", "or by its module's full name")

local function refused(part, name, ...)
    local loaded, err = policy.load(...)

    is(loaded, nil, name)
    has(err, part, name .. ": says so")
end

refused('unknown policy "kv_cots": did you mean "kv_cost"? There are '
        .. "affinity_gate, agent, cache_aware, ", "an unknown name is refused",
        "kv_cots")
refused('unknown policy "premium": there are affinity_gate, ',
        "a name near to none, too", "premium")
refused('unknown policy "my.own": no file of lua_package_path has it: ',
        "an unknown module is refused", "my.own")
refused("my/own.lua, ", "with the files that were looked for", "my.own")

local asked = policy.load { pick = function(self, seen)
    return self.name, seen
end, name = "mine" }
local who, what = asked:pick("ctx")

is(who .. what, "minectx", "what load() returns has a pick(ctx)")
refused('policy "kv_cost": unknown setting "x"', "wrong settings are refused",
        "kv_cost", { x = 1 })
refused('"policy" must be a string or a table', "a number is no policy", 5)
refused("has no function pick", "a table without pick is refused", {})
refused('"done" is not a function', "a done that can't be called is refused",
        { pick = function() end, done = 1 })
refused('"policy_conf" goes with the name', "settings need a name",
        { pick = function() end }, {})

package.preload["my.broken"] = function() error("oops") end
refused("oops", "a module that fails to load says why", "my.broken")

package.preload["my.empty"] = function() return {} end
refused("has no function new", "a module without new() is refused", "my.empty")

package.preload["my.strict"] = function()
    return { new = function(conf) return nil, "x is missing" end }
end
refused('policy "my.strict": x is missing', "a module's own check counts",
        "my.strict")

package.preload["my.pickless"] = function()
    return { new = function(conf) return {} end }
end
refused("has no function pick", "what new() returns must pick", "my.pickless")


-- ---- what a policy sees -----------------------------------------------------

local c = ctx({ { worker = "a", rank = 1, device = 1, host = 2, disk = 3,
                  role_id = 1, confidence_id = 2, model = "m" },
                { worker = "b" },
                { worker = "c", device = 0, host = 0, disk = 1 } },
              { prompt_tokens = 70, prompt_blocks = 4 })
local one = c.candidates[1]

is(#c.candidates, 3, "candidates have a length")
is(c.candidates[0], nil, "there is nothing before the first")
is(c.candidates[4], nil, "and nothing after the last")
is(one.worker, "a", "worker is a string")
is(one.rank, 1, "rank a number")
is(one.address, "10.0.0.1:8000", "address a string")
is(one.model, "m", "model a string")
is(one.role, "prefill", "role a word")
is(one.confidence, "DEGRADED", "confidence a word")

local _, err = pcall(function() return one.overlap end)

has(err, 'test_policy.lua:89: a candidate has no field "overlap": it has worker, '
         .. "rank, device, host, disk, ",
    "an unknown field of a candidate is an error, with those there are")
tap.ok(not pcall(function() one.weight = 3 end), "candidates are read-only")
is(c.prompt_tokens, 70, "prompt_tokens")
is(c.prompt_blocks, 4, "prompt_blocks")
is(c.best, 1, "best")
local fine, nothing = pcall(function() return c.nonsense end)
tap.ok(not fine and nothing:find('ctx has no field "nonsense": it has best, ', 1,
                              true),
       "an unknown field of ctx is an error, with those there are")
is(c.dry, nil, "but not one that may be missing")

local seen = {}

for worker, rank, device, host, disk in c.matches:each() do
    seen[#seen + 1] = table.concat({ worker, rank, device, host, disk }, " ")
end

is(table.concat(seen, ", "), "a 1 1 2 3, c 0 0 0 1",
   "matches leave out who has nothing")

local device, host, disk = c.matches:blocks("a", 1)

is(device .. host .. disk, "123", "matches are found by worker and rank")
is((c.matches:blocks("a")), 0, "a rank that has nothing has 0")
is(c.matches.prompt_blocks, 4, "matches know the prompt's blocks")
is(c.matches, c.matches, "matches are made once")
is(c.matches.frequencies, nil, "a zone without frequencies has none")

local counts = require("ffi").new("uint32_t[3]", { 9, 4, 0 })

c = fake.ctx({ {} }, { frequencies = counts, nfrequencies = 3 })
is(table.concat(c.matches.frequencies, " "), "9 4 0",
   "those of a zone that has them are a list")

c = fake.ctx({ {} }, { frequencies = counts, nfrequencies = 0 })
is(#c.matches.frequencies, 0, "an empty one when nothing matched")


-- ---- answers ----------------------------------------------------------------

local function candidates()
    return ctx({ { worker = "a", active_requests = 9 },
                 { worker = "a", rank = 1, active_requests = 1 },
                 { worker = "b", active_requests = 5 } })
end

-- Decides with a pick() that returns these; the answer as a string.
local function decide(pick, name)
    local loaded = assert(policy.load({ name = name or "mine", pick = pick }))
    local list, k, reason, why = policy.decide(loaded, candidates())
    local order = {}

    for i = 0, k - 1 do
        order[i + 1] = list[i]
    end

    return table.concat(order, " "), reason, why
end

local function answer(wanted, name, ...)
    local given = { n = select("#", ...), ... }
    local got, reason, why = decide(function()
        return unpack(given, 1, given.n)
    end)

    is(got, wanted, name)
    is(reason, given[3], name .. ": its reason is kept")
    is(why, nil, name .. ": no error")
end

answer("1", "a worker and a rank", "a", 1, "so")
answer("0", "a worker alone is its rank 0", "a")
answer("2", "a candidate's number", 3, nil, "so")
answer("2 0 1", "a list of numbers", { 3, 1, 2 })
answer("1 2", "a list needn't have all", { 2, 3 }, nil, "so")
answer("2 1", "an array of uint32_t and its length",
       require "ffi".new("uint32_t[?]", 3, { 3, 2, 1 }), 2, "so")
is(#fake.log, 0, "nothing of this is logged")


-- ---- bad answers ------------------------------------------------------------

local u32s = require "ffi".typeof("uint32_t[?]")

local function bad(part, name, ...)
    local given = { n = select("#", ...), ... }
    local logged = #fake.log
    local pick = function() return unpack(given, 1, given.n) end
    local got, reason, why = decide(pick, name)

    is(got, "1 2 0", name .. ": the least loaded, in order")
    is(reason, nil, name .. ": without a reason")
    is(why, lib.WHY.POLICY_ERROR, name .. ": counted as the policy's error")
    has(fake.log[logged + 1], part, name .. ": logged")

    decide(pick, name)
    is(#fake.log, logged + 1, name .. ": once")
end

bad("it returned nothing: pick() must return", "nothing")
bad('worker "x" rank 0, which is no candidate', "an unknown worker", "x")
bad('worker "b" rank 7, which is no candidate', "an unknown rank", "b", 7)
bad('rank table', "a rank that is a table", "b", {})
bad("it returned what can't be read: boo", "a plan that raises errors", 1, nil,
    nil, setmetatable({}, { __index = function() error("boo", 0) end }))
bad("candidate 0 of 3", "candidate 0", 0)
bad("candidate 4 of 3", "a candidate beyond the last", 4)
bad("candidate 1.5 of 3", "a fraction", 1.5)
bad("candidate nan of 3", "no number at all", 0 / 0)
bad("an empty list", "an empty list", {})
bad("candidate b of 3", "a list with something else", { 1, "b" })
bad("candidate nan of 3", "a list with no number", { 0 / 0 })
bad("a cdata that is no list", "a length that is no number", u32s(2), 0 / 0)
bad("a worker that is a boolean", "false", false)
bad("a worker that is a function", "a function", function() end)
bad("a worker that is a thread", "a thread", coroutine.create(print))
bad("candidate inf of 3", "infinity", math.huge)
bad('worker "" rank 0', "an empty string", "")

-- a failed worker is no candidate
bad('worker "failed" rank 0, which is no candidate', "a failed worker",
    "failed")
bad("a reason that is a table", "a reason that is no string", 1, nil, {})
bad("a cdata that is no list", "another cdata", 7ULL)
bad("a cdata that is no list", "an array of another type",
    require "ffi".new("double[?]", 3), 3)
bad("a cdata that is no list", "a length beyond the array", u32s(2), 3)
bad("an empty list", "a length of 0", u32s(2), 0)
bad("candidate 0 of 3", "an array with a number of none", u32s(2), 2)

-- ---- plans ------------------------------------------------------------------

local function plan_of(plan)
    local loaded = assert(policy.load({
        name = "planner",
        pick = function() return 1, nil, "so", plan end
    }))
    local _, _, _, why, got = policy.decide(loaded, candidates())

    return got, why
end

local planned = { headers = { ["X-A"] = "1", ["X-B"] = false },
                  prefill = { 2, 3 }, protocol = "vllm" }

is(plan_of(planned), planned, "a plan goes with the answer")
is(plan_of(nil), nil, "an answer needs none")

for name, wrong in pairs {
    ["that is a string"] = "x",
    ["whose headers are none"] = { headers = 1 },
    ["with a header that is a number"] = { headers = { a = 1 } },
    ["with a header of two lines"] = { headers = { a = "1\r\nb: 2" } },
    ["with a name of two"] = { headers = { ["a: 1\r\nb"] = "2" } },
    ["to prefill at a number"] = { prefill = 1, protocol = "vllm" },
    ["to prefill nowhere"] = { prefill = {}, protocol = "vllm" },
    ["to prefill beyond the last"] = { prefill = { 4 }, protocol = "vllm" },
    ["to prefill at no number"] = { prefill = { 0 / 0 }, protocol = "vllm" },
    ["of no protocol"] = { prefill = { 1 } },
} do
    local got, why = plan_of(wrong)

    is(got, nil, "a plan " .. name .. " is dropped")
    is(why, lib.WHY.POLICY_ERROR, "a plan " .. name .. ": counted")
end


-- ---- policies in policies ---------------------------------------------------

local one_of_two = assert(policy.load({
    name = "inner", pick = function() return "b", nil, "mine" end
}))
local list, k, reason = policy.ask(one_of_two, candidates())

is(list[0] .. k .. reason, "31mine",
   "ask() answers with numbers, whatever the other policy returned")
tap.raises('policy "inner" returned worker "b" rank 0, which is no candidate',
           "and raises an error when that was nonsense", policy.ask,
           one_of_two, ctx({ {} }))

is(policy.load("kv_cost").roles, 1, "a policy chooses from role both")
is(policy.load("disaggregated").roles, 7, "unless it says otherwise")
refused('"roles" is no list of roles', "an unknown role is refused",
        { pick = function() end, roles = { "cook" } })
refused('"roles" is no list of roles', "no role at all is, too",
        { pick = function() end, roles = {} })


-- ---- policies that fail -----------------------------------------------------

local logged = #fake.log
local broken = function() error("division by cucumber") end
local got, _, why = decide(broken)

is(got, "1 2 0", "a policy that fails: the least loaded, in order")
is(why, lib.WHY.POLICY_ERROR, "a policy that fails is counted")
has(fake.log[logged + 1], 'policy "mine": pick: ', "it is logged by its name")
has(fake.log[logged + 1], "division by cucumber", "with the error")
has(fake.log[logged + 1], "stack traceback", "and a traceback")
decide(broken)
is(#fake.log, logged + 1, "once")

local crowd = {}

for i = 1, 500 do
    crowd[i] = { active_requests = 500 - i }
end

local big = ctx(crowd)

big.wanted = 400

local failing = assert(policy.load({ name = "big", pick = broken }))
local ranking, length = policy.decide(failing, big)

is(ranking[0] .. " " .. ranking[399] .. " " .. length, "499 100 400",
   "a policy that fails first in a large fleet: the least loaded, in order")
logged = #fake.log - 1

got = decide(function(_, given) return given.candidates[4].worker end)
is(got, "1 2 0", "a policy that reads beyond the last candidate fails softly")
is(#fake.log, logged + 2, "another error is logged, too")

decide(function() error({}) end)
has(fake.log[logged + 3], "table: ", "an error that is no string is shown")

local before = #fake.log

for i = 1, 1000 do
    decide(function() error("number " .. i) end)
end

is(#fake.log, before + 1, "errors raised at one line are of one kind")

local function here() error("here") end

decide(here)
decide(here, "other")
decide(here, "other")
is(#fake.log, before + 3, "those of another policy of another")

before = #fake.log

for i = 1, 100 do
    decide(function() return "w" .. i end, "unknown")
end

is(#fake.log, before + 1, "unknown workers are one kind, whatever their names")
has(fake.log[before + 1], "stack traceback:", "with a traceback of a kind")
has(fake.log[before + 1], "test_policy.lua:", "which says where pick() is")


-- ---- policies that yield ----------------------------------------------------

before = #fake.log

for _ = 1, 2 do
    got, _, why = decide(function() coroutine.yield() end, "waits")
    is(got, "1 2 0", "a policy that yields: the least loaded, in order")
    is(why, lib.WHY.POLICY_ERROR, "a policy that yields is counted")
end

is(#fake.log, before + 1, "a policy that yields is logged once")
has(fake.log[before + 1], 'policy "waits": pick: it yielded, which a policy '
    .. "may not\nstack traceback:", "with what it did")
has(fake.log[before + 1], "test_policy.lua:", "and where")

is(decide(function()
    return coroutine.wrap(function() coroutine.yield(2) end)()
end), "1", "a coroutine of its own may yield to it")

tap.ok(not policy.load("session").apart, "ours run in the request's thread")
tap.ok(policy.load("session", { next = { pick = broken } }).apart,
       "but not when they ask one that is not ours")


-- ---- policies that are slow -------------------------------------------------

-- A policy whose pick() takes that many microseconds; returns it and how to
-- ask it, which tells whether it was slow.
local function slow_policy(name, us)
    local loaded = assert(policy.load({
        name = name,
        pick = function()
            fake.time = fake.time + us / 1e6

            return 1
        end
    }))

    return function()
        return (select(6, policy.decide(loaded, candidates())))
    end
end

local ask_slow = slow_policy("slow", 12300)

before = #fake.log
is(ask_slow(), true, "a pick of over 10 ms is slow")
is(#fake.log, before + 1, "it is logged")
has(fake.log[before + 1], 'policy "slow": pick() took 12.3 ms for 3 '
    .. "candidates; requests of this nginx process wait meanwhile: make it do "
    .. "linear work, and try it by kv-router-check", "with the time it took")
is(ask_slow(), true, "each of them is slow")
is(#fake.log, before + 1, "but one a minute is logged")
is(slow_policy("slower", 99000)(), true, "a pick of another policy")
is(#fake.log, before + 2, "has a minute of its own")
fake.time = fake.time + 61
ask_slow()
is(#fake.log, before + 3, "after a minute it is logged again")
is(slow_policy("fast", 9900)(), false, "a pick of less is not slow")
is(#fake.log, before + 3, "and not logged")


-- ---- done -------------------------------------------------------------------

local told = {}
local good = policy.load({
    pick = function() end,
    done = function(_, given, outcome)
        told[#told + 1] = { given, outcome }
    end
})
local bad_done = policy.load({
    name = "sad",
    pick = function() end,
    done = function() error("not done") end
})

policy.finish(good, c, "outcome")
is(told[1][1], c, "done() is given ctx")
is(told[1][2], "outcome", "and the outcome")

before = #fake.log
policy.finish(bad_done, c, "outcome")
policy.finish(bad_done, c, "outcome")
is(#fake.log, before + 1, "an error in done() is logged once")
has(fake.log[before + 1], 'policy "sad": done: ', "as such")


tap.done()
