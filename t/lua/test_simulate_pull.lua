-- kv-simulate's engines that pull, its bounds, and the router that looks ahead.


local host = require "resty.kv_router.tools.host"

local clock = { now = 0 }

host.install(function() end, function() return clock.now end)

local ceiling = require "resty.kv_router.tools.simulate.ceiling"
local figures = require "resty.kv_router.tools.simulate.figures"
local index = require "resty.kv_router.tools.simulate.index"
local look_ahead = require "resty.kv_router.tools.simulate.look_ahead"
local pulls = require "resty.kv_router.tools.simulate.pulls"
local tap = require "lib.tap"
local workload = require "resty.kv_router.tools.simulate.workload"
local world = require "resty.kv_router.tools.simulate.world"

local has, is, near, ok = tap.has, tap.is, tap.near, tap.ok

local BUILD = os.getenv("KVR_BUILD") or "build"
local SIZE = 16
local TIMES = { base = 4e-3, prefill = 3.5e-5, prefill_context = 1.5e-9,
                decode = 3e-5, decode_context = 4e-8 }

index.load((BUILD:sub(1, 1) == "/" and "" or "./") .. BUILD
           .. "/libkvr_simulate.so")


local function conf_of(options)
    local conf = { engine = "vllm", workers = 4, blocks = 12000,
                   block_size = SIZE, max_tokens = 2048, max_requests = 64,
                   times = TIMES, routers = 1, event_delay = 0.005,
                   event_loss = 0, repair_delay = 1, restart_time = 20,
                   seed = 1, policy = { name = "kv_cost" }, load = 0.8,
                   requests = 200, kind = "chat" }

    for key, value in pairs(options or {}) do
        conf[key] = value
    end

    return conf
end


-- The figures of a run, with its bounds.
local function run(options)
    local conf = conf_of(options)
    local talks = assert(workload.draw(conf.kind, conf.requests, SIZE,
                                       conf.seed))

    workload.spread(talks, conf.load, conf.workers, conf.times, SIZE)

    local told = assert(world.run(conf, talks, clock, function() end))
    local mean, p90 = ceiling.bounds(told.asked, conf)
    local found = figures.of(told)

    found.bound_mean, found.bound_p90 = mean, p90
    found.firsts = table.concat(told.ttfts, " ")

    return found
end


-- ---- bounds -----------------------------------------------------------------

-- Bounds of requests that share nothing: lists of { at, tokens }.
local function bounds(workers, asked)
    local list = {}

    for i, it in ipairs(asked) do
        list[i] = { at = it[1], prompt = it[2], turn = 1,
                    talk = { own = 1000 + i, parts = {},
                             turns = { { add = it[2], output = 1 } } } }
    end

    return ceiling.bounds(list, conf_of { workers = workers, times = {
        base = 1, prefill = 0.01, prefill_context = 0, decode = 0,
        decode_context = 0 } })
end

local mean, p90 = bounds(1, { { 0, 100 } })

near(mean, 1 + 1, 1e-9, "one request alone needs its prompt and a step")
near(p90, 2, 1e-9, "that is its bound")
near(bounds(1, { { 0, 300 }, { 0, 100 } }), (1 + 1 + 4 + 1) / 2, 1e-9,
     "of two at one engine the shorter one is first")
near(bounds(1, { { 0, 300 }, { 1, 100 } }),
     (2 - 1 + 1 + (0.5 + 2 * 3) / 3 + 1.5 + 1) / 2, 1e-9,
     "and puts off the longer one, of which the mean of its work counts")
near(bounds(2, { { 0, 100 }, { 0, 100 } }), 2, 1e-9,
     "two engines serve two, each as if it was alone")
near(bounds(1, { { 0, 4096 } }), 40.96 + 2, 1e-9,
     "a prompt of two steps has the fixed time of both")

