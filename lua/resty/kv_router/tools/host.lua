-- Copyright (C) the nginx-kv-router authors
--
-- The host of policies where there is no nginx, in a process of plain LuaJIT:
-- the table ngx, as far as policies need it, and candidates.
--
--     local host = require "resty.kv_router.tools.host"
--
--     host.install(log)              -- before any other module of ours
--     host.request = { method = "POST", uri = "/v1/completions",
--                      headers = { ["x-tier"] = "batch" }, body = "{}" }
--     found = host.match({ { worker = "w1", device = 3 }, { worker = "w2" } },
--                        { prompt_blocks = 4 })
--
-- ngx has log() and its levels, now(), time(), update_time(), sleep(),
-- crc32_long(), thread, shared, worker.pid(), var, and those functions of req
-- that resty.kv_router.request.request calls.  Any other name stands for a function
-- which raises an error with that name.


local ffi = require "ffi"

local bxor = bit.bxor
local create = coroutine.create
local ffi_new = ffi.new
local fields_of = require "resty.kv_router.tokens.json".fields
local floor = math.floor
local gsub = string.gsub
local lower = string.lower
local max = math.max
local resume = coroutine.resume
local rshift = bit.rshift
local running = coroutine.running
local time = os.time
local yield = coroutine.yield


ffi.cdef [[
typedef struct {
    long    sec;
    long    nsec;
} kv_router_host_time_t;

int kv_router_host_clock(int clock, kv_router_host_time_t *out)
    __asm__("clock_gettime");
int kv_router_host_pid(void) __asm__("getpid");
]]


local _M = {
    request = {},
}


local MONOTONIC = 1              -- CLOCK_MONOTONIC of Linux

local LEVELS = { STDERR = 0, EMERG = 1, ALERT = 2, CRIT = 3, ERR = 4, WARN = 5,
                 NOTICE = 6, INFO = 7, DEBUG = 8 }


-- ---- clock ------------------------------------------------------------------

local time_out = ffi_new("kv_router_host_time_t[1]")


-- Microseconds, monotonic: what now_us() of resty.kv_router.ffi tells in nginx.
local function now_us()
    ffi.C.kv_router_host_clock(MONOTONIC, time_out)

    return tonumber(time_out[0].sec) * 1e6 + tonumber(time_out[0].nsec) / 1e3
end


-- ngx.now(): seconds since 1970, with fractions
local epoch = time() - now_us() / 1e6

local function now()
    return epoch + now_us() / 1e6
end


-- ---- ngx --------------------------------------------------------------------

-- The table ngx.thread.  A thread runs until it yields, and is never resumed.
_M.thread = {
    spawn = function(func, ...)
        local co = create(func)

        _M.running = co
        _M.returned = { resume(co, ...) }
        _M.running = nil

        return co
    end,

    -- of the thread that was made last
    wait = function()
        return unpack(_M.returned, 1, 6)
    end,

    kill = function()
        return true
    end,
}


-- The function ngx.sleep().  In nginx it suspends the thread from within any
-- coroutine; here it can yield from the thread's own coroutine alone.
local function sleep()
    if running() ~= _M.running then
        error("ngx.sleep() in a coroutine: it would yield, which a policy may "
              .. "not", 2)
    end

    yield()
end


-- Makes a lua_shared_dict without bounds.  seconds: a function, the clock that
-- times to live are counted by.
function _M.dict(seconds)
    local dict, values, till = {}, {}, {}

    function dict.get(_, key)
        if till[key] and till[key] <= seconds() then
            values[key], till[key] = nil, nil
        end

        return values[key]
    end

    function dict.set(_, key, value, ttl)
        values[key] = value
        till[key] = ttl and ttl > 0 and seconds() + ttl or nil

        return true
    end

    function dict.incr(_, key, by, init)
        local value = dict:get(key) or init

        if not value then
            return nil, "not found"
        end

        values[key] = value + by

        return values[key]
    end

    function dict.delete(_, key)
        values[key], till[key] = nil, nil
    end

    return dict
end


local function crc32_long(s)
    local crc = -1

    for i = 1, #s do
        crc = bxor(crc, s:byte(i))

        for _ = 1, 8 do
            local odd = crc % 2

            crc = rshift(crc, 1)

            if odd == 1 then
                crc = bxor(crc, 0xedb88320)
            end
        end
    end

    return bxor(crc, -1) % 2^32
end


