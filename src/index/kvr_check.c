/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The invariants of the radix index, for tests and for the doubtful.
 *
 * One pass over the children's table looks at each run with all it owns and
 * marks its words; the free lists and limbo must mark others.  Then the
 * handles are sorted by the block they name and held against the coverage.
 */


#include "kvr_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>


/* What a view's handles say of a run. */
typedef struct {
    uint32_t            n[KVR_TIERS][KVR_RUN_MAX];
} kvr_expected_t;


static const char *kvr_check_all(kvr_check_t *k);
static const char *kvr_check_runs(kvr_check_t *k);
static const char *kvr_check_free(kvr_check_t *k);
static void kvr_check_nobodys(void *data, uint32_t piece, uint32_t words);
static const char *kvr_check_handles(kvr_check_t *k);
static const char *kvr_check_held(kvr_check_t *k);
static const char *kvr_check_view(kvr_check_t *k, uint32_t run,
    uint32_t view, const kvr_expected_t *e);
static const char *kvr_check_counts(kvr_check_t *k);
static int kvr_check_cmp(const void *one, const void *two);


static char  kvr_check_why[256];


const char *
kvr_radix_check(const kvr_radix_t *x)
{
    size_t        words;
    const char   *why;
    kvr_check_t   k;

    memset(&k, 0, sizeof(kvr_check_t));

    words = x->zone->arena.bump;

    if (words > x->zone->arena.limit) {
        return kvr_check_fail("the arena's bump is behind its limit");
    }

    k.x = x;
    k.marks = calloc(words / 64 + 1, sizeof(uint64_t));
    k.runs = calloc(words / 64 + 1, sizeof(uint64_t));
    k.nchildren = calloc(words / 8 + 1, sizeof(uint32_t));
    k.npairs = calloc(words / 8 + 1, sizeof(uint32_t));
    k.view_runs = calloc(x->zone->max_views + 1, sizeof(uint32_t));
    k.view_handles = calloc(x->zone->max_views + 1, sizeof(uint32_t));
    k.seen = calloc(x->zone->max_views + 1, sizeof(uint32_t));
    k.places = malloc((x->zone->handles.used + 1) * sizeof(uint64_t));

    if (k.marks && k.runs && k.nchildren && k.npairs && k.view_runs
        && k.view_handles && k.seen && k.places)
    {
        why = kvr_check_all(&k);

    } else {
        why = kvr_check_fail("no memory to check the index");
    }

    free(k.marks);
    free(k.runs);
    free(k.nchildren);
    free(k.npairs);
    free(k.view_runs);
    free(k.view_handles);
    free(k.seen);
    free(k.places);

    return why;
}


static const char *
kvr_check_all(kvr_check_t *k)
{
    const char  *why;

    why = kvr_check_runs(k);

    if (why == NULL) {
        why = kvr_check_free(k);
    }

    if (why == NULL) {
        why = kvr_check_handles(k);
    }

    if (why == NULL) {
        why = kvr_check_held(k);
    }

    if (why == NULL) {
        why = kvr_check_counts(k);
    }

    return why;
}


/* ---- runs --------------------------------------------------------------- */

static const char *
kvr_check_runs(kvr_check_t *k)
{
    uint32_t            run;
    uint64_t            i, n;
    const char         *why;
    const kvr_radix_t  *x;

    x = k->x;
    n = 0;

    if (x->zone->children_version & 1) {
        return kvr_check_fail("the children's version is odd");
    }

    for (i = 0; i < x->zone->nchildren; i++) {

        if (x->children[i] == 0) {
            continue;
        }

        run = (uint32_t) (x->children[i] >> 32);
        n++;

        if (run % 8) {
            return kvr_check_fail("run %u is not aligned", run);
        }

        why = kvr_check_mark(k, run, KVR_ARENA_RUN_WORDS, "run");
        if (why) {
            return why;
        }

        kvr_check_set(k->runs, run);
        k->used += KVR_ARENA_RUN_WORDS;
    }

    if (n != x->zone->children_used) {
        return kvr_check_fail("%lu children, %lu counted",
                              (unsigned long) n,
                              (unsigned long) x->zone->children_used);
    }

    for (i = 0; i < x->zone->nchildren; i++) {

        if (x->children[i] == 0) {
            continue;
        }

        run = (uint32_t) (x->children[i] >> 32);

        why = kvr_check_place(k, run);
        if (why) {
            return why;
        }

        why = kvr_check_run(k, run);
        if (why) {
            return why;
        }
    }

    for (i = 0; i < x->zone->nchildren; i++) {

        if (x->children[i] == 0) {
            continue;
        }

        run = (uint32_t) (x->children[i] >> 32);

        if (kvr_radix_run(x, run)->nchildren != k->nchildren[run / 8]) {
            return kvr_check_fail("run %u: %u children, %u counted", run,
                                  k->nchildren[run / 8],
                                  kvr_radix_run(x, run)->nchildren);
        }

        if (k->nchildren[run / 8] == 0 && k->npairs[run / 8] == 0) {
            return kvr_check_fail("run %u is nobody's and a leaf", run);
        }
    }

    return NULL;
}


