-- Copyright (C) the nginx-kv-router authors
--
-- The door to C of models: those of src/model, and the texts of requests that
-- are encoded in slices.  Declarations are those of kvr_model.h, kvr_encoder.h
-- and ngx_http_kv_router_local.h.  What begins with kvr_ is there without
-- nginx, too: see resty.kv_router.tokens.text_ffi.


local ffi = require "ffi"
local lib = require "resty.kv_router.ffi"
require "resty.kv_router.tokens.text_ffi"    -- declares kvr_text_t, kvr_tape_t

local C = ffi.C
local cast = ffi.cast
local ffi_gc = ffi.gc
local ffi_new = ffi.new
local ffi_string = ffi.string
local max = math.max
local ngx_now = ngx.now
local require = require
local tonumber = tonumber


ffi.cdef [[
typedef struct kvr_model_s  kvr_model_t;
typedef struct kvr_tokenizer_s  kvr_tokenizer_t;
typedef struct kvr_encoder_s  kvr_encoder_t;

int kvr_model_load(kvr_model_t **out, const char *dir, const char *engine,
    kvr_model_t *const *known, size_t n, char *why);
void kvr_model_put(kvr_model_t *m);
const kvr_tokenizer_t *kvr_model_tokenizer(const kvr_model_t *m);
const char *kvr_model_refused(const kvr_model_t *m);
const char *kvr_model_engine(const kvr_model_t *m);
const char *kvr_model_digest(const kvr_model_t *m);
size_t kvr_model_bytes(const kvr_model_t *m);
uint32_t kvr_model_strings(const kvr_model_t *m);
const char *kvr_model_text(const kvr_model_t *m, const char *name,
    size_t *len);
void kvr_model_prove(kvr_model_t *m);
bool kvr_model_proven(const kvr_model_t *m);

kvr_encoder_t *kvr_encoder_new(const kvr_tokenizer_t *t, void *pieces,
    const void *limits);
void kvr_encoder_free(kvr_encoder_t *e);
int kvr_encoder_begin(kvr_encoder_t *e, const char *text, size_t len,
    uint32_t flags);
int kvr_encoder_step(kvr_encoder_t *e, uint64_t budget_ns);
const uint32_t *kvr_encoder_ids(const kvr_encoder_t *e, size_t *n);
const char *kvr_encoder_error(int rc);

kvr_model_t *ngx_http_kv_router_ffi_model(const unsigned char *name,
    size_t len);
void ngx_http_kv_router_ffi_model_state(const unsigned char *name, size_t len,
    const char *why);
typedef int (*ngx_http_kv_router_post_pt)(void *semaphore, int n);
void ngx_http_kv_router_ffi_encode_init(ngx_http_kv_router_post_pt post,
    void **semaphores);
int ngx_http_kv_router_ffi_encode_take(ngx_http_request_t *r, void *zone,
    size_t bound, kvr_text_t **text);
void ngx_http_kv_router_ffi_encode_pause(int number);
int ngx_http_kv_router_ffi_encode_run(int number, uint32_t flags);
int ngx_http_kv_router_ffi_encode_ids(int number, const uint32_t **ids,
    size_t *n);
void ngx_http_kv_router_ffi_encode_drop(int number);
const kvr_tape_t *ngx_http_kv_router_ffi_body_tape(ngx_http_request_t *r);
]]


local _M = {}


local OK = 0
local BUSY = -3
local WHY_LEN = 512             -- KVR_MODEL_WHY
local PLACES = 16               -- NGX_HTTP_KV_ROUTER_ENCODE_MAX
local TURN = 0.05                -- seconds that a turn is waited for

-- kvr_encoder_rc_t
_M.DONE, _M.AGAIN = 0, 1
_M.TOO_LONG = -4

-- the flag of an encoder: the tokens that the tokenizer adds by itself
_M.ADD_SPECIAL = 1


local len_out = ffi_new("size_t[1]")
local ids_out = ffi_new("const uint32_t *[1]")
local text_out = ffi_new("kvr_text_t *[1]")


-- ---- models -----------------------------------------------------------------

