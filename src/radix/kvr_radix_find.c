/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The lookup: kvr_radix_find(), for readers without a lock.
 *
 * Everything here may read memory that a writer changes at this moment: each
 * number is checked before it is used as a place, and nothing is believed
 * until the versions say so.
 */


#include "kvr_radix.h"
#include "kvr_children.h"
#include "kvr_classes.h"
#include "kvr_radix_words.h"


#define KVR_FIND_SPINS       64         /* while a run's version is odd */


/* Four views at once, with whatever instructions the compiler has for it. */
typedef uint16_t __attribute__((vector_size(8)))   kvr_four_depths_t;
typedef int32_t __attribute__((vector_size(16)))   kvr_four_t;


static bool kvr_find_walk(const kvr_radix_t *x, const uint64_t *hashes,
    uint32_t n, kvr_depths_t *out, kvr_step_t *steps, uint32_t *nsteps,
    uint32_t *best);
static inline uint32_t kvr_find_enter(const kvr_run_t *r, uint32_t parent,
    uint32_t offset, kvr_step_t *steps, uint32_t *nsteps);
static inline bool kvr_find_is_child(const kvr_radix_t *x, uint32_t run,
    uint32_t parent, uint32_t offset, uint64_t hash);
static bool kvr_find_cover(const kvr_radix_t *x, const kvr_run_t *r,
    uint32_t pos, uint32_t k, kvr_depths_t *out, uint32_t *best,
    uint32_t *whole);
static bool kvr_find_details(const kvr_radix_t *x, uint32_t detail,
    uint32_t pos, uint32_t k, kvr_depths_t *out, uint32_t *best,
    uint32_t *whole);
static uint32_t kvr_find_dense(const uint16_t *dense, uint32_t *any,
    uint32_t n, uint32_t pos, uint32_t k, uint32_t *best, uint32_t *whole);
static void kvr_find_tiered(kvr_depths_t *out);
static void kvr_find_unclass(const kvr_radix_t *x, kvr_depths_t *out);


uint32_t
kvr_radix_find(const kvr_radix_t *x, const uint64_t *hashes, uint32_t n,
    kvr_depths_t *out)
{
    bool        whole, same;
    uint32_t    i, k, t, best, epoch, nsteps, attempts;
    kvr_step_t  steps[KVR_RADIX_HOPS];

    out->torn = false;
    out->looks = 0;

    for (attempts = 1; /* void */ ; attempts++) {

        memset(out->depths[2], 0, out->nviews * sizeof(uint32_t));
        out->tiered = false;
        out->cut = false;
        best = 0;
        nsteps = 0;

        if (n == 0) {
            return 0;
        }

        epoch = kvr_arena_epoch(&x->arena);

        whole = kvr_find_walk(x, hashes, n, out, steps, &nsteps, &best);

        if (out->limit != KVR_LIMIT_NONE && kvr_load32(&x->zone->classed)) {
            kvr_classes_find(x, steps, nsteps, out);
        }

        /*
         * Seqlock validation: if no run's version changed, everything read
         * belongs to one consistent state.
         */

        kvr_fence(__ATOMIC_ACQUIRE);

        for (i = 0; i < nsteps; i++) {
            if (kvr_load32(&kvr_radix_run(x, steps[i].run)->version)
                != steps[i].version)
            {
                break;
            }
        }

        /*
         * Versions mean something only while no run's chunk was recycled:
         * check the arena's epoch, too.
         */

        same = kvr_arena_same_epoch(&x->arena, epoch);

        if (whole && same && i == nsteps) {

            if (out->cut) {
                (void) __atomic_fetch_add(&x->zone->cut, 1, __ATOMIC_RELAXED);
            }

            for (i = 0; i < nsteps; i++) {
                kvr_version_stamp(kvr_radix_run(x, steps[i].run),
                                  steps[i].version, steps[i].stamp, x->now);
            }

            return best;
        }

        if (attempts == KVR_RADIX_ATTEMPTS || out->looks >= KVR_RADIX_LOOKS) {
            break;
        }
    }

    /* use the prefix whose runs no writer has changed */

    out->torn = true;
    k = !same ? 0 : i < nsteps ? steps[i].pos : best;

    for (t = out->tiered ? 0 : 2; t < 3; t++) {
        for (i = 0; i < out->nviews; i++) {
            out->depths[t][i] = kvr_min(out->depths[t][i], k);
        }
    }

    if (kvr_load32(&x->zone->classed)) {
        kvr_find_unclass(x, out);
    }

    (void) __atomic_fetch_add(&x->zone->torn, 1, __ATOMIC_RELAXED);

    return kvr_min(best, k);
}


/*
 * Walks down once.  Each run is noted in steps before anything of it is used.
 * False: a writer was in the way; what was read before it may be valid (the
 * versions decide), and the match ends there.
 */

