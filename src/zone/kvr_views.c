/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_views.h"


#define KVR_RECLAIM_SLOTS    256       /* looked at between two clock reads */


static void kvr_views_all_gone(kvr_shard_t *k, uint32_t worker);
static bool kvr_shard_left_aside(kvr_shard_t *k);
static bool kvr_view_dying(void *data, uint32_t view);
static void kvr_reclaim_finish(kvr_shard_t *k);


void
kvr_shard_clear(kvr_shard_t *k, uint32_t holder)
{
    uint32_t  view;

    view = kvr_fleet_drop_view(&k->fleet, holder);

    if (view != KVR_VIEW_NONE) {

        kvr_index_class_forget(&k->index, view);

        if (kvr_index_view_empty(&k->index, view)) {
            kvr_fleet_free_view(&k->fleet, view);
        }
    }

    kvr_views_all_gone(k, k->fleet.holders[holder].worker);
}


/*
 * Ends what makes a worker's view wrong when the index has none of the
 * worker's blocks: nothing is missing then, and nothing is told twice.
 */

static void
kvr_views_all_gone(kvr_shard_t *k, uint32_t worker)
{
    uint32_t       h;
    kvr_worker_t  *w;

    w = &k->fleet.workers[worker];

    if ((w->flags & (KVR_WORKER_TRUNCATED | KVR_WORKER_REPORTS)) == 0) {
        return;
    }

    for (h = w->first_holder; h != KVR_HOLDER_NONE;
         h = k->fleet.holders[h].next)
    {
        if (k->fleet.holders[h].view != KVR_VIEW_NONE) {
            return;
        }
    }

    kvr_fleet_set_flags(&k->fleet, worker, 0,
                        KVR_WORKER_TRUNCATED | KVR_WORKER_REPORTS);
}


void
kvr_shard_clear_worker(kvr_shard_t *k, uint32_t worker)
{
    uint32_t  h;

    kvr_shard_drop_aside(k, worker);

    for (h = k->fleet.workers[worker].first_holder; h != KVR_HOLDER_NONE;
         h = k->fleet.holders[h].next)
    {
        kvr_shard_clear(k, h);
    }
}


void
kvr_shard_clear_all(kvr_shard_t *k, uint32_t worker)
{
    uint32_t  h;

    kvr_shard_clear_worker(k, worker);

    for (h = k->fleet.workers[worker].first_holder; h != KVR_HOLDER_NONE;
         h = k->fleet.holders[h].next)
    {
        if (k->estimates[h].spaces[0]) {
            kvr_estimated_clear(k, h, KVR_ESTIMATE_ASKED);
        }
    }
}


void
kvr_shard_drop_aside(kvr_shard_t *k, uint32_t worker)
{
    uint32_t       h;
    kvr_worker_t  *w;

    w = &k->fleet.workers[worker];

    if (w->stream.aside == 0) {
        return;
    }

    k->fleet.aside = true;

    for (h = w->first_holder; h != KVR_HOLDER_NONE;
         h = k->fleet.holders[h].next)
    {
        kvr_shard_clear(k, h);
    }

    k->fleet.aside = false;

    kvr_set64(&k->mem, &w->stream.aside, 0);
}


void
kvr_shard_sweep_aside(kvr_shard_t *k)
{
    uint32_t  i;

    kvr_txn_commit(&k->mem);

    for (i = 0; i < k->zone->fleet.nworkers; i++) {

        kvr_shard_drop_aside(k, i);

        if (kvr_txn_room(&k->mem) < KVR_RANKS_MAX * 8) {
            kvr_txn_commit(&k->mem);
        }
    }

    kvr_txn_commit(&k->mem);
}


bool
kvr_shard_reclaim(kvr_shard_t *k, uint64_t until_us)
{
    bool  more, left;

    left = kvr_shard_left_aside(k);

    if (kvr_load32(&k->zone->fleet.ndying) == 0 && !left) {
        return false;
    }

    if (kvr_shard_lock(k, 0) != KVR_OK) {
        return true;
    }

    if (left && kvr_shard_left_aside(k)) {
        kvr_shard_sweep_aside(k);
    }

    do {
        kvr_index_begin(&k->index);

        if (kvr_index_reclaim(&k->index, kvr_view_dying, k,
                              KVR_RECLAIM_SLOTS)
            || k->zone->fleet.ndying == 0)
        {
            kvr_reclaim_finish(k);
        }

        kvr_txn_commit(&k->mem);

        more = k->zone->fleet.ndying != 0;

    } while (more && kvr_now_us() < until_us);

    kvr_shard_unlock(k);

    return more;
}


/* Are views set aside whose owner is dead and will not remove them? */

static bool
kvr_shard_left_aside(kvr_shard_t *k)
{
    return kvr_load32(&k->zone->fleet.naside)
           && !kvr_owner_alive(kvr_load64(&k->zone->lease.owner));
}


static bool
kvr_view_dying(void *data, uint32_t view)
{
    kvr_shard_t  *k = data;

    return k->fleet.view_holder[view] == KVR_VIEW_DYING;
}


/*
 * Ends a round of the reclaim: views of which no block is left may be used
 * again.
 */

static void
kvr_reclaim_finish(kvr_shard_t *k)
{
    uint32_t  v;

    for (v = 0; v < k->zone->fleet.nviews; v++) {
        if (kvr_view_dying(k, v) && kvr_index_view_empty(&k->index, v)) {
            kvr_fleet_free_view(&k->fleet, v);

            /*
             * thousands of views may die together: the log has no room for all
             * of them
             */
            if (kvr_txn_room(&k->mem) < 16) {
                kvr_txn_commit(&k->mem);
            }
        }
    }
}


uint32_t
kvr_shard_estimates(const kvr_shard_t *k, uint32_t view)
{
    uint32_t             h;
    const kvr_holder_t  *holder;

    h = k->fleet.view_holder[view];

    if (!kvr_view_is_estimate(h)
        || (h & KVR_VIEW_HOLDER) >= k->zone->fleet.max_holders)
    {
        return KVR_HOLDER_NONE;
    }

    h &= KVR_VIEW_HOLDER;
    holder = &k->fleet.holders[h];
    return holder->estimate[KVR_FLEET_VISIBLE] == view
           && kvr_fleet_estimated(&k->fleet.workers[holder->worker])
           ? h : KVR_HOLDER_NONE;
}
