-- Copyright (C) the nginx-kv-router authors
--
-- Clients that send requests to several routers and look at each answer, as
-- timers of an nginx of one process.
--
--     client.start{ ports = { a = 8001, b = 8002 }, kept = { a = true },
--                   clients = 64, seed = 1, log = FILE }
--     client.counts(), client.stop()       -- GET /counts and POST /stop
--
-- kept: the routers to which connections are kept open.  log: a line of JSON for
-- each request that was lost: when, from when, the router, the worker, and why.


local cjson = require "cjson"

local concat = table.concat
local encode = cjson.encode
local find = string.find
local floor = math.floor
local format = string.format
local match = string.match
local ngx = ngx
local now = ngx.now
local random = math.random
local tcp = ngx.socket.tcp
local timer = ngx.timer.at
local tonumber = tonumber


local _M = {}


local REQUESTS = 500             -- of a client, in one handler of a timer
local TIMEOUT = 60000            -- ms that an answer may take
local PREFIXES = 4000            -- prompts of ids that many requests begin with
local TENANTS = 6
local TURNS = 12                 -- of a session, at most
local LEAVES = 0.003             -- of all requests: the client leaves
local STREAMS = 0.2
local BATCH = 0.3                -- of all requests: the class
local WORDS = {
    "cache", "router", "engine", "prefix", "block", "token", "worker", "queue",
    "gap", "epoch", "lease", "snapshot", "a", "the", "of", "and", "which", "is",
    "sees", "keeps", "drops", "reads", "tells", "asks", "42", "7", "x_1", "(",
    ")", "?", "!", "über", "naïve", "模型", "\n\n" }

local settings
local going = true
local counts = { sent = 0, whole = 0, refused = 0, left = 0, lost = 0,
                 wrong = 0, streams = 0, cached = 0, tokens = 0, ids = 0,
                 texts = 0, chats = 0, running = 0 }
local prefixes = {}


-- ---- what is asked ----------------------------------------------------------

local function prefix(i)
    local found = prefixes[i]

    if not found then
        local n, ids = 48 + i * 7 % 200, {}

        for j = 1, n do
            ids[j] = (i * 7919 + j * 31) % 30000 + 1000
        end

        found = { json = concat(ids, ","), n = n }
        prefixes[i] = found
    end

    return found
end


