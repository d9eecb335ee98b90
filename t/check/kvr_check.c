/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The invariants of the radix index, for tests and for the doubtful.
 *
 * One pass over the children's table looks at each run with all it owns and
 * marks its words; the free lists and limbo must mark others.  Each name must
 * have its entry in the table of handles, which must have no others.
 */


#include "kvr_check.h"
#include "kvr_check_run.h"

#include <stdlib.h>


static const char *kvr_check_all(kvr_check_t *k);
static const char *kvr_check_runs(kvr_check_t *k);
static const char *kvr_check_roots(const kvr_check_t *k);
static const char *kvr_check_handles(kvr_check_t *k);
static const char *kvr_check_counts(kvr_check_t *k);


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
    k.runs = calloc(words / 64 + 1, sizeof(uint64_t));
    k.nchildren = calloc(words / 8 + 1, sizeof(uint32_t));
    k.npairs = calloc(words / 8 + 1, sizeof(uint32_t));
    k.roots = calloc(x->zone->nroots, sizeof(uint32_t));
    k.view_runs = calloc(x->zone->max_views + 1, sizeof(uint32_t));
    k.view_handles = calloc(x->zone->max_views + 1, sizeof(uint32_t));
    k.seen = calloc(x->zone->max_views + 1, sizeof(uint32_t));
    k.view_owns = calloc(x->zone->max_views + 1, sizeof(uint32_t));

    if (kvr_check_open(&k.pieces, &x->arena) && k.runs && k.nchildren
        && k.npairs && k.roots && k.view_runs && k.view_handles
        && k.view_owns && k.seen)
    {
        why = kvr_check_all(&k);

    } else {
        why = kvr_check_fail("no memory to check the index");
    }

    kvr_check_close(&k.pieces);
    free(k.runs);
    free(k.nchildren);
    free(k.npairs);
    free(k.roots);
    free(k.view_runs);
    free(k.view_handles);
    free(k.seen);
    free(k.view_owns);

    return why;
}


static const char *
kvr_check_all(kvr_check_t *k)
{
    const char  *why;

    why = kvr_check_runs(k);

    if (why == NULL) {
        why = kvr_check_roots(k);
    }

    if (why == NULL) {
        why = kvr_check_free(&k->pieces);
    }

    if (why == NULL) {
        why = kvr_check_handles(k);
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

        if (kvr_check_bit(x->occupied, i) != (x->children[i] != 0)) {
            return kvr_check_fail("slot %lu of the children is not what its "
                                  "bit says", (unsigned long) i);
        }

        if (x->children[i] == 0) {
            continue;
        }

        run = (uint32_t) (x->children[i] >> 32);
        n++;

        if (run % 8) {
            return kvr_check_fail("run %u is not aligned", run);
        }

        why = kvr_check_piece(&k->pieces, run, KVR_ARENA_RUN_WORDS, "run");
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

        why = kvr_check_run_handles(k, run);
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

        if (k->nchildren[run / 8] == 0 && k->npairs[run / 8] == 0
            && run != x->zone->freeing)
        {
            return kvr_check_fail("run %u is nobody's and a leaf", run);
        }
    }

    return NULL;
}


/* The filter of the root's children: no count but theirs. */

static const char *
kvr_check_roots(const kvr_check_t *k)
{
    uint32_t            count;
    uint64_t            i;
    const kvr_radix_t  *x;

    x = k->x;

    for (i = 0; i < x->zone->nroots; i++) {

        count = x->root_counts[i];

        if (count != k->roots[i] && count != UINT16_MAX) {
            return kvr_check_fail("cell %lu of the roots: %u, %u counted",
                                  (unsigned long) i, k->roots[i], count);
        }

        if (kvr_check_bit(x->root_bits, i) != (count != 0)) {
            return kvr_check_fail("cell %lu of the roots is not what its bit "
                                  "says", (unsigned long) i);
        }
    }

    return NULL;
}


/* ---- handles ------------------------------------------------------------ */

static const char *
kvr_check_handles(kvr_check_t *k)
{
    uint32_t                    i;
    uint64_t                    n, line;
    const kvr_handle_table_t   *t;

    t = &k->x->handles;
    n = 0;

    for (line = 0; line < t->zone->nlines; line++) {
        for (i = 0; i < KVR_HANDLE_SLOTS; i++) {
            n += t->lines[line].slots[i] != 0;
        }
    }

    if (n != t->zone->used || n != k->entries) {
        return kvr_check_fail("%lu handles, %lu counted, %lu names",
                              (unsigned long) n,
                              (unsigned long) t->zone->used,
                              (unsigned long) k->entries);
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

    if (z->pairs != k->pairs) {
        return kvr_check_fail("%lu pairs, %lu counted",
                              (unsigned long) k->pairs,
                              (unsigned long) z->pairs);
    }

    for (view = 0; view < z->max_views; view++) {

        if (k->x->cover.view_runs[view] != k->view_runs[view]) {
            return kvr_check_fail("view %u has %u runs, %u counted", view,
                                  k->view_runs[view],
                                  k->x->cover.view_runs[view]);
        }

        if (k->x->view_owns[view] != k->view_owns[view]) {
            return kvr_check_fail("view %u has %u own names, %u counted",
                                  view, k->view_owns[view],
                                  k->x->view_owns[view]);
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

bool
kvr_check_is_run(const kvr_check_t *k, uint32_t run)
{
    return run < k->x->zone->arena.bump && kvr_check_bit(k->runs, run);
}
