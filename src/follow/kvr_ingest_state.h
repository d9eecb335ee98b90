/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a kvr_ingest_t is, for the files kvr_ingest*.c alone.
 */


#ifndef KVR_INGEST_STATE_H_INCLUDED
#define KVR_INGEST_STATE_H_INCLUDED


#include "../normalise/kvr_normalise.h"
#include "kvr_ingest.h"


struct kvr_ingest_s {
    kvr_router_t         *router;
    kvr_shard_t          *shard;    /* of the worker that was last named */
    kvr_decoder_t        *decoder;
    kvr_message_t         msg;
    kvr_why_t             unread;   /* why no event of it can be read;
                                       KVR_WHY_NONE: they can */
    kvr_event_t           event;
    uint32_t              done;     /* of its handles */
    bool                  halfway;  /* it has more */
    uint32_t              worker;   /* slot there, of the message opened */
    uint32_t              generation;
    uint32_t              refused;  /* events of the message */
    bool                  bad_block_size;  /* of an event: is no multiple
                                              of the zone's */
    kvr_warning_t         warning;
    kvr_normaliser_t     *engine;   /* for bare batches; made when the first
                                       one comes */
    kvr_normalise_conf_t  memory;   /* of it */
};


/*
 * Finds the worker, or makes it; under the lock.  KVR_DECLINED for one that
 * was deleted or is of another zone, KVR_FULL when there is no room for
 * another.
 */
kvr_rc_t kvr_ingest_worker(kvr_ingest_t *in, const char *worker, size_t len);

/*
 * Applies an event; what is wrong with it is counted and ends with it.  As
 * kvr_shard_apply(), and KVR_DECLINED for a RouterEvent that is not to be
 * applied by its number.
 */
kvr_rc_t kvr_ingest_event(kvr_ingest_t *in, kvr_worker_t *w,
    const kvr_event_t *ev);

/*
 * Sets the confidence in in->worker's view.  Where it becomes EXACT the worker
 * is taken to be back: its engine and its publisher are in step.
 */
void kvr_ingest_confidence(kvr_ingest_t *in, kvr_worker_t *w);

/* Counts an event, or what can't be read, as refused. */
void kvr_ingest_refuse(kvr_ingest_t *in, kvr_worker_t *w, kvr_why_t why);


#endif /* KVR_INGEST_STATE_H_INCLUDED */
