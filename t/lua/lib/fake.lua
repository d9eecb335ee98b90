-- What tests have instead of nginx: the table ngx, the functions of the
-- module (as Lua functions in ffi.C), and candidates in the same C structures.
-- To be required before anything of resty.kv_router.


local ffi = require "ffi"

local error = error
local pairs = pairs
local setmetatable = setmetatable


local _M = {}


-- ---- nginx ------------------------------------------------------------------

_M.log = {}          -- lines logged
_M.time = 1000       -- ngx.now()
_M.vars = {}         -- ngx.var
_M.body = nil        -- the request's body, in memory
_M.body_file = nil   -- or the name of its file
_M.body_error = nil  -- what ngx.req.read_body() raises
_M.printed = ""
_M.exited = nil      -- the code given to ngx.exit()
_M.set = {}          -- headers set in the request; false: cleared
_M.new_body = nil    -- the body set in its place
_M.sockets = {}      -- what ngx.socket.tcp() gives, one after the other

local ngx = {
    ERR = 4, WARN = 5, INFO = 7,
    ctx = {}, header = {}, shared = {},
    config = { subsystem = "http" },
    worker = { pid = function() return 4711 end },
    var = setmetatable({}, { __index = function(_, k) return _M.vars[k] end }),
    log = function(_, ...)
        _M.log[#_M.log + 1] = table.concat({ ... })
    end,
    now = function() return _M.time end,
    update_time = function() end,
    md5_bin = function(s) return "md5 of " .. s end,
    print = function(s) _M.printed = _M.printed .. s end,
    exit = function(code) _M.exited = code end,
    req = {
        read_body = function()
            _M.body_read = not _M.body_error or error(_M.body_error)
        end,
        get_body_data = function() return _M.body end,
        get_body_file = function() return _M.body_file end,
        get_method = function() return "POST" end,
        set_header = function(name, value) _M.set[name] = value end,
        clear_header = function(name) _M.set[name] = false end,
        set_body_data = function(body) _M.new_body = body end,
    },
    socket = {
        tcp = function() return table.remove(_M.sockets, 1) end,
    },
}

rawset(_G, "ngx", ngx)
_M.ngx = ngx

-- "a request": any pointer will do
_M.r = ffi.new("char[1]")

package.loaded["resty.core.base"] = {
    get_request = function() return _M.r end,
}

-- the balancer: what it was told, and how the last try failed
_M.balancer = {}

package.loaded["ngx.balancer"] = {
    get_last_failure = function() return _M.balancer.failure end,
    set_more_tries = function(n) _M.balancer.more = n; return true end,
    set_current_peer = function(host, port)
        _M.balancer.host, _M.balancer.port = host, port
        return true
    end,
}

-- semaphores: a wait yields itself and how long, in seconds, it may last; who
-- resumes it says whether there was a post

local sema = {}
sema.__index = sema

function sema:wait(seconds)
    if self.n > 0 then
        self.n = self.n - 1
        return true
    end

    return coroutine.yield(self, seconds)
end

function sema:post(n)
    self.n = self.n + n
end

function sema:count()
    return self.n
end

package.loaded["ngx.semaphore"] = {
    new = function(n) return setmetatable({ n = n }, sema) end,
}


-- ---- the module -------------------------------------------------------------

-- name without ngx_http_kv_router_ffi_ -> function; tests put theirs here
_M.c = {
    guard = function() end,
    guarded = function() return 0 end,
}

ffi.C = setmetatable({}, {
    __index = function(_, name)
        local f = _M.c[name:match("^ngx_http_kv_router_ffi_(.*)$")]

        return f or error("missing symbol " .. name)
    end
})


-- ---- candidates -------------------------------------------------------------

local kept = {}      -- what C structures point to


-- Lines "age" of a candidate and so on may be given by a table; the rest is
-- as if the worker were idle and nothing known of it.
local function fill(c, given, i)
    c.holder = i
    c.weight = 1
    c.share = 1
    c.age = -1
    c.confidence_id = 1
    c.reason_text = "none"
    c.reported_waiting = -1
    c.reported_running = -1
    c.reported_usage = -1

    for key, value in pairs(given) do
        if key == "worker" or key == "address" or key == "model" then
            kept[#kept + 1] = value
            c[key .. "_data"] = value
            c[key .. "_len"] = #value
        elseif key == "confidence_reason" then
            kept[#kept + 1] = value
            c.reason_text = value
        else
            c[key] = value
        end
    end

    -- cumulative
    c.host = math.max(c.host, c.device)
    c.disk = math.max(c.disk, c.host)
end


-- A match, as resty.kv_router.ffi gives it.  list: an array of tables with
-- fields of candidates ("worker" by default "0", "1", ...); match: fields of
-- the match.
function _M.match(list, match)
    -- declares them
    require "resty.kv_router.ffi"

    local candidates = ffi.new("ngx_http_kv_router_candidate_t[?]", #list + 1)
    local m = ffi.new("ngx_http_kv_router_match_t")

    m.block_size = 16

    for i, given in ipairs(list) do
        given.worker = given.worker or tostring(i - 1)
        given.address = given.address or "10.0.0." .. i .. ":8000"
        given.model = given.model or ""
        fill(candidates[i - 1], given, i - 1)

        if given.device and given.device > m.best then
            m.best = given.device
        end
    end

    m.n = #list
    m.candidates = candidates

    for key, value in pairs(match or {}) do
        m[key] = value
    end

    kept[#kept + 1] = candidates
    kept[#kept + 1] = m

    return m
end


-- A lua_shared_dict of that name, without bounds.
function _M.dict(name)
    local values, till = {}, {}

    ngx.shared[name] = {
        get = function(_, key)
            return till[key] and till[key] > _M.time and values[key] or nil
        end,
        set = function(_, key, value, ttl)
            values[key], till[key] = value, _M.time + ttl
        end,
    }
end


-- What pick() is given, for candidates as above.  Seeded.  The request has
-- neither headers nor fields.
function _M.ctx(list, match, more)
    local random = require "resty.kv_router.random"
    local policy = require "resty.kv_router.policy"
    local request = { headers = {}, fields = {} }
    local ctx = policy.context(_M.match(list, match), request, nil,
                               random.new(42), 100, 3)

    for key, value in pairs(more or {}) do
        ctx[key] = value
    end

    return ctx
end


return _M
