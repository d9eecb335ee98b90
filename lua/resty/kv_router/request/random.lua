-- Copyright (C) the nginx-kv-router authors
--
-- Random numbers for policies.  Not math.random(): nginx forks its workers
-- with one Lua state, so that all of them would draw the same numbers and
-- break ties alike.


local bit = require "bit"

local bxor = bit.bxor
local floor = math.floor
local lshift = bit.lshift
local rshift = bit.rshift
local tobit = bit.tobit
local tonumber = tonumber


local _M = {}


-- A function that returns numbers in [0, 1), the same ones for the same seed
-- (a number).  xorshift32, started by a round of splitmix64.
function _M.new(seed)
    local z = 0x9e3779b97f4a7c15ULL * (floor(seed) + 1)

    z = bxor(z, rshift(z, 30)) * 0xbf58476d1ce4e5b9ULL
    z = bxor(z, rshift(z, 27)) * 0x94d049bb133111ebULL
    z = bxor(z, rshift(z, 31))

    local x = tobit(tonumber(z % 0x100000000ULL))

    if x == 0 then
        x = 1
    end

    return function()
        x = bxor(x, lshift(x, 13))
        x = bxor(x, rshift(x, 17))
        x = bxor(x, lshift(x, 5))

        return (x % 0x100000000) / 0x100000000
    end
end


return _M
