/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_children.h"
#include "kvr_radix_run.h"


/* Shares of the memory, in 256ths: see the zone-size table in README. */
#define KVR_RADIX_HANDLES_SHARE   140
#define KVR_RADIX_CHILDREN_SHARE  10



typedef struct {
    uint32_t    view;
    kvr_tier_t  tier;
    uint32_t    keep;               /* a run that may be empty for now */
} kvr_radix_op_t;


static kvr_rc_t kvr_radix_hold(kvr_radix_t *x, const kvr_radix_op_t *op,
    uint32_t run, uint32_t offset, uint32_t n, const uint64_t *handles);
static kvr_rc_t kvr_radix_hold_one(kvr_radix_t *x, const kvr_radix_op_t *op,
    uint32_t run, uint32_t offset, uint64_t handle);


size_t
kvr_radix_views_size(uint32_t max_views)
{
    return ((size_t) max_views * 2 * sizeof(uint32_t) + 63) & ~(size_t) 63;
}


void
kvr_radix_format(kvr_mem_t *mem, kvr_radix_zone_t *z, uint64_t at,
    uint64_t size, uint32_t max_views, const uint64_t secret[4])
{
    uint64_t  bytes;

    memset(z, 0, sizeof(kvr_radix_zone_t));

    z->max_views = max_views;
    z->secret[0] = secret[0];
    z->secret[1] = secret[1];
    z->handles.secret[0] = secret[2];
    z->handles.secret[1] = secret[3] | 1;

    z->view_runs = at;
    z->view_handles = at + max_views * sizeof(uint32_t);
    bytes = kvr_radix_views_size(max_views);
    memset(mem->base + at, 0, bytes);
    at += bytes;
    size -= bytes;

    /* slots are numbered by 32 bits of the hash */

    bytes = size / 256 * KVR_RADIX_HANDLES_SHARE;
    z->handles.slots = at;
    z->handles.nslots = kvr_min(bytes / sizeof(kvr_handle_t), UINT32_MAX);
    z->handles.limit = z->handles.nslots / 5 * 4;
    bytes = (z->handles.nslots * sizeof(kvr_handle_t) + 63) & ~UINT64_C(63);
    at += bytes;
    size -= bytes;

    bytes = size / (256 - KVR_RADIX_HANDLES_SHARE) * KVR_RADIX_CHILDREN_SHARE;
    z->children = at;
    z->nchildren = kvr_min(bytes / sizeof(uint64_t), UINT32_MAX);
    z->children_limit = z->nchildren / 10 * 7;
    bytes = (z->nchildren * sizeof(uint64_t) + 63) & ~UINT64_C(63);
    at += bytes;
    size -= bytes;

    kvr_arena_format(&z->arena, at, size / sizeof(uint64_t));
}


void
kvr_radix_attach(kvr_radix_t *x, kvr_mem_t *mem, kvr_radix_zone_t *z)
{
    x->mem = mem;
    x->zone = z;
    x->children = (uint64_t *) (mem->base + z->children);
    x->view_handles = (uint32_t *) (mem->base + z->view_handles);

    kvr_arena_attach(&x->arena, mem, &z->arena);
    kvr_handles_attach(&x->handles, mem, &z->handles);

    x->cover.mem = mem;
    x->cover.arena = &x->arena;
    x->cover.details = &z->details;
    x->cover.view_runs = (uint32_t *) (mem->base + z->view_runs);
}


/* ---- transactions ------------------------------------------------------- */

void
kvr_radix_begin(kvr_radix_t *x)
{
    kvr_arena_settle(&x->arena);

    /* counters that change with every block are logged once, here */

    kvr_txn_log(x->mem, &x->handles.zone->used, KVR_UNDO_64,
                x->handles.zone->used);
    kvr_txn_log(x->mem, &x->zone->blocks, KVR_UNDO_64, x->zone->blocks);
}


/* ---- store -------------------------------------------------------------- */

/*
 * 1. Find where the chain begins: behind the parent, or at the root.
 * 2. While hashes are left, at (run, offset):
 *    a. as many as the run has too: hold them
 *    b. a child begins with the next: go there
 *    c. at the end of a run that can grow: append, hold
 *    d. otherwise: a new run hangs here; hold
 *    Each of these handles KVR_RADIX_CHUNK blocks at most and commits.
 */

