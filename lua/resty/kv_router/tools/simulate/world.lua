-- Copyright (C) the nginx-kv-router authors
--
-- One run of kv-simulate: a workload, a fleet of engines, routers with one
-- policy, in virtual time.
--
--     arrival ─► router ─► engine: steps ─► first token ... end ─► next turn
--                  ▲           │
--                  └── index ◄─┘   events: see stream.lua
--
-- An engine that restarts loses its cache and fails its requests, which are
-- sent again at once.  While it is away no router has it as a candidate; when
-- it is back, the first message of its new epoch empties its view.
--
-- Routers that share their load tell it one another: see group.lua.
--
-- A run depends on its configuration and its seed alone.


local ffi = require "ffi"
local new_engine = require "resty.kv_router.tools.simulate.engine".new
local new_heap = require "resty.kv_router.tools.simulate.heap".new
local new_index = require "resty.kv_router.tools.simulate.index".new
local new_random = require "resty.kv_router.request.random".new
local new_router = require "resty.kv_router.tools.simulate.router".new
local new_stream = require "resty.kv_router.tools.simulate.stream".new
local look_ahead = require "resty.kv_router.tools.simulate.look_ahead"
local prompts = require "resty.kv_router.tools.simulate.prompts"
local pulls = require "resty.kv_router.tools.simulate.pulls"
local tenants = require "resty.kv_router.tools.simulate.tenants"
local workload = require "resty.kv_router.tools.simulate.workload"

local ffi_new = ffi.new
local floor = math.floor
local log = math.log
local max = math.max
local min = math.min

local CACHES = {
    vllm = require "resty.kv_router.tools.simulate.vllm_cache",
    sglang = require "resty.kv_router.tools.simulate.sglang_cache",
}


local _M = {}
local mt = { __index = _M }


-- what is drawn of losses and restarts, apart from what routers draw; and what
-- is drawn of losses between routers
local CHANCE = 2^40
local BETWEEN = 2^41


-- A spiral: at one worker at least PILE requests have no first token yet, and
-- more than PILED times as many as at the mean of the others.  It ends at EVEN
-- times their mean.
local PILE = 16
local PILED = 4
local EVEN = 2


-- ---- time: what is to be done ------------------------------------------------

-- Two things at one time are done in the order in which they were planned.
local function before(a, b)
    return a.at < b.at or a.at == b.at and a.number < b.number
end


local function plan(self, at, act, what)
    self.heap:push({ at = at, number = self.planned, act = act, what = what })
    self.planned = self.planned + 1
end


-- ---- events -----------------------------------------------------------------

-- A message: a list of events.
local function apply(index, worker, message, now)
    for _, e in ipairs(message) do
        if e.cleared then
            index:clear(worker)

        elseif e.locals then
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

local function begin_step(self, engine)
    local seconds = engine:step()

    engine.worker.busy = seconds ~= nil

    if seconds then
        plan(self, self.now + seconds, "step", engine)
    end
end


local function send(self, worker, message)
    if self.truth then
        apply(self.truth, worker.number, message, self.now)
    end

    worker.stream:send(message, self.now)
end


local function end_step(self, engine)
    local worker = engine.worker

    -- of an engine that has restarted since
    if engine ~= worker.engine then
        return
    end

    engine:finish(self.now)

    local events = worker.events

    if #events > 0 then
        worker.events = {}
        send(self, worker, events)
    end

    begin_step(self, engine)
end


-- An engine with an empty cache takes the place of the worker's engine.
local function start_engine(self, worker)
    local conf = self.conf
    local last = worker.engine
    local engine = new_engine(conf, CACHES[conf.engine].new(
        conf.blocks,
        function(request, from, n) stored(worker.events, request, from, n) end,
        function(name) removed(worker.events, name) end))

    engine.worker = worker
    engine.busy = last and last.busy or 0
    engine.preempted = last and last.preempted or 0
    worker.engine = engine
    worker.events, worker.busy = {}, false
end


