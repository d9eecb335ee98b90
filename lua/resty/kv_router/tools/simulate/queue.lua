-- Copyright (C) the nginx-kv-router authors
--
-- The bounds of a router of kv-simulate, and its queue.
--
-- A worker has room while it is below its bounds, by what this router has sent
-- to it: one request may pass the bound of tokens.  A request that finds no
-- room waits, and so does one that finds others waiting.  Where room comes,
-- kvr_order_next() says who goes; the policy is asked among the workers with
-- room.  Nobody gives up.
--
-- A request is charged for the answer that it is expected to have, which is
-- the mean of its tenant's last ones, and is settled at its end.


local ffi = require "ffi"
local simulated = require "resty.kv_router.tools.simulate.index"

local ffi_new = ffi.new
local max = math.max
local min = math.min


local _M = {}
local mt = { __index = _M }


local NONE = 2^32 - 1            -- KVR_ORDER_NONE
local STRICT = 1e9               -- a class's weight by that of the next one
local LAST = 16                  -- answers of a tenant


-- conf: max_prefill_tokens and max_active (nil: no such bound) of all routers
-- together, routers, order ("fair"; "strict": who is of an earlier class goes
-- first; "fifo": all are one tenant), quantum, weights (of the classes).
-- requests: the maximum number of requests that wait at a time.  router: it has
-- here(worker), active(worker), uncached(request, list) and queued[worker].
function _M.new(router, conf, workers, requests)
    local function part(bound)
        return bound and max(1, bound / conf.routers)
    end

    local fifo, weights = conf.order == "fifo", {}

    for class, weight in ipairs(conf.weights) do
        weights[class] = conf.order == "strict" and STRICT ^ -class or weight
    end

    return setmetatable({
        router = router,
        max_prefill_tokens = part(conf.max_prefill_tokens),
        max_active = part(conf.max_active),
        fifo = fifo,
        order = simulated.order(weights, requests, conf.block_size,
                                fifo and 0 or conf.quantum),
        size = conf.block_size,
        waiting = {},            -- requests by their number
        answers = {},            -- by tenant: { how many, their mean }
        uncached = ffi_new("uint32_t[?]", workers),
        workers = workers,
    }, mt)
end


function _M:room(worker)
    local router = self.router

    return router:here(worker)
           and (not self.max_prefill_tokens
                or router.queued[worker] < self.max_prefill_tokens)
           and (not self.max_active
                or router:active(worker) <= self.max_active - 1)
end


local function expected(self, request)
    local answers = self.answers[request.of]

    return answers and answers.mean or 0
end


-- May the request go at once?  Otherwise it waits.
function _M:enter(request)
    local talk = request.talk

    request.of = self.fifo and 1 or talk.tenant or 1
    request.tenant = self.order:tenant(not self.fifo and talk.class or 0,
                                       request.of)

    if self.order:waiting() == 0 then
        for worker = 0, self.workers - 1 do
            if self:room(worker) then
                return true
            end
        end
    end

    self.router:uncached(request, self.uncached)

    local number = self.order:wait(request.tenant, request.prompt,
                                   expected(self, request), self.uncached,
                                   self.workers)

    if number == NONE then
        error("the queue is full: a bound of kv-simulate is too small")
    end

    self.waiting[number] = request

    return false
end


-- The request has gone to its worker without waiting.
function _M:passed(request)
    if not request.charge then
        request.charge = self.order:pass(request.tenant,
                                         expected(self, request),
                                         request.prefill_tokens)
    end
end


-- The request that goes next, when the worker has room; or nil.
function _M:next(worker)
    local order = self.order

    if order:waiting() == 0 or not self:room(worker) then
        return nil
    end

    local number = order:next(worker, self.workers)
    local request = self.waiting[number]

    self.waiting[number] = nil
    request.charge = order:grant(number, worker)

    return request
end


-- A request has ended; answered: tokens of its answer, 0 if it has failed
-- before the first one.
function _M:ended(request, answered)
    local answers = self.answers[request.of] or { n = 0, mean = 0 }
    local cost = 0

    if answered > 0 then
        cost = max(self.size, request.prefill_tokens) + 2 * answered
        answers.n = min(LAST, answers.n + 1)
        answers.mean = answers.mean + (answered - answers.mean) / answers.n
        self.answers[request.of] = answers
    end

    self.order["end"](self.order, request.tenant, request.charge, cost)

    return cost
end


return _M
