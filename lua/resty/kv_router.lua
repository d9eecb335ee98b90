-- Copyright (C) the nginx-kv-router authors
--
-- Routes LLM requests to the engine where they cost the least.
--
--     local kv = require "resty.kv_router"
--     local router = kv.new("main", { policy = "kv_cost",
--                                     tokenizer = "remote" })
--
--     access_by_lua_block   { router:access() }
--     balancer_by_lua_block { router:balance() }
--     log_by_lua_block      { router:log() }
--
-- and in the location of kv_router_api, for POST /route:
--
--     access_by_lua_block   { router:api() }
--
-- Policies: resty.kv_router.policy.  The index: resty.kv_router.index.


local admission = require "resty.kv_router.request.admission"
local balancer = require "ngx.balancer"
local checked = require "resty.kv_router.request.conf".check
local engines = require "resty.kv_router.tokens.engines"
local explain = require "resty.kv_router.request.explain"
local get_request = require "resty.core.base".get_request
local index = require "resty.kv_router.index"
local lib = require "resty.kv_router.ffi"
local limited = require "resty.kv_router.request.log".limited
local log = require "resty.kv_router.request.log"
local model = require "resty.kv_router.tokens.model"
local lora_of = require "resty.kv_router.request.input".lora
local new_random = require "resty.kv_router.request.random".new
local new_request = require "resty.kv_router.request.request".new
local policy = require "resty.kv_router.policy"
local prefill = require "resty.kv_router.tokens.prefill"
local times = require "resty.kv_router.tokens.times"
local tokenizer = require "resty.kv_router.tokens.tokenizer"

local ERR = ngx.ERR
local INFO = ngx.INFO
local WARN = ngx.WARN
local WHY = lib.WHY
local candidates = lib.candidates
local context_of = policy.context
local decide = policy.decide
local error = error
local ffi_string = require("ffi").string
local get_last_failure = balancer.get_last_failure
local min = math.min
local ngx = ngx
local ngx_exit = ngx.exit
local ngx_log = ngx.log
local now_us = lib.now_us
local pcall = pcall
local peer = lib.peer
local pid = ngx.worker.pid
local prompt = lib.prompt
local read_body = require("resty.kv_router.request.body").read
local refusal = require "resty.kv_router.request.refusal"
local reserve = lib.reserve
local reserved = lib.reserved
local set_current_peer = balancer.set_current_peer
local set_header = ngx.req.set_header
local set_more_tries = balancer.set_more_tries
local setmetatable = setmetatable
local tostring = tostring
local turn = require("resty.kv_router.tokens.model_ffi").turn
local type = type
local var = ngx.var


local _M = {}
local router = {}
local mt = { __index = router }


local SETTINGS = {
    policy = { default = "kv_cost" },
    policy_conf = {},
    tokenizer = { type = "string", default = "auto",
                  words = { "auto", "local", "render", "remote", "none" } },
    tokenizer_timeout = { type = "number", min = 0.001, max = 3600 },
    tokenizer_cache = { type = "number", default = 32 * 2^20,
                        max = 2^32 },
    max_tries = { type = "number", default = 2, max = 100, integer = true },
    unknown_model = { type = "string", words = { "any", "404" } },
    pin = { type = "boolean", default = false },
    explain = { gone = "POST /route of the HTTP API has all candidates, and the "
                       .. "variables have the decision" },
    class = {},
    tenant = {},
    classes = { type = "table" },
    tenants = { type = "table" },
    queue = { gone = 'the queue is the zone\'s: write "queue=NUMBER" in '
                     .. "kv_router_zone" },
    queue_timeout = { gone = 'write "wait" in "classes"' },
    overload_status = { type = "number", default = 429, min = 400, max = 599,
                        integer = true },
}

local REQUEST_SETTINGS = {
    lora_name = { type = "string" },
    lora_id = { type = "number", max = 2^53, integer = true },
    cache_salt = { type = "string" },
    model = { type = "string" },
    workers = { type = "string" },
    params = { type = "table" },
}