for _, kind in ipairs(workload.KINDS) do
    for _, name in ipairs { "kv_cost", "round_robin", "prefix_hash" } do
        local told = run { kind = kind, policy = { name = name },
                           requests = 80, load = 2 }

        ok(told.bound_mean <= told.ttft_mean and told.bound_p90 <= told.ttft_p90
           and told.bound_mean > 0 and told.bound_p90 > 0,
           kind .. ", " .. name .. ": no run is better than its bounds")
    end
end


-- ---- look-ahead -------------------------------------------------------------

do
    local name = "resty.kv_router.tools.simulate.look_ahead"
    local plain = run { workers = 1, requests = 60 }
    local ahead = run { workers = 1, requests = 60, policy = { name = name } }

    is(ahead.firsts, plain.firsts, "copies of a run leave the run as it is")

    local turns = { kind = "rag", requests = 40, workers = 3,
                    policy = { name = "round_robin" } }
    local blind = run(turns)

    turns.policy = { name = name, conf = { requests = 4,
                                           next = "round_robin" } }

    local best = run(turns)

    is(best.faults, 0, "look-ahead: nothing fails")
    ok(best.ttft_mean < 0.9 * blind.ttft_mean,
       "who tries every worker is better than who takes each in turn")
    has(select(2, look_ahead.new { next = "nobody" }), 'unknown policy "nobody"',
        "a policy that is not there is told")
    has(select(2, look_ahead.new { requests = 0.5 }), "a whole number",
        "half a request is refused")
end


-- ---- engines that pull ------------------------------------------------------

do
    local conf = { block_size = SIZE, pull = { base = 1, token = 0.01 } }
    local names = {}

    for i = 0, 19 do
        names[i] = i + 1
    end

    -- a worker whose engine has so many blocks of the prompt
    local function worker(n)
        return { arriving = {}, engine = { cache = {
            match = function(_, _, limit) return math.min(n, limit) end } } }
    end

    local workers = { worker(20), worker(0), worker(0) }

    local function start(to, now, prompt)
        return (pulls.start(conf, workers, { names = names, source = 0,
                                             prompt = prompt or 330 },
                            workers[to + 1], now))
    end

    near(start(1, 100), 1 + 3.2, 1e-9, "20 blocks take 3.2 s, and a second")
    near(start(2, 100), 1 + 6.4, 1e-9, "another engine waits for its turn")
    near(start(1, 101), 3.2, 1e-9, "who finds them on their way waits for them")
    near(start(1, 101, 20), 5.4 + 0.16 + 1, 1e-9, "a shorter prompt pulls itself")
    is(start(0, 100), nil, "who has all pulls nothing")
    is(pulls.parse("30,4.5").token, 4.5e-6, "--pull has milliseconds")
    is(pulls.parse("30"), nil, "of both")
end

do
    local fork = { kind = "fork", requests = 88, load = 0.3,
                   policy = { name = "least_loaded" } }
    local alone = run(fork)

    fork.pull = { base = 26.3e-3, token = 4.25e-6 }

    local pulled = run(fork)

    is(alone.pulled, 0, "fork: by itself nothing is pulled")
    ok(pulled.pulled > 0.05, "engines that obey pull")
    ok(pulled.had > alone.had and pulled.ttft_mean < alone.ttft_mean / 2,
       "and need not compute what another one has")
    ok(pulled.pulled < pulled.had, "what came is counted once")

    fork.pull = { base = 1e3, token = 0 }
    is(run(fork).pulled, 0, "who computes faster does not pull")

    fork.pull, fork.engine = { base = 0, token = 1e-6 }, "sglang"
    ok(run(fork).pulled > 0.05, "an engine of SGLang's kind pulls, too")

    fork.policy = { name = "kv_cost", conf = {
        pull = { base_ms = 0, ms_per_1000_tokens = 1 } } }
    is(run(fork).faults, 0, "kv_cost counts what a pull costs")
end

tap.done()
