/*
 * Copyright (C) the nginx-kv-router authors
 *
 * An index in memory of its own, of either kind, for the tests:
 *
 *     journal │ zone │ tables and arena │ the test's words (shared)
 */


#ifndef RADIX_FIXTURE_H_INCLUDED
#define RADIX_FIXTURE_H_INCLUDED


#include "../check/kvr_check.h"
#include "fixture.h"
#include "model.h"
#include "tap.h"


#define FX_WORDS    512             /* the test's own, at the end */
#define FX_VIEWS    1024            /* no test has more */


typedef struct {
    kvr_mem_t          mem;
    kvr_index_t        x;
    kvr_index_zone_t  *zone;
    uint64_t          *words;
    uint32_t           views;
    uint32_t           depths[3][FX_VIEWS];     /* of the last fx_find() */
    bool               torn;
    bool               cut;
    uint32_t           looks;
    bool               early_exit;
    uint32_t           limit;           /* of classes; 0: they are not asked */
} fx_t;


/* What fx_open() makes. */
static kvr_index_kind_t  fx_kind;


/* ---- the index ---------------------------------------------------------- */

static inline void
fx_open(fx_t *f, size_t size, uint32_t views)
{
    void      *p;
    uint64_t   at, secret[4];

    p = shared_memory(size);

    /* not fx_mix() of small numbers, which tests take for hashes */

    secret[0] = fx_mix(UINT64_MAX);
    secret[1] = fx_mix(UINT64_MAX - 1);
    secret[2] = fx_mix(UINT64_MAX - 2);
    secret[3] = fx_mix(UINT64_MAX - 3);

    f->mem.base = p;
    f->mem.size = size;
    f->mem.journal = p;
    at = (sizeof(kvr_journal_t) + 63) & ~(uint64_t) 63;
    f->zone = (kvr_index_zone_t *) (f->mem.base + at);
    at += (sizeof(kvr_index_zone_t) + 63) & ~(uint64_t) 63;
    size -= FX_WORDS * 8;
    f->words = (uint64_t *) (f->mem.base + size);
    f->views = views;

    kvr_index_format(&f->mem, f->zone, fx_kind, at, size - at, views, secret);
    kvr_index_attach(&f->x, &f->mem, f->zone);
}


/* What making room may cost in one event; 0: nothing is forgotten. */
static inline void
fx_set_tries(fx_t *f, uint32_t tries)
{
    if (f->zone->kind == KVR_INDEX_RADIX) {
        f->x.u.radix.cost = tries;

    } else {
        f->x.u.positional.cost = tries;
    }
}


static inline void
fx_close(fx_t *f)
{
    munmap(f->mem.base, f->mem.size);
}


/* The lookup; f->depths are whole afterwards, tiered or not. */
static inline uint32_t
fx_find(fx_t *f, const uint64_t *hashes, uint32_t n)
{
    uint32_t      t, best;
    kvr_depths_t  out;

    for (t = 0; t < 3; t++) {
        out.depths[t] = f->depths[t];
    }

    out.nviews = f->views;
    out.early_exit = f->early_exit;
    out.limit = f->limit ? f->limit : KVR_LIMIT_NONE;
    out.rule = NULL;
    best = kvr_index_find(&f->x, hashes, n, &out);
    f->torn = out.torn;
    f->cut = out.cut;
    f->looks = out.looks;

    if (!out.tiered) {
        memcpy(f->depths[0], f->depths[2], f->views * sizeof(uint32_t));
        memcpy(f->depths[1], f->depths[2], f->views * sizeof(uint32_t));
    }

    return best;
}


/* Each in one transaction; parent 0: from the root. */

static inline kvr_rc_t
fx_store(fx_t *f, uint32_t view, kvr_tier_t tier, uint64_t parent,
    const uint64_t *handles, const uint64_t *hashes, uint32_t n)
{
    uint32_t  stored;
    kvr_rc_t  rc;

    kvr_index_begin(&f->x);
    rc = kvr_index_store(&f->x, view, tier, parent != 0, parent, handles,
                         hashes, n, 0, &stored);
    kvr_txn_commit(&f->mem);

    return rc;
}


