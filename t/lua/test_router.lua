-- resty.kv_router: access, balance and log, with C and nginx played by Lua.


local tap = require "lib.tap"
local fake = require "lib.fake"
local ffi = require "ffi"
local sock = require "lib.sock"
local kv = require "resty.kv_router"
local lib = require "resty.kv_router.ffi"

local WHY = lib.WHY

local has, is, raises = tap.has, tap.is, tap.raises
local ngx = fake.ngx


-- ---- a zone -----------------------------------------------------------------

local c = fake.c
local state              -- of the request that is played

local function reset(more)
    state = { now = 5000, prompt_rc = 0, tokens_rc = 0, rc = 0, reserve_rc = 0,
              reserved = -5, scans = 0, lists = 0, reserves = 0 }
    fake.log, fake.printed, fake.exited = {}, "", nil
    fake.body, fake.bodies = nil, 0
    fake.balancer = {}
    fake.set = {}
    fake.vars.uri = "/v1/completions"
    fake.time = fake.time + 3600
    ngx.ctx, ngx.header, ngx.status = {}, {}, nil

    state.list = { { active_requests = 3 }, { active_requests = 1 },
                   { active_requests = 2 } }

    for key, value in pairs(more or {}) do
        state[key] = value
    end
end

local function str(data, len)
    return data ~= nil and ffi.string(data, len) or nil
end

local function say(err, sentence)
    err[0] = ffi.cast("char *", sentence)
end

function c.version()
    return state.version or lib.VERSION
end

function c.zone(name)
    return name == "main" and ffi.cast("void *", 1) or nil
end

-- a microsecond passes with each look
function c.now_us()
    state.now = state.now + 1
    return state.now
end

function c.reserved()
    return state.reserved
end

-- prompt_rc, tokens_rc: of the body's and of that of tokens; rc, rc_later: of
-- candidates, before and after these
function c.prompt(_, _, names, tokens, n, out, err)
    state.allowed = str(names.allowed_data, names.allowed_len)
    state.roles = names.roles
    say(err, "prompt failed")

    if tokens then
        state.tokens, state.why = tonumber(n), 0
        state.rc = state.rc_later or state.rc
    else
        state.scans = state.scans + 1
        state.lora = str(names.lora_data, names.lora_len)
        state.salt = str(names.salt_data, names.salt_len)
        state.model = str(names.model_data, names.model_len)
    end

    out.why = state.why or 0
    out.form_id = state.form or 1
    out.text = state.text == false and 0 or 1
    out.unserved = state.unserved and 1 or 0
    out.model_data = state.named or ""
    out.model_len = #(state.named or "")
    out.lora_data = state.adapter
    out.lora_len = state.adapter and #state.adapter or 0
    state.was_asked = names.asked

    return tokens and state.tokens_rc or state.prompt_rc
end

function c.candidates(_, _, by_load, out, err)
    state.lists = state.lists + 1
    state.by_load = by_load == 1
    say(err, "candidates failed")

    local rc = state.by_load and state.by_load_rc or state.rc

    if rc ~= 0 then
        return rc
    end

    state.match = fake.match(state.list, { why = state.why or 0,
                                           prompt_tokens = state.tokens or 64 })
    out[0] = state.match

    return 0
end

function c.reserve(_, _, choice, err)
    local order = {}

    for j = 1, tonumber(choice.norder) do
        order[j] = tostring(choice.order[j - 1])
    end

    state.reserves = state.reserves + 1
    state.order = table.concat(order, " ")
    state.policy = str(choice.policy_data, choice.policy_len)
    state.reason = str(choice.reason_text, choice.reason_len)
    state.by, state.us = choice.why, choice.us
    say(err, "the holder is gone")

    -- other processes are quicker so often

    state.quicker = (state.quicker or 0) - 1

    if state.quicker >= 0 then
        return -3
    end

    if state.reserve_rc ~= 0 then
        return state.reserve_rc
    end

    -- fails no more than so often
    state.failures = (state.failures or 0) - 1

    return state.failures >= 0 and -1 or 0
end

function c.rank(_, _, _, rank)
    rank[0] = state.rank or 0

    return state.rank and 0 or -5
