-- Copyright (C) the nginx-kv-router authors
--
-- The door to C: the declarations of ngx_http_kv_router_ffi.h, a Lua function for
-- each.  Others are in body.lua, engines.lua and tokenizer.lua.
--
-- Layouts are those of the header (t/lua/test_ffi.lua compares them).  Some
-- fields have another name here, so that policies read Lua values: worker,
-- address, model, lora (nil: not known), confidence_reason (strings); role,
-- engine and confidence (names, of the fields that end in _id).
--
-- Functions that can fail return nil and a sentence, or what they are for.
-- LuaJIT compiles no function whose last act is a tail call of C, and
-- interpreting such a call costs much: in parentheses it is no tail call.


local ffi = require "ffi"

local VERSION = 33               -- NGX_HTTP_KV_ROUTER_FFI_VERSION

local C = ffi.C
local error = error
local ffi_new = ffi.new
local ffi_string = ffi.string
local metatype = ffi.metatype
local pcall = pcall
local tonumber = tonumber
local tostring = tostring
local type = type
local typeof = ffi.typeof


if not pcall(typeof, "ngx_http_request_t") then
    ffi.cdef "typedef struct ngx_http_request_s  ngx_http_request_t;"
end

ffi.cdef [[
typedef struct {
    double      active_requests;
    double      active_prefills;
    double      prefill_tokens;
    double      decode_blocks;
    double      additional_blocks;
    double      weight;
    double      share;
    double      age;
    uint32_t    holder;
    uint32_t    generation;
    uint32_t    rank;
    uint32_t    device;
    uint32_t    host;
    uint32_t    disk;
    uint32_t    predicted;
    uint32_t    role_id;
    uint32_t    confidence_id;
    uint32_t    max_active;
    uint32_t    max_prefill_tokens;
    uint32_t    tokens_in_flight;
    uint32_t    health_id;
    uint32_t    engine_id;
    uint32_t    worker_len;
    uint32_t    address_len;
    uint32_t    model_len;
    uint32_t    lora_len;
    const char *worker_data;
    const char *address_data;
    const char *model_data;
    const char *lora_data;
    const char *reason_text;
    const char *engine_name;
    double      reported_waiting;
    double      reported_running;
    double      reported_usage;
    double      churn;
    double      in_flight;
    double      prefill_tps;
} ngx_http_kv_router_candidate_t;

typedef struct {
    uint32_t    prompt_tokens;
    uint32_t    prompt_blocks;
    uint32_t    block_size;
    uint32_t    n;
    uint32_t    best;
    uint32_t    why;
    uint32_t    cut;
    uint32_t    nfrequencies;
    uint32_t    full_roles;
    uint32_t   *frequencies;
    const ngx_http_kv_router_candidate_t  *candidates;
    const uint64_t                        *hashes;
    const uint8_t                         *foreign;
} ngx_http_kv_router_match_t;

typedef struct {
    uint32_t    holder;
    uint32_t    rank;
    uint32_t    tries;
    uint32_t    status;
    double      first_byte_us;
    double      total_us;
    uint32_t    worker_len;
    const char *worker_data;
} ngx_http_kv_router_outcome_t;

typedef struct {
    uint32_t    rank;
    uint32_t    device;
    uint32_t    host;
    uint32_t    disk;
    uint32_t    cut;
    uint32_t    worker_len;
    char        worker_data[64];
} ngx_http_kv_router_found_t;

typedef struct {
    const unsigned char *lora_data;
    size_t               lora_len;
    const unsigned char *salt_data;
    size_t               salt_len;
    const unsigned char *model_data;
    size_t               model_len;
    const unsigned char *allowed_data;
    size_t               allowed_len;
    uint32_t             roles;
    uint32_t             asked;
} ngx_http_kv_router_names_t;

typedef struct {
    uint32_t    tokens;
    uint32_t    blocks;
    uint32_t    why;
    uint32_t    form_id;
    uint32_t    text;
    uint32_t    unserved;
    uint32_t    model_len;
    uint32_t    lora_len;
    const char *model_data;
    const char *lora_data;
} ngx_http_kv_router_prompt_t;

typedef struct {
    const unsigned char *policy_data;
    size_t               policy_len;
    const unsigned char *reason_text;
    size_t               reason_len;
    const uint32_t      *order;
    size_t               norder;
    const uint32_t      *prefill;
    size_t               nprefill;
    const double        *costs;
    double               us;
    uint32_t             why;
} ngx_http_kv_router_choice_t;

uint32_t ngx_http_kv_router_ffi_version(void);
void *ngx_http_kv_router_ffi_zone(const unsigned char *name, size_t len);
double ngx_http_kv_router_ffi_now_us(void);

int ngx_http_kv_router_ffi_prompt(ngx_http_request_t *r, void *zone,
    const ngx_http_kv_router_names_t *names, const uint32_t *tokens,
    size_t ntokens, ngx_http_kv_router_prompt_t *out, char **err);
int ngx_http_kv_router_ffi_candidates(ngx_http_request_t *r, void *zone,
    int how, const ngx_http_kv_router_match_t **out, char **err);
int ngx_http_kv_router_ffi_reserve(ngx_http_request_t *r, void *zone,
    const ngx_http_kv_router_choice_t *choice, char **err);
int ngx_http_kv_router_ffi_prefill(ngx_http_request_t *r, void *zone,
    uint32_t i, char **err);
int ngx_http_kv_router_ffi_prefill_ended(ngx_http_request_t *r, void *zone,
    uint32_t how, char **err);
int ngx_http_kv_router_ffi_prefill_failed(ngx_http_request_t *r, void *zone,
    char **err);
int ngx_http_kv_router_ffi_rank(ngx_http_request_t *r, void *zone,
    uint32_t i, uint32_t *rank);
int ngx_http_kv_router_ffi_dry(ngx_http_request_t *r, void *zone, char **err);
int ngx_http_kv_router_ffi_selects(ngx_http_request_t *r, void *zone);
int ngx_http_kv_router_ffi_explain(ngx_http_request_t *r, void *zone,
    const ngx_http_kv_router_choice_t *choice, char **out, size_t *len,
    char **err);
void ngx_http_kv_router_ffi_refused(void *zone, uint32_t why);
int ngx_http_kv_router_ffi_reserved(ngx_http_request_t *r, void *zone);
int ngx_http_kv_router_ffi_peer(ngx_http_request_t *r, void *zone,
    const char **host, size_t *host_len, uint32_t *port, uint32_t *left,
    char **err);
int ngx_http_kv_router_ffi_outcome(ngx_http_request_t *r, void *zone,
    ngx_http_kv_router_outcome_t *out);

void ngx_http_kv_router_ffi_policy_slow(void *zone);

uint32_t ngx_http_kv_router_ffi_block_size(void *zone);
uint32_t ngx_http_kv_router_ffi_max_holders(void *zone);
uint32_t ngx_http_kv_router_ffi_max_frequencies(void *zone);
size_t ngx_http_kv_router_ffi_hash(void *zone, const uint32_t *tokens,
    size_t ntokens, const unsigned char *lora, size_t lora_len,
    const unsigned char *salt, size_t salt_len, uint64_t *local,
    uint64_t *sequence);
size_t ngx_http_kv_router_ffi_find(void *zone, const uint64_t *local, size_t n,
    size_t tokens, int early_exit, ngx_http_kv_router_found_t *out, size_t cap,
    uint32_t *frequencies, uint32_t *nfrequencies);
int ngx_http_kv_router_ffi_store(void *zone, const unsigned char *worker,
    size_t worker_len, uint32_t rank, uint32_t tier, const uint64_t *parent,
    const uint64_t *handles, const uint64_t *locals, size_t n, char **err);
int ngx_http_kv_router_ffi_remove(void *zone, const unsigned char *worker,
    size_t worker_len, uint32_t rank, uint32_t tier, const uint64_t *handles,
    size_t n, uint32_t *unknown, char **err);
int ngx_http_kv_router_ffi_clear(void *zone, const unsigned char *worker,
    size_t worker_len, uint32_t rank, char **err);
int ngx_http_kv_router_ffi_remove_worker(void *zone,
    const unsigned char *worker, size_t worker_len, char **err);
int ngx_http_kv_router_ffi_text(void *zone, const char *what, char **out,
    size_t *len, char **err);
void ngx_http_kv_router_ffi_free(char *text);
]]


