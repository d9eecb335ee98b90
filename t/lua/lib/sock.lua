-- A cosocket that answers what it was told to: sock.new("HTTP/1.1 200 ...").
-- receiveany() is that of ngx.socket.tcp(), a few bytes at a time.


local setmetatable = setmetatable
local sub = string.sub


local _M = {}
local mt = { __index = _M }


-- fails: { connect = "...", tls = "...", send = "...", receive = "..." }, the
-- errors of these.
function _M.new(input, fails)
    return setmetatable({ input = input, fails = fails or {}, sent = "" }, mt)
end


function _M:settimeouts(connect, _, receive)
    self.connect_timeout = self.connect_timeout or connect
    self.timeout = receive
end


-- opts: as port, of a unix socket.
function _M:connect(host, port, opts)
    self.host = host
    self.port = opts and port
    self.pool = (opts or port).pool

    if self.fails.connect then
        return nil, self.fails.connect
    end

    return 1
end


function _M:send(parts)
    if self.fails.send then
        return nil, self.fails.send
    end

    if self.dead and self.dead > 0 then
        self.dead = self.dead - 1
        return nil, "broken pipe"
    end

    self.sent = self.sent .. table.concat(parts)

    return #self.sent
end


function _M:receiveany(size)
    if self.input == "" then
        return nil, self.fails.receive or "closed"
    end

    size = math.min(size, self.at_once or 7)

    local data = sub(self.input, 1, size)

    self.input = sub(self.input, size + 1)

    return data
end


function _M:sslhandshake(_, name, verify)
    self.tls = tostring(name) .. " " .. tostring(verify)

    if self.fails.tls then
        return nil, self.fails.tls
    end

    return true
end


-- dead: how many kept connections it finds first, closed by the other end.
function _M:getreusedtimes()
    return self.dead and self.dead > 0 and 1 or 0
end


function _M:setkeepalive()
    self.kept = true
end


function _M:close()
    self.closed = true
end


return _M
