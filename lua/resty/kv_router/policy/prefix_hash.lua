-- Copyright (C) the nginx-kv-router authors
--
-- prefix_hash: prompts that begin alike go to the same worker, as long as it
-- has no more than its share of the load: consistent hashing with bounded
-- loads over the first tokens.  Needs no events and no index.  Every nginx
-- process, and every other router with the same workers, decides alike.
--
-- Each worker has a number of its own for each prefix, a hash of both; the
-- request goes to the worker with the best number whose load leaves room,
--
--     active + 1 <= ceil(load_factor * (all active + 1) * its share of weight)
--
-- else to the next in that order.  This is rendezvous hashing: what a ring
-- with virtual nodes is for, without a ring to be built when workers come and
-- go, and even with few of them.  A worker that comes or goes moves only its
-- own share of the prefixes.
--
-- The prefix is the first blocks of tokens that hold `tokens` of them, in the
-- request's namespace (LoRA, salt).  A prompt without tokens, or shorter than
-- a block, is hashed by the first 4 * tokens bytes of its text; a request
-- without either goes to the least loaded worker.
--
-- Settings:
--
--     tokens       256    of the prompt that count, at least 1
--     load_factor  1.25   bound of a worker's load, in shares; at least 1


local bit = require "bit"
local checked = require "resty.kv_router.request.conf".check
local least = require "resty.kv_router.request.order".least
local order = require "resty.kv_router.request.order"

local bxor = bit.bxor
local byte = string.byte
local ceil = math.ceil
local costs = order.costs
local lowest = order.lowest
local math_log = math.log
local max = math.max
local min = math.min
local rshift = bit.rshift
local setmetatable = setmetatable
local tonumber = tonumber


local _M = { name = "prefix_hash" }
local mt = { __index = _M }


local SETTINGS = {
    tokens = { type = "number", default = 256, min = 1, max = 2^20 },
    load_factor = { type = "number", default = 1.25, min = 1 },
}

local MIN_WEIGHT = 0.001     -- the smallest that is not 0
local OVER = 2^40            -- what a worker without room costs more
local SEED = 0x2545f4914f6cdd1dULL


function _M.new(conf)
    local complete, err = checked(conf, SETTINGS)
    if not complete then
        return nil, err
    end

    return setmetatable({ conf = complete, places = {} }, mt)
end


-- splitmix64's
local function mix(z)
    z = bxor(z, rshift(z, 30)) * 0xbf58476d1ce4e5b9ULL
    z = bxor(z, rshift(z, 27)) * 0x94d049bb133111ebULL

    return bxor(z, rshift(z, 31))
end


-- FNV-1a of the first n bytes
local function hash_text(text, n)
    local h = 0xcbf29ce484222325ULL

    for i = 1, min(#text, n) do
        h = bxor(h, byte(text, i)) * 0x100000001b3ULL
    end

    return mix(h)
end


-- The hash of the prompt's beginning, or nil when it has none.
local function key_of(ctx, tokens)
    local n = min(ceil(tokens / ctx.block_size), ctx.prompt_blocks)
    local hashes = ctx.hashes

    if n > 0 and hashes ~= nil then
        local h = SEED

        for i = 0, n - 1 do
            h = mix(bxor(h, hashes[i]))
        end

        return h
    end

    local fields = ctx.request.fields
    local text = fields.prompt or fields.messages or fields.input

    return text and hash_text(text, 4 * tokens)
end


-- The hash of a candidate's worker and rank: not of its holder's number, which
-- other machines don't share.  Kept, as worker is a string.
local function hash_of(self, c)
    local place = self.places[c.holder]

    if not place or place.generation ~= c.generation then
        place = { generation = c.generation,
                  hash = mix(hash_text(c.worker, c.worker_len) + c.rank) }
        self.places[c.holder] = place
    end

    return place.hash
end


-- The reason is "prefix", "bounded" when the prefix's own worker has no room,
-- or "load" when there is no prefix.
function _M:pick(ctx)
    local conf = self.conf
    local candidates = ctx.candidates
    local key = key_of(ctx, conf.tokens)

    if not key then
        local list, k = least(candidates, ctx.block_size, ctx.wanted,
                              ctx.random)

        return list, k, "load"
    end

    local n = #candidates
    local cost = costs(n)
    local active, weights = 1, 0

    for i = 1, n do
        local c = candidates[i]

        active = active + c.active_requests
        weights = weights + max(c.weight, MIN_WEIGHT)
    end

    local share = conf.load_factor * active / weights
    local best, own = OVER, nil

    for i = 1, n do
        local c = candidates[i]
        local weight = max(c.weight, MIN_WEIGHT)

        -- in (0, 1): the time until a worker's first event, the sooner the
        -- heavier it is, so that its chance to be first is its weight's
        local u = (tonumber(rshift(mix(bxor(key, hash_of(self, c))), 12))
                   + 0.5) / 2^52
        local at = -math_log(u) / weight

        if at < best then
            best, own = at, i
        end

        if c.active_requests + 1 > ceil(share * weight) then
            at = at + OVER
        end

        cost[i] = at
    end

    local list, k = lowest(cost, n, ctx.wanted, ctx.random)

    return list, k, list[0] == own and "prefix" or "bounded"
end


return _M