end

function c.refused(_, why)
    state.refused = why
end

function c.prefill_ended()
    return 0
end

function c.prefill_failed()
    state.prefill_failed = true

    return 0
end

function c.peer(_, _, host, host_len, port, left, err)
    if state.peer_rc then
        say(err, "no more candidates")
        return state.peer_rc
    end

    host[0], host_len[0] = "10.0.0.2", 8
    port[0], left[0] = 8000, state.left or 5

    return 0
end

function c.outcome(_, _, out)
    out.worker_data, out.worker_len, out.tries = "w2", 2, 3

    return state.outcome or 0
end


-- ---- new --------------------------------------------------------------------

reset()

local function refused(part, name, ...)
    raises("bad argument #", name .. " is refused", kv.new, ...)
    raises(part, name .. ": says so", kv.new, ...)
end

refused("#1 to 'new' (string expected, got nil", "no zone")
refused("#2 to 'new' (a table is expected", "options that are no table",
        "main", "kv_cost")
refused('unknown setting "polcy"', "an unknown option", "main",
        { polcy = "kv_cost" })
refused('unknown policy "best"', "an unknown policy", "main",
        { policy = "best" })
refused('policy "kv_cost": unknown setting "x"', "a policy's wrong setting",
        "main", { policy_conf = { x = 1 } })
refused('"tokenizer" must be "auto", "local", "render", "remote" or "none", '
        .. 'not "vllm"', "an unknown tokenizer", "main", { tokenizer = "vllm" })
refused('"tokenizer" can not be "local": zone "main" has no model; add '
        .. 'kv_router_model, or use "auto"',
        "the tokenizer of a model that is not there", "main", { tokenizer = "local" })
refused('"max_tries" must be a whole number', "half a try", "main",
        { max_tries = 0.5 })
refused('"tokenizer_timeout" must be from 0.001', "no time at all", "main",
        { tokenizer_timeout = 0 })
refused('unknown setting "dry"', "what comes later", "main", { dry = true })
raises("#1 to 'index' (string expected, got table", "an index needs a name",
       kv.index, {})
is(kv.index("main").name, "main", "an index is of a zone")

local _, where = pcall(function() kv.new("main", { policy = "best" }) end)

has(where, "test_router.lua", "errors name the caller's line")

local nowhere = kv.new("nowhere")

raises('there is no kv_router_zone "nowhere"',
       "a zone that is not there is found out by the first request",
       nowhere.access, nowhere)

state.version = 1
raises("of different versions: restart nginx",
       "so is a module of another version than the library",
       nowhere.access, nowhere)
state.version = nil


-- ---- access -----------------------------------------------------------------

local router = kv.new("main", { policy = "least_loaded" })

