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
-- others sleep.  When there is a queue, who comes goes to its place in it.


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
local LOST = 0.5                 -- the first did not look for so long: it is
                                 -- gone, its client has left


-- conf: queue (requests that may wait in this process; 0: none does),
-- queue_timeout (seconds).
function _M.new(conf)
    return setmetatable({ size = conf.queue, timeout = conf.queue_timeout,
                          waiters = {}, turn = 0 }, mt)
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
        first.looked = now()
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
    local first = self.waiters[1]

    while first and (first.looked or first.since) + LOST < now() do
        remove(self.waiters, 1)
        first = self.waiters[1]

        if first then
            first.looked = now()
        end
    end

    return first
end


local function line_up(self, priority)
    local waiters = self.waiters
    local waiter = { priority = priority, since = now(),
                     semaphore = new_semaphore(0) }
    local i = #waiters + 1

    while i > 1 and waiters[i - 1].priority > priority do
        i = i - 1
    end

    insert(waiters, i, waiter)

    if i == 1 then
        waiter.looked = waiter.since
    end

    return waiter
end


-- Calls try() until it returns a value, which is returned.  nil, "full": the
-- queue is; nil, "timeout": no room came in time.  Yields.
function _M.enter(self, priority, try)
    update_time()

    if not first_of(self) then
        local found = try()

        if found then
            return found
        end
    end

    if #self.waiters >= self.size then
        return nil, "full"
    end

    local waiter = line_up(self, priority)
    local deadline = waiter.since + self.timeout
    local found

    repeat
        waiter.semaphore:wait(LOOK * (first_of(self) == waiter and 1 or 10))
        update_time()

        if first_of(self) == waiter then
            waiter.looked = now()
            found = try()

        elseif not place_of(self.waiters, waiter) then
            -- it was taken for gone, on a machine that stood still
            waiter = line_up(self, priority)
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
