/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The invariants of a run's names.
 */


#include "kvr_check_run.h"
#include "radix/kvr_handles.h"


static const char *kvr_check_view(kvr_check_t *k, uint32_t run,
    uint32_t view);
static const char *kvr_check_owns(kvr_check_t *k, uint32_t run);
static const char *kvr_check_own(kvr_check_t *k, uint32_t run,
    const kvr_own_t *o);
static const char *kvr_check_entry(kvr_check_t *k, uint32_t run,
    uint32_t offset, uint64_t handle, uint32_t space);
static const char *kvr_check_own_blocks(kvr_check_t *k, uint32_t run,
    const kvr_own_t *o);


const char *
kvr_check_run_handles(kvr_check_t *k, uint32_t run)
{
    uint32_t     i, view;
    kvr_run_t   *r;
    const char  *why;

    r = kvr_radix_run(k->x, run);

    if (r->nhandles > r->len) {
        return kvr_check_fail("run %u: %u handles of %u blocks", run,
                              r->nhandles, r->len);
    }

    why = kvr_check_pages(k, run, kvr_run_handles(r), r->nhandles, "handles");
    if (why) {
        return why;
    }

    for (i = 0; i < r->nhandles; i++) {
        why = kvr_check_entry(k, run, i, *kvr_handles_at(k->x, r, i),
                              KVR_SPACE_SHARED);
        if (why) {
            return why;
        }
    }

    why = kvr_check_owns(k, run);
    if (why) {
        return why;
    }

    for (i = 0; (view = kvr_pairs_next(&k->x->cover, r, &i)) != UINT32_MAX;
         i++)
    {
        why = kvr_check_view(k, run, view);
        if (why) {
            return why;
        }
    }

    return NULL;
}


/* The entry is there, and is the only one. */

static const char *
kvr_check_entry(kvr_check_t *k, uint32_t run, uint32_t offset,
    uint64_t handle, uint32_t space)
{
    bool                other;
    uint32_t            n;
    uint64_t            word;
    const kvr_run_t    *r;
    kvr_handle_walk_t   w;

    kvr_handle_walk(&k->x->handles,
                    kvr_handle_key(&k->x->handles, handle, space), &w);
    n = 0;
    other = false;

    while ((word = kvr_handle_next(&k->x->handles, &w))) {

        if (kvr_handle_run(word) == run && kvr_handle_offset(word) == offset) {
            n++;
            k->lines += 1 + w.hops;

        } else {
            r = kvr_radix_run(k->x, kvr_handle_run(word));
            other = other
                    || (kvr_handle_offset(word) < r->nhandles
                        && *kvr_handles_at(k->x, r, kvr_handle_offset(word))
                           == handle);
        }
    }

    if (n != 1) {
        return kvr_check_fail("run %u: name %lx of block %u has %u entries",
                              run, (unsigned long) handle, offset, n);
    }

    if (other && space == KVR_SPACE_SHARED
        && !kvr_radix_run(k->x, run)->contested)
    {
        return kvr_check_fail("run %u: name %lx of block %u is contested",
                              run, (unsigned long) handle, offset);
    }

    k->entries++;

    return NULL;
}


/* One view: what it holds by names is what it holds. */

static const char *
kvr_check_view(kvr_check_t *k, uint32_t run, uint32_t view)
{
    bool              own;
    uint32_t          i, pair, held;
    kvr_own_t        *o;
    kvr_handle_ref_t  name;
    const kvr_run_t  *r;

    r = kvr_radix_run(k->x, run);
    pair = kvr_pairs_get(&k->x->cover, r, view);
    own = pair & KVR_COVER_OWN;
    o = kvr_own_find(k->x, r, view);

    if (own != (o != NULL)) {
        return kvr_check_fail("run %u: view %u %s own names", run, view,
                              own ? "lacks its" : "has unasked");
    }

    if (o) {
        k->view_handles[view] += o->n;
        k->view_owns[view] += o->n;
        k->pairs += o->n;

        return kvr_check_own_blocks(k, run, o);
    }

    held = kvr_cover_held(&k->x->cover, r, view);
    k->view_handles[view] += held;
    k->pairs += held;

    for (i = 0; i < r->len; i++) {

        if (kvr_cover_tiers(&k->x->cover, r, view, i) == 0) {
            continue;
        }

        if (i >= r->nhandles) {
            return kvr_check_fail("run %u: view %u has block %u, which has no "
                                  "name", run, view, i);
        }

        if (!kvr_handles_find(k->x, view, *kvr_handles_at(k->x, r, i), &name)
            || name.run != run || name.offset != i)
        {
            return kvr_check_fail("run %u: view %u knows block %u as another",
                                  run, view, i);
        }
    }

    return NULL;
}


