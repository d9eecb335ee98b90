-- Copyright (C) the nginx-kv-router authors
--
-- Remote prefill: carries out what a policy planned (the last value that
-- pick() returns) before the request goes to the worker that generates.  The
-- two protocols are those of the engines' own proxies.
--
-- "vllm" (its connectors for NIXL, Mooncake and others): the prefill worker is
-- sent the request for one token, not streamed, with
--
--     "kv_transfer_params": {"do_remote_decode":true,
--                            "do_remote_prefill":false, ...}
--
-- and what it answers as kv_transfer_params goes in the request to the decode
-- worker.  Both have the same X-Request-Id.  The client's headers are not
-- passed to the prefill worker, but Authorization is, and one with several
-- ranks is told which in x-data-parallel-rank.  The headers that the zone has
-- for its engines are sent as well; an Authorization among them takes the place
-- of the client's.
--
-- "sglang": both are sent the request at the same time, with bootstrap_host
-- and bootstrap_port of the prefill worker, and a bootstrap_room drawn for the
-- request (all three as lists when it has several prompts).  The answer of the
-- prefill worker is not read: its connection is closed with the request, so
-- that a client that goes away ends both.
--
-- When a prefill worker fails the next one is asked, and when all fail the
-- request goes on without: a vLLM worker prefills itself, an SGLang one
-- refuses.  What fails counts for the worker's health, as requests do: one that
-- is out is not asked.
--
-- Settings, in the plan: prefill, protocol (resty.kv_router.policy), timeout
-- (seconds, 60), connect_timeout (seconds, 2, timeout at most), and for
-- "sglang" ports, one for each of prefill.


local cjson = require "cjson.safe"
local http = require "resty.kv_router.tokens.http"
local json = require "resty.kv_router.tokens.json"
local lib = require "resty.kv_router.ffi"

local clear_header = ngx.req.clear_header
local concat = table.concat
local decode = cjson.decode
local fields_of = json.fields
local find = string.find
local floor = math.floor
local format = string.format
local ipairs = ipairs
local min = math.min
local new_socket = ngx.socket.tcp
local next = next
local ngx = ngx
local object = json.object
local pairs = pairs
local rep = string.rep
local set_body_data = ngx.req.set_body_data
local set_header = ngx.req.set_header
local sub = string.sub
local type = type
local var = ngx.var


local _M = {}


local FAILED = lib.FAILED
local TIMEOUT = 60               -- seconds
local CONNECT_TIMEOUT = 2
local MAX_ANSWER = 2^20          -- bytes; one token and some numbers

-- what a request for one token has else than the client's
local ONE_TOKEN = {
    kv_transfer_params = '{"do_remote_decode":true,"do_remote_prefill":false,'
                         .. '"remote_engine_id":null,"remote_block_ids":null,'
                         .. '"remote_host":null,"remote_port":null}',
    stream = "false",
    max_tokens = "1",
    stream_options = false,
    min_tokens = false,
    min_completion_tokens = false,
}

local run = {}


-- Lines of headers for the prefill worker, candidate i.
local function header_lines(job, i, id)
    local lines = id and "X-Request-Id: " .. id .. "\r\n" or ""
    local authorization = not job.engine.authorized
                          and var.http_authorization

    if authorization then
        lines = lines .. "Authorization: " .. authorization .. "\r\n"
    end

    local rank = lib.rank(job.r, job.zone, i - 1)

    if rank then
        lines = lines .. "x-data-parallel-rank: " .. rank .. "\r\n"
    end

    return lines
end


-- Options of resty.kv_router.tokens.http.
local function options(plan, job)
    local timeout = plan.timeout or TIMEOUT

    return { timeout = timeout * 1000,
             connect_timeout = min(timeout, plan.connect_timeout
                                            or CONNECT_TIMEOUT) * 1000,
             limit = MAX_ANSWER, engine = job.engine }
end


-- What an error of resty.kv_router.tokens.http is for the worker's health.
local function kind_of(err)
    if sub(err, 1, 8) == "connect:" then
        return FAILED.connect
    end

    if find(err, "timeout", 1, true) then
        return FAILED.timeout
    end

    if find(err, "closed", 1, true) or find(err, "reset", 1, true)
       or find(err, "pipe", 1, true)
    then
        return FAILED.reset
    end

    return FAILED.invalid
end


-- It understood, and another would say the same.
local function refused(status)
    return status and status >= 400 and status < 500 and status ~= 404
           and status ~= 408 and status ~= 429