local NOTHING = {}

-- Names of models that no worker serves: those that are logged.
local UNSERVED_MAX = 32

-- Why nobody is asked for token ids, and what to do.
local NO_TOKENIZER = "no tokenizer is configured: they were routed by load; set "
                     .. 'tokenizer = "auto" in kv.new()'
local NO_ENGINE = "no engine can be asked for their token ids: they were routed "
                  .. "by load; start vLLM with --enable-scale-out, TensorRT-LLM "
                  .. "with TRTLLM_ENABLE_RENDER_ENDPOINTS=1, or see "
                  .. '"probe" of the workers in /status'
local NO_TEXTS = 'tokenizer = "none" in kv.new(), and there is kv_router_redis: '
                 .. "for workers with events texts and chats have no overlap; "
                 .. "leave the setting out, or see Rungs in docs/requests.md"

-- Policies that do not look at what is cached.
local BY_LOAD = { least_loaded = true, p2c = true, random = true,
                  round_robin = true }

local NO_PEER = -3               -- NGX_BUSY: nginx answers 502


-- Random numbers of this process: made by its first request, after the fork.
local random


-- ---- making -----------------------------------------------------------------

-- What makes token ids of texts.  Returns nil and what is wrong.
local function new_tokenizer(zone_name, conf)
    local setting = conf.tokenizer
    local found = (setting == "auto" or setting == "local")
                  and model.new(zone_name) or nil

    if setting == "local" and not found then
        return nil, '"tokenizer" can not be "local": zone "' .. zone_name
                    .. '" has no model; add kv_router_model, or use "auto"'
    end

    if setting ~= "local" then
        engines.probe(zone_name, setting == "auto")
    end

    return tokenizer.new(setting, conf.tokenizer_timeout, conf.tokenizer_cache,
                         found)
end


local function check_name(zone_name, what)
    if type(zone_name) ~= "string" then
        error("bad argument #1 to '" .. what .. "' (string expected, got "
              .. type(zone_name) .. ")", 3)
    end
end


-- Raises the error of new(), and tells the status of it.
local function not_made(zone_name, why)
    times.refused(zone_name, why)

    error("bad argument #2 to 'new' (" .. why .. ")", 3)
end


-- A router for the zone of that name.  Only checks and keeps its arguments, so
-- that it may be called in init_by_lua; raises an error when one is wrong.
--
--     policy             a name, or a table with pick(): resty.kv_router.policy
--                        ("kv_cost")
--     policy_conf        the settings of a policy that is named
--     tokenizer          how texts become token ids: "local": by the zone's
--                        kv_router_model; "render": by POST <path>/render of an
--                        engine; "remote": by POST /tokenize; "auto": by the
--                        model where the engines' echoes have proven it, else
--                        by render, else by remote, where an engine has it;
--                        "none": not at all, texts are routed by load ("auto")
--     tokenizer_timeout  seconds that a text may wait for its token ids (50 ms
--                        and 2 us for each byte of the body)
--     tokenizer_cache    bytes of token ids kept per nginx process (32 MiB)
--     max_tries          further candidates tried when one fails, 0 to 100 (2)
--     class, tenant      of a request, "$variable" of nginx or function(request)
--                        that returns a string: who goes first when requests wait
--                        (none)
--     classes            by name, 1 to 8: weight (1), wait (5 seconds), most (1:
--                        the part of all places that they may have); a request
--                        of none of them is of the class "default", or else of
--                        that with the least weight (one, "default")
--     tenants            by name, up to 64: weight (1), max_active (0: no bound)
--     overload_status    the answer to one that can't wait, or waited in vain
--                        (429)
--     unknown_model      a request for a model that no worker serves: "any": goes
--                        to any worker; "404": has this answer (what the zone
--                        has, see kv_router_zone)
--     pin                true: the header x-kv-worker of a request names the
--                        workers that it may go to, joined by commas (false)
function _M.new(zone_name, opts)
    check_name(zone_name, "new")

    local missing, fed = engines.no_zone(zone_name)

    if missing then
        error("bad argument #1 to 'new' (" .. missing .. ")", 2)
    end

    local conf, err = checked(opts, SETTINGS)
    if not conf then
        not_made(zone_name, err)
    end

    local chosen

    chosen, err = policy.load(conf.policy, conf.policy_conf)
    if not chosen then
        not_made(zone_name, err)
    end

    local asker

    if conf.tokenizer ~= "none" then
        asker, err = new_tokenizer(zone_name, conf)

        if not asker then
            not_made(zone_name, err)
        end

    elseif fed and not BY_LOAD[chosen.name] then
        log.warn(WARN, 'zone "' .. zone_name .. '": ' .. NO_TEXTS)
    end

    local gate

    gate, err = admission.new(zone_name, conf)
    if not gate then
        not_made(zone_name, err)
    end

    local unknown = conf.unknown_model

    times.policy(zone_name, chosen.name, conf.policy_conf)

    return setmetatable({ name = zone_name, policy = chosen,
                          refuses_models = unknown and unknown == "404",
                          tokenizer = asker, max_tries = conf.max_tries,
                          overload_status = conf.overload_status,
                          unserved = {}, nunserved = 0,
                          gate = gate, pin = conf.pin,
                          requests = 0, texts = 0 }, mt)
