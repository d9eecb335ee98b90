-- Copyright (C) the nginx-kv-router authors
--
-- Which router of a group is the home of a worker.
--
-- The largest of -share / log(u) decides, where u is a hash of (router,
-- worker).  So each router is the home of as large a part of the workers as
-- its share.  A share that grows takes workers from others, one that shrinks
-- gives workers away, and no other worker changes its home.
--
-- A share is a whole number of sixteenths of all uncached tokens.  It changes
-- when it is off by more than 3/4 of a sixteenth.  It is 0 below 1 %, and
-- from 0 it rises at 2 %.


local ffi = require "ffi"
local index = require "resty.kv_router.tools.simulate.index"

local abs = math.abs
local floor = math.floor
local log = math.log
local max = math.max


local _M = {}


local STEPS = 16
local OFF = 0.75
local LEAST = 0.01


-- The share of a router which had `tokens` of `all`; last: its share before.
function _M.share(tokens, all, last)
    if all <= 0 then
        return last
    end

    local part = tokens / all

    if part < (last > 0 and LEAST or 2 * LEAST) then
        return 0
    end

    local share = STEPS * part

    if last > 0 and abs(share - last) <= OFF then
        return last
    end

    return max(1, floor(share + 0.5))
end


local one = ffi.new("uint64_t[1]")

-- log(u)
local function draw(router, worker)
    index.locals(router, worker, 1, one)

    return log((tonumber(one[0] / 2048) + 0.5) / 2^53)
end


local draws = {}                 -- by router and worker

-- Writes to foreign[w], for each of the workers from 0, 0 or 1: the home of the
-- worker is another router than `me`.  shares: by router, from 0.  While
-- nobody has a share, no worker is foreign.
function _M.assign(shares, routers, me, workers, foreign)
    for worker = 0, workers - 1 do
        local most, home = 0, me

        for router = 0, routers - 1 do
            local of = draws[router] or {}

            draws[router] = of
            of[worker] = of[worker] or draw(router, worker)

            local score = -(shares[router] or 0) / of[worker]

            if score > most then
                most, home = score, router
            end
        end

        foreign[worker] = home ~= me and 1 or 0
    end
end


return _M
