-- Copyright (C) the nginx-kv-router authors
--
-- A router of kv-simulate: asks a policy as nginx does, and counts the load
-- that it has put on each worker.  Several routers share the index.  Each knows
-- its own load alone, and that of the others when it has a group.


local ffi = require "ffi"
local group = require "resty.kv_router.tools.simulate.group"
local host = require "resty.kv_router.tools.host"
local lib = require "resty.kv_router.ffi"
local new_queue = require "resty.kv_router.tools.simulate.queue".new
local new_random = require "resty.kv_router.request.random".new
local new_request = require "resty.kv_router.request.request".new
local policy = require "resty.kv_router.policy"
local pulls = require "resty.kv_router.tools.simulate.pulls"
local simulated = require "resty.kv_router.tools.simulate.index"

local cast = ffi.cast
local decide = policy.decide
local ffi_new = ffi.new
local finish = policy.finish
local floor = math.floor
local max = math.max
local min = math.min


local _M = {}
local mt = { __index = _M }


local WANTED = 3                 -- max_tries is 2 by default: 1 + 2 candidates
local CONFIDENCE = {}            -- by name

for id, name in pairs(lib.CONFIDENCES) do
    CONFIDENCE[name] = id
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
        list[i] = { worker = "w" .. i - 1, age = 0,
                    confidence_id = CONFIDENCE.EXACT }
    end

    local match = host.match(list, { block_size = block_size })
    local worker_of = ffi_new("uint32_t[?]", workers)
    local place_of = ffi_new("uint32_t[?]", workers)

    for i = 0, workers - 1 do
        worker_of[i], place_of[i] = i, i
    end

    return setmetatable({
        number = number,
        index = index,
        policy = loaded,
        worker_of = worker_of,   -- by place among the candidates, from 0
        place_of = place_of,     -- by worker
        block_size = block_size,
        workers = workers,
        match = match,
        candidates = cast("ngx_http_kv_router_candidate_t *",
                          match.candidates),
        depths = ffi_new("uint32_t[?]", workers),
        flying = ffi_new("uint32_t[?]", workers),
        speeds = ffi_new("double[?]", workers),     -- of prefill, by worker
        queued = ffi_new("double[?]", workers),     -- tokens of all prefills
        begun = ffi_new("double[?]", workers),      -- when the running one began
        random = new_random(seed),
        outcome = ffi_new("ngx_http_kv_router_outcome_t"),
        alone = group.rows(workers),    -- the load of others: none
        faults = 0,
    }, mt)
end


-- The router becomes a member of a group: conf and plan are those of
-- group.new().
function _M:share(conf, plan)
    self.group = group.new(self.number, conf, function(worker, row)
        local c = self.candidates[self.place_of[worker]]

        row.active, row.prefills = c.active_requests, c.active_prefills
        row.queued, row.begun = self.queued[worker], self.begun[worker]
        row.decode = c.decode_blocks
    end, plan)
end


-- The engines pull: pull and times are those of pulls.decide().
function _M:pull(pull, times)
    self.pulling, self.times = pull, times
end


-- The router has bounds, and a queue: conf and requests are those of queue.lua.
function _M:bound(conf, requests)
    self.queue = new_queue(self, conf, conf.workers, requests)
end


-- ---- workers that come and go -----------------------------------------------

local function exchange(self, a, b)
    local candidates = self.candidates
    local worker_of, place_of = self.worker_of, self.place_of
    local kept = ffi_new("ngx_http_kv_router_candidate_t", candidates[a])

    candidates[a] = candidates[b]
    candidates[b] = kept
    worker_of[a], worker_of[b] = worker_of[b], worker_of[a]
    place_of[worker_of[a]], place_of[worker_of[b]] = a, b
end


-- The worker is no candidate until it joins again.
function _M:leave(worker)
    local last = self.match.n - 1

    exchange(self, self.place_of[worker], last)
    self.match.n = last
end


function _M:join(worker)
    exchange(self, self.place_of[worker], self.match.n)
    self.match.n = self.match.n + 1
end


-- The worker's view is exact from now on, or not until it is repaired.
function _M:trust(worker, exact)
    self.candidates[self.place_of[worker]].confidence_id
        = exact and CONFIDENCE.EXACT or CONFIDENCE.SYNCING
end


-- ---- bounds -----------------------------------------------------------------

-- Is the worker there?
function _M:here(worker)
    return self.place_of[worker] < self.match.n
end


-- The requests of this router at a worker.
function _M:active(worker)
    return self.candidates[self.place_of[worker]].active_requests
end


-- Writes to out[w] the tokens of a prompt that each worker w would prefill.
function _M:uncached(request, out)
    local depths, flying = self.depths, self.flying
    local locals, n = request.locals, request.prompt_blocks

    self.index:find(locals, n, depths)
    self.index:flying(self.number, locals, n, flying)

    for worker = 0, self.workers - 1 do
        out[worker] = request.prompt
                      - min(max(depths[worker], flying[worker])
                            * self.block_size, request.prompt)
    end
end


-- Puts the workers without room behind the others; returns the number of these.
local function narrow(self)
    local n, i = self.match.n, 0

    while self.queue and i < n do
        if self.queue:room(self.worker_of[i]) then
            i = i + 1

        else
            n = n - 1
            exchange(self, i, n)
        end
    end

    return n
end


-- ---- requests ---------------------------------------------------------------

-- Adds a row of others, times `sign`, to a candidate.
local function lend(c, row, sign)
    c.active_requests = c.active_requests + sign * row.active
    c.active_prefills = c.active_prefills + sign * row.prefills
    c.decode_blocks = c.decode_blocks + sign * row.decode