end


-- The index of the zone of that name: resty.kv_router.index.
function _M.index(zone_name)
    check_name(zone_name, "index")

    return index.new(zone_name)
end


-- ---- access -----------------------------------------------------------------

local function zone_of(self)
    local zone = self.zone

    if not zone then
        zone = lib.zone(self.name)
        self.zone = zone
        self.engine = engines.engine(zone)

        if self.refuses_models == nil then
            self.refuses_models = engines.parameter(zone, "unknown_model") == 1
        end

        -- there are routers that a process knows by their requests alone
        if self.tokenizer and not self.tokenizer.explicit then
            engines.probe(self.name, self.tokenizer.auto)
        end

        random = random or new_random(now_us() + pid())
    end

    return zone
end


-- A match failed, or, when it was found, its reservation.  by_load: for the
-- second time.
local function log_failure(self, found, err, by_load)
    local zone = 'zone "' .. self.name .. '": '

    if found then
        limited("reserve", log.MINUTE, WARN, zone .. "not reserved: " .. err)

    elseif by_load then
        limited("candidates", log.MINUTE, ERR, zone .. "no candidates: " .. err)

    else
        limited("match", log.MINUTE, ERR,
                zone .. "no match, routed by load: " .. err)
    end
end


-- Keeps the prompt: that of the body, or n tokens.  Returns as lib.prompt().
local function find_prompt(self, r, zone, given, asked, tokens, n)
    return prompt(r, zone, lora_of(given.lora_name, given.lora_id),
                  given.cache_salt, given.model,
                  given.workers or self.pin and var.http_x_kv_worker or nil,
                  self.policy.roles, asked, tokens, n)
end


-- Finds the prompt in the body.  asked: as for lib.prompt().  Returns the form
-- of the request if it has text and no ids, or nil, and the name of
-- its model if no worker serves it.
local function read_prompt(self, r, zone, req, given, asked)
    local why, found = find_prompt(self, r, zone, given, asked)

    if not why then
        log_failure(self, nil, found)
        return nil
    end

    req.lora = req.lora or found.lora

    return why == WHY.NO_TOKENS and found.text ~= 0
           and engines.form(found.form_id) or nil,
           found.unserved ~= 0 and ffi_string(found.model_data, found.model_len)
end