-- The model of the zone of that name, or nil; also nil when the module is
-- another version, or not there: who uses the zone will be told.
function _M.find(name)
    local model = lib.loaded()
                  and C.ngx_http_kv_router_ffi_model(name, #name)

    if model and model ~= nil then
        return model
    end
end


-- A model from a directory, without nginx; nil and a sentence.
function _M.load(dir, engine)
    local out = ffi_new("kvr_model_t *[1]")
    local why = ffi_new("char[?]", WHY_LEN)

    if C.kvr_model_load(out, dir, engine, nil, 0, why) ~= OK then
        return nil, ffi_string(why)
    end

    return ffi_gc(out[0], C.kvr_model_put)
end


-- Why C refuses the model, or nil.
function _M.refused(model)
    local why = ffi_string(C.kvr_model_refused(model))

    return why ~= "" and why or nil
end


function _M.engine(model)
    return ffi_string(C.kvr_model_engine(model))
end


function _M.digest(model)
    return ffi_string(C.kvr_model_digest(model))
end


-- Bytes of memory, and strings whose ids were compared.
function _M.sizes(model)
    return tonumber(C.kvr_model_bytes(model)), C.kvr_model_strings(model)
end


-- The text of a file; nil: there is none.
function _M.text(model, name)
    local data = C.kvr_model_text(model, name, len_out)

    if data ~= nil then
        return ffi_string(data, len_out[0])
    end
end


-- The conversations of the model were compared.
function _M.proven(model)
    return C.kvr_model_proven(model)
end


function _M.prove(model)
    C.kvr_model_prove(model)
end


-- Tells the module what was made of the chat template; why: "", or a sentence.
function _M.state(name, why)
    C.ngx_http_kv_router_ffi_model_state(name, #name, why)
end


-- Encodes a kvr_text_t in one go: an array of ids, good until the next call,
-- and its length; nil and a sentence.
function _M.encode(model, text)
    local encoder = C.kvr_encoder_new(C.kvr_model_tokenizer(model), nil, nil)

    if encoder == nil then
        return nil, "no memory"
    end

    _M.encoder = ffi_gc(encoder, C.kvr_encoder_free)

    local rc = C.kvr_encoder_begin(encoder, text.data, text.len, 0)

    while rc == _M.AGAIN do
        rc = C.kvr_encoder_step(encoder, 0)
    end

    if rc ~= _M.DONE then
        return nil, ffi_string(C.kvr_encoder_error(rc))
    end

    local ids = C.kvr_encoder_ids(encoder, len_out)

    return ids, tonumber(len_out[0])
end


-- ---- texts of requests ------------------------------------------------------

-- The tape of the body of a request, which was searched for its prompt; nil: it
-- is not to be had.
function _M.body(r)
    local tape = C.ngx_http_kv_router_ffi_body_tape(r)

    if tape ~= nil then
        return tape
    end
end


-- A semaphore for each text that is encoded: they stay as long as the process,
-- so that C can post one whose request has ended.
local semaphores

local function init()
    local new = require("ngx.semaphore").new
    local pointers = ffi_new("void *[?]", PLACES)

    semaphores = {}

    for i = 0, PLACES - 1 do
        semaphores[i] = new(0)
        pointers[i] = semaphores[i].sem
    end

    C.ngx_http_kv_router_ffi_encode_init(
        cast("ngx_http_kv_router_post_pt", C.ngx_http_lua_ffi_sema_post),
        pointers)
end


-- A place for a text of at most bound bytes: its number and the text, to be
-- filled; nil, and true: there are too many.
function _M.take(r, zone, bound)
    if not semaphores then
        init()
    end

    local number = C.ngx_http_kv_router_ffi_encode_take(r, zone, bound,
                                                        text_out)
    if number < 0 then
        return nil, number == BUSY
    end

    -- what was posted for a request that had ended
    local semaphore = semaphores[number]

    while semaphore:count() > 0 do
        semaphore:wait(0)
    end

    return number, text_out[0]
end


-- Waits until the place's semaphore is posted: true, or false: not until the
-- deadline, by ngx.now().
local function posted(number, deadline)
    return semaphores[number]:wait(max(0, deadline - ngx_now())) or false
end


-- Waits for a turn of the event loop in which no other text of this process has
-- a slice.  false: there was none until the deadline.  Yields.
function _M.pause(number, deadline)
    C.ngx_http_kv_router_ffi_encode_pause(number)

    return posted(number, deadline)
end


-- The same for a step of a long body that has no place of its own.  If there are
-- too many such steps, the step is done at once.  Yields.
function _M.turn(r, zone)
    local number = _M.take(r, zone, 0)

    if number then
        _M.pause(number, ngx_now() + TURN)
        _M.drop(number)
    end
end


-- Encodes the text.  Returns an array of ids, good until drop(), and its
-- length; nil and the number of an error, or AGAIN: it took until the deadline.
-- long: looking it up, encoding it and what follows have turns of their own.
-- Yields.
function _M.encoded(number, flags, deadline, long)
    if long and not _M.pause(number, deadline) then
        return nil, _M.AGAIN
    end

    local rc = C.ngx_http_kv_router_ffi_encode_run(number, flags)

    if rc == _M.AGAIN and not posted(number, deadline)
       or long and not _M.pause(number, deadline)
    then
        return nil, _M.AGAIN
    end

    rc = C.ngx_http_kv_router_ffi_encode_ids(number, ids_out, len_out)

    if rc ~= _M.DONE then
        return nil, rc
    end

    return ids_out[0], tonumber(len_out[0])
end


-- Makes the place free.
function _M.drop(number)
    C.ngx_http_kv_router_ffi_encode_drop(number)
end


-- What the number of an error says.
function _M.error(rc)
    return ffi_string(C.kvr_encoder_error(rc))
end


return _M