end


-- Chooses a worker with room for a request, and reserves there.  Returns the
-- worker, and the number of the prompt's blocks that the index has for it.
function _M:route(request, now)
    local match, depths, flying = self.match, self.depths, self.flying
    local all, room = match.n, narrow(self)
    local n, size = request.prompt_blocks, self.block_size
    local candidates, worker_of, best = self.candidates, self.worker_of, 0
    local speeds, queued, begun = self.speeds, self.queued, self.begun

    self.index:find(request.locals, n, depths)
    self.index:flying(self.number, request.locals, n, flying)

    local others, any = self.alone, false

    if self.group then
        others, any = self.group:load(now)
    end

    if any then
        self.group:raise(request.names, n, flying, now)
    end

    for i = 0, match.n - 1 do
        local c, worker = candidates[i], worker_of[i]
        local depth = depths[worker]

        c.device, c.host, c.disk = depth, depth, depth
        c.in_flight = flying[worker]
        c.additional_blocks = n - flying[worker]
        c.churn = self.index:churn(worker, now)
        c.prefill_tps = speeds[worker]

        local row = others[worker]

        lend(c, row, 1)
        c.prefill_tokens = floor(simulated.left(
            queued[worker] + row.queued, c.active_prefills, speeds[worker],
            1000 * (now - max(begun[worker], row.begun))))
        best = max(best, depth)
    end

    match.prompt_tokens = request.prompt
    match.prompt_blocks = n
    match.hashes = request.locals
    match.best = best

    host.request = { method = "POST", uri = "/v1/chat/completions",
                     headers = { ["x-session-id"] = request.session },
                     body = "{}" }

    match.n = room

    local ctx = policy.context(match, new_request(), nil, self.random, now,
                               WANTED)

    ctx.foreign = self.group and self.group.foreign

    local chosen, _, _, failed = decide(self.policy, ctx)
    local c = candidates[chosen[0]]
    local worker = worker_of[chosen[0]]

    match.n = all

    if failed then
        self.faults = self.faults + 1
    end

    request.ctx = ctx
    request.routed = now
    request.prefill_tokens = request.prompt
                             - min(max(depths[worker], flying[worker]) * size,
                                   request.prompt)

    if self.pulling then
        request.prefill_tokens = max(0, request.prefill_tokens - pulls.decide(
            self.pulling, self.times, self, request, worker))
    end

    request.flight, request.decode_blocks = self.index:fly(
        self.number, worker, request.locals, n, flying[worker],
        c.decode_blocks)

    -- tokens before the first one of the answer, as far as the router knows
    request.sample = c.prefill_tokens + request.prefill_tokens

    for i = 0, match.n - 1 do
        lend(candidates[i], others[worker_of[i]], -1)
    end

    if c.active_prefills == 0 then
        begun[worker] = now
    end

    c.active_requests = c.active_requests + 1
    c.active_prefills = c.active_prefills + 1
    queued[worker] = queued[worker] + request.prefill_tokens
    c.decode_blocks = c.decode_blocks + request.decode_blocks
    request.worker = worker

    if self.group then
        self.group:added(request, max(depths[worker], flying[worker]), now)
    end

    if self.queue then
        self.queue:passed(request)
    end

    return worker, depths[worker]
end


local function candidate_of(self, request)
    return self.candidates[self.place_of[request.worker]]
end


local function prefill_ended(self, request, now)
    local worker = request.worker
    local c = candidate_of(self, request)

    c.active_prefills = c.active_prefills - 1
    self.queued[worker] = self.queued[worker] - request.prefill_tokens
    self.begun[worker] = now

    if self.group then
        self.group:changed(worker, now)
    end
end


-- The first token of a request has come.
function _M:prefilled(request, now)
    request.first_byte = now
    prefill_ended(self, request, now)

    -- how long blocks were on their way is no speed of prefill
    if not request.pulled then
        self.index:measured(self.number, request.worker, request.sample,
                            (now - request.routed) * 1e6)
    end

    self.index:speeds(self.number, self.speeds)
end


-- The answer has grown by a block.
function _M:grown(request, now)
    local c = candidate_of(self, request)

    c.decode_blocks = c.decode_blocks + 1
    request.grown = (request.grown or 0) + 1

    if self.group then
        self.group:changed(request.worker, now)
    end
end


local function finished(self, request, now, status)
    local c = candidate_of(self, request)
    local ended = self.index:land(self.number, request.worker, request.flight)

    if self.group then
        self.group:ended(request, now)
    end

    if self.queue then
        request.cost = self.queue:ended(request, request.first_byte
                                                 and request.answered or 0)
    end

    c.active_requests = c.active_requests - 1
    c.decode_blocks = max(0, c.decode_blocks - ended - (request.grown or 0))

    if self.policy.done then
        local outcome = self.outcome

        outcome.worker_data, outcome.worker_len = c.worker_data, c.worker_len
        outcome.holder, outcome.rank = c.holder, 0
        outcome.tries, outcome.status = 1, status
        outcome.first_byte_us = request.first_byte
                                and (request.first_byte - request.routed) * 1e6
                                or -1
        outcome.total_us = (now - request.routed) * 1e6

        finish(self.policy, request.ctx, outcome)
    end

    request.ctx = nil
end


-- The request has ended.
function _M:done(request, now)
    finished(self, request, now, 200)
end


-- The worker has gone before the request ended.
function _M:failed(request, now)
    if not request.first_byte then
        prefill_ended(self, request, now)
    end

    finished(self, request, now, 502)
end


return _M
