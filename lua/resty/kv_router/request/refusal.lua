-- Copyright (C) the nginx-kv-router authors
--
-- The answers to requests that are not sent to a worker: JSON as OpenAI's API has
-- it.  Each function ends the request, and returns what ngx.exit() does.


local lib = require "resty.kv_router.ffi"
local limited = require "resty.kv_router.request.log".limited
local log = require "resty.kv_router.request.log"

local WARN = ngx.WARN
local WHY = lib.WHY
local floor = math.floor
local format = string.format
local max = math.max
local min = math.min
local ngx = ngx
local ngx_exit = ngx.exit
local print = ngx.print
local random = math.random


local _M = {}


local SOONEST, LATEST = 1, 60    -- seconds, of Retry-After

local BODY = '{"error":{"message":"%s","type":"%s","param":%s,"code":"%s"}}\n'
local NO_WORKER = format(BODY, "no worker is available", "service_unavailable",
                         "null", "no_worker")
local UNKNOWN_MODEL = format(BODY, "the model does not exist",
                             "invalid_request_error", '"model"',
                             "model_not_found")
local PAIR = format(BODY, "the policy wants another worker to prefill, and "
                          .. "POST /select reserves one: route this model by a "
                          .. "policy without roles, or through nginx",
                    "not_implemented", "null", "pair")

-- Messages, by the code of the answer.
local OVERLOADS = {
    queue_full = "too many requests wait",
    tenant_limit = "the tenant has its maximum number of requests",
    too_late = "the request could not be served in time",
    overload = "all workers are busy",
}


-- after: seconds, as far as is known, until another try may end otherwise; nil:
-- none will.
local function refuse(status, body, after)
    ngx.status = status
    ngx.header["Retry-After"] = after
                                and floor(min(max(after, SOONEST), LATEST)
                                          * (0.9 + 0.2 * random()) + 0.5)
    ngx.header["Content-Type"] = "application/json"
    print(body)

    return ngx_exit(status)
end


-- No worker serves the model.
function _M.not_found(zone)
    lib.refused(zone, WHY.UNKNOWN_MODEL)

    return refuse(404, UNKNOWN_MODEL)
end


-- There is no worker, or, where zone is nil, none was found: this is counted
-- elsewhere.
function _M.no_worker(zone)
    if zone then
        lib.refused(zone, WHY.NO_WORKER)
    end

    return refuse(503, NO_WORKER, SOONEST)
end


-- POST /select can't have two workers.
function _M.pair()
    return refuse(501, PAIR)
end


-- There is no room.  router: its name and overload_status; why: the code of the
-- answer; after: as above.
function _M.overloaded(router, zone, why, after)
    if why == "no_worker" then
        return _M.no_worker(zone)
    end

    lib.refused(zone, WHY.OVERLOAD)
    limited("overload " .. why, log.MINUTE, WARN, 'zone "' .. router.name
            .. '": requests are refused: ' .. OVERLOADS[why])

    return refuse(why == "overload" and router.overload_status or 429,
                  format(BODY, OVERLOADS[why], "overloaded", "null", why),
                  after or SOONEST)
end


return _M