kvr_rc_t
kvr_radix_store(kvr_radix_t *x, uint32_t view, kvr_tier_t tier,
    bool has_parent, uint64_t parent, const uint64_t *handles,
    const uint64_t *hashes, uint32_t n, uint64_t seed, uint32_t *done)
{
    bool             torn;
    uint32_t         i, k, run, child, offset;
    uint64_t         slot;
    kvr_rc_t         rc;
    kvr_run_t       *r;
    kvr_handle_t    *e;
    kvr_radix_op_t   op;

    *done = 0;
    run = 0;
    offset = 0;

    if (n) {
        /* its slot comes while the parent's is looked at */
        kvr_handles_prefetch(&x->handles, handles[0], view);
    }

    if (has_parent) {
        e = kvr_handles_find(&x->handles, parent, view, &slot);

        if (e == NULL) {
            return KVR_DECLINED;
        }

        run = kvr_place_run(e->place);
        offset = kvr_place_offset(e->place) + 1;
    }

    op.view = view;
    op.tier = tier;

    for (i = 0; i < n; /* void */ ) {

        kvr_radix_breathe(x);

        r = run ? kvr_radix_run(x, run) : NULL;
        k = 0;

        if (r && offset < r->len) {

            k = kvr_min(kvr_min(r->len - offset, n - i), KVR_RADIX_CHUNK);
            k = kvr_radix_same(x, r, offset, hashes + i, k);

            if (k && seed && r->seed == 0) {
                kvr_set64(x->mem, &r->seed, seed);
            }
        }

        if (k == 0) {

            child = r && r->nchildren == 0
                    ? 0 : kvr_children_find(x, run, offset, hashes[i], &torn);

            if (child) {
                run = child;
                offset = 0;
                continue;
            }

            k = kvr_min(n - i, KVR_RADIX_CHUNK);

            if (r && offset == r->len && offset < KVR_RUN_MAX) {
                k = kvr_min(k, KVR_RUN_MAX - offset);
                rc = kvr_radix_append(x, run, hashes + i, k);

            } else {
                rc = kvr_radix_new_run(x, run, offset, hashes + i, k,
                                       r && r->seed ? r->seed : seed, &child);
                run = child;
                offset = 0;
            }

            if (rc != KVR_OK) {
                goto full;
            }
        }

        op.keep = run;

        rc = kvr_radix_hold(x, &op, run, offset, k, handles + i);
        if (rc != KVR_OK) {
            goto full;
        }

        offset += k;
        i += k;
        *done = i;

        if (i < n) {
            kvr_txn_commit(x->mem);
            kvr_radix_begin(x);
        }
    }

    return KVR_OK;

full:

    (void) kvr_txn_rollback(x->mem);
    kvr_radix_begin(x);

    return KVR_FULL;
}


/* The view holds n blocks of a run from an offset on. */

static kvr_rc_t
kvr_radix_hold(kvr_radix_t *x, const kvr_radix_op_t *op, uint32_t run,
    uint32_t offset, uint32_t n, const uint64_t *handles)
{
    uint32_t       i, view;
    uint64_t       slot;
    kvr_rc_t       rc;
    kvr_run_t     *r;
    kvr_handle_t  *e;

    view = op->view;
    r = kvr_radix_run(x, run);
    i = 0;

    for (i = 0; i < n && i < 8; i++) {
        kvr_handles_prefetch(&x->handles, handles[i], view);
    }

    i = 0;

    if (op->tier == KVR_DEVICE
        && kvr_cover_depth(&x->cover, r, view) == offset)
    {
        /* the usual case: new handles for blocks right behind what it has */

        for ( /* void */ ; i < n; i++) {

            if (i + 8 < n) {
                kvr_handles_prefetch(&x->handles, handles[i + 8], view);
            }

            e = kvr_handles_find(&x->handles, handles[i], view, &slot);

            if (e) {
                break;
            }

            rc = kvr_handles_put(&x->handles, slot, handles[i],
                                 kvr_place(run, offset + i, 1u << KVR_DEVICE,
                                           view));
            if (rc != KVR_OK) {
                return rc;
            }
        }

        if (i) {
            rc = kvr_cover_set_depth(&x->cover, r, view, offset + i);
            if (rc != KVR_OK) {
                return rc;
            }

            kvr_set32(x->mem, &x->view_handles[view],
                      x->view_handles[view] + i);
        }
    }

    for ( /* void */ ; i < n; i++) {
        rc = kvr_radix_hold_one(x, op, run, offset + i, handles[i]);

        if (rc != KVR_OK) {
            return rc;
        }

        kvr_radix_breathe(x);
    }

    return KVR_OK;
}


