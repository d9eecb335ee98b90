/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_homes.h"
#include "../core/kvr_hash.h"
#include "../traffic/kvr_peers.h"

#include <math.h>


#define KVR_HOMES_OFF    0.75
#define KVR_HOMES_LEAST  0.01


uint32_t
kvr_homes_share(uint64_t tokens, uint64_t all, uint32_t last)
{
    double  part, share;

    if (all == 0) {
        return last;
    }

    part = (double) tokens / (double) all;

    if (part < (last ? KVR_HOMES_LEAST : 2 * KVR_HOMES_LEAST)) {
        return 0;
    }

    share = KVR_PEERS_SHARES * part;

    if (last && fabs(share - last) <= KVR_HOMES_OFF) {
        return last;
    }

    return kvr_max(1, (uint32_t) (share + 0.5));
}


uint32_t
kvr_homes_of(const uint64_t *routers, const uint32_t *shares, uint32_t n,
    uint64_t row)
{
    double    u, score, most;
    uint32_t  i, home;
    uint64_t  key[2];

    home = 0;
    most = 0;
    key[1] = row;

    for (i = 0; i < n; i++) {

        if (shares[i] == 0) {
            continue;
        }

        key[0] = routers[i];
        u = ((double) (kvr_hash_bytes(key, sizeof(key), 0) >> 11) + 0.5)
            / 9007199254740992.0;                           /* 2^53 */
        score = -(double) shares[i] / log(u);

        if (score > most) {
            most = score;
            home = i;
        }
    }

    return home;
}
