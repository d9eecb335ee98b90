/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_links.h"


/* Counts one child more, or less, in each of a set of rows. */
#define kvr_kids(rows)                                                        \
    ((uint64_t) ((rows) & 1) | (uint64_t) ((rows) >> 1 & 1) << KVR_KIDS_BITS  \
     | (uint64_t) ((rows) >> 2 & 1) << 2 * KVR_KIDS_BITS)


static kvr_rc_t kvr_links_add(kvr_positional_t *x, uint32_t view,
    uint32_t parent, uint32_t rows);
static void kvr_links_delete(kvr_positional_t *x, uint32_t view,
    uint32_t parent, uint32_t rows);
static uint32_t kvr_links_sum(uint64_t kids, uint32_t rows);


kvr_rc_t
kvr_links_gain(kvr_positional_t *x, uint32_t view, uint32_t block,
    uint64_t handle, uint32_t tiers)
{
    uint32_t          rows, whole;
    kvr_rc_t          rc;
    kvr_block_t      *b;
    kvr_block_view_t  v;

    b = kvr_block_at(&x->arena, block);
    kvr_block_look(&x->arena, b, view, handle, &v);

    rows = kvr_block_rows(v.tiers | tiers)
           & ~kvr_block_rows(v.tiers | v.own);

    if (rows && b->parent) {
        rc = kvr_links_add(x, view, b->parent, rows);
        if (rc != KVR_OK) {
            return rc;
        }
    }

    if (v.record == UINT32_MAX) {
        rc = kvr_block_add(&x->arena, b, kvr_mark(tiers, view), handle);
        if (rc != KVR_OK) {
            return rc;
        }

    } else {
        kvr_block_mark(&x->arena, b, v.record, kvr_mark(tiers, view));
    }

    if (rows && v.kids != UINT32_MAX) {
        whole = kvr_links_sum(kvr_block_values(&x->arena, b)[v.kids], rows);
        kvr_links_set_broken(x, view, x->view_broken[view] - whole);
    }

    return KVR_OK;
}


void
kvr_links_lose(kvr_positional_t *x, uint32_t view, uint32_t block,
    uint64_t handle, uint32_t tiers)
{
    uint32_t          rows, broken;
    kvr_block_t      *b;
    kvr_block_view_t  v;

    b = kvr_block_at(&x->arena, block);
    kvr_block_look(&x->arena, b, view, handle, &v);

    rows = kvr_block_rows(v.tiers | v.own)
           & ~kvr_block_rows(v.tiers | tiers);

    if (rows && v.kids != UINT32_MAX) {
        broken = kvr_links_sum(kvr_block_values(&x->arena, b)[v.kids], rows);
        kvr_links_set_broken(x, view, x->view_broken[view] + broken);
    }

    if (tiers) {
        kvr_block_mark(&x->arena, b, v.record, kvr_mark(tiers, view));

    } else {
        kvr_block_delete(&x->arena, b, v.record);
    }

    if (rows && b->parent) {
        kvr_links_delete(x, view, b->parent, rows);
    }
}


/*
 * Counts a child of this block, which the view holds in these rows from now
 * on; KVR_FULL.
 */

static kvr_rc_t
kvr_links_add(kvr_positional_t *x, uint32_t view, uint32_t parent,
    uint32_t rows)
{
    uint32_t          broken;
    uint64_t         *kids;
    kvr_block_t      *b;
    kvr_block_view_t  v;

    b = kvr_block_at(&x->arena, parent);
    kvr_block_look(&x->arena, b, view, 0, &v);

    broken = (uint32_t) __builtin_popcount(rows & ~kvr_block_rows(v.tiers
                                                                  | v.own));
    if (broken) {
        kvr_links_set_broken(x, view, x->view_broken[view] + broken);
    }

    if (v.kids == UINT32_MAX) {
        return kvr_block_add(&x->arena, b, kvr_mark(0, view), kvr_kids(rows));
    }

    /* row 2 has the largest count: check the maximum there */

    kids = &kvr_block_values(&x->arena, b)[v.kids];

    if (*kids >> 2 * KVR_KIDS_BITS == KVR_KIDS_MAX) {
        return KVR_INVALID;
    }

    kvr_set64(x->mem, kids, *kids + kvr_kids(rows));

    return KVR_OK;
}


/*
 * Takes a child, which the view no longer holds in these rows, from the count.
 */

static void
kvr_links_delete(kvr_positional_t *x, uint32_t view, uint32_t parent,
    uint32_t rows)
{
    uint32_t          whole;
    uint64_t         *kids;
    kvr_block_t      *b;
    kvr_block_view_t  v;

    b = kvr_block_at(&x->arena, parent);
    kvr_block_look(&x->arena, b, view, 0, &v);

    kids = &kvr_block_values(&x->arena, b)[v.kids];

    if (*kids == kvr_kids(rows)) {
        kvr_block_delete(&x->arena, b, v.kids);

    } else {
        kvr_set64(x->mem, kids, *kids - kvr_kids(rows));
    }

    whole = (uint32_t) __builtin_popcount(rows & ~kvr_block_rows(v.tiers
                                                                 | v.own));
    if (whole) {
        kvr_links_set_broken(x, view, x->view_broken[view] - whole);
    }
}


/* The number of children in these rows, added up. */

static uint32_t
kvr_links_sum(uint64_t kids, uint32_t rows)
{
    uint32_t  t, sum;

    sum = 0;

    for (t = 0; t < 3; t++) {
        if (rows >> t & 1) {
            sum += kids >> t * KVR_KIDS_BITS & KVR_KIDS_MAX;
        }
    }

    return sum;
}


/*
 * Sets the number of broken links; readers use only whether it is 0, hidden,
 * or another number.
 */

void
kvr_links_set_broken(kvr_positional_t *x, uint32_t view, uint32_t broken)
{
    uint32_t  was;

    was = x->view_broken[view];

    if (was && broken && (was ^ broken) < KVR_BROKEN_HIDDEN) {
        kvr_set32(x->mem, &x->view_broken[view], broken);
        return;
    }

    kvr_version_lock(x->mem, &x->zone->broken_version);

    kvr_set32(x->mem, &x->view_broken[view], broken);
    kvr_set32(x->mem, &x->zone->nbroken,
              x->zone->nbroken + (broken != 0) - (was != 0));

    kvr_version_unlock(&x->zone->broken_version);
}