local _M = { VERSION = VERSION }

local OK = 0
local BUSY = -3
local DECLINED = -5
local NOBODY = 2^32 - 1          -- the number of no candidate
local LOAD_ONLY, UNBOUND = 1, 2  -- how candidates are listed


-- Why a request was routed as it was
local WHY = {
    BY_POLICY = 0,
    NO_TOKENS = 1,
    NO_PROMPT = 2,
    BAD_BODY = 3,
    TOO_LONG = 4,
    SHORT = 5,
    UNKNOWN_FORM = 6,
    NO_LOAD = 7,
    TOKENIZER = 8,
    NO_RUNG = 9,
    UNPROVEN = 10,
    UNKNOWN_MODEL = 11,
    POLICY_ERROR = 12,
    NO_WORKER = 13,
    NO_ELIGIBLE = 14,
    OVERLOAD = 15,
    RETRY = 16,
}

_M.WHY = WHY

-- kvr_role_t, kvr_confidence_t, kvr_health_state_t and kvr_tier_t of src/.
local ROLES = { [0] = "both", "prefill", "decode" }

_M.ROLE_BITS = { both = 1, prefill = 2, decode = 4 }

local CONFIDENCES = { [0] = "UNKNOWN", "EXACT", "DEGRADED", "SYNCING",
                      "UNVERIFIED", "BOUND", "ESTIMATED" }

