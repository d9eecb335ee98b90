-- Copyright (C) the nginx-kv-router authors
--
-- The program behind the command kv-simulate, which tells its options:
--
--     luajit simulate.lua LIBRARY [OPTION...]
--
-- Exit status: 0, 1 when a run failed, 2 when it was called in a wrong way.


local host = require "resty.kv_router.tools.host"

local clock = { now = 0 }        -- the virtual time of the present run

host.install(function(_, ...)
    io.stderr:write("  ", host.line(...), "\n")
end, function() return clock.now end)

local ceiling = require "resty.kv_router.tools.simulate.ceiling"
local compare = require "resty.kv_router.tools.simulate.compare".run
local figures = require "resty.kv_router.tools.simulate.figures"
local index = require "resty.kv_router.tools.simulate.index"
local json = require "cjson"
local plot = require "resty.kv_router.tools.simulate.plot"
local prompts = require "resty.kv_router.tools.simulate.prompts"
local pulls = require "resty.kv_router.tools.simulate.pulls"
local sensitivity = require "resty.kv_router.tools.simulate.sensitivity"
local sessions = require "resty.kv_router.tools.simulate.sessions"
local tenants = require "resty.kv_router.tools.simulate.tenants"
local workload = require "resty.kv_router.tools.simulate.workload"
local world = require "resty.kv_router.tools.simulate.world"

local ceil = math.ceil
local floor = math.floor
local format = string.format
local max = math.max
local milliseconds = figures.milliseconds
local percent = figures.percent


local function fail(status, ...)
    io.stderr:write("kv-simulate: ", format(...), "\n")
    os.exit(status)
end


-- ---- options ----------------------------------------------------------------

-- Seconds.  An engine with an 8B model on one large
-- accelerator, by orders of magnitude: see --times.
local TIMES = { base = 4e-3, prefill = 3.5e-5, prefill_context = 1.5e-9,
                decode = 3e-5, decode_context = 4e-8 }

local NUMBERS = {
    workers = { default = 8, least = 1, most = 1024, whole = true },
    blocks = { default = 24000, least = 8, most = 2^24, whole = true },
    ["block-size"] = { default = 16, least = 1, most = 4096, whole = true },
    ["max-tokens"] = { default = 8192, least = 1, most = 2^24, whole = true },
    ["max-requests"] = { default = 256, least = 1, most = 2^16, whole = true },
    routers = { default = 1, least = 1, most = 64, whole = true },
    ["event-delay"] = { default = 5, least = 0, most = 60000 },
    ["event-loss"] = { default = 0, least = 0, most = 1 },
    ["repair-delay"] = { default = 1000, least = 0, most = 600000 },
    restart = { least = 1, most = 1e7 },
    ["restart-time"] = { default = 60, least = 0, most = 1e5 },
    load = { default = 0.7, least = 0.01, most = 10 },
    system = { default = 0, least = 0, most = 1e6, whole = true },
    requests = { default = 5000, least = 1, most = 1e7, whole = true },
    ["tokens-per-id"] = { default = 512, least = 1, most = 2^16,
                          whole = true },
    seeds = { default = 3, least = 1, most = 1000, whole = true },
    ["first-seed"] = { default = 1, least = 1, most = 1e6, whole = true },
    cache = { least = 1, most = 10000 },
    share = { least = 0, most = 60000 },
    ["share-loss"] = { least = 0, most = 0.9 },
    ["router-restart"] = { least = 1, most = 1e5 },
    ["router-shares"] = { least = 0, most = 1e6, whole = true },
    ["max-prefill-tokens"] = { least = 1, most = 1e9, whole = true },
    ["max-active"] = { least = 1, most = 1e6, whole = true },
    quantum = { default = 16384, least = 0, most = 1e9, whole = true },
    tenants = { least = 1, most = 200, whole = true },
    classes = { least = 0.001, most = 1e6 },
    seconds = { default = 300, least = 1, most = 1e6 },
}

local ORDERS = { fair = true, fifo = true, strict = true }


local function number(name, text)
    local rule, value = NUMBERS[name], tonumber(text)

    if not value or value < rule.least or value > rule.most
       or rule.whole and value % 1 ~= 0
    then
        fail(2, "--%s must be a %snumber from %s to %s, not \"%s\"", name,
             rule.whole and "whole " or "", rule.least, rule.most, text)
    end

    return value
end


-- policies that nginx does not have
local OURS = { look_ahead = "resty.kv_router.tools.simulate.look_ahead" }


