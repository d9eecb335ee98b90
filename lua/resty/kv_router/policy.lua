-- Copyright (C) the nginx-kv-router authors
--
-- The door to policies: loads them, asks them, and makes the best of what
-- they answer.
--
-- WHAT A POLICY IS
--
-- A Lua module, named by opts.policy of resty.kv_router's new(): "kv_cost" is
-- resty.kv_router.policy.kv_cost, a name with a dot is a module's full name.
-- The module has
--
--     new(conf)                 conf: opts.policy_conf, or nil.  Returns the
--                               policy; nil and a sentence, or an error, when
--                               conf is wrong.  Called once, perhaps before
--                               nginx forks
--
-- and what it returns, or a table given as opts.policy itself, has
--
--     pick(self, ctx)           chooses; must not yield, and must do linear
--                               work in the number of candidates: the nginx
--                               process serves no other request meanwhile
--     name                      optional: what logs call a table given as
--                               opts.policy
--     roles                     optional: the roles of the workers that it
--                               chooses from, { "both" } when nil.  A policy
--                               that wraps another passes on the other's
--     explain(self, ctx)        optional; when a person asks: a table of what
--                               each candidate costs, the lowest is the best
--     done(self, ctx, outcome)  optional; in the log phase.  outcome, valid
--                               during the call: worker, rank, tries, status
--                               (of the last try), first_byte_us (since the
--                               decision; -1: none came), total_us.  ctx is
--                               nil when an internal redirect dropped it
--
-- WHAT pick() IS GIVEN
--
--     ctx.candidates            a list: #candidates, candidates[1] and so on,
--                               nil beyond.  Reading a field that a candidate
--                               does not have is an error.  Each has
--         worker, rank          id (string), data-parallel rank (number)
--         device, host, disk    blocks of the prompt cached there; cumulative:
--                               device <= host <= disk
--         predicted             of device: not by events yet, see predict=
--         in_flight             blocks of the prompt that the worker has in
--                               flight, for requests of this nginx process,
--                               or was sent by another one within 5 seconds
--         churn                 blocks that it stored lately; half of them are
--                               forgotten after 4 minutes
--         active_requests, active_prefills, prefill_tokens (not yet done, as
--         far as the speed tells), tokens_in_flight (all of them), decode_blocks
--                               the load that all of nginx has put there
--         prefill_tps           the speed: prompt tokens that are prefilled
--                               there in a second; 0: not known
--         waiting_requests, running_requests, kv_usage (0 to 1)
--                               the load that the engine itself reports; nil:
--                               not known
--         health                "ok", "slow_start" (share is below 1) or
--                               "half_open" (one request may try it);
--                               "failed", "away" or "down" only when all who
--                               could have the request are
--         lora                  adapters loaded there, joined by commas; nil:
--                               not known
--         additional_blocks     that this request would add to decode_blocks
--         weight                1 is usual; times share
--         share                 1, but for a worker that starts slowly: above 0
--         max_active, max_prefill_tokens (of tokens_in_flight): bounds; 0: none
--         role                  "both", "prefill" or "decode"
--         engine                "vllm", "sglang", "trtllm" or "unknown"
--         confidence            how far its view is to be trusted: "UNKNOWN",
--                               "EXACT", "DEGRADED", "SYNCING",
--                               "UNVERIFIED", "BOUND" or "ESTIMATED";
--                               confidence_id is the same as a number, from
--                               0, for hot loops
--         confidence_reason     why: "none", "no_events", "silent", ... as in
--                               /workers (a string: see below)
--         age                   seconds since its last message; -1: never
--         address, model        strings; model "" when not said
--         holder, generation    numbers that name (worker, rank): the pair is
--                               never used again for another
--                               (worker, address, model: each read makes a Lua
--                               string; keep them out of loops over all)
--     ctx.prompt_tokens, ctx.prompt_blocks, ctx.block_size
--     ctx.hashes                cdata uint64_t[], from 0: the local hash of
--                               each of the prompt's blocks; nil: none,
--                               as for a text at workers without events
--     ctx.best                  the largest device of all candidates
--     ctx.matches               the overlaps again, as request/matches.lua has them,
--                               with the frequencies of the zone's blocks
--     ctx.request               read lazily: resty.kv_router.request.request
--     ctx.random()              a number in [0, 1)
--     ctx.now                   seconds, monotonic, the clock of age
--     ctx.foreign               uint8_t[] by holder, 1: another router's home
--                               worker; nil: no router shares its load
--     ctx.zone                  the name of the zone
--     ctx.params                the table given to router:access() for this
--                               request, or nil
--     ctx.dry                   true: this is only to be explained: a policy
--                               that keeps something of a choice keeps it not
--     ctx.wanted                how many candidates, ranked, routing can use:
--                               the choice and those that retries follow
--
-- All of it is good until the request ends, and read-only; it has nothing else.
--
-- WHAT pick() RETURNS
--
--     worker, rank, reason      rank: 0 when nil.  reason: a short string for
--                               the log, or nil
--     i, nil, reason            candidate number i, from 1
--     list, nil, reason         a table of candidate numbers, the best first:
--                               retries follow it
--     list, k, reason           the same as an array of uint32_t, from 0, of
--                               length k: what order.lowest() returns
--
-- and after the reason, if it likes, a table of what is to be done before the
-- request goes there:
--
--     headers                   name -> string, set in the request, or false
--     prefill                   candidate numbers, the best first: one of these
--                               workers computes the prompt for the chosen one.
--                               protocol ("vllm" or "sglang") says how, see
--                               tokens/prefill.lua; further fields are
--                               settings of that
--     wait                      true: no worker has room, and the request waits
--
-- An error, or an answer that is none of these, is logged once per kind with
-- a traceback and counted, and the least loaded candidate is taken.  Errors
-- raised at one line of a file are of one kind.  So it is with a policy that
-- yields.  A pick() that took over 10 ms is told once a minute, and counted.
-- Nothing ends a pick() that never ends: the command kv-router-check finds it
-- before nginx does.
--
-- A policy may ask another one: load() it in new(), then return its pick(ctx), or
-- ask() when its answer has to be looked at; resty.kv_router.subset lets it
-- choose among some of the candidates.
--
--     local policy = require "resty.kv_router.policy"
--
--     function _M.new()
--         return setmetatable({ other = assert(policy.load("kv_cost")) }, mt)
--     end
--
--     function _M:pick(ctx)
--         return self.other:pick(ctx)
--     end