/* ---- the arena ---------------------------------------------------------- */

static const char *
kvr_check_free(kvr_check_t *k)
{
    const char  *why;

    why = kvr_arena_check(&k->x->arena, kvr_check_nobodys, k);

    return why ? kvr_check_fail("the arena: %s", why) : k->why;
}


static void
kvr_check_nobodys(void *data, uint32_t piece, uint32_t words)
{
    const char   *why;
    kvr_check_t  *k;

    k = data;
    why = kvr_check_mark(k, piece, words, "free");

    if (k->why == NULL) {
        k->why = why;
    }
}


/* ---- handles ------------------------------------------------------------ */

static const char *
kvr_check_handles(kvr_check_t *k)
{
    uint32_t              run, view;
    uint64_t              i, slot;
    const kvr_handle_t   *e;
    const kvr_handles_t  *h;

    h = &k->x->handles;

    for (i = 0; i < h->zone->nslots; i++) {
        e = &h->slots[i];

        if (e->place == 0) {
            continue;
        }

        if (k->nplaces == h->zone->used) {
            return kvr_check_fail("more handles than the %lu counted",
                                  (unsigned long) h->zone->used);
        }

        run = kvr_place_run(e->place);
        view = kvr_place_view(e->place);

        if (view >= k->x->zone->max_views) {
            return kvr_check_fail("handle %lx is of view %u",
                                  (unsigned long) e->handle, view);
        }

        if (kvr_handles_find(h, e->handle, view, &slot) == NULL || slot != i)
        {
            return kvr_check_fail("handle %lx of view %u is not found",
                                  (unsigned long) e->handle, view);
        }

        if (!kvr_check_is_run(k, run)
            || kvr_place_offset(e->place) >= kvr_radix_run(k->x, run)->len)
        {
            return kvr_check_fail("handle %lx of view %u names no block",
                                  (unsigned long) e->handle, view);
        }

        if (kvr_place_tiers(e->place) == 0) {
            return kvr_check_fail("handle %lx of view %u has no tier",
                                  (unsigned long) e->handle, view);
        }

        k->view_handles[view]++;

        /* to be sorted by run, view, offset */

        k->places[k->nplaces++] = (uint64_t) run << 32
                                  | view << 16
                                  | kvr_place_offset(e->place) << 4
                                  | kvr_place_tiers(e->place);
    }

    if (k->nplaces != h->zone->used) {
        return kvr_check_fail("%lu handles, %lu counted",
                              (unsigned long) k->nplaces,
                              (unsigned long) h->zone->used);
    }

    return NULL;
}


/* The coverage is what the handles say. */

static const char *
kvr_check_held(kvr_check_t *k)
{
    uint32_t         t, run, view, offset;
    uint64_t         i, slot;
    const char      *why;
    kvr_expected_t  *e;

    qsort(k->places, k->nplaces, sizeof(uint64_t), kvr_check_cmp);

    e = malloc(sizeof(kvr_expected_t));
    if (e == NULL) {
        return kvr_check_fail("no memory to check the index");
    }

    why = NULL;

    for (i = 0; i < k->nplaces && why == NULL; /* void */ ) {

        run = (uint32_t) (k->places[i] >> 32);
        view = (uint32_t) k->places[i] >> 16;
        memset(e, 0, sizeof(kvr_expected_t));

        for ( /* void */ ;
             i < k->nplaces
             && k->places[i] >> 16 == ((uint64_t) run << 16 | view);
             i++)
        {
            offset = (uint32_t) k->places[i] >> 4 & 0xfff;

            for (t = 0; t < KVR_TIERS; t++) {
                e->n[t][offset] += k->places[i] >> t & 1;
            }
        }

        why = kvr_check_view(k, run, view, e);
        k->npairs[run / 8]--;
    }

    free(e);

    if (why) {
        return why;
    }

    for (slot = 0; slot < k->x->zone->nchildren; slot++) {
        run = (uint32_t) (k->x->children[slot] >> 32);

        if (run && k->npairs[run / 8]) {
            return kvr_check_fail("run %u: a view without handles has it",
                                  run);
        }
    }

    return NULL;
}


