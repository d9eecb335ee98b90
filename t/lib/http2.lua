-- An HTTP/2 client of one request to a server of this very nginx, without TLS,
-- that sends a body as slowly as a test wants: with a length or without one.
--
--     local stream = http2.post(port, "/v1/x")         -- no content-length
--
--     stream:send("half of it")
--     stream:send(" and the rest", true)
--     ngx.print(stream:answer())                       -- the body alone


local client = require "client"

local byte, char = string.byte, string.char


local _M = {}
local mt = { __index = _M }


local DATA, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE = 0, 1, 3, 4, 8
local CANCEL = "\0\0\0\8"
local END_STREAM, END_HEADERS, ACK = 1, 4, 1
local FRAME = 16384              -- bytes of a frame at most
local WINDOW = 65535             -- bytes that may be sent before the first
                                 -- SETTINGS and WINDOW_UPDATE


local function frame(kind, flags, stream, payload)
    local n = #payload

    return char(math.floor(n / 65536), math.floor(n / 256) % 256, n % 256,
                kind, flags, 0, 0, 0, stream) .. payload
end


local function u32(s, at)
    local a, b, c, d = byte(s, at, at + 3)

    return ((a * 256 + b) * 256 + c) * 256 + d
end


-- A string of less than 127 bytes.
local function text(s)
    return char(#s) .. s
end


-- length: a string, the content-length; nil: none is sent.
function _M.post(port, path, length)
    local head = "\x83\x86\x04" .. text(path) .. "\x01" .. text("localhost")
                 .. (length and "\x0f\x0d" .. text(length) or "")

    return setmetatable({
        window = WINDOW, data = {},
        sock = client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                           .. frame(SETTINGS, 0, 0, "")
                           .. frame(HEADERS, END_HEADERS, 1, head), port),
    }, mt)
end


-- Reads a frame; returns true when it was the last one of the answer.
function _M:read()
    local head = assert(self.sock:receive(9))
    local length = u32("\0" .. head, 1)
    local kind, flags, stream = byte(head, 4), byte(head, 5), u32(head, 6)
    local payload = length > 0 and assert(self.sock:receive(length)) or ""

    if kind == SETTINGS and flags ~= ACK then
        assert(self.sock:send(frame(SETTINGS, ACK, 0, "")))

        for at = 1, #payload, 6 do
            if u32("\0\0" .. payload, at) == 4 then
                self.window = self.window - WINDOW + u32(payload, at + 2)
            end
        end

    elseif kind == WINDOW_UPDATE and stream == 1 then
        self.window = self.window + u32(payload, 1)

    elseif kind == DATA then
        self.data[#self.data + 1] = payload
    end

    return stream == 1 and kind <= HEADERS and flags % 2 == END_STREAM
end


-- Sends a part of the body, as far as the server's windows open; the last part
-- ends the body.
function _M:send(part, last)
    while part do
        local n = math.min(#part, FRAME, self.window)

        while n == 0 and #part > 0 do
            if self:read() then
                self.ended = true
                return
            end

            n = math.min(#part, FRAME, self.window)
        end

        local rest = #part > n and part:sub(n + 1) or nil

        assert(self.sock:send(frame(DATA, last and not rest and END_STREAM or 0,
                                    1, part:sub(1, n))))
        self.window = self.window - n
        part = rest
    end
end


-- The body of the answer.
function _M:answer()
    while not self.ended do
        self.ended = self:read()
    end

    self.sock:close()

    return table.concat(self.data)
end


-- Resets the stream.
function _M:cancel()
    assert(self.sock:send(frame(RST_STREAM, 0, 1, CANCEL)))
end


-- The client leaves.
function _M:close()
    self.sock:close()
end


return _M
