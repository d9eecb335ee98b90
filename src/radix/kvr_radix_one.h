/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The commonest events, one block each; under the zone's lock.
 */


#ifndef KVR_RADIX_ONE_H_INCLUDED
#define KVR_RADIX_ONE_H_INCLUDED


#include "kvr_handles.h"


/*
 * One device block more behind the last one of its run, which is the parent,
 * for a view that has all of it; and the last block of a run taken out, when
 * the view is the only one there and the block is found by that handle.
 * False, nothing done: it is not as simple as that.
 */
bool kvr_radix_store_one(kvr_radix_t *x, uint32_t view,
    const kvr_handle_ref_t *parent, kvr_handle_key_t key, uint64_t handle,
    uint64_t hash, uint64_t seed);
bool kvr_radix_remove_one(kvr_radix_t *x, uint32_t view,
    const kvr_handle_ref_t *ref, kvr_handle_key_t key);


#endif /* KVR_RADIX_ONE_H_INCLUDED */
