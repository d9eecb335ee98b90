-- Copyright (C) the nginx-kv-router authors
--
-- p2c: two workers at random, and of these the one with less load, in the
-- order of least_loaded.  Where many routers look at one fleet they don't all
-- go to the same least loaded worker.  Knows nothing of caches.  No settings.


local ffi = require "ffi"
local load_of = require "resty.kv_router.request.order".load
local maker = require "resty.kv_router.request.conf".maker

local floor = math.floor


local _M = { name = "p2c" }
local mt = { __index = _M }

-- good until the policy returns, as it may not yield
local pair = ffi.new("uint32_t[?]", 2)


_M.new = maker({}, mt)


function _M:pick(ctx)
    local candidates = ctx.candidates
    local n = #candidates
    local a = floor(ctx.random() * n) + 1

    if n == 1 then
        return a, nil, "only one"
    end

    -- one of the others
    local b = floor(ctx.random() * (n - 1)) + 1

    if b >= a then
        b = b + 1
    end

    if load_of(candidates[b], ctx.block_size)
       < load_of(candidates[a], ctx.block_size)
    then
        a, b = b, a
    end

    pair[0], pair[1] = a, b

    return pair, 2, "less loaded of two"
end


return _M
