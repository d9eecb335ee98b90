-- Copyright (C) the nginx-kv-router authors
--
-- round_robin: each worker in turn, as often as its weight says; the smooth
-- weighted turn of nginx's own upstreams.  No settings.
--
-- Each nginx process has turns of its own, begun at a random place, so that
-- processes don't go to the same worker at the same time: over all of them
-- the spread is even in the long run, not request by request.


local checked = require "resty.kv_router.request.conf".check
local order = require "resty.kv_router.request.order"

local costs = order.costs
local lowest = order.lowest
local setmetatable = setmetatable


local _M = { name = "round_robin" }
local mt = { __index = _M }


function _M.new(conf)
    local ok, err = checked(conf, {})
    if not ok then
        return nil, err
    end

    return setmetatable({ turns = {} }, mt)
end


-- A candidate's turn: of its holder, while that is of the same generation; the
-- larger current is, the sooner it comes.
local function turn_of(self, c, random)
    local turn = self.turns[c.holder]

    if not turn or turn.generation ~= c.generation then
        turn = { generation = c.generation, current = random() * c.weight }
        self.turns[c.holder] = turn
    end

    return turn
end


function _M:pick(ctx)
    local candidates = ctx.candidates
    local n = #candidates
    local cost = costs(n)
    local total = 0

    for i = 1, n do
        local c = candidates[i]
        local turn = turn_of(self, c, ctx.random)

        cost[i] = -(turn.current + c.weight)
        total = total + c.weight

        if not ctx.dry then
            turn.current = turn.current + c.weight
        end
    end

    local list, k = lowest(cost, n, ctx.wanted, ctx.random)
    local turn = self.turns[candidates[list[0]].holder]

    if not ctx.dry then
        turn.current = turn.current - total
    end

    return list, k, "turn"
end


return _M
