/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_stream.h"
#include "../zone/kvr_views.h"


static bool kvr_stream_unranked(const kvr_worker_t *w);


void
kvr_stream_complete(kvr_shard_t *k, kvr_worker_t *w, bool complete)
{
    uint32_t  reason;

    reason = w->stream.reason;

    if (!complete) {

        if (!kvr_stream_unranked(w)) {

            if (w->stream.contiguous && reason != KVR_FINE
                && reason != KVR_DEG_INCOMPLETE)
            {
                /* `reason` will be overwritten: an earlier loss remains */
                kvr_set32(&k->mem, &w->stream.contiguous, 0);
            }

            reason = KVR_DEG_INCOMPLETE;
        }

        kvr_stream_uncleared(k, w);

    } else if (reason == KVR_DEG_INCOMPLETE) {

        /* the publisher has its state again, the view may lack blocks */

        reason = w->stream.contiguous ? KVR_FINE : KVR_DEG_GAP;
    }

    if (w->stream.reason != reason) {
        kvr_set32(&k->mem, &w->stream.reason, reason);
    }
}


void
kvr_stream_restart(kvr_shard_t *k, uint32_t worker, uint64_t epoch)
{
    kvr_worker_t  *w;
    kvr_stream_t  *s;

    w = &k->fleet.workers[worker];
    s = &w->stream;

    if (s->epoch) {
        kvr_count(k, &w->counters.restarts, 1);
    }

    kvr_shard_clear_worker(k, worker);

    kvr_set64(&k->mem, &s->epoch, epoch);
    kvr_set64(&k->mem, &s->seq, 0);
    kvr_set32(&k->mem, &s->at, 0);
    kvr_set32(&k->mem, &s->contiguous, 1);
    kvr_set32(&k->mem, &s->reason, KVR_FINE);
    kvr_set32(&k->mem, &s->source, KVR_SOURCE_ENVELOPE);
}


void
kvr_stream_skip(kvr_shard_t *k, kvr_worker_t *w, uint64_t epoch, uint64_t seq)
{
    kvr_stream_t  *s;

    s = &w->stream;

    kvr_set32(&k->mem, &s->reason, s->epoch ? KVR_DEG_GAP
                                            : KVR_DEG_LOG_TRIMMED);
    kvr_set64(&k->mem, &s->epoch, epoch);
    kvr_set64(&k->mem, &s->seq, seq);
    kvr_set32(&k->mem, &s->at, 0);
    kvr_set32(&k->mem, &s->contiguous, 0);
    kvr_set32(&k->mem, &s->source, KVR_SOURCE_ENVELOPE);

    kvr_stream_uncleared(k, w);
}


void
kvr_stream_refused(kvr_shard_t *k, kvr_worker_t *w, bool bad_block_size)
{
    kvr_set32(&k->mem, &w->stream.reason,
              bad_block_size || w->stream.reason == KVR_DEG_BLOCK_SIZE
              ? KVR_DEG_BLOCK_SIZE : KVR_DEG_REFUSED);
    kvr_stream_uncleared(k, w);
}


void
kvr_stream_missed(kvr_shard_t *k, uint32_t worker, uint32_t rank)
{
    uint32_t       holder;
    kvr_worker_t  *w;

    if (rank < KVR_RANKS_MAX) {

        /* if there is no space for the rank, none of its blocks is held */

        (void) kvr_fleet_holder(&k->fleet, worker, rank, &holder);
        return;
    }

    w = &k->fleet.workers[worker];

    if (w->stream.source == KVR_SOURCE_ENVELOPE) {
        kvr_set32(&k->mem, &w->stream.contiguous, 0);
    }
}


bool
kvr_stream_cleared(kvr_shard_t *k, uint32_t worker, uint32_t rank)
{
    uint32_t       h;
    kvr_worker_t  *w;
    kvr_holder_t  *holders;

    w = &k->fleet.workers[worker];
    holders = k->fleet.holders;

    if (kvr_fleet_holder_find(&k->fleet, worker, rank, &h) != KVR_OK) {
        return false;
    }

    kvr_set32(&k->mem, &holders[h].cleared, 1);

    for (h = w->first_holder; h != KVR_HOLDER_NONE; h = holders[h].next) {
        if (!holders[h].cleared) {
            return false;
        }
    }

    if (kvr_stream_unranked(w)) {
        return false;
    }

    kvr_set32(&k->mem, &w->stream.contiguous, 1);
    kvr_set32(&k->mem, &w->stream.reason, KVR_FINE);

    return true;
}


/* Can a lost message be of a rank that no message has named yet? */

static bool
kvr_stream_unranked(const kvr_worker_t *w)
{
    return w->stream.source == KVR_SOURCE_ENVELOPE && !w->stream.contiguous
           && w->stream.reason != KVR_DEG_INCOMPLETE
           && w->flags & KVR_WORKER_SEEN;
}


void
kvr_stream_uncleared(kvr_shard_t *k, kvr_worker_t *w)
{
    uint32_t       h;
    kvr_holder_t  *holders;

    holders = k->fleet.holders;

    for (h = w->first_holder; h != KVR_HOLDER_NONE; h = holders[h].next) {
        if (holders[h].cleared) {
            kvr_set32(&k->mem, &holders[h].cleared, 0);
        }
    }
}


bool
kvr_stream_confidence(kvr_shard_t *k, kvr_worker_t *w)
{
    uint32_t  c;

    switch (w->stream.source) {

    case KVR_SOURCE_NONE:
        c = KVR_UNKNOWN;
        break;

    case KVR_SOURCE_API:
        c = KVR_UNVERIFIED;
        break;

    case KVR_SOURCE_ENVELOPE:
        c = w->stream.contiguous && w->stream.reason == KVR_FINE ? KVR_EXACT
                                                            : KVR_DEGRADED;
        break;

    default:
        c = w->stream.reason == KVR_FINE ? KVR_UNVERIFIED : KVR_DEGRADED;
        break;
    }

    if (w->stream.unheard) {
        kvr_set32(&k->mem, &w->stream.unheard, 0);
    }

    if (w->stream.confidence == c) {
        return false;
    }

    kvr_set32(&k->mem, &w->stream.confidence, c);

    return c == KVR_EXACT;
}
