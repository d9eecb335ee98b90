/*
 * Copyright (C) the nginx-kv-router authors
 *
 * AN EXAMPLE.  Two holders, A and B, store, remove and restore blocks.  A
 * letter is a block's local hash, a number is a handle, and "A:4" says that A
 * holds the first four blocks of the run.  example() of t/unit/test_radix.c
 * does the same steps.
 *
 * 1. A stores a b c d as 1 2 3 4.  No child of the root begins with a, so a
 *    new run is made for all four blocks, with these handles:
 *
 *        R1  hashes a b c d   handles 1 2 3 4   A:4
 *
 * 2. B stores a b c as 1 2 3.  R1 has these blocks by these handles.  Only
 *    the coverage changes; the handle table gets no entry:
 *
 *        R1  hashes a b c d   handles 1 2 3 4   A:4 B:3
 *
 * 3. B stores e f as 5 6 behind 3.  R1 goes on with d there, so a new run
 *    hangs at offset 3 of R1.  R1 is not split:
 *
 *        R1  hashes a b c d   handles 1 2 3 4   A:4 B:3
 *                        └─ R2  hashes e f   handles 5 6   B:2
 *
 *    A lookup of a b c e f compares three blocks of R1, finds R2 by
 *    (R1, 3, e), and answers 3 for A and 5 for B.
 *
 * 4. B stores d as 9 behind 3.  R1's handle for d is 4, so from now on B
 *    has handles of its own in R1: copies of 1 2 3, and 9.  A's do not change:
 *
 *        R1  hashes a b c d   handles 1 2 3 4   A:4 B:4, own 1 2 3 9
 *
 * 5. A removes 2.  A depth can't say "a, c and d", so A gets a detail, which
 *    is a bitmap of blocks for each tier.  A lookup of a b c d answers 1 for
 *    A: the hole ends the match.
 *
 *        R1  hashes a b c d   handles 1 2 3 4   A: 1011 B:4, own 1 2 3 9
 *
 * 6. A stores b as 2 behind 1.  The hole is filled, the detail goes, and A is
 *    A:4 again.
 *
 * 7. A removes 1 2 3 4.  R1 stays, because B holds it.  B removes 5 6: nobody
 *    holds R2 and no run hangs on it, so R2 is freed and its entry among the
 *    children goes.  B removes 1 2 3 9, and the index is empty.
 */


#include "kvr_radix.h"
#include "kvr_children.h"
#include "kvr_classes.h"
#include "kvr_radix_evict.h"
#include "kvr_radix_free.h"
#include "kvr_radix_one.h"
#include "kvr_radix_run.h"
#include "kvr_radix_words.h"


/* Shares of the memory, in 256ths: see Limits in docs/operations.md. */
#define KVR_RADIX_HANDLES_SHARE   106
#define KVR_RADIX_CHILDREN_SHARE  10



typedef struct {
    uint32_t    view;
    kvr_tier_t  tier;
    uint32_t    keep;               /* do not free it although it is empty:
                                       the caller will fill it */
} kvr_radix_op_t;


static uint32_t kvr_radix_has(kvr_radix_t *x, uint32_t run, uint32_t offset,
    const uint64_t *hashes, uint32_t n, uint64_t seed);
static kvr_rc_t kvr_radix_extend(kvr_radix_t *x, uint32_t run,
    uint32_t offset, const uint64_t *hashes, uint32_t *n, uint64_t seed,
    uint32_t *to);
static kvr_rc_t kvr_radix_hold(kvr_radix_t *x, const kvr_radix_op_t *op,
    uint32_t run, uint32_t offset, uint32_t n, const uint64_t *handles);
static kvr_rc_t kvr_radix_hold_one(kvr_radix_t *x, const kvr_radix_op_t *op,
    uint32_t run, uint32_t offset, uint64_t handle);
static kvr_rc_t kvr_radix_set_handle(kvr_radix_t *x, uint32_t view,
    uint32_t run, uint32_t offset, uint64_t handle, kvr_tier_t tier);


size_t
kvr_radix_views_size(uint32_t max_views)
{
    uint32_t  all;

    all = max_views + kvr_classes_shadows(max_views);

    return kvr_lines(all * 3 * sizeof(uint32_t))
           + kvr_classes_size(max_views);
}


