-- Copyright (C) the nginx-kv-router authors
--
-- What kv-simulate replays: conversations, drawn by a seed or read from a
-- file.
--
-- A conversation is { at, turns, parts }.  at: seconds.  turns: a list of
-- { think, add, output }, of which think is the number of seconds since the
-- last answer's end, add the tokens that the turn adds to the prompt, output
-- the tokens of its answer.  A turn's prompt is the prompt before it, the
-- answer to that, and what is added.  parts: the streams of tokens that the
-- prompt begins with, as { stream, blocks }; the conversation's own stream is
-- behind them.  Equal streams are equal tokens: that is what conversations
-- share.  after: a conversation whose end this one waits for, and `think`
-- seconds more.


local decode = require "cjson.safe".decode
local draws = require "resty.kv_router.tools.simulate.draws"
local new_random = require "resty.kv_router.request.random".new
local shapes = require "resty.kv_router.tools.simulate.shapes"

local ceil = math.ceil
local exponential = draws.exponential
local floor = math.floor
local gmatch = string.gmatch
local lognormal = draws.lognormal
local max = math.max
local min = math.min
local open = io.open
local skewed = draws.skewed
local sort = table.sort
local sqrt = math.sqrt
local zipf = draws.zipf


local _M = {}


-- streams: shared ones below, those of conversations from here on
local OWN = 2^32


-- ---- drawing ----------------------------------------------------------------

-- So many tokens of a shared stream, in whole blocks.
local function part(stream, tokens, size)
    return { stream, max(1, floor(tokens / size)) }
end


-- A conversation of one turn.  add and output: the bounds of skewed().
local function question(draw, list, at, of, add, output)
    list[#list + 1] = {
        at = at, parts = { of },
        turns = { { think = 0, add = floor(skewed(draw, unpack(add))),
                    output = floor(skewed(draw, unpack(output))) } } }

    return 1
end


-- The kinds: each draws one conversation that begins at a time, into list, and
-- returns how many requests it has; and when the next one begins, if that is not
-- a second later on average.
local KINDS = {}

shapes.add(KINDS)


-- 8 system prompts; 4 to 9 turns
function KINDS.chat(draw, list, at, size)
    local system = zipf(draw, 8)
    local turns = {}

    for i = 1, 4 + floor(6 * draw()) do
        turns[i] = { think = skewed(draw, 2, 30, 6),
                     add = floor(skewed(draw, 20, 1000, 200)),
                     output = floor(skewed(draw, 40, 500, 110)) }
    end

    list[#list + 1] = { at = at, turns = turns,
                        parts = { part(system, 400 + 170 * system, size) } }

    return #turns
end


-- one system prompt for all, and one question
function KINDS.shared(draw, list, at, size)
    return question(draw, list, at, part(1, 6000, size), { 30, 800, 120 },
                    { 20, 400, 80 })
end


-- one question behind a long system prompt that nobody knows in the beginning
-- and everybody asks for in the end
function KINDS.surge(draw, list, at, size)
    return question(draw, list, sqrt(at), part(1, 12000, size),
                    { 30, 800, 120 }, { 50, 600, 150 })
end


-- one of 400 documents behind a system prompt, and one or two questions
function KINDS.rag(draw, list, at, size)
    local document = zipf(draw, 400)
    local turns = {}

    for i = 1, draw() < 0.3 and 2 or 1 do
        turns[i] = { think = skewed(draw, 5, 60, 15),
                     add = floor(skewed(draw, 20, 300, 60)),
                     output = floor(skewed(draw, 40, 600, 160)) }
    end

    list[#list + 1] = {
        at = at, turns = turns,
        parts = { part(1, 500, size),
                  part(1000 + document, 1500 + document * 7919 % 6500,
                       size) } }

    return #turns
end


-- A coding agent: tools and instructions that all agents share, a median of 43
-- turns up to some 142,000 tokens, short waits for tools, long ones for people;
-- 44 % of the sessions have agents of their own.
function KINDS.agents(draw, list, at, size)
    local n = min(120, max(4, floor(lognormal(draw, 43, 0.5))))
    local turns, requests, clock = {}, n, at

    for i = 1, n do
        local think = draw() < 0.12 and skewed(draw, 10, 300, 40)
                      or lognormal(draw, 2.5, 0.8)

        turns[i] = { think = think,
                     add = floor(lognormal(draw, 1900, 0.9)),
                     output = floor(skewed(draw, 30, 2000, 260)) }
    end

    list[#list + 1] = { at = at, turns = turns,
                        parts = { part(1, 14000, size) } }

    if draw() < 0.44 then
        for _ = 1, 1 + floor(3 * draw()) do
            local sub = {}

            clock = clock + skewed(draw, 20, 300, 60)

            for i = 1, 5 + floor(12 * draw()) do
                sub[i] = { think = lognormal(draw, 2.5, 0.8),
                           add = floor(lognormal(draw, 1500, 0.9)),
                           output = floor(skewed(draw, 30, 1500, 200)) }
            end

            requests = requests + #sub
            list[#list + 1] = { at = clock, turns = sub,
                                parts = { part(2, 7000, size) } }
        end
    end

    return requests
