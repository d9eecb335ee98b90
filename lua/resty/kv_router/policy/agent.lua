-- Copyright (C) the nginx-kv-router authors
--
-- agent: a session of a coding agent stays at its worker unless that is much
-- dearer than the best one; a new session goes where the fewest tokens of
-- sessions are bound, since an agent comes back for some 40 turns.
--
--     cost(w)  = prefill_tokens + prompt_tokens - cached tokens
--     session  : stays at w when cost(w) <= slack * least cost + block_size,
--                or decode_blocks(w) <= slack * mean decode_blocks;
--                else, and when w is gone, the policy `next` chooses, and the
--                session is bound to its choice
--     new one  : the worker of its parent, by the same rule; without a parent
--                the least bound_tokens(w) + cost(w)
--
-- bound_tokens(w): the last prompts of the live sessions of w, as far as this
-- nginx process has seen them.
--
-- A session is known by the first of
--
--     x-claude-code-agent-id, x-claude-code-session-id     Claude Code
--     session-id                                           Codex
--     x-opencode-session, x-session-affinity               OpenCode
--     x-session-id                                         any other client
--     "prompt_cache_key", "session_id"                     of the body
--     a hash of the body's "messages" up to the end of the first one of a user
--
-- and its parent by x-parent-session-id or x-claude-code-parent-agent-id, or
-- x-claude-code-session-id beside an agent's id.  A request without any of them
-- is left to `next`.  The header x-session-final, neither empty nor 0, ends the
-- session after this request.  A client that lies about its session moves its
-- own requests alone.
--
-- Settings:
--
--     next       "kv_cost"  another policy: a name, or a table with pick
--     next_conf             settings of one that is named
--     slack      2          at least 1
--     ttl        600        seconds since the session's last request
--     dict                  the name of a lua_shared_dict, in which all nginx
--                           processes keep the bindings; without it each has
--                           its own: give one with several worker_processes
--     entries    65536      sessions that a process keeps; when there are more,
--                           those not used for longest go


local checked = require "resty.kv_router.request.conf".check
local decode = require "cjson.safe".decode
local discounts = require "resty.kv_router.request.discounts"
local json = require "resty.kv_router.tokens.json"
local order = require "resty.kv_router.request.order"
local policy = require "resty.kv_router.policy"
local sessions = require "resty.kv_router.request.sessions"

local costs = order.costs
local crc32 = ngx.crc32_long
local element = json.element
local fields_of = json.fields
local huge = math.huge
local ipairs = ipairs
local key_for = sessions.key
local lowest = order.lowest
local max = math.max
local min = math.min
local number_of = sessions.number
local setmetatable = setmetatable
local sub = string.sub
local type = type


local _M = { name = "agent" }
local mt = { __index = _M }


local SETTINGS = {
    next = { default = "kv_cost" },
    next_conf = {},
    slack = { type = "number", default = 2, min = 1 },
    ttl = { type = "number", default = 600, min = 1 },
    dict = { type = "string" },
    entries = { type = "number", default = 65536, min = 2 },
}

local AGENT = "x-claude-code-agent-id"
local SESSION = "x-claude-code-session-id"

local HEADERS = { AGENT, SESSION, "session-id", "x-opencode-session",
                  "x-session-affinity", "x-session-id" }
local FIELDS = { "prompt_cache_key", "session_id" }
local PARENTS = { "x-parent-session-id", "x-claude-code-parent-agent-id" }

local MAX_TEXT = 65536           -- bytes of messages that are hashed


-- ---- tokens that are bound --------------------------------------------------

-- Sessions by key, in two generations; the older one is dropped when the younger
-- one is full, or when a ttl has passed.
local bound_mt = {}

bound_mt.__index = bound_mt


local function generation()
    return { sessions = {}, sums = {}, n = 0 }
end


local function new_bound(ttl, entries)
    return setmetatable({ ttl = ttl, most = entries / 2, young = generation(),
                          old = generation(), since = 0, dropped = 0 },
                        bound_mt)
end


local function forget(part, key)
    local entry = part.sessions[key]

    if entry then
        part.sums[entry.number] = part.sums[entry.number] - entry.tokens
        part.sessions[key] = nil
        part.n = part.n - 1
    end
end


function bound_mt:remove(key)
    forget(self.young, key)
    forget(self.old, key)
end


-- The session's last prompt, of so many tokens, was at the worker.
function bound_mt:set(key, number, tokens, now)
    self:remove(key)

    local full = self.young.n >= self.most

    if full or now - self.since >= self.ttl then
        self.dropped = self.dropped + (full and self.old.n or 0)
        self.old, self.young = self.young, generation()
        self.since = now
    end

    local young = self.young

    young.sessions[key] = { number = number, tokens = tokens }
    young.sums[number] = (young.sums[number] or 0) + tokens
    young.n = young.n + 1
end


function bound_mt:tokens(number)
    return (self.young.sums[number] or 0) + (self.old.sums[number] or 0)
end


-- ---- keys -------------------------------------------------------------------

