-- Copyright (C) the nginx-kv-router authors
--
-- Tests of policies without nginx, in plain LuaJIT.
--
--     -- test_premium.lua; run it by
--     -- LUA_PATH="lua/?.lua;/usr/share/lua/5.1/?.lua;;" luajit test_premium.lua
--
--     local testing = require "resty.kv_router.testing"
--
--     local policy = testing.policy("acme.premium", { blocks = 4 })
--     local ctx = testing.ctx({ { worker = "w1", device = 60 },
--                               { worker = "w2", active_requests = 9 } },
--                             { prompt_blocks = 62, prompt_tokens = 1000 },
--                             { request = { headers = { ["x-tier"] = "batch" },
--                                           fields = {} } })
--     local answer = testing.decide(policy, ctx)
--
--     assert(answer.worker == "w1" and answer.reason == "premium")
--
-- Where there is no table ngx, this module makes one for policies, as
-- resty.kv_router.tools.host says: require it before the policy.  What it does has no
-- effect on other processes.


local host = require "resty.kv_router.tools.host"


local _M = {
    log = {},            -- what was logged, an array of lines
    time = 1000,         -- ngx.now(), in seconds: it stands still, set it
}


if not rawget(_G, "ngx") then
    host.install(function(_, ...)
        _M.log[#_M.log + 1] = host.line(...)
    end, function()
        return _M.time
    end)
end


local new_random = require "resty.kv_router.request.random".new
local policy = require "resty.kv_router.policy"

local SEED = 42


-- Loads a policy as kv.new() does: what is its name or a table with pick(),
-- conf its policy_conf.  Returns an object with pick(ctx); raises an error when
-- kv.new() would.
function _M.policy(what, conf)
    local loaded, err = policy.load(what, conf)

    if not loaded then
        error(err, 2)
    end

    return loaded
end


-- Makes the ctx that pick() is given; it is good as long as the process lives.
--
--     workers   an array of tables with fields of candidates, as
--               resty.kv_router.policy names them.  Those not given are of an
--               idle worker of which nothing is known.  The names by default are
--               "0", "1" and so on.  Instead of role, confidence, health,
--               waiting_requests, running_requests and kv_usage, give role_id,
--               confidence_id, health_id, reported_waiting, reported_running and
--               reported_usage (numbers)
--     prompt    optional: prompt_tokens, prompt_blocks, block_size (16), hashes
--               (a uint64_t array), frequencies and nfrequencies
--     more      optional: fields of ctx, as request, params, wanted (3), now (100),
--               zone ("main")
--
-- The random numbers of each ctx are the same ones.
function _M.ctx(workers, prompt, more)
    local ctx = policy.context(host.match(workers, prompt),
                               { headers = {}, fields = {} }, nil,
                               new_random(SEED), 100, 3, "main")

    for key, value in pairs(more or {}) do
        ctx[key] = value
    end

    return ctx
end


-- Asks a policy that policy() returned, as nginx does: nothing that it does is
-- raised.  Returns a table: worker and rank of the choice, list (candidate
-- numbers from 1, the best first: retries follow it), reason, plan, and failed:
-- true when pick() has failed and the least loaded worker was taken; the cause is
-- then the last line of testing.log.
function _M.decide(loaded, ctx)
    local found, k, reason, failed, plan = policy.decide(loaded, ctx)
    local list = {}

    for i = 1, k do
        list[i] = found[i - 1] + 1
    end

    local best = ctx.candidates[list[1]]

    return { worker = best.worker, rank = best.rank, list = list,
             reason = reason, plan = plan, failed = failed ~= nil }
end


return _M
