/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Members: a zone's workers and holders over all shards, by the numbers that
 * the zone has for them.
 *
 * Number x of shard i is number x * shards + i of the zone: the numbers of a
 * zone with one shard are the shard's, and those of several stay close
 * together, since workers fall to shards evenly.
 */


#include "kvr_shard.h"
#include "kvr_views.h"
#include "../traffic/kvr_churn.h"

#include <stdio.h>


static kvr_health_t *kvr_members_health(const kvr_router_t *r,
    const kvr_shard_t *k, uint32_t worker);
static bool kvr_members_taken(const kvr_worker_t *w,
    const kvr_worker_conf_t *conf);
static kvr_rc_t kvr_members_retire(kvr_shard_t *k,
    const kvr_worker_conf_t *confs, size_t n);


/* ---- numbers ------------------------------------------------------------ */

/* The shard of a number of the zone, and the number within that shard. */

static inline const kvr_shard_t *
kvr_members_shard(const kvr_router_t *r, uint32_t number, uint32_t *local)
{
    *local = number / r->nshards;

    return &r->shards[number % r->nshards];
}


uint32_t
kvr_router_worker_shard(const kvr_router_t *r, uint32_t worker)
{
    return worker % r->nshards;
}


/*
 * The sum of all shards' versions. A version only advances, so the sum changes
 * when one of them does.
 */

uint32_t
kvr_router_version(const kvr_router_t *r)
{
    uint32_t  i, version;

    version = 0;

    for (i = 0; i < r->nshards; i++) {
        version += __atomic_load_n(&r->shards[i].zone->fleet.version,
                                   __ATOMIC_ACQUIRE);
    }

    return version;
}


uint32_t
kvr_router_workers(const kvr_router_t *r)
{
    uint32_t  i, n;

    n = 0;

    for (i = 0; i < r->nshards; i++) {
        n = kvr_max(n, kvr_load32(&r->shards[i].zone->fleet.nworkers));
    }

    return n * r->nshards;
}


uint32_t
kvr_router_max_workers(const kvr_router_t *r)
{
    return r->shards[0].zone->fleet.max_workers * r->nshards;
}


uint32_t
kvr_router_max_holders(const kvr_router_t *r)
{
    return r->shards[0].zone->fleet.max_holders * r->nshards;
}


uint32_t
kvr_router_holders(const kvr_router_t *r)
{
    uint32_t  i, n;

    n = 0;

    for (i = 0; i < r->nshards; i++) {
        n += kvr_load32(&r->shards[i].zone->fleet.nholders);
    }

    return n;
}


kvr_rc_t
kvr_router_find_worker(const kvr_router_t *r, const char *id, size_t len,
    uint32_t *worker)
{
    uint32_t  i;

    i = kvr_router_shard(r, id, len);

    if (kvr_fleet_find(&r->shards[i].fleet, id, len, worker) != KVR_OK) {
        return KVR_DECLINED;
    }

    *worker = *worker * r->nshards + i;

    return KVR_OK;
}


kvr_rc_t
kvr_router_read_worker(const kvr_router_t *r, uint32_t worker,
    kvr_worker_conf_t *conf, uint32_t *flags, uint32_t *generation)
{
    uint32_t            i;
    const kvr_shard_t  *k;

    k = kvr_members_shard(r, worker, &i);

    return kvr_fleet_read(&k->fleet, i, conf, flags, generation);
}


kvr_rc_t
kvr_router_publisher_reason(const kvr_router_t *r, uint32_t worker,
    char *reason)
{
    uint32_t            i;
    const kvr_shard_t  *k;

    k = kvr_members_shard(r, worker, &i);

    return kvr_fleet_reason(&k->fleet, i, reason);
}


const kvr_worker_t *
kvr_router_worker(const kvr_router_t *r, uint32_t worker)
{
    uint32_t            i;
    const kvr_shard_t  *k;

    k = kvr_members_shard(r, worker, &i);

    return &k->fleet.workers[i];
}