-- A request came with text, and nobody is asked for its token ids.  The log says
-- so once a minute, with counts; but not where nothing would be found anyhow: by
-- a policy that does not look, or in an index that nobody feeds.
local function untokenized(self, form, found)
    if BY_LOAD[self.policy.name] or not form.tokenized then
        return
    end

    self.texts = self.texts + 1

    if not log.due("no tokenizer " .. self.name, log.MINUTE) then
        return
    end

    for i = 1, #found do
        if found[i].confidence ~= "UNKNOWN" then
            log.warn(WARN, 'zone "' .. self.name .. '": ' .. self.texts .. " of "
                     .. self.requests .. " requests of this process since the "
                     .. "last such line had text, and "
                     .. (self.tokenizer and NO_ENGINE or NO_TOKENIZER))

            self.texts, self.requests = 0, 0

            return
        end
    end
end


-- A request names a model that no worker serves.  The log says so once for each
-- name, of the first UNSERVED_MAX names: clients can make up any number.
local function tell_unserved(self, name)
    name = log.told(name or "")

    if self.unserved[name] or self.nunserved == UNSERVED_MAX then
        return
    end

    self.unserved[name] = true
    self.nunserved = self.nunserved + 1

    log.warn(WARN, 'zone "' .. self.name .. '": no worker serves the model "'
             .. name .. '" of a request: '
             .. (self.refuses_models and "it is answered with 404"
                 or 'it goes to any worker, which may refuse it; unknown_model '
                    .. '= "404" in kv.new() has it refused here')
             .. (self.nunserved == UNSERVED_MAX
                 and "; further names are not logged" or ""))
end


-- What is said of a text that has no token ids.
local function log_text(self, job, why, err, field)
    if field then
        ngx_log(INFO, 'kv_router: the field "', log.told(field),
                '" of the body changes what the engine reads, routed by load')

    elseif why == WHY.NO_RUNG then
        untokenized(self, job.form, job.found)

    elseif err then
        limited("tokenizer", log.MINUTE, WARN,
                "tokenizer: " .. err .. ", routed by load")
    end
end


-- Has the text of that form tokenized by one of the candidates found, and keeps
-- its ids as the prompt.  long: is the body a long one?  Returns nil, or one of
-- WHY: the request goes by load.
-- Yields.
local function make_keys(self, r, zone, req, given, form, found, long)
    local job = { r = r, zone = zone, request = req, form = form, found = found,
                  random = random, engine = self.engine, long = long }
    local ok, entry, by, why, field = pcall(self.tokenizer.tokenize,
                                            self.tokenizer, job)
    if not ok then
        entry, by, why = nil, WHY.TOKENIZER, tostring(entry)
    end

    if entry then
        local seen, err = find_prompt(self, r, zone, given, nil, entry.tokens,
                                      entry.n)

        if entry.drop then
            entry.drop()
        end

        if seen then
            engines.tokens_by(r, zone, by, why)

            if long then
                turn(r, zone)
            end

            return nil
        end

        by, why = WHY.TOKENIZER, err
    end

    -- there was nothing to tokenize
    if by == nil then
        return nil
    end

    log_text(self, job, by, why, field)
    engines.tokens_by(r, zone, engines.BY.load, by)

    return by
end


-- What the policy wants done before the request goes to its worker.  What
-- fails is not needed: that worker can do it all.
local function prepare(self, plan, r, zone, req, found)
    local ok, done, err = pcall(prefill.run, plan,
                                { r = r, zone = zone, request = req,
                                  found = found, random = random,
                                  engine = self.engine })

    if not ok or not done then
        limited("prefill", log.MINUTE, WARN,
                "remote prefill: " .. tostring(ok and err or done))
        lib.prefill_failed(r, zone)
    end
end


