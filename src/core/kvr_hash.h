/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Block hashes: the names under which prompts and caches meet.
 *
 *     local[i]    = XXH3-64(tokens of block i as little-endian u32, and after
 *                           them the block's sorted multimodal hashes as
 *                           little-endian u64; seed)
 *     sequence[0] = local[0]
 *     sequence[i] = XXH3-64(le64 sequence[i-1], le64 local[i]; seed 1337)
 *
 * The format is that of Dynamo's router, bit for bit (EVENTS.md section 6;
 * the vectors are in t/vectors/block_hashes.json).
 *
 * All functions are pure but for the prepared secret, which belongs to the
 * caller: one kvr_hasher_t may not be used by two threads at once.
 */


#ifndef KVR_HASH_H_INCLUDED
#define KVR_HASH_H_INCLUDED


#include "../kvr.h"


#define KVR_HASH_SEED      1337u     /* of chains, and of plain blocks */
#define KVR_HASH_SECRET    192       /* bytes; XXH3_SECRET_DEFAULT_SIZE */


/* A seed with the XXH3 secret that belongs to it, prepared once. */
typedef struct {
    uint64_t  seed;
    bool      ready;
    uint8_t   secret[KVR_HASH_SECRET];
} kvr_hasher_t;


/*
 * The seed of a chain: KVR_HASH_SEED, plus the hash of the LoRA's name, plus
 * the hash of the cache salt, each when it is not empty (wrapping addition).
 */
uint64_t kvr_hash_seed(const char *lora_name, size_t lora_len,
    const char *cache_salt, size_t salt_len);

/* Prepares h for a seed; cheap when h already has it. */
void kvr_hasher_init(kvr_hasher_t *h, uint64_t seed);

/*
 * Local hashes of the complete blocks of tokens[0..ntokens).  Writes
 * ntokens / block_size values to out and returns that number.
 */
size_t kvr_hash_blocks(const kvr_hasher_t *h, const uint32_t *tokens,
    size_t ntokens, uint32_t block_size, uint64_t *out);

/* Local hash of one block with n multimodal hashes, sorted here; n <= 64. */
uint64_t kvr_hash_block_mm(const kvr_hasher_t *h, const uint32_t *tokens,
    uint32_t block_size, const uint64_t *mm, size_t n);

/* Sequence hashes of n local hashes; out may be local itself. */
void kvr_hash_sequence(const uint64_t *local, size_t n, uint64_t *out);

/* XXH3-64 of any bytes, for the callers that need just that. */
uint64_t kvr_hash_bytes(const void *data, size_t len, uint64_t seed);


#endif /* KVR_HASH_H_INCLUDED */
