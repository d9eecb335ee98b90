/*
 * Copyright (C) the nginx-kv-router authors
 *
 * How a radix index is left again: kvr_radix_remove(), kvr_radix_reclaim().
 */


#include "kvr_classes.h"
#include "kvr_radix_evict.h"
#include "kvr_radix_free.h"
#include "kvr_radix_one.h"
#include "kvr_radix_run.h"


/* ---- remove ------------------------------------------------------------- */

/*
 * Engines mostly remove handles of one run together, the last block first.  So
 * the handle of the block before the last one is compared before the table is
 * searched, and the depth of such a row of blocks is counted down here and
 * written once.
 */

typedef struct {
    uint32_t     view;
    uint32_t     run;                   /* 0: no row */
    uint32_t     offset;                /* of the last handle */
    uint32_t     depth;                 /* as it will be; KVR_COVER_DETAIL */
    uint32_t     was;                   /* as it is */
    uint32_t     gone;                  /* handles */
    bool         own;
    kvr_run_t   *r;
} kvr_radix_row_t;


/* Where a removal starts again if it is rolled back: at the last commit. */

typedef struct {
    uint32_t     mark;                  /* the first handle behind it */
    uint32_t     unknown;               /* handles, up to there */
    uint32_t     early_commits;
    uint32_t     cost;                  /* of making room */
} kvr_radix_undo_t;


static void
kvr_radix_row_begin(kvr_radix_t *x, kvr_radix_row_t *row, uint32_t run)
{
    uint32_t  pair;

    row->run = run;
    row->r = kvr_radix_run(x, run);
    pair = kvr_pairs_get(&x->cover, row->r, row->view);
    row->depth = kvr_cover_plain(pair);
    row->was = row->depth;
    row->own = pair & KVR_COVER_OWN;
    row->gone = 0;
}


static void
kvr_radix_row_flush(kvr_radix_t *x, kvr_radix_row_t *row)
{
    if (row->depth != row->was) {
        /* the view has a pair: the change takes no memory */
        (void) kvr_pairs_set_depth(&x->cover, row->r, row->view, row->depth);
        row->was = row->depth;
    }

    if (row->gone) {
        kvr_radix_count(x, row->view, -(int32_t) row->gone);
        row->gone = 0;
    }
}


/*
 * Is this the handle of the block before the row's last, and does the view
 * hold that block?
 */

static inline bool
kvr_radix_row_next(const kvr_radix_t *x, const kvr_radix_row_t *row,
    uint64_t handle, kvr_handle_ref_t *ref)
{
    if (row->run == 0 || row->own || row->depth == KVR_COVER_DETAIL
        || row->offset == 0 || row->offset > row->r->nhandles)
    {
        return false;
    }

    if (row->offset > row->depth
        || *kvr_handles_at(x, row->r, row->offset - 1) != handle)
    {
        return false;
    }

    ref->run = row->run;
    ref->offset = row->offset - 1;
    ref->tiers = 1u << KVR_DEVICE;
    ref->own = 0;

    return true;
}


/*
 * How many of n handles are those of the blocks before that one, in falling
 * order?
 */

static uint32_t
kvr_radix_row_more(const kvr_radix_t *x, const kvr_radix_row_t *row,
    const uint64_t *handles, uint32_t n)
{
    uint32_t         i, k, m;
    const uint64_t  *shared;

    n = kvr_min(n, row->offset);

    for (i = 0; i < n; i += m) {
        k = row->offset - i;
        shared = kvr_handles_at(x, row->r, k - 1);
        m = kvr_min((k - 1) % KVR_RUN_HANDLES + 1, n - i);

        for (k = 0; k < m; k++) {
            if (*shared-- != handles[i + k]) {
                return i + k;
            }
        }
    }

    return n;
}


/* Is the handle held in the tier?  Those of the row may be gone already. */

static inline bool
kvr_radix_row_find(kvr_radix_t *x, const kvr_radix_row_t *row, kvr_tier_t tier,
    uint64_t handle, kvr_handle_ref_t *ref)
{
    if (!kvr_radix_row_next(x, row, handle, ref)
        && (!kvr_handles_find(x, row->view, handle, ref)
            || (ref->run == row->run && row->depth != KVR_COVER_DETAIL
                && ref->offset >= row->depth)))
    {
        return false;
    }

    return ref->tiers & 1u << tier;
}


/*
 * Ends the row and begins another at handle i, in a run.  If that commits, all
 * up to here can't be rolled back.
 */

static void
kvr_radix_row_change(kvr_radix_t *x, kvr_radix_row_t *row, uint32_t run,
    uint32_t i, uint32_t unknown, kvr_radix_undo_t *undo)
{
    kvr_radix_row_flush(x, row);

    if (row->run) {

        /* free the row's run if nothing is left of it */

        if (run != row->run) {
            kvr_radix_free_if_empty(x, row->run, run);
        }

        kvr_radix_commit_if_low(x);
    }

    if (x->early_commits != undo->early_commits) {
        undo->early_commits = x->early_commits;
        undo->mark = i;
        undo->unknown = unknown;
    }

    kvr_radix_row_begin(x, row, run);
}


/* Takes one block out of the row's run; false: there is no memory. */

