-- Copyright (C) the nginx-kv-router authors
--
-- One run of kv-simulate: a workload, a fleet of engines, routers with one
-- policy, in virtual time.
--
--     arrival ─► router ─► engine: steps ─► first token ... end ─► next turn
--                  ▲           │
--                  └── index ◄─┘   events, after a delay
--
-- A run depends on its configuration and its seed alone.


local ffi = require "ffi"
local new_engine = require "resty.kv_router.simulate.engine".new
local new_index = require "resty.kv_router.simulate.index".new
local new_random = require "resty.kv_router.random".new
local new_router = require "resty.kv_router.simulate.router".new
local prompts = require "resty.kv_router.simulate.prompts"
local workload = require "resty.kv_router.simulate.workload"

local ffi_new = ffi.new
local floor = math.floor
local ipairs = ipairs
local max = math.max
local min = math.min
local setmetatable = setmetatable

local CACHES = {
    vllm = require "resty.kv_router.simulate.vllm_cache",
    sglang = require "resty.kv_router.simulate.sglang_cache",
}


local _M = {}
local mt = { __index = _M }


-- ---- time: a binary heap of what is to be done ------------------------------

-- Two things at one time are done in the order in which they were planned.
local function before(a, b)
    return a.at < b.at or a.at == b.at and a.number < b.number
end


local function plan(self, at, act, what)
    local heap = self.heap
    local entry = { at = at, number = self.planned, act = act, what = what }
    local i = #heap + 1

    self.planned = self.planned + 1

    while i > 1 do
        local up = floor(i / 2)

        if before(heap[up], entry) then
            break
        end

        heap[i] = heap[up]
        i = up
    end

    heap[i] = entry
end


local function next_entry(self)
    local heap = self.heap
    local n = #heap
    local top, last = heap[1], heap[n]

    heap[n] = nil
    n = n - 1

    local i = 1

    while 2 * i <= n do
        local child = 2 * i

        if child < n and before(heap[child + 1], heap[child]) then
            child = child + 1
        end

        if before(last, heap[child]) then
            break
        end

        heap[i] = heap[child]
        i = child
    end

    if n > 0 then
        heap[i] = last
    end

    return top
end


-- ---- events -----------------------------------------------------------------

local function apply(index, worker, events, now)
    for _, e in ipairs(events) do
        if e.locals then
            index:store(worker, e.locals, e.names, e.from, e.n, now)

        else
            index:remove(worker, e.names, e.n)
        end
    end
end


local function stored(events, request, from, n)
    events[#events + 1] = { locals = request.locals, names = request.names,
                            from = from, n = n }
end


-- Removals that follow one another become one event.
local REMOVALS = 256