end


-- The kv_transfer_params of an answer; or nil, what is wrong, and which of
-- FAILED that is: nil when the worker is well all the same.
local function judge(status, answer)
    if not status then
        return nil, answer, kind_of(answer)
    end

    if status ~= 200 then
        return nil, "status " .. status,
               status >= 500 and FAILED.status or nil
    end

    local fields = fields_of(answer)
    local params = fields and fields.kv_transfer_params

    if params and params ~= "null" then
        return params
    end

    return nil, "no kv_transfer_params in the answer",
           not fields and FAILED.invalid or nil
end


function run.vllm(plan, job)
    local fields = job.request.fields
    local id = var.http_x_request_id

    if not id then
        id = var.request_id
        set_header("X-Request-Id", id)
    end

    ONE_TOKEN.max_completion_tokens = fields.max_completion_tokens and "1"

    local body = object(fields, ONE_TOKEN)
    local opts = options(plan, job)
    local err

    for _, i in ipairs(plan.prefill) do
        local address = job.found[i].address
        local ok, why = lib.prefill(job.r, job.zone, i - 1)
        local status, answer, params, how

        if ok then
            opts.headers = header_lines(job, i, id)
            status, answer = http.post(new_socket(), address, job.path, body,
                                       opts)
            params, why, how = judge(status, answer)

            lib.prefill_ended(job.r, job.zone, how)
        end

        if params then
            set_body_data(object(fields, { kv_transfer_params = params }))
            return true
        end

        err = address .. ": " .. why

        if refused(status) then
            break
        end
    end

    return nil, err
end


-- How many prompts there are when they come as a list, else nil.
local function batch_of(fields)
    local several = fields.text or fields.input_ids

    if not several or not find(several, fields.text and "^%[" or "^%[%s*%[")
    then
        return nil
    end

    several = decode(several)

    return type(several) == "table" and #several > 0 and #several or nil
end


-- A number from 0 to 2^53 - 1, in digits.
local function room(random)
    return format("%.0f", floor(random() * 2^21) * 2^32
                          + floor(random() * 2^32))
end


local function list(n, value_of)
    local values = {}

    for i = 1, n do
        values[i] = value_of()
    end

    return "[" .. concat(values, ",") .. "]"
end


function run.sglang(plan, job)
    local fields = job.request.fields
    local n = batch_of(fields)
    local opts = options(plan, job)
    local err

    for k, i in ipairs(plan.prefill) do
        local address = job.found[i].address
        local host = http.split(address)
        local port = format("%d", plan.ports[k])
        local changes = { bootstrap_host = '"' .. (host or "") .. '"',
                          bootstrap_port = port }

        if n then
            changes.bootstrap_host = "[" .. rep(changes.bootstrap_host, n, ",")
                                     .. "]"
            changes.bootstrap_port = "[" .. rep(port, n, ",") .. "]"
            changes.bootstrap_room = list(n, function()
                return room(job.random)
            end)

        else
            changes.bootstrap_room = room(job.random)
        end

        local body = object(fields, changes)
        local sock = new_socket()
        local ok, why = lib.prefill(job.r, job.zone, i - 1)

        if ok then
            opts.headers = header_lines(job, i)
            ok, why = http.send(sock, address, job.path, body, opts)

            if ok then
                set_body_data(body)

                -- open as long as the request
                ngx.ctx[_M] = sock

                return true
            end

            lib.prefill_ended(job.r, job.zone, kind_of(why))
        end

        err = address .. ": " .. why
    end

    return nil, err
end


-- Sets the plan's headers, and has the prompt prefilled as it says.  job: r,
-- zone, request (ctx.request), found (the match), random, engine (engine() of
-- tokens/engines.lua).  The request has its reservation.  Yields.  Returns
-- true, or nil and what is wrong.
function _M.run(plan, job)
    for name, value in pairs(plan.headers or {}) do
        if value then
            set_header(name, value)
        else
            clear_header(name)
        end
    end

    if not plan.prefill then
        return true
    end

    -- a path that a client has spoilt is no part of a request of ours
    job.path = var.uri

    if not find(job.path, "^/[%w/._~-]*$") then
        return nil, "a path with characters that need no place there"
    end

    if next(job.request.fields) == nil then
        return nil, "no JSON object in the body"
    end

    return run[plan.protocol](plan, job)
end


return _M
