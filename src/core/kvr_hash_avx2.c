/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The hashing of blocks for x86-64 with AVX2, whatever the flags are that the
 * rest is compiled with.  Nobody calls it who has not asked the CPU.
 */


#include "kvr_hash.h"


#if KVR_HASH_AVX2

#pragma GCC target("avx2")

#define XXH_VECTOR           XXH_AVX2
#define KVR_HASH_BLOCKS      kvr_hash_blocks_avx2

#include "kvr_hash_blocks.h"

#endif
