/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The connection to Redis: made, greeted, watched and made again, the next
 * URL after a failure, with a growing pause.  Commands are pipelined; each
 * has its answer, or NULL when the connection is lost.
 */


#ifndef KVR_RELAY_REDIS_H_INCLUDED
#define KVR_RELAY_REDIS_H_INCLUDED


#include <hiredis/async.h>


typedef void kvr_relay_reply_pt(kvr_relay_t *r, void *data,
    const redisReply *reply);


typedef struct {
    redisAsyncContext  *context;        /* NULL: none */
    uint32_t            url;            /* index of the one in use */
    bool                up;             /* greeted, */
    uint64_t            up_ms;          /* then */
    bool                reading;
    bool                writing;
    bool                broken;         /* to be closed at the next turn */
    uint32_t            pending;        /* answers that are waited for */
    uint64_t            heard_ms;       /* last answer, or first command */
    uint64_t            retry_ms;
    uint32_t            failures;       /* since it was up for long */
} kvr_relay_redis_t;


void kvr_relay_redis_init(kvr_relay_t *r);
void kvr_relay_redis_free(kvr_relay_t *r);

/* Connects when it is time, closes what is broken or silent. */
void kvr_relay_redis_tick(kvr_relay_t *r);

/* What the loop polls; fd -1: nothing. */
int kvr_relay_redis_poll(const kvr_relay_t *r, short *events);
void kvr_relay_redis_ready(kvr_relay_t *r, short revents);

/*
 * Sends a command; reply may be NULL.  It is called with NULL at once when
 * there is no connection.  Strings are terminated; args end with NULL.
 */
void kvr_relay_redis_args(kvr_relay_t *r, kvr_relay_reply_pt *reply,
    void *data, ...) __attribute__((sentinel));
void kvr_relay_redis_argv(kvr_relay_t *r, kvr_relay_reply_pt *reply,
    void *data, int argc, const char **argv, const size_t *len);

/* Closes the connection at the next turn, and says why. */
void kvr_relay_redis_break(kvr_relay_t *r, const char *why,
    const redisReply *reply);


#endif /* KVR_RELAY_REDIS_H_INCLUDED */
