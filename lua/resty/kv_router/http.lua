-- Copyright (C) the nginx-kv-router authors
--
-- A small HTTP/1.1 client: one POST of JSON to an engine, over a cosocket with
-- keepalive.  Not a subrequest: those refuse HTTP/2 clients.  No redirects, no
-- TLS; every length is bounded.


local concat = table.concat
local find = string.find
local lower = string.lower
local match = string.match
local sub = string.sub
local tonumber = tonumber


local _M = {}


local MAX_HEADER = 16384         -- bytes; nginx's own bound is smaller
local MAX_CHUNK_LINE = 256
local MAX_TRAILER = 1024
local IDLE_MS = 60000            -- shorter than engines keep connections
local POOL = 32                  -- idle connections per engine and process


-- Splits "host:port" or "unix:/path" into what sock:connect() takes: host (or
-- the whole), port (nil for a socket).  nil and a sentence when it is another.
function _M.split(address)
    if sub(address, 1, 6) == "unix:/" then
        return address
    end

    if find(address, "://", 1, true) then
        return nil, nil, "only plain host:port is supported"
    end

    local host, port = match(address, "^(.+):(%d+)$")

    if not host then
        return nil, nil, "no port in the address"
    end

    return host, tonumber(port)
end


-- Reads up to and without the end, at most limit bytes.
local function read_until(sock, stop, limit)
    local read = sock:receiveuntil(stop)
    local data, err = read(limit)

    if not data then
        return nil, err or "closed"
    end

    -- at the end it answers nil, and nothing with it
    local more
    more, err = read(1)

    if more then
        return nil, "the header is too long"
    end

    if err then
        return nil, err
    end

    return data
end


local function header(head, name)
    local value = match(head, "\r\n" .. name .. ":[ \t]*([^\r\n]*)")

    return value and match(value, "^(.-)[ \t]*$")
end


local function read_chunks(sock, limit)
    local parts = {}
    local n = 0
    local total = 0

    while true do
        local line, err = read_until(sock, "\r\n", MAX_CHUNK_LINE)
        if not line then
            return nil, err
        end

        local digits = match(line, "^%x+")
        if not digits then
            return nil, "a chunk without a size"
        end

        local size = tonumber(digits, 16)

        if size == 0 then
            break
        end

        total = total + size
        if total > limit then
            return nil, "the answer is too long"
        end

        local data
        data, err = sock:receive(size)
        if not data then
            return nil, err
        end

        n = n + 1
        parts[n] = data

        data, err = sock:receive(2)
        if data ~= "\r\n" then
            return nil, err or "a chunk without an end"
        end
    end

    -- trailers, as a rule none, and the empty line
    local left = MAX_TRAILER

    while true do
        local line, err = read_until(sock, "\r\n", left)
        if not line then
            return nil, err
        end

        if line == "" then
            return concat(parts)
        end

        left = left - #line
        if left <= 0 then
            return nil, "the header is too long"
        end
    end
end


-- Reads one answer.  limit: bytes of its body.  Returns the status, the body
-- and whether the connection may be kept; or nil and what is wrong.
function _M.read(sock, limit)
    local head, err = read_until(sock, "\r\n\r\n", MAX_HEADER)
    if not head then
        return nil, err
    end

    local minor, status = match(head, "^HTTP/1%.([01]) (%d%d%d)")
    if not minor then
        return nil, "no HTTP/1 answer"
    end

    -- values that count here are case-insensitive too
    head = lower(head)

    local connection = header(head, "connection")
    local keep = connection ~= "close"
                 and (minor == "1" or connection == "keep-alive")
    local coding = header(head, "transfer%-encoding")
    local body

    if coding then
        if coding ~= "chunked" then
            return nil, "unknown transfer-encoding"
        end

        body, err = read_chunks(sock, limit)

    else
        local length = match(header(head, "content%-length") or "", "^%d+$")

        if not length then
            return nil, "an answer without a length"
        end

        length = tonumber(length)

        if length > limit then
            return nil, "the answer is too long"
        end

        body = ""

        if length > 0 then
            body, err = sock:receive(length)
        end
    end

    if not body then
        return nil, err
    end

    return tonumber(status), body, keep
end


-- Sends a JSON body to path at address over sock, a new cosocket.  timeout:
-- milliseconds for each of connecting, sending and receiving.  headers: lines,
-- each with its end, or nil.  connect_timeout: for connecting alone, or nil.
-- Returns true, or nil and what is wrong, and true when the connection was one
-- that was kept.
function _M.send(sock, address, path, body, timeout, headers, connect_timeout)
    local host, port, err = _M.split(address)
    if not host then
        return nil, err
    end

    sock:settimeouts(connect_timeout or timeout, timeout, timeout)

    local ok

    if port then
        ok, err = sock:connect(host, port, { pool_size = POOL })
    else
        ok, err = sock:connect(host, { pool_size = POOL })
    end

    if not ok then
        return nil, "connect: " .. err
    end

    local kept = sock:getreusedtimes() > 0

    ok, err = sock:send({ "POST ", path, " HTTP/1.1\r\nHost: ",
                          port and address or "localhost",
                          "\r\nContent-Type: application/json",
                          "\r\nContent-Length: ", #body, "\r\n",
                          headers or "", "\r\n", body })
    if not ok then
        sock:close()
        return nil, "send: " .. err, kept
    end

    return true, nil, kept
end


local function post(sock, address, path, body, timeout, limit, headers,
                    connect_timeout)
    local ok, err, kept = _M.send(sock, address, path, body, timeout, headers,
                                  connect_timeout)
    if not ok then
        return nil, err, kept
    end

    local status, answer, keep = _M.read(sock, limit)

    if not status then
        sock:close()
        return nil, "receive: " .. answer, kept
    end

    if keep then
        sock:setkeepalive(IDLE_MS)
    else
        sock:close()
    end

    return status, answer
end


-- The same, and reads the answer.  limit: bytes of its body.  Returns the
-- status and the body, or nil and what is wrong.  A connection that was kept
-- may have been closed by the engine meanwhile: then another one is taken.
function _M.post(...)
    local status, answer, kept

    for _ = 0, POOL do
        status, answer, kept = post(...)

        if status or not kept or find(answer, "timeout", 1, true) then
            break
        end
    end

    return status, answer
end


return _M