-- Asks the policy and reserves what it chose.  why: of WHY, as the request goes
-- unless the policy fails.  selects: for POST /select.  Returns its plan, true: it
-- has none; or nil, what is wrong, and are all workers full by now?
local function choose(self, r, zone, req, found, given, why, started, selects)
    local chosen = self.policy
    local ctx = context_of(found, req, given.params, random, started / 1e6,
                           self.max_tries + 1, self.name)
    local list, k, reason, failed, plan, slow = decide(chosen, ctx)

    if slow then
        lib.policy_slow(zone)
    end

    if plan and plan.wait then
        return nil, nil, true
    end

    if plan and selects then
        return refusal.pair()
    end

    if chosen.done then
        ngx.ctx[self] = ctx
    end

    local ok, rank, full = reserve(r, zone, chosen.name, failed or why, reason,
                                   list, k, now_us() - started)

    if not ok then
        return nil, rank, full
    end

    -- behind one address there are several ranks: the engine is told which
    if rank then
        set_header("x-data-parallel-rank", rank)
    end

    return plan or true
end


-- The request has its worker: the plan is done, at once, or another request would
-- take the room that the policy has seen for it.
local function settle(self, r, zone, req, found, plan, form, long)
    if form and not self.tokenizer and found.why ~= 0 then
        untokenized(self, form, found)
    end

    if plan ~= true then
        prepare(self, plan, r, zone, req, found)
    end

    if long then
        turn(r, zone)
    end
end


local function check_given(given, name)
    if given == nil then
        return
    end

    local ok, err = checked(given, REQUEST_SETTINGS)
    if not ok then
        error("bad argument #1 to '" .. name .. "' (" .. err .. ")", 3)
    end
end


-- Reads the body, of any HTTP version, with a length or without.  Returns whether
-- it is a long one, which waits for a turn of the event loop to be scanned in.  If
-- nginx refuses the body (it is too large, or no HTTP), the request ends with
-- nginx's status.  Yields.
local function read(r, zone)
    local ok, long = read_body(r)
    if not ok then
        return ngx_exit(long)
    end

    if long then
        turn(r, zone)
    end

    return long
end


-- Reads the body, finds what is cached where, asks the policy and reserves; or
-- answers why not.  Without any worker that is 503.
--
-- The time that is recorded is that of deciding: neither the body's nor the
-- tokenizer's, nor what passed while the request waited.
--
-- The states of a request, and the next ones:
--
--     body    read                 prompt
--     prompt  find, hash the ids   found; a model that nobody serves: 404
--     found   list candidates      keys, choice; full: wait; fails: again; 503
--     keys    tokenize, hash       found
--     choice  ask and reserve      go; full: wait; fails: again
--     again   drop the hashes      found; the second time: 503
--     wait    for a place          found; overload_status, 429
--     go      rank, plan           the end; the try is balance()
--
-- CONTRIBUTING.md walks through them with one request.  503 is for no worker at all;
-- with a queue, a request waits for one.  Who may wait is tokenized before, by
-- workers that are full, too.  selects: for POST /select: nobody waits.
local function route(self, r, zone, given, selects)
    local long = read(r, zone)
    local started = now_us()

    self.requests = self.requests + 1

    local gate = self.gate
    local req = new_request(r, lora_of(given.lora_name, given.lora_id),
                            given.cache_salt)
    local form, unserved = read_prompt(self, r, zone, req, given, selects)
    local text = form ~= nil and self.tokenizer ~= nil
    local spent, by_load, why

    if unserved then
        tell_unserved(self, unserved)

        if self.refuses_models then
            return refusal.not_found(zone)
        end
    end

    local place = gate:begin(r, zone, req)

    if selects then
        place = nil
    end

    while true do
        local found, told, none, full = candidates(r, zone, by_load,
                                                   text and place)
        local plan, err

        if found and not text then
            plan, err, full = choose(self, r, zone, req, found, given,
                                     why or told, started, selects)
        end

        if plan then
            times.waited(r, zone)

            return settle(self, r, zone, req, found, plan, form, long)

        elseif found and text then
            local before = now_us()

            why = make_keys(self, r, zone, req, given, form, found, long)
            text = false
            before = now_us() - before
            started = started + before
            times.tokenized(zone, before)

        elseif (full or none) and place then
            spent = spent or now_us() - started
            times.waits(r, zone)

            local goes, code, after = gate:wait(r, zone, place)

            if not goes then
                times.waited(r, zone)

                return refusal.overloaded(self, zone, code, after)
            end

            started = now_us() - spent

        elseif full then
            return refusal.overloaded(self, zone, "overload")

        elseif none then
            return refusal.no_worker(zone)

        else
            log_failure(self, found, err or told, by_load)

            if by_load then
                return refusal.no_worker(nil)
            end

            by_load = true
        end
    end
