/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the index evicts: told to the workers that had it, and, with ttl=,
 * looked for.
 */


#include "kvr_shard.h"


#define KVR_EVICT_SLICE_MS   100        /* the time between two slices, in
                                           whatever process */
#define KVR_EVICT_SLOTS      256        /* looked at between two clock reads */


/* kvr_index_on_evict(): in a transaction, with the lock. */

static void
kvr_evict_tell(void *data, uint32_t view, uint32_t handles)
{
    uint32_t       h;
    kvr_shard_t   *k;
    kvr_worker_t  *w;

    k = data;
    h = kvr_fleet_view_holder(&k->fleet, view);

    if (h == KVR_HOLDER_NONE) {
        return;                         /* the view was cleared: there is no
                                           holder to inform */
    }

    if (kvr_view_is_estimate(k->fleet.view_holder[view])) {
        kvr_estimated_forgot(k, h, handles);
        return;
    }

    w = &k->fleet.workers[k->fleet.holders[h].worker];

    if (k->fleet.holders[h].aside == view) {
        kvr_set32(&k->mem, &w->stream.aside_lost, 1);
    }

    kvr_count(k, &w->counters.blocks_forgotten, handles);

    if ((w->flags & KVR_WORKER_TRUNCATED) == 0) {
        kvr_fleet_set_flags(&k->fleet, k->fleet.holders[h].worker,
                            KVR_WORKER_TRUNCATED, 0);
    }
}


void
kvr_shard_evict_init(kvr_shard_t *k)
{
    kvr_index_set_now(&k->index, (uint32_t) (kvr_now_us() / 1000000));
    kvr_index_on_evict(&k->index, kvr_evict_tell, k);
}


/*
 * A round over the index takes about a quarter of the time to live.  All
 * processes take turns: the shard says when the next slice is due.
 */

bool
kvr_shard_evict(kvr_shard_t *k, uint32_t ttl, uint64_t now_ms,
    uint64_t until_us)
{
    uint64_t  slots;

    kvr_index_set_now(&k->index, (uint32_t) (now_ms / 1000));

    if (ttl == 0 || now_ms < kvr_load64(&k->zone->evict_ms)) {
        return false;
    }

    if (kvr_shard_lock(k, 0) != KVR_OK) {
        return false;
    }

    if (now_ms < k->zone->evict_ms) {
        kvr_shard_unlock(k);
        return false;
    }

    slots = kvr_index_slots(&k->index) / (ttl * 2 + 1) + KVR_EVICT_SLOTS;

    do {
        kvr_index_begin(&k->index);
        (void) kvr_index_evict(&k->index, ttl, KVR_EVICT_SLOTS);
        kvr_txn_commit(&k->mem);

        slots -= kvr_min(slots, KVR_EVICT_SLOTS);

    } while (slots && kvr_now_us() < until_us);

    /* if the slice was too short, the next one is due at once */

    kvr_put64(&k->zone->evict_ms,
              slots ? now_ms : now_ms + KVR_EVICT_SLICE_MS);

    kvr_shard_unlock(k);

    return slots != 0;
}
