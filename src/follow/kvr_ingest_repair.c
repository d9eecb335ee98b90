/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_ingest_state.h"
#include "kvr_stream.h"
#include "../zone/kvr_lease.h"


kvr_rc_t
kvr_ingest_cursor(kvr_ingest_t *in, const char *worker, size_t len,
    kvr_cursor_t *cursor)
{
    uint32_t             i;
    const kvr_worker_t  *w;

    if (kvr_router_find_worker(in->router, worker, len, &i) != KVR_OK) {
        return KVR_DECLINED;
    }

    w = kvr_router_worker(in->router, i);

    cursor->epoch = kvr_load64(&w->stream.epoch);
    cursor->seq = kvr_load64(&w->stream.seq);

    return KVR_OK;
}


kvr_rc_t
kvr_ingest_missing(kvr_ingest_t *in, kvr_cursor_t *last)
{
    if (in->msg.epoch == 0 || in->msg.seq == 0) {
        return KVR_DECLINED;
    }

    last->epoch = in->msg.epoch;
    last->seq = in->msg.heartbeat ? in->msg.seq : in->msg.seq - 1;

    return KVR_OK;
}


/* Takes the lock and finds the worker.  KVR_OK: the caller must unlock. */

static kvr_rc_t
kvr_ingest_enter(kvr_ingest_t *in, const char *worker, size_t len,
    kvr_worker_t **w)
{
    kvr_rc_t  rc;

    in->shard = kvr_shard_of(in->router, worker, len);

    rc = kvr_shard_lock_leased(in->shard);
    if (rc != KVR_OK) {
        return rc;
    }

    rc = kvr_ingest_worker(in, worker, len);
    if (rc != KVR_OK) {
        kvr_shard_unlock(in->shard);
        return rc;
    }

    *w = &in->shard->fleet.workers[in->worker];

    return KVR_OK;
}


kvr_rc_t
kvr_ingest_repair_begin(kvr_ingest_t *in, const char *worker, size_t len)
{
    kvr_rc_t       rc;
    kvr_worker_t  *w;

    rc = kvr_ingest_enter(in, worker, len, &w);

    if (rc == KVR_OK) {
        kvr_set32(&in->shard->mem, &w->stream.confidence, KVR_SYNCING);
        kvr_set32(&in->shard->mem, &w->stream.unheard, 0);
        kvr_shard_unlock(in->shard);
    }

    return rc;
}


kvr_rc_t
kvr_ingest_repair_shard(kvr_ingest_t *in, uint32_t shard, bool repair)
{
    uint32_t       i;
    kvr_rc_t       rc;
    kvr_shard_t   *k;
    kvr_worker_t  *w;

    k = &in->router->shards[shard];

    rc = kvr_shard_lock_leased(k);
    if (rc != KVR_OK) {
        return rc;
    }

    for (i = 0; i < k->zone->fleet.nworkers; i++) {
        w = &k->fleet.workers[i];

        if (w->stream.source == KVR_SOURCE_ENVELOPE) {
            kvr_set32(&k->mem, &w->stream.confidence,
                      repair ? KVR_SYNCING : KVR_DEGRADED);
            kvr_set32(&k->mem, &w->stream.unheard, !repair);

        } else if (!repair) {
            (void) kvr_stream_confidence(k, w);
        }

        kvr_txn_commit(&k->mem);
    }

    kvr_shard_unlock(k);

    return KVR_OK;
}


kvr_rc_t
kvr_ingest_repair_end(kvr_ingest_t *in, const char *worker, size_t len)
{
    kvr_rc_t       rc;
    kvr_worker_t  *w;

    rc = kvr_ingest_enter(in, worker, len, &w);

    if (rc == KVR_OK) {
        kvr_count(in->shard, &w->counters.repairs, 1);
        kvr_ingest_confidence(in, w);
        kvr_shard_unlock(in->shard);
    }

    return rc;
}


kvr_rc_t
kvr_ingest_repair_failed(kvr_ingest_t *in, const char *worker, size_t len,
    uint64_t epoch, uint64_t seq)
{
    kvr_rc_t       rc;
    kvr_worker_t  *w;
    kvr_stream_t  *s;

    rc = kvr_ingest_enter(in, worker, len, &w);
    if (rc != KVR_OK) {
        return rc;
    }

    s = &w->stream;

    /* within an epoch the cursor never goes back */

    if (epoch > s->epoch || (epoch == s->epoch && seq > s->seq)) {
        kvr_stream_skip(in->shard, w, epoch, seq);
    }

    kvr_ingest_confidence(in, w);
    kvr_shard_unlock(in->shard);

    return KVR_OK;
}


kvr_rc_t
kvr_ingest_dropped(kvr_ingest_t *in, const char *worker, size_t len)
{
    kvr_rc_t       rc;
    kvr_worker_t  *w;

    rc = kvr_ingest_enter(in, worker, len, &w);
    if (rc != KVR_OK) {
        return rc;
    }

    if (w->stream.source != KVR_SOURCE_ENVELOPE
        && w->stream.source != KVR_SOURCE_API)
    {
        kvr_set32(&in->shard->mem, &w->stream.reason, KVR_DEG_GAP);
        kvr_stream_uncleared(in->shard, w);
        kvr_ingest_confidence(in, w);
    }

    kvr_shard_unlock(in->shard);

    return KVR_OK;
}
