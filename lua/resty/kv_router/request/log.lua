-- Copyright (C) the nginx-kv-router authors
--
-- Log lines that don't flood: one per kind and period, per nginx process.


local ffi = require "ffi"

local C = ffi.C
local gsub = string.gsub
local ngx = ngx
local ngx_log = ngx.log
local ngx_now = ngx.now
local pcall = pcall
local sub = string.sub


ffi.cdef [[
void ngx_http_kv_router_ffi_told(uint32_t level, const unsigned char *text,
    size_t len);
]]


local _M = { MINUTE = 60, ONCE = math.huge }   -- periods, in seconds


-- A kind may hold text from outside (an error message), so that there may be
-- any number of kinds; above this many all are forgotten, and may log again.
local MAX_KINDS = 256
local KIND_MAX = 256             -- bytes of a kind that count

local TOLD_MAX = 128             -- bytes of what a client sent

local silent_until = {}
local kinds = 0


-- Whether a line of this kind may be logged now: false for period seconds
-- after it was true.
local function due(kind, period)
    kind = sub(kind, 1, KIND_MAX)

    local now = ngx_now()
    local till = silent_until[kind]

    if till and now < till then
        return false
    end

    if not till then
        if kinds == MAX_KINDS then
            silent_until = {}
            kinds = 0
        end

        kinds = kinds + 1
    end

    silent_until[kind] = now + period

    return true
end


_M.due = due


-- What a client sent, as a log may have it: it makes no lines of its own, and is
-- short.
function _M.told(text)
    return (gsub(sub(text, 1, TOLD_MAX), "[%c\127-\255]", "?"))
end


-- Raises an error where the module is not.
local function keep(level, message)
    C.ngx_http_kv_router_ffi_told(level, message, #message)
end


-- Logs a warning or an error, and keeps it for the status, where there is one.
local function warn(level, message)
    ngx_log(level, "kv_router: ", message)
    pcall(keep, level, message)
end


_M.warn = warn


-- Logs the message unless one of this kind was logged less than period
-- seconds ago.
function _M.limited(kind, period, level, message)
    if due(kind, period) then
        warn(level, message)
    end
end


return _M