local ffi = require "ffi"
local least = require "resty.kv_router.request.order".least
local lib = require "resty.kv_router.ffi"
local log = require "resty.kv_router.request.log"
local matches = require "resty.kv_router.request.matches"
local suggest = require "resty.kv_router.request.suggest"

local ERR = ngx.ERR
local WARN = ngx.WARN
local ffi_new = ffi.new
local concat = table.concat
local error = error
local find = string.find
local format = string.format
local getmetatable = getmetatable
local getinfo = debug.getinfo
local ipairs = ipairs
local istype = ffi.istype
local kill = ngx.thread.kill
local limited = log.limited
local match = string.match
local max = math.max
local now_us = lib.now_us
local pairs = pairs
local pcall = pcall
local rawequal = rawequal
local rawset = rawset
local require = require
local role_bits = lib.ROLE_BITS
local setmetatable = setmetatable
local sizeof = ffi.sizeof
local spawn = ngx.thread.spawn
local status = coroutine.status
local tostring = tostring
local traceback = debug.traceback
local type = type
local typeof = ffi.typeof
local wait = ngx.thread.wait
local xpcall = xpcall


local _M = {}


local OURS = "resty.kv_router.policy."

-- The policies that come with nginx-kv-router.
_M.NAMES = {
    "affinity_gate", "agent", "cache_aware", "disaggregated", "kv_cost",
    "least_loaded", "lmetric", "p2c", "prefix_hash", "random", "round_robin",
    "session", "weighted",
}

local SLOW = 10000               -- microseconds

local NOTHING = "nothing: pick() must return a worker's id, the number of a "
                .. "candidate, or a list of such numbers"
local ENDED = { zombie = true, dead = true }
local YIELDED = "it yielded, which a policy may not"


-- ---- loading ----------------------------------------------------------------

-- No module has the policy's name.  err: of require().
local function unknown(name, module, err)
    local text = 'unknown policy "' .. name .. '"'

    if module ~= name then
        return text .. suggest.among(name, _M.NAMES) .. '; a module of your own '
               .. 'has a dot in its name, as "acme.' .. name .. '"'
    end

    return text .. ": no file of lua_package_path has it: "
           .. concat({ match(err, "no file '([^']*)'.-no file '([^']*)'") }, ", ")
           .. ", ..."
end


local function named(name, conf)
    local module = name

    if not find(name, ".", 1, true) then
        module = OURS .. name
    end

    local ok, loaded = pcall(require, module)

    if not ok then
        loaded = tostring(loaded)

        if find(loaded, "module '" .. module .. "' not found", 1, true) then
            return nil, unknown(name, module, loaded)
        end

        return nil, 'policy "' .. name .. '": ' .. loaded
    end

    if type(loaded) ~= "table" or type(loaded.new) ~= "function" then
        return nil, 'policy "' .. name .. '" has no function new(conf)'
    end

    local policy, err = loaded.new(conf)

    if not policy then
        return nil, 'policy "' .. name .. '": '
                    .. (err == nil and "new(conf) returned nothing: it must "
                                       .. "return the policy, or nil and a "
                                       .. "sentence" or tostring(err))
    end

    return policy
