-- Copyright (C) the nginx-kv-router authors
--
-- The rungs below a request's own token ids: texts become token ids by the
-- zone's model, or by asking an engine, which has the tokenizer and the chat
-- template.
--
--     local     resty.kv_router.tokens.model, in this process
--     render    POST <path>/render with the body as it came
--     remote    POST /tokenize with what the engine takes of the body
--
-- Which of them an engine has is found by the router's own probe; what is asked,
-- and what an answer says, C knows.  One engine is asked for a text, within one
-- budget; equal questions at the same time are asked once; answers are kept per
-- nginx process.  What fails, fails softly: the request is routed by load.


local ffi = require "ffi"
local engines = require "resty.kv_router.tokens.engines"
local held = require "resty.kv_router.tokens.held"
local http = require "resty.kv_router.tokens.http"
local least = require "resty.kv_router.request.order".least
local lib = require "resty.kv_router.ffi"
local new_semaphore = require "ngx.semaphore".new

local C = ffi.C
local BY = engines.BY
local WHY = lib.WHY
local copy = ffi.copy
local count = engines.count
local ffi_new = ffi.new
local ffi_string = ffi.string
local find = string.find
local ipairs = ipairs
local new_socket = ngx.socket.tcp
local pcall = pcall
local setmetatable = setmetatable
local sub = string.sub
local tonumber = tonumber
local tostring = tostring


ffi.cdef [[
int ngx_http_kv_router_ffi_question_body(ngx_http_request_t *r, void *zone,
    uint32_t ask, uint32_t engine, const char **path, const char **body,
    size_t *len, const char **field, char **err);
int ngx_http_kv_router_ffi_answer_ids(void *zone, const char *text, size_t len,
    const uint32_t **ids, size_t *n, char **err);
uint32_t ngx_http_kv_router_ffi_trust(ngx_http_request_t *r, void *zone,
    uint32_t always);
int ngx_http_kv_router_ffi_shadow(ngx_http_request_t *r, void *zone,
    const uint32_t *tokens, size_t ntokens);
]]


local _M = {}
local mt = { __index = _M }


local OK = 0
local DECLINED = -5

-- kvr_ask_t of src/: POST <path>/render and POST /tokenize
local ASKS = { render = 0, remote = 1 }

-- NGX_HTTP_KV_ROUTER_TRUST_... of the module's header: what the ids of the
-- zone's model are good for.  1: they are looked for in the engine's events.
local NOTHING, BELIEVED = 0, 2

local TRIES = 2                  -- the second if no connection is accepted
local MAX_BODY = 8 * 2^20        -- bytes; more is not worth asking for
local MAX_ANSWER = 16 * 2^20     -- bytes; 2^20 tokens are some 7 MiB
local MAX_ENTRIES = 8192         -- answers kept
local ENTRY = 256                -- bytes that an answer takes beside tokens

-- Of an nginx process: questions at a time to one engine, and to all of them;
-- requests that wait for the answer to one question of another request.
local MAX_OF_ENGINE = 4
local MAX_QUESTIONS = 64
local MAX_WAITING = 256

-- The budget in microseconds: for the round trip, and for each byte of the body.
local BUDGET = 50000
local BUDGET_BYTE = 2

local BUSY = "too many questions for token ids are on their way"


-- The rungs of a setting, the best one first.
local SETTINGS = {
    auto = { "render", "remote" },
    render = { "render" },
    remote = { "remote" },
    ["local"] = {},
}


-- ---- what was asked before --------------------------------------------------

-- Two generations: what is used moves to the young one, and when that is half
-- full it becomes the old one, which is dropped.  Nearly an LRU, and bounded
-- in bytes, which resty.lrucache is not.

local cache = {}
local cache_mt = { __index = cache }


-- bytes, entries: bounds.
local function new_cache(bytes, entries)
    return setmetatable({ max_bytes = bytes / 2, max_entries = entries / 2,
                          young = {}, old = {}, bytes = 0, entries = 0 },
                        cache_mt)
end


function cache:get(key)
    local entry = self.young[key]

    if entry then
        return entry
    end

    entry = self.old[key]

    if entry then
        self:put(key, entry)
    end

    return entry
end


function cache:put(key, entry)
    local bytes = entry.n * 4 + ENTRY

    if bytes > self.max_bytes then
        return
    end

    if self.bytes + bytes > self.max_bytes
       or self.entries + 1 > self.max_entries
    then
        self.old = self.young
        self.young = {}
        self.bytes = 0
        self.entries = 0
    end

    if not self.young[key] then
        self.bytes = self.bytes + bytes
        self.entries = self.entries + 1
    end

    self.young[key] = entry
end


_M.cache = new_cache


-- ---- questions on their way -------------------------------------------------

-- Of this process, whatever router asks: by the digest of the question, and how
-- many there are at each address.
local asked = {}
local at_address = {}
local nasked = 0