-- NAME or NAME={ Lua table }
local function policy_of(text)
    local name, conf = text:match("^([^=]+)=(.*)$")

    if not name then
        return { title = text, name = OURS[text] or text }
    end

    local chunk, err = loadstring("return " .. conf, "=" .. name)

    if not chunk then
        fail(2, "--policy %s: the settings are no Lua table: %s", name, err)
    end

    local ok, found = pcall(setfenv(chunk, { math = math }))

    if not ok or type(found) ~= "table" then
        fail(2, "--policy %s: the settings are no Lua table", name)
    end

    return { title = name .. " " .. conf, name = OURS[name] or name,
             conf = found }
end


-- NAME=SECONDS,...
local function times_of(text)
    local times = {}

    for name, value in pairs(TIMES) do
        times[name] = value
    end

    for name, value in text:gmatch("([^=,]+)=([^=,]+)") do
        if not TIMES[name] or not tonumber(value) then
            fail(2, "--times: \"%s=%s\" is none of base, prefill, "
                    .. "prefill_context, decode, decode_context, with a number "
                    .. "of seconds", name, value)
        end

        times[name] = tonumber(value)
    end

    return times
end


-- NUMBER,NUMBER,...
local function shares_of(text)
    local shares, all = {}, 0

    for part in text:gmatch("[^,]+") do
        shares[#shares + 1] = number("router-shares", part)
        all = all + shares[#shares]
    end

    if all == 0 then
        fail(2, "--router-shares: one router must get requests")
    end

    return shares
end


-- NAME=WEIGHT,...
local function classes_of(text)
    local weights, names = {}, {}

    for name, weight in text:gmatch("([^=,]+)=([^=,]+)") do
        names[#names + 1] = name
        weights[#names] = number("classes", weight)
    end

    if #names == 0 or #names > 8 then
        fail(2, "--classes: \"%s\" is no list of 1 to 8 NAME=WEIGHT", text)
    end

    return { names = names, weights = weights }
end


-- Options that need others.
local function check_queues(found)
    local bound = found["max-prefill-tokens"] or found["max-active"]

    if not bound and (found.classes or found.order) then
        fail(2, "--classes and --order need --max-prefill-tokens or "
                .. "--max-active: without a bound nobody waits")
    end

    if found.tenants and (found.trace or found.cache) then
        fail(2, "--tenants draws a workload for --blocks: leave --trace and "
                .. "--cache out")
    end

    found.order = found.order or "fair"

    -- without classes the small tenants are of one, and the greedy one of
    -- another
    found.weights = found.classes and found.classes.weights
                    or found.order == "strict" and { 1, 1 } or { 1 }
end


local function check_routers(found)
    local shares, routers = found["router-shares"], found.routers

    if shares and #shares ~= routers then
        fail(2, "--router-shares must have a number for each of the %d "
                .. "--routers, not %d", routers, #shares)
    end

    if found["router-restart"] and (shares or routers == 1) then
        fail(2, "--router-restart needs at least 2 --routers, and no "
                .. "--router-shares")
    end

    if not found.share and found["share-loss"] then
        fail(2, "--share-loss needs --share")
    end
end


local function options_of(args)
    local found = { policies = {}, times = TIMES, engine = "vllm",
                    workload = "chat", compare = {} }

    for name, rule in pairs(NUMBERS) do
        found[name] = rule.default
    end

    local i = 1

    while i <= #args do
        local name, value = args[i]:match("^%-%-(.+)$"), args[i + 1]

        if #found.compare > 0 and not name then
            found.compare[#found.compare + 1] = args[i]
            i = i - 1

        elseif not name then
            fail(2, "\"%s\" is no option, see --help", args[i])

        elseif name == "sensitivity" or name == "bound" then
            found[name] = true
            i = i - 1

        elseif not value then
            fail(2, "--%s needs a value, see --help", name)

        elseif name == "router-shares" then
            found[name] = shares_of(value)

        elseif name == "classes" then
            found[name] = classes_of(value)

        elseif name == "tenants" then
            found[name] = (value == "noisy" or value == "quiet") and value
                          or number(name, value)

        elseif name == "order" then
            if not ORDERS[value] then
                fail(2, "--order must be fair, fifo or strict, not \"%s\"",
                     value)
            end

            found[name] = value

        elseif NUMBERS[name] then
            found[name] = number(name, value)

        elseif name == "policy" then
            found.policies[#found.policies + 1] = policy_of(value)

        elseif name == "times" then
            found.times = times_of(value)

        elseif name == "pull" then
            found.pull = pulls.parse(value)

            if not found.pull then
                fail(2, "--pull: \"%s\" is no pair of ms, as 30,4", value)
            end

        elseif name == "engine" then
            if value ~= "vllm" and value ~= "sglang" then
                fail(2, "--engine must be vllm or sglang, not \"%s\"", value)
            end

            found.engine = value

        elseif name == "compare" then
            found.compare[1] = value

        elseif name == "workload" or name == "trace" or name == "json"
               or name == "plots" or name == "conversations"
               or name == "sessions" or name == "tokenizer"
        then
            found[name] = value

        else
            fail(2, "there is no option --%s, see --help", name)
        end

        i = i + 2
    end

    if #found.compare > 0 and #found.compare ~= 2 then
        fail(2, "--compare needs two files, %d were given", #found.compare)
    end

    if found.conversations and found.trace then
        fail(2, "--conversations writes what a workload draws, and a --trace "
                .. "is a file already: leave one of them out")
    end

    if found.restart and found.workers == 1 then
        fail(2, "--restart needs at least 2 workers: the last engine that is "
                .. "there never restarts")
    end

    if found.sensitivity and found.seeds == 1 then
        fail(2, "--sensitivity needs at least 2 seeds: one has no interval")
    end

    if found.pull and found.restart or found.bound and found.tenants then
        fail(2, "--pull goes without --restart, and --bound without --tenants")
    end

    if not found.sessions ~= not found.tokenizer
       or found.sessions and (found.trace or found.tenants
                              or found.conversations)
    then
        fail(2, "--sessions needs a --tokenizer, and goes without --trace, "
                .. "--tenants and --conversations")
    end

    check_routers(found)
    check_queues(found)

    if #found.policies == 0 then
        found.policies = { policy_of("round_robin"), policy_of("kv_cost") }
    end

    return found
end


-- ---- progress ---------------------------------------------------------------

-- Is standard error a terminal?
local function is_terminal()
    return os.execute("test -t 2") == 0
end


local function reporter(terminal, what, total)
    return function(done, ended)
        if not terminal then
            return
        end

        local filled = floor(30 * done / total)

        io.stderr:write(format("\r[%s%s] %s: %d/%d requests\27[K",
                               ("#"):rep(filled), (" "):rep(30 - filled), what,
                               done, total), ended and "\r\27[K" or "")
    end
end


-- ---- runs -------------------------------------------------------------------

local told                       -- are the lines that are left out told?

local function read_trace(options)
    local talks, more = workload.read(options.trace, options.requests,
                                      options["tokens-per-id"],
                                      options["block-size"])

    if talks and more > 0 and not told then
        told = true
        io.stderr:write(format("%s: left out %d lines without hashes of a "
                               .. "prompt\n", options.trace, more))
    end

    return talks, more
end


local function talks_of(options, seed)
    local talks, err

    if options.tenants then
        return tenants.draw(options.tenants, {
            workload = options.workload, seconds = options.seconds,
            load = options.load, workers = options.workers, seed = seed,
            block_size = options["block-size"], times = options.times,
            classes = #options.weights,
        })
    end

    if options.sessions then
        talks, err = sessions.of(options, seed)

    elseif options.trace then
        talks, err = read_trace(options)

    else
        talks, err = workload.draw(options.workload, options.requests,
                                   options["block-size"], seed)
    end

    if not talks then
        fail(2, "%s", err)
    end

    workload.spread(talks, options.load, options.workers, options.times,
                    options["block-size"])

    if options.cache then
        local all, longest = workload.working_set(talks,
                                                  options["block-size"])

        -- a cache smaller than a conversation would refuse it
        options.blocks = max(longest, ceil(options.cache / 100 * all
                                           / options.workers))
    end

    return talks
end


local function count(talks)
    local n = 0

    for _, talk in ipairs(talks) do
        n = n + #talk.turns
    end

    return n
end


-- All policies with one seed: the same conversations for each.
local function run_seed(options, seed, results, ceilings)
    local talks = talks_of(options, seed)
    local requests = count(talks)
    local terminal = is_terminal()
    local size = options["block-size"]
    local ideal, capacity

    -- not all of the tenants' requests are served
    if not options.tenants then
        ideal, capacity = ceiling.of(talks, options.workers * options.blocks,
                                     size)
    end

    ceilings[#ceilings + 1] = { ideal = ideal, capacity = capacity,
                                blocks = options.blocks }

    for i, policy in ipairs(options.policies) do
        local report = reporter(terminal, format("seed %d, %s", seed,
                                                 policy.title), requests)
        local started = os.clock()
        local conf = {
            engine = options.engine, workers = options.workers,
            blocks = options.blocks, block_size = size,
            max_tokens = options["max-tokens"],
            max_requests = options["max-requests"], times = options.times,
            routers = options.routers,
            event_delay = options["event-delay"] / 1000,
            event_loss = options["event-loss"],
            repair_delay = options["repair-delay"] / 1000,
            restart = options.restart,
            restart_time = options["restart-time"],
            share = options.share and options.share / 1000,
            share_loss = options["share-loss"] or 0,
            router_shares = options["router-shares"],
            router_restart = options["router-restart"],
            seed = seed, policy = policy,
            max_prefill_tokens = options["max-prefill-tokens"],
            max_active = options["max-active"], order = options.order,
            quantum = options.quantum, weights = options.weights,
            pull = options.pull, seconds = options.tenants and options.seconds,
        }
        local run, err = world.run(conf, talks, clock, report)

        if not run then
            fail(2, "%s", err)
        end

        report(requests, true)

        local found = figures.of(run)

        if options.bound then
            found.bound_mean, found.bound_p90 = ceiling.bounds(run.asked, conf)
        end

        found.cpu_seconds = os.clock() - started
        results[i][#results[i] + 1] = found
        results[i].ttfts = run.ttfts

        io.stderr:write(format("seed %d, %s: hit rate %s, TTFT p90 %s, "
                               .. "%.1f s\n", seed, policy.title,
                               percent(found.had),
                               milliseconds(found.ttft_p90),
                               found.cpu_seconds))
    end

    for _, talk in ipairs(talks) do
        prompts.drop(talk)
    end
end


local function column(list, name)
    local values = {}

    for _, run in ipairs(list) do
        values[#values + 1] = run[name]
    end

    return figures.mean(values)
end


local function with(text, half, scale)
    return half and format("%s ± %.1f", text, half * scale) or text
end


local function table_of(options, results, ceilings)
    local rows = {}
    local ideal, ideal_half = column(ceilings, "ideal")
    local capacity, capacity_half = column(ceilings, "capacity")

    print(format("ideal, one cache without a bound: %s",
                 with(percent(ideal), ideal_half, 100)))
    print(format("one cache as large as the fleet's: %s\n",
                 with(percent(capacity), capacity_half, 100)))

    for i, policy in ipairs(options.policies) do
        local list = results[i]
        local had, had_half = column(list, "had")
        local p90, p90_half = column(list, "ttft_p90")

        rows[i] = { policy.title, percent(column(list, "best")),
                    percent(column(list, "predicted")),
                    with(percent(had), had_half, 100),
                    milliseconds(column(list, "ttft_p50")),
                    with(milliseconds(p90), p90_half, 1000),
                    milliseconds(column(list, "ttft_p99")),
                    milliseconds(column(list, "gap_p50")),
                    milliseconds(column(list, "gap_p99")),
                    format("%.0f", column(list, "throughput")),
                    percent(column(list, "busy")),
                    format("%.2f", column(list, "worst_share")),
                    format("%.1f", column(list, "spirals")),
                    format("%.0f", column(list, "longest_queue")),
                    format("%.0f", column(list, "preempted")),
                    format("%.0f", column(list, "failed")) }
    end

    print(figures.columns({ "policy", "best worker", "predicted", "hit rate",
                            "TTFT p50", "p90", "p99", "gap p50", "p99",
                            "tokens/s", "busy", "worst share", "spirals",
                            "queue", "preempted", "failed" }, rows))

    if options.tenants then
        print("\n" .. tenants.table(options.policies, results))
    end

    if options.bound then
        print("\n" .. figures.bounds(options.policies, results))
    end
end


local function write(name, text)
    local file, err = io.open(name, "w")

    if not file or not file:write(text) or not file:close() then
        fail(1, "%s can't be written: %s", name, err or "no room?")
    end
end


-- What the first seed draws, as JSON, for programs that replay it.
local function write_conversations(options)
    local talks = talks_of(options, options["first-seed"])

    for i, talk in ipairs(talks) do
        talks[i] = { at = talk.at, own = talk.own, parts = talk.parts,
                     turns = talk.turns, tenant = talk.tenant,
                     group = talk.group }
    end

    write(options.conversations, json.encode({
        block_size = options["block-size"], blocks = options.blocks,
        workers = options.workers, times = options.times,
        max_tokens = options["max-tokens"],
        max_requests = options["max-requests"],
        conversations = talks,
    }) .. "\n")
end


local function plots(options, results, ceilings)
    local groups, lines = {}, {}
    local ideal, ideal_half = column(ceilings, "ideal")
    local capacity, capacity_half = column(ceilings, "capacity")

    for i, policy in ipairs(options.policies) do
        local bars = { { "ideal", ideal, ideal_half },
                       { "the fleet's capacity", capacity, capacity_half } }

        for _, rung in ipairs { { "best worker", "best" },
                                { "predicted", "predicted" },
                                { "had", "had" } }
        do
            local mean, half = column(results[i], rung[2])

            bars[#bars + 1] = { rung[1], mean, half }
        end

        groups[i] = { policy.title, bars }
        lines[i] = { policy.title, results[i].ttfts }
    end

    local title = options.trace or options.sessions or options.workload

    write(options.plots .. "/ladder.svg",
          plot.ladder("Hit rates: " .. title, groups))
    write(options.plots .. "/ttft.svg",
          plot.shares("Time to first token, last seed: " .. title, lines))
end


-- All seeds.  Returns the figures by policy and seed, and the ceilings by seed.
local function run_all(options)
    local results, ceilings = {}, {}

    for i in ipairs(options.policies) do
        results[i] = {}
    end

    local first = options["first-seed"]

    for seed = first, first + options.seeds - 1 do
        run_seed(options, seed, results, ceilings)
    end

    return results, ceilings
end


-- Runs all again with other times; prints a table of each, and what becomes of
-- the conclusions.  Returns a list of { times, results }.
local function vary(options, results)
    local list, runs, rows = {}, { results }, {}
    local heads = { "lower TTFT p90", "than", "ratio" }

    for i, variant in ipairs(sensitivity.variants(options.times)) do
        local other = setmetatable({ times = variant.times },
                                   { __index = options })
        local found, ceilings = run_all(other)

        print("\n" .. variant.title .. "\n")
        table_of(other, found, ceilings)
        list[i] = { times = variant.times, results = found }
        runs[i + 1] = found
        heads[#heads + 1] = variant.factors
    end

    local conclusions, compared = sensitivity.conclusions(runs)
    local hold = 0

    heads[#heads + 1] = "conclusion"

    for i, it in ipairs(conclusions) do
        local row = { options.policies[it.lower].title,
                      options.policies[it.higher].title,
                      format("%.2f", it.ratio) }

        for _, ratio in ipairs(it.ratios) do
            row[#row + 1] = format("%.2f", ratio)
        end

        row[#row + 1] = it.verdict
        rows[i] = row
        hold = hold + (it.verdict == "holds" and 1 or 0)
    end

    print(format("\nPairs of policies: %d, conclusions: %d, of which hold: %d."
                 .. "  Ratios of TTFT p90, first as\nassumed, then with decode "
                 .. "and decode_context multiplied:\n", compared,
                 #conclusions, hold))
    print(figures.columns(heads, rows))

    return list
end


local function listed(policies, results)
    local runs = {}

    for i, policy in ipairs(policies) do
        results[i].ttfts = nil
        runs[i] = { policy = policy.title, seeds = results[i] }
    end

    return runs
end


local function simulate(options)
    local results, ceilings = run_all(options)

    table_of(options, results, ceilings)

    local all = { { results = results } }

    if options.sensitivity then
        for _, variant in ipairs(vary(options, results)) do
            all[#all + 1] = variant
        end
    end

    if options.plots then
        plots(options, results, ceilings)
    end

    if options.json then
        local policies, variants = options.policies, {}

        for i = 2, #all do
            variants[i - 1] = { times = all[i].times,
                                runs = listed(policies, all[i].results) }
        end

        options.compare, options.policies = nil, nil
        write(options.json, json.encode({
            parameters = options, ceilings = ceilings,
            runs = listed(policies, results),
            sensitivity = options.sensitivity and variants,
        }) .. "\n")
    end

    for _, variant in ipairs(all) do
        for _, run in ipairs(variant.results) do
            for _, found in ipairs(run) do
                if found.faults > 0 then
                    fail(1, "a policy has failed %d times, and least_loaded "
                            .. "has chosen instead", found.faults)
                end
            end
        end
    end
end


local function main(library, ...)
    local options = options_of { ... }

    if #options.compare > 0 then
        return compare(options.compare[1], options.compare[2], fail)
    end

    if options.conversations then
        return write_conversations(options)
    end

    index.load(library)
    sessions.library = library:gsub("_simulate", "")
    simulate(options)
end


main(...)
