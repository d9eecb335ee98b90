-- Copyright (C) the nginx-kv-router authors
--
-- A router of kv-simulate: asks a policy as nginx does, and counts the load
-- that it has put on each worker.  Several routers share the index, and each
-- knows its own load alone, as several nginx do.


local ffi = require "ffi"
local host = require "resty.kv_router.host"
local lib = require "resty.kv_router.ffi"
local new_random = require "resty.kv_router.random".new
local new_request = require "resty.kv_router.request".new
local policy = require "resty.kv_router.policy"

local cast = ffi.cast
local decide = policy.decide
local ffi_new = ffi.new
local finish = policy.finish
local max = math.max
local min = math.min
local pairs = pairs
local setmetatable = setmetatable


local _M = {}
local mt = { __index = _M }


local WANTED = 3                 -- max_tries is 2 by default: 1 + 2 candidates
local EXACT

for id, name in pairs(lib.CONFIDENCES) do
    if name == "EXACT" then
        EXACT = id
    end
end


-- number: of this router, from 0.  what: { name, conf } of a policy.  Returns
-- nil and a sentence when the policy can't be loaded.
function _M.new(number, index, what, workers, block_size, seed)
    local loaded, err = policy.load(what.name, what.conf)

    if not loaded then
        return nil, err
    end

    local list = {}

    for i = 1, workers do
        list[i] = { worker = "w" .. i - 1, confidence_id = EXACT, age = 0 }
    end

    local match = host.match(list, { block_size = block_size })

    return setmetatable({
        number = number,
        index = index,
        policy = loaded,
        workers = workers,
        block_size = block_size,
        match = match,
        candidates = cast("ngx_http_kv_router_candidate_t *",
                          match.candidates),
        depths = ffi_new("uint32_t[?]", workers),
        flying = ffi_new("uint32_t[?]", workers),
        random = new_random(seed),
        outcome = ffi_new("ngx_http_kv_router_outcome_t"),
        faults = 0,
    }, mt)
end


-- Chooses a worker for a request, and reserves there.  Returns the worker, and
-- the number of the prompt's blocks that the index has for it.
function _M:route(request, now)
    local match, depths, flying = self.match, self.depths, self.flying
    local n, size = request.prompt_blocks, self.block_size
    local candidates, best = self.candidates, 0

    self.index:find(request.locals, n, depths)
    self.index:flying(self.number, request.locals, n, flying)

    for i = 0, self.workers - 1 do
        local c = candidates[i]
        local depth = depths[i]

        c.device, c.host, c.disk = depth, depth, depth
        c.in_flight = flying[i]
        c.additional_blocks = n - flying[i]
        c.churn = self.index:churn(i, now)
        best = max(best, depth)
    end

    match.prompt_tokens = request.prompt
    match.prompt_blocks = n
    match.hashes = request.locals
    match.best = best

    host.request = { method = "POST", uri = "/v1/chat/completions",
                     headers = { ["x-session-id"] = request.session },
                     body = "{}" }

    local ctx = policy.context(match, new_request(), nil, self.random, now,
                               WANTED)
    local chosen, _, _, failed = decide(self.policy, ctx)
    local i = chosen[0]
    local c = candidates[i]

    if failed then
        self.faults = self.faults + 1
    end

    request.ctx = ctx
    request.prefill_tokens = request.prompt - min(max(depths[i], flying[i])
                                                  * size, request.prompt)
    request.flight, request.decode_blocks = self.index:fly(
        self.number, i, request.locals, n)

    c.active_requests = c.active_requests + 1
    c.active_prefills = c.active_prefills + 1
    c.prefill_tokens = c.prefill_tokens + request.prefill_tokens
    c.decode_blocks = c.decode_blocks + request.decode_blocks

    return i, depths[i]
end


-- The first token of a request has come.
function _M:prefilled(request)
    local c = self.candidates[request.worker]

    c.active_prefills = c.active_prefills - 1
    c.prefill_tokens = c.prefill_tokens - request.prefill_tokens
end


-- The answer has grown by a block.
function _M:grown(request)
    local c = self.candidates[request.worker]

    c.decode_blocks = c.decode_blocks + 1
    request.grown = (request.grown or 0) + 1
end


-- The request has ended.
function _M:done(request, now)
    local c = self.candidates[request.worker]
    local ended = self.index:land(self.number, request.worker, request.flight)

    c.active_requests = c.active_requests - 1
    c.decode_blocks = max(0, c.decode_blocks - ended - (request.grown or 0))

    if self.policy.done then
        local outcome = self.outcome

        outcome.worker_data, outcome.worker_len = c.worker_data, c.worker_len
        outcome.holder, outcome.rank = c.holder, 0
        outcome.tries, outcome.status = 1, 200
        outcome.first_byte_us = (request.first_at - request.arrived) * 1e6
        outcome.total_us = (now - request.arrived) * 1e6

        finish(self.policy, request.ctx, outcome)
    end

    request.ctx = nil
end


return _M