static inline bool
kvr_radix_row_take(kvr_radix_t *x, kvr_radix_row_t *row, kvr_tier_t tier,
    kvr_handle_ref_t *ref)
{
    kvr_radix_row_flush(x, row);

    if (kvr_cover_del(&x->cover, row->r, row->view, ref->offset, tier)
        != KVR_OK)
    {
        return false;
    }

    if (ref->own) {
        kvr_own_set(x, ref, row->view, ref->tiers & ~(1u << tier));
    }

    if (ref->tiers == 1u << tier) {
        kvr_radix_count(x, row->view, -1);
    }

    kvr_radix_row_begin(x, row, ref->run);

    return true;
}


/* Ends the last row; the next removal may go on before it. */

static inline void
kvr_radix_row_end(kvr_radix_t *x, kvr_radix_row_t *row)
{
    uint64_t  before;

    kvr_radix_row_flush(x, row);

    if (row->run && row->offset && row->offset <= row->r->nhandles) {
        before = *kvr_handles_at(x, row->r, row->offset - 1);
        kvr_handles_hint(x, row->view,
                         kvr_handle_key(&x->handles, before, KVR_SPACE_SHARED),
                         before, row->run, row->offset - 1);
    }

    if (row->run) {
        kvr_radix_free_if_empty(x, row->run, 0);
    }
}


kvr_rc_t
kvr_radix_remove(kvr_radix_t *x, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown)
{
    uint32_t          i, k;
    kvr_handle_ref_t  ref;
    kvr_radix_row_t   row;
    kvr_radix_undo_t  undo;
    kvr_handle_key_t  key;

    memset(&row, 0, sizeof(row));
    row.view = view;

    memset(&undo, 0, sizeof(undo));
    undo.unknown = *unknown;
    undo.early_commits = x->early_commits;

    if (n) {
        /* the entry to be deleted comes while the run is looked at */
        key = kvr_handle_key(&x->handles, handles[0], KVR_SPACE_SHARED);
        kvr_handle_prefetch(&x->handles, key);
    }

    if (n == 1 && tier == KVR_DEVICE
        && kvr_handles_find(x, view, handles[0], &ref))
    {
        kvr_radix_commit_if_low(x);

        if (kvr_radix_remove_one(x, view, &ref, key)) {
            return KVR_OK;
        }
    }

    for (i = 0; i < n; i++) {

        if (!kvr_radix_row_find(x, &row, tier, handles[i], &ref)) {
            (*unknown)++;
            continue;
        }

        if (ref.run != row.run || kvr_radix_short(x)) {
            kvr_radix_row_change(x, &row, ref.run, i, *unknown, &undo);
        }

        row.offset = ref.offset;

        if (row.depth != KVR_COVER_DETAIL && ref.offset + 1 == row.depth
            && !row.own)
        {
            k = kvr_radix_row_more(x, &row, handles + i + 1, n - i - 1);
            row.offset -= k;
            row.depth -= k + 1;
            row.gone += k + 1;
            i += k;

        } else if (!kvr_radix_row_take(x, &row, tier, &ref)) {

            (void) kvr_txn_rollback(x->mem);
            kvr_radix_begin(x);

            if (!kvr_radix_make_room(x, ref.run, &undo.cost)) {
                return KVR_FULL;
            }

            /* start again from the last commit */

            i = undo.mark - 1;
            *unknown = undo.unknown;
            undo.early_commits = x->early_commits;
            row.run = 0;
        }
    }

    kvr_radix_row_end(x, &row);

    return KVR_OK;
}


/* ---- reclaim ------------------------------------------------------------ */

bool
kvr_radix_reclaim(kvr_radix_t *x, bool (*dying)(void *data, uint32_t v),
    void *data, uint32_t slots)
{
    bool        dropped;
    uint32_t    i, run, view;
    uint64_t    pos;
    kvr_run_t  *r;

    pos = x->zone->reclaim_at;

    while (slots--) {

        if (pos >= x->zone->nchildren) {
            kvr_set64(x->mem, &x->zone->reclaim_at, 0);
            return true;
        }

        run = (uint32_t) (x->children[pos] >> 32);

        if (run == 0) {
            pos++;
            continue;
        }

        r = kvr_radix_run(x, run);
        dropped = false;
        i = 0;

        while ((view = kvr_pairs_next(&x->cover, r, &i)) != UINT32_MAX) {

            if (!dying(data, kvr_classes_view(x, view))) {
                i++;
                continue;
            }

            kvr_radix_commit_if_low(x);
            kvr_radix_drop(x, run, view);
            dropped = true;
        }

        if (dropped || (kvr_cover_empty(r) && r->nchildren == 0)) {
            /*
             * the deletion may move another run to this slot: look at it again
             */
            kvr_radix_free_if_empty(x, run, 0);

        } else {
            pos++;
        }

        kvr_radix_commit_if_low(x);
    }

    kvr_set64(x->mem, &x->zone->reclaim_at, pos);

    return false;
}


bool
kvr_radix_view_empty(const kvr_radix_t *x, uint32_t view)
{
    uint32_t  shadow;

    shadow = kvr_classes_shadow(x, view);

    return x->cover.view_runs[view] == 0
           && (shadow >= x->zone->max_views
               || x->cover.view_runs[shadow] == 0);
}
