/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Registry: what Redis says of a zone's members, written by the holder of the
 * lease of a worker's shard; and who leaves the addresses of a host name.
 */


#include "kvr_shard.h"
#include "kvr_lease.h"
#include "kvr_views.h"


static kvr_rc_t kvr_registry_enter(kvr_router_t *r, const char *id, size_t len,
    kvr_shard_t **k, uint32_t *worker);
static void kvr_registry_drain(const kvr_router_t *r, kvr_shard_t *k,
    uint32_t worker, bool on, bool before);
static void kvr_registry_take_out(kvr_shard_t *k, uint32_t worker,
    uint32_t foreign);


kvr_rc_t
kvr_router_register(kvr_router_t *r, const kvr_registration_t *reg,
    uint64_t expires_ms, kvr_registered_t *what)
{
    bool                      same;
    uint32_t                  worker, flags, origin;
    kvr_rc_t                  rc;
    kvr_shard_t              *k;
    const kvr_worker_conf_t  *conf;

    conf = &reg->conf;
    same = false;
    origin = KVR_WORKER_REDIS;
    *what = KVR_REGISTERED_NEW;

    k = kvr_members_shard_for(r, conf);
    if (k == NULL) {
        return KVR_INVALID;
    }

    rc = kvr_shard_lock_leased(k);
    if (rc != KVR_OK) {
        return rc;
    }

    if (kvr_fleet_find(&k->fleet, conf->id, strlen(conf->id), &worker)
        == KVR_OK)
    {
        flags = k->fleet.workers[worker].flags;

        if (kvr_worker_tombstone(flags)) {
            kvr_shard_unlock(k);
            return KVR_DECLINED;
        }

        if (flags & (KVR_WORKER_API | KVR_WORKER_STATIC)) {
            /* all that counts of it, besides what it says, are its ranks */
            origin = 0;
            *what = KVR_REGISTERED_AS_BEFORE;

        } else if (flags & KVR_WORKER_REDIS && !(flags & KVR_WORKER_DELETED)
                   && memcmp(&k->fleet.workers[worker].conf, conf,
                             sizeof(kvr_worker_conf_t)) == 0)
        {
            same = true;
            *what = KVR_REGISTERED_AS_BEFORE;

        } else if (!(flags & (KVR_WORKER_DELETED | KVR_WORKER_SEEN
                              | KVR_WORKER_NAMED)))
        {
            *what = KVR_REGISTERED_CHANGED;
        }
    }

    rc = same ? KVR_OK : kvr_members_put(r, k, conf, origin, &worker);

    if (rc == KVR_OK) {
        kvr_set64(&k->mem, &k->fleet.workers[worker].expires_ms, expires_ms);
        kvr_fleet_set_reason(&k->fleet, worker, reg->reason);
        kvr_registry_drain(r, k, worker, reg->draining, reg->drained);

        if (reg->hybrid) {
            kvr_fleet_set_flags(&k->fleet, worker, KVR_WORKER_HYBRID, 0);
        }
    }

    kvr_shard_unlock(k);

    return rc;
}


kvr_rc_t
kvr_router_deregister(kvr_router_t *r, const char *id, size_t len)
{
    uint32_t      worker, flags;
    kvr_rc_t      rc;
    kvr_shard_t  *k;

    rc = kvr_registry_enter(r, id, len, &k, &worker);
    if (rc != KVR_OK) {
        return rc;
    }

    flags = k->fleet.workers[worker].flags;

    if (flags & KVR_WORKER_REDIS && !(flags & KVR_WORKER_DELETED)) {
        kvr_registry_take_out(k, worker, 0);

    } else {
        kvr_set64(&k->mem, &k->fleet.workers[worker].expires_ms, 0);
        kvr_fleet_set_reason(&k->fleet, worker, "");
        kvr_registry_drain(r, k, worker, false, true);
        rc = KVR_DECLINED;
    }

    kvr_shard_unlock(k);

    return rc;
}


