-- kv-simulate's routers that share their load: samples, news, homes, a run.


local host = require "resty.kv_router.tools.host"

local clock = { now = 0 }

host.install(function() end, function() return clock.now end)

local ffi = require "ffi"
local tap = require "lib.tap"
local group = require "resty.kv_router.tools.simulate.group"
local homes = require "resty.kv_router.tools.simulate.homes"
local index = require "resty.kv_router.tools.simulate.index"
local new_random = require "resty.kv_router.request.random".new
local workload = require "resty.kv_router.tools.simulate.workload"

local is, near, ok = tap.is, tap.near, tap.ok

local BUILD = os.getenv("KVR_BUILD") or "build"
local SIZE = 16
local WORKERS = 4

local path = (BUILD:sub(1, 1) == "/" and "" or "./") .. BUILD

index.load(path .. "/libkvr_simulate.so")


-- ---- samples ----------------------------------------------------------------

is(table.concat(group.samples(0, 3), " "), "", "less than 4 blocks: no sample")
is(table.concat(group.samples(0, 18), " "), "16 12 8 4",
   "multiples of 4, the deepest first")
is(table.concat(group.samples(9, 18), " "), "16 12", "of the uncached part")
is(table.concat(group.samples(0, 270), " ", 1, 4), "268 256 240 224",
   "evenly spaced, and the last multiple of 4")

