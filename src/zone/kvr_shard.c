/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_shard.h"


/* ---- parameters --------------------------------------------------------- */

uint32_t
kvr_router_shard(const kvr_router_t *r, const char *id, size_t len)
{
    if (r->nshards == 1) {
        return 0;
    }

    return (uint32_t) (kvr_hash_bytes(id, len, KVR_HASH_SEED) % r->nshards);
}


/* ---- making and opening ------------------------------------------------- */

/*
 * Workers are distributed to shards by a hash.  Room for twice the mean and 64
 * more is so many standard deviations above the mean that a shard is full only
 * when the zone is.
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

    return kvr_lines(sizeof(kvr_shard_zone_t))
           + kvr_lines(sizeof(kvr_journal_t))
           + kvr_lines(kvr_fleet_size(workers))
           + kvr_lines(kvr_estimated_size(holders))
           + kvr_index_views_size(kind, views);
}


void
kvr_shard_format(kvr_mem_t *mem, uint64_t at, uint32_t workers,
    kvr_index_kind_t kind, const uint64_t secret[4])
{
    uint32_t           holders, views;
    uint64_t           points;
    kvr_shard_zone_t  *z;

    z = (kvr_shard_zone_t *) (mem->base + at);
    memset(z, 0, sizeof(kvr_shard_zone_t));

    kvr_fleet_bounds(workers, &holders, &views);

    at += kvr_lines(sizeof(kvr_shard_zone_t));
    z->journal = at;
    mem->journal = (kvr_journal_t *) (mem->base + at);
    mem->journal->n = 0;

    at += kvr_lines(sizeof(kvr_journal_t));
    kvr_fleet_format(mem, &z->fleet, at, workers);

    at += kvr_lines(kvr_fleet_size(workers));
    z->estimates = at;
    memset(mem->base + at, 0, kvr_estimated_size(holders));

    at += kvr_lines(kvr_estimated_size(holders));
    points = kvr_lines((mem->size - at) / KVR_ESTIMATE_PART);
    kvr_recency_format(mem, &z->recency, at, points, secret + 2);

    at += points;
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
        || z->estimates >= mem->size
        || !kvr_recency_valid(&z->recency, mem->size)
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
    kvr_recency_attach(&k->recency, &k->mem, &z->recency);
    k->estimates = (kvr_estimated_t *) (mem->base + z->estimates);

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


/*
 * Takes the lock and finds a worker that exists; on KVR_OK the caller unlocks.
 */

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
