/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_children.h"


/* Shares of the memory, in 256ths: see the zone-size table in README. */
#define KVR_RADIX_HANDLES_SHARE   140
#define KVR_RADIX_CHILDREN_SHARE  10

/* Room that one step needs: the longest cluster moved, a hole written. */
#define KVR_RADIX_TXN_ROOM        4096
#define KVR_RADIX_LIMBO_ROOM      64


typedef struct {
    uint32_t    view;
    kvr_tier_t  tier;
    uint32_t    keep;               /* a run that may be empty for now */
} kvr_radix_op_t;


static void kvr_radix_breathe(kvr_radix_t *x);
static kvr_rc_t kvr_radix_hold(kvr_radix_t *x, const kvr_radix_op_t *op,
    uint32_t run, uint32_t offset, uint32_t n, const uint64_t *handles);
static kvr_rc_t kvr_radix_hold_one(kvr_radix_t *x, const kvr_radix_op_t *op,
    uint32_t run, uint32_t offset, uint64_t handle);
static kvr_rc_t kvr_radix_append(kvr_radix_t *x, uint32_t run,
    const uint64_t *hashes, uint32_t n);
static kvr_rc_t kvr_radix_new_run(kvr_radix_t *x, uint32_t parent,
    uint32_t offset, const uint64_t *hashes, uint32_t n, uint64_t seed,
    uint32_t *run);
static void kvr_radix_trim(kvr_radix_t *x, kvr_run_t *r, uint32_t len);
static void kvr_radix_tidy(kvr_radix_t *x, uint32_t run, uint32_t keep);
static uint32_t kvr_radix_same(const kvr_radix_t *x, const kvr_run_t *r,
    uint32_t offset, const uint64_t *hashes, uint32_t n);


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


/* Between two steps: commits when another would not fit. */

static void
kvr_radix_breathe(kvr_radix_t *x)
{
    if (kvr_txn_room(x->mem) < KVR_RADIX_TXN_ROOM
        || kvr_arena_limbo_room(&x->arena) < KVR_RADIX_LIMBO_ROOM)
    {
        kvr_txn_commit(x->mem);
        kvr_radix_begin(x);
    }
}


/* ---- hashes ------------------------------------------------------------- */

uint64_t
kvr_radix_hash(const kvr_radix_t *x, const kvr_run_t *run, uint32_t offset)
{
    const uint64_t  *page;

    if (offset < KVR_RUN_INLINE) {
        return run->hashes[offset];
    }

    offset -= KVR_RUN_INLINE;
    page = kvr_arena_at(&x->arena, run->pages[offset / KVR_RUN_PAGE]);

    return page[offset % KVR_RUN_PAGE];
}


/* How many of n hashes are the run's, from an offset on; n fits. */

static uint32_t
kvr_radix_same(const kvr_radix_t *x, const kvr_run_t *r, uint32_t offset,
    const uint64_t *hashes, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        if (kvr_radix_hash(x, r, offset + i) != hashes[i]) {
            break;
        }
    }

    return i;
}


/* Readers see the new length last. */

static kvr_rc_t
kvr_radix_append(kvr_radix_t *x, uint32_t run, const uint64_t *hashes,
    uint32_t n)
{
    uint32_t    i, k, p, len, piece, pages[KVR_RUN_PAGES];
    uint64_t   *page;
    kvr_run_t  *r;

    r = kvr_radix_run(x, run);
    len = r->len;

    for (p = kvr_run_npages(len); p < kvr_run_npages(len + n); p++) {
        pages[p] = kvr_arena_alloc(&x->arena, KVR_RUN_PAGE);

        if (pages[p] == 0) {
            return KVR_FULL;
        }
    }

    kvr_version_lock(x->mem, &r->version);

    for (p = kvr_run_npages(len); p < kvr_run_npages(len + n); p++) {
        kvr_set32(x->mem, &r->pages[p], pages[p]);
    }

    for (i = 0; i < n; /* void */ ) {
        p = len + i;

        if (p < KVR_RUN_INLINE) {
            k = kvr_min(KVR_RUN_INLINE - p, n - i);
            memcpy(&r->hashes[p], hashes + i, k * sizeof(uint64_t));

        } else {
            p -= KVR_RUN_INLINE;
            piece = r->pages[p / KVR_RUN_PAGE];
            page = kvr_arena_at(&x->arena, piece);
            p %= KVR_RUN_PAGE;
            k = kvr_min(KVR_RUN_PAGE - p, n - i);
            memcpy(page + p, hashes + i, k * sizeof(uint64_t));
        }

        i += k;
    }

    kvr_set16(x->mem, &r->len, len + n);
    kvr_version_unlock(&r->version);

    x->zone->blocks += n;

    return KVR_OK;
}


