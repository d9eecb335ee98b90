/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_pointer.h"
#include "kvr_decoder.h"


kvr_rc_t
kvr_pointer_read(kvr_pointer_t *p,
    const char *const values[KVR_POINTER_FIELDS],
    const size_t len[KVR_POINTER_FIELDS], const char **detail)
{
    uint32_t  i;
    uint64_t  version, epoch, seq, complete, parts, block_size, eagle, hybrid;

    uint64_t  *numbers[] = {
        &version, &epoch, &seq, &complete, &parts, &block_size, &eagle,
        &hybrid
    };

    for (i = 0; i < KVR_POINTER_NEEDED && values[i] == NULL; i++) {
        /* void */
    }

    if (i == KVR_POINTER_NEEDED) {
        return KVR_DECLINED;
    }

    eagle = p->head.eagle;
    hybrid = p->head.hybrid;

    for (i = 0; i < KVR_POINTER_FIELDS; i++) {

        if (i >= KVR_POINTER_NEEDED && values[i] == NULL) {
            continue;
        }

        if (values[i] == NULL
            || !kvr_u64_parse(values[i], len[i], numbers[i]))
        {
            *detail = "a field of a snapshot is missing, or no number";
            return KVR_INVALID;
        }
    }

    if (version != 1) {
        *detail = "a snapshot of another version";
        return KVR_INVALID;
    }

    if (epoch == 0 || epoch > KVR_EPOCH_MAX || seq == 0 || seq > KVR_SEQ_MAX
        || complete > 1 || eagle > 1 || hybrid > 1 || parts > KVR_POINTER_PARTS
        || block_size > UINT32_MAX)
    {
        *detail = "a field of a snapshot is out of range";
        return KVR_INVALID;
    }

    p->head.epoch = epoch;
    p->head.seq = seq;
    p->head.complete = complete != 0;
    p->head.block_size = (uint32_t) block_size;
    p->head.eagle = eagle != 0;
    p->head.hybrid = hybrid != 0;
    p->parts = (uint32_t) parts;

    return KVR_OK;
}
