-- kv-simulate's forecast of what value.py runs:
--
--     luajit value.lua LIBRARY < JSON
--
-- JSON is { conf, talks, homes, policies }: conf of world.run() without seed
-- and policy, conversations of workload.lua, for each own stream of these the
-- number of the worker that a hash of the session names, and names of policies,
-- "home" among them.  Prints a line of JSON for each policy.


local host = require "resty.kv_router.tools.host"

local clock = { now = 0 }

host.install(function() end, function() return clock.now end)

local figures = require "resty.kv_router.tools.simulate.figures"
local index = require "resty.kv_router.tools.simulate.index"
local json = require "cjson"
local world = require "resty.kv_router.tools.simulate.world"

local given = json.decode(io.read("*a"))


-- What nginx does by hash $http_x_session_id.
local home = { name = "home" }

package.preload["resty.kv_router.policy.home"] = function()
    return {
        name = "home",
        new = function() return home end,
    }
end

function home:pick(ctx)
    return given.homes[ctx.request.headers["x-session-id"]], nil, "home"
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