do
    local most, missed = 0, 0

    for n = 1, 9000, 7 do
        for from = 0, n, 997 do
            most = math.max(most, #group.samples(from, n))
        end

        local looked = {}

        for _, depth in ipairs(group.lookups(n)) do
            looked[depth] = true
        end

        for _, depth in ipairs(group.samples(0, n)) do
            missed = missed + (looked[depth] and 0 or 1)
        end

        most = math.max(most, #group.lookups(n) - 96)
    end

    is(most, 33, "at most 32 and the last one are told, and 128 looked up")
    is(missed, 0, "what one prompt tells, the same prompt looks up")
end


-- ---- two members ------------------------------------------------------------

local planned                    -- the last thing that was planned, by act

-- A member, and its rows.
local function member(number, conf)
    local rows = group.rows(WORKERS)
    local self = group.new(number, {
        routers = 2, workers = WORKERS, share = 0.005,
        share_loss = conf and conf.loss or 0,
    }, function(worker, row)
        ffi.copy(row, rows[worker], ffi.sizeof(row))
    end, function(at, act) planned[act] = at end)

    return self, rows
end

local function pair(conf)
    planned = {}

    local a, rows = member(0, conf)

    return a, rows, member(1, conf)
end

-- A request of n blocks named 1, 2, ...
local function request(worker, n, tokens)
    local names = ffi.new("double[?]", n)

    for i = 0, n - 1 do
        names[i] = i + 1
    end

    return { worker = worker, names = names, prompt_blocks = n,
             prefill_tokens = tokens or n * SIZE }
end

-- Tells at the planned time, or not before a time.
local function told(from, at)
    return from:tell(at or planned.tell)
end

local function depth(of, n, worker, now)
    local depths = ffi.new("uint32_t[?]", WORKERS)

    of:raise(request(0, n).names, n, depths, now)

    return depths[worker]
end

do
    local a, rows, b = pair()
    local r = request(2, 50)

    rows[2].active, rows[2].prefills, rows[2].queued = 1, 1, 800
    rows[2].begun, rows[2].decode = 10, 50
    a:added(r, 0, 10)
    is(planned.tell, 10, "an add is told at once")

    b:hear(told(a), 10.005)

    local sums, any = b:load(10.01)

    ok(any and sums[2].active == 1 and sums[2].queued == 800
       and sums[2].begun == 10 and sums[2].decode == 50 and sums[1].active == 0,
       "the peer's row counts")
    is(depth(b, 50, 2, 10.01), 48, "a sample stands for all before it")
    is(depth(b, 37, 2, 10.01), 36, "also for a prompt that is shorter")
    is(depth(b, 80, 2, 10.01), 48, "and for one that is longer")
    is(depth(b, 50, 1, 10.01), 0, "at that worker alone")

    ok(select(2, b:load(10.149)), "news of 150 ms count")
    sums, any = b:load(10.151)
    ok(not any and sums[2].active == 0, "older ones do not")
    near(planned.tell, 10.05, 1e-9, "with load, it speaks again after 50 ms")

    -- one more of the same prompt, and its end
    local other = request(2, 50)

    a:added(other, 0, 10.2)
    b:hear(told(a), 10.205)
    a:ended(other, 10.3)
    b:hear(told(a), 10.305)
    is(depth(b, 50, 2, 10.31), 48, "what another request has, too, stays")
    rows[2].active = 0
    a:ended(r, 10.4)

    local last = told(a)

    b:hear(last, 10.405)
    is(depth(b, 50, 2, 10.41), 0, "an entry ends with its request")
    is(b:load(10.41)[2].active, 0, "zeros are told")
    is(next(b.flying), nil, "nothing is left")
    is(a.due, nil, "without load it says nothing")
end

do
    local a, _, b = pair()
    local r = request(1, 20)

    a:added(r, 0, 0)
    b:hear(told(a), 0)
    is(depth(b, 20, 1, 59.9), 20, "an end that is lost")
    is(depth(b, 20, 1, 60), 0, "ends after 60 s")

    a, _, b = pair()
    a:added(r, 0, 0)
    b:hear(told(a), 0)
    is(planned.renew, 30, "what runs for 30 s")
    a:renew(r.add, 30)
    b:hear(told(a), 30.05)
    is(depth(b, 20, 1, 80), 20, "is told again, and lives on")
    a:ended(r, 85)
    b:hear(told(a), 85)
    is(depth(b, 20, 1, 85), 0, "one end is enough for it")
    a:renew(r.add, 90)
    is(#a.adds, 0, "what is over is not told again")
end

do
    local a, rows, b = pair()
    local r = request(3, 20)

    a:added(r, 0, 0)
    b:hear(told(a), 0)
    rows[3].active = 7
    a:changed(3, 0.005)
    near(planned.tell, 0.02, 1e-9, "rows that change are told each 20 ms")
    told(a)                      -- is lost

    -- messages of router a are heard until then
    local function heard(till)
        while a.due <= till do
            b:hear(told(a, a.due), a.last)
        end

        return b:load(till)[3].active
    end

    is(heard(0.5), 0, "what was lost is not known")
    is(heard(0.6), 7, "until the row is told again after 500 ms")

    rows[3].active = 0
    a:changed(3, 0.6)
    told(a)                      -- is lost
    is(heard(1.5), 7, "a zero is not told again")
    is(heard(3.1), 0, "a row that is not told for 1.5 s is 0")
end

do
    local _, _, b = pair { loss = 0.2 }
    local random, lost, runs, last = new_random(3), 0, 0, false

    for _ = 1, 50000 do
        local is_lost = b:loses(0, random)

        lost = lost + (is_lost and 1 or 0)
        runs = runs + (is_lost and not last and 1 or 0)
        last = is_lost
    end

    near(lost / 50000, 0.2, 0.03, "a fifth of the messages is lost")
    near(lost / runs, 20, 3, "in runs of 20")
end


-- ---- shares and homes -------------------------------------------------------

is(homes.share(50, 100, 0), 8, "a half is eight sixteenths")
is(homes.share(54, 100, 8), 8, "a share that is off by less than 3/4 stays")
is(homes.share(55, 100, 8), 9, "by more, it changes")
is(homes.share(54, 100, 9), 9, "and does not go back at once")
is(homes.share(2, 100, 0), 1, "a small one is a sixteenth")
is(homes.share(1, 100, 1), 1, "down to 1 %")
is(homes.share(0.9, 100, 1), 0, "and none below")
is(homes.share(1.9, 100, 0), 0, "it comes back at 2 %")
is(homes.share(0, 0, 5), 5, "while nobody asks, shares stay")

-- The routers' own rule, in C.
do
    ffi.cdef "uint32_t kvr_homes_share(uint64_t, uint64_t, uint32_t);"

    local kvr = ffi.load(path .. "/libkvr.so")
    local differ = 0

    for _, all in ipairs { 1, 7, 16, 100, 333, 1000, 1600, 6400 } do
        for tokens = 0, all do
            for last = 0, 16 do
                if homes.share(tokens, all, last)
                   ~= kvr.kvr_homes_share(tokens, all, last)
                then
                    differ = differ + 1
                end
            end
        end
    end

    is(differ, 0, "routers and kv-simulate have the same shares")
end

-- The home of each of 512 workers, by the views of all routers.
local function all_homes(shares, routers)
    local found, foreign = {}, ffi.new("uint8_t[?]", 512)
    local known = {}

    for i = 0, routers - 1 do
        known[i] = shares[i + 1]
    end

    for me = 0, routers - 1 do
        homes.assign(known, routers, me, 512, foreign)

        for worker = 0, 511 do
            if foreign[worker] == 0 then
                found[worker] = (found[worker] and "two " or "") .. me
            end
        end
    end

    return found
end

-- How many workers have other homes, and how many of those new ones are `of`.
local function moved(one, other, of)
    local n, to = 0, 0

    for worker = 0, 511 do
        if one[worker] ~= other[worker] then
            n = n + 1
            to = to + (other[worker] == of and 1 or 0)
        end
    end

    return n, to
end

do
    local equal = all_homes({ 4, 4, 4, 4 }, 4)
    local count = { ["0"] = 0, ["1"] = 0, ["2"] = 0, ["3"] = 0 }

    for worker = 0, 511 do
        count[equal[worker] or "none"] = (count[equal[worker] or "none"] or 0)
                                         + 1
    end

    is(count["0"] + count["1"] + count["2"] + count["3"], 512,
       "each worker is the home worker of one router")
    near(count["0"], 128, 30, "equal shares are equal parts")

    local grown = all_homes({ 4, 4, 4, 8 }, 4)
    local n, to = moved(equal, grown, "3")

    ok(n > 0 and n == to, "a share that grows takes workers, no other moves")

    local gone = all_homes({ 0, 4, 4, 4 }, 4)

    is((moved(equal, gone)), count["0"], "a router that goes leaves its own")
    is((moved(gone, all_homes({ 0, 4, 4, 4, 0 }, 5))), 0,
       "one without a share changes nothing")
    is((moved(equal, all_homes({ 4, 4, 4, 4 }, 4))), 0,
       "and when it is back it has the same again")
end


-- ---- a run ------------------------------------------------------------------

local simulated = require "resty.kv_router.tools.simulate.router"

local routers = {}               -- of the present run
local new = simulated.new

simulated.new = function(...)
    routers[#routers + 1] = new(...)

    return routers[#routers]
end

local world = require "resty.kv_router.tools.simulate.world"

local function run(options)
    local conf = { engine = "vllm", workers = 4, blocks = 600,
                   block_size = SIZE, max_tokens = 2048, max_requests = 64,
                   times = { base = 4e-3, prefill = 3.5e-5,
                             prefill_context = 1.5e-9, decode = 3e-5,
                             decode_context = 4e-8 },
                   routers = 4, event_delay = 0.2, event_loss = 0,
                   repair_delay = 1, restart_time = 20, seed = 1,
                   share_loss = 0,
                   policy = { name = "kv_cost", conf = { home = 0.3 } } }

    for key, value in pairs(options or {}) do
        conf[key] = value
    end

    local talks = assert(workload.draw("burst", 480, SIZE, conf.seed))

    workload.spread(talks, 0.8, conf.workers, conf.times, SIZE)

    routers = {}

    local ran = assert(world.run(conf, talks, clock, function() end))

    is(ran.unfinished + ran.faults, 0, "every request ends")

    return ran
end

local function crc(ran)
    local list = {}

    for i, ttft in ipairs(ran.ttfts) do
        list[i] = ("%.17g"):format(ttft)
    end

    return ngx.crc32_long(table.concat(list, " "))
end

local usual = run()
local shared = run { share = 0.005 }

do
    local left = 0

    for _, router in ipairs(routers) do
        for worker = 0, 3 do
            local c = router.candidates[worker]
            local row = router.group:load(1e9)[worker]

            left = left + c.active_requests + c.active_prefills
                   + c.decode_blocks + row.active
            left = left + #router.group.adds + router.group.open
        end

        for _, at in pairs(router.group.flying) do
            left = left + (next(at) and 1 or 0)
        end
    end

    is(#routers, 4, "four routers have run")
    is(left, 0, "when all is quiet every count of every router is 0")
end

is(crc(usual), 3752351226,
   "without sharing a seed gives what it gave before there was sharing")
ok(shared.had > usual.had, "routers that share find more")
is(crc(shared), crc(run { share = 0.005 }), "and a seed is a run")
ok(crc(run { share = 0.005, share_loss = 0.3 }) ~= crc(shared),
   "messages that are lost make a difference")
run { share = 0.005, router_restart = 3 }
run { share = 0.005, router_shares = { 80, 20, 0, 0 } }
is(crc(run { share = 0.005, router_shares = { 0, 0, 0, 1 } }),
   crc(run { share = 0.2, router_shares = { 0, 0, 0, 1 } }),
   "where one router has all requests, nothing is heard")

tap.done()
