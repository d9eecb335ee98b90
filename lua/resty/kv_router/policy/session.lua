-- Copyright (C) the nginx-kv-router authors
--
-- session: the requests of one session go to the worker that served the last
-- one, whatever is cached elsewhere.  Another policy chooses for the first
-- one, for requests without a session, and when the worker is gone or has too
-- much to do; the session then stays with that choice.
--
--     policy = "session",
--     policy_conf = { next = "kv_cost", next_conf = { decay = 0.5 } }
--
-- The session's id is what the header says, else the body's field, a string or
-- a number.
--
-- Settings:
--
--     next        "kv_cost"       another policy: a name, or a table with pick
--     next_conf                   settings of one that is named
--     header      "x-session-id"  "": no header
--     field       "session_id"    of the body, top level; "": none
--     ttl         600             seconds since the session's last request
--     dict                        the name of a lua_shared_dict, in which all
--                                 nginx processes keep sessions; without it
--                                 each has its own
--     entries     65536           sessions that a process keeps without one
--     max_active  0               more running requests than that for a weight
--                                 of 1 are too much; 0: no bound but that of
--                                 the worker (max_active=)


local checked = require "resty.kv_router.request.conf".check
local policy = require "resty.kv_router.policy"
local sessions = require "resty.kv_router.request.sessions"

local max = math.max
local number_of = sessions.number
local setmetatable = setmetatable


local _M = { name = "session" }
local mt = { __index = _M }


local SETTINGS = {
    next = { default = "kv_cost" },
    next_conf = {},
    header = { type = "string", default = "x-session-id" },
    field = { type = "string", default = "session_id" },
    ttl = { type = "number", default = 600, min = 1 },
    dict = { type = "string" },
    entries = { type = "number", default = 65536, min = 2 },
    max_active = { type = "number", default = 0 },
}

local MIN_WEIGHT = 0.001     -- the smallest that is not 0


function _M.new(conf)
    local complete, err = checked(conf, SETTINGS)
    if not complete then
        return nil, err
    end

    local next, kept = sessions.beside(complete, "session")
    if not next then
        return nil, kept
    end

    return setmetatable({ conf = complete, next = next, sessions = kept }, mt)
end


local function overloaded(conf, c)
    local active = c.active_requests

    return c.max_active > 0 and active >= c.max_active
           or conf.max_active > 0
              and active >= conf.max_active * max(c.weight, MIN_WEIGHT)
end


-- The reason is "session", or that of the other policy.
function _M:pick(ctx)
    local conf = self.conf
    local next = self.next
    local key = sessions.key_of(ctx, conf.header, conf.field)

    if not key then
        return next:pick(ctx)
    end

    local candidates = ctx.candidates
    local i = self.sessions:find(key, candidates)

    if i and not overloaded(conf, candidates[i]) then
        if not ctx.dry then
            self.sessions:set(key, number_of(candidates[i]))
        end

        return i, nil, "session"
    end

    local list, k, reason, plan = policy.ask(next, ctx)

    if not ctx.dry then
        self.sessions:set(key, number_of(candidates[list[0]]))
    end

    return list, k, reason, plan
end


-- Those of the other policy, whether it is asked or not.
function _M:explain(ctx)
    return policy.costs(self.next, ctx)
end


function _M:done(ctx, outcome)
    local next = self.next

    sessions.moved(self, ctx, outcome)

    if next.done then
        next.done(next.policy, ctx, outcome)
    end
end


return _M