_M.CONFIDENCES = CONFIDENCES

-- What a policy multiplies the overlap of a worker by, unless it is told
-- otherwise, by the confidence of the worker's view; not named: 1.
_M.DISCOUNTS = { BOUND = 0.7, DEGRADED = 0.5, SYNCING = 0.5 }

-- kvr_failure_t; their number stands for none
_M.FAILED = { connect = 0, timeout = 1, reset = 2, invalid = 3, status = 4,
              cut = 5 }

local FAILURES = 6

_M.FAILURES = FAILURES

local HEALTHS = { [0] = "ok", "slow_start", "half_open", "failed", "away",
                  "down" }

_M.HEALTHS = HEALTHS

_M.TIERS = { device = 0, host = 1, disk = 2, external = 3 }


-- ---- the types that Lua sees ------------------------------------------------

local function known(number)
    return number >= 0 and number or nil
end

local FIELDS = "worker, rank, device, host, disk, predicted, in_flight, churn, "
               .. "active_requests, active_prefills, prefill_tokens, "
               .. "prefill_tps, decode_blocks, waiting_requests, "
               .. "running_requests, kv_usage, health, lora, additional_blocks, "
               .. "weight, share, max_active, max_prefill_tokens, "
               .. "tokens_in_flight, role, engine, confidence, "
               .. "confidence_id, confidence_reason, age, address, model, "
               .. "holder, generation"

metatype("ngx_http_kv_router_candidate_t", {
    __index = function(self, key)
        if key == "worker" then
            return ffi_string(self.worker_data, self.worker_len)

        elseif key == "address" then
            return ffi_string(self.address_data, self.address_len)

        elseif key == "model" then
            return ffi_string(self.model_data, self.model_len)

        elseif key == "lora" then
            return self.lora_len > 0
                   and ffi_string(self.lora_data, self.lora_len) or nil

        elseif key == "role" then
            return ROLES[self.role_id]

        elseif key == "health" then
            return HEALTHS[self.health_id]

        elseif key == "engine" then
            return ffi_string(self.engine_name)

        elseif key == "confidence" then
            return CONFIDENCES[self.confidence_id]

        elseif key == "confidence_reason" then
            return ffi_string(self.reason_text)

        elseif key == "waiting_requests" then
            return known(self.reported_waiting)

        elseif key == "running_requests" then
            return known(self.reported_running)

        elseif key == "kv_usage" then
            return known(self.reported_usage)
        end

        error('a candidate has no field "' .. tostring(key) .. '": it has '
              .. FIELDS, 2)
    end
})

