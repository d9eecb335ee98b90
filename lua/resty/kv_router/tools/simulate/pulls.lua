-- Copyright (C) the nginx-kv-router authors
--
-- Engines of kv-simulate that obey $kv_router_cache_source: they pull the
-- blocks of a prompt from the engine that has the most of them.
--
-- A pull takes `base` seconds, and `token` seconds for each token.  The engine
-- goes on computing meanwhile; the request joins its queue when the blocks are
-- there.  An engine sends what it is asked for one after the other.  A request
-- whose blocks another one pulls to the same engine waits for them.  An engine
-- that computes the missing tokens faster than they could come does not pull.


local ffi = require "ffi"
local kv_cost = require "resty.kv_router.policy.kv_cost"

local ffi_new = ffi.new
local floor = math.floor
local max = math.max


-- nginx refuses what kv_cost has for these engines
kv_cost.simulated = true


local _M = {}


-- "BASE,PER_1000_TOKENS", ms, or nil.
function _M.parse(text)
    local base, more = text:match("^([%d.]+),([%d.]+)$")

    base, more = tonumber(base), tonumber(more)

    return base and more and { base = base / 1000, token = more / 1e6 }
end


-- Is the request for a worker to pull?  Sets its source, and returns how many
-- tokens come from there.  pull: { base, token }; router: see router.lua, with
-- what its index and its flights have of the prompt.
function _M.decide(pull, times, router, request, worker)
    local source = kv_cost.source_of(router.match)
    local there = max(router.depths[worker], router.flying[worker])
    local tokens = max(0, source.device - there) * router.block_size

    if pull.base + pull.token * tokens >= times.prefill * tokens then
        return 0
    end

    request.source, request.pulled = source.holder, true

    return tokens
end


-- Seconds until the blocks that a request pulls, or another one pulls for it,
-- are there; nil: it pulls nothing.  workers: those of world.lua.
function _M.start(conf, workers, request, worker, now)
    local names, arriving = request.names, worker.arriving
    local limit = floor((request.prompt - 1) / conf.block_size)

    for i = #arriving, 1, -1 do
        local it = arriving[i]

        if it.at <= now then
            table.remove(arriving, i)

        elseif it.n <= limit and names[it.n - 1] == it.name then
            request.pulled = true
            return it.at - now
        end
    end

    local holder = workers[(request.source or -1) + 1]
    local n = holder and holder.engine.cache:match(request, limit) or 0
    local there = worker.engine.cache:match(request, n)

    if n == there then
        return nil
    end

    local tokens = (n - there) * conf.block_size

    holder.sent_at = max(now, holder.sent_at or 0) + conf.pull.token * tokens
    request.comes = n
    arriving[#arriving + 1] = { at = holder.sent_at + conf.pull.base, n = n,
                                name = names[n - 1] }

    return holder.sent_at + conf.pull.base - now, tokens
end


-- What a request has pulled is in its engine's cache, if there is room.
function _M.finish(request, cache)
    local n = request.comes
    local blocks = { names = request.names, locals = request.locals,
                     blocks = ffi_new("int32_t[?]", (n or 0) + 1) }

    if n then
        cache:acquire(blocks, cache:match(blocks, n))

        if cache:grow(blocks, n) then
            cache:commit(blocks, n)
        end

        cache:release(blocks)
    end
end


return _M
