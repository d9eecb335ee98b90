/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Eviction: kvr_radix_make_room() when the zone is full, and
 * kvr_radix_evict() of what nobody used for a time.
 *
 * It is done by run, from all views at once, and a run on which others hang is
 * left until they are gone: so what is evicted is the end of a chain, and
 * what is left of the chain is still a prefix that can be matched.
 *
 * ROOM is made by the oldest of a sample.  When it was a piece of the arena
 * that there was no room for, and what these had was of no use for that, all
 * runs of one chunk are evicted, after which it can serve any class: pieces
 * that are freed here and there seldom leave a chunk empty.
 *
 * What an event may cost bounds each of these two steps, so that the last two
 * may come to twice as much again: the rest of a sample, of a chunk and of the
 * views of a run stays then.  The next event that lacks a chunk goes on with
 * this one.
 */


#include "../core/kvr_evict_sample.h"
#include "kvr_radix_evict.h"
#include "kvr_radix_free.h"


#define KVR_EVICT_COST       2048       /* of a sample; no run is evicted by
                                           half then */
#define KVR_EVICT_HOPS       64         /* down to a leaf */
#define KVR_EVICT_SLOT       4          /* handles: as long as a slot */
#define KVR_EVICT_LOOK       4096       /* slots, when the sample has none */
#define KVR_EVICT_CHUNKS     16         /* looked at for the best of them */

/* The cost of looking: headers of runs are seldom in the cache. */
#define KVR_EVICT_LEAVES     64        /* a sample of leaves */
#define KVR_EVICT_HEADERS    128        /* and one of chunks */


/* A chunk of the arena, as a candidate for being emptied of its runs. */
typedef struct {
    uint32_t    chunk;
    uint32_t    inner;                  /* runs which have children */
    uint32_t    age;                    /* age of the youngest run */
} kvr_evict_chunk_t;


static uint32_t kvr_evict_sampled(kvr_radix_t *x, uint32_t keep);
static uint32_t kvr_evict_runs(kvr_radix_t *x, uint32_t keep);
static uint32_t kvr_evict_best(kvr_radix_t *x, uint32_t keep);
static bool kvr_evict_look(const kvr_radix_t *x, uint32_t run, uint32_t keep,
    kvr_evict_chunk_t *c);
static uint64_t kvr_evict_random(kvr_radix_t *x);
static uint32_t kvr_evict_leaf(kvr_radix_t *x, uint64_t slot, uint32_t keep);
static uint32_t kvr_evict_run_age(const kvr_radix_t *x, uint32_t run);
static uint64_t kvr_evict_slot(const kvr_radix_t *x, uint64_t slot);
static uint32_t kvr_evict_run(kvr_radix_t *x, uint32_t run, uint32_t keep,
    uint32_t handles, uint32_t max, uint32_t *cost);


bool
kvr_radix_make_room(kvr_radix_t *x, uint32_t keep, uint32_t *cost)
{
    uint32_t          some, room;
    kvr_arena_want_t  want;

    want = x->arena.lack;
    x->arena.lack.class = 0;

    if (*cost >= x->cost || x->zone->children_used == 0) {
        return false;
    }

    room = kvr_arena_room(&x->arena, want) + 1;
    room = kvr_min(room, KVR_ARENA_ROOM);

    some = kvr_evict_sampled(x, keep);
    *cost += KVR_EVICT_LEAVES;

    kvr_txn_commit(x->mem);
    kvr_radix_begin(x);

    if (x->zone->children_used && kvr_arena_room(&x->arena, want) < room) {

        some += kvr_evict_runs(x, keep);
        *cost += KVR_EVICT_HEADERS;

        kvr_txn_commit(x->mem);
        kvr_radix_begin(x);
    }

    *cost += some;

    return some != 0;
}


/*
 * Evicts the oldest runs of a sample; returns the cost, or 0 when there is no
 * run to evict.
 */