kvr_rc_t
kvr_router_find_holder(const kvr_router_t *r, uint32_t worker, uint32_t rank,
    uint32_t *holder)
{
    uint32_t            i;
    const kvr_shard_t  *k;

    k = kvr_members_shard(r, worker, &i);

    if (kvr_fleet_holder_find(&k->fleet, i, rank, holder) != KVR_OK) {
        return KVR_DECLINED;
    }

    *holder = *holder * r->nshards + worker % r->nshards;

    return KVR_OK;
}


bool
kvr_router_next_holder(const kvr_router_t *r, uint32_t worker,
    uint32_t *holder, uint32_t *steps)
{
    uint32_t            i, h;
    const kvr_fleet_t  *f;

    f = &kvr_members_shard(r, worker, &i)->fleet;

    h = *holder == KVR_HOLDER_NONE
        ? kvr_load32(&f->workers[i].first_holder)
        : kvr_load32(&f->holders[*holder / r->nshards].next);

    if (h >= f->zone->max_holders
        || (*steps)++ >= KVR_RANKS_MAX
        || kvr_load32(&f->holders[h].worker) != i)
    {
        *holder = KVR_HOLDER_NONE;
        return false;
    }

    *holder = h * r->nshards + worker % r->nshards;

    return true;
}


uint32_t
kvr_router_holder_worker(const kvr_router_t *r, uint32_t holder)
{
    uint32_t            i;
    const kvr_shard_t  *k;

    k = kvr_members_shard(r, holder, &i);

    return kvr_load32(&k->fleet.holders[i].worker) * r->nshards
           + holder % r->nshards;
}


uint32_t
kvr_router_holder_rank(const kvr_router_t *r, uint32_t holder)
{
    uint32_t            i;
    const kvr_shard_t  *k;

    k = kvr_members_shard(r, holder, &i);

    return kvr_load32(&k->fleet.holders[i].rank);
}


uint32_t
kvr_router_holder_held(const kvr_router_t *r, uint32_t holder)
{
    uint32_t            i, view;
    const kvr_shard_t  *k;

    k = kvr_members_shard(r, holder, &i);
    view = kvr_load32(&k->fleet.holders[i].view);

    return view < k->fleet.zone->max_views
           ? kvr_index_held(&k->index, view) : 0;
}


double
kvr_router_holder_churn(const kvr_router_t *r, uint32_t holder,
    uint32_t now_s)
{
    uint32_t            i;
    const kvr_shard_t  *k;

    k = kvr_members_shard(r, holder, &i);

    return kvr_churn_read(&k->fleet.holders[i].churn, now_s);
}


uint32_t
kvr_router_holder_span(const kvr_router_t *r, uint32_t holder)
{
    uint32_t            i, view;
    const kvr_shard_t  *k;

    k = kvr_members_shard(r, holder, &i);
    view = kvr_load32(&k->fleet.holders[i].view);

    return view < k->fleet.zone->max_views
           ? kvr_max(kvr_load32(&k->fleet.view_span[view]), 1) : 1;
}


/* ---- health ------------------------------------------------------------- */

kvr_health_t *
kvr_router_health(const kvr_router_t *r, uint32_t worker)
{
    return &r->health[worker];
}


void
kvr_members_begin(const kvr_router_t *r, const kvr_shard_t *k, uint32_t worker)
{
    kvr_health_begin(kvr_members_health(r, k, worker),
                     k->fleet.workers[worker].generation,
                     kvr_now_us() / 1000);
}


void
kvr_members_returned(const kvr_router_t *r, const kvr_shard_t *k,
    uint32_t worker)
{
    (void) kvr_health_returned(kvr_members_health(r, k, worker),
                               k->fleet.workers[worker].generation,
                               kvr_now_us() / 1000);
}


static kvr_health_t *
kvr_members_health(const kvr_router_t *r, const kvr_shard_t *k,
    uint32_t worker)
{
    return &r->health[worker * r->nshards + (uint32_t) (k - r->shards)];
}


/* ---- membership --------------------------------------------------------- */

kvr_shard_t *
kvr_members_shard_for(kvr_router_t *r, const kvr_worker_conf_t *conf)
{
    size_t  len;

    len = strnlen(conf->id, sizeof(conf->id));

    if (!kvr_worker_id_valid(conf->id, len)
        || conf->ranks == 0 || conf->ranks > KVR_RANKS_MAX)
    {
        return NULL;
    }

    return kvr_shard_of(r, conf->id, len);
}


