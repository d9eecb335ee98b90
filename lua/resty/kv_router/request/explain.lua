-- Copyright (C) the nginx-kv-router authors
--
-- How a request would be routed, for people: router:explain() and POST /route
-- of the API.


local ffi = require "ffi"
local lib = require "resty.kv_router.ffi"
local policy = require "resty.kv_router.policy"

local ffi_new = ffi.new
local find = string.find
local gsub = string.gsub
local get_method = ngx.req.get_method
local ngx = ngx
local ngx_exit = ngx.exit
local print = ngx.print
local rawget = rawget
local tonumber = tonumber
local var = ngx.var


local _M = {}


local RETRY_AFTER = 1            -- seconds
local UNKNOWN = 0 / 0            -- null in JSON


-- Is the request in the API's location one for POST .../route, or another call?
function _M.asked(call)
    return get_method() == "POST" and find(var.uri, call or "/route$") ~= nil
end


-- Costs by candidate, as an array of doubles from 0; nil: the policy has none.
-- To be asked before decide(): what that returns is good until a policy is
-- asked again.
function _M.costs(chosen, ctx)
    local dry = ctx.dry

    ctx.dry = true

    local given = policy.costs(chosen, ctx)

    ctx.dry = dry

    if not given then
        return nil
    end

    local n = #ctx.candidates
    local costs = ffi_new("double[?]", n)

    for i = 1, n do
        costs[i - 1] = tonumber(rawget(given, i)) or UNKNOWN
    end

    return costs
end


-- The JSON of what the router would do with a request that was matched.
-- wanted: how many candidates, the choice and those that retries follow; why:
-- of lib.WHY, or nil; now: seconds.
function _M.text(router, r, zone, req, found, params, why, random, now)
    local chosen = router.policy
    local ctx = policy.context(found, req, params, random, now,
                               router.max_tries + 1, router.name)

    ctx.dry = true

    local costs = _M.costs(chosen, ctx)
    local list, k, reason, failed, plan = policy.decide(chosen, ctx)

    return lib.explain(r, zone, chosen.name, failed or why or found.why,
                       reason, list, k, plan and plan.prefill, costs)
end


-- Answers the request: text, or what is wrong, and whether that is for want of
-- workers.
function _M.answer(text, err, none)
    local status = 200

    if not text then
        status = none and 503 or 500
        text = '{"error":"' .. gsub(err, '[%c"\\]', " ") .. '"}'

        if none then
            ngx.header["Retry-After"] = RETRY_AFTER
        end
    end

    ngx.status = status
    ngx.header["Content-Type"] = "application/json"
    print(text .. "\n")

    return ngx_exit(status)
end


return _M