local function leave_address(q)
    local n = at_address[q.address] - 1

    at_address[q.address] = n > 0 and n or nil
end


-- The question was answered, or the request that asked it has ended.
local function finish(q)
    nasked = nasked - 1
    leave_address(q)
    asked[q.key] = nil

    if q.waiting > 0 then
        q.sema:post(q.waiting)
    end
end


local function begin(r, key, address, deadline)
    local q = { key = key, address = address, deadline = deadline,
                sema = new_semaphore(0), waiting = 0 }

    q.hold = held.take(r, finish, q)
    held.wakes(q.hold, q.sema)

    asked[key] = q
    at_address[address] = (at_address[address] or 0) + 1
    nasked = nasked + 1

    return q
end


-- ---- questions and answers ---------------------------------------------------

-- For all requests of this process, as in resty.kv_router.ffi.

local text_out = ffi_new("const char *[3]")
local ids_out = ffi_new("const uint32_t *[1]")
local len_out = ffi_new("size_t[1]")
local err_out = ffi_new("char *[1]")


-- The body of a question about the request r, of which lib.prompt() has found
-- the form.  rung: "render" or "remote"; engine: the kind of the engine, a
-- candidate's engine_id.  Returns the body, a string, and the path.  Or nil and
-- the name of a field of the body because of which the answer would be of other
-- tokens; nil alone: there is nothing to ask in this way; nil, nil and a
-- sentence: it failed.
local function question_of(r, zone, rung, engine)
    local rc = C.ngx_http_kv_router_ffi_question_body(r, zone,
                   ASKS[rung], engine, text_out, text_out + 1, len_out,
                   text_out + 2, err_out)

    if rc == OK then
        return ffi_string(text_out[1], len_out[0]), ffi_string(text_out[0])
    end

    if rc ~= DECLINED then
        return nil, nil, ffi_string(err_out[0])
    end

    if text_out[2] == nil then
        return nil
    end

    return nil, ffi_string(text_out[2])
end


-- The token ids in an engine's answer, a string: a uint32_t array and its
-- length; or nil and a sentence.
local function ids_of(zone, answer)
    local rc = C.ngx_http_kv_router_ffi_answer_ids(zone, answer, #answer,
                                                   ids_out, len_out, err_out)
    if rc ~= OK then
        return nil, ffi_string(err_out[0])
    end

    local n = tonumber(len_out[0])
    local ids = ffi_new("uint32_t[?]", n)

    copy(ids, ids_out[0], n * 4)

    return ids, n
end


-- ---- asking -----------------------------------------------------------------

-- setting: "auto", "local", "render" or "remote"; timeout: seconds that a text
-- may wait, nil: BUDGET; bytes: bound of what is kept, 0 keeps nothing; model: a
-- resty.kv_router.tokens.model, or nil.
function _M.new(setting, timeout, bytes, model)
    return setmetatable({ rungs = SETTINGS[setting], auto = setting == "auto",
                          timeout = timeout and timeout * 1e6,
                          explicit = setting == "local",
                          model = model and not model.refused and model or nil,
                          cache = new_cache(bytes, MAX_ENTRIES) }, mt)
end


-- Can a worker with these bits be asked?  A rung that was set is tried before
-- the probe has ended.
local function has(self, bits, rung, form)
    local bit = form[rung]

    if bit == 0 then
        return false
    end

    return bits % (2 * bit) >= bit or bits == 0 and not self.auto
end