-- The first of the headers that is there.
local function header_of(request, names)
    for _, name in ipairs(names) do
        local value = request.headers[name]

        if value and value ~= "" then
            return value
        end
    end

    return nil
end


-- A hash of the JSON text of messages, up to the end of the first one of a
-- user; nil: none begins in the first MAX_TEXT bytes, all that is hashed.
local function hash_of(text)
    local from, stop = element(text)

    while from and from <= MAX_TEXT do
        local message = fields_of(sub(text, from, stop - 1))

        if message and message.role == '"user"' then
            local first = sub(text, 1, min(stop - 1, MAX_TEXT))

            return "messages " .. #first .. " " .. crc32(first)
        end

        from, stop = element(text, stop)
    end

    return nil
end


local function id_of(request)
    local id = header_of(request, HEADERS)

    if id then
        return id
    end

    local fields = request.fields

    for _, name in ipairs(FIELDS) do
        local value = fields[name] and decode(fields[name])

        if type(value) == "string" and value ~= "" then
            return value
        end
    end

    return fields.messages and hash_of(fields.messages)
end


-- What the request's session is kept by; nil: it has none.
local function key_of(ctx)
    local id = id_of(ctx.request)

    return id and key_for(ctx.zone, id)
end


-- The same of the session that the request's own one comes from.
local function parent_of(ctx)
    local request = ctx.request
    local id = header_of(request, PARENTS)
               or request.headers[AGENT] and header_of(request, { SESSION })

    return id and key_for(ctx.zone, id)
end


local function is_final(request)
    local value = request.headers["x-session-final"]

    return value and value ~= "" and value ~= "0"
end


-- ---- the choice -------------------------------------------------------------

function _M.new(conf)
    local complete, err = checked(conf, SETTINGS)
    if not complete then
        return nil, err
    end

    local next, kept = sessions.beside(complete, "agent")
    if not next then
        return nil, kept
    end

    return setmetatable({ conf = complete, next = next, sessions = kept,
                          bound = new_bound(complete.ttl, complete.entries) },
                        mt)
end


-- Tokens that candidate c must prefill before the first one of the answer.
local function cost_of(ctx, c)
    local cached = discounts[c.confidence_id] * c.device * ctx.block_size

    return c.prefill_tokens + ctx.prompt_tokens
           - min(ctx.prompt_tokens, cached)
end


-- May the session be at candidate i?
local function stays(self, ctx, i)
    local candidates, slack = ctx.candidates, self.conf.slack
    local n, least, blocks = #candidates, huge, 0

    for k = 1, n do
        least = min(least, cost_of(ctx, candidates[k]))
        blocks = blocks + candidates[k].decode_blocks
    end

    local c = candidates[i]

    if c.max_active > 0 and c.active_requests >= c.max_active then
        return false
    end

    return cost_of(ctx, c) <= slack * least + ctx.block_size
           or c.decode_blocks <= slack * blocks / n
end


-- Where a new session goes.
local function place(self, ctx)
    local candidates = ctx.candidates
    local n = #candidates
    local cost = costs(n)

    for i = 1, n do
        local c = candidates[i]

        cost[i] = (self.bound:tokens(number_of(c)) + cost_of(ctx, c))
                  / max(c.share, 0.001)
    end

    return lowest(cost, n, ctx.wanted, ctx.random)
end


local function bind(self, ctx, key, i)
    if ctx.dry then
        return
    end

    local number = number_of(ctx.candidates[i])

    self.sessions:set(key, number)
    self.bound:set(key, number, ctx.prompt_tokens, ctx.now)
end


-- The reason is "session" or "parent" when the session stays, "new session"
-- for one without a parent, else that of the other policy.
function _M:pick(ctx)
    local key = key_of(ctx)

    if not key then
        return self.next:pick(ctx)
    end

    local candidates, reason = ctx.candidates, "session"
    local known = self.sessions:get(key)
    local i = known and self.sessions:find(key, candidates)

    if not known then
        local parent = parent_of(ctx)

        i = parent and self.sessions:find(parent, candidates)
        reason = "parent"
    end

    if i and stays(self, ctx, i) then
        bind(self, ctx, key, i)
        return i, nil, reason
    end

    if not known and not i then
        local list, k = place(self, ctx)

        bind(self, ctx, key, list[0])
        return list, k, "new session"
    end

    local list, k, why, plan = policy.ask(self.next, ctx)

    bind(self, ctx, key, list[0])

    return list, k, why, plan
end


-- Those of the other policy, whether it is asked or not.
function _M:explain(ctx)
    return policy.costs(self.next, ctx)
end


-- After a retry the session is where it was served; a final request ends it.
function _M:done(ctx, outcome)
    local next = self.next
    local key = ctx and key_of(ctx)

    if key and is_final(ctx.request) then
        self.sessions:drop(key)
        self.bound:remove(key)

    elseif key and outcome.tries > 1 then
        for i = 1, #ctx.candidates do
            if ctx.candidates[i].holder == outcome.holder then
                bind(self, ctx, key, i)
            end
        end
    end

    if next.done then
        next.done(next.policy, ctx, outcome)
    end
end


return _M