static kvr_rc_t
kvr_radix_hold_one(kvr_radix_t *x, const kvr_radix_op_t *op, uint32_t run,
    uint32_t offset, uint64_t handle)
{
    uint32_t       view, tiers, old, t;
    uint64_t       slot, place;
    kvr_rc_t       rc;
    kvr_run_t     *r;
    kvr_handle_t  *e;

    view = op->view;
    r = kvr_radix_run(x, run);
    e = kvr_handles_find(&x->handles, handle, view, &slot);

    if (e == NULL) {

        rc = kvr_handles_put(&x->handles, slot, handle,
                             kvr_place(run, offset, 1u << op->tier, view));
        if (rc != KVR_OK) {
            return rc;
        }

        kvr_set32(x->mem, &x->view_handles[view], x->view_handles[view] + 1);

        return kvr_cover_add(&x->cover, r, view, offset, op->tier);
    }

    place = e->place;
    tiers = kvr_place_tiers(place);
    old = kvr_place_run(place);

    if (old == run && kvr_place_offset(place) == offset) {

        if (tiers & 1u << op->tier) {
            return KVR_OK;
        }

        kvr_set64(x->mem, &e->place,
                  kvr_place(run, offset, tiers | 1u << op->tier, view));

        return kvr_cover_add(&x->cover, r, view, offset, op->tier);
    }

    /*
     * The handle named another block: it is moved.  First it leaves: a reader
     * must not see it at both places.
     */

    kvr_set64(x->mem, &e->place,
              kvr_place(run, offset, 1u << op->tier, view));

    for (t = 0; t < KVR_TIERS; t++) {
        if (tiers & 1u << t) {
            rc = kvr_cover_del(&x->cover, kvr_radix_run(x, old), view,
                               kvr_place_offset(place), t);
            if (rc != KVR_OK) {
                return rc;
            }
        }
    }

    rc = kvr_cover_add(&x->cover, r, view, offset, op->tier);
    if (rc != KVR_OK) {
        return rc;
    }

    kvr_radix_tidy(x, old, op->keep);

    return KVR_OK;
}


kvr_rc_t
kvr_radix_add_tier(kvr_radix_t *x, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown)
{
    uint32_t         i;
    uint64_t         slot;
    kvr_rc_t         rc;
    kvr_handle_t    *e;
    kvr_radix_op_t   op;

    op.view = view;
    op.tier = tier;

    for (i = 0; i < n; i++) {

        e = kvr_handles_find(&x->handles, handles[i], view, &slot);

        if (e == NULL) {
            (*unknown)++;
            continue;
        }

        op.keep = kvr_place_run(e->place);

        rc = kvr_radix_hold_one(x, &op, op.keep, kvr_place_offset(e->place),
                                handles[i]);
        if (rc != KVR_OK) {
            (void) kvr_txn_rollback(x->mem);
            kvr_radix_begin(x);
            return rc;
        }

        kvr_radix_breathe(x);
    }

    return KVR_OK;
}


kvr_rc_t
kvr_radix_seed(const kvr_radix_t *x, uint32_t view, uint64_t handle,
    uint64_t *seed)
{
    uint64_t       slot;
    kvr_handle_t  *e;

    e = kvr_handles_find(&x->handles, handle, view, &slot);

    if (e == NULL) {
        return KVR_DECLINED;
    }

    *seed = kvr_radix_run(x, kvr_place_run(e->place))->seed;

    return KVR_OK;
}


/* ---- remove ------------------------------------------------------------- */

/*
 * Handles of one run come together as a rule, the last block first: the depth
 * of such a row is counted down here and written once (row, depth).
 */

