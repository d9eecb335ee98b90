-- What tests have instead of nginx: the table ngx, the functions of the
-- module (as Lua functions in ffi.C), and candidates in the same C structures.
-- To be required before anything of resty.kv_router.


local ffi = require "ffi"
local host = require "resty.kv_router.tools.host"

local error = error
local setmetatable = setmetatable


local _M = {}


-- ---- nginx ------------------------------------------------------------------

_M.log = {}          -- lines logged
_M.time = 1000       -- ngx.now()
_M.vars = {}         -- ngx.var
_M.body = nil        -- the request's body, in memory
_M.body_file = nil   -- or the name of its file
_M.body_read = 0     -- what reading it returns
_M.bodies = 0        -- how many were read
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
    crc32_long = function(s)
        local sum = 0

        for i = 1, #s do
            sum = (sum * 31 + s:byte(i)) % 2^32
        end

        return sum
    end,
    print = function(s) _M.printed = _M.printed .. s end,
    exit = function(code) _M.exited = code end,
    req = {
        start_time = function() return _M.time end,
        get_body_data = function() return _M.body end,
        get_body_file = function() return _M.body_file end,
        get_method = function() return "POST" end,
        set_header = function(name, value) _M.set[name] = value end,
        clear_header = function(name) _M.set[name] = false end,
        set_body_data = function(body) _M.new_body = body end,
    },
    thread = host.thread,
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
    set_current_peer = function(address, port)
        _M.balancer.host, _M.balancer.port = address, port
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
    new = function(n)
        local made = setmetatable({ n = n }, sema)

        made.sem = made

        return made
    end,
}


-- ---- the module -------------------------------------------------------------

-- name without ngx_http_kv_router_ffi_ -> function; tests put theirs here
_M.c = {
    now_us = function() return _M.time * 1e6 end,
    model = function() end,
    parameter = function() return 0 end,
    version = function() return require("resty.kv_router.ffi").VERSION end,
    read_body = function()
        _M.bodies = _M.bodies + 1
        return _M.body_read
    end,
}

-- engines: what they can be asked for, by holder; else all of it
_M.rungs = {}
_M.headers = ""      -- for engines
_M.tls = nil         -- the name in their certificates
_M.asked = {}        -- how often something was counted, by its name
_M.probed = {}       -- zones that are to be probed
_M.doubted = nil     -- the last holder that was doubted
_M.by = nil          -- where the token ids came from, and why

local ALL = 0x7f
local texts, ntexts = {}, 0

function _M.c.probe(name, _, automatic)
    _M.probed[name] = automatic
end

-- kvr_form_t -> its row; each rung has a bit of its own in ALL
_M.FORMS = {
    { "completions", 0x01, 0x10 }, { "chat", 0x02, 0x20 },
    { "messages", 0x04, 0 }, { "responses", 0x08, 0 }, { "generate", 0, 0 },
    { "sglang_generate", 0, 0x10 },
}

function _M.c.form(id, out)
    local row = _M.FORMS[id]

    out.word, out.render, out.remote = row[1], row[2], row[3]
    out.tokenized = row[1] == "generate" and 0 or 1
    out.plain = row[3] == 0x10 and 1 or 0
end

function _M.c.rungs(_, holder)
    return _M.rungs[holder] or ALL
end

function _M.c.doubt(_, holder)
    _M.doubted = holder
end

function _M.c.counter(name)
    return name
end

function _M.c.count(_, name)
    _M.asked[name] = (_M.asked[name] or 0) + 1
end

function _M.c.defined()
    return 1
end

-- what requests hold, and what those held that have ended
local live, ended = {}, {}

function _M.c.hold(r, number)
    local hold = { r = r, number = number }

    live[#live + 1] = hold

    return hold
end

function _M.c.hold_wakes(hold, semaphore)
    hold.semaphore = semaphore
end

local function out_of(list, hold)
    for i = 1, #list do
        if list[i] == hold then
            return table.remove(list, i)
        end
    end
end

function _M.c.hold_given(hold)
    assert(out_of(live, hold), "what is given back is held")
end

function _M.c.hold_ended()
    local hold = table.remove(ended, 1)

    return hold and hold.number or 0
end

-- The request ends while it waits: its coroutine is not resumed any more.
function _M.gone(r)
    for i = #live, 1, -1 do
        local hold = live[i]

        if hold.r == r then
            ended[#ended + 1] = table.remove(live, i)

            if hold.semaphore then
                hold.semaphore:post(1)
            end
        end
    end
end

-- How many are held.
function _M.held()
    return #live
end

-- no zone has a queue
function _M.c.queue_rules() return -5 end

-- for the status alone
function _M.c.policy() end
function _M.c.not_made() end
function _M.c.tokenized() end
function _M.c.waits() end
function _M.c.waited() end
function _M.c.body_long() return 0 end

function _M.c.tokens_by(_, _, by, why)
    _M.by = by .. " " .. why
end

function _M.c.engine(_, out)
    out.headers_data = _M.headers
    out.headers_len = #_M.headers
    out.name_data = _M.tls or ""
    out.name_len = #(_M.tls or "")
    out.tls = _M.tls and 1 or 0
    out.verify = 1
end

-- no two texts have the same
function _M.c.digest(text, _, out)
    if not texts[text] then
        ntexts = ntexts + 1
        texts[text] = ntexts
    end

    out[0], out[1] = texts[text], 0
end

ffi.C = setmetatable({}, {
    __index = function(_, name)
        if name == "ngx_http_lua_ffi_sema_post" then
            return ffi.cast("void *", 0)
        end

        local f = _M.c[name:match("^ngx_http_kv_router_ffi_(.*)$")]

        return f or error("missing symbol " .. name)
    end
})


host.read_fields(function() return _M.body end)


-- ---- candidates -------------------------------------------------------------

_M.match = host.match


-- A lua_shared_dict of that name, without bounds.
function _M.dict(name)
    ngx.shared[name] = host.dict(ngx.now)
end


-- What pick() is given, see resty.kv_router.testing.
function _M.ctx(...)
    return require("resty.kv_router.testing").ctx(...)
end


return _M
