-- Copyright (C) the nginx-kv-router authors
--
-- The door to C of resty.kv_router.prefix_cache: the declarations of
-- ngx_http_kv_router_prefix_ffi.h, and one Lua function for each of its
-- functions.  Layouts are those of the header (t/lua/test_ffi.lua).
--
-- Functions that can fail return nil and a sentence, or what they are for.


local ffi = require "ffi"

local VERSION = 1                -- NGX_HTTP_KV_ROUTER_PREFIX_FFI_VERSION

local C = ffi.C
local error = error
local ffi_new = ffi.new
local ffi_string = ffi.string
local pcall = pcall
local tonumber = tonumber
local typeof = ffi.typeof


ffi.cdef [[
typedef struct {
    const void          *units_data;
    size_t               units;
    const unsigned char *extra_data;
    size_t               extra_len;
} ngx_http_kv_router_prefix_key_t;

typedef struct {
    uint64_t    id;
    uint32_t    node;
    uint32_t    length;
} ngx_http_kv_router_prefix_node_t;

typedef struct {
    uint64_t    id;
    uint32_t    slot;
    uint32_t    pad;
} ngx_http_kv_router_prefix_lock_t;

typedef struct {
    char       *data;
    size_t      len;
    uint64_t    done;
    uint32_t    existing;
    uint32_t    pad;
} ngx_http_kv_router_prefix_freed_t;

uint32_t ngx_http_kv_router_prefix_ffi_version(void);
void *ngx_http_kv_router_prefix_ffi_zone(const unsigned char *name,
    size_t len);
uint32_t ngx_http_kv_router_prefix_ffi_unit(void *zone);
void ngx_http_kv_router_prefix_ffi_item(uint64_t hash, uint32_t *units,
    uint32_t n);

int ngx_http_kv_router_prefix_ffi_match(void *zone,
    const ngx_http_kv_router_prefix_key_t *key,
    ngx_http_kv_router_prefix_node_t *node, uint32_t *values, char **err);
int ngx_http_kv_router_prefix_ffi_begin(void *zone,
    const ngx_http_kv_router_prefix_key_t *key,
    ngx_http_kv_router_prefix_node_t *node,
    ngx_http_kv_router_prefix_lock_t *lock, uint32_t *values, char **err);
int ngx_http_kv_router_prefix_ffi_insert(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, const uint32_t *values,
    const ngx_http_kv_router_prefix_node_t *from, uint32_t priority,
    ngx_http_kv_router_prefix_node_t *node,
    ngx_http_kv_router_prefix_freed_t *freed, char **err);
int ngx_http_kv_router_prefix_ffi_lock(void *zone,
    const ngx_http_kv_router_prefix_node_t *node,
    ngx_http_kv_router_prefix_lock_t *lock, char **err);
int ngx_http_kv_router_prefix_ffi_unlock(void *zone,
    const ngx_http_kv_router_prefix_lock_t *lock, char **err);
int ngx_http_kv_router_prefix_ffi_evict(void *zone, uint64_t n,
    ngx_http_kv_router_prefix_freed_t *freed, char **err);
int ngx_http_kv_router_prefix_ffi_reset(void *zone,
    ngx_http_kv_router_prefix_freed_t *freed, char **err);
int ngx_http_kv_router_prefix_ffi_values(void *zone,
    ngx_http_kv_router_prefix_freed_t *told, char **err);

int ngx_http_kv_router_prefix_ffi_put(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, const unsigned char *value,
    size_t len, char **err);
int ngx_http_kv_router_prefix_ffi_get(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, unsigned char *value,
    size_t *len, char **err);
int ngx_http_kv_router_prefix_ffi_longest(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, int strict, size_t *length,
    unsigned char *value, size_t *len, char **err);
int ngx_http_kv_router_prefix_ffi_delete(void *zone,
    const ngx_http_kv_router_prefix_key_t *key, char **err);
int ngx_http_kv_router_prefix_ffi_clear(void *zone, char **err);

int ngx_http_kv_router_prefix_ffi_text(void *zone, uint32_t limit,
    char **out, size_t *len, char **err);
void ngx_http_kv_router_prefix_ffi_free(char *text);
]]


local _M = { VERSION = VERSION }

local OK = 0
local DECLINED = -5

local VALUE_MAX = 65536          -- KVR_PREFIX_VALUE_MAX


-- One of each serves all requests of this process: nothing here yields.

local err_out = ffi_new("char *[1]")
local text_out = ffi_new("char *[1]")
local len_out = ffi_new("size_t[2]")
local value_out = ffi_new("unsigned char[?]", VALUE_MAX)
local key_in = ffi_new("ngx_http_kv_router_prefix_key_t")
local freed_out = ffi_new("ngx_http_kv_router_prefix_freed_t")

local new_node = typeof("ngx_http_kv_router_prefix_node_t")
local new_lock = typeof("ngx_http_kv_router_prefix_lock_t")

_M.node = new_node
_M.lock_type = new_lock


local function failure()
    return ffi_string(err_out[0])
end


-- What a call that can fail returns: found; or nil and a sentence.
local function result(rc, found)
    if rc ~= OK then
        return nil, failure()
    end

    return found
end


local function key_of(units, n, extra)
    key_in.units_data = units
    key_in.units = n
    key_in.extra_data = extra
    key_in.extra_len = extra and #extra or 0

    return key_in
end


-- What C has told as a string of packed values, "" when there are none.
local function freed()
    local text = ffi_string(freed_out.data, freed_out.len)

    C.ngx_http_kv_router_prefix_ffi_free(freed_out.data)
    freed_out.data = nil

    return text
