/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What kv-simulate has of src/: an index with workers, prompts in flight,
 * prefill speeds, and the order of requests that wait, for programs of plain
 * LuaJIT, which know no structures.
 *
 * Workers have numbers from 0.  A block has two hashes.  Its local hash stands
 * for its tokens alone; its name stands for all tokens of the prompt up to the
 * end of the block, and is a whole number below 2^53, so that a Lua number can
 * have it.
 *
 * A simulation belongs to one thread of one process.
 */


#ifndef KVR_SIMULATE_H_INCLUDED
#define KVR_SIMULATE_H_INCLUDED


#include "kvr.h"


typedef struct kvr_simulate_s  kvr_simulate_t;


/*
 * A simulation with an empty index of so many bytes, for so many workers, and
 * nothing in flight at any of `routers` routers.  NULL: out of memory, or an
 * argument is out of range (at least 4 MiB, 1..16384 workers, 1..64 routers).
 */
kvr_simulate_t *kvr_simulate_create(size_t size, uint32_t block_size,
    uint32_t workers, uint32_t routers);
void kvr_simulate_destroy(kvr_simulate_t *s);

/*
 * Writes the local hashes of n blocks of a stream of tokens, from its block
 * `first` on.  Equal (stream, block) are equal tokens.
 */
void kvr_simulate_locals(uint64_t stream, uint32_t first, uint32_t n,
    uint64_t *locals);

/*
 * Writes the names of the blocks locals[from..n) to the same elements of
 * names.  When from is not 0, names[from - 1] must be there already.
 */
void kvr_simulate_names(const uint64_t *locals, uint32_t from, uint32_t n,
    double *names);

/*
 * A worker's engine has stored blocks [from, n) of a prompt, or removed blocks
 * by name, or emptied its cache.  0, or the number of a kvr_rc_t: the index is
 * full.  now: seconds of the virtual clock.
 */
int kvr_simulate_store(kvr_simulate_t *s, uint32_t worker,
    const uint64_t *locals, const double *names, uint32_t from, uint32_t n,
    double now);
int kvr_simulate_remove(kvr_simulate_t *s, uint32_t worker,
    const double *names, uint32_t n);
int kvr_simulate_clear(kvr_simulate_t *s, uint32_t worker);

/*
 * Writes to out[w], for each worker w, the number of blocks of a prompt that
 * the index has for that worker.
 */
void kvr_simulate_find(kvr_simulate_t *s, const uint64_t *locals, uint32_t n,
    uint32_t *out);

/* The blocks that a worker has stored lately, as kvr_churn.h has them. */
double kvr_simulate_churn(const kvr_simulate_t *s, uint32_t worker,
    double now);

/*
 * Prompts in flight, as kvr_inflight.h has them, of one router.
 *
 * flying: the number of the prompt's blocks that each worker has in flight.
 * fly: adds a request, and returns the number for land(); known, all and
 * *blocks are those of kvr_inflight_add().
 * land: removes the request, and returns the number of blocks that end with
 * it.
 */
void kvr_simulate_flying(kvr_simulate_t *s, uint32_t router,
    const uint64_t *locals, uint32_t n, uint32_t *out);
uint32_t kvr_simulate_fly(kvr_simulate_t *s, uint32_t router, uint32_t worker,
    const uint64_t *locals, uint32_t n, uint32_t known, uint32_t all,
    uint32_t *blocks);
uint32_t kvr_simulate_land(kvr_simulate_t *s, uint32_t router,
    uint32_t worker, uint32_t request);

/*
 * Prefill speeds, as kvr_speed.h has them, that one router measures.
 *
 * measured: a worker's first byte came so many microseconds after the request,
 * before which it had so many tokens to prefill.
 * speeds: writes to out[w], for each worker w, the tokens that it prefills in
 * a second; 0: not known.
 * left: kvr_speed_left().
 */
void kvr_simulate_measured(kvr_simulate_t *s, uint32_t router,
    uint32_t worker, double tokens, double us);
void kvr_simulate_speeds(kvr_simulate_t *s, uint32_t router, double *out);
double kvr_simulate_left(double queued, double prefills, double speed,
    double ms);

/*
 * The order of requests that wait at one router, as kvr_order.h has it.  Each
 * waiting request may use each worker.
 *
 * create: with a weight for each class, and room for so many requests that
 * wait.  NULL: out of memory, or not 1..KVR_ORDER_CLASSES classes.
 * tenant: the tenant of a class by its name, from 1, with the weight 1.
 * wait: uncached[w] are the tokens of the prompt that worker w would prefill;
 * output: tokens expected.  Returns a number for the request, or
 * KVR_ORDER_NONE.
 * next: the request that goes next at a worker with room, of so many workers,
 * or KVR_ORDER_NONE.
 * grant: the request waits no more.  pass: a request that never waited.  Both
 * return what it is charged.
 * end: the request of a tenant is over, and has cost so many tokens.
 */
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


#endif /* KVR_SIMULATE_H_INCLUDED */
