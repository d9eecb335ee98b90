/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The state of a worker's stream that decides how far the worker's view can
 * be trusted (docs/events.md, "Confidence").
 *
 * For kvr_ingest.c and its neighbours.  Every call needs the shard's lock.
 */


#ifndef KVR_STREAM_H_INCLUDED
#define KVR_STREAM_H_INCLUDED


#include "../zone/kvr_shard.h"


/* A message says whether its publisher knows all that its engine holds. */
void kvr_stream_complete(kvr_shard_t *k, kvr_worker_t *w, bool complete);

/* The publisher begins an epoch with nothing: the view is cleared, too. */
void kvr_stream_restart(kvr_shard_t *k, uint32_t worker, uint64_t epoch);

/*
 * The stream goes on behind (epoch, seq), although messages before are
 * missing: the view is kept, but is no longer contiguous.  The caller sets the
 * confidence.
 */
void kvr_stream_skip(kvr_shard_t *k, kvr_worker_t *w, uint64_t epoch,
    uint64_t seq);

/*
 * An event of the worker was refused; bad_block_size: because of its block
 * size.  The reason is stored at once, for another process may go on with the
 * message.
 */
void kvr_stream_refused(kvr_shard_t *k, kvr_worker_t *w, bool bad_block_size);

/*
 * An event of a rank was refused: the rank is in doubt until it is cleared.
 * KVR_RANKS_MAX: the rank is not known, and the stream is no longer
 * contiguous.
 */
void kvr_stream_missed(kvr_shard_t *k, uint32_t worker, uint32_t rank);

/*
 * A rank was cleared by an engine whose publisher knows all of the engine:
 * nothing of the rank is missing any more.  True: nothing of any rank is
 * missing, and the stream is contiguous again.  If messages are missing that
 * may be of unknown ranks, only a snapshot or a new epoch does that.
 */
bool kvr_stream_cleared(kvr_shard_t *k, uint32_t worker, uint32_t rank);

/* An event of the worker was lost: all ranks are in doubt until cleared. */
void kvr_stream_uncleared(kvr_shard_t *k, kvr_worker_t *w);

/*
 * Sets the confidence that follows from the stream's state.  True: the view
 * has become EXACT, so that the publisher is in step with its engine.
 */
bool kvr_stream_confidence(kvr_shard_t *k, kvr_worker_t *w);


#endif /* KVR_STREAM_H_INCLUDED */
