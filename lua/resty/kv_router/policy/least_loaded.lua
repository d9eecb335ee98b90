-- Copyright (C) the nginx-kv-router authors
--
-- least_loaded: the fewest active requests for its weight; among equals the
-- fewest blocks to prefill and decode; among equals of these one at random.
-- Knows nothing of caches.  It is also what routing falls back to when a
-- policy fails.  No settings.


local maker = require "resty.kv_router.request.conf".maker
local order = require "resty.kv_router.request.order"

local load_of = order.load


local _M = { name = "least_loaded" }
local mt = { __index = _M }


_M.new = maker({}, mt)


-- Requests for a weight of 1, and behind the point what decides among equals.
function _M:explain(ctx)
    local candidates = ctx.candidates
    local found = {}

    for i = 1, #candidates do
        found[i] = load_of(candidates[i], ctx.block_size) / order.REQUEST
    end

    return found
end


function _M:pick(ctx)
    local list, k = order.least(ctx.candidates, ctx.block_size, ctx.wanted,
                             ctx.random)

    return list, k, "load"
end


return _M
