/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_shard.h"


#define KVR_RECLAIM_SLOTS    256       /* looked at between two clock reads */


static uint64_t kvr_shard_round(uint64_t at);
static bool kvr_shard_left_aside(kvr_shard_t *k);
static bool kvr_view_dying(void *data, uint32_t view);
static void kvr_reclaim_finish(kvr_shard_t *k);


/* ---- making and opening ------------------------------------------------- */

static uint64_t
kvr_shard_round(uint64_t at)
{
    return (at + 63) & ~UINT64_C(63);
}


/*
 * Workers fall to shards by chance: room for twice the mean and 64 more is so
 * many standard deviations off that a shard is full only when the zone is.
 */

uint32_t
kvr_shard_workers(const kvr_params_t *params)
{
    uint32_t  n;

    n = params->max_workers;

    if (params->shards > 1) {
        n = kvr_min(n, n / params->shards * 2 + 64);
    }

    return n;
}


uint64_t
kvr_shard_fixed(uint32_t workers, kvr_index_kind_t kind)
{
    uint32_t  holders, views;

    kvr_fleet_bounds(workers, &holders, &views);

    return kvr_shard_round(sizeof(kvr_shard_zone_t))
           + kvr_shard_round(sizeof(kvr_journal_t))
           + kvr_shard_round(kvr_fleet_size(workers))
           + kvr_index_views_size(kind, views);
}


void
kvr_shard_format(kvr_mem_t *mem, uint64_t at, uint32_t workers,
    kvr_index_kind_t kind, const uint64_t secret[4])
{
    uint32_t           holders, views;
    kvr_shard_zone_t  *z;

    z = (kvr_shard_zone_t *) (mem->base + at);
    memset(z, 0, sizeof(kvr_shard_zone_t));

    kvr_fleet_bounds(workers, &holders, &views);

    at += kvr_shard_round(sizeof(kvr_shard_zone_t));
    z->journal = at;
    mem->journal = (kvr_journal_t *) (mem->base + at);
    mem->journal->n = 0;

    at += kvr_shard_round(sizeof(kvr_journal_t));
    kvr_fleet_format(mem, &z->fleet, at, workers);

    at += kvr_shard_round(kvr_fleet_size(workers));
    kvr_index_format(mem, &z->index, kind, at, mem->size - at, views, secret);
}


bool
kvr_shard_attach(kvr_shard_t *k, const kvr_mem_t *mem, uint64_t at,
    const kvr_params_t *params, uint64_t *scratch)
{
    kvr_shard_zone_t  *z;

    z = (kvr_shard_zone_t *) (mem->base + at);

    if (z->journal >= mem->size
        || z->fleet.off_workers >= mem->size
        || z->fleet.off_views >= mem->size
        || z->fleet.off_spans >= mem->size
        || z->fleet.nworkers > z->fleet.max_workers
        || z->fleet.max_workers != kvr_shard_workers(params)
        || z->index.kind != params->index
        || !kvr_index_valid(&z->index, mem->size))
    {
        return false;
    }

    memset(k, 0, sizeof(kvr_shard_t));

    k->zone = z;
    k->params = params;
    k->mem = *mem;
    k->mem.journal = (kvr_journal_t *) (mem->base + z->journal);
    k->self = kvr_owner_self();
    k->hashes = scratch;
    k->handles = scratch + KVR_EVENT_BLOCKS_MAX;

    kvr_index_attach(&k->index, &k->mem, &z->index);
    kvr_fleet_attach(&k->fleet, &k->mem, &z->fleet);
    kvr_shard_forget_init(k);

    return true;
}


/* ---- lock --------------------------------------------------------------- */

kvr_rc_t
kvr_shard_lock(kvr_shard_t *k, uint32_t timeout_ms)
{
    bool      broken;
    kvr_rc_t  rc;

    rc = kvr_lock_acquire(&k->zone->lock, k->self, timeout_ms, &broken);
    if (rc != KVR_OK) {
        return rc;
    }

    if (broken) {
        kvr_put64(&k->zone->lock_breaks, k->zone->lock_breaks + 1);
    }

    if (k->mem.journal->n) {
        (void) kvr_txn_rollback(&k->mem);
        kvr_fleet_touch(&k->fleet);
        kvr_put64(&k->zone->rollbacks, k->zone->rollbacks + 1);
    }

    return KVR_OK;
}


void
kvr_shard_unlock(kvr_shard_t *k)
{
    kvr_txn_commit(&k->mem);
    kvr_lock_release(&k->zone->lock, k->self);
}


