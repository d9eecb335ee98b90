/*
 * Copyright (C) the nginx-kv-router authors
 *
 * One URL, asked by HTTP again and again: a request at a time, and its answer.
 */


#ifndef KVR_RELAY_HTTP_H_INCLUDED
#define KVR_RELAY_HTTP_H_INCLUDED


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
    bool                sent;           /* the server may have seen the request
                                           nevertheless */
    long                status;
    const char         *body;           /* until the next request */
    size_t              len;
} kvr_relay_http_answer_t;


/* False: out of memory; to be closed all the same. */
bool kvr_relay_http_open(kvr_relay_http_t *http, const char *url, size_t max);
void kvr_relay_http_close(kvr_relay_http_t *http);

/* What the loop polls: up to KVR_RELAY_HTTP_FDS; returns how many. */
uint32_t kvr_relay_http_poll(kvr_relay_http_t *http, zmq_pollitem_t *items);

/* Sends a GET, or a POST of "{}", where none runs. */
void kvr_relay_http_ask(kvr_relay_http_t *http, bool get);

/*
 * Goes on with the request that runs.  True: it has ended.  False: *ms is when
 * to call again, at the latest.
 */
bool kvr_relay_http_answered(kvr_relay_http_t *http,
    kvr_relay_http_answer_t *answer, uint64_t *ms);


#endif /* KVR_RELAY_HTTP_H_INCLUDED */