-- A match as a list: #m candidates, m[1] to m[#m], and nil beyond, so that
-- no policy can read where no candidate is.
metatype("ngx_http_kv_router_match_t", {
    __len = function(self)
        return self.n
    end,

    __index = function(self, i)
        if type(i) == "number" and i >= 1 and i <= self.n then
            return self.candidates[i - 1]
        end

        return nil
    end
})

metatype("ngx_http_kv_router_prompt_t", {
    __index = function(self, key)
        return key == "lora" and self.lora_len > 0
               and ffi_string(self.lora_data, self.lora_len) or nil
    end
})

local function worker_of(self, key)
    return key == "worker" and ffi_string(self.worker_data, self.worker_len)
           or nil
end

metatype("ngx_http_kv_router_outcome_t", { __index = worker_of })
metatype("ngx_http_kv_router_found_t", { __index = worker_of })


-- ---- structures passed to C -------------------------------------------------

-- One of each serves all requests of this process: a call sets all fields that C
-- reads, and reads all that C has written, before anything can yield.

local err_out = ffi_new("char *[1]")
local match_out = ffi_new("const ngx_http_kv_router_match_t *[1]")
local host_out = ffi_new("const char *[1]")
local text_out = ffi_new("char *[1]")
local len_out = ffi_new("size_t[1]")
local u32_out = ffi_new("uint32_t[2]")
local u64_in = ffi_new("uint64_t[1]")
local outcome_out = ffi_new("ngx_http_kv_router_outcome_t")
local names_in = ffi_new("ngx_http_kv_router_names_t")
local choice_in = ffi_new("ngx_http_kv_router_choice_t")
local prompt_out = ffi_new("ngx_http_kv_router_prompt_t")


-- The sentence that C left, or one for the code.
local function failure(rc)
    local err = err_out[0]

    if err ~= nil then
        err_out[0] = nil
        return ffi_string(err)
    end

    if rc == BUSY then
        return "the zone is busy"
    end

    if rc == DECLINED then
        return "not found"
    end

    return "internal error"
end


-- What a call that can fail returns: true; or nil and a sentence.
local function result(rc)
    if rc ~= OK then
        return nil, failure(rc)
    end

    return true
end


-- The same of a call that has made a text, which is returned and freed.
local function text_of(rc)
    if rc ~= OK then
        return nil, failure(rc)
    end

    local text = ffi_string(text_out[0], len_out[0])

    C.ngx_http_kv_router_ffi_free(text_out[0])
    text_out[0] = nil

    return text
end


local function len_of(s)
    return s and #s or 0
end


-- ---- zone and clock ---------------------------------------------------------

local function version()
    return C.ngx_http_kv_router_ffi_version()
end


-- Is the module there, and of the version of this library?
function _M.loaded()
    local ok, found = pcall(version)

    return ok and found == VERSION
end


