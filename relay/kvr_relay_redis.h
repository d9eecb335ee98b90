/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The connection to Redis: made, greeted, watched and made again, the next
 * URL after a failure, with a growing pause.  A Sentinel is asked for the
 * master before each connection.  Commands are pipelined; each
 * has its answer, or NULL when the connection is lost.  When more is waiting
 * than there is room for, the connection is given up.
 */


#ifndef KVR_RELAY_REDIS_H_INCLUDED
#define KVR_RELAY_REDIS_H_INCLUDED


#include "kvr_relay_core.h"
#include "kvr_relay_loop.h"
#include "kvr_relay_wire.h"

#include <hiredis/hiredis.h>


/* the maximum number of commands that wait for an answer */
#define KVR_RELAY_PENDING  4096


typedef void kvr_relay_reply_pt(kvr_relay_t *r, void *data,
    const redisReply *reply);


/* The callbacks of the connection; each is called with the relay. */
typedef struct {
    /* The connection is open: sends the first commands, whose replies bring
       the connection up or break it. */
    void  (*greet)(kvr_relay_t *r);
    void  (*up)(kvr_relay_t *r);        /* it was greeted */
    void  (*down)(kvr_relay_t *r);      /* it was up, and is lost */
} kvr_relay_redis_told_t;


typedef struct {
    kvr_relay_reply_pt  *reply;         /* NULL: nobody wants it */
    void                *data;
} kvr_relay_command_t;


typedef struct {
    kvr_relay_redis_told_t  told;
    kvr_relay_wire_t     wire;
    redisReader         *reader;
    kvr_redis_url_t      where;         /* what is, or was, connected to */
    uint32_t             url;           /* its index */
    bool                 asking;        /* a Sentinel, which is connected to */
    bool                 found;         /* its answer is in where: the next
                                           connection is to the master */
    bool                 up;            /* greeted, */
    uint64_t             up_ms;         /* then */
    bool                 broken;        /* to be closed at the next turn */
    bool                 more;          /* input may wait unseen by poll */

    kvr_relay_command_t  pending[KVR_RELAY_PENDING];    /* a ring */
    uint32_t             first;
    uint32_t             npending;

    char                *out;           /* commands, */
    size_t               out_size;
    size_t               out_first;     /* not written from here */
    size_t               out_last;      /* to here */

    size_t               partial;       /* bytes of a reply so far */
    uint64_t             heard_ms;      /* last input, or first command */
    uint64_t             retry_ms;
    uint32_t             failures;      /* since it was up for long */
    char                 said[KVR_RELAY_LIST_MAX][KVR_RELAY_TLS_WHY];
                                        /* why each failed last */
} kvr_relay_redis_t;


/* False: why says which option is wrong. */
bool kvr_relay_redis_init(kvr_relay_t *r, const kvr_relay_redis_told_t *told,
    char why[KVR_RELAY_TLS_WHY]);
void kvr_relay_redis_free(kvr_relay_t *r);

/*
 * Connects when it is time, and closes a connection that is broken or silent.
 */
void kvr_relay_redis_tick(kvr_relay_t *r);

/*
 * Adds the socket to what the loop polls.  Returns its place, see
 * kvr_relay_loop_add().
 */
uint32_t kvr_relay_redis_poll(const kvr_relay_t *r, kvr_relay_loop_t *loop);

/*
 * Reads and writes when the socket is ready; called at each turn, with 0 when
 * it is not.
 */
void kvr_relay_redis_ready(kvr_relay_t *r, short revents);

/*
 * Sends a command; reply may be NULL.  Without a connection reply is called
 * with NULL at once.  Strings end with NUL, and the arguments with NULL; the
 * argument that is `bytes` itself has bytes_len bytes.  The strings of argv
 * end with NUL when len is NULL.
 */
#define kvr_relay_redis_args(r, reply, data, ...)                             \
    kvr_relay_redis_bytes(r, reply, data, NULL, 0, __VA_ARGS__)
void kvr_relay_redis_bytes(kvr_relay_t *r, kvr_relay_reply_pt *reply,
    void *data, const char *bytes, size_t bytes_len, ...)
    __attribute__((sentinel));
void kvr_relay_redis_argv(kvr_relay_t *r, kvr_relay_reply_pt *reply,
    void *data, int argc, const char **argv, const size_t *len);

/*
 * Takes the answer to a command that the relay can do without.  A refusal and
 * its consequence are logged once: the caller keeps `said`, one for each
 * command.
 */
void kvr_relay_redis_spared(const char *command, const char *lack,
    bool *said, const redisReply *reply);

/* Closes the connection at the next turn, and logs why. */
void kvr_relay_redis_break(kvr_relay_t *r, const char *why,
    const redisReply *reply);


#endif /* KVR_RELAY_REDIS_H_INCLUDED */
