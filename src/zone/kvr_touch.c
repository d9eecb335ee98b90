/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What is kept of requests beside the index: how often the blocks of a prompt
 * were asked for lately, and where it was sent.
 */


#include "kvr_zone.h"


uint32_t
kvr_router_touch(const kvr_router_t *k, const uint64_t *locals,
    const kvr_match_t *matches, uint32_t n, uint64_t now_ms, uint32_t *out)
{
    uint32_t  i, depth;

    if (k->zone->params.frequency_ms == 0) {
        return 0;
    }

    depth = 0;

    for (i = 0; i < n; i++) {
        depth = kvr_max(depth, matches[i].disk);
    }

    return kvr_frequency_touch(&k->zone->frequency, (char *) k->zone, locals,
                               depth, now_ms, out);
}


uint32_t
kvr_router_chains(const kvr_router_t *k, const uint64_t *locals, uint32_t n,
    uint64_t *chains)
{
    return kvr_predict_chains(&k->zone->predict, locals, n, chains);
}


void
kvr_router_predict(const kvr_router_t *k, const uint64_t *chains,
    uint32_t nchains, uint32_t holder, uint32_t generation, uint32_t from,
    uint64_t until_ms)
{
    kvr_predict_store(&k->zone->predict, (char *) k->zone, chains, nchains,
                      holder, generation, from, until_ms);
}


uint32_t
kvr_router_predicted(const kvr_router_t *k, const uint64_t *chains,
    uint32_t nchains, uint32_t holder, uint32_t generation, uint32_t from,
    uint64_t now_ms)
{
    return kvr_predict_find(&k->zone->predict, (char *) k->zone, chains,
                            nchains, holder, generation, from, now_ms);
}
