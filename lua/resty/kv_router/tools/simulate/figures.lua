-- Copyright (C) the nginx-kv-router authors
--
-- Figures of kv-simulate's runs: percentiles, means over seeds with 95 %
-- intervals, text in columns.


local concat = table.concat
local floor = math.floor
local format = string.format
local gsub = string.gsub
local max = math.max
local rep = string.rep
local sort = table.sort
local sqrt = math.sqrt


local _M = {}


-- Student's t for a 95 % interval, by degrees of freedom from 1; 1.96 beyond.
local T = { 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23,
            2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09,
            2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04 }


-- The nearest-rank percentile of a sorted list; nil of an empty one.
function _M.percentile(sorted, percent)
    local n = #sorted

    return n > 0 and sorted[max(1, -floor(-n * percent / 100))] or nil
end


-- Of a run, what is no figure that is compared.
local APART = { asked = true, ttfts = true, gaps = true, unfinished = true,
                prompt_tokens = true, seconds = true }


-- The figures of one run that are compared, by name.
function _M.of(run)
    local found = {}

    for name, value in pairs(run) do
        found[name] = not APART[name] and value or nil
    end

    found.ttft_mean = _M.mean(run.ttfts)

    for name, list in pairs { ttft = run.ttfts, gap = run.gaps } do
        sort(list)
        found[name .. "_p50"] = _M.percentile(list, 50)
        found[name .. "_p90"] = _M.percentile(list, 90)
        found[name .. "_p99"] = _M.percentile(list, 99)
    end

    found.gap_p90 = nil

    return found
end


-- The mean of a list, and the half of its 95 % interval (nil: one value).
function _M.mean(list)
    local n, sum, squares = #list, 0, 0

    if n == 0 then
        return nil
    end

    for _, value in ipairs(list) do
        sum = sum + value
    end

    local mean = sum / n

    if n == 1 then
        return mean
    end

    for _, value in ipairs(list) do
        squares = squares + (value - mean) ^ 2
    end

    return mean, (T[n - 1] or 1.96) * sqrt(squares / (n - 1) / n)
end


-- ---- text -------------------------------------------------------------------

function _M.percent(value)
    return value and format("%.1f %%", 100 * value) or "-"
end


function _M.milliseconds(value)
    return value and format(value < 0.1 and "%.1f ms" or "%.0f ms",
                            1000 * value) or "-"
end


-- Characters of a text in UTF-8.
local function width_of(text)
    local _, more = gsub(text, "[\128-\191]", "")

    return #text - more
end


-- heads and each row: lists of strings.
function _M.columns(heads, rows)
    local widths, lines = {}, {}

    for i, head in ipairs(heads) do
        widths[i] = width_of(head)

        for _, row in ipairs(rows) do
            widths[i] = max(widths[i], width_of(row[i]))
        end
    end

    local function line(row, fill)
        local cells = {}

        for i, width in ipairs(widths) do
            local text = fill and rep("-", width) or row[i]

            cells[i] = text .. rep(" ", width - width_of(text))
        end

        lines[#lines + 1] = "| " .. concat(cells, " | ") .. " |"
    end

    line(heads)
    line(heads, true)

    for _, row in ipairs(rows) do
        line(row)
    end

    return concat(lines, "\n")
end


-- A table of how far each policy is from its bounds, see ceiling.lua.
function _M.bounds(policies, results)
    local rows = {}

    for i, policy in ipairs(policies) do
        local row = { policy.title }

        for _, name in ipairs { "mean", "p90" } do
            local ttft, bound = {}, {}

            for seed, run in ipairs(results[i]) do
                ttft[seed] = run["ttft_" .. name]
                bound[seed] = run["bound_" .. name]
            end

            ttft, bound = _M.mean(ttft), _M.mean(bound)
            row[#row + 1] = _M.milliseconds(ttft)
            row[#row + 1] = _M.milliseconds(bound)
            row[#row + 1] = format("%.2f", ttft / bound)
        end

        rows[i] = row
    end

    return _M.columns({ "policy", "TTFT mean", "bound", "times", "p90", "bound",
                        "times" }, rows)
end


return _M
