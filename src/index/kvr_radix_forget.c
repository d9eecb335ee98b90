/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Forgetting: kvr_radix_make_room() when the zone is full, and
 * kvr_radix_forget() of what nobody used for a time.
 *
 * It is done by run, from all views at once, and a run on which others hang is
 * left until they are gone: so what is forgotten is the end of a chain, and
 * what is left of the chain is still a prefix that can be matched.
 */


#include "kvr_names.h"
#include "kvr_oldest.h"
#include "kvr_radix_run.h"


#define KVR_FORGET_HANDLES   32768      /* of all; a run is not forgotten by
                                           half then */
#define KVR_FORGET_HOPS      64         /* down to a leaf */
#define KVR_FORGET_SLOT      4          /* handles: as long as a slot */
#define KVR_FORGET_LOOK      4096       /* slots, when the sample has none */


static uint32_t kvr_forget_leaf(kvr_radix_t *x, uint64_t slot, uint32_t keep);
static uint32_t kvr_forget_age(const kvr_radix_t *x, uint32_t run);
static uint64_t kvr_forget_slot(const kvr_radix_t *x, uint64_t slot);
static uint32_t kvr_forget_run(kvr_radix_t *x, uint32_t run, uint32_t keep,
    uint32_t max);


bool
kvr_radix_make_room(kvr_radix_t *x, uint32_t keep)
{
    uint32_t      i, run, handles;
    uint64_t      slot;
    kvr_oldest_t  oldest;

    if (x->zone->children_used == 0) {
        return false;
    }

    oldest.n = 0;

    for (i = 0; i < KVR_OLDEST_SAMPLE; i++) {

        x->random = x->random * UINT64_C(6364136223846793005)
                    + UINT64_C(1442695040888963407);
        slot = kvr_table_home(x->random, x->zone->nchildren);

        run = kvr_forget_leaf(x, kvr_forget_slot(x, slot), keep);

        if (run) {
            kvr_oldest_add(&oldest, run, kvr_forget_age(x, run));
        }
    }

    if (oldest.n == 0) {

        /* forget_at may be behind the last slot */

        slot = kvr_min(x->zone->forget_at, x->zone->nchildren - 1);

        for (i = 0; oldest.n == 0 && i < KVR_FORGET_LOOK; i++) {

            slot = kvr_forget_slot(x, kvr_table_next(slot,
                                                     x->zone->nchildren));
            run = (uint32_t) (x->children[slot] >> 32);

            if (run != keep && kvr_radix_run(x, run)->nchildren == 0) {
                kvr_oldest_add(&oldest, run, 0);
            }
        }

        kvr_set64(x->mem, &x->zone->forget_at, slot);
    }

    handles = 0;

    for (i = 0; i < kvr_min(oldest.n, KVR_OLDEST_BEST); i++) {

        if (handles >= KVR_FORGET_HANDLES) {
            break;
        }

        handles += kvr_forget_run(x, oldest.items[i], keep, UINT32_MAX);
    }

    kvr_txn_commit(x->mem);
    kvr_radix_begin(x);

    return oldest.n != 0;
}


bool
kvr_radix_forget(kvr_radix_t *x, uint32_t age, uint32_t slots)
{
    uint32_t    run, handles;
    uint64_t    pos;
    kvr_run_t  *r;

    pos = x->zone->forget_at;

    while (slots) {

        slots--;

        if (pos >= x->zone->nchildren) {
            kvr_set64(x->mem, &x->zone->forget_at, 0);
            return true;
        }

        run = (uint32_t) (x->children[pos] >> 32);

        if (run) {
            r = kvr_radix_run(x, run);

            if (r->nchildren == 0 && kvr_forget_age(x, run) > age) {
                /* another run may come to this slot: look at it again */
                handles = kvr_forget_run(x, run, 0,
                                         slots * KVR_FORGET_SLOT);
                slots -= kvr_min(slots, handles / KVR_FORGET_SLOT);
                continue;
            }
        }

        pos++;
    }

    kvr_set64(x->mem, &x->zone->forget_at, pos);

    return false;
}


static uint32_t
kvr_forget_age(const kvr_radix_t *x, uint32_t run)
{
    return kvr_oldest_age(x->now, kvr_load32(&kvr_radix_run(x, run)->stamp));
}


/* The first slot in use from this one on; there is one. */

static uint64_t
kvr_forget_slot(const kvr_radix_t *x, uint64_t slot)
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


/* The run in that slot, or the end of what hangs on it, or 0. */

static uint32_t
kvr_forget_leaf(kvr_radix_t *x, uint64_t slot, uint32_t keep)
{
    uint32_t    run, hops;
    kvr_run_t  *r;

    run = (uint32_t) (x->children[slot] >> 32);

    for (hops = 0; hops < KVR_FORGET_HOPS; hops++) {

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
 * Takes a run from all views, or, where it comes to max handles, from some;
 * how many handles that was.
 */

static uint32_t
kvr_forget_run(kvr_radix_t *x, uint32_t run, uint32_t keep, uint32_t max)
{
    uint32_t    i, n, view, had;
    kvr_run_t  *r;

    r = kvr_radix_run(x, run);
    i = 0;
    n = 0;

    do {
        view = kvr_cover_next(&x->cover, r, &i);

        if (view == UINT32_MAX) {
            break;
        }

        had = x->view_handles[view];
        kvr_radix_drop(x, run, view);
        had -= x->view_handles[view];

        kvr_set64(x->mem, &x->zone->forgotten, x->zone->forgotten + had);

        if (x->forgot) {
            x->forgot(x->forgot_data, view, had);
        }

        kvr_radix_breathe(x);

        n += had;

    } while (n < max);

    kvr_radix_tidy(x, run, keep);

    return n;
}
