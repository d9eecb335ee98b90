-- Copyright (C) the nginx-kv-router authors
--
-- The messages of one engine of kv-simulate, on their way to the index.
--
--     send() ─► the log ─► lost?  no: deliver() after `delay`  ─► the index
--                             │
--                             └─ a gap: repair() of the log after `repair`
--
-- A lost message shows as a gap when the next message comes, or the next
-- heartbeat.  From then on the worker's view is not exact: routers see it as
-- SYNCING, and messages wait.  The repair reads the log up to the last message
-- that was heard of, and the view is exact again.


local max = math.max


local _M = {}
local mt = { __index = _M }


local HEARTBEAT = 1              -- seconds, of kv-relay


-- conf: delay, repair (seconds), loss (a share), random (a function).
-- plan(at, act, what): has act ("deliver" or "repair") done at a time.
-- apply(message): changes the index.  trust(exact): tells the routers whether
-- the view is exact.
function _M.new(conf, plan, apply, trust)
    return setmetatable({
        conf = conf,
        plan = plan,
        apply = apply,
        trust = trust,
        log = {},                -- by number; what is not applied yet
        sent = 0,                -- the number of the last message
        applied = 0,
        heard = 0,               -- of the messages and heartbeats that came
        lost = 0,                -- messages
        syncing = false,
    }, mt)
end


local function apply_to(self, last)
    local log = self.log

    for number = self.applied + 1, last do
        self.apply(log[number])
        log[number] = nil
    end

    self.applied = last
end


-- Sends a message.
function _M:send(message, now)
    local conf = self.conf
    local number = self.sent + 1

    self.sent = number
    self.log[number] = message

    if conf.loss > 0 and conf.random() < conf.loss then
        self.lost = self.lost + 1
        self.plan(now + conf.delay + HEARTBEAT, "deliver",
                  { stream = self, number = number, heartbeat = true })

    elseif conf.delay > 0 or conf.loss > 0 then
        self.plan(now + conf.delay, "deliver",
                  { stream = self, number = number })

    else
        apply_to(self, number)
    end
end


-- A message has come, or a heartbeat that tells its number.
function _M:deliver(what, now)
    local number = what.number

    if number <= self.applied then
        return
    end

    self.heard = max(self.heard, number)

    if self.syncing then
        return
    end

    if number == self.applied + 1 and not what.heartbeat then
        apply_to(self, number)
        return
    end

    self.syncing = true
    self.trust(false)
    self.plan(now + self.conf.repair, "repair", self)
end


function _M:repair()
    apply_to(self, self.heard)
    self.syncing = false
    self.trust(true)
end


return _M
