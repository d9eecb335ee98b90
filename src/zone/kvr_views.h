/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Functions that clear, drop and reclaim the views of a shard.  The caller
 * must hold the shard's lock; only kvr_shard_reclaim() takes the lock itself.
 */


#ifndef KVR_VIEWS_H_INCLUDED
#define KVR_VIEWS_H_INCLUDED


#include "kvr_shard.h"


/*
 * Empties a holder, or all holders of a worker, together with the views that
 * are built aside; estimates stay.
 */
void kvr_shard_clear(kvr_shard_t *k, uint32_t holder);
void kvr_shard_clear_worker(kvr_shard_t *k, uint32_t worker);

/* The same for a worker that is gone: estimates go, too. */
void kvr_shard_clear_all(kvr_shard_t *k, uint32_t worker);

/*
 * Drops the views aside of a worker, or of all workers.  The builder of a
 * snapshot learns it from its next call.  The latter function commits.
 */
void kvr_shard_drop_aside(kvr_shard_t *k, uint32_t worker);
void kvr_shard_sweep_aside(kvr_shard_t *k);

/*
 * Reclaims some of the cleared views, until about until_us (kvr_now_us()).
 * True when work is left.
 */
bool kvr_shard_reclaim(kvr_shard_t *k, uint64_t until_us);

/*
 * The holder of which a view is what the holder, without events, is taken to
 * have at present; KVR_HOLDER_NONE of any other view.
 */
uint32_t kvr_shard_estimates(const kvr_shard_t *k, uint32_t view);


#endif /* KVR_VIEWS_H_INCLUDED */
