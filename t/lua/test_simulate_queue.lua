-- kv-simulate's bounds, queues and tenants.


local host = require "resty.kv_router.tools.host"

local clock = { now = 0 }

host.install(function() end, function() return clock.now end)

local ffi = require "ffi"
local index = require "resty.kv_router.tools.simulate.index"
local router = require "resty.kv_router.tools.simulate.router"
local tap = require "lib.tap"
local tenants = require "resty.kv_router.tools.simulate.tenants"
local workload = require "resty.kv_router.tools.simulate.workload"
local world = require "resty.kv_router.tools.simulate.world"

local is, ok = tap.is, tap.ok

local BUILD = os.getenv("KVR_BUILD") or "build"
local NONE = 2^32 - 1
local SIZE = 16
local TIMES = { base = 4e-3, prefill = 3.5e-5, prefill_context = 1.5e-9,
                decode = 3e-5, decode_context = 4e-8 }

index.load((BUILD:sub(1, 1) == "/" and "" or "./") .. BUILD
           .. "/libkvr_simulate.so")


-- ---- the order --------------------------------------------------------------

do
    local order = index.order({ 20, 1 }, 3, SIZE, 100)
    local few, many = order:tenant(0, 1), order:tenant(0, 2)
    local cold = ffi.new("uint32_t[6]", 900, 900, 900, 900, 900, 900)
    local warm = ffi.new("uint32_t[6]", 900, 800, 900, 900, 900, 60)

    is(order:next(0, 6), NONE, "nobody waits: nobody goes")
    is(order:pass(few, 10, 5), SIZE + 20, "a request that passes is charged")
    order["end"](order, few, SIZE + 20, 0)

    local first = order:wait(many, 900, 10, cold, 6)
    local second = order:wait(few, 900, 10, warm, 6)

    is(order:waiting(), 2, "two wait")
    ok(order:wait(many, 900, 10, cold, 6) ~= NONE
       and order:wait(many, 900, 10, cold, 6) == NONE, "as many as may")
    is(order:next(5, 6), second, "who is cached there goes first")
    is(order:next(0, 6), first, "and lets others go to other workers")
    is(order:grant(first, 0), 920, "a grant is charged")
    is(order:grant(second, 5), 80, "by what is cached at its worker")
    is(order:waiting(), 1, "and waits no more")
end


-- ---- whole runs -------------------------------------------------------------

local routers, passed, most = {}, 0, 0
local route = router.route

-- the bounds, whenever a request goes
function router.route(self, request, now)
    local worker, depth = route(self, request, now)
    local queue = self.queue

    routers[self] = true

    if queue and (self:active(worker) > queue.max_active
                  or self.queued[worker] - request.prefill_tokens
                     >= queue.max_prefill_tokens)
    then
        passed = passed + 1
    end

    most = math.max(most, self:active(worker))

    return worker, depth
end


local function run(options, talks)
    local conf = { engine = "vllm", workers = 4, blocks = 4000,
                   block_size = SIZE, max_tokens = 2048, max_requests = 64,
                   times = TIMES, routers = 1, event_delay = 0,
                   event_loss = 0, repair_delay = 1, restart_time = 20,
                   seed = 1, policy = { name = "kv_cost" },
                   max_prefill_tokens = 2000, max_active = 8, order = "fair",
                   quantum = 16384, weights = { 1 } }

    for key, value in pairs(options) do
        conf[key] = value
    end

    routers, passed, most = {}, 0, 0

    return assert(world.run(conf, talks, clock, function() end))
end


local function chats()
    local talks = assert(workload.draw("chat", 400, SIZE, 1))

    workload.spread(talks, 4, 4, TIMES, SIZE)

    for i, talk in ipairs(talks) do
        talk.tenant, talk.class, talk.group = i % 7 + 1, i % 2, "all"
    end

    return talks
end


for title, options in pairs {
    ["first come, first served"] = { order = "fifo" },
    ["strict"] = { order = "strict", weights = { 1, 1 } },
    ["fair"] = { weights = { 20, 1 } },
    ["fair, three routers"] = { weights = { 20, 1 }, routers = 3,
                                max_active = 6 },
    ["fair, restarts"] = { weights = { 20, 1 }, restart = 30 },
} do
    local told = run(options, chats())
    local left, n = 0, 0

    for it in pairs(routers) do
        n = n + 1
        left = left + it.queue.order:waiting()

        for _ in pairs(it.queue.waiting) do
            left = left + 1
        end

        for worker = 0, 3 do
            left = left + it.queued[worker] + it:active(worker)
        end
    end

    is(told.unfinished, 0, title .. ": nobody is lost")
    is(passed, 0, title .. ": no bound is passed but by one request")
    ok(most >= (options.max_active or 8) / n, title .. ": and all is used")
    is(left, 0, title .. ": when all are answered nothing is left")
end


-- ---- tenants ----------------------------------------------------------------

local function draw(what, seed)
    return tenants.draw(what, {
        workload = "rag", seconds = 60, load = 1, workers = 4, seed = seed,
        block_size = SIZE, times = TIMES, classes = 1,
    })
end

do
    local noisy, quiet = draw("noisy", 1), draw("quiet", 1)
    local work, same, late = { small = 0, greedy = 0 }, true, 0

    for i, talk in ipairs(noisy) do
        late = math.max(late, talk.at)
        work[talk.group] = work[talk.group] + 1

        if talk.group == "small" then
            same = same and quiet[i].at == talk.at
                   and quiet[i].own == talk.own
                   and quiet[i].turns[1].output == talk.turns[1].output
        end
    end

    ok(same and #quiet == work.small, "the nine alone are the same nine")
    ok(work.greedy > 25 * work.small, "which ask for a fiftieth together")
    ok(late < 60, "all in time")
    is(#draw("noisy", 1), #noisy, "the same seed, the same conversations")
    ok(draw("noisy", 2)[1].at ~= noisy[1].at, "another seed, others")
end

do
    local function groups(order)
        local told = run({ seconds = 60, order = order, max_active = 16 },
                         draw("noisy", 1))

        is(told.groups[1].name .. told.groups[2].name, "greedysmall",
           "the groups are told")

        return told.groups[2], told.jain
    end

    local fair, even = groups("fair")
    local first, uneven = groups("fifo")

    ok(fair.requests >= first.requests and first.requests > 50,
       "all that came are counted, served or not")
    ok(fair.wait_p90 < 0.1 * first.wait_p90, "small tenants do not wait for "
                                             .. "the greedy one")
    ok(fair.throughput > first.throughput, "and are served")
    ok(even > 0.95 and even > uneven, "which Jain's index tells: " .. even
                                      .. ", " .. uneven)
end


tap.done()
