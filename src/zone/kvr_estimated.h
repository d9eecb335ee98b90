/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Estimates: what workers without events are taken to have cached.
 *
 * HOW IT WORKS.  An engine that publishes no events is taken to keep what it
 * computed, and to evict what was not used for longest when its cache is full.
 * So each prompt that such a worker answered is stored for it in the index, as
 * an event would be, and the estimate evicts as the engine does.
 *
 *     - At the first byte of an answer the prompt's blocks are cached.  The
 *       process that serves the request notes so in a ring (kvr_routed.h);
 *       the process that has the lease of shard 0 reads the rings of all
 *       processes, and changes the index, some milliseconds later.  predict=
 *       covers the time between.
 *     - At the end of the answer its tokens are cached, too.  Their hashes are
 *       not known here, but they take room.
 *     - The capacity of the engine's cache is configured (capacity=), or is
 *       read from the engine's metrics, or is learned from the answers
 *       (kvr_capacity.h).
 *     - While no capacity is known, all is kept for KVR_ESTIMATE_TTL seconds
 *       after its last use.
 *     - When an engine is restarted, the estimate is empty again.
 *     - When the events of a worker are complete, they take the estimate's
 *       place, for good.
 *
 * THREE CACHES.  The estimate of a holder consists of three views of the
 * index, beside the one that events write.  They evict at half of the
 * capacity, at the capacity, and at one and a half of it.  Policies see the
 * second one alone; learning needs all of them.
 *
 * NAMES.  The handles of the blocks are the hashes of their chains
 * (kvr_hash_sequence()), so that all such workers share the index's blocks.
 * Blocks of text are other blocks than those of tokens, as their hashes have
 * another seed; both may be in the same view, and share one capacity.
 *
 * WHAT EVICTS WHAT.  kvr_recency.h knows which block of a view goes next.
 *
 * For kvr_router.c and its neighbours, under the shard's lock; the calls for
 * others are in kvr_router.h.
 */


#ifndef KVR_ESTIMATED_H_INCLUDED
#define KVR_ESTIMATED_H_INCLUDED


#include "kvr_zone.h"


#define KVR_ESTIMATE_TTL     600        /* seconds, while no capacity is
                                           known */


#endif /* KVR_ESTIMATED_H_INCLUDED */
