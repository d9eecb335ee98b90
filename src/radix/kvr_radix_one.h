/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The commonest events, one block each; under the zone's lock.
 */


#ifndef KVR_RADIX_ONE_H_INCLUDED
#define KVR_RADIX_ONE_H_INCLUDED


#include "kvr_handles.h"


/*
 * The store: one more device block at the end of a run, for a view that holds
 * the whole run, when the run's last block is the parent.  The removal: of the
 * last block of a run, when no other view holds any of the run.  False,
 * nothing done: the event is not of this kind, the caller must do it in the
 * general way.
 */
bool kvr_radix_store_one(kvr_radix_t *x, uint32_t view,
    const kvr_handle_ref_t *parent, kvr_handle_key_t key, uint64_t handle,
    uint64_t hash, uint64_t seed);
bool kvr_radix_remove_one(kvr_radix_t *x, uint32_t view,
    const kvr_handle_ref_t *ref, kvr_handle_key_t key);


#endif /* KVR_RADIX_ONE_H_INCLUDED */
