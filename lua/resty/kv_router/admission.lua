-- Copyright (C) the nginx-kv-router authors
--
-- Admission: requests that find no room at any worker wait for it, in order.
--
--     local gate = admission.new(conf)
--     local found, why = gate:enter(priority, try)
--
-- Each nginx process has a queue of its own, in the order of the requests'
-- priority (the smallest number first, as vLLM has it), then of their coming.
-- Room is made by other processes too, so the first of the queue looks for it
-- every 10 ms, and right after a request of this process has ended.  The
-- others look at their places only.  When there is a queue, who comes goes to its place in it.


local semaphore = require "ngx.semaphore"

local insert = table.insert
local new_semaphore = semaphore.new
local now = ngx.now
local remove = table.remove
local setmetatable = setmetatable
local update_time = ngx.update_time


local _M = {}
local mt = { __index = _M }


local LOOK = 0.01                -- seconds between two looks of the first
local SLEEP = 0.1                -- and of the others, at their places
local LOST = 0.5                 -- one that did not look for so long is gone:
                                 -- its client has left


-- conf: queue (requests that may wait in this process; 0: none does),
-- queue_timeout (seconds).
function _M.new(conf)
    return setmetatable({ size = conf.queue, timeout = conf.queue_timeout,
                          waiters = {}, pruned = 0 }, mt)
end


local function place_of(waiters, waiter)
    for i = 1, #waiters do
        if waiters[i] == waiter then
            return i
        end
    end

    return nil
end


-- The next one is the first, and is told.
local function wake(self)
    local first = self.waiters[1]

    if first then
        first.semaphore:post(1)
    end
end


local function leave(self, waiter)
    local i = place_of(self.waiters, waiter)

    if i then
        remove(self.waiters, i)
    end

    if i == 1 then
        wake(self)
    end
end


-- Who is the first by now: those that are gone make room for others.
local function first_of(self)
    local waiters = self.waiters

    while waiters[1] and waiters[1].looked + LOST < now() do
        remove(waiters, 1)
    end

    return waiters[1]
end


-- Is there no place, even without all those that are gone?
local function full(self)
    local waiters = self.waiters

    if #waiters >= self.size and self.pruned + LOST < now() then
        self.pruned = now()

        for i = #waiters, 1, -1 do
            if waiters[i].looked + LOST < now() then
                remove(waiters, i)
            end
        end
    end

    return #waiters >= self.size
end


local function line_up(self, waiter)
    local waiters = self.waiters
    local i = #waiters + 1

    while i > 1 and (waiters[i - 1].priority > waiter.priority
                     or waiters[i - 1].priority == waiter.priority
                        and waiters[i - 1].since > waiter.since)
    do
        i = i - 1
    end

    insert(waiters, i, waiter)
end


-- Calls try() until it returns a value, which is returned.  nil, "full": the
-- queue is; nil, "timeout": no room came in time.  since: when the request began
-- to wait, if it has waited before.  Yields.
function _M.enter(self, priority, try, since)
    update_time()

    if not first_of(self) then
        local found = try()

        if found then
            return found
        end
    end

    if full(self) then
        return nil, "full"
    end

    local waiter = { priority = priority, since = since or now(), looked = now(),
                     semaphore = new_semaphore(0) }

    line_up(self, waiter)

    local deadline = waiter.since + self.timeout
    local found

    repeat
        waiter.semaphore:wait(first_of(self) == waiter and LOOK or SLEEP)
        update_time()
        waiter.looked = now()

        if first_of(self) == waiter then
            found = try()

        elseif not place_of(self.waiters, waiter) then
            -- it was taken for gone, on a machine that stood still
            line_up(self, waiter)
        end
    until found or now() >= deadline

    leave(self, waiter)

    if not found then
        return nil, "timeout"
    end

    return found
end


-- A request of this process has ended.
function _M.ended(self)
    local first = self.waiters[1]

    if first and first.semaphore:count() <= 0 then
        first.semaphore:post(1)
    end
end


-- How many wait.
function _M.waiting(self)
    return #self.waiters
end


return _M
