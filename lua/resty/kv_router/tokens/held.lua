-- Copyright (C) the nginx-kv-router authors
--
-- What a request holds of its process while it waits: a place in a queue, a
-- count.  A request may end while it waits (its client leaves and
-- lua_check_client_abort is on): then no code behind the wait is called.  So what
-- is taken before a wait is taken here:
--
--     local hold = held.take(r, release, what)
--
--     ... waits ...
--
--     held.give(hold)
--
-- release(what) is called by give(), or, when the request has ended, by the next
-- sweep().  Who counts what others hold sweeps first.  Nothing here yields.


local ffi = require "ffi"
require "resty.kv_router.request.body"   -- declares ngx_http_kv_router_sem_post_pt

local C = ffi.C
local cast = ffi.cast
local error = error


ffi.cdef [[
void *ngx_http_kv_router_ffi_hold(ngx_http_request_t *r, uint32_t number,
    ngx_http_kv_router_sem_post_pt post);
void ngx_http_kv_router_ffi_hold_wakes(void *hold, void *semaphore);
void ngx_http_kv_router_ffi_hold_given(void *hold);
uint32_t ngx_http_kv_router_ffi_hold_ended(void);
]]


local _M = {}


local MAX = 2^32 - 1

local holds = {}                 -- number -> hold
local last = 0
local post                       -- of the Lua module, which nginx alone has


-- Calls release() for the requests that have ended.
function _M.sweep()
    local number = C.ngx_http_kv_router_ffi_hold_ended()

    while number > 0 do
        local hold = holds[number]

        if hold then
            holds[number] = nil
            hold.release(hold.what)
        end

        number = C.ngx_http_kv_router_ffi_hold_ended()
    end
end


-- From now on the request r holds something.  Raises an error without memory,
-- and holds nothing then.
function _M.take(r, release, what)
    post = post or cast("int (*)(void *, int)", C.ngx_http_lua_ffi_sema_post)

    repeat
        last = last % MAX + 1
    until not holds[last]

    local data = C.ngx_http_kv_router_ffi_hold(r, last, post)

    if data == nil then
        error("no memory")
    end

    local hold = { number = last, data = data, release = release, what = what }

    holds[last] = hold

    return hold
end


-- When the request ends one coroutine that waits at the semaphore is woken, and
-- has to sweep; nil: none is.  The semaphore must be there as long as that.
function _M.wakes(hold, semaphore)
    C.ngx_http_kv_router_ffi_hold_wakes(hold.data, semaphore and semaphore.sem)
end


-- Gives it back.
function _M.give(hold)
    holds[hold.number] = nil
    C.ngx_http_kv_router_ffi_hold_given(hold.data)
    hold.release(hold.what)
end


return _M
