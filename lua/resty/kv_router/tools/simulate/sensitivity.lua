-- Copyright (C) the nginx-kv-router authors
--
-- Which conclusions of kv-simulate depend on what is assumed of decoding.
--
-- A conclusion is that one of two policies has the lower TTFT p90: the 95 %
-- interval of the ratio of both, seed by seed, is below 1.  The same runs are
-- done with the times decode and decode_context halved and doubled.  Then a
-- conclusion
--
--     holds      all four intervals are below 1, too
--     is open    all four ratios are below 1, but not all intervals
--     changes    a ratio is not below 1


local abs = math.abs
local exp = math.exp
local format = string.format
local log = math.log
local mean = require "resty.kv_router.tools.simulate.figures".mean


local _M = {}


local FACTORS = { { 0.5, 0.5 }, { 0.5, 2 }, { 2, 0.5 }, { 2, 2 } }


-- times: those of a step.  Returns a list of { title, factors,
-- times }.
function _M.variants(times)
    local list = {}

    for i, by in ipairs(FACTORS) do
        local other = {}

        for name, value in pairs(times) do
            other[name] = value
        end

        other.decode = times.decode * by[1]
        other.decode_context = times.decode_context * by[2]

        list[i] = {
            title = format("With decode multiplied by %g, decode_context by "
                           .. "%g:", by[1], by[2]),
            factors = format("%g, %g", by[1], by[2]),
            times = other,
        }
    end

    return list
end


-- Logarithm of the ratio of two policies' TTFT p90, and half of its interval.
local function ratio(one, other)
    local logs = {}

    for seed, found in ipairs(one) do
        logs[seed] = log(found.ttft_p90 / other[seed].ttft_p90)
    end

    return mean(logs)
end


-- What becomes of a conclusion with these ratios of the variants.
local function verdict(ratios)
    local sure = true

    for _, found in ipairs(ratios) do
        if found.mean >= 0 then
            return "changes"
        end

        sure = sure and -found.mean > found.half
    end

    return sure and "holds" or "is open"
end


-- runs: a list, the first as assumed, then one for each variant, of lists by
-- policy of the figures by seed; of at least two seeds.  Returns a list of
-- { lower, higher (numbers of policies), ratio, ratios (of the variants),
-- verdict }, and the number of pairs that were compared.
function _M.conclusions(runs)
    local list, pairs_compared = {}, 0
    local n = #runs[1]

    for a = 1, n do
        for b = a + 1, n do
            local found, half = ratio(runs[1][a], runs[1][b])
            local lower, higher = a, b

            pairs_compared = pairs_compared + 1

            if found > 0 then
                lower, higher = b, a
            end

            if abs(found) > half then
                local ratios, shown = {}, {}

                for i = 2, #runs do
                    local other, width = ratio(runs[i][lower],
                                               runs[i][higher])

                    ratios[i - 1] = { mean = other, half = width }
                    shown[i - 1] = exp(other)
                end

                list[#list + 1] = { lower = lower, higher = higher,
                                    ratio = exp(-abs(found)), ratios = shown,
                                    verdict = verdict(ratios) }
            end
        end
    end

    return list, pairs_compared
end


return _M
