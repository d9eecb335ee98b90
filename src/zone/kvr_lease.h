/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The lease of a shard: who consumes the events of its workers.
 */


#ifndef KVR_LEASE_H_INCLUDED
#define KVR_LEASE_H_INCLUDED


#include "kvr_shard.h"


/*
 * The lock, for the holder of the lease.  KVR_LOST: another's; KVR_BUSY; then
 * without the lock.
 */
kvr_rc_t kvr_shard_lock_leased(kvr_shard_t *k);

/* As kvr_router_lease() and kvr_router_lease_release(), of one shard. */
kvr_rc_t kvr_shard_lease(kvr_shard_t *k, uint32_t wait_ms, uint64_t now_ms);
void kvr_shard_lease_release(kvr_shard_t *k);


#endif /* KVR_LEASE_H_INCLUDED */