end


-- one of 20 templates with examples; much comes at once
function KINDS.batch(draw, list, at, size)
    local template = zipf(draw, 20)

    return question(draw, list, at,
                    part(template, 1500 + 150 * template, size),
                    { 200, 3000, 600 }, { 10, 300, 50 })
end


-- 24 requests for the same new prompt, within half a second
function KINDS.burst(draw, list, at, size)
    local stream = 10000 + #list
    local tokens = skewed(draw, 1000, 8000, 2500)

    for _ = 1, 24 do
        question(draw, list, at + 0.5 * draw(), part(stream, tokens, size),
                 { 10, 100, 30 }, { 20, 300, 80 })
    end

    return 24
end


-- A session that has read 40,000 tokens forks 43 agents at once, ten seconds
-- later: each begins with all of it, and a task of its own.
function KINDS.fork(draw, list, at, size)
    local of, later = part(20000 + #list, 40000, size), 10

    question(draw, list, at, of, { 100, 1000, 200 }, { 100, 1000, 300 })

    for _ = 1, 43 do
        question(draw, list, at, of, { 200, 3000, 600 }, { 50, 1000, 200 })
        later = later + exponential(draw, 0.05)
        list[#list].later = later
    end

    return 44
end


_M.KINDS = {}

for name in pairs(KINDS) do
    _M.KINDS[#_M.KINDS + 1] = name
end

sort(_M.KINDS)


-- Draws one conversation that begins at a time, into list, with all that
-- belongs to it; returns how many requests it has.
function _M.conversation(kind, draw, list, at, size)
    return KINDS[kind](draw, list, at, size)
end


-- No two conversations have the same tokens behind their parts.
function _M.number(list, seed)
    for i, talk in ipairs(list) do
        talk.own = OWN * seed + i
    end

    return list
end


-- Draws at least so many requests.  The conversations begin one second apart on
-- average: spread() sets the pace.
function _M.draw(kind, requests, size, seed)
    local list, n, at = {}, 0, 0
    local draw = new_random(seed)

    if not KINDS[kind] then
        return nil, 'there is no workload "' .. kind .. '"; there are: '
                    .. table.concat(_M.KINDS, ", ")
    end

    while n < requests do
        local more, gap = KINDS[kind](draw, list, at, size)

        n = n + more
        at = at + (gap or exponential(draw, 1))
    end

    return _M.number(list, seed)
end


-- ---- files ------------------------------------------------------------------

-- Mooncake's: { timestamp (ms), input_length, output_length, hash_ids }, an id
-- for each `tokens` tokens.
local function mooncake(record, tokens, size)
    local parts = {}

    for i, id in ipairs(record.hash_ids) do
        parts[i] = { id, tokens / size }
    end

    return { at = record.timestamp / 1000, parts = parts, own = nil,
             turns = { { think = 0, add = 0, prompt = record.input_length,
                         output = max(1, record.output_length) } } }
end


-- Ours, from an access log: { at (s), took (s), hashes, output_tokens }; at is
-- the end of the request, hashes is $kv_router_block_hashes.  Of a hash 52 bits
-- are enough to tell blocks apart.  nil: no block of the prompt is known.
local function logged(record, _, size)
    local parts = {}

    for hash in gmatch(record.hashes, "(%x%x%x%x%x%x%x%x%x%x%x%x%x)%x%x%x") do
        parts[#parts + 1] = { tonumber(hash, 16), 1 }
    end

    if #parts == 0 then
        return nil
    end

    -- of the last block, which is not whole, nothing is logged
    return { at = record.at - (record.took or 0), parts = parts,
             turns = { { think = 0, add = 0,
                         prompt = #parts * size + ceil(size / 2),
                         output = max(1, record.output_tokens or 1) } } }
end


local function wrong(record)
    if type(record) ~= "table" then
        return true
    end

    if type(record.at) == "number" and type(record.hashes) == "string" then
        return record.output_tokens and type(record.output_tokens) ~= "number"
               or record.took and type(record.took) ~= "number"
    end

    return type(record.timestamp) ~= "number"
           or type(record.input_length) ~= "number"
           or type(record.output_length) ~= "number"
           or type(record.hash_ids) ~= "table"
end


-- Reads a trace, a JSON object a line.  tokens: that one of Mooncake's ids
-- stands for.  most: the number of requests.  Returns the conversations, and
-- how many lines have no hashes and are left out; or nil and a sentence when a
-- line is none of the two forms, or no line has hashes.
function _M.read(name, most, tokens, size)
    local file, err = open(name)

    if not file then
        return nil, err
    end

    if tokens % size ~= 0 then
        return nil, "an id of the trace stands for " .. tokens
                    .. " tokens, which is no multiple of the block size "
                    .. size
    end

    local list, n, without = {}, 0, 0

    for line in file:lines() do
        if #list == most then
            break
        end

        n = n + 1

        local record = decode(line)

        if wrong(record) then
            return nil, name .. ":" .. n .. ": neither { timestamp, "
                        .. "input_length, output_length, hash_ids } nor { at, "
                        .. "took, hashes, output_tokens }"
        end

        local talk = record.hash_ids and mooncake(record, tokens, size)
                     or logged(record, tokens, size)

        if talk then
            talk.own = OWN + n
            list[#list + 1] = talk

        else
            without = without + 1
        end
    end

    file:close()

    if n == 0 then
        return nil, name .. ": an empty file"
    end

    if #list == 0 then
        return nil, name .. ": no line has hashes of a prompt; nginx logs them "
                    .. "when it knows the tokens of a request that it routes"
    end

    sort(list, function(a, b)
        if a.at ~= b.at then
            return a.at < b.at
        end
        return a.own < b.own
    end)

    return list, without
end


-- ---- pace -------------------------------------------------------------------

-- Tokens of a turn's prompt, when `before` tokens are known already.
function _M.prompt_of(talk, turn, before, size)
    if turn.prompt then
        return turn.prompt
    end

    if before == 0 then
        for _, p in ipairs(talk.parts) do
            before = before + p[2] * size
        end
    end

    return before + turn.add
end


-- Seconds of an engine for all of it, when a prompt's part that the same
-- conversation had before is cached, and shared parts are, too, and eight
-- requests decode at once.  seen: parts that are cached already.
function _M.work(list, times, size, seen)
    local seconds = 0

    for _, talk in ipairs(list) do
        local before = 0

        for _, turn in ipairs(talk.turns) do
            local prompt = _M.prompt_of(talk, turn, before, size)
            local known = before

            if before == 0 then
                for _, p in ipairs(talk.parts) do
                    if not seen[p[1]] then
                        seen[p[1]] = true
                        break
                    end

                    known = min(prompt, known + p[2] * size)
                end
            end

            seconds = seconds + times.prefill * (prompt - known)
                      + turn.output * (times.decode + times.base / 8)
            before = prompt + turn.output
        end
    end

    return seconds
end


-- Sets the times at which conversations begin so that the fleet of engines is
-- busy for a share `load` of the time.  Thinking, and what comes `later` than
-- another conversation, stay as they are.
function _M.spread(list, load, workers, times, size)
    local first, last = list[1].at, list[1].at
    local wanted = _M.work(list, times, size, {}) / workers / load

    if load <= 0 then
        error("the load must be above 0")
    end

    for _, talk in ipairs(list) do
        last = talk.after and last or talk.at
    end

    local scale = last > first and wanted / (last - first) or 1

    for _, talk in ipairs(list) do
        talk.at = talk.after and talk.after.at + talk.think
                  or (talk.at - first) * scale + (talk.later or 0)
    end

    return wanted
end


-- The number of blocks that conversation needs, answers included.
function _M.blocks_of(talk, size)
    local tokens = 0

    for _, turn in ipairs(talk.turns) do
        tokens = _M.prompt_of(talk, turn, tokens, size) + turn.output
    end

    return ceil(tokens / size) + 1
end


-- The number of different blocks of all conversations, answers included, and
-- that of the longest one.
function _M.working_set(talks, size)
    local all, longest, shared = 0, 0, {}

    for _, talk in ipairs(talks) do
        local blocks = _M.blocks_of(talk, size)

        longest = max(longest, blocks)
        all = all + blocks

        for _, p in ipairs(talk.parts) do
            all = all - p[2]
            shared[p[1]] = max(shared[p[1]] or 0, p[2])
        end
    end

    for _, blocks in pairs(shared) do
        all = all + blocks
    end

    return all, longest
end


return _M
