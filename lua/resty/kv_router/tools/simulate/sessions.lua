-- Copyright (C) the nginx-kv-router authors
--
-- Recorded sessions of agents, which kv-simulate replays: a tar archive of
-- files with a JSON object a line, { timestamp (microseconds), input, output,
-- session_id }.
--
-- A session is drawn as often as it takes.  Each time what is behind the
-- beginning that all sessions of the archive share is taken for another text.
-- So two sessions share that beginning, and the system prompt that is put
-- before it, and nothing else.  Within a session a prompt shares what it has
-- in common with the earlier prompt that is most like it.
--
-- A request is a conversation of one turn (see workload.lua) with three fields
-- more: the one before it in its session, `after`, the one behind it,
-- `following`, and the name of the `session`.


local ffi = require "ffi"
local decode = require "cjson.safe".decode
local new_random = require "resty.kv_router.request.random".new

local ffi_copy = ffi.copy
local ffi_new = ffi.new
local floor = math.floor
local gsub = string.gsub
local log = math.log
local max = math.max
local min = math.min
local sort = table.sort


local _M = {
    library = nil,               -- libkvr.so, to be set before the rest
}


local OWN = 2^32                 -- streams of conversations: workload.lua
local ENGINE = "vllm"            -- for tokenizers without a router.json
local TEXT = 2^26                -- bytes of a text, at the most


-- A function that makes an array of token ids of a text, and their number; nil
-- and a sentence.  dir: as kv_router_model has it.
local function tokenizer(dir)
    ffi.load(_M.library, true)

    local lib = require "resty.kv_router.tokens.model_ffi"
    local texts = require "resty.kv_router.tokens.text_ffi"
    local text = texts.text(TEXT)
    local model, err = lib.load(dir, ENGINE)

    if not model then
        return nil, err
    end

    return function(s)
        texts.reset(text, TEXT)

        if not texts.append(text, s) then
            return nil, "a text is longer than " .. TEXT .. " bytes"
        end

        local ids, n = lib.encode(model, text)

        if not ids then
            return nil, n
        end

        local own = ffi_new("uint32_t[?]", n + 1)

        ffi_copy(own, ids, 4 * n)

        return own, n
    end
end


-- How many tokens two prompts begin with alike.
local function common(a, b)
    local n, i = min(a.n, b.n), 0

    while i < n and a.ids[i] == b.ids[i] do
        i = i + 1
    end

    return i
end


-- Tells each prompt of a session the earlier one that is most like it.
local function relate(session)
    for i, turn in ipairs(session) do
        for k = 1, i - 1 do
            local n = common(session[k], turn)

            if n > (turn.common or 0) then
                turn.like, turn.common = k, n
            end
        end
    end
end


-- Adds a line to its session; nil and a sentence.
local function add(line, list, of, encode)
    local record = decode(line)

    if type(record) ~= "table" or type(record.timestamp) ~= "number"
       or type(record.input) ~= "string" or type(record.output) ~= "string"
       or type(record.session_id) ~= "string"
    then
        return nil, "is no { timestamp, input, output, session_id }"
    end

    local ids, n = encode(record.input)
    local answer, output = encode(record.output)

    if not ids or not answer then
        return nil, "is not tokenized: " .. (ids and output or n)
    end

    local session = of[record.session_id]

    if not session then
        session = {}
        of[record.session_id] = session
        list[#list + 1] = session
    end

    session[#session + 1] = { at = record.timestamp / 1e6, ids = ids, n = n,
                              output = max(1, output) }

    return true
end


-- Reads an archive.  Returns a list of sessions, which are lists of { at, n,
-- output, like, common }, with `shared`: the tokens that all of them begin
-- with; or nil and a sentence.
function _M.read(name, dir)
    local encode, err = tokenizer(dir)

    if not encode then
        return nil, dir .. ": " .. err
    end

    local list, of, lines = {}, {}, 0
    local pipe = assert(io.popen("tar -xOf '" .. gsub(name, "'", "'\\''")
                                 .. "'"))

    for line in pipe:lines() do
        local ok

        lines = lines + 1
        ok, err = add(line, list, of, encode)

        if not ok then
            pipe:close()
            return nil, name .. ": line " .. lines .. " " .. err
        end
    end

    pipe:close()

    if lines == 0 then
        return nil, name .. ": tar finds no line in it"
    end

    for _, session in ipairs(list) do
        sort(session, function(a, b) return a.at < b.at end)
        relate(session)
        list.shared = min(list.shared or session[1].n,
                          common(list[1][1], session[1]))
    end

    for _, session in ipairs(list) do
        for _, turn in ipairs(session) do
            turn.ids = nil
        end
    end

    return list
end


-- The first `blocks` blocks of a list of parts.
local function beginning(parts, blocks)
    local list = {}

    for i, p in ipairs(parts) do
        if blocks > 0 then
            list[i] = { p[1], min(p[2], blocks) }
            blocks = blocks - list[i][2]
        end
    end

    return list
end


-- Adds the requests of a session, from the time `at` on.  Answers take no time
-- here.
local function replay(session, list, at, system, head, size, seed)
    local own, talk = {}, nil

    for i, turn in ipairs(session) do
        local like = own[turn.like]
        local shared = like and floor((system + turn.common) / size) or head[2]
        local parts = beginning(like and like.parts or { head }, shared)
        local prompt = system + turn.n
        local stream = OWN * seed + 2 * #list

        if floor(prompt / size) > shared then
            parts[#parts + 1] = { stream, floor(prompt / size) - shared }
        end

        local think = talk and turn.at - session[i - 1].at

        at = at + (think or 0)
        own[i] = { at = at, parts = parts, own = stream + 1, after = talk,
                   think = think, session = talk and talk.session or stream,
                   turns = { { think = 0, add = 0, prompt = prompt,
                               output = turn.output } } }

        if talk then
            talk.following = own[i]
        end

        talk = own[i]
        list[#list + 1] = talk
    end
end


-- Draws at least so many requests of what read() has returned, behind a system
-- prompt of so many tokens.  Sessions begin one second apart on average.
function _M.draw(sessions, requests, size, seed, system)
    local draw = new_random(seed)
    local list, at = {}, 0
    local head = { 1, floor((system + sessions.shared) / size) }

    while #list < requests do
        replay(sessions[1 + floor(draw() * #sessions)], list, at, system, head,
               size, seed)
        at = at - log(1 - draw())
    end

    return list
end


local kept                       -- what read() has returned

-- What kv-simulate's options ask for; nil and a sentence.
function _M.of(options, seed)
    local err

    if not kept then
        kept, err = _M.read(options.sessions, options.tokenizer)
    end

    if not kept then
        return nil, err
    end

    return _M.draw(kept, options.requests, options["block-size"], seed,
                   options.system)
end


return _M
