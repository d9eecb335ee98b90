/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The loop: the time, when the next turn is due, what is polled until then,
 * and whether the process ends.
 *
 * Each turn begins with kvr_relay_loop_begin(); modules add the sockets that
 * they wait for; kvr_relay_loop_wait() polls them.  Modules only see the
 * fields of kvr_relay_t: now_ms stands still during a turn.
 */


#ifndef KVR_RELAY_LOOP_H_INCLUDED
#define KVR_RELAY_LOOP_H_INCLUDED


#include "kvr_relay_core.h"

#include <zmq.h>


/* Why the process ends. */
typedef enum {
    KVR_RELAY_ENDED = 0,
    KVR_RELAY_FAILED = 1,
    KVR_RELAY_SUPERSEDED = 3
} kvr_relay_exit_t;


typedef struct {
    zmq_pollitem_t     *items;          /* what this turn waits for */
    uint32_t            n;
    uint32_t            size;
} kvr_relay_loop_t;


/* Room for size sockets.  False: out of memory. */
bool kvr_relay_loop_init(kvr_relay_loop_t *loop, uint32_t size);
void kvr_relay_loop_free(kvr_relay_loop_t *loop);

/* Removes all sockets from the list of what is polled. */
void kvr_relay_loop_begin(kvr_relay_loop_t *loop);

/*
 * Adds a socket of libzmq to what is polled, or without one (NULL) a
 * descriptor of the system; neither of both (NULL and -1) is left out.
 * Returns the place that kvr_relay_loop_ready() takes after the wait.
 */
uint32_t kvr_relay_loop_add(kvr_relay_loop_t *loop, void *socket, int fd,
    short events);

/* The events that the wait found: ZMQ_POLLIN and the like. */
short kvr_relay_loop_ready(const kvr_relay_loop_t *loop, uint32_t at);

/* Waits until a socket is ready, at most `ms` milliseconds. */
void kvr_relay_loop_wait(kvr_relay_loop_t *loop, uint64_t ms);

/* Monotonic and unix time, in milliseconds. */
uint64_t kvr_relay_clock(void);
uint64_t kvr_relay_unix(void);


#endif /* KVR_RELAY_LOOP_H_INCLUDED */
