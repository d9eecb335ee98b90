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


#include <curl/curl.h>


#define KVR_RELAY_TRTLLM_FDS  8
#define KVR_RELAY_TRTLLM_WHY  64      /* bytes */


typedef struct {
    CURLM              *multi;
    CURL               *easy;           /* NULL: not asked for, or closed */
    struct curl_slist  *headers;
    char               *url;
    bool                running;
    bool                get;            /* it wants GET instead of POST */
    uint64_t            due_ms;         /* next poll */
    char               *body;
    size_t              len;
    size_t              size;
    char                why[KVR_RELAY_TRTLLM_WHY];      /* the last poll that
                                           failed did; "": none has */
    bool                doubt;          /* an answer was lost, perhaps with
                                           events: the next event tells */
} kvr_relay_trtllm_t;


void kvr_relay_trtllm_open(kvr_relay_t *r);
void kvr_relay_trtllm_close(kvr_relay_t *r);

/* What the loop polls: up to KVR_RELAY_TRTLLM_FDS; returns how many. */
uint32_t kvr_relay_trtllm_poll(kvr_relay_t *r, zmq_pollitem_t *items);

void kvr_relay_trtllm_tick(kvr_relay_t *r);

/* Why the engine is not reached, while it is not. */
const char *kvr_relay_trtllm_why(const kvr_relay_t *r);


#endif /* KVR_RELAY_TRTLLM_H_INCLUDED */