static bool
kvr_find_walk(const kvr_radix_t *x, const uint64_t *hashes, uint32_t n,
    kvr_depths_t *out, kvr_step_t *steps, uint32_t *nsteps, uint32_t *best)
{
    bool              torn;
    uint32_t          k, m, pos, run, next, parent, offset, left;
    const kvr_run_t  *r;

    torn = false;
    parent = 0;
    offset = 0;
    pos = 0;
    next = 0;

    while (*nsteps < KVR_RADIX_HOPS && out->looks < KVR_RADIX_LOOKS) {

        out->looks++;

        if (next && kvr_find_is_child(x, next, parent, offset, hashes[pos])) {
            run = next;

        } else {
            run = kvr_children_find(x, parent, offset, hashes[pos], &torn);

            if (run == 0) {
                return !torn;
            }
        }

        r = kvr_radix_run(x, run);

        steps[*nsteps].run = run;
        steps[*nsteps].pos = pos;

        m = kvr_find_enter(r, parent, offset, steps, nsteps);

        if (m == 0) {
            return false;
        }

        next = kvr_load32(&r->next);

        if (next && n - pos > m
            && kvr_arena_valid(&x->arena, next, KVR_ARENA_RUN_WORDS))
        {
            __builtin_prefetch(kvr_radix_run(x, next));
            __builtin_prefetch(kvr_radix_run(x, next)->pages);
            __builtin_prefetch(kvr_radix_run(x, next)->hashes);

        } else {
            next = 0;
        }

        k = kvr_radix_same(x, r, 0, hashes + pos, kvr_min(m, n - pos));

        if (!kvr_find_cover(x, r, pos, k, out, best, &left)) {
            return false;
        }

        pos += k;

        /* no view has all of this run, the prompt ends, or no child is left */

        if (k == 0 || *best < pos || pos == n
            || kvr_load32(&r->nchildren) == 0
            || (left == 1 && out->early_exit))
        {
            return true;
        }

        parent = run;
        offset = k;
    }

    out->cut = true;

    return true;
}


/*
 * Notes a run's version in the next step.  Returns the length of the run; 0:
 * a writer is at it, or it is not what hangs there.
 */

static inline uint32_t
kvr_find_enter(const kvr_run_t *r, uint32_t parent, uint32_t offset,
    kvr_step_t *steps, uint32_t *nsteps)
{
    uint32_t  i, m, version;

    version = __atomic_load_n(&r->version, __ATOMIC_ACQUIRE);

    for (i = 0; version & 1; i++) {

        if (i == KVR_FIND_SPINS) {
            return 0;
        }

        version = __atomic_load_n(&r->version, __ATOMIC_ACQUIRE);
    }

    steps[*nsteps].version = version;
    steps[*nsteps].stamp = kvr_load32(&r->stamp);
    (*nsteps)++;

    m = kvr_load16(&r->len);

    /* a run without blocks is about to be freed: it gets no stamp */

    return m <= KVR_RUN_MAX && kvr_load32(&r->parent) == parent
           && kvr_load16(&r->offset) == offset ? m : 0;
}


/*
 * Is this run, which is inside the arena, a child of that parent with that
 * first hash?
 */

static inline bool
kvr_find_is_child(const kvr_radix_t *x, uint32_t run, uint32_t parent,
    uint32_t offset, uint64_t hash)
{
    const kvr_run_t  *r;

    r = kvr_radix_run(x, run);

    return kvr_load32(&r->parent) == parent
           && kvr_load16(&r->offset) == offset
           && kvr_load64(&r->hashes[0]) == hash;
}


/* As kvr_find_cover(), for a view whose tiers do not differ in this run. */

static inline void
kvr_find_pair(kvr_depths_t *out, uint32_t view, uint32_t pair, uint32_t pos,
    uint32_t k, uint32_t *best, uint32_t *whole)
{
    uint32_t  t, depth;

    depth = kvr_cover_plain(pair);

    if (depth == 0 || out->depths[2][view] != pos || depth == KVR_COVER_DETAIL)
    {
        return;
    }

    *whole += depth >= k;
    depth = pos + kvr_min(depth, k);
    *best = kvr_max(*best, depth);

    if (out->tiered) {
        for (t = 0; t < 2; t++) {
            if (out->depths[t][view] == pos) {
                out->depths[t][view] = depth;
            }
        }
    }

    out->depths[2][view] = depth;
}


/*
 * k blocks of this run match, behind pos blocks of earlier runs: a view that
 * held all pos blocks holds as many of the k as its depth says.  *whole: the
 * number of views that hold all k.
 */

