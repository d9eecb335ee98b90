-- Copyright (C) the nginx-kv-router authors
--
-- What no routing can do better: the upper rungs of kv-simulate's ladder of
-- hit rates.  Both take the requests one after the other, as if each ended
-- before the next one came.
--
--     ideal       one cache without a bound
--     capacity    one cache as large as all caches of the fleet together
--
-- And what no choice of workers can do better for requests that come when they
-- came in a run: bounds of the time to first token.


local ffi = require "ffi"
local new_heap = require "resty.kv_router.tools.simulate.heap".new
local new_cache = require "resty.kv_router.tools.simulate.vllm_cache".new
local prompts = require "resty.kv_router.tools.simulate.prompts"
local workload = require "resty.kv_router.tools.simulate.workload"

local ceil = math.ceil
local ffi_new = ffi.new
local floor = math.floor
local max = math.max
local min = math.min
local percentile = require "resty.kv_router.tools.simulate.figures".percentile
local sort = table.sort


local MARKS = 64                 -- at which a bound looks in a prompt, at most


local _M = {}


-- The turns of all conversations in the order in which they would come if
-- answers took no time.
local function in_order(talks)
    local list = {}

    for _, talk in ipairs(talks) do
        local at = talk.at

        for i, turn in ipairs(talk.turns) do
            at = at + (i > 1 and turn.think or 0)
            list[#list + 1] = { talk = talk, i = i, at = at }
        end
    end

    sort(list, function(a, b)
        if a.at ~= b.at then
            return a.at < b.at
        end

        if a.talk.own ~= b.talk.own then
            return a.talk.own < b.talk.own
        end

        return a.i < b.i
    end)

    return list
end


-- The share of prompt tokens that a cache of so many blocks has.
local function rate(list, blocks, size)
    local cache = new_cache(blocks, function() end, function() end)
    local tokens, had = 0, 0
    local before = {}

    for _, it in ipairs(list) do
        local talk = it.talk
        local turn = talk.turns[it.i]
        local prompt = workload.prompt_of(talk, turn, before[talk] or 0, size)
        local _, names = prompts.of(talk, prompt, size)
        local n = floor((prompt + turn.output) / size)
        local request = { names = names,
                          blocks = ffi_new("int32_t[?]", n + 1) }
        local k = cache:match(request, floor((prompt - 1) / size))

        tokens = tokens + prompt
        had = had + k * size
        before[talk] = prompt + turn.output

        cache:acquire(request, k)

        if cache:grow(request, n) then
            cache:commit(request, n)
        end

        cache:release(request)

        if it.i == #talk.turns then
            prompts.drop(talk)
        end
    end

    return had / max(1, tokens)
end


-- Returns ideal, capacity.  capacity: blocks of the whole fleet.
function _M.of(talks, capacity, size)
    local list = in_order(talks)
    local all = 0

    for _, talk in ipairs(talks) do
        all = all + workload.blocks_of(talk, size)
    end

    local ideal = rate(list, all, size)

    return ideal, capacity >= all and ideal or rate(list, capacity, size)
end


-- ---- bounds -----------------------------------------------------------------

-- The seconds that an engine needs for a prompt of which so many tokens are
-- cached: without, and with the fixed time of its steps.
local function seconds_of(prompt, cached, times, step)
    local tokens, before = prompt - cached, 0

    for at = 0, tokens - 1, step do
        before = before + min(step, tokens - at) * (cached + at)
    end

    local seconds = times.prefill * tokens + times.prefill_context * before

    return seconds, seconds + times.base * ceil(tokens / step)
end


-- At least so many seconds pass before the first token of a request at idle
-- engines.  It can wait until some of its first `low` blocks are ready, and
-- compute the rest.  For so many of them that lie between two marks, the wait is
-- at least that of the lower mark, and the rest at least that of the upper one.
local function alone_of(it, low, names, ready, conf)
    local marks = max(1, ceil(low / MARKS))
    local least, mark = 1 / 0, 0

    repeat
        local wait = mark > 0 and max(0, ready[names[mark - 1]] - it.at) or 0
        local _, seconds

        mark = min(low, mark + marks)
        _, seconds = seconds_of(it.prompt, mark * conf.block_size, conf.times,
                                conf.max_tokens)
        least = min(least, wait + seconds)
    until mark == low

    return least
end


-- A list of { at, work, left, busy, alone } for the requests of asked (see
-- world.lua): when each came, the seconds that it needs if all blocks that any
-- prompt before had are cached, without the fixed time of steps, and the least
-- seconds before its first token.  An answer is cached, too.
local function jobs_of(asked, conf)
    local size, times, jobs = conf.block_size, conf.times, {}
    local ready = {}             -- by a block's name: not before this time

    for i, it in ipairs(asked) do
        local turn, prompt = it.talk.turns[it.turn], it.prompt
        local _, names = prompts.of(it.talk, prompt, size)
        local low, high = 0, floor((prompt - 1) / size)

        -- the known blocks of a prompt are its first ones
        while low < high do
            local middle = ceil((low + high) / 2)

            if ready[names[middle - 1]] then
                low = middle

            else
                high = middle - 1
            end
        end

        local work = seconds_of(prompt, low * size, times, conf.max_tokens)
        local token = times.prefill + times.prefill_context * low * size
        local start = max(it.at + times.base,
                          low > 0 and ready[names[low - 1]] or 0)

        jobs[i] = { at = it.at, work = work, left = work, busy = 0,
                    alone = alone_of(it, low, names, ready, conf) }

        for block = low, floor((prompt + turn.output) / size) - 1 do
            ready[names[block]] = start
                + token * (min((block + 1) * size, prompt) - low * size)
        end

        if it.turn == #it.talk.turns then
            prompts.drop(it.talk)
        end
    end

    sort(jobs, function(a, b) return a.at < b.at end)

    return jobs
end


-- Bounds of the mean and of the 90th percentile of the time to first token, for
-- a run's requests at the times at which they came; conf: of world.run().
--
-- No request is answered sooner than by idle engines that cache all that they
-- can: `alone`.  This bounds both.  The mean has a second bound, from all
-- engines as one of their speed together, that serves the shortest first and
-- puts others off for it.  There the mean time `busy` of a request's work is as
-- early as it can be.  As one engine at a time computes for a request, its first
-- token comes half of its work later, and the fixed time of a step.
function _M.bounds(asked, conf)
    local alone, total, waits = {}, 0, 0
    local heap = new_heap(function(a, b)
        return a.work < b.work or a.work == b.work and a.at < b.at
    end)
    local now = 0

    -- works until a time
    local function serve(till)
        while heap.n > 0 and now < till do
            local it = heap[1]
            local seconds = min(it.left / conf.workers, till - now)

            it.busy = it.busy + seconds * conf.workers * (now + seconds / 2)
            it.left = it.left - seconds * conf.workers
            now = now + seconds

            if it.left < 1e-12 then
                heap:pop()
                waits = waits + it.busy / it.work - it.at + it.work / 2
                        + conf.times.base
            end
        end

        now = max(now, till)
    end

    for i, job in ipairs(jobs_of(asked, conf)) do
        serve(job.at)
        heap:push(job)
        alone[i] = job.alone
        total = total + job.alone
    end

    serve(math.huge)
    sort(alone)

    return max(total, waits) / #alone, percentile(alone, 90)
end


return _M
