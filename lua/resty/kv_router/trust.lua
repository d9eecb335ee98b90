-- Copyright (C) the nginx-kv-router authors
--
-- Whether the token ids that a zone's model makes of a request's text are
-- believed: as the engines' echoes have proven them, or not.  The rule is in
-- ngx_http_kv_router_trust.c.
--
--     local state = trust.of(job)
--
--     if state then
--         local entry = ...                -- by the model
--
--         if state == trust.BELIEVED then
--             return entry                 -- it becomes the prompt
--         end
--
--         trust.shadow(job, entry)         -- the rungs below make the prompt
--     end


local ffi = require "ffi"

local C = ffi.C

ffi.cdef[[
uint32_t ngx_http_kv_router_ffi_trust(ngx_http_request_t *r, void *zone,
    uint32_t always);
int ngx_http_kv_router_ffi_shadow(ngx_http_request_t *r, void *zone,
    const uint32_t *tokens, size_t ntokens);
]]


local _M = {}


-- NGX_HTTP_KV_ROUTER_TRUST_... of the module's header
_M.SHADOW = 1
_M.BELIEVED = 2


-- What the ids of the zone's model are good for: BELIEVED, SHADOW, or nil: they
-- need not be made.  job: r, zone; its candidates have been listed.  always:
-- they are believed without a proof.
function _M.of(job, always)
    local state = C.ngx_http_kv_router_ffi_trust(job.r, job.zone,
                                                 always and 1 or 0)

    return state ~= 0 and state or nil
end


-- Has the ids of an entry, tokens and n, looked for in the events of the worker
-- that answers, and nothing else.
function _M.shadow(job, entry)
    C.ngx_http_kv_router_ffi_shadow(job.r, job.zone, entry.tokens, entry.n)
end


return _M
