/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "../../relay/kvr_relay.h"

#include "tap.h"


#define NSOME  7


int
main(void)
{
    bool               good;
    uint32_t           i, n, rank;
    kvr_relay_ranks_t  a, b;

    static const uint32_t  some[NSOME] = { 0, 5, 63, 64, 127, 640, 1023 };

    memset(&a, 0, sizeof(kvr_relay_ranks_t));
    memset(&b, 0, sizeof(kvr_relay_ranks_t));

    ok(kvr_relay_ranks_none(&a) && !kvr_relay_ranks_several(&a),
       "a set has no ranks at first,");

    good = true;

    for (rank = 0; rank < KVR_RANKS_MAX; rank++) {
        memset(&a, 0, sizeof(kvr_relay_ranks_t));
        kvr_relay_ranks_add(&a, rank);
        kvr_relay_ranks_add(&a, rank);

        good = good && kvr_relay_ranks_has(&a, rank)
               && kvr_relay_ranks_next(&a, 0) == rank
               && kvr_relay_ranks_next(&a, rank) == rank
               && kvr_relay_ranks_next(&a, rank + 1) == KVR_RANKS_MAX
               && !kvr_relay_ranks_none(&a) && !kvr_relay_ranks_several(&a);
    }

    ok(good, "then the one that was added, whichever it is,");

    memset(&a, 0, sizeof(kvr_relay_ranks_t));

    for (i = 0; i < NSOME; i++) {
        kvr_relay_ranks_add(&a, some[i]);
    }

    n = 0;
    good = true;

    for (rank = kvr_relay_ranks_next(&a, 0); rank < KVR_RANKS_MAX;
         rank = kvr_relay_ranks_next(&a, rank + 1))
    {
        good = good && n < NSOME && rank == some[n++];
    }

    ok(good && n == NSOME, "or all of these, in order;");
    ok(kvr_relay_ranks_several(&a), "they are several");

    kvr_relay_ranks_add(&b, 62);
    kvr_relay_ranks_add(&b, 65);

    is_u64(kvr_relay_ranks_common(&a, &b), KVR_RANKS_MAX,
           "others may have none of them,");

    kvr_relay_ranks_add(&b, 1023);
    kvr_relay_ranks_add(&b, 640);

    is_u64(kvr_relay_ranks_common(&a, &b), 640, "or some,");

    kvr_relay_ranks_join(&b, &a);

    ok(kvr_relay_ranks_has(&b, 0) && kvr_relay_ranks_has(&b, 62)
       && !kvr_relay_ranks_has(&b, 1),
       "and take all of them in");

    return done();
}
