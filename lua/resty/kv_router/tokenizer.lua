-- Copyright (C) the nginx-kv-router authors
--
-- The rungs below a request's own token ids: text prompts and chats become
-- token ids by asking an engine, which has the tokenizer and the chat template.
--
--     render    POST <path>/render with the body as it came
--               answer {"token_ids": [...], ...}, or a list of such objects
--     remote    POST /tokenize  {"model": ..., "prompt": "..."}
--                               {"model": ..., "messages": [...], ...}
--               answer {"count": N, "tokens": [...], ...}
--
-- Which of them an engine has is found by the router's own probe (the module's
-- probe/).  One engine is asked for a text, within one budget; equal questions
-- at the same time are asked once; answers are kept per nginx process.  What
-- fails, fails softly: the request is routed by load.


local engines = require "resty.kv_router.engines"
local ffi = require "ffi"
local http = require "resty.kv_router.http"
local json = require "resty.kv_router.json"
local least = require "resty.kv_router.policy.least_loaded".least
local lib = require "resty.kv_router.ffi"
local new_semaphore = require "ngx.semaphore".new

local BY = engines.BY
local QUESTION = engines.QUESTION
local RUNGS = engines.RUNGS
local WHY = lib.WHY
local cast = ffi.cast
local concat = table.concat
local copy = ffi.copy
local count = engines.question
local ffi_new = ffi.new
local fields_of = json.fields
local find = string.find
local first_string = json.first_string
local ipairs = ipairs
local new_socket = ngx.socket.tcp
local object = json.object
local pairs = pairs
local pcall = pcall
local setmetatable = setmetatable
local sub = string.sub
local tostring = tostring


local _M = {}
local mt = { __index = _M }


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

local LATE = 1e6                 -- after which a question is taken for dead


-- The rungs of a setting, the best one first.
local SETTINGS = {
    auto = { "render", "remote" },
    render = { "render" },
    remote = { "remote" },
}


-- The forms of requests that can be tokenized, and how their paths end.
local CHAT, COMPLETION = "chat", "completion"
local MESSAGES, RESPONSES = "messages", "responses"

local PATHS = {
    { "/chat/completions", CHAT },
    { "/completions", COMPLETION },
    { "/messages", MESSAGES },
    { "/responses", RESPONSES },
}

-- The paths of questions, of a rung and a form.
local RENDER_PATHS = {
    [COMPLETION] = "/v1/completions/render",
    [CHAT] = "/v1/chat/completions/render",
    [MESSAGES] = "/v1/messages/render",
    [RESPONSES] = "/v1/responses/render",
}

local REMOTE_PATH = "/tokenize"

-- Where the ids of an answer are.
local FIELDS = { render = "token_ids", remote = "tokens" }


-- Fields of a request that change its tokens, passed on as they came.
local PASSED = {
    [COMPLETION] = { "add_special_tokens" },
    [CHAT] = { "add_generation_prompt", "tools", "chat_template",
               "continue_final_message", "add_special_tokens" },
}


-- ---- pure parts -------------------------------------------------------------

