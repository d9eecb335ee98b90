-- Copyright (C) the nginx-kv-router authors
--
-- An engine of kv-simulate: continuous batching in virtual time.
--
-- An engine computes steps, one after the other.  A step has at most
-- max_tokens tokens: one for each request that decodes, then parts of prompts,
-- those of running requests first.  A request that waits is begun when the
-- step has tokens left and the cache has blocks.  Blocks are taken as they are
-- needed; when a decoding request finds none, the request that began last is
-- preempted: it waits again, at the head, and is computed anew, but for what
-- is still cached.  A step takes
--
--     base + prefill * P + prefill_context * sum of P * (context before P)
--          + decode * D + decode_context * (context of all D)
--
-- seconds, for P tokens of prompts and D requests that decode.
--
-- A request is a table with prompt, output (tokens), names, locals and blocks
-- (arrays with room for all of the prompt's and the answer's blocks), and the
-- functions that the engine calls: on_first(request, now) at the first token,
-- on_block(request) when its answer needs one more block, on_done(request,
-- now).  The engine sets hit: the tokens of the prompt that were cached.


local ceil = math.ceil
local floor = math.floor
local insert = table.insert
local max = math.max
local min = math.min
local remove = table.remove


local _M = {}
local mt = { __index = _M }


-- conf: block_size, max_tokens, max_requests, times = { base, prefill,
-- prefill_context, decode, decode_context }.  cache: of one of the two modules.
function _M.new(conf, cache)
    return setmetatable({
        conf = conf,
        cache = cache,
        waiting = {},
        first = 1,               -- of waiting
        last = 0,
        running = {},
        parts = {},              -- of the step: (request, tokens of its prompt)
        preempted = 0,
        busy = 0,                -- seconds of all steps
    }, mt)
end


function _M:submit(request)
    self.last = self.last + 1
    self.waiting[self.last] = request
    request.computed = 0         -- tokens of prompt and answer
    request.answered = 0         -- tokens of the answer that are known
    request.nblocks, request.cached = 0, 0
    request.told = false         -- has on_first() been called?
end


function _M:idle()
    return self.first > self.last and #self.running == 0
end


-- All requests that have not ended, those that run before those that wait.
function _M:requests()
    local list = {}

    for i, request in ipairs(self.running) do
        list[i] = request
    end

    for i = self.first, self.last do
        list[#list + 1] = self.waiting[i]
    end

    return list
end


local function preempt(self)
    local request = remove(self.running)

    self.cache:release(request)
    request.computed = 0
    self.first = self.first - 1
    self.waiting[self.first] = request
    self.preempted = self.preempted + 1

    return request
end


-- Tokens that must be computed before the next one of the answer is known.  A
-- request that decodes has one: the last that was answered.
local function left(request)
    return request.prompt + request.answered - request.computed
end


-- Room for one more token of each request that decodes; returns their number
-- and their context.
local function decodes(self)
    local running, cache = self.running, self.cache
    local size = self.conf.block_size
    local n, context, i = 0, 0, 1

    while i <= #running do
        local request = running[i]

        if request.answered > 0 and left(request) == 1 then
            local need = floor(request.computed / size) + 1
            local there = true

            while need > request.nblocks and not cache:grow(request, need) do
                if preempt(self) == request then
                    there = false
                    break
                end
            end

            if there then
                n = n + 1
                context = context + request.computed
                request.decoding = true
            end

        else
            request.decoding = false
        end

        i = i + 1
    end

    return n, context
end


-- Plans a part of a prompt; returns how many tokens, 0: no room.
local function plan(self, request, budget)
    local tokens = min(budget, left(request))
    local blocks = ceil((request.computed + tokens) / self.conf.block_size)

    if not self.cache:grow(request, blocks) then
        return 0
    end

    local parts = self.parts

    parts[#parts + 1] = request
    parts[#parts + 1] = tokens

    return tokens
end


-- Takes the head of the queue; false: it does not fit.
local function begin(self, budget)
    local request = self.waiting[self.first]
    local size = self.conf.block_size
    local limit = floor((left(request) - 1) / size)
    local k = self.cache:match(request, limit)

    self.cache:acquire(request, k)
    request.computed = k * size

    local tokens = plan(self, request, budget)

    if tokens == 0 then
        self.cache:release(request)
        request.computed = 0
        return 0
    end

    self.waiting[self.first] = nil
    self.first = self.first + 1
    request.hit = request.hit or min(k * size, request.prompt)
    request.decoding = false
    insert(self.running, request)

    return tokens
end


-- Begins a step; returns the seconds that it takes, or nil: nothing can be
-- computed.
function _M:step()
    local conf, running = self.conf, self.running
    local times = conf.times

    self.parts = {}

    local n, decode_context = decodes(self)
    local budget = max(0, conf.max_tokens - n)
    local prefill, prefill_context = 0, 0

    for i = 1, #running do
        local request = running[i]

        if not request.decoding and budget > 0 then
            local tokens = plan(self, request, budget)

            budget = budget - tokens
            prefill = prefill + tokens
            prefill_context = prefill_context + tokens * request.computed
        end
    end

    while budget > 0 and self.first <= self.last
          and #running < conf.max_requests
    do
        local tokens = begin(self, budget)

        if tokens == 0 then
            break
        end

        budget = budget - tokens
        prefill = prefill + tokens
        prefill_context = prefill_context
                          + tokens * running[#running].computed
    end

    if n == 0 and prefill == 0 then
        return nil
    end

    local seconds = times.base + times.prefill * prefill
                    + times.prefill_context * prefill_context
                    + times.decode * n
                    + times.decode_context * decode_context

    self.busy = self.busy + seconds

    return seconds
end


-- One more token of a request's answer is there.
local function answer(request, now)
    request.answered = request.answered + 1

    if not request.told then
        request.told = true
        request:on_first(now)
    end
end


-- Ends the step that was begun.
function _M:finish(now)
    local running, cache, parts = self.running, self.cache, self.parts
    local size = self.conf.block_size

    for i = 1, #parts, 2 do
        local request = parts[i]

        request.computed = request.computed + parts[i + 1]
        cache:commit(request, floor(request.computed / size))

        if left(request) == 0 then
            answer(request, now)
        end
    end

    local kept = 0

    for i = 1, #running do
        local request = running[i]

        if request.decoding then
            request.computed = request.computed + 1

            if request.computed % size == 0 then
                cache:commit(request, request.computed / size)
                request:on_block()
            end

            answer(request, now)
        end

        if request.answered >= request.output then
            cache:release(request)
            request:on_done(now)

        else
            kept = kept + 1
            running[kept] = request
        end
    end

    for i = #running, kept + 1, -1 do
        running[i] = nil
    end
end


return _M
