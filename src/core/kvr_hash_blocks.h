/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The hashing of blocks, compiled once for each instruction set: a file that
 * includes this has chosen one, and has defined KVR_HASH_BLOCKS, the name of
 * its function.  xxhash does what differs, by XXH_VECTOR.
 *
 * Blocks of 16, 32 and 64 tokens, what engines use, have a copy of their own:
 * with a length that the compiler knows, xxhash takes a third less for the
 * shorter ones, a tenth less for 64.
 */


#ifndef KVR_HASH_BLOCKS_H_INCLUDED
#define KVR_HASH_BLOCKS_H_INCLUDED


#include "kvr_hash.h"

#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include <xxhash.h>


kvr_hash_blocks_pt  KVR_HASH_BLOCKS;


__attribute__((always_inline))
static inline void
kvr_hash_blocks_of(const kvr_hasher_t *h, const uint8_t *data, size_t bytes,
    size_t n, uint64_t *out)
{
    size_t  i;

    for (i = 0; i < n; i++) {
        out[i] = XXH3_64bits_withSecretandSeed(data + i * bytes, bytes,
                                               h->secret, KVR_HASH_SECRET,
                                               h->seed);
    }
}


void
KVR_HASH_BLOCKS(const kvr_hasher_t *h, const uint8_t *data, size_t bytes,
    size_t n, uint64_t *out)
{
    switch (bytes) {

    case 16 * sizeof(uint32_t):
        kvr_hash_blocks_of(h, data, 16 * sizeof(uint32_t), n, out);
        break;

    case 32 * sizeof(uint32_t):
        kvr_hash_blocks_of(h, data, 32 * sizeof(uint32_t), n, out);
        break;

    case 64 * sizeof(uint32_t):
        kvr_hash_blocks_of(h, data, 64 * sizeof(uint32_t), n, out);
        break;

    default:
        kvr_hash_blocks_of(h, data, bytes, n, out);
    }
}


#endif /* KVR_HASH_BLOCKS_H_INCLUDED */