router:access()
is(fake.bodies, 1, "access: the body is read")
is(state.order, "1 2 0", "access: the choice is reserved, with its retries")
is(state.policy, "least_loaded", "access: in the policy's name")
is(state.reason, "load", "access: with its reason")
is(state.by, WHY.BY_POLICY, "access: and no other")
-- two of the three looks are those of the policy's own time
is(state.us, 3, "access: and the time that it took")
is(fake.exited, nil, "access: the request goes on")
is(#fake.log, 0, "access: nothing is logged")

reset { reserved = 0 }
router:access()
is(state.reserves, 0, "access: a reservation is used again")

reset { why = WHY.BAD_BODY }
router:access()
is(state.by, WHY.BAD_BODY, "access: why there was no match is told")

reset()
router:access { lora_name = "l", cache_salt = "s", model = "m" }
is(state.lora .. state.salt .. state.model, "lsm",
   "access: LoRA, salt and model for a request")
raises('unknown setting "lora"', "access: nothing else", router.access, router,
       { lora = "l" })

local seen
local custom = kv.new("main", {
    max_tries = 0,
    policy = {
        pick = function(_, ctx)
            seen = ctx
            return 3, nil, "because"
        end
    }
})

reset()
fake.body = '{"model":"gpt"}'
custom:access { params = { a = 1 } }
is(state.order, "2", "access: a policy of one's own")
is(state.policy, "custom", "access: has a name, too")
is(seen.params.a, 1, "ctx.params is what access() was given")
is(seen.request.model, "gpt", "ctx.request is the request")
is(seen.wanted, 1, "ctx.wanted is 1 when there are no retries")
is(seen.prompt_tokens, 64, "ctx.prompt_tokens")
tap.near(seen.now, 0.005, 0.0001, "ctx.now is in seconds")
is(seen.request.lora, nil, "ctx.request.lora is nil without one")
is(next(ngx.ctx), nil, "ctx is kept for done() only")


reset()
fake.vars.http_x_kv_worker = "w1,w2"
router:access()
is(state.allowed, nil, "x-kv-worker: is a header as any other")
is(state.roles, 1, "the candidates are those of role both")

local pinned = kv.new("main", { pin = true })

reset()
pinned:access()
is(state.allowed, "w1,w2", "x-kv-worker: with pin these are all there are")
reset { why = WHY.NO_TOKENS, prompt_rc = -1 }
pinned:access()
is(state.allowed, "w1,w2", "x-kv-worker: also when matching failed")
reset()
pinned:access { workers = "w3" }
is(state.allowed, "w3", "access may name them itself, which counts more")
fake.vars.http_x_kv_worker = nil
reset()
pinned:access()
is(state.allowed, nil, "x-kv-worker: without the header all may be")

local pair = kv.new("main", {
    policy = {
        name = "pair",
        roles = { "prefill", "decode" },
        pick = function()
            return 1, nil, "two", { headers = { ["X-Two"] = "2" } }
        end
    }
})

reset()
fake.set = {}
pair:access()
is(state.roles, 6, "a policy may have other roles")
is(state.policy, "pair", "and a name")
is(fake.set["X-Two"], "2", "its plan is carried out")

reset { failures = 2 }
fake.set = {}
pair:access()
is(fake.set["X-Two"], nil, "but not without a reservation")

reset { rank = 3 }
router:access()
is(fake.set["x-data-parallel-rank"], 3,
   "of several ranks the engine is told which")

reset()
router:access()
is(fake.set["x-data-parallel-rank"], nil, "a worker with one is told none")

reset { rank = 3, failures = 2 }
router:access()
is(fake.set["x-data-parallel-rank"], nil, "nor is one without a reservation")

reset { quicker = 1 }
router:access()
is(fake.exited, 429, "other processes are quicker, at all workers: it is refused")
is(#fake.log, 1, "other processes are quicker: logged")
is(state.reserves, 1, "other processes are quicker: at once")

local remote = kv.new("main", {
    policy = {
        pick = function()
            return 1, nil, "two", { prefill = { 2 }, protocol = "vllm" }
        end
    }
})

reset()
fake.body, fake.vars.uri = '{"prompt":[1]}', "/x"
c.prefill = function() return 0 end
fake.sockets = { sock.new("", { connect = "refused" }) }
remote:access()
is(fake.exited, nil, "remote prefill fails: the request goes on")
is(state.prefill_failed, true, "remote prefill fails: the decoder does it")
has(fake.log[1], "remote prefill: 10.0.0.2:8000: connect: refused",
    "remote prefill fails: logged")
fake.sockets = {}
remote:access()
is(#fake.log, 1, "remote prefill breaks: logged once a minute")
is(fake.exited, nil, "remote prefill breaks: the request goes on")


-- ---- when things fail -------------------------------------------------------

reset { rc = -5 }
router:access()
is(fake.exited, 503, "no worker: 503")
is(ngx.status, 503, "no worker: as the status")
is(state.refused, WHY.NO_WORKER, "no worker: counted")
is(ngx.header["Retry-After"], 1, "no worker: Retry-After")
is(require "cjson".decode(fake.printed).error.code, "no_worker",
   "no worker: an error as OpenAI's API has it")

reset()
fake.body_read = 413
router:access()
fake.body_read = 0
is(fake.exited, 413, "nginx refuses the body: the request ends with its status")

reset { prompt_rc = -1 }
router:access()
is(state.order, "1 2 0", "no prompt: routed by load")
has(fake.log[1], "no match, routed by load: prompt failed",
    "no prompt: logged")

reset { rc = -1, by_load_rc = 0 }
router:access()
is(state.order, "1 2 0", "match fails: routed by load")
has(fake.log[1], "no match, routed by load: candidates failed",
    "match fails: logged")
router:access()
is(#fake.log, 1, "match fails: once a minute")
fake.time = fake.time + 61
router:access()
is(#fake.log, 2, "match fails: and the next minute again")

reset { rc = -1 }
router:access()
is(fake.exited, 503, "both fail: 503")
is(state.lists, 2, "both fail: nothing is tried a third time")
is(#fake.log, 2, "both fail: both are logged")
is(state.refused, nil, "both fail: there may be workers")

reset { failures = 1 }
router:access()
is(state.reserves, 2, "a reservation fails: another is made")
is(state.by_load, true, "a reservation fails: by load alone")
has(fake.log[1], "the holder is gone", "a reservation fails: logged")
is(fake.exited, nil, "a reservation fails: the request goes on")

reset { failures = 2 }
router:access()
is(fake.exited, 503, "two reservations fail: 503")

local broken = kv.new("main", {
    policy = { pick = function() error("boom") end }
})

reset()
broken:access()
is(state.order, "1 2 0", "the policy fails: the least loaded")
is(state.by, WHY.POLICY_ERROR, "the policy fails: told")


-- ---- text -------------------------------------------------------------------

local OK = 'HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{"tokens":[1,2]}'
local text = kv.new("main", { tokenizer = "remote" })

-- the question: state.question, or its field; its answer: the two ids in it
function c.question_body(_, _, ask, _, path, body, len, field, err)
    state.asked = ask
    say(err, "no question")

    if state.no_question then
        return state.no_question
    end

    if state.field then
        field[0] = state.field
        return -5
    end

    state.question = fake.body
    path[0], body[0], len[0] = "/tokenize", state.question, #state.question

    return 0
end

local two = ffi.new("uint32_t[2]", 1, 2)

function c.answer_ids(_, answer, len, ids, n, err)
    say(err, "no ids")

    if not str(answer, len):find("tokens") then
        return -1
    end

    ids[0], n[0] = two, 2

    return 0
end

reset { why = WHY.NO_TOKENS }
fake.body = '{"prompt":"hi","cache_salt":"pepper"}'
fake.sockets = { sock.new(OK) }
text:access()
is(state.tokens, 2, "text: is tokenized and matched")
is(state.asked, 1, "text: by POST /tokenize")
is(state.scans, 1, "text: the body is scanned once")
is(state.by, WHY.BY_POLICY, "text: and routed as any other")
tap.ok(state.us < 9, "text: the tokenizer's time doesn't count")
is(fake.by, "3 0", "text: it is known where its ids came from")

reset { why = WHY.NO_TOKENS }
fake.body = '{"prompt":"other"}'
fake.sockets = { sock.new("", { connect = "refused" }), sock.new("") }
text:access()
is(state.tokens, nil, "the tokenizer fails: no second prompt")
is(state.by, WHY.TOKENIZER, "the tokenizer fails: told")
has(fake.log[1], "tokenizer: 10.0.0.3:8000: receive: closed, routed by load",
    "the tokenizer fails: logged")
is(fake.by, "0 " .. WHY.TOKENIZER, "the tokenizer fails: no ids, and why")
is(fake.exited, nil, "the tokenizer fails: the request goes on")
fake.sockets = { sock.new(""), sock.new("") }
text:access()
is(#fake.log, 1, "the tokenizer fails: once a minute")

reset { why = WHY.NO_TOKENS }
fake.body = '{"prompt":"third"}'
fake.sockets = {}
text:access()
is(state.by, WHY.TOKENIZER, "the tokenizer breaks: told")

reset { why = WHY.NO_TOKENS, tokens_rc = -1 }
fake.body = '{"prompt":"fourth"}'
fake.sockets = { sock.new(OK) }
text:access()
is(state.by, WHY.TOKENIZER, "matching its tokens fails: told")
is(fake.exited, nil, "matching its tokens fails: the request goes on")

reset { why = WHY.NO_TOKENS, rc_later = -3 }
fake.body = '{"prompt":"fifth"}'
fake.sockets = { sock.new(OK) }
text:access()
is(fake.exited, 429, "no room is left when it was tokenized: refused")
is(state.refused, WHY.OVERLOAD, "no room is left when it was tokenized: told")
is(state.reserves, 0, "no room is left when it was tokenized: no reservation")

reset { why = WHY.NO_TOKENS, rc_later = -5 }
fake.body = '{"prompt":"sixth"}'
fake.sockets = { sock.new(OK) }
text:access()
is(fake.exited, 503, "no worker is left when it was tokenized: 503")
is(state.reserves, 0, "no worker is left when it was tokenized: nothing more")

reset { why = WHY.NO_TOKENS, text = false }
fake.body = '{"input":"x"}'
text:access()
is(state.by, WHY.NO_TOKENS, "no text: no question, and no failure")
is(#fake.log, 0, "no text: nothing is logged")

reset { why = WHY.NO_TOKENS, no_question = -5 }
fake.body = '{"system":"s","messages":[{"role":"user","content":"hi"}]}'
text:access()
is(state.by, WHY.NO_TOKENS, "no question for the form: no failure")
is(#fake.log, 0, "no question for the form: nothing is logged")

reset { why = WHY.NO_TOKENS, no_question = -1 }
fake.body = '{"prompt":"seventh"}'
text:access()
is(state.by, WHY.TOKENIZER, "the question fails: told")
has(fake.log[1], "tokenizer: no question", "the question fails: logged")

reset { why = WHY.NO_TOKENS }
fake.body = '{"prompt":"eighth"}'
fake.sockets = { sock.new("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") }
text:access()
is(state.by, WHY.TOKENIZER, "an answer without ids: told")
has(fake.log[1], "tokenizer: 10.0.0.2:8000: no ids", "an answer without ids: logged")

reset { why = WHY.NO_TOKENS, field = "tool_choice" }
fake.body = '{"messages":[],"tools":[{}],"tool_choice":"none"}'
text:access()
is(state.by, WHY.UNKNOWN_FORM, "a field that changes the tokens: told")
has(fake.log[1], 'the field "tool_choice" of the body',
    "a field that changes the tokens: named in the log")


-- ---- the model and its adapter ----------------------------------------------

local strict = kv.new("main", { unknown_model = "404", policy = {
    pick = function(_, ctx) state.picked_lora = ctx.request.lora; return 1 end
} })

reset { unserved = true }
strict:access()
is(fake.exited, 404, "a model that nobody serves: refused")
is(state.refused, WHY.UNKNOWN_MODEL, "a model that nobody serves: counted")
is(require "cjson".decode(fake.printed).error.code, "model_not_found",
   "a model that nobody serves: said")
is(state.lists, 0, "a model that nobody serves: no candidates are listed")

reset { unserved = true }
router:access()
is(fake.exited, nil, "a model that nobody serves: any worker may have it")

fake.c.parameter = function(_, name)
    return name == "unknown_model" and 1 or 0
end

reset { unserved = true }
kv.new("main"):access()
is(fake.exited, 404, "a model that nobody serves: refused where the zone says so")

reset { unserved = true }
kv.new("main", { unknown_model = "any" }):access()
is(fake.exited, nil, "a model that nobody serves: kv.new() overrides the zone")

fake.c.parameter = function() return 0 end

local told = {}

for i = 1, 40 do
    for _ = 1, 2 do
        reset { unserved = true, named = "m" .. i .. "\n" }
        router:access()

        for _, line in ipairs(fake.log) do
            if line:find("no worker serves", 1, true) then
                told[#told + 1] = line
            end
        end
    end
end

-- the first one was that without a name, above
is(#told, 31, "a model that nobody serves: 32 names are logged, once each")
has(told[1], 'zone "main": no worker serves the model "m1?" of a request: it '
    .. "goes to any worker", "a model that nobody serves: the log names it")
has(told[31], "; further names are not logged",
    "a model that nobody serves: the last line says so")

reset { adapter = "sql" }
strict:access()
is(state.picked_lora, "sql", "the adapter of the body: the policy is told")

reset { adapter = "sql" }
strict:access { lora_name = "law" }
is(state.picked_lora, "law", "the adapter of the body: Lua's goes before")

local ok, err = pcall(kv.new, "main", { unknown_model = "500" })

is(ok, false, "another answer to a model that nobody serves is refused")
has(err, '"unknown_model" must be "any" or "404", not "500"',
    "which says what can be")


local defined = fake.c.defined

function fake.c.defined(name, _, names)
    require "ffi".copy(names, "main,other")

    return name == "main" and 1 or 0
end

ok, err = pcall(kv.new, "mian", {})
is(ok, false, "a zone that there is not is refused")
has(err, "bad argument #1 to 'new' (there is no kv_router_zone \"mian\": did you "
    .. 'mean "main"? There are main, other)', "which names the nearest")
fake.c.defined = defined


-- ---- text without a tokenizer -----------------------------------------------

local FED = { { confidence_id = 0 }, { confidence_id = 6 } }

reset { why = WHY.NO_TOKENS, list = FED }
fake.body = '{"prompt":"hi"}'

local mute = kv.new("main", { tokenizer = "none" })

mute:access()
is(state.by, WHY.NO_TOKENS, "tokenizer = \"none\" asks nobody")
has(fake.log[1], 'zone "main": 1 of 1 requests of this process since the last '
    .. "such line had text, and no tokenizer is configured: they were routed by "
    .. 'load; set tokenizer = "auto" in kv.new()',
    "text without a tokenizer: logged")

for _ = 1, 8 do
    mute:access()
end

state.form = 5
mute:access()
state.form = nil
state.why = WHY.BY_POLICY
mute:access()
is(#fake.log, 1, "text without a tokenizer: once a minute")

state.why = WHY.NO_TOKENS
fake.time = fake.time + 60
mute:access()
has(fake.log[2], "9 of 11 requests",
    "text without a tokenizer: what a tokenizer would read is counted")

reset { why = WHY.NO_TOKENS, list = { { confidence_id = 0 } } }
mute:access()
is(#fake.log, 0, "text without a tokenizer: no word of an index without blocks")
fake.time = fake.time + 60
state.list = FED
mute:access()
has(fake.log[1], "2 of 2 requests", "until it is fed")

local blind = kv.new("main", { policy = "round_robin",
                               tokenizer = "none" })

reset { why = WHY.NO_TOKENS, list = FED }
blind:access()
is(#fake.log, 0, "nor by a policy that does not look at it")


-- ---- balance ----------------------------------------------------------------

reset()
router:balance()
is(fake.balancer.host .. ":" .. fake.balancer.port, "10.0.0.2:8000",
   "balance: the peer is set")
is(fake.balancer.more, 2, "balance: further tries, as many as allowed")

reset { left = 1 }
router:balance()
is(fake.balancer.more, 1, "balance: or as there are candidates")

reset { left = 0 }
router:balance()
is(fake.balancer.more, nil, "balance: or none")

reset()
custom:balance()
is(fake.balancer.more, nil, "balance: max_tries = 0 allows none")

reset()
fake.balancer.failure = "failed"
router:balance()
is(fake.balancer.more, nil, "balance: and asks for no more tries")

reset { peer_rc = -5 }
router:balance()
is(fake.exited, -3, "balance: no more candidates: NGX_BUSY, a 502")
has(fake.log[1], "no more candidates", "balance: logged")


-- ---- log --------------------------------------------------------------------

local outcomes = {}
local watching = kv.new("main", {
    policy = {
        pick = function() return 1 end,
        done = function(_, ctx, outcome)
            outcomes[#outcomes + 1] = { ctx, outcome.worker, outcome.tries }
        end
    }
})

reset()
watching:access()
watching:log()
is(outcomes[1][1].prompt_tokens, 64, "log: done() is given ctx")
is(outcomes[1][2] .. outcomes[1][3], "w23", "log: and the outcome")

ngx.ctx = {}
watching:log()
is(outcomes[2][1], nil, "log: no ctx after an internal redirect")

reset { outcome = -5 }
watching:log()
is(#outcomes, 2, "log: without an outcome done() is not called")

router:log()
is(#fake.log, 0, "log: a policy without done() needs none")


tap.done()