-- Completes the table of that name: a field that it does not have is a table
-- which raises an error when it is called.
local function partly(name, there)
    return setmetatable(there, {
        __index = function(_, key)
            return partly(name .. "." .. key, {})
        end,

        __call = function()
            error("there is no " .. name .. "() without nginx: try this policy "
                  .. "in nginx", 2)
        end
    })
end


local function variable(name)
    local request = _M.request

    if name == "uri" then
        return request.uri
    end

    if name == "request_method" then
        return request.method
    end

    for header, value in pairs(request.headers or {}) do
        if name == "http_" .. gsub(lower(header), "-", "_") then
            return value
        end
    end

    return nil
end


-- Has the fields of a body found here, not by the module.  body: a function that
-- returns it, or nil.
function _M.read_fields(body)
    local of = require "resty.kv_router.request.body"

    function of.fields()
        return fields_of(body() or "") or {}
    end

    function of.field(_, name)
        return of.fields()[name]
    end
end


-- The line that ngx.log() makes of these values.
function _M.line(...)
    local said = { ... }

    for i = 1, select("#", ...) do
        said[i] = tostring(said[i])
    end

    return table.concat(said)
end


-- Puts the table ngx and the clock in their places.  log: the function
-- ngx.log(), called with a level and values.  seconds: nil, or a function that
-- takes the place of the real time for policies.
function _M.install(log, seconds)
    local clock = seconds or now

    local ngx = {
        log = log,
        now = clock,
        time = function() return floor(clock()) end,
        update_time = function() end,
        sleep = sleep,
        thread = _M.thread,
        crc32_long = crc32_long,
        ctx = {},
        null = ffi_new("void *"),
        worker = partly("ngx.worker", {
            pid = function() return ffi.C.kv_router_host_pid() end,
        }),
        config = { subsystem = "http" },
        var = setmetatable({}, {
            __index = function(_, name) return variable(name) end
        }),
        shared = setmetatable({}, {
            __index = function(shared, name)
                local dict = _M.dict(clock)

                rawset(shared, name, dict)

                return dict
            end
        }),
        req = partly("ngx.req", {
            get_method = function() return _M.request.method end,
            get_body_data = function() return _M.request.body end,
            get_body_file = function() end,
        }),
    }

    for name, level in pairs(LEVELS) do
        ngx[name] = level
    end

    rawset(_G, "ngx", partly("ngx", ngx))

    require("resty.kv_router.ffi").now_us = now_us
    _M.read_fields(function() return _M.request.body end)
end


-- ---- candidates -------------------------------------------------------------

local STRINGS = { worker = true, address = true, model = true, lora = true }

local TEXTS = { confidence_reason = "reason_text", engine = "engine_name" }

-- keeps strings and arrays alive that C structures point to
local kept = {}


-- Fills a candidate: fields that are not given are those of an idle worker of
-- which nothing is known.
local function fill(c, given, i)
    c.holder = i
    c.weight = 1
    c.share = 1
    c.age = -1
    c.confidence_id = 1
    c.reason_text = "none"
    c.engine_name = "unknown"
    c.reported_waiting = -1
    c.reported_running = -1
    c.reported_usage = -1

    for key, value in pairs(given) do
        if STRINGS[key] then
            kept[#kept + 1] = value
            c[key .. "_data"] = value
            c[key .. "_len"] = #value

        elseif TEXTS[key] then
            kept[#kept + 1] = value
            c[TEXTS[key]] = value

        else
            c[key] = value
        end
    end

    -- cumulative
    c.host = max(c.host, c.device)
    c.disk = max(c.disk, c.host)
end


-- A match, as resty.kv_router.ffi gives it; lives as long as the process.
-- list: an array of tables with fields of candidates ("worker" by default "0",
-- "1", ...); match: fields of the match.
function _M.match(list, match)
    -- declares them
    require "resty.kv_router.ffi"

    local candidates = ffi_new("ngx_http_kv_router_candidate_t[?]", #list + 1)
    local m = ffi_new("ngx_http_kv_router_match_t")

    m.block_size = 16

    for i, given in ipairs(list) do
        given.worker = given.worker or tostring(i - 1)
        given.address = given.address or "10.0.0." .. i .. ":8000"
        given.model = given.model or ""
        fill(candidates[i - 1], given, i - 1)

        m.best = max(m.best, given.device or 0)
    end

    m.n = #list
    m.candidates = candidates

    for key, value in pairs(match or {}) do
        m[key] = value
    end

    kept[#kept + 1] = candidates
    kept[#kept + 1] = match
    kept[#kept + 1] = m

    return m
end


return _M
