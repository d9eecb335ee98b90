-- kv-simulate's parts: caches, engine, index, a whole run.


local host = require "resty.kv_router.tools.host"

local clock = { now = 0 }

host.install(function() end, function() return clock.now end)

local ffi = require "ffi"
local tap = require "lib.tap"
local ceiling = require "resty.kv_router.tools.simulate.ceiling"
local dots = require "bench.dots"
local figures = require "resty.kv_router.tools.simulate.figures"
local index = require "resty.kv_router.tools.simulate.index"
local new_engine = require "resty.kv_router.tools.simulate.engine".new
local new_random = require "resty.kv_router.request.random".new
local new_stream = require "resty.kv_router.tools.simulate.stream".new
local sensitivity = require "resty.kv_router.tools.simulate.sensitivity"
local sglang = require "resty.kv_router.tools.simulate.sglang_cache"
local vllm = require "resty.kv_router.tools.simulate.vllm_cache"
local workload = require "resty.kv_router.tools.simulate.workload"

local is, near, ok = tap.is, tap.near, tap.ok

local BUILD = os.getenv("KVR_BUILD") or "build"
local SIZE = 16

index.load((BUILD:sub(1, 1) == "/" and "" or "./") .. BUILD
           .. "/libkvr_simulate.so")


-- ---- the header -------------------------------------------------------------

local function plain(name)
    local file = assert(io.open(name))
    local text = file:read("*a"):gsub("/%*.-%*/", ""):gsub("%s+", " ")

    file:close()

    return text
end

local declared = plain("lua/resty/kv_router/tools/simulate/index.lua")
local found = 0

for prototype in plain("simulate/kvr_simulate.h")
                 :gmatch("[%w_ ]+%*?kvr_simulate_[%w_]+%b();")
do
    found = found + 1
    ok(declared:find(prototype:match("^%s*(.*)$"), 1, true),
       prototype:match("kvr_simulate_[%w_]+%f[(]") .. "() is declared as in the header")
end

is(found, 24, "every function of the header was found")


-- ---- caches -----------------------------------------------------------------

-- A request for blocks with these names.
local function request(...)
    local names = ffi.new("double[?]", select("#", ...) + 8, ...)

    return { names = names, blocks = ffi.new("int32_t[?]", 64),
             n = select("#", ...), locals = names }
end

local function compute(cache, r)
    local k = cache:match(r, r.n)

    cache:acquire(r, k)

    if not cache:grow(r, r.n) then
        cache:release(r)
        return nil
    end

    cache:commit(r, r.n)

    return k
end