end


-- In the access phase: routes the request.  Called again for the same request
-- (error_page, an internal redirect) it does nothing.
--
-- given: for this request, all optional: lora_name and cache_salt (the prompt's
-- namespaces), lora_id (instead of lora_name, the number of a LoRA whose events
-- have no name), model (only workers of that model, or of none), workers (only
-- these, ids joined by commas, whatever a header says), params (for the policy:
-- ctx.params).
function router:access(given)
    local r = get_request()
    local zone = zone_of(self)

    if not reserved(r, zone) then
        check_given(given, "access")
        route(self, r, zone, given or NOTHING)
    end
end


-- ---- explaining -------------------------------------------------------------

-- How a request like this one would be routed, as JSON: what POST /route of
-- the API answers.  Nothing is reserved, predicted or counted.  given: as for
-- access().  Returns nil, what is wrong, and true when that is for want of
-- workers.  Where access() may be called; the same request can't be routed
-- as well.
function router:explain(given)
    check_given(given, "explain")

    local r = get_request()
    local zone = zone_of(self)
    local ok, err = lib.dry(r, zone)

    if not ok then
        return nil, err
    end

    local long = read(r, zone)

    given = given or NOTHING

    local req = new_request(r, lora_of(given.lora_name, given.lora_id),
                            given.cache_salt)
    local form = read_prompt(self, r, zone, req, given, explain.asked())
    local found, none, full, why

    found, err, none, full = candidates(r, zone)

    if found and form and self.tokenizer then
        why = make_keys(self, r, zone, req, given, form, found, long)
        found, err, none, full = candidates(r, zone)
    end

    if not found then
        return nil, err, none or full
    end

    return explain.text(self, r, zone, req, found, given.params, why, random,
                        now_us() / 1e6)
end


-- In the access phase of a location with kv_router_api: answers POST /route,
-- reserves for POST /select, and leaves all else to the API.  given: as for
-- access().
function router:api(given)
    if explain.asked() then
        return explain.answer(self:explain(given))
    end

    local zone = zone_of(self)
    local r = get_request()

    if explain.asked("/select$") and lib.selects(r, zone) then
        check_given(given, "api")
        route(self, r, zone, given or NOTHING, true)
    end
end


-- ---- balancer and log -------------------------------------------------------

-- In the balancer phase: the peer that was reserved; on a retry the next best,
-- never one that failed.  Whether there is a retry is for
-- proxy_next_upstream to say; here only how many candidates there are.
function router:balance()
    local r = get_request()
    local host, port, left = peer(r, zone_of(self))

    if not host then
        ngx_log(ERR, 'kv_router: zone "', self.name, '": no peer: ', port)
        return ngx_exit(NO_PEER)
    end

    if left > 0 and self.max_tries > 0 and not get_last_failure() then
        set_more_tries(min(left, self.max_tries))
    end

    local ok, err = set_current_peer(host, port)
    if not ok then
        ngx_log(ERR, 'kv_router: zone "', self.name, '": peer ', host, ": ",
                err)
        return ngx_exit(NO_PEER)
    end
end


-- In the log phase: tells the policy's done() what came of the request.
function router:log()
    local chosen = self.policy

    if not chosen.done then
        return
    end

    local outcome = lib.outcome(get_request(), zone_of(self))

    if outcome then
        policy.finish(chosen, ngx.ctx[self], outcome)
    end
end


return _M
