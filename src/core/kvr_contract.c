/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_contract.h"


size_t
kvr_contract_blocks(kvr_contract_t c, size_t ntokens)
{
    return (ntokens - (c.pairs && ntokens)) / c.block_size;
}


size_t
kvr_contract_hash(kvr_contract_t c, const kvr_hasher_t *h,
    const uint32_t *tokens, size_t ntokens, uint64_t *out)
{
    return c.pairs ? kvr_hash_pairs(h, tokens, ntokens, c.block_size, out)
                   : kvr_hash_blocks(h, tokens, ntokens, c.block_size, out);
}


const char *
kvr_contract_differs(kvr_contract_t its, kvr_contract_t zone)
{
    if (its.block_size != zone.block_size) {
        return "its block size is not the zone's";
    }

    if (its.pairs == zone.pairs) {
        return NULL;
    }

    return its.pairs ? "its blocks are of pairs of tokens (EAGLE), the zone's "
                       "are not"
                     : "its blocks are of single tokens, and the zone has "
                       "eagle=on";
}
