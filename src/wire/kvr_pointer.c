/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_pointer.h"
#include "kvr_decoder.h"

#include <inttypes.h>
#include <stdio.h>


kvr_rc_t
kvr_pointer_read(kvr_pointer_t *p,
    const char *const values[KVR_POINTER_ROUTER],
    const size_t len[KVR_POINTER_ROUTER], char why[KVR_POINTER_WHY])
{
    uint32_t  i;
    uint64_t  n[KVR_POINTER_ROUTER];

    for (i = 0; i < KVR_POINTER_NEEDED && values[i] == NULL; i++) {
        /* void */
    }

    if (i == KVR_POINTER_NEEDED) {
        return KVR_DECLINED;
    }

    n[KVR_POINTER_EAGLE] = p->head.contract.pairs;
    n[KVR_POINTER_HYBRID] = p->head.hybrid;

    for (i = 0; i < KVR_POINTER_ROUTER; i++) {

        if (i >= KVR_POINTER_NEEDED && values[i] == NULL) {
            continue;
        }

        if (values[i] == NULL || !kvr_u64_parse(values[i], len[i], &n[i])) {
            snprintf(why, KVR_POINTER_WHY, "a field of a snapshot is missing, "
                     "or no number");
            return KVR_INVALID;
        }
    }

    if (n[KVR_POINTER_VERSION] != KVR_SNAPSHOT_VERSION) {
        snprintf(why, KVR_POINTER_WHY, "a snapshot of version %" PRIu64
                 ", and this router reads %d: upgrade the router",
                 n[KVR_POINTER_VERSION], KVR_SNAPSHOT_VERSION);
        return KVR_INVALID;
    }

    if (n[KVR_POINTER_EPOCH] == 0 || n[KVR_POINTER_EPOCH] > KVR_EPOCH_MAX
        || n[KVR_POINTER_SEQ] == 0 || n[KVR_POINTER_SEQ] > KVR_SEQ_MAX
        || n[KVR_POINTER_COMPLETE] > 1 || n[KVR_POINTER_EAGLE] > 1
        || n[KVR_POINTER_HYBRID] > 1
        || n[KVR_POINTER_NPARTS] > KVR_POINTER_PARTS
        || n[KVR_POINTER_BLOCK_SIZE] > UINT32_MAX)
    {
        snprintf(why, KVR_POINTER_WHY, "a field of a snapshot is out of "
                 "range");
        return KVR_INVALID;
    }

    p->head.epoch = n[KVR_POINTER_EPOCH];
    p->head.seq = n[KVR_POINTER_SEQ];
    p->head.complete = n[KVR_POINTER_COMPLETE] != 0;
    p->head.contract.block_size = (uint32_t) n[KVR_POINTER_BLOCK_SIZE];
    p->head.contract.pairs = n[KVR_POINTER_EAGLE] != 0;
    p->head.hybrid = n[KVR_POINTER_HYBRID] != 0;
    p->parts = (uint32_t) n[KVR_POINTER_NPARTS];

    return KVR_OK;
}
