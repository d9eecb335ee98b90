/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_zone.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>


#define KVR_WORKERS_MAX      16384
#define KVR_RECLAIM_SLOTS    2048       /* looked at between two clock reads */


static uint64_t kvr_zone_offset_of(uint64_t at);
static bool kvr_view_dying(void *data, uint32_t view);
static void kvr_reclaim_finish(kvr_router_t *k);
static uint64_t kvr_now_us(void);


/* ---- making and opening ------------------------------------------------- */

static uint64_t
kvr_zone_offset_of(uint64_t at)
{
    return (at + 63) & ~UINT64_C(63);
}


kvr_rc_t
kvr_router_format(void *base, size_t size, const kvr_params_t *params,
    char why[KVR_WHY_LEN])
{
    uint32_t     holders, views;
    uint64_t     at, secret[4];
    kvr_mem_t    mem;
    kvr_zone_t  *z;

    if (params->block_size == 0 || params->block_size > KVR_BLOCK_SIZE_MAX) {
        snprintf(why, KVR_WHY_LEN, "block_size must be 1..%u",
                 KVR_BLOCK_SIZE_MAX);
        return KVR_INVALID;
    }

    if (params->max_workers == 0 || params->max_workers > KVR_WORKERS_MAX) {
        snprintf(why, KVR_WHY_LEN, "max_workers must be 1..%u",
                 KVR_WORKERS_MAX);
        return KVR_INVALID;
    }

    if (params->index >= KVR_INDEX_KINDS) {
        snprintf(why, KVR_WHY_LEN, "there is no index %u", params->index);
        return KVR_INVALID;
    }

    if (getrandom(secret, sizeof(secret), 0) != (ssize_t) sizeof(secret)) {
        snprintf(why, KVR_WHY_LEN, "getrandom() failed");
        return KVR_ERROR;
    }

    /* what is of a fixed size, at most half of the zone */

    kvr_fleet_bounds(params->max_workers, &holders, &views);

    at = kvr_zone_offset_of(sizeof(kvr_zone_t))
         + kvr_zone_offset_of(sizeof(kvr_journal_t))
         + kvr_zone_offset_of(kvr_fleet_size(params->max_workers))
         + kvr_zone_offset_of(kvr_load_size(holders))
         + kvr_index_views_size(params->index, views);

    if (size < KVR_ZONE_MIN || size / 2 < at) {
        snprintf(why, KVR_WHY_LEN, "%zu bytes are too few for %u workers: "
                 "at least %llu are needed", size, params->max_workers,
                 (unsigned long long) kvr_max(at * 2, KVR_ZONE_MIN));
        return KVR_INVALID;
    }

    if (size > (uint64_t) UINT32_MAX * sizeof(uint64_t)) {
        snprintf(why, KVR_WHY_LEN, "a zone may have 32 GiB at most");
        return KVR_INVALID;
    }

    z = base;
    memset(z, 0, sizeof(kvr_zone_t));

    z->layout = KVR_ZONE_VERSION;
    z->size = size;
    z->params = *params;

    mem.base = base;
    mem.size = size;

    at = kvr_zone_offset_of(sizeof(kvr_zone_t));
    z->journal = at;
    mem.journal = (kvr_journal_t *) (mem.base + at);
    mem.journal->n = 0;

    at += kvr_zone_offset_of(sizeof(kvr_journal_t));
    kvr_fleet_format(&mem, &z->fleet, at, params->max_workers);

    at += kvr_zone_offset_of(kvr_fleet_size(params->max_workers));
    kvr_load_format(&mem, &z->load, at, holders);

    at += kvr_zone_offset_of(kvr_load_size(holders));
    kvr_index_format(&mem, &z->index, params->index, at, size - at, views,
                     secret);

    /* last: a zone without it is not one */

    __atomic_store_n(&z->magic, KVR_ZONE_MAGIC, __ATOMIC_RELEASE);

    return KVR_OK;
}