static bool
kvr_find_cover(const kvr_radix_t *x, const kvr_run_t *r, uint32_t pos,
    uint32_t k, kvr_depths_t *out, uint32_t *best, uint32_t *whole)
{
    uint32_t           i, n, cap, ext, view, detail;
    const uint16_t    *dense;
    const kvr_pair_t  *pairs;

    *whole = 0;
    detail = kvr_load32(&r->detail);

    if (detail && !out->tiered) {
        kvr_find_tiered(out);
    }

    n = kvr_load16(&r->npairs);
    cap = kvr_load16(&r->cap);
    ext = kvr_load32(&r->cover.ext);

    if (n == KVR_COVER_DENSE) {

        if (!kvr_arena_valid(&x->arena, ext, cap * 16)) {
            return false;
        }

        dense = kvr_arena_at(&x->arena, ext);
        n = kvr_min(cap * 64, out->nviews);
        out->looks += n / KVR_LOOK_DENSE;
        view = out->tiered ? 0 : kvr_find_dense(dense, out->depths[2], n, pos,
                                                k, best, whole);

        for ( /* void */ ; view < n; view++) {
            kvr_find_pair(out, view, kvr_load16(&dense[view]), pos, k, best,
                          whole);
        }

    } else {

        if (cap) {
            if (n > cap || !kvr_arena_valid(&x->arena, ext, cap / 2)) {
                return false;
            }

            pairs = kvr_arena_at(&x->arena, ext);

        } else {
            if (n > KVR_COVER_INLINE) {
                return false;
            }

            pairs = r->cover.pairs;
        }

        for (i = 0; i < n; i++) {
            view = kvr_load16(&pairs[i].view);

            if (view < out->nviews) {
                kvr_find_pair(out, view, kvr_load16(&pairs[i].depth), pos, k,
                              best, whole);
            }
        }
    }

    return detail == 0
           || kvr_find_details(x, detail, pos, k, out, best, whole);
}


/* As kvr_find_cover(), for the views whose tiers differ in the run. */

static bool
kvr_find_details(const kvr_radix_t *x, uint32_t detail, uint32_t pos,
    uint32_t k, kvr_depths_t *out, uint32_t *best, uint32_t *whole)
{
    uint32_t              i, t, n, view, depth;
    const kvr_detail_t   *d;
    const kvr_details_t  *details;

    if (!kvr_arena_valid(&x->arena, detail, 1)) {
        return false;
    }

    details = kvr_arena_at(&x->arena, detail);
    n = kvr_load32(&details->n);

    if (n > KVR_VIEWS_LIMIT
        || !kvr_arena_valid(&x->arena, detail, kvr_details_words(n)))
    {
        return false;
    }

    out->looks += n / KVR_LOOK_DETAILS;

    for (i = 0; i < n; i++) {
        d = &details->items[i];
        view = kvr_load16(&d->view);

        if (view >= out->nviews || out->depths[2][view] != pos) {
            continue;
        }

        *whole += kvr_load16(&d->depth[2]) >= k;

        for (t = 0; t < 3; t++) {
            if (out->depths[t][view] == pos) {
                depth = pos + kvr_min(kvr_load16(&d->depth[t]), k);
                out->depths[t][view] = depth;
                *best = kvr_max(*best, depth);
            }
        }
    }

    return true;
}


/*
 * Handles the first views of a dense row, four at a time; returns how many.
 * The result is the same as one by one: a depth which is in the details counts
 * as none, and a view without a depth stays at pos, which is never above best.
 */

static uint32_t
kvr_find_dense(const uint16_t *dense, uint32_t *any, uint32_t n, uint32_t pos,
    uint32_t k, uint32_t *best, uint32_t *whole)
{
    uint32_t           i, view;
    kvr_four_t         depth, had, here, all, far, limit, start, top, count;
    kvr_four_depths_t  row;

    limit = (kvr_four_t) { 0 } + (int32_t) k;
    start = (kvr_four_t) { 0 } + (int32_t) pos;
    top = (kvr_four_t) { 0 } + (int32_t) *best;
    count = (kvr_four_t) { 0 };

    for (view = 0; view + 4 <= n; view += 4) {

        kvr_copy_words(&row, &dense[view], 1);
        memcpy(&had, &any[view], sizeof(kvr_four_t));

        row &= KVR_COVER_OWN - 1;
        depth = __builtin_convertvector(row, kvr_four_t);

        here = had == start;
        all = depth >= limit;
        count -= here & all;

        depth = start + ((limit & all) | (depth & ~all));
        depth = (depth & here) | (had & ~here);
        memcpy(&any[view], &depth, sizeof(kvr_four_t));

        far = depth > top;
        top = (depth & far) | (top & ~far);
    }

    for (i = 0; i < 4; i++) {
        *best = kvr_max(*best, (uint32_t) top[i]);
        *whole += (uint32_t) count[i];
    }

    return view;
}


/* Begins to count each tier by itself: up to here the tiers were equal. */

static void
kvr_find_tiered(kvr_depths_t *out)
{
    memcpy(out->depths[0], out->depths[2], out->nviews * sizeof(uint32_t));
    memcpy(out->depths[1], out->depths[2], out->nviews * sizeof(uint32_t));

    out->tiered = true;
}


/* The classes of a lookup that is cut short may belong to another moment. */

static void
kvr_find_unclass(const kvr_radix_t *x, kvr_depths_t *out)
{
    uint32_t     t, view;
    kvr_class_t  classes[KVR_CLASSES_MAX];

    for (view = 0; view < out->nviews; view++) {

        for (t = 0; kvr_classes_get(x, view, classes) && t < 3; t++) {
            out->depths[t][view] = 0;
        }
    }
}