-- The rung for a form, and the candidates that have it and no MAX_OF_ENGINE
-- questions, the least loaded first, TRIES at most: tables with address and
-- holder, all of one engine_id, which is engine.  nil and one of WHY when there
-- is none.
local function choose(self, job)
    local found = job.found
    local why, err = WHY.NO_RUNG

    held.sweep()

    for _, rung in ipairs(self.rungs) do
        local able = {}

        for i = 1, #found do
            local c = found[i]

            if has(self, engines.rungs(job.zone, c), rung, job.form) then
                why, err = WHY.TOKENIZER, BUSY

                if (at_address[c.address] or 0) < MAX_OF_ENGINE then
                    able[#able + 1] = c
                end
            end
        end

        if #able > 0 then
            local list, k = least(able, found.block_size, TRIES, job.random)
            local chosen = { engine = able[list[0]].engine_id }

            -- copied, as what follows yields
            for i = 0, k - 1 do
                local c = able[list[i]]

                if c.engine_id == chosen.engine then
                    chosen[#chosen + 1] = { address = c.address,
                                            holder = c.holder }
                end
            end

            return rung, chosen
        end
    end

    return nil, why, err
end


-- Asks the first of the engines, and the next one when no connection was
-- accepted.  Returns the answer, or nil and a sentence.
local function ask(q, job, chosen, path, question)
    local opts = { timeout = 3.6e6, deadline = q.deadline, limit = MAX_ANSWER,
                   engine = job.engine }
    local err

    for i, c in ipairs(chosen) do
        if i > 1 then
            leave_address(q)
            q.address = c.address
            at_address[c.address] = (at_address[c.address] or 0) + 1
        end

        local status, answer = http.post(new_socket(), c.address, path,
                                         question, opts)

        if status == 200 then
            return answer
        end

        if status then
            -- it may have lost what the probe found
            engines.doubt(job.zone, c.holder)

            return nil, c.address .. ": status " .. status
        end

        err = c.address .. ": " .. answer

        if sub(answer, 1, 8) ~= "connect:" or find(answer, "timeout", 1, true) then
            break
        end
    end

    return nil, err
end


local function answered(q, job, chosen, path, question)
    local answer, err = ask(q, job, chosen, path, question)

    if not answer then
        return nil, err
    end

    local tokens, n = ids_of(job.zone, answer)

    if not tokens then
        return nil, q.address .. ": " .. n
    end

    return { tokens = tokens, n = n }
end


local function wait_no_more(q)
    q.waiting = q.waiting - 1
end


-- Waits for a question of another request; nil alone: that request has ended.
local function join(q, deadline, job)
    if q.waiting >= MAX_WAITING then
        return nil, BUSY
    end

    local hold = held.take(job.r, wait_no_more, q)

    count(job.zone, "questions.joined")
    q.waiting = q.waiting + 1

    local ok = q.sema:wait((deadline - lib.now_us()) / 1e6)

    held.give(hold)
    held.sweep()

    if not ok then
        return nil, q.address .. ": timeout"
    end

    return q.entry, q.err
end


local function lead(self, key, job, chosen, path, question, deadline)
    local zone = job.zone
    local q = begin(job.r, key, chosen[1].address, deadline)

    count(zone, "questions.asked")

    local ok, entry, err = pcall(answered, q, job, chosen, path, question)

    if not ok then
        entry, err = nil, tostring(entry)
    end

    if entry then
        self.cache:put(key, entry)
    else
        count(zone, "questions.failed")
    end

    q.entry = entry
    q.err = err
    held.give(q.hold)

    return entry, err
end


-- The answer to a question: kept, asked by another request, or asked now.
local function entry_for(self, job, chosen, path, question)
    local deadline = lib.now_us() + (self.timeout
                                     or BUDGET + BUDGET_BYTE * #question)
    local key = engines.digest(path .. question)
    local entry = self.cache:get(key)
    local err

    if entry then
        count(job.zone, "questions.kept")

        return entry
    end

    while asked[key] do
        entry, err = join(asked[key], deadline, job)

        if entry or err then
            return entry, err
        end
    end

    if nasked >= MAX_QUESTIONS then
        return nil, BUSY
    end

    return lead(self, key, job, chosen, path, question, deadline)
end


-- The ids of the zone's model, if they may be used: an entry; or nil, one of
-- WHY, and true: no other rung is to be asked.
local function by_model(self, job)
    local state = C.ngx_http_kv_router_ffi_trust(job.r, job.zone,
                                                 self.explicit and 1 or 0)

    if state == NOTHING then
        return nil, WHY.UNPROVEN
    end

    local entry, why, raised = self.model:tokenize(job, self.timeout
                                                        and self.timeout / 1e6)

    if state == BELIEVED then
        -- what the model refuses the engine will refuse itself
        return entry, why, self.explicit or raised
    end

    if entry then
        C.ngx_http_kv_router_ffi_shadow(job.r, job.zone, entry.tokens,
                                        entry.n)
        entry.drop()
    end

    return nil, WHY.UNPROVEN
end


-- The token ids of a request's text.  job: r, zone, request, form, found (the
-- match), random, engine (engine() of tokens/engines.lua).  Returns an
-- entry with tokens, a uint32_t array, and n, its length; by, of BY, and why
-- from nothing better, of WHY or 0.  Or nil, one of WHY, and, when the log is to
-- say it, a sentence or, third, the name of a field; nil alone: there is no
-- text.  Yields.
function _M:tokenize(job)
    local passed

    if self.model then
        local entry, why, final = by_model(self, job)

        if entry then
            return entry, BY["local"], 0
        end

        if final then
            return nil, why
        end

        passed = why
    end

    local rung, chosen, busy = choose(self, job)

    if not rung then
        return nil, chosen == WHY.NO_RUNG and passed or chosen, busy
    end

    local question, path, err = question_of(job.r, job.zone, rung,
                                             chosen.engine)

    if err then
        return nil, WHY.TOKENIZER, err
    end

    -- instead of the path there is a field
    if not question then
        return nil, path and WHY.UNKNOWN_FORM, nil, path
    end

    if #question > MAX_BODY then
        return nil, WHY.TOO_LONG
    end

    local entry

    entry, err = entry_for(self, job, chosen, path, question)

    if not entry then
        return nil, WHY.TOKENIZER, err
    end

    return entry, BY[rung],
           passed or rung == "remote" and self.auto and WHY.NO_RUNG or 0
end


return _M