kvr_rc_t
kvr_router_attach(kvr_router_t *k, void *base, size_t size,
    const kvr_params_t *params, char why[KVR_WHY_LEN])
{
    kvr_zone_t  *z;

    z = base;

    if (size < KVR_ZONE_MIN
        || __atomic_load_n(&z->magic, __ATOMIC_ACQUIRE) != KVR_ZONE_MAGIC)
    {
        snprintf(why, KVR_WHY_LEN, "the memory holds no kv-router zone");
        return KVR_INVALID;
    }

    if (z->layout != KVR_ZONE_VERSION) {
        snprintf(why, KVR_WHY_LEN, "the zone has layout %u, this software "
                 "has %u", z->layout, KVR_ZONE_VERSION);
        return KVR_INVALID;
    }

    if (z->size != size || z->journal >= size
        || !kvr_index_valid(&z->index, size)
        || z->fleet.off_workers >= size || z->fleet.off_views >= size
        || z->fleet.nworkers > z->fleet.max_workers
        || z->fleet.max_workers != z->params.max_workers)
    {
        snprintf(why, KVR_WHY_LEN, "the zone's header is damaged");
        return KVR_INVALID;
    }

    if (params && params->block_size != z->params.block_size) {
        snprintf(why, KVR_WHY_LEN, "it was made with block_size=%u, not %u",
                 z->params.block_size, params->block_size);
        return KVR_INVALID;
    }

    if (params && params->max_workers != z->params.max_workers) {
        snprintf(why, KVR_WHY_LEN, "it was made with max_workers=%u, not %u",
                 z->params.max_workers, params->max_workers);
        return KVR_INVALID;
    }

    if (params && strcmp(params->model, z->params.model) != 0) {
        snprintf(why, KVR_WHY_LEN, "it was made with model \"%.60s\", not "
                 "\"%.60s\"", z->params.model, params->model);
        return KVR_INVALID;
    }

    if (params && params->index != z->params.index) {
        snprintf(why, KVR_WHY_LEN, "it was made with index=%s, not %s",
                 kvr_index_name(z->params.index),
                 kvr_index_name(params->index));
        return KVR_INVALID;
    }

    memset(k, 0, sizeof(kvr_router_t));

    k->zone = z;
    k->size = size;
    k->mem.base = base;
    k->mem.size = size;
    k->mem.journal = (kvr_journal_t *) (k->mem.base + z->journal);
    k->self = kvr_owner_self();

    k->rows = malloc(3 * z->fleet.max_views * sizeof(uint32_t));
    k->hashes = malloc(KVR_EVENT_BLOCKS_MAX * sizeof(uint64_t));

    if (k->rows == NULL || k->hashes == NULL) {
        kvr_router_detach(k);
        snprintf(why, KVR_WHY_LEN, "out of memory");
        return KVR_ERROR;
    }

    kvr_index_attach(&k->index, &k->mem, &z->index);
    kvr_fleet_attach(&k->fleet, &k->mem, &z->fleet);
    kvr_load_attach(&k->load, &k->mem, kvr_index_arena(&k->index), &z->load);

    return KVR_OK;
}


void
kvr_router_detach(kvr_router_t *k)
{
    free(k->rows);
    free(k->hashes);

    k->rows = NULL;
    k->hashes = NULL;
}


const kvr_params_t *
kvr_router_params(const kvr_router_t *k)
{
    return &k->zone->params;
}


/* ---- lock --------------------------------------------------------------- */

kvr_rc_t
kvr_zone_lock(kvr_router_t *k, uint32_t timeout_ms)
{
    bool      broken;
    kvr_rc_t  rc;

    rc = kvr_lock_acquire(&k->zone->lock, k->self, timeout_ms, &broken);
    if (rc != KVR_OK) {
        return rc;
    }

    if (broken) {
        k->zone->lock_breaks++;
    }

    if (k->mem.journal->n) {
        (void) kvr_txn_rollback(&k->mem);
        kvr_fleet_touch(&k->fleet);
        k->zone->rollbacks++;
    }

    return KVR_OK;
}


void
kvr_zone_unlock(kvr_router_t *k)
{
    kvr_txn_commit(&k->mem);
    kvr_lock_release(&k->zone->lock, k->self);
}


/* ---- processes ---------------------------------------------------------- */

