/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a relay talks to, in the place of libzmq, HTTP and the connection to
 * Redis: each wire says what an input has put on it.  Frames and answers are
 * copies of just their size.
 *
 * The relay's clock stands still between two turns.
 */


#ifndef WIRES_H_INCLUDED
#define WIRES_H_INCLUDED


#include "fuzz.h"

#include "../relay/kvr_relay.h"


#define WIRES_RANKS  2


typedef enum {
    WIRES_EVENTS,           /* what the engine publishes, and */
    WIRES_REPLAY,           /* what it answers to a replay */
    WIRES_MONITOR,          /* of the first one's connection */
    WIRES
} wires_kind_t;


extern uint64_t  wires_clock;       /* ms */
extern bool      wires_full;        /* there are no more sockets */
extern uint32_t  wires_unreached;   /* times that an engine was "not reached" */
extern char      wires_line[1024];  /* the log's, of the last time */
extern bool      wires_unloaded;    /* the relay could not load a snapshot */

/* Empty wires, and a Redis with nothing in it; that Redis is kept by clear. */
void wires_reset(void);
void wires_clear(void);

/* A frame of the next message; more: another one follows. */
void wires_frame(wires_kind_t kind, uint32_t rank, const void *bytes,
    size_t len, bool more);

/* The engine's connection is there, or gone; and what else libzmq tells. */
void wires_connect(uint32_t rank, bool up);
void wires_event(uint32_t rank, uint16_t event);

/*
 * What the next request over HTTP is answered, or why it is not: see
 * kvr_relay_http_answer_t.
 */
void wires_http(const char *why, bool sent, long status, const void *bytes,
    size_t len);

/* The connection to Redis is there, or gone. */
void wires_redis(kvr_relay_t *r, bool up);

/* Answers that Redis owes: the next n by a Redis that works, or one by bytes. */
void wires_answer(kvr_relay_t *r, uint32_t n);
void wires_reply(kvr_relay_t *r, const void *bytes, size_t len);

/* Of what that Redis has: a snapshot's pointer; its blocks. */
bool wires_snapshot(uint64_t *blocks);

/* A wire's share of wires_reset() and wires_clear(). */
void wires_zmq_clear(void);
void wires_http_clear(void);
void wires_redis_reset(void);
void wires_redis_clear(void);


#endif /* WIRES_H_INCLUDED */