void
kvr_radix_format(kvr_mem_t *mem, kvr_radix_zone_t *z, uint64_t at,
    uint64_t size, uint32_t max_views, const uint64_t secret[4])
{
    uint64_t  bytes;

    memset(z, 0, sizeof(kvr_radix_zone_t));
    memset(mem->base + at, 0, kvr_radix_views_size(max_views));

    z->classes = kvr_part(&at, &size, kvr_classes_size(max_views));

    z->shadows = max_views;
    max_views += kvr_classes_shadows(max_views);
    z->max_views = max_views;
    z->secret[0] = secret[0];
    z->secret[1] = secret[1];

    z->view_runs = kvr_part(&at, &size, max_views * 3 * sizeof(uint32_t));
    z->view_handles = z->view_runs + max_views * sizeof(uint32_t);
    z->view_owns = z->view_handles + max_views * sizeof(uint32_t);

    bytes = size / 256 * KVR_RADIX_HANDLES_SHARE & ~UINT64_C(63);
    kvr_handle_format(mem, &z->handles, kvr_part(&at, &size, bytes), bytes,
                      secret + 2);

    /* slots are numbered by 32 bits of the hash */

    bytes = size / (256 - KVR_RADIX_HANDLES_SHARE) * KVR_RADIX_CHILDREN_SHARE;
    z->nchildren = kvr_min(bytes / sizeof(uint64_t), UINT32_MAX);
    z->children_limit = z->nchildren / 10 * 7;
    z->children = kvr_part(&at, &size, z->nchildren * sizeof(uint64_t));
    z->occupied = kvr_part(&at, &size, z->nchildren / 8 + 1);

    z->nroots = kvr_roots_cells(z->nchildren);
    z->root_bits = kvr_part(&at, &size, kvr_roots_size(z->nroots));
    z->root_counts = z->root_bits + z->nroots / 8;

    kvr_arena_format(&z->arena, at, size / sizeof(uint64_t));
}


void
kvr_radix_attach(kvr_radix_t *x, kvr_mem_t *mem, kvr_radix_zone_t *z)
{
    x->mem = mem;
    x->zone = z;
    x->children = (uint64_t *) (mem->base + z->children);
    x->occupied = (uint64_t *) (mem->base + z->occupied);
    x->root_bits = (uint64_t *) (mem->base + z->root_bits);
    x->root_counts = (uint16_t *) (mem->base + z->root_counts);
    x->view_handles = (uint32_t *) (mem->base + z->view_handles);
    x->view_owns = (uint32_t *) (mem->base + z->view_owns);
    x->classes = (uint64_t *) (mem->base + z->classes);

    x->now = 0;
    x->early_commits = 0;
    x->cost = KVR_RADIX_COST;
    x->random = z->secret[0];
    x->emptying = 0;
    x->evicted = NULL;
    x->evicted_data = NULL;

    memset(x->hints, 0, sizeof(x->hints));

    kvr_arena_attach(&x->arena, mem, &z->arena);
    x->epoch = kvr_arena_epoch(&x->arena);

    kvr_handle_attach(&x->handles, mem, &z->handles);

    x->cover.mem = mem;
    x->cover.arena = &x->arena;
    x->cover.details = &z->details;
    x->cover.shadows = z->shadows;
    x->cover.view_runs = (uint32_t *) (mem->base + z->view_runs);
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
    bool              torn;
    uint32_t          i, k, run, child, offset, cost;
    kvr_rc_t          rc;
    kvr_handle_ref_t  ref;
    kvr_radix_op_t    op;
    kvr_handle_key_t  key;

    *done = 0;
    run = 0;
    offset = 0;

    if (n) {
        /* prefetch the entry's line while the parent is looked up */
        key = kvr_handle_key(&x->handles, handles[0], KVR_SPACE_SHARED);
        kvr_handle_prefetch(&x->handles, key);
    }

    if (has_parent) {

        if (!kvr_handles_find(x, view, parent, &ref)) {
            return KVR_DECLINED;
        }

        run = ref.run;
        offset = ref.offset + 1;

        if (n == 1 && tier == KVR_DEVICE) {
            kvr_radix_commit_if_low(x);

            if (kvr_radix_store_one(x, view, &ref, key, handles[0],
                                    hashes[0], seed))
            {
                *done = 1;
                return KVR_OK;
            }
        }
    }

    op.view = view;
    op.tier = tier;
    cost = 0;

    for (i = 0; i < n; /* void */ ) {

        kvr_radix_commit_if_low(x);

        op.keep = run;
        rc = KVR_OK;
        child = run;
        k = run ? kvr_radix_has(x, run, offset, hashes + i, n - i, seed) : 0;

        if (k == 0) {

            child = run && kvr_radix_run(x, run)->nchildren == 0
                    ? 0 : kvr_children_find(x, run, offset, hashes[i], &torn);

            if (child) {
                run = child;
                offset = 0;
                continue;
            }

            k = kvr_min(n - i, KVR_RADIX_CHUNK);
            rc = kvr_radix_extend(x, run, offset, hashes + i, &k, seed,
                                  &child);
        }

        if (rc == KVR_OK) {
            op.keep = child;
            rc = kvr_radix_hold(x, &op, child, child == run ? offset : 0, k,
                                handles + i);
        }

        if (rc != KVR_OK) {
            (void) kvr_txn_rollback(x->mem);
            kvr_radix_begin(x);

            if (rc == KVR_FULL && kvr_radix_make_room(x, run, &cost)) {
                continue;
            }

            /* make_room() may have evicted the last child of the run */

            kvr_radix_free_if_empty(x, run, 0);

            return KVR_FULL;
        }

        offset = child == run ? offset + k : k;
        run = child;
        i += k;
        *done = i;

        if (i < n) {
            kvr_txn_commit(x->mem);
            kvr_radix_begin(x);
        }
    }

    if (n) {
        key = kvr_handle_key(&x->handles, handles[n - 1], KVR_SPACE_SHARED);
        kvr_handles_hint(x, view, key, handles[n - 1], run, offset - 1);
    }

    return KVR_OK;
}