kvr_rc_t
kvr_router_join(kvr_router_t *k)
{
    kvr_rc_t  rc;

    k->self = kvr_owner_self();
    k->token = 0;

    rc = kvr_zone_lock(k, KVR_LOCK_MS);
    if (rc != KVR_OK) {
        return rc;
    }

    (void) kvr_load_reclaim(&k->load);

    kvr_index_begin(&k->index);
    (void) kvr_load_join(&k->load, k->self);

    kvr_zone_unlock(k);

    return KVR_OK;
}


void
kvr_router_leave(kvr_router_t *k)
{
    kvr_router_lease_release(k);

    if (kvr_zone_lock(k, KVR_LOCK_MS) != KVR_OK) {
        /* others find the process dead and clean up */
        return;
    }

    kvr_load_leave(&k->load);

    kvr_zone_unlock(k);
}


bool
kvr_router_tend(kvr_router_t *k, uint64_t now_ms, uint32_t slice_us)
{
    bool      more;
    uint64_t  until;

    if (kvr_lock_orphaned(&k->zone->lock)) {
        if (kvr_zone_lock(k, 0) != KVR_OK) {
            return false;
        }

        kvr_zone_unlock(k);
    }

    if (now_ms - k->tended_ms >= KVR_TEND_LOADS_MS) {
        k->tended_ms = now_ms;

        if (kvr_load_orphaned(&k->load) && kvr_zone_lock(k, 0) == KVR_OK) {
            (void) kvr_load_reclaim(&k->load);
            kvr_zone_unlock(k);
        }
    }

    if (kvr_load32(&k->zone->fleet.ndying) == 0) {
        return false;
    }

    if (kvr_zone_lock(k, 0) != KVR_OK) {
        return true;
    }

    until = kvr_now_us() + slice_us;

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

    } while (more && kvr_now_us() < until);

    kvr_zone_unlock(k);

    return more;
}


static bool
kvr_view_dying(void *data, uint32_t view)
{
    kvr_router_t  *k = data;

    return k->fleet.view_holder[view] == KVR_VIEW_DYING;
}


/* A round is over: views of which nothing is left may be used again. */

static void
kvr_reclaim_finish(kvr_router_t *k)
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


static uint64_t
kvr_now_us(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}


/* ---- reading ------------------------------------------------------------ */

uint32_t
kvr_router_find(const kvr_router_t *k, const uint64_t *locals, uint32_t n,
    kvr_match_t *out, uint32_t cap)
{
    uint32_t      v, h, t, nviews, found;
    uint32_t     *rows;
    kvr_match_t  *m;
    kvr_depths_t  depths;

    /* views that came after this have nothing that the lookup must see */

    nviews = kvr_min(kvr_load32(&k->zone->fleet.nviews),
                     k->zone->fleet.max_views);

    if (nviews == 0 || n == 0) {
        return 0;
    }

    rows = k->rows;

    for (t = 0; t < 3; t++) {
        depths.depths[t] = rows + t * k->zone->fleet.max_views;
    }

    depths.nviews = nviews;

    if (kvr_index_find(&k->index, locals, n, &depths) == 0) {
        return 0;
    }

    if (!depths.tiered) {
        depths.depths[0] = depths.depths[2];
        depths.depths[1] = depths.depths[2];
    }

    found = 0;

    for (v = 0; v < nviews && found < cap; v++) {

        if (depths.depths[2][v] == 0) {
            continue;
        }

        h = kvr_load32(&k->fleet.view_holder[v]);

        if (h >= k->zone->fleet.max_holders) {
            continue;               /* cleared, waits for its reclaim */
        }

        m = &out[found++];
        m->holder = h;
        m->device = depths.depths[0][v];
        m->host = depths.depths[1][v];
        m->disk = depths.depths[2][v];
    }

    return found;
}