local function words(n)
    local list = {}

    for i = 1, n do
        list[i] = WORDS[random(#WORDS)]
    end

    return concat(list, " ")
end


-- A request's path, the members of its body, the tokens if they are known, and
-- more headers.
local function question(session)
    local kind = random()

    if kind < 0.55 then
        -- few of the prefixes are asked for often
        local begun = prefix(floor(PREFIXES * random() ^ 3) + 1)
        local tail = random(12)
        local ids = {}

        for i = 1, tail do
            ids[i] = random(1000, 31000)
        end

        counts.ids = counts.ids + 1

        return "/v1/completions", '"prompt":[' .. begun.json .. ","
               .. concat(ids, ",") .. "]", begun.n + tail, ""
    end

    if kind < 0.65 then
        counts.texts = counts.texts + 1

        return "/v1/completions", '"prompt":' .. encode(
               "You are case " .. floor(500 * random() ^ 2) .. ". " .. words(8)),
               nil, ""
    end

    if not session.messages or #session.messages >= 2 * session.turns then
        session.messages = { { role = "system",
                               content = "You are agent " .. random(20) } }
        session.turns = random(TURNS)
        session.id = format("s%d-%d", random(1e9), random(1e9))
    end

    session.messages[#session.messages + 1] = { role = "user",
                                                content = words(random(25)) }
    counts.chats = counts.chats + 1

    return "/v1/chat/completions", '"messages":' .. encode(session.messages),
           nil, "x-session-id: " .. session.id .. "\r\n", session
end


-- ---- one request ------------------------------------------------------------

-- The status, headers and body; nil, why, and headers when they had come.
local function answer(sock)
    local line, err = sock:receive("*l")

    if not line then
        return nil, "no answer: " .. err
    end

    local status, headers, parts = tonumber(match(line, " (%d+)")), {}, {}

    repeat
        line, err = sock:receive("*l")

        if not line then
            return nil, "in the head: " .. err, headers
        end

        local name, value = match(line, "^([^:]+): (.*)$")

        if name then
            headers[name:lower()] = value
        end
    until line == ""

    local length = tonumber(headers["content-length"])

    if length then
        local data

        data, err = sock:receive(length)

        if not data then
            return nil, "in the body: " .. err, headers
        end

        return status, headers, data
    end

    repeat
        line, err = sock:receive("*l")

        local size = line and tonumber(line, 16)
        local data = size and sock:receive(size + 2)

        if not data then
            return nil, "in the stream: " .. tostring(err), headers
        end

        parts[#parts + 1] = data
    until size == 0

    return status, headers, concat(parts)
end


local function note(what, why, router, begun, headers)
    counts[what] = counts[what] + 1

    local file = assert(io.open(settings.log, "a"))

    file:write(encode { what = what, why = why, router = router, begun = begun,
                        ended = now(), worker = headers and headers["x-kv-worker"]
                        or cjson.null }, "\n")
    file:close()
end


local function ask(session, number)
    local path, body, tokens, more, chat = question(session)
    local router = random() < 0.5 and "a" or "b"
    local stream = random() < STREAMS
    local id = format("r%d-%d", number, counts.sent)
    local sock, begun = tcp(), now()

    counts.sent = counts.sent + 1
    counts.streams = counts.streams + (stream and 1 or 0)
    body = "{" .. body .. ',"max_tokens":8,"stream":' .. tostring(stream) .. "}"
    sock:settimeout(TIMEOUT)

    local ok, err = sock:connect("127.0.0.1", settings.ports[router])

    if ok then
        ok, err = sock:send(concat {
            "POST ", path, " HTTP/1.1\r\nHost: x\r\nContent-Length: ", #body,
            "\r\nx-request-id: ", id, "\r\nx-class: ",
            random() < BATCH and "batch" or "interactive", "\r\nx-tenant: t",
            random(TENANTS), "\r\n", more,
            settings.kept[router] and "" or "Connection: close\r\n", "\r\n",
            body })
    end

    if not ok then
        return note("lost", "not sent: " .. err, router, begun)
    end

    if random() < LEAVES then
        ngx.sleep(random(10) / 1000)
        sock:close()
        counts.left = counts.left + 1
        return
    end

    local status, headers, data = answer(sock)

    if not status then
        return note("lost", headers, router, begun, data)
    end

    if settings.kept[router] and headers["connection"] ~= "close" then
        sock:setkeepalive(60000, 128)
    else
        sock:close()
    end

    if status == 429 then
        counts.refused = counts.refused + 1
        ngx.sleep(0.05)
        return
    end

    if status ~= 200 then
        return note("lost", status .. ": " .. data:sub(1, 200), router, begun,
                    headers)
    end

    local prompt = tonumber(match(data, '"prompt_tokens":(%d+)'))

    if not find(data, '"id":"' .. id .. '"', 1, true) or not prompt
       or tokens and tokens ~= prompt
       or stream and not find(data, "data: [DONE]\n\n", 1, true)
    then
        return note(stream and "lost" or "wrong", "not its answer: "
                    .. data:sub(-200), router, begun, headers)
    end

    counts.whole = counts.whole + 1
    counts.tokens = counts.tokens + prompt
    counts.cached = counts.cached
                    + (tonumber(match(data, '"cached_tokens":(%d+)')) or 0)

    if chat then
        chat.messages[#chat.messages + 1] = { role = "assistant",
                                              content = "so it is" }
    end
end


-- A client.  nginx frees the memory of connections when a timer's handler ends:
-- so a handler sends some requests, and starts another one.
local function client(premature, number, session)
    for _ = 1, REQUESTS do
        if not going or premature then
            break
        end

        ask(session, number)
    end

    if not going or premature or not timer(0, client, number, session) then
        counts.running = counts.running - 1
    end
end


-- ---- what is called ---------------------------------------------------------

function _M.start(given)
    settings = given
    math.randomseed(settings.seed)

    for i = 1, settings.clients do
        counts.running = counts.running + 1
        assert(timer(0, client, i, {}))
    end
end


function _M.counts()
    ngx.print(encode(counts))
end


function _M.stop()
    going = false
    ngx.print("so it will be\n")
end


return _M