end


-- The bits of a list of roles; nil when it is none.
local function bits_of(roles)
    if roles == nil then
        return role_bits.both
    end

    local bits = 0

    if type(roles) ~= "table" then
        return nil
    end

    for _, role in ipairs(roles) do
        local bit = role_bits[role]

        if not bit then
            return nil
        end

        if bits % (2 * bit) < bit then
            bits = bits + bit
        end
    end

    return bits > 0 and bits or nil
end


-- Is it one of our own policies?  These don't yield.
local function is_ours(what)
    return type(what) == "string"
           and (find(what, OURS, 1, true) == 1 or not find(what, ".", 1, true))
end


-- the number of policies that are not ours, loaded until now
local others = 0


-- The method pick() of what load() returns: asks the policy, and returns what it
-- returns.
local function pick(self, ctx)
    local policy = self.policy

    return policy.pick(policy, ctx)
end


-- Loads the policy of that name, or takes the table; conf: settings for a
-- named one.  Returns an object with the method pick(ctx) and the fields name,
-- policy, done, roles, apart: roles as the bits of ffi.ROLE_BITS; apart: it is,
-- or asks, one that is not ours; or nil and a sentence.
function _M.load(what, conf)
    local before = others
    local policy, err, name

    if type(what) == "string" then
        name = what
        policy, err = named(what, conf)
        if not policy then
            return nil, err
        end

    elseif type(what) == "table" then
        if conf ~= nil then
            return nil, '"policy_conf" goes with the name of a policy, not '
                        .. "with a table"
        end

        name = type(what.name) == "string" and what.name or "custom"
        policy = what

    else
        return nil, '"policy" must be a string or a table, not ' .. type(what)
    end

    if type(policy) ~= "table" or type(policy.pick) ~= "function" then
        return nil, 'policy "' .. name .. '" has no function pick(self, ctx)'
    end

    for _, field in ipairs { "done", "explain" } do
        if policy[field] ~= nil and type(policy[field]) ~= "function" then
            return nil, 'policy "' .. name .. '": "' .. field
                        .. '" is not a function'
        end
    end

    local roles = bits_of(policy.roles)

    if not roles then
        return nil, 'policy "' .. name .. '": "roles" is no list of roles'
    end

    if not is_ours(what) then
        others = others + 1
    end

    return { name = name, policy = policy, pick = pick,
             done = policy.done, roles = roles, apart = others > before }
end


-- ---- asking -----------------------------------------------------------------

local FIELDS = "best, block_size, candidates, dry, foreign, hashes, matches, "
               .. "now, params, prompt_blocks, prompt_tokens, random, request, "
               .. "wanted, zone"
local MAY_BE_NIL = { dry = true, params = true, zone = true }

local ctx_mt = {
    __index = function(ctx, key)
        if key == "hashes" or key == "foreign" then
            local array = ctx.candidates[key]

            -- an index into a NULL would kill the process
            return array ~= nil and array or nil
        end

        if MAY_BE_NIL[key] then
            return nil

        elseif key ~= "matches" then
            error('ctx has no field "' .. tostring(key) .. '": it has ' .. FIELDS,
                  2)
        end

        local found = ctx.candidates
        local m = matches.new(found.candidates, found.n, ctx.prompt_blocks,
                              found.frequencies, found.nfrequencies,
                              found.cut == 1)

        rawset(ctx, "matches", m)

        return m
    end
}


-- What pick() is given.  found: a match of resty.kv_router.ffi; now: seconds;
-- zone: its name.
function _M.context(found, request, params, random, now, wanted, zone)
    -- in parentheses: a function that ends in a tail call is not compiled
    return (setmetatable({
        candidates = found,
        prompt_tokens = found.prompt_tokens,
        prompt_blocks = found.prompt_blocks,
        block_size = found.block_size,
        best = found.best,
        request = request,
        params = params,
        random = random,
        now = now,
        wanted = wanted,
        zone = zone,
    }, ctx_mt))
end


local list_t = typeof("uint32_t[?]")
local MIN_SIZE = 64
local capacity = 0
local ranked


-- A buffer for n candidate numbers as C counts them, from 0.
local function room(n)
    if n > capacity then
        local size = max(2 * n, MIN_SIZE)

        ranked = ffi_new(list_t, size)
        capacity = size
    end

    return ranked
