-- A client of the very nginx that runs it, for blocks of many steps: what a
-- content_by_lua_block prints is then a transcript, one line a step.
--
--     local client = require "client"
--
--     client.show("PUT", "/kv/workers/a", '{"address":"127.0.0.1:1"}')
--
-- prints "PUT /kv/workers/a: 201 {...}".


local concat = table.concat
local decode = require "cjson.safe".decode
local ngx = ngx
local say = ngx.say


local _M = {}


local SECONDS = 60               -- that anything may take: more is a hang


-- A connection to port, or to the server of this request, with that sent.
function _M.send(text, port)
    local sock = ngx.socket.tcp()

    sock:settimeout(SECONDS * 1000)
    assert(sock:connect("127.0.0.1", port or ngx.var.server_port))
    assert(sock:send(text))

    return sock
end


-- Reads an answer to its end: { status, body, headers }, the names of headers
-- in lower case; status 0 when the connection was just closed.
function _M.receive(sock)
    local all = assert(sock:receive("*a"))
    sock:close()

    local head, body = all:match("^(.-\r\n)\r\n(.*)$")
    local answer = { status = 0, body = body or all, headers = {} }

    if head then
        answer.status = tonumber(head:match("^HTTP/1%.%d (%d+)"))

        for name, value in head:gmatch("\r\n([^:]+): ([^\r]*)") do
            answer.headers[name:lower()] = value
        end
    end

    return answer
end


-- Sends a request, by HTTP/1.0: answers are neither chunked nor kept alive.
-- headers: lines, each with its end.  Without a body there is no length.
function _M.ask(method, path, body, headers, port)
    local length = body and "Content-Length: " .. #body .. "\r\n" or ""

    return _M.receive(_M.send(concat { method, " ", path, " HTTP/1.0\r\n",
                                       "Host: localhost\r\n", length,
                                       headers or "", "\r\n", body or "" },
                              port))
end


-- Asks, and prints the call with its answer.
function _M.show(method, path, body, headers)
    local answer = _M.ask(method, path, body, headers)

    say(method, " ", path, ": ", answer.status, " ",
        (answer.body:gsub("\n$", "")))

    return answer
end


-- Asks, and prints the answer alone, after a word or two of what it is.
function _M.tell(what, method, path, body, headers)
    local answer = _M.ask(method, path, body, headers)

    say(what, ": ", answer.status, " ", (answer.body:gsub("\n$", "")))

    return answer
end


-- Waits until done() is true and returns what it returned; nil when it was
-- not in time.
function _M.wait(done)
    for _ = 1, SECONDS * 100 do
        local result = done()

        if result then
            return result
        end

        ngx.sleep(0.01)
    end

    return nil
end


-- Lets this process do all that it can do now: it takes some turns of its
-- loop, however long they last.
function _M.turns()
    for _ = 1, 20 do
        ngx.sleep(0.001)
    end
end


-- Waits until the error log has a text, a Lua pattern; returns what it found.
function _M.logged(pattern)
    return _M.wait(function()
        local file = assert(io.open(ngx.config.prefix() .. "logs/error.log"))
        local text = file:read("*a")

        file:close()

        return text:match(pattern)
    end)
end


-- An event of worker and rank, a RouterEvent; data: JSON.
function _M.event(worker, data, rank, tier)
    return concat { '{"worker_id":"', worker, '",',
                    tier and '"storage_tier":"' .. tier .. '",' or "",
                    '"event":{"event_id":1,"data":', data, ',"dp_rank":',
                    rank or 0, "}}" }
end


-- The data of a store of pairs { block_hash, tokens_hash }, numbers or their
-- digits, behind the block named parent.
function _M.stored(parent, pairs)
    local blocks = {}

    for i, pair in ipairs(pairs) do
        blocks[i] = '{"block_hash":' .. pair[1] .. ',"tokens_hash":'
                    .. pair[2] .. "}"
    end

    return '{"stored":{"parent_hash":' .. (parent or "null") .. ',"blocks":['
           .. concat(blocks, ",") .. "]}}"
end


-- The data of a removal.
function _M.removed(...)
    return '{"removed":{"block_hashes":[' .. concat({ ... }, ",") .. "]}}"
end


-- The numbers from the first to the last, as JSON: a prompt.
function _M.tokens(first, last)
    local list = {}

    for i = first, last do
        list[#list + 1] = i
    end

    return "[" .. concat(list, ",") .. "]"
end


-- Stores the whole blocks of a prompt (JSON) for a worker, in one chain; the
-- block hashes are first, first + 1 and so on.  api: the API's location.
function _M.cache(worker, prompt, opts)
    opts = opts or {}

    local api = opts.api or "/kv"
    local more = opts.more and "," .. opts.more or ""
    local hashes = _M.ask("POST", api .. "/hash",
                          '{"tokens":' .. prompt .. more .. "}")
    local blocks = {}

    for i, hash in ipairs(decode(hashes.body)["local"]) do
        blocks[i] = { (opts.first or 1000) + i, hash }
    end

    local answer = _M.ask("POST", api .. "/events",
                          _M.event(worker, _M.stored(nil, blocks), opts.rank,
                                   opts.tier))

    if answer.body ~= '{"applied":1,"refused":[]}\n' then
        error("not cached: " .. answer.body)
    end
end


-- What the zone's status says, decoded.
function _M.stats(api)
    return decode(_M.ask("GET", (api or "/kv") .. "/stats").body)
end


-- All load of the zone's workers, when it is below zero or over: a text.  nil
-- when there is none.
function _M.load(api)
    local parts = {}

    for _, worker in ipairs(_M.stats(api).workers) do
        for _, load in ipairs(worker.load) do
            for _, name in ipairs { "active_requests", "active_prefills",
                                    "prefill_tokens", "decode_blocks" }
            do
                if load[name] ~= 0 then
                    parts[#parts + 1] = worker.worker_id .. "/"
                                        .. load.dp_rank .. " " .. name .. "="
                                        .. load[name]
                end
            end
        end
    end

    return #parts > 0 and concat(parts, " ") or nil
end


-- Waits until no load is left, and prints that it is so.
function _M.idle(api)
    _M.wait(function() return not _M.load(api) end)

    say("load: ", _M.load(api) or "none")
end


return _M
