/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What is known of a worker's stream, as far as it makes the view of the
 * worker one to be trusted or not (EVENTS.md section 7, rule 8).
 *
 * For kvr_ingest.c and its neighbours: all of it under the shard's lock.
 */


#ifndef KVR_STREAM_H_INCLUDED
#define KVR_STREAM_H_INCLUDED


#include "../zone/kvr_shard.h"


/* What a message says of the publisher's own knowledge. */
void kvr_stream_complete(kvr_shard_t *k, kvr_worker_t *w, bool complete);

/* The publisher begins an epoch with nothing, and so does the view. */
void kvr_stream_restart(kvr_shard_t *k, uint32_t worker, uint64_t epoch);

/*
 * The stream goes on behind (epoch, seq), where it did not stand: the view is
 * kept, and all of it is in doubt.  The confidence is left to the caller.
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
 * What was refused was of that rank, which is one to be cleared from now on;
 * KVR_RANKS_MAX: of any, and the view is not whole any more.
 */
void kvr_stream_missed(kvr_shard_t *k, uint32_t worker, uint32_t rank);

/*
 * A rank was cleared by an engine that the publisher knows all of: nothing of
 * it is missing any more.  True: that is so of all ranks by now, and the view
 * is whole.  Where messages are missing, and nobody but them says which ranks
 * the worker has, only a snapshot or an epoch makes it so.
 */
bool kvr_stream_cleared(kvr_shard_t *k, uint32_t worker, uint32_t rank);

/* Something of the worker's was lost, of whatever rank. */
void kvr_stream_uncleared(kvr_shard_t *k, kvr_worker_t *w);

/*
 * Sets the confidence that follows from the rest.  True: the view is EXACT now
 * and was not, so that the publisher is in step with its engine (again).
 */
bool kvr_stream_confidence(kvr_shard_t *k, kvr_worker_t *w);


#endif /* KVR_STREAM_H_INCLUDED */
