-- Copyright (C) the nginx-kv-router authors
--
-- Questions to engines for the token ids of a request's text: their bodies and
-- paths, and the ids in the answers.  C reads and writes all JSON.


local ffi = require "ffi"
require "resty.kv_router.ffi"    -- declares ngx_http_request_t

local C = ffi.C
local copy = ffi.copy
local ffi_new = ffi.new
local ffi_string = ffi.string
local tonumber = tonumber


ffi.cdef [[
int ngx_http_kv_router_ffi_question_body(ngx_http_request_t *r, void *zone,
    uint32_t ask, uint32_t engine, const char **path, const char **body,
    size_t *len, const char **field, char **err);
int ngx_http_kv_router_ffi_answer_ids(void *zone, const char *text, size_t len,
    const uint32_t **ids, size_t *n, char **err);
]]


local _M = {}


local OK = 0
local DECLINED = -5

-- kvr_ask_t of src/: POST <path>/render and POST /tokenize
local RENDER, REMOTE = 0, 1

_M.RENDER, _M.REMOTE = RENDER, REMOTE

-- kvr_engine_kind_t of src/
local ENGINES = { vllm = 1, sglang = 2, trtllm = 3 }


-- For all requests of this process, as in resty.kv_router.ffi.

local text_out = ffi_new("const char *[3]")
local ids_out = ffi_new("const uint32_t *[1]")
local len_out = ffi_new("size_t[1]")
local err_out = ffi_new("char *[1]")


-- The body of a question about the request r, of which lib.prompt() has found
-- the form.  ask: RENDER or REMOTE; engine: the kind of the engine, "vllm",
-- "sglang" or "trtllm"; of any other word it is unknown.  Returns the body, a string, and the
-- path.  Or nil and the name of a field of the body because of which the answer
-- would be of other tokens; nil alone: there is nothing to ask in this way; nil,
-- nil and a sentence: it failed.
function _M.body(r, zone, ask, engine)
    local rc = C.ngx_http_kv_router_ffi_question_body(r, zone, ask,
                   ENGINES[engine] or 0, text_out, text_out + 1, len_out,
                   text_out + 2, err_out)

    if rc == OK then
        return ffi_string(text_out[1], len_out[0]), ffi_string(text_out[0])
    end

    if rc ~= DECLINED then
        return nil, nil, ffi_string(err_out[0])
    end

    if text_out[2] == nil then
        return nil
    end

    return nil, ffi_string(text_out[2])
end


-- The token ids in an engine's answer, a string: a uint32_t array and its
-- length; or nil and a sentence.
function _M.ids(zone, answer)
    local rc = C.ngx_http_kv_router_ffi_answer_ids(zone, answer, #answer,
                                                   ids_out, len_out, err_out)
    if rc ~= OK then
        return nil, ffi_string(err_out[0])
    end

    local n = tonumber(len_out[0])
    local ids = ffi_new("uint32_t[?]", n)

    copy(ids, ids_out[0], n * 4)

    return ids, n
end


return _M