/* Case a: how many of n blocks, at most a chunk, are the run's already? */

static uint32_t
kvr_radix_has(kvr_radix_t *x, uint32_t run, uint32_t offset,
    const uint64_t *hashes, uint32_t n, uint64_t seed)
{
    uint32_t    k;
    kvr_run_t  *r;

    r = kvr_radix_run(x, run);

    if (offset >= r->len) {
        return 0;
    }

    k = kvr_min(kvr_min(r->len - offset, n), KVR_RADIX_CHUNK);
    k = kvr_radix_same(x, r, offset, hashes, k);

    if (k && seed && r->seed == 0) {
        kvr_set64(x->mem, &r->seed, seed);
    }

    return k;
}


/* Cases c and d: the run, *to, that has *n more blocks behind the offset. */

static kvr_rc_t
kvr_radix_extend(kvr_radix_t *x, uint32_t run, uint32_t offset,
    const uint64_t *hashes, uint32_t *n, uint64_t seed, uint32_t *to)
{
    kvr_run_t  *r;

    r = run ? kvr_radix_run(x, run) : NULL;

    if (r && offset == r->len && offset < KVR_RUN_MAX) {
        *n = kvr_min(*n, KVR_RUN_MAX - offset);
        *to = run;

        return kvr_radix_append(x, run, hashes, *n);
    }

    return kvr_radix_new_run(x, run, offset, hashes, *n,
                             r && r->seed ? r->seed : seed, to);
}


/*
 * Makes the view a holder of n blocks of a run, from an offset on.  The usual
 * cases are done for many blocks at once: the view shares the run's handles,
 * the tier is device memory, and the blocks follow those that the view holds
 * of the run already. If the run's blocks have other handles than those given,
 * the view gets handles of its own; if they have none yet, the handles given
 * become the shared ones.
 */

