/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The invariants of one run: its place, its hashes, its coverage.
 */


#include "kvr_check_run.h"
#include "radix/kvr_children.h"
#include "radix/kvr_radix_words.h"


static const char *kvr_check_cover(kvr_check_t *k, uint32_t run,
    const kvr_run_t *r);
static const char *kvr_check_details(kvr_check_t *k, uint32_t run,
    const kvr_run_t *r, uint32_t expected);
static const char *kvr_check_detail(kvr_check_t *k, uint32_t run,
    const kvr_run_t *r, const kvr_detail_t *d);


/* Where it hangs, and that it is found there. */

const char *
kvr_check_place(kvr_check_t *k, uint32_t run)
{
    bool                torn;
    uint32_t            parent;
    uint64_t            key, steps;
    const kvr_run_t    *r, *up;
    const kvr_radix_t  *x;

    x = k->x;
    r = kvr_radix_run(x, run);

    if (r->version & 1) {
        return kvr_check_fail("run %u: its version is odd", run);
    }

    if (r->len == 0 || r->len > KVR_RUN_MAX) {
        return kvr_check_fail("run %u: len %u", run, r->len);
    }

    if (r->parent == 0) {
        if (r->offset) {
            return kvr_check_fail("run %u: offset %u of the root", run,
                                  r->offset);
        }

        key = kvr_children_key(x, 0, 0, r->hashes[0]);
        k->roots[kvr_roots_cell(x, key)]++;

    } else {

        if (!kvr_check_is_run(k, r->parent)) {
            return kvr_check_fail("run %u: its parent %u is no run", run,
                                  r->parent);
        }

        up = kvr_radix_run(x, r->parent);

        if (r->offset == 0 || r->offset > up->len) {
            return kvr_check_fail("run %u: offset %u of a run of %u", run,
                                  r->offset, up->len);
        }

        if (r->offset == up->len) {
            if (up->len != KVR_RUN_MAX) {
                return kvr_check_fail("run %u hangs where its parent %u "
                                      "could have grown", run, r->parent);
            }

        } else if (kvr_radix_hash(x, up, r->offset) == r->hashes[0]) {
            return kvr_check_fail("run %u doubles a block of its parent %u",
                                  run, r->parent);
        }

        k->nchildren[r->parent / 8]++;
    }

    if (kvr_children_find(x, r->parent, r->offset, r->hashes[0], &torn)
        != run)
    {
        return kvr_check_fail("run %u is not found in its place", run);
    }

    steps = 0;

    for (parent = r->parent; parent; parent = kvr_radix_run(x, parent)->parent)
    {
        if (!kvr_check_is_run(k, parent)
            || steps++ > x->zone->children_used)
        {
            return kvr_check_fail("run %u does not hang on the root", run);
        }
    }

    if (r->next) {
        if (!kvr_check_is_run(k, r->next)
            || kvr_radix_run(x, r->next)->parent != run)
        {
            return kvr_check_fail("run %u: wrong next %u", run, r->next);
        }
    }

    return NULL;
}


const char *
kvr_check_run(kvr_check_t *k, uint32_t run)
{
    kvr_run_t   *r;
    const char  *why;

    r = kvr_radix_run(k->x, run);
    k->blocks += r->len;

    why = kvr_check_pages(k, run, kvr_run_pages(r), kvr_run_paged(r->len),
                          "hashes");
    if (why) {
        return why;
    }

    return kvr_check_cover(k, run, r);
}


const char *
kvr_check_pages(kvr_check_t *k, uint32_t run, kvr_pages_t p,
    uint32_t n, const char *what)
{
    uint32_t     i, words;
    const char  *why;

    if (*p.tail > p.page || (n ? *p.tail < (n - 1) % p.page + 1 : *p.tail)) {
        return kvr_check_fail("run %u: %u %s end in %u words", run, n, what,
                              *p.tail);
    }

    for (i = 0; i < kvr_pages_number(p, n); i++) {

        words = i + 1 < kvr_pages_number(p, n) ? p.page : *p.tail;
        why = kvr_check_alloc(&k->pieces, p.pieces[i], words, what, &k->used);
        if (why) {
            return why;
        }
    }

    return NULL;
}


static const char *
kvr_check_cover(kvr_check_t *k, uint32_t run, const kvr_run_t *r)
{
    bool               dense;
    uint32_t           i, n, view, depth, ndetails;
    const char        *why;
    const uint16_t    *depths;
    const kvr_pair_t  *pairs;

    dense = r->npairs == KVR_COVER_DENSE;
    ndetails = 0;
    depths = NULL;
    pairs = r->cover.pairs;

    if (r->cap) {
        why = kvr_check_alloc(&k->pieces, r->cover.ext,
                              dense ? r->cap * 16u : r->cap / 2u, "coverage",
                              &k->used);
        if (why) {
            return why;
        }
        depths = kvr_arena_at(&k->x->arena, r->cover.ext);
        pairs = kvr_arena_at(&k->x->arena, r->cover.ext);
    }

    if (dense ? r->cap == 0
              : r->npairs > (r->cap ? r->cap : KVR_COVER_INLINE))
    {
        return kvr_check_fail("run %u: %u pairs, room %u", run, r->npairs,
                              r->cap);
    }

    n = dense ? r->cap * 64u : r->npairs;

    for (i = 0; i < n; i++) {
        view = dense ? i : pairs[i].view;
        depth = dense ? depths[i] : pairs[i].depth;

        if (dense && depth == 0) {
            continue;
        }

        if (view >= k->x->zone->max_views) {
            return kvr_check_fail("run %u: view %u", run, view);
        }

        if (k->seen[view] == run) {
            return kvr_check_fail("run %u: view %u is there twice", run,
                                  view);
        }

        k->seen[view] = run;

        depth = kvr_cover_plain(depth);

        if (depth == KVR_COVER_DETAIL) {
            ndetails++;

        } else if (depth == 0 || depth > r->len) {
            return kvr_check_fail("run %u: view %u has depth %u of %u", run,
                                  view, depth, r->len);
        }

        k->npairs[run / 8]++;
        k->view_runs[view]++;
    }

    if (k->npairs[run / 8] == 0 && (r->cap || r->npairs)) {
        return kvr_check_fail("run %u: nobody has it, and its coverage is "
                              "there yet", run);
    }

    return kvr_check_details(k, run, r, ndetails);
}


