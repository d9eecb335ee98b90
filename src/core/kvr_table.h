/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the index's two hash tables share: keys mixed with the zone's secret,
 * home slots by multiplication, and the rule of deletion.
 *
 * Both tables use linear probing over a number of slots fixed at start.  A
 * deletion closes the gap by moving later entries of the cluster back
 * (Knuth, TAOCP volume 3, section 6.4, algorithm R), so that there are no
 * tombstones and no table ever needs rehashing.
 */


#ifndef KVR_TABLE_H_INCLUDED
#define KVR_TABLE_H_INCLUDED


#include "../kvr.h"


/*
 * To be applied to numbers from outside before they are mixed: products of
 * consecutive numbers, 1, 2, 3 and so on, would lie in few slots of a table if
 * the secret, as a fraction of 2^64, were near one with a small denominator.
 */
static inline uint64_t
kvr_table_spread(uint64_t x)
{
    x *= UINT64_C(0x9e3779b97f4a7c15);

    return x ^ x >> 32;
}


/* 64 x 64 -> 128 bits, folded: good bits everywhere from two secrets. */
static inline uint64_t
kvr_table_mix(uint64_t a, uint64_t b)
{
    __uint128_t  m;

    m = (__uint128_t) a * b;

    return (uint64_t) m ^ (uint64_t) (m >> 64);
}


static inline uint64_t
kvr_table_home(uint64_t hash, uint64_t nslots)
{
    return ((hash >> 32) * nslots) >> 32;
}


static inline uint64_t
kvr_table_next(uint64_t slot, uint64_t nslots)
{
    return slot + 1 == nslots ? 0 : slot + 1;
}


/*
 * True when the entry in slot j, with this home, may move back into the gap:
 * unless the home lies cyclically in (gap, j].
 */
static inline bool
kvr_table_moves(uint64_t gap, uint64_t j, uint64_t home)
{
    return gap <= j ? (home <= gap || home > j) : (home <= gap && home > j);
}


#endif /* KVR_TABLE_H_INCLUDED */
