
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * How far the view of a worker can be trusted, and the words for it.
 */


#include "kvr_fleet.h"


kvr_confidence_t
kvr_fleet_confidence(const kvr_worker_t *w, uint64_t now_ms,
    uint64_t stale_ms, bool heard, const char **reason)
{
    bool              silent, estimated;
    uint32_t          source, why;
    uint64_t          last, expires;
    kvr_confidence_t  c;

    c = kvr_load32(&w->stream.confidence);
    source = kvr_load32(&w->stream.source);
    last = kvr_load64(&w->stream.last_ms);
    expires = kvr_load64(&w->expires_ms);

    /* an estimate needs no messages, but a worker that is there */

    estimated = kvr_fleet_estimated(w);

    silent = expires && now_ms > expires;

    if (!silent && !estimated) {
        silent = kvr_load32(&w->stream.unheard)
                 || (kvr_load32(&w->stream.heartbeats)
                     && now_ms > last && now_ms - last > stale_ms);
    }

    if (!heard) {
        heard = (source == KVR_SOURCE_NONE || source == KVR_SOURCE_API);
    }

    if (reason) {
        why = kvr_load32(&w->stream.reason);
        *reason = !heard ? "redis_down" : silent ? "silent"
                  : source == KVR_SOURCE_API && why == KVR_FINE ? "external"
                  : kvr_degraded_name(why);
    }

    if (silent || !heard) {
        return KVR_DEGRADED;
    }

    if (estimated) {
        return KVR_ESTIMATED;
    }

    if ((c == KVR_EXACT || c == KVR_UNVERIFIED) && kvr_fleet_bound(w)) {
        return KVR_BOUND;
    }

    return c;
}


bool
kvr_fleet_estimated(const kvr_worker_t *w)
{
    kvr_confidence_t  c;

    if (kvr_load32(&w->conf.events_off) == 0) {
        return false;
    }

    c = kvr_load32(&w->stream.confidence);

    return c != KVR_EXACT && c != KVR_UNVERIFIED
           && (kvr_load32(&w->flags) & KVR_WORKER_EVENTS) == 0;
}


bool
kvr_fleet_bound(const kvr_worker_t *w)
{
    uint32_t  block, chunk;

    block = kvr_load32(&w->stream.chunked_block);
    chunk = kvr_load32(&w->conf.attention_chunk);

    return kvr_load32(&w->flags) & (KVR_WORKER_HYBRID | KVR_WORKER_REPORTS
                                    | KVR_WORKER_PARTIAL)
           || kvr_load32(&w->conf.hybrid)
           || (block && (chunk == 0 || chunk % block));
}


const char *
kvr_confidence_name(kvr_confidence_t c)
{
    static const char  *names[] = { KVR_CONFIDENCES(KVR_CONFIDENCE_NAME) };

    return c <= KVR_ESTIMATED ? names[c] : "UNKNOWN";
}


const char *
kvr_degraded_name(uint32_t reason)
{
    static const char  *names[] = {
        "none", "gap_not_filled", "log_trimmed", "publisher_incomplete",
        "event_refused", "zone_full", "block_size"
    };

    return reason <= KVR_DEG_BLOCK_SIZE ? names[reason] : "unknown";
}


const char *
kvr_source_name(uint32_t source)
{
    static const char  *names[] = {
        "none", "envelope", "router_event", "bare", "api"
    };

    return source <= KVR_SOURCE_API ? names[source] : "none";
}