kvr_rc_t
kvr_radix_remove(kvr_radix_t *x, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown)
{
    uint32_t       i, run, last, offset, tiers, depth, was, gone;
    uint64_t       slot, place;
    kvr_rc_t       rc;
    kvr_run_t     *r;
    kvr_handle_t  *e;

    rc = KVR_OK;
    last = 0;
    r = NULL;
    depth = 0;
    was = 0;
    gone = 0;

    for (i = 0; i < n && i < 8; i++) {
        kvr_handles_prefetch(&x->handles, handles[i], view);
    }

    for (i = 0; i < n; i++) {

        if (i + 8 < n) {
            kvr_handles_prefetch(&x->handles, handles[i + 8], view);
        }

        e = kvr_handles_find(&x->handles, handles[i], view, &slot);

        if (e == NULL || (kvr_place_tiers(e->place) & 1u << tier) == 0) {
            (*unknown)++;
            continue;
        }

        place = e->place;
        run = kvr_place_run(place);
        offset = kvr_place_offset(place);
        tiers = kvr_place_tiers(place) & ~(1u << tier);

        if (run != last || kvr_txn_room(x->mem) < KVR_RADIX_TXN_ROOM
            || kvr_arena_limbo_room(&x->arena) < KVR_RADIX_LIMBO_ROOM)
        {
            /* flush the row, then look what is left of its run */

            if (depth != was) {
                (void) kvr_cover_set_depth(&x->cover, r, view, depth);
            }

            if (gone) {
                kvr_set32(x->mem, &x->view_handles[view],
                          x->view_handles[view] - gone);
                gone = 0;
            }

            if (last && run != last) {
                kvr_radix_tidy(x, last, run);
            }

            kvr_radix_breathe(x);

            last = run;
            r = kvr_radix_run(x, run);
            depth = kvr_cover_depth(&x->cover, r, view);
            was = depth;

            /* the slot may have moved while a run was freed: look again */
            e = kvr_handles_find(&x->handles, handles[i], view, &slot);
        }

        if (tier == KVR_DEVICE && depth != KVR_COVER_DETAIL
            && offset + 1 == depth)
        {
            depth--;

        } else {

            if (depth != was) {
                (void) kvr_cover_set_depth(&x->cover, r, view, depth);
            }

            rc = kvr_cover_del(&x->cover, r, view, offset, tier);
            if (rc != KVR_OK) {
                break;
            }

            depth = kvr_cover_depth(&x->cover, r, view);
            was = depth;
        }

        if (tiers) {
            kvr_set64(x->mem, &e->place, kvr_place(run, offset, tiers, view));

        } else {
            kvr_handles_delete(&x->handles, slot);
            gone++;
        }
    }

    if (rc != KVR_OK) {
        (void) kvr_txn_rollback(x->mem);
        kvr_radix_begin(x);
        return KVR_FULL;
    }

    if (depth != was) {
        (void) kvr_cover_set_depth(&x->cover, r, view, depth);
    }

    if (gone) {
        kvr_set32(x->mem, &x->view_handles[view],
                  x->view_handles[view] - gone);
    }

    if (last) {
        kvr_radix_tidy(x, last, 0);
    }

    return KVR_OK;
}


/* ---- reclaim ------------------------------------------------------------ */

bool
kvr_radix_reclaim(kvr_radix_t *x, bool (*dying)(void *data, uint32_t v),
    void *data, uint32_t slots)
{
    bool           round, dropped;
    uint32_t       i, run, view;
    uint64_t       pos;
    kvr_run_t     *r;
    kvr_handle_t  *e;

    round = false;
    pos = x->zone->reclaim_at;

    while (slots--) {

        if (x->zone->reclaim_phase == 0) {

            if (pos >= x->zone->nchildren) {
                kvr_set32(x->mem, &x->zone->reclaim_phase, 1);
                pos = 0;
                continue;
            }

            run = (uint32_t) (x->children[pos] >> 32);

            if (run == 0) {
                pos++;
                continue;
            }

            r = kvr_radix_run(x, run);
            dropped = false;
            i = 0;

            while ((view = kvr_cover_next(&x->cover, r, &i)) != UINT32_MAX) {

                if (!dying(data, view)) {
                    i++;
                    continue;
                }

                kvr_cover_drop(&x->cover, r, view);
                kvr_radix_breathe(x);
                dropped = true;
            }

            if (dropped || (kvr_cover_empty(r) && r->nchildren == 0)) {
                /* another run may come to this slot: look at it again */
                kvr_radix_tidy(x, run, 0);

            } else {
                pos++;
            }

        } else {

            if (pos >= x->zone->handles.nslots) {
                kvr_set32(x->mem, &x->zone->reclaim_phase, 0);
                pos = 0;
                round = true;
                break;
            }

            e = &x->handles.slots[pos];

            if (e->place == 0 || !dying(data, kvr_place_view(e->place))) {
                pos++;
                continue;
            }

            view = kvr_place_view(e->place);
            kvr_handles_delete(&x->handles, pos);
            kvr_set32(x->mem, &x->view_handles[view],
                      x->view_handles[view] - 1);
        }

        kvr_radix_breathe(x);
    }

    kvr_set64(x->mem, &x->zone->reclaim_at, pos);

    return round;
}