static uint32_t
kvr_evict_sampled(kvr_radix_t *x, uint32_t keep)
{
    uint32_t            i, n, run, cost;
    uint64_t            slot;
    kvr_evict_sample_t  sample;

    sample.n = 0;

    for (i = 0; i < KVR_EVICT_SAMPLE; i++) {

        run = kvr_evict_leaf(x, kvr_evict_random(x), keep);

        if (run) {
            kvr_evict_sample_add(&sample, run, kvr_evict_run_age(x, run));
        }
    }

    if (sample.n == 0) {

        /* evict_at may be behind the last slot */

        slot = kvr_min(x->zone->evict_at, x->zone->nchildren - 1);

        for (i = 0; sample.n == 0 && i < KVR_EVICT_LOOK; i++) {

            slot = kvr_evict_slot(x, kvr_table_next(slot,
                                                    x->zone->nchildren));
            run = (uint32_t) (x->children[slot] >> 32);

            if (run != keep && kvr_radix_run(x, run)->nchildren == 0) {
                kvr_evict_sample_add(&sample, run, 0);
            }
        }

        kvr_set64(x->mem, &x->zone->evict_at, slot);
    }

    n = kvr_min(sample.n, KVR_EVICT_BEST);
    cost = 0;

    for (i = 0; i < n && cost < KVR_EVICT_COST; i++) {
        (void) kvr_evict_run(x, sample.items[i], keep, UINT32_MAX, x->cost,
                             &cost);
    }

    return cost;
}


/*
 * Evicts all runs of the best chunk, if possible.  A run stays while it has
 * children outside of the chunk: the next call continues with those.
 */

static uint32_t
kvr_evict_runs(kvr_radix_t *x, uint32_t keep)
{
    bool        more;
    uint32_t    run, first, cost;
    kvr_run_t  *r;

    first = kvr_evict_best(x, keep) * KVR_ARENA_CHUNK;

    if (first == 0) {
        return 0;
    }

    cost = 0;

    do {
        more = false;

        for (run = first;
             run + KVR_ARENA_RUN_WORDS <= first + KVR_ARENA_CHUNK
             && cost < x->cost;
             run += KVR_ARENA_RUN_WORDS)
        {
            r = kvr_radix_run(x, run);

            if (kvr_arena_is(&x->arena, run, KVR_ARENA_RUN) && r->len
                && r->nchildren == 0 && run != keep)
            {
                (void) kvr_evict_run(x, run, keep, UINT32_MAX, x->cost,
                                     &cost);
                more = true;
            }
        }

    } while (more && cost < x->cost);

    x->emptying = more ? first / KVR_ARENA_CHUNK : 0;

    return cost;
}


/*
 * The chunk to be emptied next: the one that could not be emptied the last
 * time; or else, from a sample, the oldest of the chunks in which few runs
 * have children. 0: there is none.
 */

static uint32_t
kvr_evict_best(kvr_radix_t *x, uint32_t keep)
{
    uint32_t           i, run;
    kvr_evict_chunk_t  c, best;

    memset(&best, 0, sizeof(best));

    if (x->emptying
        && kvr_evict_look(x, x->emptying * KVR_ARENA_CHUNK, keep, &c)
        && c.age != UINT32_MAX)
    {
        return c.chunk;
    }

    for (i = 0; i < KVR_EVICT_CHUNKS; i++) {

        run = (uint32_t) (x->children[kvr_evict_random(x)] >> 32);

        if (run / KVR_ARENA_CHUNK != best.chunk
            && kvr_evict_look(x, run, keep, &c)
            && (best.chunk == 0 || c.inner < best.inner
                || (c.inner == best.inner && c.age > best.age)))
        {
            best = c;
        }
    }

    return best.chunk;
}


/* Looks at the chunk of this run; false: the chunk must not be emptied. */

static bool
kvr_evict_look(const kvr_radix_t *x, uint32_t run, uint32_t keep,
    kvr_evict_chunk_t *c)
{
    uint32_t    age, first;
    kvr_run_t  *r;

    c->chunk = run / KVR_ARENA_CHUNK;
    c->inner = 0;
    c->age = UINT32_MAX;

    if (keep / KVR_ARENA_CHUNK == c->chunk) {
        return false;
    }

    first = c->chunk * KVR_ARENA_CHUNK;

    for (run = first;
         run + KVR_ARENA_RUN_WORDS <= first + KVR_ARENA_CHUNK;
         run += KVR_ARENA_RUN_WORDS)
    {
        r = kvr_radix_run(x, run);

        if (kvr_arena_is(&x->arena, run, KVR_ARENA_RUN) && r->len) {
            age = kvr_evict_run_age(x, run);
            c->age = kvr_min(c->age, age);
            c->inner += r->nchildren != 0;
        }
    }

    return true;
}


