-- Copyright (C) the nginx-kv-router authors
--
-- Numbers that kv-simulate draws, by a function draw() from 0 to 1.


local cos = math.cos
local exp = math.exp
local floor = math.floor
local log = math.log
local max = math.max
local min = math.min
local pi = math.pi
local sqrt = math.sqrt


local _M = {}


local function exponential(draw, mean)
    return -mean * log(1 - draw())
end

_M.exponential = exponential


-- A number within bounds, small ones often.
function _M.skewed(draw, least, most, mean_more)
    return min(most, least + exponential(draw, mean_more))
end


local function normal(draw)
    return sqrt(-2 * log(1 - draw())) * cos(2 * pi * draw())
end


local function lognormal(draw, median, sigma)
    return median * exp(sigma * normal(draw))
end

_M.lognormal = lognormal


-- One of 1 to n, the first one twice as often as the second.
function _M.zipf(draw, n)
    local total, at = 0, 0

    for i = 1, n do
        total = total + 1 / i
    end

    local point = draw() * total

    for i = 1, n do
        at = at + 1 / i

        if point < at then
            return i
        end
    end

    return n
end


-- By name: functions of draw, least, most, mean and standard deviation.  Of
-- bimodal: the smaller of two values is the least, and the other one is such
-- that mean and deviation come out.
local KINDS = {
    exponential = function(draw, least, _, mean)
        return least + exponential(draw, mean - least)
    end,
    normal = function(draw, _, _, mean, deviation)
        return mean + deviation * normal(draw)
    end,
    lognormal = function(draw, _, _, mean, deviation)
        local variance = log(1 + (deviation / mean) ^ 2)

        return lognormal(draw, mean * exp(-variance / 2), sqrt(variance))
    end,
    uniform = function(draw, least, most)
        return least + (most - least) * draw()
    end,
    bimodal = function(draw, least, _, mean, deviation)
        local share = 1 / (1 + (deviation / (mean - least)) ^ 2)

        return draw() < share and least + (mean - least) / share or least
    end,
}


-- A whole number of a distribution { kind, least, most, mean, deviation }; what
-- is beyond its bounds becomes the bound.
function _M.of(draw, shape)
    local kind, least, most, mean, deviation = unpack(shape)

    return floor(max(least, min(most, KINDS[kind](draw, least, most, mean,
                                                  deviation))))
end


-- A whole number by its percentiles { { percent, value }... }, and between two
-- of them by the logarithm; what is beyond the first or the last is as that.
function _M.percentile(draw, points)
    local percent = 100 * draw()
    local last = points[1]

    for _, point in ipairs(points) do
        if percent < point[1] then
            local part = max(0, percent - last[1]) / max(1, point[1] - last[1])

            return floor(last[2] * (point[2] / last[2]) ^ part)
        end

        last = point
    end

    return last[2]
end


return _M