kvr_rc_t
kvr_shard_lock_leased(kvr_shard_t *k)
{
    kvr_rc_t  rc;

    rc = kvr_shard_lock(k, KVR_LOCK_MS);
    if (rc != KVR_OK) {
        return rc;
    }

    if (k->token == 0 || k->zone->lease.token != k->token
        || k->zone->lease.owner != k->self)
    {
        k->token = 0;
        kvr_shard_unlock(k);
        return KVR_LOST;
    }

    return KVR_OK;
}


/* The lock, and a worker that is there; on KVR_OK the caller unlocks. */

kvr_rc_t
kvr_shard_enter(kvr_shard_t *k, const char *id, size_t len, uint32_t *worker)
{
    kvr_rc_t  rc;

    rc = kvr_shard_lock(k, KVR_LOCK_MS);
    if (rc != KVR_OK) {
        return rc;
    }

    if (kvr_fleet_find(&k->fleet, id, len, worker) != KVR_OK
        || k->fleet.workers[*worker].flags & KVR_WORKER_DELETED)
    {
        kvr_shard_unlock(k);
        return KVR_DECLINED;
    }

    return KVR_OK;
}


/* ---- order -------------------------------------------------------------- */

void
kvr_shard_recover(kvr_shard_t *k)
{
    if (kvr_lock_orphaned(&k->zone->lock) && kvr_shard_lock(k, 0) == KVR_OK) {
        kvr_shard_unlock(k);
    }
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


/* Is something aside of nobody, who will not take it down either? */

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


/* A round is over: views of which nothing is left may be used again. */

static void
kvr_reclaim_finish(kvr_shard_t *k)
{
    uint32_t  v;

    for (v = 0; v < k->zone->fleet.nviews; v++) {
        if (kvr_view_dying(k, v) && kvr_index_view_empty(&k->index, v)) {
            kvr_fleet_free_view(&k->fleet, v);

            /* thousands may die together: the log is not for all of them */
            if (kvr_txn_room(&k->mem) < 16) {
                kvr_txn_commit(&k->mem);
            }
        }
    }
}


/* ---- lease -------------------------------------------------------------- */

/*
 * A lease whose holder is gone becomes free first, so that all who wait count
 * from the same moment.
 */

kvr_rc_t
kvr_shard_lease(kvr_shard_t *k, uint32_t wait_ms, uint64_t now_ms)
{
    kvr_rc_t      rc;
    kvr_lease_t  *lease;
    kvr_owner_t   owner;
    uint64_t      renewed;

    lease = &k->zone->lease;
    owner = kvr_load64(&lease->owner);
    renewed = kvr_load64(&lease->renewed_ms);

    if (owner != k->self || k->token != kvr_load64(&lease->token)) {

        k->token = 0;

        if (owner == 0 && wait_ms && now_ms < renewed + wait_ms) {
            return KVR_BUSY;
        }

        if (owner && now_ms <= renewed + KVR_LEASE_MS
            && kvr_owner_alive(owner))
        {
            return KVR_DECLINED;
        }
    }

    rc = kvr_shard_lock(k, 0);
    if (rc != KVR_OK) {
        /* a renewal may wait for the next time, a taking must */
        return k->token ? KVR_OK : rc;
    }

    if (lease->owner == k->self && lease->token == k->token && k->token) {
        kvr_set64(&k->mem, &lease->renewed_ms, now_ms);

    } else if (lease->owner != owner || lease->renewed_ms != renewed) {
        rc = KVR_DECLINED;

    } else if (owner && wait_ms) {
        kvr_set64(&k->mem, &lease->owner, 0);
        kvr_set64(&k->mem, &lease->renewed_ms, now_ms);
        rc = KVR_BUSY;

    } else {
        if (k->zone->fleet.naside) {
            kvr_shard_sweep_aside(k);
        }

        kvr_set64(&k->mem, &lease->owner, k->self);
        kvr_set64(&k->mem, &lease->token, lease->token + 1);
        kvr_set64(&k->mem, &lease->renewed_ms, now_ms);
        k->token = lease->token;
    }

    kvr_shard_unlock(k);

    return rc;
}


void
kvr_shard_lease_release(kvr_shard_t *k)
{
    kvr_lease_t  *lease;

    if (k->token == 0) {
        return;
    }

    if (kvr_shard_lock(k, KVR_LOCK_MS) == KVR_OK) {

        lease = &k->zone->lease;

        if (lease->token == k->token) {
            kvr_set64(&k->mem, &lease->owner, 0);
            kvr_set64(&k->mem, &lease->renewed_ms, kvr_now_us() / 1000);
        }

        kvr_shard_unlock(k);
    }

    k->token = 0;
}
