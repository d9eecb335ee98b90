-- Copyright (C) the nginx-kv-router authors
--
-- What the status tells of requests and policies beyond what C sees by itself:
-- the time that texts took to be tokenized, who waits for room, and which policy
-- a zone has.  Declarations are those of ngx_http_kv_router_ffi.h, as in
-- resty.kv_router.ffi.


local ffi = require "ffi"
local lib = require "resty.kv_router.ffi"

local C = ffi.C
local concat = table.concat
local pairs = pairs
local sort = table.sort
local tostring = tostring
local type = type


ffi.cdef [[
void ngx_http_kv_router_ffi_policy(const unsigned char *name, size_t len,
    const unsigned char *policy, size_t policy_len, const unsigned char *conf,
    size_t conf_len);
void ngx_http_kv_router_ffi_not_made(const unsigned char *name, size_t len,
    const unsigned char *why, size_t why_len);
void ngx_http_kv_router_ffi_tokenized(void *zone, double us);
void ngx_http_kv_router_ffi_waits(ngx_http_request_t *r, void *zone);
void ngx_http_kv_router_ffi_waited(ngx_http_request_t *r, void *zone);
]]


local _M = {}


-- The settings that were given, as a person reads them: "a=1 b=true".
local function text_of(conf)
    local list = {}

    for key, value in pairs(conf or {}) do
        list[#list + 1] = tostring(key) .. "="
                          .. (type(value) == "table" and "{...}"
                              or tostring(value))
    end

    sort(list)

    return concat(list, " ")
end


-- The zone of that name is routed by this policy, with the settings that were
-- given, or nil.  To be called when a router is made.  Does nothing when the
-- module is another version or not there: who uses the zone will be told.
function _M.policy(zone_name, policy_name, conf)
    if lib.loaded() then
        local text = text_of(conf)

        C.ngx_http_kv_router_ffi_policy(zone_name, #zone_name, policy_name,
                                        #policy_name, text, #text)
    end
end


-- A router of the zone of that name can't be made: where that refuses a reload,
-- the status of what goes on tells why.  Does nothing when the module is
-- another version or not there.
function _M.refused(zone_name, why)
    if lib.loaded() then
        C.ngx_http_kv_router_ffi_not_made(zone_name, #zone_name, why, #why)
    end
end


-- Token ids of a text took so many microseconds.
function _M.tokenized(zone, us)
    C.ngx_http_kv_router_ffi_tokenized(zone, us)
end


-- The request begins to wait for room, or waits no longer.  Again, and without a
-- wait, they do nothing.
function _M.waits(r, zone)
    C.ngx_http_kv_router_ffi_waits(r, zone)
end


function _M.waited(r, zone)
    C.ngx_http_kv_router_ffi_waited(r, zone)
end


return _M
