-- Copyright (C) the nginx-kv-router authors
--
-- A small HTTP/1.1 client: one POST of JSON to an engine, over a cosocket with
-- keepalive, by TLS where the zone's engines have it.  Not a subrequest: those
-- refuse HTTP/2 clients.  No redirects; every length is bounded.
--
-- Options of send() and post(), a table:
--
--     timeout          milliseconds, for each of connecting, sending and
--                      receiving
--     connect_timeout  for connecting alone, if it is there
--     deadline         microseconds of lib.now_us(): when all must be over, if
--                      it is there
--     limit            bytes of the answer's body
--     headers          lines, each with its end, if there are any
--     engine           how the engines of the zone are talked to: engine() of
--                      resty.kv_router.tokens.engines


local lib = require "resty.kv_router.ffi"

local concat = table.concat
local find = string.find
local floor = math.floor
local lower = string.lower
local match = string.match
local max = math.max
local min = math.min
local sub = string.sub
local tonumber = tonumber
local tostring = tostring


local _M = {}


local MAX_HEADER = 16384         -- bytes; nginx's own bound is smaller
local MAX_CHUNK_LINE = 256
local MAX_TRAILER = 1024
local MAX_READ = 65536           -- bytes received at a time
local IDLE_MS = 60000            -- shorter than engines keep connections
local POOL = 256                 -- idle connections of an engine and process
local TRIES = 33                 -- connections that were kept, and one more


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


-- Milliseconds that one step may take now; below 1 when the deadline is over.
local function time_left(opts, timeout)
    if not opts.deadline then
        return timeout
    end

    return min(timeout, (opts.deadline - lib.now_us()) / 1000)
end


-- Sets the time that the next step may take; nil and "timeout" when there is
-- none.
local function allow(sock, opts, timeout)
    local ms = time_left(opts, timeout)

    if ms < 1 then
        return nil, "timeout"
    end

    ms = floor(ms)
    sock:settimeouts(ms, ms, ms)

    return true
end


-- Answers are received as they come, so that one that drips is over at the
-- deadline too.  What was received and is not read yet is in_hand from the
-- position at on.
local function fill(from)
    local ok, err = allow(from.sock, from.opts, from.opts.timeout)
    if not ok then
        return nil, err
    end

    local data

    data, err = from.sock:receiveany(MAX_READ)

    return data, err or not data and "closed" or nil
end


-- Reads up to and without the end, at most limit bytes.
local function read_until(from, stop, limit)
    local at = from.at
    local first, last = find(from.in_hand, stop, at, true)

    while not first do
        local in_hand = sub(from.in_hand, at)

        if #in_hand > limit then
            return nil, "the header is too long"
        end

        local data, err = fill(from)
        if not data then
            return nil, err
        end

        at = 1
        from.in_hand = in_hand .. data
        first, last = find(from.in_hand, stop, max(1, #in_hand - #stop + 2),
                           true)
    end

    if first - at > limit then
        return nil, "the header is too long"
    end

    from.at = last + 1

    return sub(from.in_hand, at, first - 1)
end


local function read_bytes(from, size)
    local at = from.at
    local total = #from.in_hand - at + 1

    if total < size then
        local parts = { sub(from.in_hand, at) }

        while total < size do
            local data, err = fill(from)
            if not data then
                return nil, err
            end

            parts[#parts + 1] = data
            total = total + #data
        end

        at = 1
        from.in_hand = concat(parts)
    end

    from.at = at + size

    return sub(from.in_hand, at, at + size - 1)
end


local function header(head, name)
    local value = match(head, "\r\n" .. name .. ":[ \t]*([^\r\n]*)")
    local stop = value and #value

    -- no pattern: one before the end would look at each blank often
    while value and find(value, "^[ \t]", stop) do
        stop = stop - 1
    end

    return value and sub(value, 1, stop)
end


local function read_chunks(from, limit)
    local parts = {}
    local n = 0
    local total = 0

    while true do
        local line, err = read_until(from, "\r\n", MAX_CHUNK_LINE)
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
        data, err = read_bytes(from, size)
        if not data then
            return nil, err
        end

        n = n + 1
        parts[n] = data

        data, err = read_bytes(from, 2)
        if data ~= "\r\n" then
            return nil, err or "a chunk without an end"
        end
    end

    -- trailers, as a rule none, and the empty line
    local left = MAX_TRAILER

    while true do
        local line, err = read_until(from, "\r\n", left)
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


-- Reads one answer.  Returns the status, the body and whether the connection may
-- be kept; or nil and what is wrong.
function _M.read(sock, opts)
    local from = { sock = sock, opts = opts, in_hand = "", at = 1 }
    local limit = opts.limit
    local head, err = read_until(from, "\r\n\r\n", MAX_HEADER)
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

        body, err = read_chunks(from, limit)

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
            body, err = read_bytes(from, length)
        end
    end

    if not body then
        return nil, err
    end

    -- what follows is no answer to anything
    return tonumber(status), body, keep and from.at > #from.in_hand
end


-- ---- connections ------------------------------------------------------------

-- Sends a JSON body to path at address over sock, a new cosocket.  Returns true,
-- or nil and what is wrong, and true when the connection was one that was kept.
function _M.send(sock, address, path, body, opts)
    local host, port, err = _M.split(address)
    if not host then
        return nil, err
    end

    local engine = opts.engine
    local ok

    ok, err = allow(sock, opts, opts.connect_timeout or opts.timeout)

    if not ok then
        return nil, "connect: " .. err
    end

    local kept_in = { pool_size = POOL, pool = engine.key .. address }

    if port then
        ok, err = sock:connect(host, port, kept_in)
    else
        ok, err = sock:connect(host, kept_in)
    end

    if not ok then
        return nil, "connect: " .. err
    end

    local kept = sock:getreusedtimes() > 0

    if engine.tls and not kept then
        ok, err = sock:sslhandshake(false, engine.name, engine.verify)

        if not ok then
            sock:close()
            return nil, "connect: TLS: " .. tostring(err)
        end
    end

    ok, err = allow(sock, opts, opts.timeout)

    if ok then
        ok, err = sock:send({ "POST ", path, " HTTP/1.1\r\nHost: ",
                              port and address or "localhost",
                              "\r\nContent-Type: application/json",
                              "\r\nContent-Length: ", #body, "\r\n",
                              engine.headers, opts.headers or "", "\r\n",
                              body })
    end

    if not ok then
        sock:close()
        return nil, "send: " .. err, kept
    end

    return true, nil, kept
end


local function post(sock, address, path, body, opts)
    local ok, err, kept = _M.send(sock, address, path, body, opts)
    if not ok then
        return nil, err, kept
    end

    local status, answer, keep = _M.read(sock, opts)

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


-- The same, and reads the answer.  Returns the status and the body, or nil and
-- what is wrong.  A connection that was kept may have been closed by the engine
-- meanwhile: then another one is taken.
function _M.post(sock, address, path, body, opts)
    local status, answer, kept

    for _ = 1, TRIES do
        status, answer, kept = post(sock, address, path, body, opts)

        if status or not kept or find(answer, "timeout", 1, true) then
            break
        end
    end

    return status, answer
end


return _M