local function removed(events, name)
    local e = events[#events]

    if not e or e.locals or e.n == REMOVALS then
        e = { names = ffi_new("double[?]", REMOVALS), n = 0 }
        events[#events + 1] = e
    end

    e.names[e.n] = name
    e.n = e.n + 1
end


-- ---- engines ----------------------------------------------------------------

local function begin_step(self, worker)
    local seconds = worker.engine:step()

    worker.busy = seconds ~= nil

    if seconds then
        plan(self, self.now + seconds, "step", worker)
    end
end


local function end_step(self, worker)
    worker.engine:finish(self.now)

    local events = worker.events

    if #events > 0 then
        worker.events = {}

        if self.truth then
            apply(self.truth, worker.number, events, self.now)
        end

        if self.conf.event_delay > 0 then
            plan(self, self.now + self.conf.event_delay, "deliver",
                 { worker = worker.number, events = events })

        else
            apply(self.index, worker.number, events, self.now)
        end
    end

    begin_step(self, worker)
end


local function new_worker(self, number)
    local conf = self.conf
    local worker = { number = number, events = {}, busy = false, requests = 0,
                     tokens = 0 }

    worker.engine = new_engine(conf, CACHES[conf.engine].new(
        conf.blocks,
        function(request, from, n) stored(worker.events, request, from, n) end,
        function(name) removed(worker.events, name) end))

    return worker
end


-- ---- requests ---------------------------------------------------------------

-- What the engine calls.
local function on_first(request, now)
    local self = request.world

    request.first_at = now
    request.router:prefilled(request)
    self.had = self.had + request.hit
    self.ttfts[#self.ttfts + 1] = now - request.arrived
end


local function on_block(request)
    request.router:grown(request)
end


local function on_done(request, now)
    local self = request.world
    local talk, turn = request.talk, request.turn + 1

    request.router:done(request, now)
    self.ended = self.ended + 1
    self.answered = self.answered + request.output
    self.last_at = now

    if request.output > 1 then
        self.gaps[#self.gaps + 1] = (now - request.first_at)
                                    / (request.output - 1)
    end

    local following = talk.turns[turn]

    if following then
        plan(self, now + following.think, "arrive",
             { talk = talk, turn = turn,
               before = request.prompt + request.output })

    else
        prompts.drop(talk)
    end
end


local function arrive(self, next_turn)
    local talk = next_turn.talk
    local turn = talk.turns[next_turn.turn]
    local conf = self.conf
    local size = conf.block_size
    local prompt = workload.prompt_of(talk, turn, next_turn.before, size)
    local locals, names = prompts.of(talk, prompt, size)
    local n = floor(prompt / size)

    if prompt + turn.output > conf.blocks * size then
        self.refused = self.refused + 1
        prompts.drop(talk)
        return
    end

    local request = {
        world = self, talk = talk, turn = next_turn.turn,
        session = "s" .. talk.own,
        prompt = prompt, output = turn.output,
        prompt_blocks = n, locals = locals, names = names,
        blocks = ffi_new("int32_t[?]", floor((prompt + turn.output) / size)
                                       + 2),
        arrived = self.now,
        on_first = on_first, on_block = on_block, on_done = on_done,
        router = self.routers[1 + floor(#self.routers * self.random())],
    }

    -- an engine computes the last token of a prompt in any case
    local limit = floor((prompt - 1) / size)
    local chosen, overlap = request.router:route(request, self.now)
    local worker = self.workers[chosen + 1]

    request.worker = chosen
    self.arrivals = self.arrivals + 1
    self.prompt_tokens = self.prompt_tokens + prompt
    self.predicted = self.predicted + min(overlap, limit) * size
    self.best = self.best + min(self:best_of(request), limit) * size

    worker.requests = worker.requests + 1
    worker.tokens = worker.tokens + prompt
    worker.engine:submit(request)

    local waiting = worker.engine.last - worker.engine.first + 1

    self.longest_queue = max(self.longest_queue, waiting)

    if not worker.busy then
        begin_step(self, worker)
    end
end


-- The largest number of the prompt's blocks that any engine has by now.
function _M:best_of(request)
    local depths = self.depths
    local best = 0

    if self.truth then
        self.truth:find(request.locals, request.prompt_blocks, depths)

    else
        depths = request.router.depths
    end

    for i = 0, self.conf.workers - 1 do
        best = max(best, depths[i])
    end

    return best
end


local ACTS = {
    arrive = arrive,
    step = end_step,
    deliver = function(self, what)
        apply(self.index, what.worker, what.events, self.now)
    end,
}


-- ---- a run ------------------------------------------------------------------

-- conf: engine ("vllm" or "sglang"), workers, blocks (of each engine),
-- block_size, max_tokens, max_requests, times, routers, event_delay (seconds),
-- seed, policy = { name, conf }.  talks: of workload.  clock: a table whose
-- field `now` is the virtual time, for policies.  progress(done): called now
-- and then.  Returns the figures of the run, or nil and a sentence.
function _M.run(conf, talks, clock, progress)
    local total = conf.workers * conf.blocks
    local self = setmetatable({
        conf = conf, heap = {}, planned = 0, now = 0,
        index = new_index(conf.block_size, conf.workers, total, conf.routers),
        truth = conf.event_delay > 0
                and new_index(conf.block_size, conf.workers, total, 1) or nil,
        depths = ffi_new("uint32_t[?]", conf.workers),
        random = new_random(conf.seed),
        workers = {}, routers = {}, ttfts = {}, gaps = {},
        arrivals = 0, ended = 0, refused = 0, answered = 0, last_at = 0,
        prompt_tokens = 0, predicted = 0, had = 0, best = 0,
        longest_queue = 0,
    }, mt)

    for i = 1, conf.workers do
        self.workers[i] = new_worker(self, i - 1)
    end

    for i = 1, conf.routers do
        local router, err = new_router(i - 1, self.index, conf.policy,
                                       conf.workers, conf.block_size,
                                       conf.seed * 64 + i)

        if not router then
            return nil, err
        end

        self.routers[i] = router
    end

    for _, talk in ipairs(talks) do
        plan(self, talk.at, "arrive", { talk = talk, turn = 1, before = 0 })
    end

    local steps = 0

    while #self.heap > 0 do
        local entry = next_entry(self)

        self.now, clock.now = entry.at, entry.at
        ACTS[entry.act](self, entry.what)
        steps = steps + 1

        if steps % 4096 == 0 then
            progress(self.ended)
        end
    end

    for _, talk in ipairs(talks) do
        prompts.drop(talk)
    end

    return self:figures()
end


function _M:figures()
    local most, busy, preempted, faults = 0, 0, 0, 0

    for _, worker in ipairs(self.workers) do
        most = max(most, worker.tokens)
        busy = busy + worker.engine.busy
        preempted = preempted + worker.engine.preempted
    end

    for _, router in ipairs(self.routers) do
        faults = faults + router.faults
    end

    local seconds = max(self.last_at, 1e-9)
    local tokens = max(1, self.prompt_tokens)

    return {
        requests = self.ended,
        refused = self.refused,
        unfinished = self.arrivals - self.ended,
        faults = faults,
        prompt_tokens = self.prompt_tokens,
        best = self.best / tokens,
        predicted = self.predicted / tokens,
        had = self.had / tokens,
        ttfts = self.ttfts,
        gaps = self.gaps,
        seconds = seconds,
        throughput = self.answered / seconds,
        busy = busy / seconds / #self.workers,
        worst_share = most / tokens * #self.workers,
        longest_queue = self.longest_queue,
        preempted = preempted,
    }
end


return _M