static const char *
kvr_check_details(kvr_check_t *k, uint32_t run, const kvr_run_t *r,
    uint32_t expected)
{
    uint32_t              i, j;
    const char           *why;
    const kvr_details_t  *details;

    if (r->detail == 0) {
        return expected == 0
               ? NULL : kvr_check_fail("run %u: details are missing", run);
    }

    why = kvr_check_alloc(&k->pieces, r->detail, kvr_details_words(1),
                          "details", &k->used);
    if (why) {
        return why;
    }

    details = kvr_arena_at(&k->x->arena, r->detail);

    if (details->n == 0 || details->n > details->cap
        || details->n != expected
        || kvr_details_words(details->cap)
           > kvr_arena_size(&k->x->arena, r->detail))
    {
        return kvr_check_fail("run %u: %u details, room %u, should be %u",
                              run, details->n, details->cap, expected);
    }

    for (i = 0; i < details->n; i++) {

        for (j = 0; j < i; j++) {
            if (details->items[i].view == details->items[j].view) {
                return kvr_check_fail("run %u: view %u has two details", run,
                                      details->items[i].view);
            }
        }

        why = kvr_check_detail(k, run, r, &details->items[i]);
        if (why) {
            return why;
        }
    }

    return NULL;
}


static const char *
kvr_check_detail(kvr_check_t *k, uint32_t run, const kvr_run_t *r,
    const kvr_detail_t *d)
{
    bool             bit, has;
    uint32_t         i, t, rows, n, ones, other, depth[3];
    const char      *why;
    const uint16_t  *counts;
    const uint64_t  *bits;

    if (kvr_pairs_depth(&k->x->cover, r, d->view) != KVR_COVER_DETAIL) {
        return kvr_check_fail("run %u: view %u has a detail unasked", run,
                              d->view);
    }

    if (d->words == 0 || d->words > (KVR_RUN_MAX + 63) / 64) {
        return kvr_check_fail("run %u: view %u has rows of %u words", run,
                              d->view, d->words);
    }

    why = kvr_check_alloc(&k->pieces, d->bits, d->words * KVR_TIERS, "bits",
                          &k->used);
    if (why) {
        return why;
    }
    bits = kvr_arena_at(&k->x->arena, d->bits);
    counts = NULL;

    if (d->counts) {
        why = kvr_check_alloc(&k->pieces, d->counts,
                              d->words * KVR_TIERS * 16u, "counts", &k->used);
        if (why) {
            return why;
        }
        counts = kvr_arena_at(&k->x->arena, d->counts);
    }

    n = 0;
    ones = 0;
    other = 0;

    for (t = 0; t < KVR_TIERS; t++) {
        for (i = 0; i < d->words * 64u; i++) {
            bit = kvr_check_bit(bits + t * d->words, i);

            if (bit && i >= r->len) {
                return kvr_check_fail("run %u: view %u has block %u of %u",
                                      run, d->view, i, r->len);
            }

            *(t == KVR_DEVICE ? &ones : &other) += bit;

            if (counts && counts[t * d->words * 64u + i]) {
                n++;

                if (!bit) {
                    return kvr_check_fail("run %u: view %u counts block %u, "
                                          "which it has not", run, d->view,
                                          i);
                }
            }
        }
    }

    k->details++;

    if (n != d->counted) {
        return kvr_check_fail("run %u: view %u has %u counts, %u counted",
                              run, d->view, n, d->counted);
    }

    for (rows = 1; rows <= 3; rows++) {
        for (i = 0; i < d->words * 64u; i++) {
            has = false;

            for (t = 0; t < rows; t++) {
                has = has || kvr_check_bit(bits + t * d->words, i);
            }

            if (!has) {
                break;
            }
        }

        depth[rows - 1] = i;

        if (d->depth[rows - 1] != i) {
            return kvr_check_fail("run %u: view %u has depth[%u] %u, should "
                                  "be %u", run, d->view, rows - 1,
                                  d->depth[rows - 1], i);
        }
    }

    if (ones + other == 0) {
        return kvr_check_fail("run %u: view %u has an empty detail", run,
                              d->view);
    }

    if (other == 0 && ones == depth[0] && n == 0) {
        return kvr_check_fail("run %u: view %u needs no detail", run,
                              d->view);
    }

    return NULL;
}
