-- Copyright (C) the nginx-kv-router authors
--
-- What reading a body or rendering a template may spend.  Fuel is
-- deterministic: one unit for each round of a loop, each element that is read,
-- copied or compared and each KB of text that is produced, copied, searched or
-- compared.  Beside it, the processor's time is bounded: the clock is read once
-- in STEP units.  And no string, nor what a rendering puts out, may be longer
-- than its bound.
--
-- One of them at a time: neither yields, except by aside().  Before start() and
-- after stop() nothing is bounded.


local text_ffi = require "resty.kv_router.tokens.text_ffi"
local value = require "resty.kv_router.template.value"

local cpu_us = text_ffi.cpu_us
local format = string.format
local huge = math.huge
local min = math.min
local out_of_time = value.out_of_time
local unsupported = value.unsupported


local STEP = 512

local _M = {
    left = math.huge,   -- units until the clock is read; generated code counts
    bound = math.huge,  -- the most bytes of a string
}

local rest = 0          -- units beyond these
local given = 0
local until_us = 0
local cpu = 0
local spent = 0


-- Begins: units of fuel, microseconds of processor time, and the
-- most bytes of a string.
function _M.start(units, us, bound)
    given = units
    cpu = us
    until_us = cpu_us() + us
    _M.bound = bound
    _M.left = min(units, STEP)
    rest = units - _M.left
end


-- Ends what start() began.
function _M.stop()
    spent = given - rest - _M.left
    _M.bound, _M.left = huge, huge
end


-- Calls a function which may yield.  What it spends, and what others spend
-- meanwhile, is not counted.
function _M.aside(call)
    local bound, left = _M.bound, _M.left
    local units, own_given, own_cpu = rest, given, cpu
    local us = until_us - cpu_us()

    _M.bound, _M.left = huge, huge
    call()

    _M.bound, _M.left = bound, left
    rest, given, cpu = units, own_given, own_cpu
    until_us = cpu_us() + us
end


-- left is below 0: reads the clock, and goes on or fails.
function _M.refill()
    if rest + _M.left < 0 then
        unsupported(format("out of fuel: %d units spent", given))
    end

    if cpu_us() > until_us then
        out_of_time(format("out of time: %d us of processor time spent", cpu))
    end

    local all = rest + _M.left

    _M.left = min(all, STEP)
    rest = all - _M.left
end


-- Spends n units.
function _M.burn(n)
    local left = _M.left - n

    _M.left = left

    if left < 0 then
        _M.refill()
    end
end


-- Spends what n bytes cost that are searched or compared.
function _M.bytes(n)
    local left = _M.left - n / 1024

    _M.left = left

    if left < 0 then
        _M.refill()
    end
end


-- Spends what a new string of n bytes costs.
function _M.string(n)
    if n > _M.bound then
        unsupported(format("a string of %.0f bytes, the bound is %.0f", n,
                           _M.bound))
    end

    return _M.bytes(n)
end


-- How many units were spent between the last start() and its stop().
function _M.spent()
    return spent
end


return _M
