-- Copyright (C) the nginx-kv-router authors
--
-- What kv-simulate --compare prints of two results of --json.


local figures = require "resty.kv_router.tools.simulate.figures"
local json = require "cjson"

local format = string.format


local _M = {}


local function read(name, fail)
    local file, err = io.open(name)

    if not file then
        fail(2, "%s can't be read: %s", name, err)
    end

    local ok, found = pcall(json.decode, file:read("*a"))

    file:close()

    if not ok or type(found) ~= "table" or type(found.runs) ~= "table" then
        fail(2, "%s: no results of kv-simulate --json", name)
    end

    return found
end


local COMPARED = { { "hit rate", "had", 100, "%.2f points" },
                   { "TTFT p50", "ttft_p50", 1000, "%.1f ms" },
                   { "TTFT p90", "ttft_p90", 1000, "%.1f ms" },
                   { "TTFT p99", "ttft_p99", 1000, "%.1f ms" },
                   { "gap p99", "gap_p99", 1000, "%.1f ms" } }

-- What the second file's runs have more than the first one's, seed by seed.
-- fail(status, format, ...): ends the program.
function _M.run(first, second, fail)
    local others, rows = {}, {}

    for _, run in ipairs(read(second, fail).runs) do
        others[run.policy] = run.seeds
    end

    for _, run in ipairs(read(first, fail).runs) do
        local other = others[run.policy]

        for _, what in ipairs(other and COMPARED or {}) do
            local differences = {}

            for i, found in ipairs(run.seeds) do
                if other[i] then
                    differences[#differences + 1] = other[i][what[2]]
                                                    - found[what[2]]
                end
            end

            local mean, half = figures.mean(differences)

            rows[#rows + 1] = { run.policy, what[1],
                                format(what[4], mean * what[3]),
                                half and format("± " .. what[4],
                                                half * what[3]) or "-" }
        end
    end

    if #rows == 0 then
        fail(2, "the two files have no policy in common")
    end

    print(figures.columns({ "policy", "figure", "second - first",
                            "95 % interval" }, rows))
end


return _M