end


local function version()
    return C.ngx_http_kv_router_prefix_ffi_version()
end


-- The cache of that name; raises an error when there is none: that is a
-- mistake in the configuration, to be seen at once.
function _M.zone(name)
    local ok, found = pcall(version)

    if not ok or found ~= VERSION then
        error("ngx_http_kv_router_module is not loaded, or of another version "
              .. "than its Lua library: restart nginx", 0)
    end

    local zone = C.ngx_http_kv_router_prefix_ffi_zone(name, #name)

    if zone == nil then
        error('there is no kv_router_prefix_cache "' .. name .. '"', 0)
    end

    return zone
end


-- Bytes of a unit: 4 (tokens), 8 (hashes) or 1.
function _M.unit(zone)
    return C.ngx_http_kv_router_prefix_ffi_unit(zone)
end


-- Writes n units of an item; hash: cdata uint64_t.
function _M.item(hash, units, n)
    C.ngx_http_kv_router_prefix_ffi_item(hash, units, n)
end


-- ---- the tree ---------------------------------------------------------------

-- Returns a node; values: a uint32_t array of n, or nil.
function _M.match(zone, units, n, extra, values)
    local node = new_node()

    return result(C.ngx_http_kv_router_prefix_ffi_match(
        zone, key_of(units, n, extra), node, values, err_out), node)
end


-- Returns a node and a lock.
function _M.begin(zone, units, n, extra, values)
    local node, lock = new_node(), new_lock()
    local rc = C.ngx_http_kv_router_prefix_ffi_begin(zone,
                                                     key_of(units, n, extra),
                                                     node, lock, values,
                                                     err_out)
    if rc ~= OK then
        return nil, failure()
    end

    return node, lock
end


-- Returns how many units there were, the node and the values evicted; or nil,
-- err, the node and the values evicted.
function _M.insert(zone, units, n, extra, values, from, priority)
    local node = new_node()
    local rc = C.ngx_http_kv_router_prefix_ffi_insert(zone,
                                                      key_of(units, n, extra),
                                                      values, from, priority,
                                                      node, freed_out,
                                                      err_out)
    if rc ~= OK then
        return nil, failure(), node, freed()
    end

    return freed_out.existing, node, freed()
end


function _M.lock(zone, node)
    local lock = new_lock()

    return result(C.ngx_http_kv_router_prefix_ffi_lock(zone, node, lock,
                                                       err_out), lock)
end


function _M.unlock(zone, lock)
    return result(C.ngx_http_kv_router_prefix_ffi_unlock(zone, lock, err_out),
                  true)
end


-- Returns how many units were evicted, and their values.
function _M.evict(zone, n)
    local rc = C.ngx_http_kv_router_prefix_ffi_evict(zone, n, freed_out,
                                                     err_out)
    if rc ~= OK then
        return nil, failure(), freed()
    end

    return tonumber(freed_out.done), freed()
end


-- Returns the values of what was dropped.
function _M.reset(zone)
    local rc = C.ngx_http_kv_router_prefix_ffi_reset(zone, freed_out, err_out)
    if rc ~= OK then
        return nil, failure(), freed()
    end

    return freed()
end


-- Returns all values.
function _M.values(zone)
    local rc = C.ngx_http_kv_router_prefix_ffi_values(zone, freed_out,
                                                      err_out)

    return result(rc, freed())
end


-- ---- entries ----------------------------------------------------------------

function _M.put(zone, units, n, extra, value)
    return result(C.ngx_http_kv_router_prefix_ffi_put(
        zone, key_of(units, n, extra), value, #value, err_out), true)
end


-- Returns the value; nil: there is none; nil, err.
function _M.get(zone, units, n, extra)
    local rc = C.ngx_http_kv_router_prefix_ffi_get(zone,
                                                   key_of(units, n, extra),
                                                   value_out, len_out,
                                                   err_out)
    if rc == DECLINED then
        return nil
    end

    if rc ~= OK then
        return nil, failure()
    end

    return ffi_string(value_out, len_out[0])
end


-- Returns the length in units, and the value; nil: there is none; nil, err.
function _M.longest(zone, units, n, extra, strict)
    local rc = C.ngx_http_kv_router_prefix_ffi_longest(zone,
                                                       key_of(units, n,
                                                              extra),
                                                       strict and 1 or 0,
                                                       len_out + 1, value_out,
                                                       len_out, err_out)
    if rc == DECLINED then
        return nil
    end

    if rc ~= OK then
        return nil, failure()
    end

    return tonumber(len_out[1]), ffi_string(value_out, len_out[0])
end


-- Returns true; false: there is none; nil, err.
function _M.delete(zone, units, n, extra)
    local rc = C.ngx_http_kv_router_prefix_ffi_delete(zone,
                                                      key_of(units, n, extra),
                                                      err_out)
    if rc == DECLINED then
        return false
    end

    return result(rc, true)
end


function _M.clear(zone)
    return result(C.ngx_http_kv_router_prefix_ffi_clear(zone, err_out), true)
end


-- ---- text -------------------------------------------------------------------

-- limit: nodes of a dump; 0: the numbers as JSON.
function _M.text(zone, limit)
    local rc = C.ngx_http_kv_router_prefix_ffi_text(zone, limit, text_out,
                                                    len_out, err_out)
    if rc ~= OK then
        return nil, failure()
    end

    local text = ffi_string(text_out[0], len_out[0])

    C.ngx_http_kv_router_prefix_ffi_free(text_out[0])
    text_out[0] = nil

    return text
end


return _M
