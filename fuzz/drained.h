/*
 * Copyright (C) the nginx-kv-router authors
 *
 * When all workers were taken out of a zone, nothing is left in it.
 */


#ifndef DRAINED_H_INCLUDED
#define DRAINED_H_INCLUDED


#include "fuzz.h"

#include "zone/kvr_router.h"


static inline void
drained(kvr_router_t *router, uint64_t now_ms)
{
    uint32_t     i;
    kvr_stats_t  stats;

    for (i = 0; i < 1000 && kvr_router_tend(router, now_ms, 10000); i++) {
        /* void */
    }

    kvr_router_stats(router, &stats);

    if (stats.handles || stats.blocks || stats.runs || stats.views_dying) {
        fuzz_fail("%llu handles, %llu blocks, %llu runs, %llu views are left",
                  (unsigned long long) stats.handles,
                  (unsigned long long) stats.blocks,
                  (unsigned long long) stats.runs,
                  (unsigned long long) stats.views_dying);
    }
}


#endif /* DRAINED_H_INCLUDED */
