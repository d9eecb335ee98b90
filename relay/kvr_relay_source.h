/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A source: one rank of the engine, its sequence of messages, and whether all
 * that it holds is known.
 *
 * The transport (zmq, trtllm) says what arrived; what it means for the mirror
 * stands here.  After a start and after each reconnect a source has to be
 * brought in step (zmq does it by replay), which ends in one of
 *
 *     same      the last message is the one that we know: what followed it
 *               was applied, and what was complete still is
 *     rebuilt   from the engine's first message on: complete
 *     broken    something is missing: not complete, and why
 *
 * Its ranks are those that its engine has told of.  What happens to one source
 * is the others' business only where they have told of the same rank.
 */


#ifndef KVR_RELAY_SOURCE_H_INCLUDED
#define KVR_RELAY_SOURCE_H_INCLUDED


typedef struct kvr_relay_zmq_s  kvr_relay_zmq_t;


typedef struct {
    uint32_t            index;          /* the rank, if batches say none */

    bool                known;          /* has a last message: */
    uint64_t            seq;            /* the engine's number, */
    uint64_t            digest;         /* and a hash of its payload */
    char                sgl_epoch[KVR_RELAY_SGL_EPOCH]; /* SGLang's, or "" */

    bool                whole;          /* all that the engine holds is known,
                                           as of seq */
    bool                before;         /* it was, before a doubt that the
                                           next message may end */
    char                reason[KVR_RELAY_REASON];   /* why not */
    bool                connected;
    uint64_t            away_ms;        /* it is not, since then; 0: it is */
    uint64_t            warn_ms;        /* when that is to be said next */
    bool                synced;         /* was in step, once */
    bool                in_step;        /* is: connected, and no replay is
                                           asked for what is known to be
                                           missing */
    bool                tailed;         /* the log's tail was applied, or has
                                           nothing of it */
    bool                rebuilding;     /* from the engine's first message */

    kvr_relay_ranks_t   ranks;          /* that it has told of since its engine
                                           began, as far as is known */
    bool                by_clear;       /* whole since its one rank's clear */
    uint64_t            lost;           /* kvr_relay_mirror_lost() when it held
                                           nothing */
    uint64_t            heard_ms;       /* last message */

    kvr_relay_zmq_t    *zmq;
} kvr_relay_source_t;


/* False: out of memory. */
bool kvr_relay_source_init(kvr_relay_t *r);
void kvr_relay_source_free(kvr_relay_t *r);

/* Connects to the engine, and lets it be. */
void kvr_relay_source_start(kvr_relay_t *r);
void kvr_relay_source_stop(kvr_relay_t *r);

/*
 * Applies a message of the engine.  It is the next one, or what lies between
 * is lost and was said so.
 */
void kvr_relay_source_message(kvr_relay_t *r, kvr_relay_source_t *s,
    uint64_t seq, const void *payload, size_t len);

/*
 * Applies a list of TensorRT-LLM's events, whose numbers are the sequence:
 * what is missing, or counts anew, is seen here.  True: there was one, at
 * least.
 */
bool kvr_relay_source_list(kvr_relay_t *r, kvr_relay_source_t *s,
    const void *payload, size_t len);

/* The hash that stands for a payload. */
uint64_t kvr_relay_source_digest(const void *payload, size_t len);

/* The engine is another one than before: its blocks go. */
void kvr_relay_source_restarted(kvr_relay_t *r, kvr_relay_source_t *s);

/*
 * Goes on from nothing, until kvr_relay_source_rebuilt(): its ranks' blocks
 * go.  An engine of one endpoint gets a new epoch, whose base waits for all
 * that follows, for a while; of several, routers are told at once.
 */
void kvr_relay_source_rebuild(kvr_relay_t *r, kvr_relay_source_t *s);
void kvr_relay_source_rebuilt(kvr_relay_t *r, kvr_relay_source_t *s);

/* Something of the engine is not known.  why is kept. */
void kvr_relay_source_broken(kvr_relay_t *r, kvr_relay_source_t *s,
    const char *why);

/* Is in step with the engine. */
void kvr_relay_source_synced(kvr_relay_t *r, kvr_relay_source_t *s);

/* Looks whether all are in step, so that publishing can begin (again). */
void kvr_relay_source_tick(kvr_relay_t *r);

/*
 * Warns of each source that has not been connected for 5 seconds, and again
 * each minute; at each turn.
 */
void kvr_relay_source_watch(kvr_relay_t *r);

/* The source's engine: where it should be, and why it is not reached there. */
const char *kvr_relay_source_endpoint(const kvr_relay_t *r,
    const kvr_relay_source_t *s);
const char *kvr_relay_source_why(const kvr_relay_t *r,
    const kvr_relay_source_t *s);

/* The first one that has told of the rank, or NULL. */
kvr_relay_source_t *kvr_relay_source_of(const kvr_relay_t *r, uint32_t rank);

/* What was loaded is of no use. */
void kvr_relay_source_forget(kvr_relay_t *r);


#endif /* KVR_RELAY_SOURCE_H_INCLUDED */
