/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The contract: how blocks are made of tokens.  Hashes of blocks can be
 * compared only if both were made under the same contract.  A zone has a
 * contract, and so have a worker, a snapshot and a message.
 *
 *     tokens         1 2 3 4 5 6 7 8 9        block_size 4
 *     single         [1 2 3 4][5 6 7 8]
 *     pairs (EAGLE)  [12 23 34 45][56 67 78 89]
 */


#ifndef KVR_CONTRACT_H_INCLUDED
#define KVR_CONTRACT_H_INCLUDED


#include "kvr_hash.h"


typedef struct {
    uint32_t    block_size;         /* tokens, or pairs; 0: not known */
    bool        pairs;              /* a block is of pairs of tokens, each with
                                       the token behind it */
} kvr_contract_t;


/* How many blocks are complete in so many tokens. */
size_t kvr_contract_blocks(kvr_contract_t c, size_t ntokens);

/*
 * Local hashes of these blocks, to out, by a hasher that has the seed; answers
 * how many there are.
 */
size_t kvr_contract_hash(kvr_contract_t c, const kvr_hasher_t *h,
    const uint32_t *tokens, size_t ntokens, uint64_t *out);

/*
 * NULL when blocks of the one are blocks of the zone, else why they are not, a
 * sentence that lives forever.
 */
const char *kvr_contract_differs(kvr_contract_t its, kvr_contract_t zone);


#endif /* KVR_CONTRACT_H_INCLUDED */
