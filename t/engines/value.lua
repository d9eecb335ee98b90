-- kv-simulate's forecast of what value.py runs:
--
--     luajit value.lua LIBRARY < JSON
--
-- JSON is { conf, talks, homes, policies }: conf of world.run() without seed
-- and policy, conversations of workload.lua, for each own stream of these the
-- number of the worker that a hash of the session names, and names of policies,
-- those of nginx itself among them.  Prints a line of JSON for each policy.


local host = require "resty.kv_router.tools.host"

local clock = { now = 0 }

host.install(function() end, function() return clock.now end)

local figures = require "resty.kv_router.tools.simulate.figures"
local index = require "resty.kv_router.tools.simulate.index"
local json = require "cjson"
local world = require "resty.kv_router.tools.simulate.world"

local given = json.decode(io.read("*a"))


-- What nginx does by itself, by name: chooses one of the candidates.
local PLAIN = {}

function PLAIN.home(ctx)
    return given.homes[ctx.request.headers["x-session-id"]]
end

-- The fewest requests; those that have equally many take turns.
function PLAIN.least_conn(ctx, current)
    local candidates = ctx.candidates
    local least, best, total = math.huge, nil, 0

    for i = 1, #candidates do
        least = math.min(least, candidates[i].active_requests)
    end

    for i = 1, #candidates do
        if candidates[i].active_requests == least then
            current[i] = (current[i] or 0) + 1
            total = total + 1

            if not best or current[i] > current[best] then
                best = i
            end
        end
    end

    current[best] = current[best] - total

    return best
end

for name, choose in pairs(PLAIN) do
    package.preload["resty.kv_router.policy." .. name] = function()
        return {
            name = name,
            new = function()
                local state = {}

                return { name = name, pick = function(_, ctx)
                    return choose(ctx, state), nil, name
                end }
            end,
        }
    end
end


index.load(arg[1])

for _, name in ipairs(given.policies) do
    local conf = given.conf

    conf.seed, conf.policy = 1, { name = name }

    local run = assert(world.run(conf, given.talks, clock, function() end))
    local sum = 0

    assert(run.faults == 0, "a policy has failed")

    for _, ttft in ipairs(run.ttfts) do
        sum = sum + ttft
    end

    local found = figures.of(run)

    print(json.encode({
        policy = name, requests = run.requests, hit = run.had,
        ttft_mean = sum / #run.ttfts, ttft_p50 = found.ttft_p50,
        ttft_p90 = found.ttft_p90, seconds = run.seconds,
        busy = run.busy, worst_share = run.worst_share,
        preempted = run.preempted,
    }))
end