static kvr_rc_t
kvr_radix_hold(kvr_radix_t *x, const kvr_radix_op_t *op, uint32_t run,
    uint32_t offset, uint32_t n, const uint64_t *handles)
{
    uint32_t    i, k, view, pair, same;
    kvr_rc_t    rc;
    kvr_run_t  *r;

    view = op->view;
    r = kvr_radix_run(x, run);
    pair = kvr_pairs_get(&x->cover, r, view);
    i = 0;

    if (kvr_load32(&r->stamp) != x->now) {
        __atomic_store_n(&r->stamp, x->now, __ATOMIC_RELAXED);
    }

    if ((pair & KVR_COVER_OWN) == 0) {

        same = 0;

        if (offset < r->nhandles) {
            k = kvr_min(n, r->nhandles - offset);
            same = kvr_handles_same(x, r, offset, handles, k);

        } else {
            k = offset - r->nhandles;           /* 0: handles go on here */
        }

        if (same < k) {

            if (pair) {
                rc = kvr_own_fork(x, run, view);
                if (rc != KVR_OK) {
                    return rc;
                }
            }

        } else if (op->tier == KVR_DEVICE && pair != KVR_COVER_DETAIL
                   && pair >= offset
                   && (same == 0 || (!r->contested && !x->view_owns[view])))
        {
            /* depth before; a pair that shares handles; handles to append */

            i = kvr_min(pair - offset, n);

            if (i <= same) {
                i = same;

                if (same < n && !x->view_owns[view]) {

                    rc = kvr_handles_append(x, run, handles + same, n - same,
                                            &k);
                    if (rc != KVR_OK) {
                        return rc;
                    }

                    i += k;
                }

                if (offset + i > pair) {
                    rc = kvr_pairs_set_depth(&x->cover, r, view, offset + i);
                    if (rc != KVR_OK) {
                        return rc;
                    }

                    kvr_radix_count(x, view, (int32_t) (offset + i - pair));
                }
            }
        }
    }

    for ( /* void */ ; i < n; i++) {
        kvr_radix_commit_if_low(x);

        rc = kvr_radix_hold_one(x, op, run, offset + i, handles[i]);

        if (rc != KVR_OK) {
            return rc;
        }
    }

    return KVR_OK;
}


/* kvr_radix_hold() for one block, in all cases that can't be done at once. */

static kvr_rc_t
kvr_radix_hold_one(kvr_radix_t *x, const kvr_radix_op_t *op, uint32_t run,
    uint32_t offset, uint64_t handle)
{
    bool              moved;
    uint32_t          view, t;
    kvr_rc_t          rc;
    kvr_run_t        *r;
    kvr_handle_ref_t  ref;

    view = op->view;
    r = kvr_radix_run(x, run);
    moved = false;

    if (kvr_handles_find(x, view, handle, &ref)) {

        if (ref.run == run && ref.offset == offset) {

            if (ref.tiers & 1u << op->tier) {
                return KVR_OK;
            }

            if (ref.own) {
                kvr_own_set(x, &ref, view, ref.tiers | 1u << op->tier);
            }

            return kvr_cover_add(&x->cover, r, view, offset, op->tier);
        }

        /*
         * The view holds another block by this handle: the handle moves. It is
         * deleted there first: a reader must not see it at both blocks.
         */

        if (ref.own) {
            kvr_own_set(x, &ref, view, 0);
        }

        for (t = 0; t < KVR_TIERS; t++) {

            if ((ref.tiers & 1u << t) == 0) {
                continue;
            }

            rc = kvr_cover_del(&x->cover, kvr_radix_run(x, ref.run), view,
                               ref.offset, t);
            if (rc != KVR_OK) {
                return rc;
            }
        }

        kvr_radix_count(x, view, -1);
        moved = true;
    }

    rc = kvr_radix_set_handle(x, view, run, offset, handle, op->tier);
    if (rc != KVR_OK) {
        return rc;
    }

    rc = kvr_cover_add(&x->cover, r, view, offset, op->tier);
    if (rc != KVR_OK) {
        return rc;
    }

    if (kvr_own_find(x, r, view)) {
        kvr_pairs_set_own(&x->cover, r, view);
    }

    kvr_radix_count(x, view, 1);

    if (moved) {
        kvr_radix_free_if_empty(x, ref.run, op->keep);
    }

    return KVR_OK;
}


/* Gives the block this handle, as the shared one or as the view's own. */

