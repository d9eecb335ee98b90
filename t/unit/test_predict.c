/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Predicted stores.
 */


#include <stdlib.h>

#include "traffic/kvr_predict.h"
#include "tap.h"


#define N        100
#define NOW      UINT64_C(1000000)
#define TTL      5000


static kvr_predict_zone_t  z;
static uint64_t            memory[1 << 16] __attribute__((aligned(64)));
static char               *base = (char *) memory;

static const uint64_t      secret[2] = { 0x1234567, 0x89abcdef };


static uint32_t
prompt(uint64_t seed, uint32_t parts, uint64_t *chains)
{
    uint32_t  i;
    uint64_t  locals[N];

    for (i = 0; i < N; i++) {
        locals[i] = (i < parts ? 1 : seed) * UINT64_C(0x9e3779b97f4a7c15) + i;
    }

    return kvr_predict_chains(&z, locals, N, chains);
}


static uint32_t
found(const uint64_t *chains, uint32_t n, uint32_t holder, uint32_t from,
    uint64_t now)
{
    return kvr_predict_find(&z, base, chains, n, holder, 1, from, now);
}


static uint32_t
found_whole(const uint64_t *chains, uint32_t n, uint32_t holder,
    uint32_t from, uint64_t now)
{
    return kvr_predict_find_whole(&z, base, chains, n, holder, 1, from, now);
}


int
main(void)
{
    bool      good;
    uint32_t  i, n, at;
    uint64_t  a[KVR_PREDICT_DEPTHS], b[KVR_PREDICT_DEPTHS];

    kvr_predict_format(&z, base, 64, sizeof(memory) - 64, secret);

    n = prompt(2, 50, a);
    is_u64(n, N / KVR_PREDICT_STRIDE, "a prompt has a chain each stride");
    (void) prompt(3, 50, b);

    is_u64(found(a, n, 7, 0, NOW), 0, "at first nothing is predicted");

    kvr_predict_store(&z, base, a, n, 7, 1, 0, NOW + TTL);

    is_u64(found(a, n, 7, 0, NOW), 100, "what was routed is predicted");
    is_u64(found(b, n, 7, 0, NOW), 48, "a sibling has what it shares");
    is_u64(found(a, n, 8, 0, NOW), 0, "another holder has nothing");
    is_u64(kvr_predict_find(&z, base, a, n, 7, 2, 0, NOW), 0,
           "nor whoever gets the holder's number next");
    is_u64(found(a, n, 7, 0, NOW + TTL + 250), 0, "after its time it is over");

    good = true;

    for (i = 0; i <= N; i++) {
        at = found(a, n, 7, i, NOW);
        good = good && at == (i < 100 ? 100 : i);
    }

    ok(good, "wherever the index ends, the prediction goes on from there");

    kvr_predict_store(&z, base, b, n, 8, 1, 61, NOW + TTL);
    is_u64(found(b, n, 8, 0, NOW), 0,
           "what the index has by itself is not predicted");
    is_u64(found(b, n, 8, 61, NOW), 100, "only what is beyond it");

    kvr_predict_store(&z, base, a, n, 7, 1, 0, NOW + 2 * TTL);
    is_u64(found(a, n, 7, 0, NOW + TTL + 250), 100,
           "routed again, it is prolonged");

    /* torn: one word of an entry is another's */

    for (i = 8; i < sizeof(memory) / 8; i += 2) {
        memory[i] ^= 1;
    }

    is_u64(found(a, n, 7, 0, NOW), 0, "what is torn counts as nothing");

    /* more than there is room for */

    srand(1);

    for (i = 0; i < 10000; i++) {
        (void) prompt((uint64_t) rand() + 4, 0, b);
        kvr_predict_store(&z, base, b, n, i % 50, 1, 0, NOW + i);
    }

    at = found(b, n, 9999 % 50, 0, NOW);
    ok(at > 90, "in a full table the last prediction is found");
    is_u64(z.stores, (uint64_t) 10000 * n + 2 * n + n - 15,
           "and all are counted");

    /* a holder that keeps the ends of prompts */

    kvr_predict_format(&z, base, 64, sizeof(memory) - 64, secret);
    (void) prompt(3, 50, b);

    kvr_predict_store_whole(&z, base, a, 12, 7, 1, 0, NOW + TTL);
    is_u64(found_whole(a, 12, 7, 0, NOW), 48,
           "of a holder with groups a whole prompt is predicted");
    is_u64(found_whole(a, n, 7, 8, NOW), 48, "what extends it has it");
    is_u64(found_whole(b, n, 7, 0, NOW), 48, "a sibling that extends it too");
    is_u64(found_whole(a, 11, 7, 0, NOW), 0, "a part of it has nothing");
    is_u64(found_whole(a, n, 7, 50, NOW), 50,
           "nor has a prompt of which the index knows more");
    is_u64(z.stores, 1, "one depth is kept");

    return done();
}
