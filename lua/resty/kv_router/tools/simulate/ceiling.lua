-- Copyright (C) the nginx-kv-router authors
--
-- What no routing can do better: the upper rungs of kv-simulate's ladder of
-- hit rates.  Both take the requests one after the other, as if each ended
-- before the next one came.
--
--     ideal       one cache without a bound
--     capacity    one cache as large as all caches of the fleet together


local ffi = require "ffi"
local new_cache = require "resty.kv_router.tools.simulate.vllm_cache".new
local prompts = require "resty.kv_router.tools.simulate.prompts"
local workload = require "resty.kv_router.tools.simulate.workload"

local ffi_new = ffi.new
local floor = math.floor
local max = math.max
local sort = table.sort


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


return _M