for name, module in pairs { vllm = vllm, sglang = sglang } do
    local held, gone = {}, {}
    local cache = module.new(6, function(r, from, n)
        for i = from, n - 1 do
            held[#held + 1] = r.names[i]
        end
    end, function(block)
        gone[#gone + 1] = block
    end)

    local a = request(1, 2, 3)

    is(compute(cache, a), 0, name .. ": nothing is cached")
    is(table.concat(held, " "), "1 2 3", name .. ": its blocks are stored")
    is(cache:match(request(1, 2, 9), 3), 2, name .. ": a beginning is found")
    cache:release(a)
    is(cache:match(request(1, 2, 3), 2), 2, name .. ": up to the limit")

    local b = request(1, 2, 4)

    is(compute(cache, b), 2, name .. ": what is shared is not computed")
    is(compute(cache, request(5, 6, 7, 8, 9)), nil,
       name .. ": there is no room for five blocks")
    is(#gone, 0, name .. ": nothing is evicted for a request without room")

    local c = request(5, 6, 7)

    is(compute(cache, c), 0, name .. ": there is room for three")
    is(table.concat(gone, " "), "3", name .. ": the unused tail is evicted")
    cache:release(b)
    cache:release(c)

    is(compute(cache, request(20, 21, 22, 23, 24, 25)), 0,
       name .. ": a prompt of the cache's size")
    table.sort(gone)
    is(table.concat(gone, " "), "1 2 3 4 5 6 7", name .. ": evicts the others")
end

-- a naive list of what is there, under random work
for name, module in pairs { vllm = vllm, sglang = sglang } do
    local draw = new_random(7)
    local there, wrong, running = {}, 0, {}
    local cache = module.new(40, function(r, from, n)
        for i = from, n - 1 do
            wrong = wrong + (there[r.names[i]] and 1 or 0)
            there[r.names[i]] = true
        end
    end, function(block)
        wrong = wrong + (there[block] and 0 or 1)
        there[block] = nil
    end)

    for step = 1, 20000 do
        if #running > 3 or draw() < 0.4 and #running > 0 then
            cache:release(table.remove(running, 1 + math.floor(
                                                    draw() * #running)))

        else
            local n = 1 + math.floor(draw() * 9)
            local names, chain = {}, 0

            for i = 1, n do
                chain = chain * 3 + 1 + math.floor(draw() * 2)
                names[i] = chain
            end

            local r = request(unpack(names))
            local k = 0

            while k < n and there[names[k + 1]] do
                k = k + 1
            end

            wrong = wrong + (cache:match(r, n) == k and 0 or 1)

            if compute(cache, r) then
                running[#running + 1] = r
            end

            for _, one in ipairs(running) do
                for i = 0, one.n - 1 do
                    wrong = wrong + (there[one.names[i]] and 0 or 1)
                end
            end
        end

        if step == 20000 then
            is(wrong, 0, name .. ": it has what it told, and what is in use "
                         .. "is never evicted")
        end
    end

    while #running > 0 do
        cache:release(table.remove(running))
    end

    local n = 0

    for _ in pairs(there) do
        n = n + 1
    end

    ok(name == "vllm" and cache.free == 40 or cache.free + n == 40,
       name .. ": no block is lost")
end

-- vLLM's blocks that are not whole
do
    local gone = {}
    local cache = vllm.new(6, function() end, function(block)
        gone[#gone + 1] = block
    end)
    local whole, part = request(1, 2, 3), request(4, 5, 6)

    compute(cache, whole)
    cache:acquire(part, 0)
    cache:grow(part, 3)
    cache:commit(part, 2)
    cache:release(whole)
    cache:release(part)
    compute(cache, request(7))
    is(#gone, 0, "vllm: a block that is not whole is taken first")
    compute(cache, request(8))
    is(table.concat(gone, " "), "3", "vllm: and then the oldest tail")
end


-- ---- the engine -------------------------------------------------------------

local TIMES = { base = 1, prefill = 0.01, prefill_context = 0.0001,
                decode = 0.1, decode_context = 0.001 }

local function engine(blocks, max_tokens)
    return new_engine({ block_size = SIZE, max_tokens = max_tokens,
                        max_requests = 8, times = TIMES },
                      vllm.new(blocks, function() end, function() end))
end

local function asked(first, prompt, output)
    local r = { prompt = prompt, output = output, firsts = 0, ends = 0,
                blocks = ffi.new("int32_t[?]", 64),
                names = ffi.new("double[?]", 64) }

    for i = 0, 63 do
        r.names[i] = first + i
    end

    r.on_first = function() r.firsts = r.firsts + 1 end
    r.on_block = function() end
    r.on_done = function() r.ends = r.ends + 1 end

    return r
end

local e = engine(64, 100)
local r = asked(1000, 150, 3)

e:submit(r)
near(e:step(), 1 + 0.01 * 100, 1e-9, "a step has max_tokens tokens")
e:finish(0)
near(e:step(), 1 + 0.01 * 50 + 0.0001 * 50 * 100, 1e-9,
     "the rest of a prompt has the first part as context")
e:finish(0)
is(r.firsts, 1, "the end of the prompt gives the first token")
near(e:step(), 1 + 0.1 + 0.001 * 150, 1e-9, "then it decodes")
e:finish(0)
e:step()
e:finish(0)
is(r.ends, 1, "and ends with its last token")
is(e:step(), nil, "nothing is left to be computed")

r = asked(1000, 150, 1)
e:submit(r)
near(e:step(), 1 + 0.01 * 6 + 0.0001 * 6 * 144, 1e-9,
     "what is cached is not computed again, but for the last token's block")
e:finish(0)
is(r.hit, 144, "and is told")

e = engine(9, 1000)

local first, second = asked(1, 60, 20), asked(1000, 60, 20)

e:submit(first)
e:submit(second)

for _ = 1, 200 do
    if not e:step() then
        break
    end

    e:finish(0)
end

ok(e.preempted > 0, "without blocks the last one is preempted")
is(first.ends + second.ends, 2, "and ends, too")
is(first.firsts + second.firsts, 2, "with one first token each")


do
    local busy = engine(9, 100)

    first, second = asked(1, 60, 20), asked(1000, 120, 20)
    busy:submit(first)
    busy:submit(second)
    busy:step()
    is(#busy:requests(), 2, "an engine tells the requests that have not ended")
    ok(busy:requests()[1] == first, "those that run come first")
end


-- ---- a stream of messages ---------------------------------------------------

do
    local planned, applied, trusted = {}, {}, {}
    local draws = { 1, 0, 1, 1, 0, 1 }
    local stream = new_stream({
        delay = 2, loss = 0.5, repair = 10,
        random = function() return table.remove(draws, 1) end,
    }, function(at, act, what)
        planned[#planned + 1] = { at = at, act = act, what = what }
    end, function(message)
        applied[#applied + 1] = message
    end, function(exact)
        trusted[#trusted + 1] = tostring(exact)
    end)

    local function come(i)
        stream:deliver(planned[i].what, planned[i].at)
    end

    for number = 1, 4 do
        stream:send("m" .. number, 100 + number)
    end

    is(planned[1].at, 103, "a message takes its time")
    is(planned[2].at, 105, "a heartbeat comes later than the lost message")
    is(stream.lost, 1, "one message was lost")
    come(1)
    is(table.concat(applied, " "), "m1", "a message is applied when it comes")
    come(3)
    is(table.concat(trusted, " "), "false", "a gap: the view is not exact")
    come(2)
    come(4)
    is(#applied, 1, "messages wait for the repair")
    is(#planned, 5, "there is one repair")
    is(planned[5].at, 115, "which takes its time")
    stream:repair()
    is(table.concat(applied, " "), "m1 m2 m3 m4",
       "the repair applies all, in their order")
    is(table.concat(trusted, " "), "false true", "and the view is exact")
    stream:send("m5", 120)
    come(6)
    is(table.concat(trusted, " "), "false true false",
       "a heartbeat shows the loss of the last message")
    stream:repair()
    is(applied[5], "m5", "which the repair finds")
    stream:send("m6", 140)
    come(8)
    is(applied[6], "m6", "and the stream goes on")
end


-- ---- a whole run ------------------------------------------------------------

-- the engines' caches, and what the index says of them when a policy is asked
local caches = {}

for _, module in pairs { vllm, sglang } do
    local new = module.new

    module.new = function(...)
        local cache = new(...)

        caches[#caches + 1] = cache

        return cache
    end
end

local world = require "resty.kv_router.tools.simulate.world"
local least = require "resty.kv_router.policy.least_loaded"

local function run(options)
    local conf = { engine = "vllm", workers = 4, blocks = 600,
                   block_size = SIZE, max_tokens = 2048, max_requests = 64,
                   times = { base = 4e-3, prefill = 3.5e-5,
                             prefill_context = 1.5e-9, decode = 3e-5,
                             decode_context = 4e-8 },
                   routers = 1, event_delay = 0, event_loss = 0,
                   repair_delay = 1, restart_time = 20, seed = 1,
                   policy = { name = "kv_cost" } }

    for key, value in pairs(options or {}) do
        conf[key] = value
    end

    local talks = assert(workload.draw(conf.kind or "chat",
                                       conf.requests or 400, SIZE, conf.seed))

    workload.spread(talks, 0.8, conf.workers, conf.times, SIZE)

    caches = {}

    return assert(world.run(conf, talks, clock, function() end)), talks
end

for _, kind in ipairs { "vllm", "sglang" } do
    local compared, wrong = 0, 0
    local asked_for = setmetatable({}, { __mode = "k" })
    local policy = {
        name = "watching",
        pick = function(_, ctx)
            for i = 1, #ctx.candidates do
                local c = ctx.candidates[i]
                local names = ffi.new("double[?]", ctx.prompt_blocks + 1)

                index.names(ctx.hashes, 0, ctx.prompt_blocks, names)
                compared = compared + 1

                if caches[i]:match({ names = names }, ctx.prompt_blocks)
                   ~= c.device
                then
                    wrong = wrong + 1
                end
            end

            asked_for[ctx] = true

            return least.pick(least, ctx)
        end,
    }
    local told = run { engine = kind, policy = { name = policy } }

    ok(compared > 1000, kind .. ": the index was compared with the engines")
    is(told.faults, 0, kind .. ": by a policy that works")

    -- events come with the end of a step: what a step in between has evicted
    -- or begun is not told yet
    ok(wrong < compared / 100, kind .. ": without a delay it is as the "
                               .. "engines are: " .. wrong .. " of "
                               .. compared .. " differ")
end

local one, talks = run()
local again = run()
local ideal, capacity = ceiling.of(talks, 4 * 600, SIZE)

ok(one.requests >= 400 and one.unfinished == 0, "every request ends")
is(table.concat(one.ttfts, " "), table.concat(again.ttfts, " "),
   "the same seed gives the same run")
ok(ideal >= capacity and capacity > 0, "the ladder: ideal, capacity")
ok(one.best >= one.predicted and one.best <= ideal + 1e-9,
   "the best worker has no more than is possible")
near(one.had, one.predicted, 0.05, "what was told is there")
ok(run({ policy = { name = "round_robin" } }).had < one.had,
   "round_robin finds less")

local late = run { event_delay = 5 }

ok(late.had < one.had, "events that are late cost hits")
ok(run({ routers = 4 }).requests >= 400, "four routers share the work")

local lossy = run { event_loss = 0.5, repair_delay = 30 }

ok(lossy.lost > 0 and one.lost == 0, "messages get lost: " .. lossy.lost)
ok(lossy.had < one.had, "messages that get lost cost hits")
is(lossy.unfinished, 0, "and every request ends")

do
    local fastest, queued, waiting = 0, 0, 0
    local policy = {
        name = "watching",
        pick = function(_, ctx)
            for i = 1, #ctx.candidates do
                local c = ctx.candidates[i]

                fastest = math.max(fastest, c.prefill_tps)
                queued = queued + (c.prefill_tokens > 0 and 1 or 0)
                waiting = waiting + (c.active_prefills > 0 and 1 or 0)
            end

            return least.pick(least, ctx)
        end,
    }
    local told = run { policy = { name = policy }, requests = 1000 }

    is(told.faults, 0, "speeds: the policy works")
    near(fastest, 1 / 3.5e-5, 0.5 / 3.5e-5,
         "the router measures how fast engines prefill")
    ok(waiting >= queued and queued > 0, "prompts wait to be prefilled")
end

do
    local fewest, unsure = 4, 0
    local policy = {
        name = "watching",
        pick = function(_, ctx)
            fewest = math.min(fewest, #ctx.candidates)

            for i = 1, #ctx.candidates do
                if ctx.candidates[i].confidence == "SYNCING" then
                    unsure = unsure + 1
                end
            end

            return least.pick(least, ctx)
        end,
    }
    local options = { restart = 60, event_delay = 0.1, event_loss = 0.1,
                      routers = 2, policy = { name = policy } }
    local told = run(options)

    is(told.faults, 0, "restarts: the policy works")
    ok(told.restarts > 0 and told.failed > 0, "engines restart ("
       .. told.restarts .. ") and fail requests (" .. told.failed .. ")")
    is(told.unfinished, 0, "every request that failed ends after all")
    is(#told.ttfts, told.requests, "with one time to first token")
    ok(fewest >= 1 and fewest < 4, "an engine that is away is no candidate")
    ok(unsure > 0, "a view with a gap is SYNCING")
    is(told.failed, run(options).failed, "the same seed, the same restarts")

    local restarted = run { restart = 60 }

    ok(restarted.had < one.had, "an engine that restarts has lost its cache")
    near(restarted.had, restarted.predicted, 0.05,
         "and its view is emptied with it")
end

for _, kind in ipairs(workload.KINDS) do
    local told = run { kind = kind, blocks = 20000, requests = 60 }

    is(told.unfinished + told.refused, 0, kind .. ": every request ends")
end

is(select(2, workload.draw("tea", 1, SIZE, 1)),
   'there is no workload "tea"; there are: '
   .. table.concat(workload.KINDS, ", "), "an unknown workload is told")


-- ---- figures ----------------------------------------------------------------

local mean, half = figures.mean { 1, 2, 3 }

is(mean, 2, "the mean")
near(half, 4.30 / math.sqrt(3), 1e-9, "and the half of its 95 % interval")
is(figures.percentile({ 1, 2, 3, 4 }, 50), 2, "a percentile is one of the list")
is(figures.percentile({ 1, 2, 3, 4 }, 99), 4, "the largest one at the end")



-- ---- plots ------------------------------------------------------------------

do
    local drawn = dots("a < b", {
        { "chat", { { "kv_cost", 2, 1, 4 }, { "p2c", 8, 8, 16 } } } })
    local xs, bounds, ticks = {}, {}, {}

    for x in drawn:gmatch('<circle cx="([%d.]+)"') do
        xs[#xs + 1] = tonumber(x)
    end

    for from, to in drawn:gmatch('<line x1="([%d.]+)" x2="([%d.]+)"[^>]*'
                                 .. 'stroke%-width')
    do
        bounds[#bounds + 1] = to - from
    end

    for tick in drawn:gmatch('middle">(%d+)<') do
        ticks[#ticks + 1] = tick
    end

    is(#xs, 2, "a dot for each policy")
    near((xs[2] - xs[1]) / (bounds[1] / 2), 2, 1e-2,
         "the axis is logarithmic: from 2 to 8 is as far as from 1 to 4")
    near(bounds[1] / bounds[2], 2, 1e-2, "and so are the bounds")
    is(table.concat(ticks, " "), "1 2 5 10", "with ticks between the bounds")
    ok(drawn:find("a &lt; b", 1, true), "a title is text")
end


-- ---- sensitivity ------------------------------------------------------------

do
    local times = { base = 1, decode = 2, decode_context = 4 }
    local variants = sensitivity.variants(times)
    local told = {}

    for i, it in ipairs(variants) do
        told[i] = it.times.decode .. " " .. it.times.decode_context .. " "
                  .. it.times.base
    end

    is(table.concat(told, ", "), "1 2 1, 1 8 1, 4 2 1, 4 8 1",
       "both times are halved and doubled, and no other one")
    is(times.decode, 2, "the assumed times stay")

    -- TTFT p90 of two seeds, for each policy
    local function runs(...)
        local list = {}

        for i, pair in ipairs { ... } do
            list[i] = { { ttft_p90 = pair[1] }, { ttft_p90 = pair[2] } }
        end

        return list
    end

    local usual = runs({ 2, 2 }, { 1, 1.01 }, { 3, 0.8 }, { 8, 8 })
    local drawn, compared = sensitivity.conclusions {
        usual, usual, runs({ 2, 2 }, { 2.1, 2.1 }, { 3, 3 }, { 8, 8 }),
        runs({ 2, 2 }, { 1, 1 }, { 3, 3 }, { 9, 2 }), usual,
    }
    local texts = {}

    for i, it in ipairs(drawn) do
        texts[i] = it.lower .. "<" .. it.higher .. " " .. it.verdict
    end

    is(compared, 6, "all pairs of policies are compared")
    is(table.concat(texts, ", "),
       "2<1 changes, 1<4 is open, 2<4 is open",
       "an interval that has 1 in it is no conclusion, or an open one; an "
       .. "order that turns changes")
    near(drawn[2].ratio, 0.25, 1e-9, "the ratio is told")

    drawn = sensitivity.conclusions { usual, usual, usual, usual, usual }
    is(drawn[1].verdict, "holds", "what is always so holds")
end

tap.done()