kvr_rc_t
kvr_members_put(const kvr_router_t *r, kvr_shard_t *k,
    const kvr_worker_conf_t *conf, uint32_t origin, uint32_t *worker)
{
    bool           known;
    uint32_t       rank, holder;
    kvr_rc_t       rc;
    kvr_worker_t  *w;

    known = false;

    rc = kvr_fleet_find(&k->fleet, conf->id, strlen(conf->id), worker);

    if (rc == KVR_OK) {
        w = &k->fleet.workers[*worker];
        known = origin == 0
                || (!(w->flags & KVR_WORKER_DELETED)
                    && strcmp(w->conf.address, conf->address) == 0);
    }

    if (origin != 0) {
        rc = kvr_fleet_put(&k->fleet, conf, origin, worker);
    }

    for (rank = 0; rc == KVR_OK && rank < conf->ranks; rank++) {
        rc = kvr_fleet_holder(&k->fleet, *worker, rank, &holder);
    }

    if (rc != KVR_OK) {
        (void) kvr_txn_rollback(&k->mem);
        kvr_fleet_touch(&k->fleet);

    } else if (!known) {
        kvr_members_begin(r, k, *worker);
    }

    return rc;
}


kvr_rc_t
kvr_router_put_worker(kvr_router_t *r, const kvr_worker_conf_t *conf,
    uint32_t origin)
{
    uint32_t       worker, flags;
    kvr_rc_t       rc;
    kvr_shard_t   *k;
    kvr_worker_t  *w;

    k = kvr_members_shard_for(r, conf);
    if (k == NULL) {
        return KVR_INVALID;
    }

    rc = kvr_shard_lock(k, KVR_LOCK_MS);
    if (rc != KVR_OK) {
        return rc;
    }

    if (kvr_fleet_find(&k->fleet, conf->id, strlen(conf->id), &worker)
        == KVR_OK)
    {
        w = &k->fleet.workers[worker];
        flags = w->flags;

        if (origin != KVR_WORKER_API
            && (flags & KVR_WORKER_API || kvr_worker_tombstone(flags)))
        {
            kvr_shard_unlock(k);
            return flags & KVR_WORKER_DELETED || origin == KVR_WORKER_NAMED
                   ? KVR_DECLINED : KVR_OK;
        }

        if (origin == KVR_WORKER_NAMED) {

            if (kvr_members_taken(w, conf)) {
                kvr_shard_unlock(k);
                return KVR_DECLINED;
            }

            if (flags & KVR_WORKER_DELETED) {
                kvr_fleet_set_flags(&k->fleet, worker, 0,
                                    ~(KVR_WORKER_USED | KVR_WORKER_DELETED));
                kvr_fleet_renew(&k->fleet, worker);
            }
        }

        /*
         * each process of a new configuration makes the same change: nothing
         * may be left to do
         */

        if (origin == KVR_WORKER_SEEN
            || (flags & origin
                && memcmp(&w->conf, conf, sizeof(kvr_worker_conf_t)) == 0))
        {
            kvr_shard_unlock(k);
            return KVR_OK;
        }
    }

    rc = kvr_members_put(r, k, conf, origin, &worker);

    kvr_shard_unlock(k);

    return rc;
}


/* Is the id not for this worker of a host name? */

static bool
kvr_members_taken(const kvr_worker_t *w, const kvr_worker_conf_t *conf)
{
    if (w->flags & KVR_WORKER_DELETED) {
        return w->flags & KVR_WORKER_NOT_INDEXED;
    }

    return w->flags & (KVR_WORKER_STATIC | KVR_WORKER_REDIS)
           || (w->flags & KVR_WORKER_NAMED && w->conf.name != conf->name);
}


kvr_rc_t
kvr_router_set_static(kvr_router_t *r, const kvr_worker_conf_t *confs,
    size_t n)
{
    size_t    i;
    kvr_rc_t  rc;

    for (i = 0; i < n; i++) {
        rc = kvr_router_put_worker(r, &confs[i], KVR_WORKER_STATIC);

        if (rc != KVR_OK && rc != KVR_DECLINED) {
            return rc;
        }
    }

    for (i = 0; i < r->nshards; i++) {
        rc = kvr_members_retire(&r->shards[i], confs, n);

        if (rc != KVR_OK) {
            return rc;
        }
    }

    return KVR_OK;
}


