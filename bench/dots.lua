-- Copyright (C) the nginx-kv-router authors
--
-- A plot of benchmarks, as SVG, in the manner of kv-simulate's: dots with bounds
-- on a logarithmic axis.


local plot = require "resty.kv_router.tools.simulate.plot"

local ceil = math.ceil
local floor = math.floor
local format = string.format
local log = math.log
local max = math.max
local min = math.min
local page = plot.page
local text = plot.text


local WIDTH = 760                -- of a page
local LEFT = 210                 -- of names
local BAR = 15
local DOT, LINE = "#3a6ea5", "#9aa5b1"


-- The numbers 1, 2, and 5 times a power of ten from least to most.
local function ticks_of(least, most)
    local ticks = {}

    for power = floor(log(least) / log(10)), ceil(log(most) / log(10)) do
        for _, digit in ipairs { 1, 2, 5 } do
            local tick = digit * 10 ^ power

            if tick >= least and tick <= most then
                ticks[#ticks + 1] = tick
            end
        end
    end

    return ticks
end


-- A logarithmic axis.  groups: a list of { name, dots }; dots: a list of
-- { name, value, low, high }, all above 0; low and high are the bounds.
return function(title, groups)
    local parts = { text(10, 20, title, ' font-weight="bold"') }
    local right, least, most = WIDTH - 80, 1 / 0, 0
    local y, top = 44, 34

    for _, group in ipairs(groups) do
        for _, dot in ipairs(group[2]) do
            least, most = min(least, dot[3]), max(most, dot[4])
        end

        y = y + 22 + BAR * #group[2]
    end

    local scale = (right - LEFT) / max(1e-9, log(most / least))
    local bottom = y - 10

    for _, tick in ipairs(ticks_of(least, most)) do
        local x = LEFT + log(tick / least) * scale

        parts[#parts + 1] = format(
            '<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#ddd"/>', x, x,
            top, bottom)
        parts[#parts + 1] = text(x, bottom + 16, format("%g", tick),
                                 ' text-anchor="middle"')
    end

    y = 44

    for _, group in ipairs(groups) do
        parts[#parts + 1] = text(10, y, group[1], ' font-weight="bold"')
        y = y + 8

        for _, dot in ipairs(group[2]) do
            local x = LEFT + log(dot[2] / least) * scale
            local middle = y + BAR / 2

            parts[#parts + 1] = text(24, y + BAR - 4, dot[1])
            parts[#parts + 1] = format(
                '<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" '
                .. 'stroke-width="2"/>', LEFT + log(dot[3] / least) * scale,
                LEFT + log(dot[4] / least) * scale, middle, middle, LINE)
            parts[#parts + 1] = format(
                '<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>', x, middle, DOT)
            parts[#parts + 1] = text(right + 12, y + BAR - 4,
                                     format(dot[2] < 100 and "%.2f" or "%.0f",
                                            dot[2]))
            y = y + BAR
        end

        y = y + 14
    end

    return page(bottom + 28, parts)
end