void
kvr_router_stats(const kvr_router_t *k, kvr_stats_t *out)
{
    const kvr_zone_t   *z;
    kvr_index_usage_t   usage;

    z = k->zone;

    kvr_index_usage(&k->index, &usage);
    memset(out, 0, sizeof(kvr_stats_t));

    out->zone_bytes = z->size;
    out->arena_bytes = usage.arena_max;
    out->arena_used = usage.arena;
    out->handles = usage.handles;
    out->handles_max = usage.handles_max;
    out->runs = usage.entries;
    out->runs_max = usage.entries_max;
    out->blocks = usage.blocks;
    out->holes = usage.holes;
    out->used_bytes = usage.bytes;
    out->views_dying = kvr_load32(&z->fleet.ndying);
    out->rollbacks = kvr_load64(&z->rollbacks);
    out->lock_breaks = kvr_load64(&z->lock_breaks);
    out->stores_full = kvr_load64(&z->stores_full);
    out->lookups_torn = usage.torn;
    out->workers = kvr_load32(&z->fleet.nworkers);
    out->holders = kvr_load32(&z->fleet.nholders);
    out->lease_pid = (uint32_t) kvr_owner_pid(kvr_load64(&z->lease.owner));
    out->lease_token = kvr_load64(&z->lease.token);
    out->load_reclaimed = kvr_load64(&z->load.reclaimed);
    out->load_overflow = kvr_load64(&z->load.overflow);
}


/* ---- membership --------------------------------------------------------- */

kvr_rc_t
kvr_router_put_worker(kvr_router_t *k, const kvr_worker_conf_t *conf,
    uint32_t origin)
{
    uint32_t       rank, worker, holder, flags;
    kvr_rc_t       rc;
    kvr_worker_t  *w;

    if (!kvr_worker_id_valid(conf->id, strnlen(conf->id, sizeof(conf->id)))
        || conf->ranks == 0 || conf->ranks > KVR_RANKS_MAX)
    {
        return KVR_INVALID;
    }

    rc = kvr_zone_lock(k, KVR_LOCK_MS);
    if (rc != KVR_OK) {
        return rc;
    }

    if (kvr_fleet_find(&k->fleet, conf->id, strlen(conf->id), &worker)
        == KVR_OK)
    {
        w = &k->fleet.workers[worker];
        flags = w->flags;

        if (origin != KVR_WORKER_API
            && (flags & (KVR_WORKER_DELETED | KVR_WORKER_API)))
        {
            kvr_zone_unlock(k);
            return flags & KVR_WORKER_DELETED ? KVR_DECLINED : KVR_OK;
        }

        if (origin == KVR_WORKER_SEEN) {
            kvr_zone_unlock(k);
            return KVR_OK;
        }

        if (memcmp(&w->conf, conf, sizeof(kvr_worker_conf_t)) == 0
            && flags & origin)
        {
            /* each process of a new configuration says the same */
            kvr_zone_unlock(k);
            return KVR_OK;
        }
    }

    rc = kvr_fleet_put(&k->fleet, conf, origin, &worker);

    for (rank = 0; rc == KVR_OK && rank < conf->ranks; rank++) {
        rc = kvr_fleet_holder(&k->fleet, worker, rank, &holder);
    }

    if (rc != KVR_OK) {
        (void) kvr_txn_rollback(&k->mem);
        kvr_fleet_touch(&k->fleet);
    }

    kvr_zone_unlock(k);

    return rc;
}


kvr_rc_t
kvr_router_set_static(kvr_router_t *k, const kvr_worker_conf_t *confs,
    size_t n)
{
    size_t             i;
    uint32_t           worker, ignored;
    kvr_rc_t           rc;
    kvr_worker_t      *w;
    kvr_worker_conf_t  conf;

    for (i = 0; i < n; i++) {
        rc = kvr_router_put_worker(k, &confs[i], KVR_WORKER_STATIC);

        if (rc != KVR_OK && rc != KVR_DECLINED) {
            return rc;
        }
    }

    rc = kvr_zone_lock(k, KVR_LOCK_MS);
    if (rc != KVR_OK) {
        return rc;
    }

    for (worker = 0; worker < k->fleet.zone->nworkers; worker++) {
        w = &k->fleet.workers[worker];

        if ((w->flags & KVR_WORKER_STATIC) == 0) {
            continue;
        }

        for (i = 0; i < n && strcmp(confs[i].id, w->conf.id) != 0; i++) {
            /* void */
        }

        if (i < n) {
            continue;
        }

        conf = w->conf;
        memset(conf.address, 0, sizeof(conf.address));

        (void) kvr_fleet_put(&k->fleet, &conf, KVR_WORKER_SEEN, &ignored);

        kvr_txn_commit(&k->mem);
    }

    kvr_zone_unlock(k);

    return KVR_OK;
}