-- The zone of that name; raises an error when there is none: that is a mistake
-- in the configuration, to be seen at once.
function _M.zone(name)
    local ok, found = pcall(version)

    if not ok then
        error("ngx_http_kv_router_module is not loaded", 0)
    end

    if found ~= VERSION then
        error("ngx_http_kv_router_module and its Lua library are of different "
              .. "versions: restart nginx", 0)
    end

    local zone = C.ngx_http_kv_router_ffi_zone(name, #name)

    if zone == nil then
        error('there is no kv_router_zone "' .. name .. '"', 0)
    end

    return zone
end


-- Microseconds, monotonic: the clock that ages are of.
function _M.now_us()
    return (C.ngx_http_kv_router_ffi_now_us())
end


-- ---- the request path -------------------------------------------------------

-- Finds the request's prompt and keeps its hashes for candidates(): tokens, a
-- uint32_t array of n, or, when it is nil, the token ids in the body.  lora,
-- salt, model: strings or nil; allowed: ids of workers, joined by commas, or nil:
-- all; roles: a bit for each, see ROLE_BITS; asked: true: for POST .../route.
-- An adapter, a salt and a model that are nil are the body's; with tokens all
-- three are those of the call before.  Returns one of WHY, BY_POLICY: there are
-- hashes; and what was found, which is good until the next call: form_id,
-- text (1: there is text to be tokenized), unserved (1: no worker serves the
-- model), lora (the adapter, or nil).  Or nil, err: no memory.
function _M.prompt(r, zone, lora, salt, model, allowed, roles, asked, tokens, n)
    local names = names_in

    names.lora_data = lora
    names.lora_len = len_of(lora)
    names.salt_data = salt
    names.salt_len = len_of(salt)
    names.model_data = model
    names.model_len = len_of(model)
    names.allowed_data = allowed
    names.allowed_len = len_of(allowed)
    names.roles = roles
    names.asked = asked and 1 or 0

    local rc = C.ngx_http_kv_router_ffi_prompt(r, zone, names, tokens, n or 0,
                                               prompt_out, err_out)
    if rc ~= OK then
        return nil, failure(rc)
    end

    return prompt_out.why, prompt_out
end


-- The workers that the request may go to now, after prompt().  Returns a match
-- (#m candidates, m[i], m.why, ...), which lives as long as the request and
-- changes with the next call, and its why; or nil, err, true when there is no
-- worker at all, and then true when all that are eligible are full.  by_load: true: the hashes
-- of the prompt are dropped, overlaps are 0.  unbound: true: workers that are full
-- are candidates, too.
function _M.candidates(r, zone, by_load, unbound)
    local rc = C.ngx_http_kv_router_ffi_candidates(r, zone,
                                                   (by_load and LOAD_ONLY or 0)
                                                   + (unbound and UNBOUND or 0),
                                                   match_out, err_out)
    if rc ~= OK then
        return nil, failure(rc), rc == DECLINED, rc == BUSY
    end

    return match_out[0][0], match_out[0].why
end


local function chosen(policy, why, reason, order, n)
    local c = choice_in

    c.policy_data = policy
    c.policy_len = len_of(policy)
    c.reason_text = reason
    c.reason_len = len_of(reason)
    c.order = order
    c.norder = n
    c.prefill = nil
    c.nprefill = 0
    c.costs = nil
    c.us = 0
    c.why = why

    return c
end


-- The rank of candidate i (from 0), or, with NOBODY, of the one that was
-- reserved; nil when its worker has but one.
local function rank_of(r, zone, i)
    if C.ngx_http_kv_router_ffi_rank(r, zone, i, u32_out) ~= OK then
        return nil
    end

    return u32_out[0]
end

_M.rank = rank_of


-- Reserves a candidate of the last match.  order: a uint32_t array of n
-- candidates, from 0: the choice, then those that retries follow; us:
-- microseconds.  Returns true and the rank that the engine is to be told or nil;
-- or nil, err, and true when all workers are full by now.
function _M.reserve(r, zone, policy, why, reason, order, n, us)
    local c = chosen(policy, why, reason, order, n)

    c.us = us

    local rc = C.ngx_http_kv_router_ffi_reserve(r, zone, c, err_out)
    if rc ~= OK then
        return nil, failure(rc), rc == BUSY
    end

    return true, rank_of(r, zone, NOBODY)
end


-- Candidate i (from 0) prefills for the one that was reserved.  nil, err: it is
-- not to be asked.
function _M.prefill(r, zone, i)
    return result(C.ngx_http_kv_router_ffi_prefill(r, zone, i, err_out))
end


-- How that went: one of FAILED, or nil: it has answered.
function _M.prefill_ended(r, zone, how)
    return result(C.ngx_http_kv_router_ffi_prefill_ended(r, zone,
                                                         how or FAILURES,
                                                         err_out))
end


-- Nobody prefills for the one that was reserved: it does so itself.
function _M.prefill_failed(r, zone)
    return result(C.ngx_http_kv_router_ffi_prefill_failed(r, zone, err_out))
end


-- The request is only to be explained: nothing is counted of it.
function _M.dry(r, zone)
    return result(C.ngx_http_kv_router_ffi_dry(r, zone, err_out))
end


-- The reservation will outlive the request.  False: the API's handler says why
-- not.
function _M.selects(r, zone)
    return C.ngx_http_kv_router_ffi_selects(r, zone) == OK
end


-- The JSON of the last match and of what was chosen: order, an array of n
-- candidates (from 0), nil and 0 when nothing was; prefill: a table of
-- candidate numbers (from 1) or nil; costs: a double array from 0, or nil.
function _M.explain(r, zone, policy, why, reason, order, n, prefill, costs)
    local c = chosen(policy, why, reason, order, n)
    local at

    if prefill then
        at = ffi_new("uint32_t[?]", #prefill)

        for i = 1, #prefill do
            at[i - 1] = prefill[i] - 1
        end
    end

    c.prefill = at
    c.nprefill = prefill and #prefill or 0
    c.costs = costs

    return text_of(C.ngx_http_kv_router_ffi_explain(r, zone, c, text_out,
                                                    len_out, err_out))
end


-- A request was refused: why, of WHY.
function _M.refused(zone, why)
    C.ngx_http_kv_router_ffi_refused(zone, why)
end


function _M.reserved(r, zone)
    return C.ngx_http_kv_router_ffi_reserved(r, zone) == OK
end


-- Returns host, port and how many candidates are left after this one.
function _M.peer(r, zone)
    local rc = C.ngx_http_kv_router_ffi_peer(r, zone, host_out, len_out,
                                             u32_out, u32_out + 1, err_out)
    if rc ~= OK then
        return nil, failure(rc)
    end

    return ffi_string(host_out[0], len_out[0]), u32_out[0], u32_out[1]
end


-- What came of the request, valid until the next call; nil when it has none.
function _M.outcome(r, zone)
    if C.ngx_http_kv_router_ffi_outcome(r, zone, outcome_out) ~= OK then
        return nil
    end

    return outcome_out
end


-- Counts a pick() that took too long.
function _M.policy_slow(zone)
    C.ngx_http_kv_router_ffi_policy_slow(zone)
end


-- ---- the index --------------------------------------------------------------

function _M.block_size(zone)
    return C.ngx_http_kv_router_ffi_block_size(zone)
end


function _M.max_holders(zone)
    return C.ngx_http_kv_router_ffi_max_holders(zone)
end


-- Writes hashes of whole blocks to local_out and sequence_out (uint64_t
-- arrays, or nil) and returns their number.
function _M.hash(zone, tokens, n, lora, salt, local_out, sequence_out)
    return tonumber(C.ngx_http_kv_router_ffi_hash(zone, tokens, n, lora,
                                                  len_of(lora), salt,
                                                  len_of(salt), local_out,
                                                  sequence_out))
end


-- 0: the zone has no frequencies.
function _M.max_frequencies(zone)
    return C.ngx_http_kv_router_ffi_max_frequencies(zone)
end


-- tokens: the prompt's length; 0: not known.  frequencies: a uint32_t array, or
-- nil when the zone has none.  Returns the numbers of matches and frequencies.
function _M.find(zone, locals, n, tokens, early_exit, out, cap, frequencies)
    local found = C.ngx_http_kv_router_ffi_find(zone, locals, n, tokens,
                                                early_exit and 1 or 0, out,
                                                cap, frequencies, u32_out)

    return tonumber(found), u32_out[0]
end


-- parent: cdata uint64_t or nil.
function _M.store(zone, worker, rank, tier, parent, handles, locals, n)
    local up

    if parent then
        u64_in[0] = parent
        up = u64_in
    end

    return result(C.ngx_http_kv_router_ffi_store(zone, worker, #worker, rank,
                                                 tier, up, handles, locals, n,
                                                 err_out))
end


-- Returns how many of the handles were not held.
function _M.remove(zone, worker, rank, tier, handles, n)
    u32_out[0] = 0

    local rc = C.ngx_http_kv_router_ffi_remove(zone, worker, #worker, rank,
                                               tier, handles, n, u32_out,
                                               err_out)
    if rc ~= OK then
        return nil, failure(rc)
    end

    return u32_out[0]
end


function _M.clear(zone, worker, rank)
    return result(C.ngx_http_kv_router_ffi_clear(zone, worker, #worker, rank,
                                                 err_out))
end


function _M.remove_worker(zone, worker)
    return result(C.ngx_http_kv_router_ffi_remove_worker(zone, worker, #worker,
                                                         err_out))
end


-- what: "stats", "workers" or "dump".
function _M.text(zone, what)
    return text_of(C.ngx_http_kv_router_ffi_text(zone, what, text_out, len_out,
                                                 err_out))
end


return _M
