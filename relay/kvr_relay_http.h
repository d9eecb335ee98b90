/*
 * Copyright (C) the nginx-kv-router authors
 *
 * One URL, asked by HTTP again and again: a request at a time, and its answer.
 */


#ifndef KVR_RELAY_HTTP_H_INCLUDED
#define KVR_RELAY_HTTP_H_INCLUDED


#include "kvr_relay_loop.h"

#include <curl/curl.h>


#define KVR_RELAY_HTTP_FDS  8


typedef struct {
    CURLM              *multi;
    CURL               *easy;           /* NULL: not open */
    struct curl_slist  *headers;
    bool                running;
    char               *body;
    size_t              len;
    size_t              size;
    size_t              max;            /* bytes of an answer */
} kvr_relay_http_t;


/* An answer, or why there is none. */
typedef struct {
    const char         *why;            /* NULL: there is one */
    /* the request may have reached the server although there is no answer */
    bool                sent;
    long                status;
    const char         *body;           /* until the next request */
    size_t              len;
} kvr_relay_http_answer_t;


/*
 * Prepares the URL.  False: out of memory.  The request must be closed in both
 * cases.
 */
bool kvr_relay_http_open(kvr_relay_http_t *http, const char *url, size_t max);
void kvr_relay_http_close(kvr_relay_http_t *http);

/* Adds the sockets to what is polled; there is room for KVR_RELAY_HTTP_FDS. */
void kvr_relay_http_poll(kvr_relay_http_t *http, kvr_relay_loop_t *loop);

/* Sends a GET, or a POST of "{}".  No request may run. */
void kvr_relay_http_ask(kvr_relay_http_t *http, bool get);

/*
 * Goes on with the request that runs.  True: the request has ended.  False:
 * *ms is the time until the next call, at most.
 */
bool kvr_relay_http_answered(kvr_relay_http_t *http,
    kvr_relay_http_answer_t *answer, uint64_t *ms);


#endif /* KVR_RELAY_HTTP_H_INCLUDED */
