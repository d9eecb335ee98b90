-- Copyright (C) the nginx-kv-router authors
--
-- The door of kv-simulate to C: the index that nginx has, prompts in flight,
-- prefill speeds, and the order of requests that wait.  simulate/kvr_simulate.h
-- has the same declarations, and says what the functions do;
-- t/lua/test_simulate.lua compares them.


local ffi = require "ffi"

local ffi_new = ffi.new


ffi.cdef [[
typedef struct kvr_simulate_s  kvr_simulate_t;

kvr_simulate_t *kvr_simulate_create(size_t size, uint32_t block_size,
    uint32_t workers, uint32_t routers);
void kvr_simulate_destroy(kvr_simulate_t *s);
void kvr_simulate_locals(uint64_t stream, uint32_t first, uint32_t n,
    uint64_t *locals);
void kvr_simulate_names(const uint64_t *locals, uint32_t from, uint32_t n,
    double *names);
int kvr_simulate_store(kvr_simulate_t *s, uint32_t worker,
    const uint64_t *locals, const double *names, uint32_t from, uint32_t n,
    double now);
double kvr_simulate_churn(const kvr_simulate_t *s, uint32_t worker,
    double now);
int kvr_simulate_remove(kvr_simulate_t *s, uint32_t worker,
    const double *names, uint32_t n);
int kvr_simulate_clear(kvr_simulate_t *s, uint32_t worker);
void kvr_simulate_find(kvr_simulate_t *s, const uint64_t *locals, uint32_t n,
    uint32_t *out);
void kvr_simulate_flying(kvr_simulate_t *s, uint32_t router,
    const uint64_t *locals, uint32_t n, uint32_t *out);
uint32_t kvr_simulate_fly(kvr_simulate_t *s, uint32_t router, uint32_t worker,
    const uint64_t *locals, uint32_t n, uint32_t known, uint32_t all,
    uint32_t *blocks);
uint32_t kvr_simulate_land(kvr_simulate_t *s, uint32_t router,
    uint32_t worker, uint32_t request);
void kvr_simulate_measured(kvr_simulate_t *s, uint32_t router,
    uint32_t worker, double tokens, double us);
void kvr_simulate_speeds(kvr_simulate_t *s, uint32_t router, double *out);
double kvr_simulate_left(double queued, double prefills, double speed,
    double ms);

typedef struct kvr_simulate_order_s  kvr_simulate_order_t;

kvr_simulate_order_t *kvr_simulate_order_create(uint32_t classes,
    const double *weights, uint32_t requests, uint32_t block_size,
    double quantum);
void kvr_simulate_order_destroy(kvr_simulate_order_t *s);
uint32_t kvr_simulate_order_tenant(kvr_simulate_order_t *s, uint32_t class,
    uint32_t name);
uint32_t kvr_simulate_order_wait(kvr_simulate_order_t *s, uint32_t tenant,
    uint32_t prompt, uint32_t output, const uint32_t *uncached, uint32_t n);
uint32_t kvr_simulate_order_waiting(const kvr_simulate_order_t *s);
uint32_t kvr_simulate_order_next(kvr_simulate_order_t *s, uint32_t worker,
    uint32_t workers);
uint32_t kvr_simulate_order_grant(kvr_simulate_order_t *s, uint32_t request,
    uint32_t worker);
uint32_t kvr_simulate_order_pass(kvr_simulate_order_t *s, uint32_t tenant,
    uint32_t output, uint32_t uncached);
void kvr_simulate_order_end(kvr_simulate_order_t *s, uint32_t tenant,
    uint32_t charge, double tokens);
]]


local _M = {}
local methods = {}

-- bytes of the index for each block that it can hold
local BLOCK_BYTES = 96
local MIN_BYTES = 64 * 2^20

local C                          -- set by load()
local one = ffi_new("uint32_t[1]")


-- file: the shared library build/libkvr_simulate.so.  Those functions of C that
-- need nothing done here are called as they are.
function _M.load(file)
    C = ffi.load(file)

    _M.locals, _M.names = C.kvr_simulate_locals, C.kvr_simulate_names
    _M.left = C.kvr_simulate_left

    for _, name in ipairs { "churn", "find", "flying", "measured", "speeds" } do
        methods[name] = C["kvr_simulate_" .. name]
    end

    ffi.metatype("kvr_simulate_t", { __index = methods })

    local ordered = {}

    for _, name in ipairs { "tenant", "wait", "waiting", "next", "grant",
                            "pass", "end" }
    do
        ordered[name] = C["kvr_simulate_order_" .. name]
    end

    ffi.metatype("kvr_simulate_order_t", { __index = ordered })
end


-- An order of so many requests at the most.  weights: of the classes.
function _M.order(weights, requests, block_size, quantum)
    local order = C.kvr_simulate_order_create(
        #weights, ffi_new("double[?]", #weights, weights), requests,
        block_size, quantum)

    if order == nil then
        error("no order of " .. requests .. " requests in " .. #weights
              .. " classes")
    end

    return ffi.gc(order, C.kvr_simulate_order_destroy)
end


-- An empty index.  blocks: the maximum number of blocks of all workers.
function _M.new(block_size, workers, blocks, routers)
    local size = MIN_BYTES + workers * 65536 + blocks * BLOCK_BYTES
    local s = C.kvr_simulate_create(size, block_size, workers, routers)

    if s == nil then
        error("no index of " .. size .. " bytes for " .. workers .. " workers")
    end

    return ffi.gc(s, C.kvr_simulate_destroy)
end


-- Without room in the index nothing that it says would be true.
local function done(rc)
    if rc ~= 0 then
        error("the index is full: a bound of kv-simulate is too small")
    end
end


function methods:store(worker, locals, names, from, n, now)
    done(C.kvr_simulate_store(self, worker, locals, names, from, n, now))
end


function methods:remove(worker, names, n)
    done(C.kvr_simulate_remove(self, worker, names, n))
end


function methods:clear(worker)
    done(C.kvr_simulate_clear(self, worker))
end


-- Returns the request's number, and how many blocks more the router counts.
function methods:fly(router, worker, locals, n, known, all)
    local request = C.kvr_simulate_fly(self, router, worker, locals, n, known,
                                       all, one)

    return request, one[0]
end


function methods:land(router, worker, request)
    if request == 0 then
        return 0
    end

    -- in parentheses: a function that ends in a tail call of C is not compiled
    return (C.kvr_simulate_land(self, router, worker, request))
end


return _M
