/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The lease of a shard: who consumes the events of its workers.
 */


#ifndef KVR_LEASE_H_INCLUDED
#define KVR_LEASE_H_INCLUDED


#include "kvr_shard.h"


/*
 * Takes the shard's lock for the holder of the shard's lease.  KVR_LOST: the
 * lease is another process's; KVR_BUSY.  After both the lock is not held.
 */
kvr_rc_t kvr_shard_lock_leased(kvr_shard_t *k);

/* As kvr_router_lease() and kvr_router_lease_release(), of one shard. */
kvr_rc_t kvr_shard_lease(kvr_shard_t *k, uint32_t wait_ms, uint64_t now_ms);
void kvr_shard_lease_release(kvr_shard_t *k);


#endif /* KVR_LEASE_H_INCLUDED */
