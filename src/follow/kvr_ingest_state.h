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
    kvr_why_t             unread;   /* why no event of the message can be
                                       read; KVR_WHY_NONE: all can */
    const char           *detail;   /* of the refusal of all of it */
    bool                  enveloped;
    bool                  live;     /* from pub/sub */
    uint64_t              now_ms;
    kvr_event_t           event;
    uint32_t              done;     /* handles of the event applied */
    bool                  halfway;  /* the event has more handles */
    uint32_t              worker;   /* slot in the shard, of msg */
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
 * Finds the worker, or makes it; the shard's lock is held.  KVR_DECLINED: the
 * worker was deleted or is of another zone; KVR_FULL: the zone has no space
 * for another worker.
 */
kvr_rc_t kvr_ingest_worker(kvr_ingest_t *in, const char *worker, size_t len);

/*
 * Applies an event and counts its errors.  Returns as kvr_shard_apply(), and
 * KVR_DECLINED for a RouterEvent whose number says not to apply it.
 */
kvr_rc_t kvr_ingest_event(kvr_ingest_t *in, kvr_worker_t *w,
    const kvr_event_t *ev);

/*
 * Sets the confidence in in->worker's view.  If the view becomes EXACT, the
 * engine and its publisher are in step: the worker is taken to be back.
 */
void kvr_ingest_confidence(kvr_ingest_t *in, kvr_worker_t *w);

/* Counts an event, or an unreadable message, as refused. */
void kvr_ingest_refuse(kvr_ingest_t *in, kvr_worker_t *w, kvr_why_t why);


#endif /* KVR_INGEST_STATE_H_INCLUDED */
