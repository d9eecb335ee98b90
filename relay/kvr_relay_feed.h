/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the messages of a source do: to the mirror, to what is published, and
 * to what is known of the source's engine.  zmq, replay and trtllm bring them.
 */


#ifndef KVR_RELAY_FEED_H_INCLUDED
#define KVR_RELAY_FEED_H_INCLUDED


#include "kvr_relay_source.h"


/* What helps where a batch names another rank than its endpoint's. */
#define KVR_RELAY_OTHER_REMEDY                                                \
    "name --events in the order of the engine's ranks; of a node whose ranks "\
    "begin later give --first-rank; of several ranks at one TensorRT-LLM "    \
    "--ranks"


/*
 * Applies a message of the engine.  The message is the next one, or the caller
 * has recorded that the messages between are lost.
 */
void kvr_relay_feed_message(kvr_relay_t *r, kvr_relay_source_t *s,
    uint64_t seq, const void *payload, size_t len);

/*
 * Applies a list of TensorRT-LLM's events, whose numbers are the sequence: a
 * number that is missing, or a count that starts again, is found here.  True:
 * the list had at least one event.
 */
bool kvr_relay_feed_list(kvr_relay_t *r, kvr_relay_source_t *s,
    const void *payload, size_t len);

/*
 * The engine is another one than before: the blocks of its ranks are removed.
 */
void kvr_relay_feed_restarted(kvr_relay_t *r, kvr_relay_source_t *s);

/*
 * Starts a source again from nothing, until kvr_relay_feed_rebuilt(), whether
 * the engine is another one or a source in step has asked for all again: the
 * blocks of its ranks are removed.  An engine with one endpoint gets a new
 * epoch, whose base waits a bounded time for all that the engine tells.  With
 * several endpoints routers are told of the removal at once.
 */
void kvr_relay_feed_rebuild(kvr_relay_t *r, kvr_relay_source_t *s);
void kvr_relay_feed_rebuilt(kvr_relay_t *r, kvr_relay_source_t *s);


#endif /* KVR_RELAY_FEED_H_INCLUDED */