end


-- How long a list of numbers is, -1 for another cdata.  ffi.sizeof() of an
-- array doesn't compile: the list of the last answer is remembered, as policies
-- use theirs again.
local last_list
local last_length

local function length_of(list)
    if rawequal(list, ranked) then
        return capacity
    end

    if not rawequal(list, last_list) then
        if not istype(list_t, list) then
            return -1
        end

        last_list = list
        last_length = sizeof(list) / 4
    end

    return last_length
end


-- Copies list[from] and so on, k candidate numbers, to ranked.
local function copy(list, from, k, n)
    if k < 1 then
        return nil, "an empty list"
    end

    -- nobody tries more than there are
    if k > n then
        k = n
    end

    local out = room(k)

    for i = 0, k - 1 do
        local c = list[from + i]

        if type(c) ~= "number" or not (c >= 1 and c <= n) or c % 1 ~= 0 then
            return nil, "candidate " .. tostring(c) .. " of " .. n
        end

        out[i] = c - 1
    end

    return k
end


-- Numbers of candidates and headers are what they should be?  Returns what is
-- wrong.
local function wrong_plan(plan, n)
    if type(plan) ~= "table" then
        return "a plan that is a " .. type(plan)
    end

    local headers, prefill = plan.headers, plan.prefill

    if headers ~= nil then
        if type(headers) ~= "table" then
            return "headers that are a " .. type(headers)
        end

        for name, value in pairs(headers) do
            if type(name) ~= "string" or not find(name, "^[%w_-]+$")
               or value ~= false and (type(value) ~= "string"
                                      or find(value, "%c"))
            then
                return "a header that is none"
            end
        end
    end

    if prefill == nil then
        return nil
    end

    if type(prefill) ~= "table" or #prefill == 0 then
        return "no list of workers to prefill at"
    end

    for _, c in ipairs(prefill) do
        if type(c) ~= "number" or not (c >= 1 and c <= n) or c % 1 ~= 0 then
            return "candidate " .. tostring(c) .. " of " .. n .. " to prefill"
        end
    end

    if plan.protocol ~= "vllm" and plan.protocol ~= "sglang" then
        return "a protocol that is " .. tostring(plan.protocol)
    end

    return nil
end