/* The lock, and a worker that is there; on KVR_OK the caller unlocks. */

kvr_rc_t
kvr_zone_enter(kvr_router_t *k, const char *id, size_t len, uint32_t *worker)
{
    kvr_rc_t  rc;

    rc = kvr_zone_lock(k, KVR_LOCK_MS);
    if (rc != KVR_OK) {
        return rc;
    }

    if (kvr_fleet_find(&k->fleet, id, len, worker) != KVR_OK
        || k->fleet.workers[*worker].flags & KVR_WORKER_DELETED)
    {
        kvr_zone_unlock(k);
        return KVR_DECLINED;
    }

    return KVR_OK;
}


kvr_rc_t
kvr_router_remove_worker(kvr_router_t *k, const char *id, size_t len)
{
    uint32_t  worker;
    kvr_rc_t  rc;

    rc = kvr_zone_enter(k, id, len, &worker);

    if (rc == KVR_OK) {
        kvr_zone_clear_worker(k, worker);
        kvr_fleet_forget_stream(&k->fleet, worker);
        kvr_fleet_set_flags(&k->fleet, worker, KVR_WORKER_DELETED,
                            KVR_WORKER_DRAINING | KVR_WORKER_STATIC
                            | KVR_WORKER_API | KVR_WORKER_SEEN
                            | KVR_WORKER_TRUNCATED);
        kvr_zone_unlock(k);
    }

    return rc;
}


kvr_rc_t
kvr_router_drain(kvr_router_t *k, const char *id, size_t len, bool on)
{
    uint32_t  worker;
    kvr_rc_t  rc;

    rc = kvr_zone_enter(k, id, len, &worker);

    if (rc == KVR_OK) {
        kvr_fleet_set_flags(&k->fleet, worker, on ? KVR_WORKER_DRAINING : 0,
                            on ? 0 : KVR_WORKER_DRAINING);
        kvr_zone_unlock(k);
    }

    return rc;
}


/* ---- lease -------------------------------------------------------------- */

kvr_rc_t
kvr_router_lease(kvr_router_t *k, uint64_t now_ms)
{
    bool          take;
    kvr_rc_t      rc;
    kvr_lease_t  *lease;
    kvr_owner_t   owner;
    uint64_t      renewed;

    lease = &k->zone->lease;
    owner = kvr_load64(&lease->owner);
    renewed = kvr_load64(&lease->renewed_ms);

    if (owner != k->self || k->token != kvr_load64(&lease->token)) {

        k->token = 0;

        take = owner == 0
               || (now_ms > renewed && now_ms - renewed > KVR_LEASE_MS)
               || !kvr_owner_alive(owner);

        if (!take) {
            return KVR_DECLINED;
        }
    }

    rc = kvr_zone_lock(k, 0);
    if (rc != KVR_OK) {
        /* a renewal may wait for the next time, a taking must */
        return k->token ? KVR_OK : rc;
    }

    if (lease->owner == k->self && lease->token == k->token && k->token) {
        rc = KVR_OK;

    } else if (lease->owner == owner && lease->renewed_ms == renewed) {
        kvr_set64(&k->mem, &lease->owner, k->self);
        kvr_set64(&k->mem, &lease->token, lease->token + 1);
        rc = KVR_OK;

    } else {
        rc = KVR_DECLINED;
    }

    if (rc == KVR_OK) {
        kvr_set64(&k->mem, &lease->renewed_ms, now_ms);
        k->token = lease->token;
    }

    kvr_zone_unlock(k);

    return rc;
}


void
kvr_router_lease_release(kvr_router_t *k)
{
    if (k->token == 0) {
        return;
    }

    if (kvr_zone_lock(k, KVR_LOCK_MS) == KVR_OK) {

        if (k->zone->lease.token == k->token) {
            kvr_set64(&k->mem, &k->zone->lease.owner, 0);
        }

        kvr_zone_unlock(k);
    }

    k->token = 0;
}
