/*
 * Copyright (C) the nginx-kv-router authors
 *
 * How blocks are made of tokens: how many there are, and whether those of the
 * one are those of another.
 */


#include "core/kvr_contract.h"

#include "tap.h"


#define TOKENS  14


static const kvr_contract_t  single = { 4, false };
static const kvr_contract_t  pairs = { 4, true };


/* As many as are complete are hashed; blocks of pairs end a token later. */

static void
test_blocks(void)
{
    bool           good;
    size_t         n;
    uint32_t       i, tokens[TOKENS];
    uint64_t       out[TOKENS], same[TOKENS];
    kvr_hasher_t   h;

    for (i = 0; i < TOKENS; i++) {
        tokens[i] = 100 + i;
    }

    h.ready = false;
    kvr_hasher_init(&h, KVR_HASH_SEED);

    good = true;

    for (n = 0; n < TOKENS; n++) {
        good = good
               && kvr_contract_blocks(single, n) == n / 4
               && kvr_contract_blocks(pairs, n) == (n ? (n - 1) / 4 : 0)
               && kvr_contract_hash(single, &h, tokens, n, out) == n / 4
               && kvr_contract_hash(pairs, &h, tokens, n, out)
                  == kvr_contract_blocks(pairs, n);
    }

    ok(good, "a block of pairs is complete with the token behind it");

    (void) kvr_contract_hash(single, &h, tokens, 12, out);
    (void) kvr_hash_blocks(&h, tokens, 12, 4, same);
    ok(memcmp(out, same, 3 * sizeof(uint64_t)) == 0,
       "single tokens are hashed by themselves");

    (void) kvr_contract_hash(pairs, &h, tokens, 13, out);
    (void) kvr_hash_pairs(&h, tokens, 13, 4, same);
    ok(memcmp(out, same, 3 * sizeof(uint64_t)) == 0, "and pairs as pairs");
}


static void
differs(kvr_contract_t its, kvr_contract_t zone, const char *what)
{
    const char  *why;

    why = kvr_contract_differs(its, zone);

    ok(why != NULL && strstr(why, what) != NULL, "blocks differ: %s", what);
}


int
main(void)
{
    test_blocks();

    ok(kvr_contract_differs(single, single) == NULL
       && kvr_contract_differs(pairs, pairs) == NULL,
       "blocks made in one way are the same");

    differs((kvr_contract_t) { 8, false }, single, "block size");
    differs((kvr_contract_t) { 8, false }, pairs, "block size");
    differs(pairs, single, "of pairs of tokens (EAGLE)");
    differs(single, pairs, "of single tokens");

    return done();
}
