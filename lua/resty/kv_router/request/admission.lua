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
-- others sleep until they are the first.  A request which finds no room while
-- others wait lines up among them.


local held = require "resty.kv_router.tokens.held"
local semaphore = require "ngx.semaphore"

local floor = math.floor
local insert = table.insert
local max = math.max
local new_semaphore = semaphore.new
local now = ngx.now
local remove = table.remove
local setmetatable = setmetatable
local update_time = ngx.update_time


local _M = {}
local mt = { __index = _M }


local LOOK = 0.01                -- seconds between two looks of the first


-- conf: queue (requests that may wait in this process; 0: none does),
-- queue_timeout (seconds).
function _M.new(conf)
    return setmetatable({ size = conf.queue, timeout = conf.queue_timeout,
                          waiters = {}, come = 0 }, mt)
end


-- Where a place is in the queue, or is to be.
local function position(waiters, place)
    local low, high = 1, #waiters + 1

    while low < high do
        local middle = floor((low + high) / 2)
        local other = waiters[middle]

        if other.priority < place.priority
           or other.priority == place.priority and other.number < place.number
        then
            low = middle + 1
        else
            high = middle
        end
    end

    return low
end


-- If the request at i ends, the next one is woken.
local function link(waiters, i)
    local place, following = waiters[i], waiters[i + 1]

    if place then
        held.wakes(place.hold, following and following.semaphore)
    end
end


-- Takes a place out of its queue; the next one is the first, and is told.
local function leave_queue(place)
    local waiters = place.waiters
    local i = position(waiters, place)

    remove(waiters, i)
    link(waiters, i - 1)
    place.hold = nil

    if i == 1 and waiters[1] then
        waiters[1].semaphore:post(1)
    end
end


local function line_up(self, place, request)
    local waiters = self.waiters

    place.priority = request.priority
    place.semaphore = place.semaphore or new_semaphore(0)
    place.hold = held.take(request.r, leave_queue, place)

    local i = position(waiters, place)

    insert(waiters, i, place)
    link(waiters, i - 1)
    link(waiters, i)
end


-- Ends a wait: the request has found room, or gives up.  place: that of wait(),
-- or nil: the request has not waited.
function _M.leave(_, place)
    if not place then
        return
    end

    place.waits = false

    if place.hold then
        held.give(place.hold)
    end
end


-- A request that has found no room waits until it is to look again.  Returns its
-- place, which is given to the next call, in another wait of the same request,
-- too: so it keeps its turn and the end of its time.  The first call of a wait
-- returns at once when nobody waits.  Returns nil and "full" when no more may
-- wait, nil and "timeout" when no room came in time; otherwise leave() must be
-- called in the end.  request: its r, and priority, which is read when the request
-- lines up.
-- Yields.
function _M.wait(self, place, request)
    local waiters = self.waiters

    update_time()
    held.sweep()

    if not place then
        self.come = self.come + 1
        place = { since = now(), number = self.come, waiters = waiters }
    end

    if not place.waits then
        place.waits = true

        if #waiters == 0 then
            return place
        end
    end

    local deadline = place.since + self.timeout

    if not place.hold then
        if #waiters >= self.size then
            return nil, "full"
        end

        line_up(self, place, request)

    elseif now() >= deadline then
        _M.leave(self, place)
        return nil, "timeout"
    end

    repeat
        place.semaphore:wait(waiters[1] == place and LOOK
                             or max(deadline - now(), LOOK))
        update_time()
        held.sweep()

        if waiters[1] == place then
            return place
        end
    until now() >= deadline

    _M.leave(self, place)

    return nil, "timeout"
end


-- A request of this process has ended.
function _M.ended(self)
    held.sweep()

    local first = self.waiters[1]

    if first and first.semaphore:count() <= 0 then
        first.semaphore:post(1)
    end
end


-- How many wait.
function _M.waiting(self)
    held.sweep()

    return #self.waiters
end


return _M