static const char *
kvr_check_owns(kvr_check_t *k, uint32_t run)
{
    uint32_t           i;
    const char        *why;
    const kvr_run_t   *r;
    const kvr_owns_t  *owns;

    r = kvr_radix_run(k->x, run);

    if (r->owns == 0) {
        return NULL;
    }

    owns = kvr_arena_at(&k->x->arena, r->owns);
    why = kvr_check_alloc(&k->pieces, r->owns, kvr_owns_words(owns->cap),
                          "own names", &k->used);
    if (why) {
        return why;
    }

    if (owns->n == 0 || owns->n > owns->cap) {
        return kvr_check_fail("run %u: %u lists of own names, room %u", run,
                              owns->n, owns->cap);
    }

    for (i = 0; i < owns->n; i++) {

        why = kvr_check_own(k, run, &owns->items[i]);
        if (why) {
            return why;
        }
    }

    return NULL;
}


static const char *
kvr_check_own(kvr_check_t *k, uint32_t run, const kvr_own_t *o)
{
    uint32_t          i, cost;
    uint64_t          lines;
    const char       *why;
    const kvr_run_t  *r;

    r = kvr_radix_run(k->x, run);

    if (o->n == 0 || o->n > o->cap || o->cap % 4
        || kvr_own_find(k->x, r, o->view) != o
        || (kvr_pairs_get(&k->x->cover, r, o->view) & KVR_COVER_OWN) == 0)
    {
        return kvr_check_fail("run %u: view %u has %u own names, room %u",
                              run, o->view, o->n, o->cap);
    }

    why = kvr_check_alloc(&k->pieces, o->piece, kvr_own_words(o->cap),
                          "own names", &k->used);
    if (why) {
        return why;
    }

    lines = k->lines;

    for (i = 0; i < o->n; i++) {
        why = kvr_check_entry(k, run, kvr_own_offset(kvr_own_blocks(k->x,
                                                                    o)[i]),
                              kvr_own_handles(k->x, o)[i],
                              KVR_SPACE_OWN(o->view));
        if (why) {
            return why;
        }
    }

    cost = (uint32_t) (k->lines - lines);

    if (o->cost != cost || o->cost > KVR_OWN_COST) {
        return kvr_check_fail("run %u: view %u: own names in %u lines, %u "
                              "counted", run, o->view, cost, o->cost);
    }

    return NULL;
}


/* The coverage counts these very names. */

static const char *
kvr_check_own_blocks(kvr_check_t *k, uint32_t run, const kvr_own_t *o)
{
    uint32_t              i, j, t, n, depth, count;
    const uint16_t       *counts;
    const uint64_t       *bits;
    const kvr_run_t      *r;
    const kvr_detail_t   *d;
    const kvr_details_t  *details;

    r = kvr_radix_run(k->x, run);
    depth = kvr_pairs_depth(&k->x->cover, r, o->view);
    d = NULL;
    bits = NULL;
    counts = NULL;

    if (depth == KVR_COVER_DETAIL) {
        details = kvr_arena_at(&k->x->arena, r->detail);

        for (i = 0; details->items[i].view != o->view; i++) { /* void */ }

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

            n = 0;

            for (j = 0; j < o->n; j++) {
                n += kvr_own_offset(kvr_own_blocks(k->x, o)[j]) == i
                     && kvr_own_tiers(kvr_own_blocks(k->x, o)[j]) >> t & 1;
            }

            if (n != count) {
                return kvr_check_fail("run %u: view %u has block %u in tier "
                                      "%u by %u handles, counted %u", run,
                                      o->view, i, t, n, count);
            }
        }
    }

    return NULL;
}