static const char *
kvr_check_view(kvr_check_t *k, uint32_t run, uint32_t view,
    const kvr_expected_t *e)
{
    uint32_t              i, t, depth, count;
    const uint16_t       *counts;
    const uint64_t       *bits;
    const kvr_run_t      *r;
    const kvr_detail_t   *d;
    const kvr_details_t  *details;

    r = kvr_radix_run(k->x, run);
    depth = kvr_cover_depth(&k->x->cover, r, view);
    d = NULL;
    bits = NULL;
    counts = NULL;

    if (depth == 0) {
        return kvr_check_fail("run %u: view %u has handles, no coverage",
                              run, view);
    }

    if (depth == KVR_COVER_DETAIL) {
        details = kvr_arena_at(&k->x->arena, r->detail);

        for (i = 0; i < details->n && details->items[i].view != view; i++) {
            /* void */
        }

        d = &details->items[i];
        bits = kvr_arena_at(&k->x->arena, d->bits);

        if (d->counts) {
            counts = kvr_arena_at(&k->x->arena, d->counts);
        }
    }

    for (t = 0; t < KVR_TIERS; t++) {
        for (i = 0; i < r->len; i++) {

            if (d == NULL) {
                count = t == KVR_DEVICE && i < depth;

            } else if (i / 64 >= d->words) {
                count = 0;

            } else {
                count = kvr_check_bit(bits + t * d->words, i);

                if (counts) {
                    count += counts[t * d->words * 64u + i];
                }
            }

            if (count != e->n[t][i]) {
                return kvr_check_fail("run %u: view %u has block %u in tier "
                                      "%u by %u handles, counted %u", run,
                                      view, i, t, e->n[t][i], count);
            }
        }
    }

    return NULL;
}


/* ---- counters ----------------------------------------------------------- */

static const char *
kvr_check_counts(kvr_check_t *k)
{
    uint32_t                 view;
    const kvr_radix_zone_t  *z;

    z = k->x->zone;

    if (z->arena.used - z->arena.lent != k->used) {
        return kvr_check_fail("%lu words are used, %lu counted",
                              (unsigned long) k->used,
                              (unsigned long) (z->arena.used
                                               - z->arena.lent));
    }

    if (z->details != k->details) {
        return kvr_check_fail("%lu details, %lu counted",
                              (unsigned long) k->details,
                              (unsigned long) z->details);
    }

    if (z->blocks != k->blocks) {
        return kvr_check_fail("%lu blocks, %lu counted",
                              (unsigned long) k->blocks,
                              (unsigned long) z->blocks);
    }

    for (view = 0; view < z->max_views; view++) {

        if (k->x->cover.view_runs[view] != k->view_runs[view]) {
            return kvr_check_fail("view %u has %u runs, %u counted", view,
                                  k->view_runs[view],
                                  k->x->cover.view_runs[view]);
        }

        if (k->x->view_handles[view] != k->view_handles[view]) {
            return kvr_check_fail("view %u has %u handles, %u counted", view,
                                  k->view_handles[view],
                                  k->x->view_handles[view]);
        }
    }

    return NULL;
}


/* ---- small things ------------------------------------------------------- */

const char *
kvr_check_mark(kvr_check_t *k, uint32_t piece, uint32_t words,
    const char *what)
{
    uint64_t  i;

    if (piece < 8 || (uint64_t) piece + words > k->x->zone->arena.bump) {
        return kvr_check_fail("%s piece %u of %u words is outside", what,
                              piece, words);
    }

    for (i = piece; i < (uint64_t) piece + words; i++) {
        if (kvr_check_bit(k->marks, i)) {
            return kvr_check_fail("%s piece %u of %u words is another's too",
                                  what, piece, words);
        }

        kvr_check_set(k->marks, i);
    }

    return NULL;
}


bool
kvr_check_is_run(const kvr_check_t *k, uint32_t run)
{
    return run < k->x->zone->arena.bump && kvr_check_bit(k->runs, run);
}


const char *
kvr_check_fail(const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    vsnprintf(kvr_check_why, sizeof(kvr_check_why), fmt, args);
    va_end(args);

    return kvr_check_why;
}


static int
kvr_check_cmp(const void *one, const void *two)
{
    uint64_t  a, b;

    a = *(const uint64_t *) one;
    b = *(const uint64_t *) two;

    return (a > b) - (a < b);
}