static kvr_rc_t
kvr_radix_set_handle(kvr_radix_t *x, uint32_t view, uint32_t run,
    uint32_t offset, uint64_t handle, kvr_tier_t tier)
{
    uint32_t    pair;
    kvr_rc_t    rc;
    kvr_run_t  *r;

    r = kvr_radix_run(x, run);
    pair = kvr_pairs_get(&x->cover, r, view);

    if ((pair & KVR_COVER_OWN) == 0) {

        if (offset < r->nhandles && *kvr_handles_at(x, r, offset) == handle) {
            return KVR_OK;
        }

        if (offset == r->nhandles) {
            rc = kvr_handles_append_one(x, run, handle);

            if (rc != KVR_DECLINED) {
                return rc;
            }
        }

        if (pair) {
            rc = kvr_own_fork(x, run, view);
            if (rc != KVR_OK) {
                return rc;
            }
        }
    }

    return kvr_own_add(x, run, view, handle, offset, 1u << tier);
}


kvr_rc_t
kvr_radix_add_tier(kvr_radix_t *x, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown)
{
    return kvr_radix_add(x, view, view, tier, handles, n, unknown);
}


kvr_rc_t
kvr_radix_add(kvr_radix_t *x, uint32_t from, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown)
{
    uint32_t          i, cost;
    kvr_rc_t          rc;
    kvr_handle_ref_t  ref;
    kvr_radix_op_t    op;

    op.view = view;
    op.tier = tier;
    cost = 0;

    for (i = 0; i < n; /* void */ ) {

        if (!kvr_handles_find(x, from, handles[i], &ref)) {
            (*unknown)++;
            i++;
            continue;
        }

        op.keep = ref.run;

        rc = kvr_radix_hold_one(x, &op, ref.run, ref.offset, handles[i]);

        if (rc == KVR_OK) {
            kvr_txn_commit(x->mem);
            kvr_radix_begin(x);
            i++;
            continue;
        }

        (void) kvr_txn_rollback(x->mem);
        kvr_radix_begin(x);

        if (rc != KVR_FULL || !kvr_radix_make_room(x, ref.run, &cost)) {
            return KVR_FULL;
        }
    }

    return KVR_OK;
}


kvr_rc_t
kvr_radix_seed(const kvr_radix_t *x, uint32_t view, uint64_t handle,
    uint64_t *seed)
{
    kvr_handle_ref_t  ref;

    if (!kvr_handles_find(x, view, handle, &ref)) {
        return KVR_DECLINED;
    }

    *seed = kvr_radix_run(x, ref.run)->seed;

    return KVR_OK;
}


uint32_t
kvr_radix_tiers(const kvr_radix_t *x, uint32_t view, uint64_t handle)
{
    kvr_handle_ref_t  ref;

    return kvr_handles_find(x, view, handle, &ref) ? ref.tiers : 0;
}


/* ---- for the dump ------------------------------------------------------- */

void
kvr_radix_each(const kvr_radix_t *x,
    void (*tell)(void *data, const kvr_radix_handle_t *h), void *data)
{
    uint32_t            i, k;
    uint64_t            slot;
    kvr_run_t          *r;
    kvr_own_t          *o;
    kvr_radix_handle_t  h;

    for (slot = 0; slot < x->zone->nchildren; slot++) {

        h.run = (uint32_t) (x->children[slot] >> 32);

        if (h.run == 0) {
            continue;
        }

        r = kvr_radix_run(x, h.run);

        for (i = 0; (h.view = kvr_pairs_next(&x->cover, r, &i))
                    != UINT32_MAX; i++)
        {
            o = kvr_own_find(x, r, h.view);

            for (k = 0; k < (o ? o->n : r->nhandles); k++) {

                if (o) {
                    h.handle = kvr_own_handles(x, o)[k];
                    h.offset = kvr_own_offset(kvr_own_blocks(x, o)[k]);
                    h.tiers = kvr_own_tiers(kvr_own_blocks(x, o)[k]);

                } else {
                    h.handle = *kvr_handles_at(x, r, k);
                    h.offset = k;
                    h.tiers = kvr_cover_tiers(&x->cover, r, h.view, k);
                }

                if (h.tiers) {
                    tell(data, &h);
                }
            }
        }
    }
}