-- The form of a request to that path, whatever is before its last segments:
-- "chat", "completion", "messages", "responses", or nil: none that can be
-- tokenized.
function _M.form(uri)
    for _, path in ipairs(PATHS) do
        if sub(uri, -#path[1]) == path[1] then
            return path[2]
        end
    end

    return nil
end


-- The form of a body whose path is not known.
function _M.form_of(fields)
    return fields.messages and CHAT or COMPLETION
end


-- A field's text; nil: it is not there, or null.
local function given(fields, name)
    local value = fields[name]

    return value ~= "null" and value or nil
end


-- The name of a field that changes the tokens in a way that /tokenize does not
-- know, or nil.  For token ids, too, there are such fields: src/request/.
local function unknown_field(fields, form)
    if form == COMPLETION then
        return given(fields, "suffix") and "suffix"
    end

    -- some engines leave the tools out then: vLLM by an option, SGLang always
    return fields.tool_choice == '"none"' and given(fields, "tools")
           and "tool_choice"
end


-- The chat_template_kwargs of a chat, or nil.  vLLM puts some fields of a chat
-- among them, over the client's own; /tokenize does not have these fields.
-- "enable_thinking" is the client's, if it has one, or follows from the effort.
local function template_kwargs(fields)
    local text = given(fields, "chat_template_kwargs")
    local documents = given(fields, "documents")
    local effort = given(fields, "reasoning_effort")

    if not documents and not effort then
        return text
    end

    local kwargs = fields_of(text or "{}")

    -- no object: for the engine to refuse
    if not kwargs then
        return text
    end

    local thinking

    if effort and not kwargs.enable_thinking then
        thinking = effort == '"none"' and "false" or "true"
    end

    return object(kwargs, { documents = documents, reasoning_effort = effort,
                            enable_thinking = thinking })
end


-- The body of POST /tokenize for a request's fields (JSON texts by name) and
-- its form.  nil when there is nothing to tokenize, nil and the name of a field
-- when the answer would be of other tokens.  Of several prompts the first.
function _M.question(fields, form)
    local text = form == CHAT and given(fields, "messages")
                 or form == COMPLETION and fields.prompt
                    and first_string(fields.prompt)

    if not text then
        return nil
    end

    local field = unknown_field(fields, form)

    if field then
        return nil, field
    end

    local parts = {}

    if fields.model then
        parts[1] = '"model":' .. fields.model
    end

    parts[#parts + 1] = (form == CHAT and '"messages":' or '"prompt":') .. text

    for _, name in ipairs(PASSED[form]) do
        if fields[name] then
            parts[#parts + 1] = '"' .. name .. '":' .. fields[name]
        end
    end

    local kwargs = form == CHAT and template_kwargs(fields)

    if kwargs then
        parts[#parts + 1] = '"chat_template_kwargs":' .. kwargs
    end

    return "{" .. concat(parts, ",") .. "}"
end


local COMMA, CLOSE, ZERO, SPACE = 0x2c, 0x5d, 0x30, 0x20
local MAX_TOKEN = 2^32 - 1
local MAX_DIGITS = 10


-- The token ids in that field of an answer, "tokens" or "token_ids": a uint32_t
-- array and its length, or nil and a sentence.  A loop over bytes, as cjson would
-- take three times as long and make a Lua table of a hundred thousand numbers.
function _M.tokens(answer, field)
    local _, open = find(answer, '"' .. field .. '"%s*:%s*%[')
    if not open then
        return nil, 'no "' .. field .. '" in the answer'
    end

    local size = #answer
    local p = cast("const uint8_t *", answer)
    local out = ffi_new("uint32_t[?]", (size - open) / 2 + 1)
    local n = 0
    local commas = 0
    local i = open

    while i < size do
        local start = i
        local value = 0
        local digit = p[i] - ZERO

        -- a Lua string ends with a 0, which is no digit
        while digit >= 0 and digit <= 9 do
            value = value * 10 + digit
            i = i + 1
            digit = p[i] - ZERO
        end

        if i > start then
            if n > commas then
                return nil, "tokens without a comma"
            end

            if i - start > MAX_DIGITS or value > MAX_TOKEN then
                return nil, "a token over 2^32 - 1"
            end

            out[n] = value
            n = n + 1
        end

        local b = digit + ZERO

        if b == COMMA then
            commas = commas + 1

            if commas ~= n then
                return nil, "a hole in the tokens"
            end

        elseif b == CLOSE then
            if commas > 0 and commas ~= n - 1 then
                return nil, "a hole in the tokens"
            end

            local exact = ffi_new("uint32_t[?]", n)

            copy(exact, out, n * 4)

            return exact, n

        elseif b > SPACE then
            return nil, "a token that is no number"
        end

        i = i + 1
    end

    return nil, "tokens without an end"
end


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
-- many there are at each address.  A question is taken out by the request that
-- asks it, in any case but one: if that request is killed.  So each question has
-- a deadline.
local asked = {}
local at_address = {}
local nasked = 0


local function begin(key, address, deadline)
    local q = { key = key, address = address, deadline = deadline,
                sema = new_semaphore(0), waiting = 0 }

    asked[key] = q
    at_address[address] = (at_address[address] or 0) + 1
    nasked = nasked + 1

    return q
end


local function leave_address(q)
    local n = at_address[q.address] - 1

    at_address[q.address] = n > 0 and n or nil
end


local function finish(q)
    if q.done then
        return
    end

    q.done = true
    nasked = nasked - 1
    leave_address(q)

    if asked[q.key] == q then
        asked[q.key] = nil
    end

    if q.waiting > 0 then
        q.sema:post(q.waiting)
    end
end


-- Takes out the questions whose requests were killed.
local function sweep(now)
    local dead = {}

    for _, q in pairs(asked) do
        if now > q.deadline + LATE then
            dead[#dead + 1] = q
        end
    end

    for _, q in ipairs(dead) do
        q.why = WHY.BUDGET
        finish(q)
    end
end


-- ---- asking -----------------------------------------------------------------

-- setting: "auto", "render" or "remote"; timeout: seconds that a text may wait,
-- nil: BUDGET; bytes: bound of what is kept, 0 keeps nothing.
function _M.new(setting, timeout, bytes)
    return setmetatable({ rungs = SETTINGS[setting], auto = setting == "auto",
                          timeout = timeout and timeout * 1e6,
                          cache = new_cache(bytes, MAX_ENTRIES) }, mt)
end


_M.SETTINGS = SETTINGS


-- The form of a request to that path that this router may ask about, or nil.
function _M:form_at(uri)
    local form = _M.form(uri)

    for _, rung in ipairs(self.rungs) do
        if RUNGS[rung][form] then
            return form
        end
    end

    return nil
end


-- Can a worker with these bits be asked?  A rung that was set is tried before
-- the probe has ended.
local function has(self, bits, rung, form)
    local bit = RUNGS[rung][form]

    if not bit then
        return false
    end

    return bits % (2 * bit) >= bit or bits == 0 and not self.auto
end


-- The rung for a form, and the candidates that have it and no MAX_OF_ENGINE
-- questions, the least loaded first, TRIES at most: tables with address and
-- holder.  nil and one of WHY when there is none.
local function choose(self, job)
    local found = job.found
    local why = WHY.NO_RUNG

    for _, rung in ipairs(self.rungs) do
        local able = {}

        for i = 1, #found do
            local c = found[i]

            if has(self, engines.rungs(job.zone, c), rung, job.form) then
                why = WHY.BUSY

                if (at_address[c.address] or 0) < MAX_OF_ENGINE then
                    able[#able + 1] = c
                end
            end
        end

        if #able > 0 then
            local list, k = least(able, found.block_size, TRIES, job.random)
            local chosen = {}

            -- copied, as what follows yields
            for i = 0, k - 1 do
                local c = able[list[i]]

                chosen[i + 1] = { address = c.address, holder = c.holder }
            end

            return rung, chosen
        end
    end

    return nil, why
end


-- The body of the question on a rung; nil and the name of a field when the
-- answer would be of other tokens, nil when there is nothing to tokenize.
local function question_of(rung, job)
    if rung == "remote" then
        return _M.question(job.request.fields, job.form)
    end

    local body = job.request.body

    return body ~= "" and body or nil
end


local function path_of(rung, form)
    return rung == "render" and RENDER_PATHS[form] or REMOTE_PATH
end


-- What an error of resty.kv_router.http is.
local function why_of(err)
    if find(err, "timeout", 1, true) then
        return WHY.BUDGET
    end

    return sub(err, 1, 8) == "connect:" and WHY.REFUSED or WHY.TOKENIZER
end


-- Asks the first of the engines, and the next one when no connection was
-- accepted.  Returns the answer, or nil, one of WHY and a sentence.
local function ask(q, job, chosen, rung, question)
    local opts = { timeout = 3.6e6, deadline = q.deadline, limit = MAX_ANSWER,
                   engine = job.engine }
    local err, why

    for i, c in ipairs(chosen) do
        if i > 1 then
            leave_address(q)
            q.address = c.address
            at_address[c.address] = (at_address[c.address] or 0) + 1
        end

        local status, answer = http.post(new_socket(), c.address,
                                         path_of(rung, job.form), question,
                                         opts)

        if status == 200 then
            return answer
        end

        if status then
            -- it may have lost what the probe found
            engines.doubt(job.zone, c.holder)

            return nil, WHY.REFUSED, c.address .. ": status " .. status
        end

        err = c.address .. ": " .. answer
        why = why_of(answer)

        if why ~= WHY.REFUSED then
            break
        end
    end

    return nil, why, err
end


local function answered(q, job, chosen, rung, question)
    local answer, why, err = ask(q, job, chosen, rung, question)

    if not answer then
        return nil, why, err
    end

    local tokens, n = _M.tokens(answer, FIELDS[rung])

    if not tokens then
        return nil, WHY.TOKENIZER, q.address .. ": " .. n
    end

    return { tokens = tokens, n = n }
end


-- Waits for a question of another request.
local function join(q, deadline, zone)
    if q.waiting >= MAX_WAITING then
        return nil, WHY.BUSY
    end

    count(zone, QUESTION.joined)
    q.waiting = q.waiting + 1

    local ok = q.sema:wait((deadline - lib.now_us()) / 1e6)

    if not ok then
        q.waiting = q.waiting - 1

        return nil, WHY.BUDGET
    end

    -- who asked has said what is wrong
    return q.entry, q.why
end


local function lead(self, key, job, chosen, rung, question, deadline)
    local zone = job.zone
    local q = begin(key, chosen[1].address, deadline)

    count(zone, QUESTION.asked)

    local ok, entry, why, err = pcall(answered, q, job, chosen, rung, question)

    if not ok then
        entry, why, err = nil, WHY.TOKENIZER, tostring(entry)
    end

    if entry then
        self.cache:put(key, entry)
    else
        count(zone, QUESTION.failed)
    end

    q.entry = entry
    q.why = why
    finish(q)

    return entry, why, err
end


-- The answer to a question: kept, asked by another request, or asked now.
local function entry_for(self, job, rung, chosen, question)
    local now = lib.now_us()
    local deadline = now + (self.timeout
                            or BUDGET + BUDGET_BYTE * #job.request.body)
    local key = engines.digest(path_of(rung, job.form) .. question)
    local entry = self.cache:get(key)

    if entry then
        count(job.zone, QUESTION.kept)

        return entry
    end

    local q = asked[key]

    if q and now <= q.deadline then
        return join(q, deadline, job.zone)
    end

    if q or nasked >= MAX_QUESTIONS then
        sweep(now)
    end

    if nasked >= MAX_QUESTIONS or asked[key] then
        return nil, WHY.BUSY
    end

    return lead(self, key, job, chosen, rung, question, deadline)
end


-- The token ids of a request's text.  job: zone, request, form, found (the
-- match), random, engine (engine() of resty.kv_router.engines).  Returns an
-- entry with tokens, a uint32_t array, and n, its length; by, of BY, and why
-- from nothing better, of WHY or 0.  Or nil, one of WHY, and, when the log is to
-- say it, a sentence or, third, the name of a field; nil alone: there is no
-- text.  Yields.
function _M:tokenize(job)
    local rung, chosen = choose(self, job)

    if not rung then
        return nil, chosen
    end

    local question, field = question_of(rung, job)

    if not question then
        return nil, field and WHY.UNKNOWN_FIELD, nil, field
    end

    if #question > MAX_BODY then
        return nil, WHY.TOO_LONG
    end

    local entry, why, err = entry_for(self, job, rung, chosen, question)

    if not entry then
        return nil, why, err
    end

    return entry, BY[rung],
           rung == "remote" and self.auto and WHY.NO_RUNG or 0
end


return _M