/* Retires the shard's workers which are not in the configuration any more. */

static kvr_rc_t
kvr_members_retire(kvr_shard_t *k, const kvr_worker_conf_t *confs, size_t n)
{
    size_t             i;
    uint32_t           worker, ignored;
    kvr_rc_t           rc;
    kvr_worker_t      *w;
    kvr_worker_conf_t  conf;

    rc = kvr_shard_lock(k, KVR_LOCK_MS);
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

    kvr_shard_unlock(k);

    return KVR_OK;
}


kvr_rc_t
kvr_router_remove_worker(kvr_router_t *r, const char *id, size_t len)
{
    uint32_t      worker;
    kvr_rc_t      rc;
    kvr_shard_t  *k;

    k = kvr_shard_of(r, id, len);

    rc = kvr_shard_enter(k, id, len, &worker);

    if (rc == KVR_OK) {
        kvr_shard_clear_all(k, worker);
        kvr_fleet_forget_stream(&k->fleet, worker);
        kvr_fleet_set_reason(&k->fleet, worker, "");
        kvr_fleet_set_flags(&k->fleet, worker, KVR_WORKER_DELETED,
                            KVR_WORKER_DRAINS | KVR_WORKER_STATIC
                            | KVR_WORKER_API | KVR_WORKER_SEEN
                            | KVR_WORKER_REDIS | KVR_WORKER_TRUNCATED
                            | KVR_WORKER_HYBRID | KVR_WORKER_REPORTS
                            | KVR_WORKER_PARTIAL | KVR_WORKER_EVENTS);
        kvr_set64(&k->mem, &k->fleet.workers[worker].expires_ms, 0);
        kvr_shard_unlock(k);
    }

    return rc;
}


void
kvr_router_no_room(const kvr_router_t *r, const char *id, size_t len,
    char *text)
{
    bool                workers;
    uint32_t            worker;
    const kvr_fleet_t  *f;

    f = &r->shards[kvr_router_shard(r, id, len)].fleet;

    workers = kvr_fleet_find(f, id, len, &worker) != KVR_OK
              && !kvr_fleet_room(f);

    snprintf(text, KVR_NO_ROOM, "all %s are taken: %u%s; raise max_workers",
             workers ? "workers" : "(worker, rank) pairs",
             workers ? f->zone->max_workers : f->zone->max_holders,
             r->nshards > 1 ? " of the shard" : "");
}


kvr_rc_t
kvr_router_drain(kvr_router_t *r, const char *id, size_t len, bool on)
{
    uint32_t      worker, end;
    kvr_rc_t      rc;
    kvr_shard_t  *k;

    k = kvr_shard_of(r, id, len);

    rc = kvr_shard_enter(k, id, len, &worker);

    if (rc == KVR_OK) {

        /* a registration that is gone can't say that it drains no more */

        end = k->fleet.workers[worker].expires_ms > kvr_now_us() / 1000
              ? KVR_WORKER_DRAINING : KVR_WORKER_DRAINS;

        kvr_fleet_set_flags(&k->fleet, worker, on ? KVR_WORKER_DRAINING : 0,
                            on ? 0 : end);

        if (!on) {
            kvr_members_begin(r, k, worker);
        }

        kvr_shard_unlock(k);
    }

    return rc;
}


kvr_rc_t
kvr_router_mark(kvr_router_t *r, uint32_t worker, uint32_t set,
    uint32_t clear)
{
    uint32_t            flags, generation;
    kvr_rc_t            rc;
    kvr_shard_t        *k;
    kvr_worker_conf_t   conf;

    rc = kvr_router_read_worker(r, worker, &conf, &flags, &generation);

    if (rc != KVR_OK || ((flags & ~clear) | set) == flags) {
        return rc;
    }

    k = kvr_shard_of(r, conf.id, strlen(conf.id));

    rc = kvr_shard_enter(k, conf.id, strlen(conf.id), &worker);

    if (rc == KVR_OK) {
        kvr_fleet_set_flags(&k->fleet, worker, set, clear);
        kvr_shard_unlock(k);
    }

    return rc;
}
