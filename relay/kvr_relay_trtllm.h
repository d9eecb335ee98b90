/*
 * Copyright (C) the nginx-kv-router authors
 *
 * TensorRT-LLM: its HTTP server is asked for kv_cache_events again and again.
 *
 * What it answers is gone there.  So there is one relay to an engine, and what
 * an earlier one was given and did not pass on is lost: a relay that starts
 * beside a running engine isn't complete until the engine clears or starts
 * anew ("created", event_id 0).  What is lost on the way shows in the
 * event_ids, which are the source's sequence.
 */


#ifndef KVR_RELAY_TRTLLM_H_INCLUDED
#define KVR_RELAY_TRTLLM_H_INCLUDED


#include "kvr_relay_core.h"
#include "kvr_relay_http.h"


#define KVR_RELAY_TRTLLM_WHY  64      /* bytes */


typedef struct {
    kvr_relay_http_t    http;
    char               *url;            /* NULL: not asked, or closed */
    bool                get;            /* it wants GET instead of POST */
    uint64_t            due_ms;         /* next poll */
    char                why[KVR_RELAY_TRTLLM_WHY];      /* the last poll that
                                           failed did; "": none has */
    bool                doubt;          /* an answer was lost, perhaps with
                                           events: the next event tells */
} kvr_relay_trtllm_t;


void kvr_relay_trtllm_open(kvr_relay_t *r);
void kvr_relay_trtllm_close(kvr_relay_t *r);

void kvr_relay_trtllm_tick(kvr_relay_t *r);

/* Why the engine can't be reached, while it can't. */
const char *kvr_relay_trtllm_why(const kvr_relay_t *r);


#endif /* KVR_RELAY_TRTLLM_H_INCLUDED */
