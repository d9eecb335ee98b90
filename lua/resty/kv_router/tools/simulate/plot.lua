-- Copyright (C) the nginx-kv-router authors
--
-- Plots of kv-simulate, as SVG.


local ceil = math.ceil
local concat = table.concat
local format = string.format
local gsub = string.gsub
local max = math.max
local min = math.min


local _M = {}


local WIDTH = 760
local LEFT = 210                 -- of names
local BAR = 15
local COLOURS = { "#9aa5b1", "#6b7b8c", "#4c9f70", "#e0a458", "#3a6ea5" }

local ESCAPES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;",
                  ['"'] = "&quot;" }


-- An element of text at a place.
local function text(x, y, what, attributes)
    return format('<text x="%.1f" y="%.1f"%s>%s</text>', x, y,
                  attributes or "", gsub(what, '[&<>"]', ESCAPES))
end


_M.text = text


-- A whole drawing of that height, of a list of elements.
local function page(height, parts)
    return format('<svg xmlns="http://www.w3.org/2000/svg" width="%d" '
                  .. 'height="%d" font-family="sans-serif" font-size="12">\n'
                  .. '<rect width="100%%" height="100%%" fill="white"/>\n'
                  .. '%s\n</svg>\n', WIDTH, height, concat(parts, "\n"))
end

_M.page = page


-- groups: a list of { name, bars }; bars: a list of { name, value (0 to 1),
-- half an interval or nil }.
function _M.ladder(title, groups)
    local parts = { text(10, 20, title, ' font-weight="bold"') }
    local y = 44
    local scale = WIDTH - LEFT - 70

    for _, group in ipairs(groups) do
        parts[#parts + 1] = text(10, y, group[1], ' font-weight="bold"')
        y = y + 8

        for i, bar in ipairs(group[2]) do
            local width = max(0, bar[2]) * scale

            parts[#parts + 1] = text(24, y + BAR - 4, bar[1])
            parts[#parts + 1] = format(
                '<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>',
                LEFT, y, width, BAR - 3, COLOURS[1 + (i - 1) % #COLOURS])

            if bar[3] then
                parts[#parts + 1] = format(
                    '<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" '
                    .. 'stroke="black"/>',
                    LEFT + max(0, width - bar[3] * scale),
                    LEFT + min(scale, width + bar[3] * scale),
                    y + (BAR - 3) / 2, y + (BAR - 3) / 2)
            end

            parts[#parts + 1] = text(LEFT + width + 6, y + BAR - 4,
                                     format("%.1f %%", 100 * bar[2]))
            y = y + BAR
        end

        y = y + 22
    end

    return page(y, parts)
end


-- lines: a list of { name, values }, values sorted, in seconds: the share of
-- requests with at most so much, up to the largest of the 99th percentiles.
function _M.shares(title, lines)
    local height, top, bottom = 420, 40, 370
    local right = WIDTH - 200
    local most = 0
    local parts = { text(10, 20, title, ' font-weight="bold"') }

    for _, line in ipairs(lines) do
        most = max(most, line[2][max(1, ceil(0.99 * #line[2]))] or 0)
    end

    most = max(most, 1e-6)

    for i = 0, 4 do
        local y = bottom - (bottom - top) * i / 4
        local x = 60 + (right - 60) * i / 4

        parts[#parts + 1] = format(
            '<line x1="60" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>',
            right, y, y)
        parts[#parts + 1] = text(20, y + 4, format("%d %%", 25 * i))
        parts[#parts + 1] = text(x - 12, bottom + 18,
                                 format("%.0f ms", 1000 * most * i / 4))
    end

    for i, line in ipairs(lines) do
        local values, points = line[2], {}
        local colour = COLOURS[1 + i % #COLOURS]

        for k = 0, 200 do
            local value = values[max(1, ceil(#values * k / 200))]

            if value and value <= most then
                points[#points + 1] = format(
                    "%.1f,%.1f", 60 + (right - 60) * value / most,
                    bottom - (bottom - top) * k / 200)
            end
        end

        parts[#parts + 1] = format(
            '<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>',
            colour, concat(points, " "))
        parts[#parts + 1] = format(
            '<rect x="%d" y="%d" width="12" height="12" fill="%s"/>',
            right + 14, top + 20 * i - 10, colour)
        parts[#parts + 1] = text(right + 32, top + 20 * i, line[1])
    end

    return page(height, parts)
end


return _M