static kvr_rc_t
kvr_radix_new_run(kvr_radix_t *x, uint32_t parent, uint32_t offset,
    const uint64_t *hashes, uint32_t n, uint64_t seed, uint32_t *run)
{
    kvr_rc_t    rc;
    kvr_run_t  *r, *up;

    *run = kvr_arena_alloc_run(&x->arena);
    if (*run == 0) {
        return KVR_FULL;
    }

    r = kvr_radix_run(x, *run);

    /* a version is even at rest, whatever the memory held at first */

    if (r->version & 1) {
        kvr_version_unlock(&r->version);
    }

    kvr_version_lock(x->mem, &r->version);

    r->parent = parent;
    r->offset = offset;
    r->len = 0;
    r->npairs = 0;
    r->cap = 0;
    r->detail = 0;
    r->nchildren = 0;
    r->next = 0;
    r->seed = seed;

    kvr_version_unlock(&r->version);

    rc = kvr_radix_append(x, *run, hashes, n);
    if (rc != KVR_OK) {
        return rc;
    }

    rc = kvr_children_add(x, *run);
    if (rc != KVR_OK) {
        return rc;
    }

    if (parent) {
        up = kvr_radix_run(x, parent);
        kvr_set32(x->mem, &up->nchildren, up->nchildren + 1);

        if (offset == KVR_RUN_MAX && up->next == 0) {
            kvr_set32(x->mem, &up->next, *run);
        }
    }

    return KVR_OK;
}


/* Drops the hashes from len on, which nobody has. */

static void
kvr_radix_trim(kvr_radix_t *x, kvr_run_t *r, uint32_t len)
{
    uint32_t   i, p;
    uint64_t  *word;

    if (len == r->len) {
        return;
    }

    /* an append in this very transaction may write over these, unlogged;
       pages and runs that are freed nobody gets before the commit */

    for (i = len; i && i < r->len; i++) {

        if (i < KVR_RUN_INLINE) {
            word = &r->hashes[i];

        } else {
            p = i - KVR_RUN_INLINE;

            if (p % KVR_RUN_PAGE == 0) {
                break;
            }

            word = kvr_arena_at(&x->arena, r->pages[p / KVR_RUN_PAGE]);
            word += p % KVR_RUN_PAGE;
        }

        kvr_txn_log(x->mem, word, KVR_UNDO_64, *word);
    }

    kvr_version_lock(x->mem, &r->version);

    for (p = kvr_run_npages(len); p < kvr_run_npages(r->len); p++) {
        kvr_arena_free(&x->arena, r->pages[p], KVR_RUN_PAGE);
    }

    x->zone->blocks -= r->len - len;
    kvr_set16(x->mem, &r->len, len);

    kvr_version_unlock(&r->version);
}


/*
 * Somebody has let go of a run: frees it when nobody has anything of it and
 * nothing hangs on it, then its parent likewise; trims a tail that nobody has.
 */

static void
kvr_radix_tidy(kvr_radix_t *x, uint32_t run, uint32_t keep)
{
    uint32_t    parent;
    kvr_run_t  *r, *up;

    while (run && run != keep) {

        r = kvr_radix_run(x, run);

        if (r->nchildren) {
            return;
        }

        if (!kvr_cover_empty(r)) {
            kvr_radix_trim(x, r, kvr_cover_top(&x->cover, r));
            return;
        }

        parent = r->parent;

        kvr_children_delete(x, run);

        if (parent) {
            up = kvr_radix_run(x, parent);
            kvr_set32(x->mem, &up->nchildren, up->nchildren - 1);

            if (up->next == run) {
                kvr_set32(x->mem, &up->next, 0);
            }
        }

        kvr_radix_trim(x, r, 0);
        kvr_arena_free_run(&x->arena, run);

        kvr_radix_breathe(x);

        run = parent;
    }
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

            child = kvr_children_find(x, run, offset, hashes[i], &torn);

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
                                       r ? r->seed : seed, &child);
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