/* The handles that were unknown; UINT32_MAX for KVR_FULL. */
static inline uint32_t
fx_remove(fx_t *f, uint32_t view, kvr_tier_t tier, const uint64_t *handles,
    uint32_t n)
{
    uint32_t  unknown;
    kvr_rc_t  rc;

    unknown = 0;
    kvr_index_begin(&f->x);
    rc = kvr_index_remove(&f->x, view, tier, handles, n, &unknown);
    kvr_txn_commit(&f->mem);

    return rc == KVR_OK ? unknown : UINT32_MAX;
}


static inline bool
fx_dying(void *data, uint32_t view)
{
    return view == *(uint32_t *) data;
}


/* Until nothing is left of the view; returns how many rounds that took. */
static inline uint32_t
fx_reclaim(fx_t *f, uint32_t view, uint32_t slots)
{
    bool      round;
    uint32_t  rounds;

    for (rounds = 0; rounds < 100; /* void */ ) {
        kvr_index_begin(&f->x);
        round = kvr_index_reclaim(&f->x, fx_dying, &view, slots);
        kvr_txn_commit(&f->mem);

        rounds += round;

        if (round && kvr_index_view_empty(&f->x, view)) {
            break;
        }
    }

    return rounds;
}


static inline bool
fx_whole(fx_t *f, const char *when)
{
    const char  *why;

    why = kvr_index_check(&f->x);

    if (why) {
        printf("# %s, %s: %s\n", kvr_index_name(f->zone->kind), when, why);
    }

    return why == NULL;
}


static inline void
fx_count(uint64_t *a, uint64_t from, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        a[i] = from + i;
    }
}


static inline void
fx_backwards(uint64_t *to, const uint64_t *from, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        to[i] = from[n - 1 - i];
    }
}


/* The view's depths for the prompt q[0..n), and a look at everything. */

static inline bool
is_depth(fx_t *f, const uint64_t *q, uint32_t view, uint32_t n,
    uint32_t device, uint32_t host, uint32_t disk, const char *what)
{
    bool  good;

    fx_find(f, q, n);

    good = f->depths[0][view] == device && f->depths[1][view] == host
           && f->depths[2][view] == disk;

    if (!ok(good && fx_whole(f, what), "%s", what) && !good) {
        note("got %u, %u, %u; want %u, %u, %u", f->depths[0][view],
             f->depths[1][view], f->depths[2][view], device, host, disk);
    }

    return good;
}


static inline kvr_index_usage_t
fx_usage(const fx_t *f)
{
    kvr_index_usage_t  usage;

    kvr_index_usage(&f->x, &usage);

    return usage;
}


static inline bool
fx_empty(const fx_t *f)
{
    kvr_index_usage_t  u;

    u = fx_usage(f);

    return u.arena == 0 && u.pairs == 0 && u.handles == 0 && u.blocks == 0
           && u.entries == 0 && u.holes == 0;
}


static inline bool
is_empty(fx_t *f, const char *what)
{
    return ok(fx_empty(f) && fx_whole(f, what), "%s", what);
}


/* Compares the two on a prompt, for all views; says where they differ. */
static inline bool
fx_agree(fx_t *f, const mdl_t *m, const uint64_t *hashes, uint32_t n)
{
    bool      good;
    uint32_t  v, t, best, top, depths[3];

    good = true;
    top = 0;
    best = fx_find(f, hashes, n);

    for (v = 0; v < f->views; v++) {
        mdl_find(m, v, hashes, n, depths);
        top = kvr_max(top, depths[2]);

        for (t = 0; t < 3; t++) {
            if (f->depths[t][v] != depths[t]) {
                printf("# %s, a prompt of %u: view %u, tier %u: got %u, "
                       "want %u\n", kvr_index_name(f->zone->kind), n, v, t,
                       f->depths[t][v], depths[t]);
                good = false;
            }
        }
    }

    if (best != top) {
        printf("# %s, a prompt of %u: best %u, want %u\n",
               kvr_index_name(f->zone->kind), n, best, top);
        good = false;
    }

    return good;
}


#endif /* RADIX_FIXTURE_H_INCLUDED */
