/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"


bool
kvr_relay_ranks_has(const kvr_relay_ranks_t *set, uint32_t rank)
{
    return (set->words[rank / 64] >> rank % 64 & 1) != 0;
}


void
kvr_relay_ranks_add(kvr_relay_ranks_t *set, uint32_t rank)
{
    set->words[rank / 64] |= (uint64_t) 1 << rank % 64;
}


void
kvr_relay_ranks_join(kvr_relay_ranks_t *set, const kvr_relay_ranks_t *other)
{
    uint32_t  i;

    for (i = 0; i < KVR_RELAY_RANKS_WORDS; i++) {
        set->words[i] |= other->words[i];
    }
}


uint32_t
kvr_relay_ranks_next(const kvr_relay_ranks_t *set, uint32_t from)
{
    while (from < KVR_RANKS_MAX && !kvr_relay_ranks_has(set, from)) {
        from = set->words[from / 64] ? from + 1 : (from / 64 + 1) * 64;
    }

    return from;
}


uint32_t
kvr_relay_ranks_common(const kvr_relay_ranks_t *a, const kvr_relay_ranks_t *b)
{
    uint32_t           i;
    kvr_relay_ranks_t  both;

    for (i = 0; i < KVR_RELAY_RANKS_WORDS; i++) {
        both.words[i] = a->words[i] & b->words[i];
    }

    return kvr_relay_ranks_next(&both, 0);
}


bool
kvr_relay_ranks_none(const kvr_relay_ranks_t *set)
{
    return kvr_relay_ranks_next(set, 0) == KVR_RANKS_MAX;
}


bool
kvr_relay_ranks_several(const kvr_relay_ranks_t *set)
{
    uint32_t  first;

    first = kvr_relay_ranks_next(set, 0);

    return first != KVR_RANKS_MAX
           && kvr_relay_ranks_next(set, first + 1) != KVR_RANKS_MAX;
}