local function new_worker(self, number)
    local conf = self.conf
    local worker = { number = number, pending = 0, tokens = 0, piled = false,
                     arriving = {} }

    start_engine(self, worker)

    worker.stream = new_stream({
        delay = conf.event_delay, loss = conf.event_loss,
        repair = conf.repair_delay, random = self.chance,
    }, function(at, act, what)
        plan(self, at, act, what)
    end, function(message)
        apply(self.index, number, message, self.now)
    end, function(exact)
        for _, router in ipairs(self.routers) do
            router:trust(number, exact)
        end
    end)

    return worker
end


-- ---- requests ---------------------------------------------------------------

-- The worker has n more requests without a first token.
local function count(self, worker, n)
    worker.pending = worker.pending + n
    self.pending = self.pending + n

    local pending = worker.pending
    local others = (self.pending - pending) / max(1, self.conf.workers - 1)

    if worker.piled then
        worker.piled = pending > EVEN * others

    elseif pending >= PILE and pending > PILED * others
           and self.conf.workers > 1
    then
        worker.piled = true
        self.spirals = self.spirals + 1
    end
end


local function submit(self, request)
    local worker = self.workers[request.worker + 1]

    worker.engine:submit(request)

    local waiting = worker.engine.last - worker.engine.first + 1

    self.longest_queue = max(self.longest_queue, waiting)

    if not worker.busy then
        begin_step(self, worker.engine)
    end
end


-- Chooses a worker for the request, and gives it to the engine.
local function serve(self, request)
    -- an engine computes the last token of a prompt in any case
    local limit = floor((request.prompt - 1) / self.conf.block_size)

    look_ahead.asked(request)

    local chosen, overlap = request.router:route(request, self.now)
    local worker = self.workers[chosen + 1]

    request.worker = chosen
    request.predicted = min(overlap, limit) * self.conf.block_size
    request.best = min(self:best_of(request), limit) * self.conf.block_size

    if self.tally then
        self.tally:begun(request, self.now)
    end

    worker.tokens = worker.tokens + request.prompt
    count(self, worker, 1)

    local seconds, tokens

    if self.conf.pull then
        seconds, tokens = pulls.start(self.conf, self.workers, request, worker,
                                      self.now)
        self.pulled = self.pulled + (tokens or 0)
    end

    if seconds then
        plan(self, self.now + seconds, "pulled", request)

    else
        submit(self, request)
    end
end


-- A worker may have room: those that wait for it at a router go.
local function admit(self, router, worker)
    local request = router.queue and router.queue:next(worker)

    while request do
        serve(self, request)
        request = router.queue:next(worker)
    end
end


-- The conversation has ended; another one may follow it.
local function over(self, talk)
    local following = talk.following

    self.talks = self.talks - 1
    prompts.drop(talk)

    if following then
        plan(self, self.now + following.think, "arrive",
             { talk = following, turn = 1, before = 0 })
    end
end


