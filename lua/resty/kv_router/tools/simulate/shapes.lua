-- Copyright (C) the nginx-kv-router authors
--
-- Workloads of kv-simulate whose numbers others have published.
--
--     catalog    the workload catalog of inference-perf (Kubernetes SIGs,
--                github.com/kubernetes-sigs/inference-perf, Apache-2.0): its
--                numbers alone
--     azure      AzureLLMInferenceTrace_code and _conv of 2023 (Patel et al.
--                2024, github.com/Azure/AzurePublicDataset, CC-BY):
--                percentiles of lengths, and rate and coefficient of variation
--                of gaps by windows of 300 s
--
-- Neither says what prompts share, but for the catalog's system prompts.
-- Azure's prompts share nothing here.


local draws = require "resty.kv_router.tools.simulate.draws"

local exponential = draws.exponential
local floor = math.floor
local min = math.min
local of = draws.of
local percentile = draws.percentile


local _M = {}


-- A conversation ends before it has more tokens than this, and the first
-- prompt has at most half of them.  The catalog has up to 3.4 millions.
local LONGEST = 131072


-- system: tokens of a prompt that all share.  first, add: what the first turn
-- and each other turn add to it.
local CATALOG = {
    -- The catalog has figures of calls: the mean prompt, and the mean part that
    -- it shares with the call before.  A session of the mean number of calls
    -- has these means when a call adds 49141 - 44636 tokens, the answer before
    -- it among them, and the first one has 2064.  The deviations are by the
    -- ratio of the prompts' deviation to their mean.
    ["agentic-trace-replay"] = {
        system = 0,
        turns = { "lognormal", 1, 300, 21.9, 23.4 },
        think = { "lognormal", 0, 7199.6, 13, 176.4 },
        first = { "lognormal", 1, LONGEST, 2064, 5833 },
        add = { "lognormal", 1, LONGEST, 3846, 10870 },
        output = { "lognormal", 1, 146112, 659.4, 3072.7 },
    },
    ["batch-summarization-rag"] = {
        system = 500,
        first = { "bimodal", 1000, 80000, 15000, 22000 },
        output = { "normal", 50, 2000, 500, 300 },
    },
    ["batch-synthetic-data-generation"] = {
        system = 2000,
        first = { "lognormal", 50, 15000, 500, 1200 },
        output = { "uniform", 500, 8000 },
    },
    ["code-generation"] = {
        system = 3000,
        turns = { "lognormal", 1, 3000, 540, 48600 },
        think = { "lognormal", 1, 1000, 15, 55 },
        first = { "lognormal", 10000, 990000, 160000, 233600 },
        add = { "lognormal", 100, 10000, 1500, 1200 },
        output = { "lognormal", 50, 10000, 425, 825 },
    },
    ["deep-research"] = {
        system = 2000,
        turns = { "normal", 2, 50, 15, 8.5 },
        think = { "normal", 5, 60, 25, 12 },
        first = { "exponential", 2000, 150000, 45000 },
        add = { "lognormal", 500, 15000, 3000, 2500 },
        output = { "bimodal", 50, 4000, 300, 850 },
    },
    ["interactive-chat"] = {
        system = 1000,
        turns = { "lognormal", 1, 15, 4, 2.5 },
        think = { "lognormal", 5, 300, 45, 40 },
        first = { "lognormal", 500, 15000, 4000, 2500 },
        add = { "lognormal", 10, 1000, 50, 40 },
        output = { "normal", 10, 1000, 300, 150 },
    },
    reasoning = {
        system = 250,
        first = { "lognormal", 100, 5000, 1000, 800 },
        output = { "exponential", 500, 32000, 8000 },
    },
}

-- Percentiles of tokens, and windows of { requests per second, variation }.
local AZURE = {
    ["azure-code"] = {
        input = { { 10, 147 }, { 50, 1469 }, { 90, 5186 }, { 99, 7436 } },
        output = { { 10, 7 }, { 50, 13 }, { 90, 55 }, { 99, 249 } },
        windows = { { 2.6, 13.86 }, { 2.34, 10.15 }, { 3.72, 19.55 },
                    { 3.43, 15.28 }, { 4.0, 9.65 }, { 3.04, 10.43 },
                    { 2.94, 7.63 }, { 2.9, 9.55 }, { 1.92, 10.77 },
                    { 0.11, 0.86 }, { 1.21, 8.47 }, { 1.19, 9.37 } },
    },
    ["azure-conv"] = {
        input = { { 10, 207 }, { 50, 1020 }, { 90, 2734 }, { 99, 4142 } },
        output = { { 10, 54 }, { 50, 129 }, { 90, 424 }, { 99, 601 } },
        windows = { { 4.82, 1.19 }, { 4.74, 1.01 }, { 5.19, 1.01 },
                    { 5.2, 0.99 }, { 6.28, 1.02 }, { 7.46, 1.05 },
                    { 7.43, 1.05 }, { 6.13, 1.06 }, { 5.67, 1.02 },
                    { 4.75, 1.05 }, { 4.32, 1.03 }, { 2.56, 1.2 } },
    },
}
local WINDOW = 300               -- seconds


local function of_catalog(shape, draw, list, at, size)
    local system = floor(shape.system / size)
    local tokens = system * size
    local turns = {}

    for i = 1, shape.turns and of(draw, shape.turns) or 1 do
        local add = i > 1 and of(draw, shape.add)
                    or min(of(draw, shape.first), LONGEST / 2)
        local output = min(of(draw, shape.output), LONGEST / 4)

        tokens = tokens + add + output

        if tokens > LONGEST then
            break
        end

        turns[i] = { think = i > 1 and of(draw, shape.think) or 0, add = add,
                     output = output }
    end

    list[#list + 1] = { at = at, turns = turns,
                        parts = system > 0 and { { 1, system } } or {} }

    return #turns
end


-- The gap behind the request of that number.  It is 0 or exponential, so that
-- its mean and its variation are those of the window.
local function gap_of(windows, draw, number)
    local ends = 0
    local rate, variation

    for _, window in ipairs(windows) do
        rate, variation = unpack(window)
        ends = ends + WINDOW * rate

        if number < ends then
            break
        end
    end

    local share = min(1, 2 / (1 + variation ^ 2))

    return draw() < share and exponential(draw, 1 / rate / share) or 0
end


local function of_azure(shape, draw, list, at)
    list[#list + 1] = {
        at = at, parts = {},
        turns = { { think = 0, add = percentile(draw, shape.input),
                    output = percentile(draw, shape.output) } } }

    return 1, gap_of(shape.windows, draw, #list)
end


-- Adds all to the kinds of workload.lua.  Each draws one conversation that
-- begins at a time, into list, and returns how many requests it has, and the
-- seconds until the next one begins, or nil.
function _M.add(kinds)
    for name, shape in pairs(CATALOG) do
        kinds[name] = function(...) return of_catalog(shape, ...) end
    end

    for name, shape in pairs(AZURE) do
        kinds[name] = function(...) return of_azure(shape, ...) end
    end
end


return _M