bool
kvr_radix_evict(kvr_radix_t *x, uint32_t age, uint32_t slots)
{
    uint32_t    run, handles, cost;
    uint64_t    pos;
    kvr_run_t  *r;

    pos = x->zone->evict_at;
    cost = 0;

    while (slots) {

        slots--;

        if (pos >= x->zone->nchildren) {
            kvr_set64(x->mem, &x->zone->evict_at, 0);
            return true;
        }

        run = (uint32_t) (x->children[pos] >> 32);

        if (run) {
            r = kvr_radix_run(x, run);

            if (r->nchildren == 0 && kvr_evict_run_age(x, run) > age) {
                /*
                 * the deletion may move another run to this slot: look at it
                 * again
                 */
                handles = kvr_evict_run(x, run, 0, slots * KVR_EVICT_SLOT,
                                        UINT32_MAX, &cost);
                slots -= kvr_min(slots, handles / KVR_EVICT_SLOT);
                continue;
            }
        }

        pos++;
    }

    kvr_set64(x->mem, &x->zone->evict_at, pos);

    return false;
}


static uint32_t
kvr_evict_run_age(const kvr_radix_t *x, uint32_t run)
{
    return kvr_evict_age(x->now, kvr_load32(&kvr_radix_run(x, run)->stamp));
}


/* Any slot in use. */

static uint64_t
kvr_evict_random(kvr_radix_t *x)
{
    x->random = x->random * UINT64_C(6364136223846793005)
                + UINT64_C(1442695040888963407);

    return kvr_evict_slot(x, kvr_table_home(x->random, x->zone->nchildren));
}


/* The first slot in use at or behind this one; at least one must be in use. */

static uint64_t
kvr_evict_slot(const kvr_radix_t *x, uint64_t slot)
{
    uint64_t  word;

    for ( ;; ) {

        word = x->occupied[slot / 64] >> (slot & 63);

        if (word) {
            return slot + (uint64_t) __builtin_ctzll(word);
        }

        slot = (slot | 63) + 1;

        if (slot >= x->zone->nchildren) {
            slot = 0;
        }
    }
}


/* The run in that slot if it is a leaf, or a leaf below it, or 0. */

static uint32_t
kvr_evict_leaf(kvr_radix_t *x, uint64_t slot, uint32_t keep)
{
    uint32_t    run, hops;
    kvr_run_t  *r;

    run = (uint32_t) (x->children[slot] >> 32);

    for (hops = 0; hops < KVR_EVICT_HOPS; hops++) {

        r = kvr_radix_run(x, run);

        if (r->nchildren == 0) {
            return run == keep ? 0 : run;
        }

        if (r->next == 0) {
            return 0;
        }

        run = r->next;
    }

    return 0;
}


/*
 * Takes a run from all its views.  At so many handles, or at a cost of max, it
 * stops with some views left.  Returns the number of handles removed.  *cost
 * grows by 1 for each view and for each handle removed.
 */

static uint32_t
kvr_evict_run(kvr_radix_t *x, uint32_t run, uint32_t keep, uint32_t handles,
    uint32_t max, uint32_t *cost)
{
    uint32_t    i, n, view, had, owns;
    kvr_run_t  *r;

    r = kvr_radix_run(x, run);
    *cost += r->nhandles;
    i = 0;
    n = 0;

    do {
        view = kvr_pairs_next(&x->cover, r, &i);

        if (view == UINT32_MAX) {
            break;
        }

        kvr_radix_commit_if_low(x);

        had = x->view_handles[view];
        owns = x->view_owns[view];
        kvr_radix_drop(x, run, view);
        had -= x->view_handles[view];

        *cost += 1 + owns - x->view_owns[view];

        n += had;

        if (view >= x->zone->shadows) {
            continue;                   /* the shadow's view is told */
        }

        kvr_set64(x->mem, &x->zone->forgotten, x->zone->forgotten + had);

        if (x->evicted) {
            x->evicted(x->evicted_data, view, had);
        }

    } while (n < handles && *cost < max);

    kvr_radix_free_if_empty(x, run, keep);

    return n;
}
