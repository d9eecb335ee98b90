-- A cosocket that answers what it was told to: sock.new("HTTP/1.1 200 ...").
-- receiveuntil() and receive() are those of ngx.socket.tcp().


local find = string.find
local setmetatable = setmetatable
local sub = string.sub


local _M = {}
local mt = { __index = _M }


-- fails: { connect = "...", send = "..." }, the errors of these.
function _M.new(input, fails)
    return setmetatable({ input = input, fails = fails or {}, sent = "" }, mt)
end


function _M:settimeouts(connect, _, receive)
    self.connect_timeout = connect
    self.timeout = receive
end


function _M:connect(host, port)
    self.host = host
    self.port = port

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


function _M:receive(size)
    if #self.input < size then
        return nil, "closed", self.input
    end

    local data = sub(self.input, 1, size)

    self.input = sub(self.input, size + 1)

    return data
end


function _M:receiveuntil(stop)
    local over = false

    return function(size)
        if over then
            over = false
            return nil, nil, nil
        end

        local first, last = find(self.input, stop, 1, true)

        if first and first - 1 <= size then
            local data = sub(self.input, 1, first - 1)

            self.input = sub(self.input, last + 1)
            over = true

            return data
        end

        if not first and #self.input <= size then
            return nil, "closed", self.input
        end

        return self:receive(size)
    end
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
