/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a kvr_ingest_t is, for kvr_ingest.c and kvr_ingest_repair.c alone.
 */


#ifndef KVR_INGEST_STATE_H_INCLUDED
#define KVR_INGEST_STATE_H_INCLUDED


#include "kvr_engine.h"
#include "kvr_ingest.h"


struct kvr_ingest_s {
    kvr_router_t      *router;
    kvr_shard_t       *shard;       /* of the worker that was last named */
    kvr_decoder_t     *decoder;
    kvr_message_t      msg;
    kvr_why_t          unread;      /* why no event of it can be read;
                                       KVR_WHY_NONE: they can */
    kvr_event_t        event;
    uint32_t           done;        /* of its handles */
    bool               halfway;     /* it has more */
    uint32_t           worker;      /* slot there, of the message opened */
    uint32_t           generation;
    uint32_t           refused;     /* events of the message */
    bool               misfit;      /* a block size that is no multiple */
    kvr_complaint_t    complaint;
    kvr_engine_t      *engine;      /* for bare batches; made when the first
                                       one comes */
    kvr_engine_conf_t  memory;      /* of it */
};


/*
 * Finds the worker, or makes it; under the lock.  KVR_DECLINED for one that
 * was deleted or is of another zone, KVR_FULL when there is no room for
 * another.
 */
kvr_rc_t kvr_ingest_worker(kvr_ingest_t *in, const char *worker, size_t len);


#endif /* KVR_INGEST_STATE_H_INCLUDED */
