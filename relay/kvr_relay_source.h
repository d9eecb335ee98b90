/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A source: one rank of the engine, its sequence of messages, and whether all
 * that it holds is known.
 *
 * kvr_relay_step.h has the states that a source can be in, kvr_relay_feed.h
 * what its messages do to the mirror.
 *
 * A source's rank is its place in the list of endpoints.  Its engine counts
 * from --first-rank on: events of any other rank are refused.  TensorRT-LLM's
 * one source has all ranks.
 */


#ifndef KVR_RELAY_SOURCE_H_INCLUDED
#define KVR_RELAY_SOURCE_H_INCLUDED


#include "kvr_relay_frames.h"
#include "kvr_relay_step.h"


typedef struct kvr_relay_zmq_s  kvr_relay_zmq_t;


typedef struct {
    uint32_t            index;          /* the first of its ranks, as routers
                                           count: its place */
    uint32_t            nranks;         /* 1, or all of TensorRT-LLM's */
    uint32_t            base;           /* the engine's number of the first */
    uint32_t            other;          /* a rank that the last batch named and
                                           that is none of these; else base */
    uint64_t            other_ms;       /* when one is to be said again */

    bool                known;          /* has a last message: */
    uint64_t            seq;            /* the engine's number, */
    uint64_t            digest;         /* and a hash of its payload */
    char                sgl_epoch[KVR_RELAY_SGL_EPOCH]; /* SGLang's, or "" */

    kvr_relay_step_t    at;
    char                reason[KVR_RELAY_REASON];   /* why it is not whole, or
                                           what puts that in doubt */
    uint64_t            away_ms;        /* not connected since; 0: it is */
    uint64_t            warn_ms;        /* when that is to be said next */
    bool                synced;         /* was in step, once */

    uint64_t            lost;           /* kvr_relay_mirror_lost() when it held
                                           nothing */
    uint64_t            heard_ms;       /* last message */

    kvr_relay_zmq_t    *zmq;
} kvr_relay_source_t;


/* False: out of memory. */
bool kvr_relay_source_init(kvr_relay_t *r);
void kvr_relay_source_free(kvr_relay_t *r);

/* A hash of a payload, by which payloads are compared. */
uint64_t kvr_relay_source_digest(const void *payload, size_t len);

/* The endpoint of the source's engine, in the form that messages show. */
const char *kvr_relay_source_endpoint(const kvr_relay_t *r,
    const kvr_relay_source_t *s);

/* Records the incarnation of the engine that sent a message. */
void kvr_relay_source_epoch(kvr_relay_source_t *s,
    const kvr_relay_message_t *m);

/*
 * Gives the source an input of kvr_relay_step.h.  BROKEN, SILENT, SHORT, DOUBT
 * and ENDED have calls below, which write to the log.
 */
void kvr_relay_source_step(kvr_relay_source_t *s,
    kvr_relay_step_input_t input);

/*
 * Gives the source one of the inputs BROKEN, SILENT, SHORT and DOUBT: some
 * blocks of the engine are not known, or may not be, because of `why`.  The
 * log has the first reason, the source keeps the last one.
 */
void kvr_relay_source_lack(kvr_relay_source_t *s,
    kvr_relay_step_input_t input, const char *why);

/* Gives the input ENDED: the engine's replay has told all that it can. */
void kvr_relay_source_synced(kvr_relay_t *r, kvr_relay_source_t *s);

/*
 * Is the event's rank one of the source's?  If it is, the event gets the
 * rank's number as routers count.
 */
bool kvr_relay_source_ours(const kvr_relay_source_t *s, kvr_event_t *ev);

/* Forgets the number and the incarnation of a source. */
void kvr_relay_source_unknown(kvr_relay_source_t *s);

/* Forgets the numbers and incarnations of all sources. */
void kvr_relay_source_forget(kvr_relay_t *r);

/*
 * Is the mirror the engine's whole state?  If not, reason says why.  reason
 * may be NULL.
 */
bool kvr_relay_complete(kvr_relay_t *r, char reason[KVR_RELAY_REASON]);


#endif /* KVR_RELAY_SOURCE_H_INCLUDED */
