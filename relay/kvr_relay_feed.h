/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the messages of a source do: to the mirror, to what is published, and
 * to what is known of the source's engine.  zmq, replay and trtllm bring them.
 */


#ifndef KVR_RELAY_FEED_H_INCLUDED
#define KVR_RELAY_FEED_H_INCLUDED


/* What helps where a batch names another rank than its endpoint's. */
#define KVR_RELAY_OTHER_REMEDY                                                \
    "name --events in the order of the engine's ranks; of a node whose ranks "\
    "begin later give --first-rank; of several ranks at one TensorRT-LLM "    \
    "--ranks"


/*
 * Applies a message of the engine.  It is the next one, or what lies between
 * is lost and was said so.
 */
void kvr_relay_feed_message(kvr_relay_t *r, kvr_relay_source_t *s,
    uint64_t seq, const void *payload, size_t len);

/*
 * Applies a list of TensorRT-LLM's events, whose numbers are the sequence:
 * what is missing, or counts anew, is seen here.  True: there was one, at
 * least.
 */
bool kvr_relay_feed_list(kvr_relay_t *r, kvr_relay_source_t *s,
    const void *payload, size_t len);

/* The engine is another one than before: its blocks go. */
void kvr_relay_feed_restarted(kvr_relay_t *r, kvr_relay_source_t *s);

/*
 * Goes on from nothing, until kvr_relay_feed_rebuilt(): its ranks' blocks
 * go.  An engine of one endpoint gets a new epoch, whose base waits for all
 * that follows, for a while; of several, routers are told at once.
 */
void kvr_relay_feed_rebuild(kvr_relay_t *r, kvr_relay_source_t *s);
void kvr_relay_feed_rebuilt(kvr_relay_t *r, kvr_relay_source_t *s);


#endif /* KVR_RELAY_FEED_H_INCLUDED */
