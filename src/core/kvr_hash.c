/*
 * Copyright (C) the nginx-kv-router authors
 */


#define KVR_HASH_BLOCKS      kvr_hash_blocks_base

#include "kvr_hash_blocks.h"


#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tokens are hashed as they lie in memory: little-endian machines only"
#endif


#define KVR_HASH_MM_MAX      64         /* multimodal hashes of one block */


#if KVR_HASH_AVX2

kvr_hash_blocks_pt  kvr_hash_blocks_avx2;

static const kvr_hash_way_t  kvr_hash_way_avx2 = {
    "avx2",
    kvr_hash_blocks_avx2
};

#endif


static const kvr_hash_way_t  kvr_hash_way_base = {
    "base",
    kvr_hash_blocks_base
};


uint64_t
kvr_hash_seed(const char *lora_name, size_t lora_len, const char *cache_salt,
    size_t salt_len)
{
    uint64_t  seed;

    seed = KVR_HASH_SEED;

    if (lora_len) {
        seed += XXH3_64bits_withSeed(lora_name, lora_len, 0);
    }

    if (salt_len) {
        seed += XXH3_64bits_withSeed(cache_salt, salt_len, 1);
    }

    return seed;
}


const kvr_hash_way_t *
kvr_hash_way(size_t i)
{
#if KVR_HASH_AVX2

    if (__builtin_cpu_supports("avx2")) {

        if (i == 0) {
            return &kvr_hash_way_avx2;
        }

        i--;
    }

#endif

    return i == 0 ? &kvr_hash_way_base : NULL;
}


void
kvr_hasher_init(kvr_hasher_t *h, uint64_t seed)
{
    if (h->ready && h->seed == seed) {
        return;
    }

    XXH3_generateSecret_fromSeed(h->secret, seed);
    h->seed = seed;
    h->way = kvr_hash_way(0);
    h->ready = true;
}


size_t
kvr_hash_blocks(const kvr_hasher_t *h, const uint32_t *tokens, size_t ntokens,
    uint32_t block_size, uint64_t *out)
{
    size_t  n;

    n = ntokens / block_size;

    h->way->blocks(h, (const uint8_t *) tokens, block_size * sizeof(uint32_t),
                   n, out);

    return n;
}


size_t
kvr_hash_pairs(const kvr_hasher_t *h, const uint32_t *tokens, size_t ntokens,
    uint32_t block_size, uint64_t *out)
{
    size_t  i, n;

    if (ntokens == 0) {
        return 0;
    }

    n = (ntokens - 1) / block_size;

    for (i = 0; i < n; i++) {
        h->way->blocks(h, (const uint8_t *) (tokens + i * block_size),
                       (block_size + 1) * sizeof(uint32_t), 1, &out[i]);
    }

    return n;
}


uint64_t
kvr_hash_block_mm(const kvr_hasher_t *h, const uint32_t *tokens,
    uint32_t ntokens, const uint64_t *mm, size_t n)
{
    size_t    i, k, bytes;
    uint64_t  v;
    uint64_t  sorted[KVR_HASH_MM_MAX];
    uint8_t   buf[(KVR_BLOCK_SIZE_MAX + 1) * 4 + sizeof(sorted)];

    n = kvr_min(n, KVR_HASH_MM_MAX);
    ntokens = kvr_min(ntokens, KVR_BLOCK_SIZE_MAX + 1);

    for (i = 0; i < n; i++) {
        v = mm[i];

        for (k = i; k > 0 && sorted[k - 1] > v; k--) {
            sorted[k] = sorted[k - 1];
        }

        sorted[k] = v;
    }

    bytes = ntokens * sizeof(uint32_t);
    memcpy(buf, tokens, bytes);
    memcpy(buf + bytes, sorted, n * sizeof(uint64_t));

    h->way->blocks(h, buf, bytes + n * sizeof(uint64_t), 1, &v);

    return v;
}


void
kvr_hash_sequence(const uint64_t *local, size_t n, uint64_t *out)
{
    size_t    i;
    uint64_t  pair[2];

    if (n == 0) {
        return;
    }

    pair[0] = local[0];
    out[0] = local[0];

    for (i = 1; i < n; i++) {
        pair[1] = local[i];
        pair[0] = XXH3_64bits_withSeed(pair, sizeof(pair), KVR_HASH_SEED);
        out[i] = pair[0];
    }
}


uint64_t
kvr_hash_bytes(const void *data, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, len, seed);
}


void
kvr_hash_digest(const void *data, size_t len, uint64_t seed, uint64_t *out)
{
    XXH128_hash_t  h;

    h = XXH3_128bits_withSeed(data, len, seed);

    out[0] = h.low64;
    out[1] = h.high64;
}
