/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Block hashes, by which the blocks of a prompt are found among those of a
 * cache.
 *
 *     local[i]    = XXH3-64(tokens of block i as little-endian u32, and after
 *                           them the block's sorted multimodal hashes as
 *                           little-endian u64; seed)
 *
 * For engines that cache pairs of tokens (EAGLE), the first token of the next
 * block is also among the tokens of a block (kvr_contract.h).
 *
 *     sequence[0] = local[0]
 *     sequence[i] = XXH3-64(le64 sequence[i-1], le64 local[i]; seed 1337)
 *
 * The format is that of Dynamo's router, bit for bit (test vectors:
 * t/vectors/block_hashes.json).
 *
 * Long blocks are hashed by vector instructions: those of the architecture's
 * base (SSE2, NEON), as xxhash uses them, or AVX2 where the CPU has it.
 * kvr_hasher_init() asks the CPU.  The hashes are the same.
 *
 * All functions are pure except kvr_hasher_init(), which writes to the hasher
 * of its caller: meanwhile no other thread may use that hasher.
 */


#ifndef KVR_HASH_H_INCLUDED
#define KVR_HASH_H_INCLUDED


#include "../kvr.h"


#define KVR_HASH_SEED      1337u     /* of chains, and of plain blocks */
#define KVR_HASH_SECRET    192       /* bytes; XXH3_SECRET_DEFAULT_SIZE */

/* gcc compiles single files for other targets; clang has no such pragma */

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define KVR_HASH_AVX2      1
#else
#define KVR_HASH_AVX2      0
#endif


typedef struct kvr_hasher_s  kvr_hasher_t;

/* Hashes n blocks of so many bytes each, one after the other. */
typedef void kvr_hash_blocks_pt(const kvr_hasher_t *h, const uint8_t *data,
    size_t bytes, size_t n, uint64_t *out);


/* One of the ways to hash blocks. */
typedef struct {
    const char          *name;      /* of its instructions: "base", "avx2" */
    kvr_hash_blocks_pt  *blocks;
} kvr_hash_way_t;


/*
 * A seed with the XXH3 secret that belongs to it, prepared once.  For one
 * process: way points into this code.
 */
struct kvr_hasher_s {
    uint64_t               seed;
    const kvr_hash_way_t  *way;
    bool                   ready;
    uint8_t                secret[KVR_HASH_SECRET];
};


/*
 * The seed of a chain: KVR_HASH_SEED, plus the hash of the LoRA's name, plus
 * the hash of the cache salt, each when it is not empty (wrapping addition).
 */
uint64_t kvr_hash_seed(const char *lora_name, size_t lora_len,
    const char *cache_salt, size_t salt_len);

/*
 * The implementations that this CPU can run, the fastest first, by number from
 * 0; NULL when there are no more.  The last is the architecture's base.
 */
const kvr_hash_way_t *kvr_hash_way(size_t i);

/*
 * Prepares h for a seed, with the fastest implementation; cheap when h already
 * has the seed.  Before the first call, h->ready must be false.
 */
void kvr_hasher_init(kvr_hasher_t *h, uint64_t seed);

/*
 * Local hashes of the complete blocks of tokens[0..ntokens).  Writes
 * ntokens / block_size values to out and returns that number.
 */
size_t kvr_hash_blocks(const kvr_hasher_t *h, const uint32_t *tokens,
    size_t ntokens, uint32_t block_size, uint64_t *out);

/*
 * Local hashes of blocks of pairs, each with the token behind the block: there
 * are (ntokens - 1) / block_size of them.
 */
size_t kvr_hash_pairs(const kvr_hasher_t *h, const uint32_t *tokens,
    size_t ntokens, uint32_t block_size, uint64_t *out);

/*
 * Local hash of one block with n multimodal hashes, sorted here; n <= 64.
 * ntokens is the block size, or one more for a block of pairs.
 */
uint64_t kvr_hash_block_mm(const kvr_hasher_t *h, const uint32_t *tokens,
    uint32_t ntokens, const uint64_t *mm, size_t n);

/* Sequence hashes of n local hashes; out may be local itself. */
void kvr_hash_sequence(const uint64_t *local, size_t n, uint64_t *out);

/* XXH3-64 of any bytes, for the callers that need just that. */
uint64_t kvr_hash_bytes(const void *data, size_t len, uint64_t seed);

/* XXH3-128 of any bytes: two words, the lower one first. */
void kvr_hash_digest(const void *data, size_t len, uint64_t seed,
    uint64_t *out);


#endif /* KVR_HASH_H_INCLUDED */
