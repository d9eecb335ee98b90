/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_lease.h"
#include "kvr_views.h"


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


/*
 * If the lease's holder is gone, the lease becomes free first, so that all
 * waiting processes count from the same moment.
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
        /*
         * a renewal may be tried again the next time; taking the lease must
         * succeed now
         */
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
