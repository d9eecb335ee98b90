-- Copyright (C) the nginx-kv-router authors
--
-- tokenizer = "remote": text prompts and chats become token ids by asking an
-- engine, which has the tokenizer and the chat template:
--
--     POST /tokenize  {"model": ..., "prompt": "..."}
--                     {"model": ..., "messages": [...], ...}
--     answer          {"count": N, "tokens": [...], ...}
--
-- Which fields an engine is given, and of which requests, C knows.
-- Answers are kept per nginx process.  What fails, fails softly: the request
-- is routed by load.


local least = require "resty.kv_router.policy.least_loaded".least
local post = require "resty.kv_router.http".post
local questions = require "resty.kv_router.questions"

local ipairs = ipairs
local md5_bin = ngx.md5_bin
local new_socket = ngx.socket.tcp
local setmetatable = setmetatable


local _M = {}
local mt = { __index = _M }


local TRIES = 2
local MAX_BODY = 8 * 2^20        -- bytes; more is not worth asking for
local MAX_ANSWER = 16 * 2^20     -- bytes; 2^20 tokens are some 7 MiB
local MAX_ENTRIES = 8192         -- answers kept
local ENTRY = 256                -- bytes that an answer takes beside tokens


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


-- The addresses of the least loaded candidates, at most two, and the kind of
-- engine that they all have.
local function nearest(found, random)
    local list, k = least(found, found.block_size, TRIES, random)
    local engine = found[list[0]].engine
    local addresses = {}

    -- copied, as what follows yields
    for i = 0, k - 1 do
        local c = found[list[i]]

        if c.engine == engine then
            addresses[#addresses + 1] = c.address
        end
    end

    return addresses, engine
end


local function ask(self, path, question, addresses)
    local err

    for _, address in ipairs(addresses) do
        local status, answer = post(new_socket(), address, path, question,
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


-- The token ids of the request's text: a uint32_t array and its length.  nil
-- when there is no text; nil and a sentence when it failed; nil, nil and the
-- name of a field for which nobody is asked.  Yields.
function _M:tokenize(r, zone, found, random)
    local addresses, engine = nearest(found, random)
    local question, path, err = questions.body(r, zone, questions.REMOTE, engine)

    if not question then
        return nil, err, path
    end

    if #question > MAX_BODY then
        return nil, "the prompt is too long to be tokenized"
    end

    local key = md5_bin(question)
    local entry = self.cache:get(key)

    if entry then
        return entry.tokens, entry.n
    end

    local answer

    answer, err = ask(self, path, question, addresses)
    if not answer then
        return nil, err
    end

    local tokens, n = questions.ids(zone, answer)
    if not tokens then
        return nil, n
    end

    self.cache:put(key, { tokens = tokens, n = n })

    return tokens, n
end


return _M
