-- Copyright (C) the nginx-kv-router authors
--
-- random: any worker, as often as its weight says.  Looks at nothing else: the
-- baseline that others are held against.  No settings.


local maker = require "resty.kv_router.request.conf".maker


local _M = { name = "random" }
local mt = { __index = _M }


_M.new = maker({}, mt)


function _M:pick(ctx)
    local candidates = ctx.candidates
    local n = #candidates
    local total = 0

    for i = 1, n do
        total = total + candidates[i].weight
    end

    local left = ctx.random() * total

    for i = 1, n do
        left = left - candidates[i].weight

        if left < 0 then
            return i, nil, "random"
        end
    end

    -- rounding left a little over, or all weights are 0
    return n, nil, "random"
end


return _M
