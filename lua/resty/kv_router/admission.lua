-- Copyright (C) the nginx-kv-router authors
--
-- Admission: requests that find no room at any worker wait for it, in order.
--
--     local gate = admission.new(conf)
--     local place, why
--
--     while not room() do
--         place, why = gate:wait(place, request)
--
--         if not place then
--             return why
--         end
--     end
--
--     gate:leave(place)
--
-- Each nginx process has a queue of its own, in the order of the requests'
-- priority (the smallest number first, as vLLM has it), then of their coming.
-- Room is made by other processes too, so the first of the queue looks for it
-- every 10 ms, and right after a request of this process has ended.  The
-- others look at their places only.  A request which finds no room while others
-- wait lines up among them.


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


-- Ends a wait: the request has found room, or gives up.  place: that of wait(),
-- or nil: the request has not waited.
function _M.leave(self, place)
    if not place then
        return
    end

    place.waits = false

    if place.lined then
        local i = place_of(self.waiters, place)

        place.lined = false

        if i then
            remove(self.waiters, i)
        end

        if i == 1 then
            wake(self)
        end
    end
end


-- A request that has found no room waits until it is to look again.  Returns its
-- place, which is given to the next call, in another wait of the same request,
-- too: so it keeps its turn and the end of its time.  The first call of a wait
-- returns at once when nobody waits.  Returns nil and "full" when no more may
-- wait, nil and "timeout" when no room came in time; otherwise leave() must be
-- called in the end.  request.priority is read when the request lines up.
-- Yields.
function _M.wait(self, place, request)
    update_time()

    if not place then
        place = { since = now() }
    end

    if not place.waits then
        place.waits = true

        if not first_of(self) then
            return place
        end
    end

    local deadline = place.since + self.timeout

    if not place.lined then
        if full(self) then
            return nil, "full"
        end

        place.lined = true
        place.looked = now()
        place.priority = request.priority
        place.semaphore = place.semaphore or new_semaphore(0)
        line_up(self, place)

    elseif now() >= deadline then
        _M.leave(self, place)
        return nil, "timeout"
    end

    repeat
        place.semaphore:wait(first_of(self) == place and LOOK or SLEEP)
        update_time()
        place.looked = now()

        if first_of(self) == place then
            return place
        end

        -- it was taken for gone, on a machine that stood still
        if not place_of(self.waiters, place) then
            line_up(self, place)
        end
    until now() >= deadline

    _M.leave(self, place)

    return nil, "timeout"
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