kvr_rc_t
kvr_router_expire(kvr_router_t *r, const char *id, size_t len, uint64_t now_ms)
{
    uint32_t       worker;
    kvr_rc_t       rc;
    kvr_shard_t   *k;
    kvr_worker_t  *w;

    rc = kvr_registry_enter(r, id, len, &k, &worker);
    if (rc != KVR_OK) {
        return rc;
    }

    w = &k->fleet.workers[worker];

    if (w->flags & KVR_WORKER_DELETED) {
        rc = KVR_DECLINED;

    } else if (w->expires_ms == 0 || w->expires_ms > now_ms) {
        kvr_set64(&k->mem, &w->expires_ms, now_ms);
    }

    kvr_shard_unlock(k);

    return rc;
}


kvr_rc_t
kvr_router_ignore_worker(kvr_router_t *r, const char *id, size_t len)
{
    uint32_t      worker, flags;
    kvr_rc_t      rc;
    kvr_shard_t  *k;

    rc = kvr_registry_enter(r, id, len, &k, &worker);
    if (rc != KVR_OK) {
        return rc;
    }

    flags = k->fleet.workers[worker].flags;

    if (flags & (KVR_WORKER_API | KVR_WORKER_STATIC | KVR_WORKER_NOT_INDEXED)
        || kvr_worker_tombstone(flags))
    {
        rc = KVR_DECLINED;

    } else {
        kvr_registry_take_out(k, worker, KVR_WORKER_NOT_INDEXED);
    }

    kvr_shard_unlock(k);

    return rc;
}


kvr_rc_t
kvr_router_take_named(kvr_router_t *r, const char *id, size_t len,
    uint64_t name)
{
    uint32_t             worker;
    kvr_rc_t             rc;
    kvr_shard_t         *k;
    const kvr_worker_t  *w;

    k = kvr_shard_of(r, id, len);

    rc = kvr_shard_lock(k, KVR_LOCK_MS);
    if (rc != KVR_OK) {
        return rc;
    }

    rc = KVR_DECLINED;

    if (kvr_fleet_find(&k->fleet, id, len, &worker) == KVR_OK) {
        w = &k->fleet.workers[worker];

        if (w->flags & KVR_WORKER_NAMED && w->conf.name == name) {
            kvr_registry_take_out(k, worker, 0);
            rc = KVR_OK;
        }
    }

    kvr_shard_unlock(k);

    return rc;
}


/*
 * Takes the lock and finds a worker, deleted or not; on KVR_OK the caller
 * unlocks.
 */

static kvr_rc_t
kvr_registry_enter(kvr_router_t *r, const char *id, size_t len,
    kvr_shard_t **k, uint32_t *worker)
{
    kvr_rc_t  rc;

    *k = kvr_shard_of(r, id, len);

    rc = kvr_shard_lock_leased(*k);
    if (rc != KVR_OK) {
        return rc;
    }

    rc = kvr_fleet_find(&(*k)->fleet, id, len, worker);
    if (rc != KVR_OK) {
        kvr_shard_unlock(*k);
    }

    return rc;
}


/*
 * A drain that the zone did not know when Redis was asked began later, by a
 * message: the answer is older than that.
 */

static void
kvr_registry_drain(const kvr_router_t *r, kvr_shard_t *k, uint32_t worker,
    bool on, bool before)
{
    if (on) {
        kvr_fleet_set_flags(&k->fleet, worker, KVR_WORKER_LEAVING, 0);

    } else if (before
               && k->fleet.workers[worker].flags & KVR_WORKER_LEAVING)
    {
        kvr_fleet_set_flags(&k->fleet, worker, 0, KVR_WORKER_LEAVING);
        kvr_members_begin(r, k, worker);
    }
}


static void
kvr_registry_take_out(kvr_shard_t *k, uint32_t worker, uint32_t foreign)
{
    kvr_shard_clear_all(k, worker);
    kvr_fleet_forget_stream(&k->fleet, worker);
    kvr_fleet_set_reason(&k->fleet, worker, "");
    kvr_set64(&k->mem, &k->fleet.workers[worker].expires_ms, 0);
    kvr_fleet_set_flags(&k->fleet, worker,
                        KVR_WORKER_DELETED | KVR_WORKER_REDIS | foreign,
                        KVR_WORKER_DRAINS | KVR_WORKER_SEEN
                        | KVR_WORKER_NAMED | KVR_WORKER_TRUNCATED
                        | KVR_WORKER_EVENTS);
}
