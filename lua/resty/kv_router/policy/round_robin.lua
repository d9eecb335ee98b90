-- Copyright (C) the nginx-kv-router authors
--
-- round_robin: each worker in turn, as often as its weight says; the smooth
-- weighted turn of nginx's own upstreams.  No settings.
--
-- Each nginx process has turns of its own, begun at a random place, so that
-- processes don't go to the same worker at the same time: over all of them
-- the spread is even in the long run, not request by request.


local checked = require "resty.kv_router.request.conf".check
local ffi = require "ffi"
local order = require "resty.kv_router.request.order"

local costs = order.costs
local ffi_new = ffi.new
local lowest = order.lowest
local max = math.max
local setmetatable = setmetatable


ffi.cdef [[
typedef struct {
    double      current;        /* the larger, the sooner */
    uint32_t    generation;     /* of the holder that it is of */
    uint32_t    known;
} ngx_http_kv_router_turn_t;
]]


local _M = { name = "round_robin" }
local mt = { __index = _M }

local turns_t = ffi.typeof("ngx_http_kv_router_turn_t[?]")
local MIN_SIZE = 64


function _M.new(conf)
    local ok, err = checked(conf, {})
    if not ok then
        return nil, err
    end

    return setmetatable({ turns = turns_t(MIN_SIZE), size = MIN_SIZE }, mt)
end


-- Makes room for the holder's turn.
local function grow(self, holder)
    local size = max(2 * self.size, holder + 1)
    local turns = ffi_new(turns_t, size)

    ffi.copy(turns, self.turns,
             self.size * ffi.sizeof("ngx_http_kv_router_turn_t"))

    self.turns = turns
    self.size = size
end


function _M:pick(ctx)
    local candidates = ctx.candidates
    local n = #candidates
    local cost = costs(n)
    local total = 0

    for i = 1, n do
        local c = candidates[i]
        local holder = c.holder

        if holder >= self.size then
            grow(self, holder)
        end

        local turn = self.turns[holder]

        if turn.known == 0 or turn.generation ~= c.generation then
            turn.known = 1
            turn.generation = c.generation
            turn.current = ctx.random() * c.weight
        end

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
