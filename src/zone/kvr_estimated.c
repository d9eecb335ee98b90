/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_estimated.h"


bool
kvr_router_estimate(kvr_router_t *k, kvr_routed_t *const *rings, uint32_t n,
    uint64_t now_ms, uint32_t slice_us)
{
    uint32_t             i;
    uint64_t             head, next;
    kvr_routed_record_t  record;

    (void) now_ms;
    (void) slice_us;

    for (i = 0; i < n && kvr_router_leased(k, 0); i++) {
        while (kvr_routed_read(rings[i], &record, k->scratch,
                               KVR_EVENT_BLOCKS_MAX, &head, &next))
        {
            (void) kvr_routed_advance(rings[i], head, next);
        }
    }

    return false;
}


kvr_rc_t
kvr_router_estimate_capacity(kvr_router_t *k, uint32_t worker, uint64_t tokens,
    kvr_capacity_source_t source)
{
    (void) k;
    (void) worker;
    (void) tokens;
    (void) source;

    return KVR_DECLINED;
}


kvr_rc_t
kvr_router_estimate_clear(kvr_router_t *k, uint32_t worker,
    kvr_estimate_why_t why)
{
    (void) k;
    (void) worker;
    (void) why;

    return KVR_DECLINED;
}


kvr_rc_t
kvr_router_estimate_read(const kvr_router_t *k, uint32_t holder,
    kvr_estimate_info_t *out)
{
    (void) k;
    (void) holder;
    (void) out;

    return KVR_DECLINED;
}


uint32_t
kvr_router_estimate_blocks(const kvr_router_t *k, uint32_t holder,
    uint32_t text_blocks)
{
    (void) holder;

    return text_blocks * KVR_TEXT_BLOCK / 4 / k->zone->params.block_size;
}


const char *
kvr_estimate_why_name(uint32_t why)
{
    static const char  *names[] = {
        "restarted", "events", "asked", "full", "died"
    };

    return why < KVR_ESTIMATE_WHYS ? names[why] : "unknown";
}
