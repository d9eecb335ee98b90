-- Copyright (C) the nginx-kv-router authors
--
-- Some of the candidates, for a policy that lets another one choose among
-- them:
--
--     some = subset.new()                       -- once, in new()
--
--     some:clear(#ctx.candidates)               -- in pick()
--     some:add(c, i)                            -- candidate number i
--     list, k, reason = some:ask(next, ctx)     -- next: of policy.load()
--
-- The list has the numbers that the candidates have in ctx.  A subset is its
-- policy's: good until the next clear(), so until pick() returns.


local ask = require "resty.kv_router.policy".ask
local ffi = require "ffi"

-- declares a candidate
require "resty.kv_router.ffi"

local error = error
local ffi_new = ffi.new
local max = math.max
local metatype = ffi.metatype
local setmetatable = setmetatable
local type = type
local typeof = ffi.typeof


ffi.cdef [[
typedef struct {
    uint32_t                               n;
    const ngx_http_kv_router_candidate_t  *at[?];
} ngx_http_kv_router_subset_t;
]]


local _M = {}
local mt = { __index = _M }

local numbers_t = typeof("uint32_t[?]")
local MIN_SIZE = 64


-- A list, as ctx.candidates is one.
local list_t = metatype("ngx_http_kv_router_subset_t", {
    __len = function(self)
        return self.n
    end,

    __index = function(self, i)
        if type(i) == "number" and i >= 1 and i <= self.n then
            return self.at[i - 1][0]
        end

        return nil
    end
})


function _M.new()
    return setmetatable({ n = 0, size = 0 }, mt)
end


-- Empties it, with room for n.
function _M:clear(n)
    if n > self.size then
        local size = max(2 * n, MIN_SIZE)

        self.candidates = ffi_new(list_t, size)
        self.numbers = ffi_new(numbers_t, size)
        self.size = size
    end

    self.n = 0
    self.candidates.n = 0
end


-- Adds candidate c, which has number i in the list that it is from.
function _M:add(c, i)
    local n = self.n

    if n >= self.size then
        error("more candidates are added than clear() made room for", 2)
    end

    self.candidates.at[n] = c
    self.numbers[n] = i
    self.n = n + 1
    self.candidates.n = n + 1
end


-- Has all of them again; returns itself.
function _M:all(ctx)
    local candidates = ctx.candidates

    self:clear(#candidates)

    for i = 1, #candidates do
        self:add(candidates[i], i)
    end

    return self
end


-- Its own ctx: that of all, with these candidates.
function _M:ctx(ctx)
    local best = 0

    for i = 0, self.n - 1 do
        best = max(best, self.candidates.at[i].device)
    end

    return setmetatable({ candidates = self.candidates, best = best },
                        { __index = ctx })
end


-- Asks a policy for a choice among them; it must not be empty.  Returns what
-- policy.ask() does, numbers as in ctx; its plan, if it has one, names numbers
-- of the subset and is left out.
function _M:ask(policy, ctx)
    local list, k, reason = ask(policy, self:ctx(ctx))

    for i = 0, k - 1 do
        list[i] = self.numbers[list[i] - 1]
    end

    return list, k, reason
end


return _M
