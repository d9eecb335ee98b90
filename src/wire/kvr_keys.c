/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_keys.h"

#include <inttypes.h>
#include <stdio.h>


const char *const  kvr_pointer_fields[KVR_POINTER_FIELDS] = {
    [KVR_POINTER_VERSION] = "version",
    [KVR_POINTER_EPOCH] = KVR_FIELD_EPOCH,
    [KVR_POINTER_SEQ] = KVR_FIELD_SEQ,
    [KVR_POINTER_COMPLETE] = "complete",
    [KVR_POINTER_NPARTS] = KVR_FIELD_PARTS,
    [KVR_POINTER_BLOCK_SIZE] = "block_size",
    [KVR_POINTER_EAGLE] = "eagle",
    [KVR_POINTER_HYBRID] = "hybrid",
    [KVR_POINTER_STATE_PARTS] = KVR_FIELD_STATE_PARTS,
    [KVR_POINTER_BLOCKS] = "blocks",
    [KVR_POINTER_ENGINE_SEQ] = "engine_seq"
};


size_t
kvr_key(char out[KVR_KEY_MAX], const char *name, const char *worker,
    size_t len)
{
    return (size_t) snprintf(out, KVR_KEY_MAX, "%s:{%.*s}", name, (int) len,
                             worker);
}


size_t
kvr_key_part(char out[KVR_KEY_MAX], const char *worker, size_t len,
    uint64_t epoch, uint64_t seq, bool state, uint32_t i)
{
    size_t  n;

    n = kvr_key(out, KVR_KEY_SNAPSHOT, worker, len);

    return n + (size_t) snprintf(out + n, KVR_KEY_MAX - n,
                                 ":%" PRIu64 "-%" PRIu64 ":%s%" PRIu32, epoch,
                                 seq, state ? "s" : "", i);
}
