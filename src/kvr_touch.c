/*
 * Copyright (C) the nginx-kv-router authors
 *
 * How often the blocks of a prompt were asked for lately.
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
