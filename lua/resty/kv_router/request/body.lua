-- Copyright (C) the nginx-kv-router authors
--
-- The body of a request: read by nginx, scanned once in C, and its fields.  The
-- declarations are those of ngx_http_kv_router_ffi.h.


local ffi = require "ffi"
require "resty.kv_router.ffi"    -- declares ngx_http_request_t

local C = ffi.C
local cast = ffi.cast
local ffi_gc = ffi.gc
local ffi_new = ffi.new
local ffi_string = ffi.string
local read_body = ngx.req.read_body
local require = require


ffi.cdef [[
int ngx_http_kv_router_ffi_read_body(ngx_http_request_t *r);
typedef int (*ngx_http_kv_router_sem_post_pt)(void *semaphore, int n);
typedef void (*ngx_http_kv_router_sem_free_pt)(void *semaphore);
int ngx_http_kv_router_ffi_body_long(ngx_http_request_t *r);
int ngx_http_kv_router_ffi_wake(ngx_http_request_t *r, void *semaphore,
    ngx_http_kv_router_sem_post_pt post, ngx_http_kv_router_sem_free_pt free);
int ngx_http_kv_router_ffi_field(ngx_http_request_t *r, const char *name,
    const char **data, size_t *len);
int ngx_http_kv_router_ffi_next_field(ngx_http_request_t *r, uint32_t *at,
    const char **name, size_t *name_len, const char **data, size_t *len);
]]


local _M = {}


local OK = 0
local AGAIN = -2
local DONE = -4
local DECLINED = -5

local FOREVER = 10^6             -- seconds; nginx itself bounds how long a
                                 -- body may take
local NO_MEMORY = 500            -- the status that a request ends with

-- One of each serves all requests of this process: nothing yields between the
-- call of C and the reading of these.
local at_out = ffi_new("uint32_t[1]")
local name_out = ffi_new("const char *[1]")
local name_len_out = ffi_new("size_t[1]")
local data_out = ffi_new("const char *[1]")
local data_len_out = ffi_new("size_t[1]")


-- Of the Lua module; declared when they are needed, which is in nginx alone.
local new_semaphore, post_semaphore, free_semaphore


local function semaphore_of(r)
    if not new_semaphore then
        new_semaphore = require("ngx.semaphore").new
        post_semaphore = cast("ngx_http_kv_router_sem_post_pt",
                              C.ngx_http_lua_ffi_sema_post)
        free_semaphore = cast("ngx_http_kv_router_sem_free_pt",
                              C.ngx_http_lua_ffi_sema_gc)
    end

    local semaphore = new_semaphore()

    if not semaphore
       or C.ngx_http_kv_router_ffi_wake(r, semaphore.sem, post_semaphore,
                                        free_semaphore) ~= OK
    then
        return nil
    end

    -- C frees it with the request, which may end while the body is awaited
    ffi_gc(semaphore.sem, nil)

    return semaphore
end


-- Reads the request's body.  Returns true, and whether the body is a long one:
-- its steps have turns of the event loop of their own; or nil and the status that
-- the request must be ended with.  Yields.
--
-- The Lua module does not read what C reads here: newer Lua modules refuse it,
-- as their coroutine would go on, and might end the request, in the midst of
-- nginx's HTTP/2.  A semaphore goes on after that.
function _M.read(r)
    local rc = C.ngx_http_kv_router_ffi_read_body(r)

    if rc == DECLINED then
        read_body()
        return true, false

    elseif rc == DONE then
        read_body()

    elseif rc == AGAIN then
        local semaphore = semaphore_of(r)

        if not semaphore or not semaphore:wait(FOREVER) then
            return nil, NO_MEMORY
        end

    elseif rc ~= OK then
        return nil, rc
    end

    return true, C.ngx_http_kv_router_ffi_body_long(r) ~= 0
end


-- The JSON text of a top-level field of the body; nil: there is no such field,
-- or the body is no JSON object.  After prompt().
function _M.field(r, name)
    if C.ngx_http_kv_router_ffi_field(r, name, data_out, data_len_out) ~= OK
    then
        return nil
    end

    return ffi_string(data_out[0], data_len_out[0])
end


-- All of them: a table, name -> JSON text; names with escapes as they are
-- written.
function _M.fields(r)
    local found = {}

    at_out[0] = 0

    while C.ngx_http_kv_router_ffi_next_field(r, at_out, name_out, name_len_out,
                                              data_out, data_len_out) == OK
    do
        found[ffi_string(name_out[0], name_len_out[0])]
            = ffi_string(data_out[0], data_len_out[0])
    end

    return found
end


return _M
