-- Copyright (C) the nginx-kv-router authors
--
-- tokenizer = "remote": text prompts and chats become token ids by asking an
-- engine, which has the tokenizer and the chat template:
--
--     POST /tokenize  {"model": ..., "prompt": "..."}
--                     {"model": ..., "messages": [...], ...}
--     answer          {"count": N, "tokens": [...], ...}
--
-- This is vLLM's API.  It takes the text of completions and chats of OpenAI's
-- API, and no other form: a request of another form is not asked about.
-- Answers are kept per nginx process.  What fails, fails softly: the request
-- is routed by load.


local ffi = require "ffi"
local json = require "resty.kv_router.json"
local least = require "resty.kv_router.policy.least_loaded".least
local post = require "resty.kv_router.http".post

local cast = ffi.cast
local concat = table.concat
local copy = ffi.copy
local ffi_new = ffi.new
local fields_of = json.fields
local find = string.find
local first_string = json.first_string
local ipairs = ipairs
local md5_bin = ngx.md5_bin
local new_socket = ngx.socket.tcp
local object = json.object
local setmetatable = setmetatable
local sub = string.sub


local _M = {}
local mt = { __index = _M }


local PATH = "/tokenize"
local TRIES = 2
local MAX_BODY = 8 * 2^20        -- bytes; more is not worth asking for
local MAX_ANSWER = 16 * 2^20     -- bytes; 2^20 tokens are some 7 MiB
local MAX_ENTRIES = 8192         -- answers kept
local ENTRY = 256                -- bytes that an answer takes beside tokens


-- The forms of requests that can be tokenized, and how their paths end.
local CHAT, COMPLETION = "chat", "completion"
local CHAT_PATH, COMPLETION_PATH = "/chat/completions", "/completions"


-- Fields of a request that change its tokens, passed on as they came.
local PASSED = {
    [COMPLETION] = { "add_special_tokens" },
    [CHAT] = { "add_generation_prompt", "tools", "chat_template",
               "continue_final_message", "add_special_tokens" },
}


-- ---- pure parts -------------------------------------------------------------

-- The form of a request to that path, whatever is before its last segments:
-- "chat", "completion", or nil: none that can be tokenized.
function _M.form(uri)
    if sub(uri, -#CHAT_PATH) == CHAT_PATH then
        return CHAT
    end

    if sub(uri, -#COMPLETION_PATH) == COMPLETION_PATH then
        return COMPLETION
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


-- The token ids of an answer: a uint32_t array and its length, or nil and a
-- sentence.  A loop over bytes, as cjson would take three times as long and
-- make a Lua table of a hundred thousand numbers.
function _M.tokens(answer)
    local _, open = find(answer, '"tokens"%s*:%s*%[')
    if not open then
        return nil, "no tokens in the answer"
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


-- ---- asking -----------------------------------------------------------------

-- timeout: seconds, for each of connecting, sending and receiving; bytes:
-- bound of what is kept, 0 keeps nothing.
function _M.new(timeout, bytes)
    return setmetatable({ timeout = timeout * 1000,
                          cache = new_cache(bytes, MAX_ENTRIES) }, mt)
end


-- The least loaded candidates are asked, at most two.
local function ask(self, question, found, random)
    local addresses = {}
    local list, k = least(found, found.block_size, TRIES, random)

    -- copied, as what follows yields
    for i = 0, k - 1 do
        addresses[i + 1] = found[list[i]].address
    end

    local err

    for _, address in ipairs(addresses) do
        local status, answer = post(new_socket(), address, PATH, question,
                                    self.timeout, MAX_ANSWER)

        if status == 200 then
            return answer
        end

        err = address .. ": " .. (status and "status " .. status or answer)

        -- it understood, and another would say the same
        if status and status >= 400 and status < 500 and status ~= 404
           and status ~= 429
        then
            break
        end
    end

    return nil, err
end


-- The token ids of a request's text, for its form: a uint32_t array and its
-- length.  nil when there is no text; nil and a sentence when it failed; nil,
-- nil and the name of a field for which nobody is asked.  Yields.
function _M:tokenize(request, form, found, random)
    local question, field = _M.question(request.fields, form)

    if not question then
        return nil, nil, field
    end

    if #question > MAX_BODY then
        return nil, "the prompt is too long to be tokenized"
    end

    local key = md5_bin(question)
    local entry = self.cache:get(key)

    if entry then
        return entry.tokens, entry.n
    end

    local answer, err = ask(self, question, found, random)
    if not answer then
        return nil, err
    end

    local tokens, n = _M.tokens(answer)
    if not tokens then
        return nil, n
    end

    self.cache:put(key, { tokens = tokens, n = n })

    return tokens, n
end


return _M