-- Puts into ranked what pick() returned; returns the length, or nil and what
-- is wrong with the answer.
local function resolve(candidates, a, b, reason, plan)
    local n = #candidates

    if plan ~= nil then
        local err = wrong_plan(plan, n)
        if err then
            return nil, err
        end
    end

    if reason ~= nil and type(reason) ~= "string" then
        return nil, "a reason that is a " .. type(reason)
    end

    if type(a) == "cdata" then
        if type(b) ~= "number" or b % 1 ~= 0 or b > length_of(a) then
            return nil, "a cdata that is no list of that length"
        end

        return copy(a, 0, b, n)
    end

    if type(a) == "table" then
        return copy(a, 1, #a, n)
    end

    if type(a) == "number" then
        if not (a >= 1 and a <= n) or a % 1 ~= 0 then
            return nil, "candidate " .. a .. " of " .. n
        end

        room(1)[0] = a - 1
        return 1
    end

    if a == nil then
        return nil, NOTHING
    end

    if type(a) ~= "string" then
        return nil, "a worker that is a " .. type(a)
    end

    local rank = b or 0

    for i = 1, n do
        local c = candidates[i]

        if c.rank == rank and c.worker_len == #a and c.worker == a then
            room(1)[0] = i - 1
            return 1
        end
    end

    return nil, 'worker "' .. a .. '" rank ' .. tostring(rank)
                .. ", which is no candidate"
end


-- By metatables a look at an answer may raise an error.
local function may_raise(a, plan)
    return plan ~= nil or type(a) == "table" and getmetatable(a) ~= nil
end


-- As resolve(), of such an answer.
local function read(...)
    local ok, k, err = pcall(resolve, ...)

    if not ok then
        return nil, "what can't be read: " .. tostring(k)
    end

    return k, err
end


-- Logs a policy's failure, once for its kind.  What a message says may differ
-- from request to request: its kind is the line that raised it.
local function complain(self, what, kind, message)
    limited("policy " .. self.name .. what .. kind, log.ONCE, ERR,
            'policy "' .. self.name .. '": ' .. what .. ": " .. message)
end


local function kind_of(err)
    return match(err, "^[^\n]-:%d+:") or match(err, "^[^\n%d]*")
end


-- Where a function is, as a traceback says it.
local function place(func)
    local info = getinfo(func, "S")

    return info.short_src .. ":" .. info.linedefined
end


-- For xpcall(): what error() was called with, and a traceback.
local function with_traceback(err)
    local text = tostring(err)

    if err == nil or find(text, "^%l+: 0x") then
        text = "error() was called with a " .. type(err)
               .. ": call it with a sentence"
    end

    return traceback(text, 1)
end


local function work(func, policy, ctx)
    return xpcall(func, with_traceback, policy, ctx)
end

-- What a thread has returned, without the true before it; or false, its error.
local function returned(good, ...)
    if good then
        return ...
    end

    return good, ...
end


-- Calls one of a policy's functions, where threads can be made: all phases of
-- a request but the log phase.  Returns what xpcall() does.  A policy that is
-- not ours runs in a thread of its own: when it yields, this is an error, the
-- thread is ended, and what it waited for is forgotten.  (An error of a
-- coroutine.wrap() is caught by no pcall() in nginx: it aborts the thread.)
local function run(self, func, ctx)
    if not self.apart then
        return xpcall(func, with_traceback, self.policy, ctx)
    end

    local ok, thread = pcall(spawn, work, func, self.policy, ctx)

    if not ok then
        return false, tostring(thread)
    end

    -- an ended thread is "zombie" in nginx, and "dead" elsewhere
    if ENDED[status(thread)] then
        return returned(wait(thread))
    end

    local err = traceback(thread, YIELDED)

    pcall(kill, thread)

    return false, tostring(err)
end


-- Tells of a pick() that took that many microseconds.
local function tell_slow(self, us, n)
    limited("policy " .. self.name .. " slow", log.MINUTE, WARN,
            format('policy "%s": pick() took %.1f ms for %d candidates; '
                   .. "requests of this nginx process wait meanwhile: make it "
                   .. "do linear work, and try it by kv-router-check",
                   self.name, us / 1000, n))
end


-- Asks a policy that load() returned for another one.  Returns an array of
-- candidate numbers, from 1, good until the next call, its length, the reason
-- and the plan; raises an error when the answer is none.
function _M.ask(self, ctx)
    local a, b, reason, plan = self:pick(ctx)
    local k, err = resolve(ctx.candidates, a, b, reason, plan)

    if not k then
        error('policy "' .. self.name .. '" returned ' .. err)
    end

    for i = 0, k - 1 do
        ranked[i] = ranked[i] + 1
    end

    return ranked, k, reason, plan
end


-- Asks a policy that load() returned.  Returns an array of candidate numbers
-- as C counts them (from 0, good until the next call), its length, the reason
-- (a string or nil), ffi.WHY.POLICY_ERROR when the policy failed, the plan or
-- nil, and true when pick() took over 10 ms.
function _M.decide(self, ctx)
    local started = now_us()
    local ok, a, b, reason, plan = run(self, self.policy.pick, ctx)
    local took = now_us() - started
    local slow = took > SLOW

    if slow then
        tell_slow(self, took, #ctx.candidates)
    end

    if ok then
        local k, err

        -- not always: what is called by pcall() is not compiled by itself

        if self.apart and may_raise(a, plan) then
            k, err = read(ctx.candidates, a, b, reason, plan)

        else
            k, err = resolve(ctx.candidates, a, b, reason, plan)
        end

        if k then
            return ranked, k, reason, nil, plan, slow
        end

        complain(self, "pick", match(err, "^[^%d\"]*"), "it returned " .. err
                 .. "\nstack traceback:\n\t" .. place(self.policy.pick)
                 .. ": in function 'pick'")

    else
        complain(self, "pick", kind_of(a), a)
    end

    local list, k = least(ctx.candidates, ctx.block_size, ctx.wanted,
                          ctx.random)

    -- which may replace ranked
    k = copy(list, 0, k, #ctx.candidates)

    return ranked, k, nil, lib.WHY.POLICY_ERROR, nil, slow
end


-- What each candidate costs by a policy that load() returned, as a table; nil:
-- it doesn't say.
function _M.costs(self, ctx)
    local explain = self.policy.explain

    if not explain then
        return nil
    end

    local ok, costs = run(self, explain, ctx)

    if not ok then
        complain(self, "explain", kind_of(costs), costs)
        return nil
    end

    return type(costs) == "table" and costs or nil
end


-- Tells a policy with a done() what came of the request.  In the log phase,
-- where nothing can yield.
function _M.finish(self, ctx, outcome)
    local ok, err = xpcall(self.done, with_traceback, self.policy, ctx,
                           outcome)

    if not ok then
        complain(self, "done", kind_of(err), err)
    end
end


return _M
