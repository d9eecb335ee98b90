-- Copyright (C) the nginx-kv-router authors
--
-- Engines, as the module knows them: how they are talked to, what they can be
-- asked for, and what is counted of questions.  Declarations are those of
-- ngx_http_kv_router_ffi.h, as in resty.kv_router.ffi.


local ffi = require "ffi"
local lib = require "resty.kv_router.ffi"
local suggest = require "resty.kv_router.request.suggest"

local C = ffi.C
local ffi_new = ffi.new
local ffi_string = ffi.string
local find = string.find
local gmatch = string.gmatch
local lower = string.lower


ffi.cdef [[
typedef struct {
    const char *headers_data;
    size_t      headers_len;
    const char *name_data;
    size_t      name_len;
    uint32_t    tls;
    uint32_t    verify;
} ngx_http_kv_router_engine_t;

typedef struct {
    const char *word;
    uint32_t    render;
    uint32_t    remote;
    uint32_t    tokenized;
    uint32_t    plain;
} ngx_http_kv_router_form_t;

void ngx_http_kv_router_ffi_tokens_by(ngx_http_request_t *r, void *zone,
    uint32_t rung, uint32_t why);
void ngx_http_kv_router_ffi_engine(void *zone,
    ngx_http_kv_router_engine_t *out);
double ngx_http_kv_router_ffi_parameter(void *zone, const char *name);
int ngx_http_kv_router_ffi_defined(const unsigned char *name, size_t len,
    char *names, size_t size);
void ngx_http_kv_router_ffi_probe(const unsigned char *name, size_t len,
    int automatic);
void ngx_http_kv_router_ffi_form(uint32_t form, ngx_http_kv_router_form_t *out);
uint32_t ngx_http_kv_router_ffi_rungs(void *zone, uint32_t holder,
    uint32_t generation);
void ngx_http_kv_router_ffi_doubt(void *zone, uint32_t holder);
uint32_t ngx_http_kv_router_ffi_counter(const char *name);
void ngx_http_kv_router_ffi_count(void *zone, uint32_t id);
void ngx_http_kv_router_ffi_digest(const unsigned char *text, size_t len,
    uint64_t *out);
]]


local _M = {}


local engine_out = ffi_new("ngx_http_kv_router_engine_t")
local form_out = ffi_new("ngx_http_kv_router_form_t")
local digest_out = ffi_new("uint64_t[2]")
local counters = {}          -- name -> id


-- Where token ids came from: NGX_HTTP_KV_ROUTER_BY_... of the header.
_M.BY = { load = 0, ids = 1, render = 2, remote = 3,
          ["local"] = 4, text = 5 }

-- The forms of requests that were met, by kvr_form_t of src/.
local forms = {}


-- Where the token ids of the request's prompt came from, of BY, and why from
-- nothing better, of WHY; 0: there is nothing better.
function _M.tokens_by(r, zone, by, why)
    C.ngx_http_kv_router_ffi_tokens_by(r, zone, by, why)
end


-- How the engines of a zone are talked to: a table with headers (lines, each
-- with its end), authorized (one of them is Authorization), tls, verify, name
-- (in their certificates, or nil) and key, which tells connections of this kind
-- from others.
function _M.engine(zone)
    C.ngx_http_kv_router_ffi_engine(zone, engine_out)

    local headers = ffi_string(engine_out.headers_data, engine_out.headers_len)
    local name = ffi_string(engine_out.name_data, engine_out.name_len)
    local tls, verify = engine_out.tls == 1, engine_out.verify == 1

    return {
        headers = headers,
        authorized = find("\n" .. lower(headers), "\nauthorization:", 1, true)
                     and true or false,
        tls = tls,
        verify = verify,
        name = name ~= "" and name or nil,
        key = tls and "tls " .. (verify and "" or "any ") .. name .. " " or "",
    }
end


-- A parameter of kv_router_zone, a number; of a word: which of its words, from 0
-- on.
function _M.parameter(zone, name)
    return C.ngx_http_kv_router_ffi_parameter(zone, name)
end


-- From now on the engines of the zone of that name are probed; automatic: the
-- router asks whatever they have.  To be called when a router is made, before
-- the processes are, or after.  Does nothing when the module is another version
-- or not there: who uses the zone will be told.
function _M.probe(name, automatic)
    if lib.loaded() then
        C.ngx_http_kv_router_ffi_probe(name, #name, automatic and 1 or 0)
    end
end


-- Why no router can be made for the zone of that name: the configuration that is
-- being read, or was the last one, has none; or nil, and true if the zone has
-- kv_router_redis.  Nil also when the module is another version or not there.
function _M.no_zone(name)
    if not lib.loaded() then
        return nil
    end

    local size = 1024
    local names = ffi_new("char[?]", size)

    local known = C.ngx_http_kv_router_ffi_defined(name, #name, names, size)

    if known ~= 0 then
        return nil, known == 2
    end

    local list = {}

    for zone in gmatch(ffi_string(names), "[^,]+") do
        list[#list + 1] = zone
    end

    return 'there is no kv_router_zone "' .. name .. '"'
           .. suggest.among(name, list)
end


-- A form of requests, by the form_id of a prompt: name, render and remote (the
-- rungs by which engines are asked, a bit each; 0: none), tokenized (can its
-- texts be?) and plain (are these no messages?).
function _M.form(id)
    local form = forms[id]

    if not form then
        C.ngx_http_kv_router_ffi_form(id, form_out)

        form = { name = ffi_string(form_out.word), render = form_out.render,
                 remote = form_out.remote,
                 tokenized = form_out.tokenized == 1,
                 plain = form_out.plain == 1 }
        forms[id] = form
    end

    return form
end


-- The rungs that a candidate's worker has, a bit each; 0: it was not probed yet.
function _M.rungs(zone, candidate)
    return C.ngx_http_kv_router_ffi_rungs(zone, candidate.holder,
                                          candidate.generation)
end


-- An engine refused a question: its worker is probed again soon.
function _M.doubt(zone, holder)
    C.ngx_http_kv_router_ffi_doubt(zone, holder)
end


-- Adds 1 to a counter of the zone: object and key of it in JSON, "names.asked".
function _M.count(zone, name)
    local id = counters[name]

    if not id then
        id = C.ngx_http_kv_router_ffi_counter(name)
        counters[name] = id
    end

    C.ngx_http_kv_router_ffi_count(zone, id)
end


-- XXH3-128 of a text, as a string of 16 bytes.
function _M.digest(text)
    C.ngx_http_kv_router_ffi_digest(text, #text, digest_out)

    return ffi_string(digest_out, 16)
end


return _M
