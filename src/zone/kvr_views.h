/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Views of a shard: cleared, dropped, reclaimed.  The caller holds the shard's
 * lock; only kvr_shard_reclaim() takes the lock itself.
 */


#ifndef KVR_VIEWS_H_INCLUDED
#define KVR_VIEWS_H_INCLUDED


#include "kvr_shard.h"


/*
 * Empties a holder, or all of a worker's, together with what is built aside.
 */
void kvr_shard_clear(kvr_shard_t *k, uint32_t holder);
void kvr_shard_clear_worker(kvr_shard_t *k, uint32_t worker);

/*
 * Drops what is aside of a worker, or of all: who built it is then told so.
 * The latter commits.
 */
void kvr_shard_drop_aside(kvr_shard_t *k, uint32_t worker);
void kvr_shard_sweep_aside(kvr_shard_t *k);

/*
 * Reclaims some of the cleared views, until about until_us (kvr_now_us()).
 * True when work is left.
 */
bool kvr_shard_reclaim(kvr_shard_t *k, uint64_t until_us);


#endif /* KVR_VIEWS_H_INCLUDED */