-- What the engine calls.
local function on_first(request, now)
    local self = request.world
    local first_at = request.asked.first_at

    request.first_at = first_at or now
    request.began = true         -- by this engine
    request.router:prefilled(request, now)
    count(self, self.workers[request.worker + 1], -1)
    self.prompt_tokens = self.prompt_tokens + request.prompt
    self.best = self.best + request.best
    self.predicted = self.predicted + request.predicted
    self.had = self.had + request.hit

    if not first_at then
        self.ttfts[#self.ttfts + 1] = now - request.arrived
        look_ahead.first(request, now)
    end

    if self.tally then
        self.tally:first(request, now)
    end

    admit(self, request.router, request.worker)
end


local function on_block(request)
    request.router:grown(request, request.world.now)
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

    if self.tally then
        self.tally:ended(request, now)
    end

    local following = talk.turns[turn]

    if following then
        plan(self, now + following.think, "arrive",
             { talk = talk, turn = turn,
               before = request.prompt + request.output })

    else
        over(self, talk)
    end

    admit(self, request.router, request.worker)
end


-- The router that gets the next request.
local function router_of(self)
    local all, i = 0, 0

    for _, share in ipairs(self.shares) do
        all = all + share
    end

    local point = all * self.random()

    repeat
        i = i + 1
        point = point - self.shares[i]
    until point < 0

    return self.routers[i]
end


-- asked: { talk, turn, before }, of one that is sent again also the times
-- arrived and first_at of the request that failed.
local function arrive(self, asked)
    local talk = asked.talk
    local turn = talk.turns[asked.turn]
    local conf = self.conf
    local size = conf.block_size
    local prompt = workload.prompt_of(talk, turn, asked.before, size)
    local locals, names = prompts.of(talk, prompt, size)
    local n = floor(prompt / size)

    if prompt + turn.output > conf.blocks * size then
        self.refused = self.refused + 1
        return over(self, talk)
    end

    local request = {
        world = self, asked = asked, talk = talk, turn = asked.turn,
        session = "s" .. (talk.session or talk.own),
        prompt = prompt, output = turn.output,
        prompt_blocks = n, locals = locals, names = names,
        blocks = ffi_new("int32_t[?]", floor((prompt + turn.output) / size)
                                       + 2),
        arrived = asked.arrived or self.now,
        on_first = on_first, on_block = on_block, on_done = on_done,
        router = router_of(self),
    }

    if not asked.arrived then
        self.arrivals = self.arrivals + 1
        self.asked[self.arrivals] = { at = self.now, talk = talk,
                                      turn = asked.turn, prompt = prompt }
    end

    if self.tally then
        self.tally:came(request)
    end

    if not request.router.queue or request.router.queue:enter(request) then
        serve(self, request)
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


-- ---- restarts ---------------------------------------------------------------

local function plan_restart(self, worker)
    plan(self, self.now - self.conf.restart * log(1 - self.chance()),
         "restart", worker)
end


local function fail(self, request)
    request.router:failed(request, self.now)

    if not request.began then
        count(self, self.workers[request.worker + 1], -1)
    end

    self.failed = self.failed + 1
    plan(self, self.now, "arrive",
         { talk = request.talk, turn = request.turn,
           before = request.asked.before, arrived = request.arrived,
           first_at = request.first_at })
end


local function restart(self, worker)
    if self.talks == 0 then
        return
    end

    -- the last engine that is there stays: somebody has to answer
    if self.away == self.conf.workers - 1 then
        plan_restart(self, worker)
        return
    end

    local failed = worker.engine:requests()

    self.away = self.away + 1
    self.restarts = self.restarts + 1
    start_engine(self, worker)

    if self.truth then
        self.truth:clear(worker.number)
    end

    for _, request in ipairs(failed) do
        fail(self, request)
    end

    for _, router in ipairs(self.routers) do
        router:leave(worker.number)
    end

    plan(self, self.now + self.conf.restart_time, "back", worker)
end


local function back(self, worker)
    self.away = self.away - 1
    send(self, worker, { { cleared = true } })

    for _, router in ipairs(self.routers) do
        router:join(worker.number)
        admit(self, router, worker.number)
    end

    plan_restart(self, worker)
end


-- ---- groups of routers ------------------------------------------------------

-- A member tells its load.
local function tell(self, member)
    local m = member:tell(self.now)

    for _, router in ipairs(m and self.routers or {}) do
        local other = router.group

        if other ~= member and not other:loses(member.number, self.between) then
            plan(self, self.now + self.conf.share, "hear",
                 { member = other, message = m })
        end
    end
end


-- The next router goes, and the one that went before is back.
local function turn(self, gone)
    for i, router in ipairs(self.routers) do
        local share = i == gone and 0 or 1

        if router.group and share ~= self.shares[i] then
            router.group:leaves(share == 0, self.now)
        end

        self.shares[i] = share
    end

    if self.talks > 0 then
        plan(self, self.now + self.conf.router_restart, "turn",
             gone % #self.routers + 1)
    end
end


local ACTS = {
    tell = tell,
    hear = function(self, what) what.member:hear(what.message, self.now) end,
    renew = function(self, what) what.member:renew(what.add, self.now) end,
    turn = turn,
    arrive = arrive,
    step = end_step,
    pulled = function(self, request)
        pulls.finish(request, self.workers[request.worker + 1].engine.cache)
        submit(self, request)
    end,
    restart = restart,
    back = back,
    deliver = function(self, what) what.stream:deliver(what, self.now) end,
    repair = function(_, stream) stream:repair() end,
}


-- ---- a run ------------------------------------------------------------------

-- conf: engine ("vllm" or "sglang"), workers, blocks (of each engine),
-- block_size, max_tokens, max_requests, times, routers, event_delay (seconds),
-- event_loss (a share), repair_delay (seconds), restart (mean seconds of an
-- engine from a start to the next restart; nil: none, and with one engine
-- none), restart_time (seconds that it is away), share (seconds until routers
-- hear of one another; nil: never), with it share_loss (of these messages),
-- router_shares (whole numbers, of the requests, by router; nil: equal),
-- router_restart (seconds that each router in turn is away; nil: none), seed,
-- policy = { name, conf }; max_prefill_tokens, max_active, order, quantum and
-- weights, see queue.lua (no bound: no queue); pull, see pulls.lua (nil: engines
-- do not pull); seconds (at which the run ends
-- whoever is not answered; nil: none).
-- talks: of workload.  clock: a table whose field `now` is the virtual time,
-- for policies.  progress(done): called now and then.  Returns the figures of
-- the run, or nil and a sentence.
function _M.run(conf, talks, clock, progress)
    local total = conf.workers * conf.blocks
    local self = setmetatable({
        conf = conf, heap = new_heap(before), planned = 0, now = 0,
        index = new_index(conf.block_size, conf.workers, total, conf.routers),
        truth = (conf.event_delay > 0 or conf.event_loss > 0)
                and new_index(conf.block_size, conf.workers, total, 1) or nil,
        depths = ffi_new("uint32_t[?]", conf.workers),
        random = new_random(conf.seed),
        chance = new_random(conf.seed + CHANCE),
        between = new_random(conf.seed + BETWEEN),
        workers = {}, routers = {}, shares = {}, ttfts = {}, gaps = {},
        asked = {}, pulled = 0, arrivals = 0, ended = 0, refused = 0, answered = 0, last_at = 0,
        prompt_tokens = 0, predicted = 0, had = 0, best = 0,
        longest_queue = 0,
        talks = #talks,          -- that have not ended
        failed = 0, restarts = 0, away = 0,
        pending = 0, spirals = 0,
        tally = conf.seconds and tenants.tally(conf),
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
        self.shares[i] = conf.router_shares and conf.router_shares[i] or 1

        if conf.max_prefill_tokens or conf.max_active then
            router:bound(conf, #talks)
        end

        if conf.pull then
            router:pull(conf.pull, conf.times)
        end

        if conf.share then
            router:share(conf, function(at, act, what)
                plan(self, at, act, what)
            end)
        end
    end

    for _, talk in ipairs(talks) do
        if not talk.after then
            plan(self, talk.at, "arrive", { talk = talk, turn = 1, before = 0 })
        end
    end

    for _, worker in ipairs(conf.restart and self.workers or {}) do
        plan_restart(self, worker)
    end

    if conf.router_restart then
        plan(self, conf.router_restart, "turn", 1)
    end

    local steps = 0

    while self.heap.n > 0 do
        local entry = self.heap:pop()

        if conf.seconds and entry.at > conf.seconds then
            break
        end

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

    look_ahead.over()

    return self:figures()
end


function _M:figures()
    local most, sent, busy, preempted, faults, lost = 0, 0, 0, 0, 0, 0

    for _, worker in ipairs(self.workers) do
        most = max(most, worker.tokens)
        sent = sent + worker.tokens
        lost = lost + worker.stream.lost
        busy = busy + worker.engine.busy
        preempted = preempted + worker.engine.preempted
    end

    for _, router in ipairs(self.routers) do
        faults = faults + router.faults
    end

    local groups, jain

    if self.tally then
        groups, jain = self.tally:figures()
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
        pulled = self.pulled / tokens,
        asked = self.asked,
        ttfts = self.ttfts,
        gaps = self.gaps,
        seconds = seconds,
        throughput = self.answered / seconds,
        busy = busy / seconds / #self.workers,
        worst_share = most / max(1, sent) * #self.workers,
        spirals = self.spirals,
        longest_queue = self.longest_queue,
        preempted = preempted,
        failed = self.failed,
        restarts = self.restarts,
        lost = lost,
        groups = groups,
        jain = jain,
    }
end


return _M
