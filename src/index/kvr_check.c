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

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>


static const char *kvr_check_all(kvr_check_t *k);
static const char *kvr_check_runs(kvr_check_t *k);
static const char *kvr_check_free(kvr_check_t *k);
static const char *kvr_check_handles(kvr_check_t *k);
static const char *kvr_check_counts(kvr_check_t *k);


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
    k.view_owns = calloc(x->zone->max_views + 1, sizeof(uint32_t));

    if (k.marks && k.runs && k.nchildren && k.npairs && k.view_runs
        && k.view_handles && k.view_owns && k.seen)
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
    free(k.view_owns);

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

        why = kvr_check_names(k, run);
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
    uint32_t                 i, c, e, words, piece;
    const char              *why;
    const kvr_arena_zone_t  *z;

    z = &k->x->zone->arena;

    for (c = 0; c < KVR_ARENA_CLASSES; c++) {

        if (c == KVR_ARENA_RUN) {
            words = KVR_ARENA_RUN_WORDS;

        } else if (c < 3) {
            words = 2u << c;

        } else {
            e = 3 + (c - 3) / 4;
            words = (1u << e) + ((c - 3) % 4 + 1) * (1u << (e - 2));
        }

        for (piece = z->free[c]; piece; /* void */ ) {
            why = kvr_check_mark(k, piece, words, "free");
            if (why) {
                return why;
            }

            piece = (uint32_t)
                    k->x->arena.words[piece + (c == KVR_ARENA_RUN
                                               ? KVR_ARENA_RUN_WORDS - 1
                                               : 0)];
        }

        for (i = 0; i < z->nlimbo; i++) {
            if (z->limbo[i] >> 32 == c) {
                why = kvr_check_mark(k, (uint32_t) z->limbo[i], words,
                                     "limbo");
                if (why) {
                    return why;
                }
            }
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
