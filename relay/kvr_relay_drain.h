/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The engine's drain: routers are told, then the engine is asked for its
 * requests until it has none.  POST /drain (kvr_relay_metrics.c) and the first
 * SIGTERM or SIGINT begin it, and it begins once.
 *
 *     SERVING  not asked
 *     TELLING  Redis has not taken the word
 *     BUSY     routers know; the engine has requests, or may get some that
 *              were sent before
 *     IDLE     the engine had none, once
 *     DRAINED  it had none twice in a row, or is gone, or can't tell
 *     UNDONE   it has requests, but the time is up
 *
 * Rows are inputs, columns the states above by their first letters; a dot is
 * no change.
 *
 *              S  T  B  I  D  U
 *     ASKED    T  .  .  .  .  T    somebody wants the drain
 *     TOLD     .  B  .  .  .  .    Redis has taken the word
 *     RUNNING  .  .  .  B  .  .    the engine has requests, or does not answer
 *     NONE     .  .  I  D  .  .    it has none
 *     GONE     .  D  D  D  .  .    nothing listens at its address
 *     BLIND    .  U  D  D  .  .    it does not tell
 *     LATE     .  U  U  U  .  .    --drain-timeout is over
 *     ANEW     .  S  S  S  S  S    another engine has come
 *
 * Routers are told again each second, in all states but SERVING.
 */


#ifndef KVR_RELAY_DRAIN_H_INCLUDED
#define KVR_RELAY_DRAIN_H_INCLUDED


#include "kvr_relay_core.h"
#include "kvr_relay_http.h"


typedef enum {
    KVR_RELAY_DRAIN_SERVING,
    KVR_RELAY_DRAIN_TELLING,
    KVR_RELAY_DRAIN_BUSY,
    KVR_RELAY_DRAIN_IDLE,
    KVR_RELAY_DRAIN_DRAINED,
    KVR_RELAY_DRAIN_UNDONE,
    KVR_RELAY_DRAIN_STATES
} kvr_relay_drain_state_t;


typedef enum {
    KVR_RELAY_DRAIN_ASKED,
    KVR_RELAY_DRAIN_TOLD,
    KVR_RELAY_DRAIN_RUNNING,
    KVR_RELAY_DRAIN_NONE,
    KVR_RELAY_DRAIN_GONE,
    KVR_RELAY_DRAIN_BLIND,
    KVR_RELAY_DRAIN_LATE,
    KVR_RELAY_DRAIN_ANEW,
    KVR_RELAY_DRAIN_INPUTS
} kvr_relay_drain_input_t;


typedef struct {
    kvr_relay_drain_state_t  state;
    kvr_relay_http_t         http;      /* the engine's /metrics, which the
                                           loop polls and the end closes */
    uint64_t                 due_ms;    /* it is asked again */
    uint64_t                 from_ms;   /* what it says counts */
    uint64_t                 late_ms;   /* the time is up */
    uint64_t                 restarts;  /* of engines, at the beginning, */
    uint64_t                 reconnects;    /* and at the end */
    char                     why[64];   /* what the engine said last */
} kvr_relay_drain_t;


/* The table above. */

static inline kvr_relay_drain_state_t
kvr_relay_drain_next(kvr_relay_drain_state_t state,
    kvr_relay_drain_input_t input)
{
    /* the columns of the table, as their first letters are */

    static const char  rows[KVR_RELAY_DRAIN_INPUTS][7] = {
        [KVR_RELAY_DRAIN_ASKED]   = "TTBIDT",
        [KVR_RELAY_DRAIN_TOLD]    = "SBBIDU",
        [KVR_RELAY_DRAIN_RUNNING] = "STBBDU",
        [KVR_RELAY_DRAIN_NONE]    = "STIDDU",
        [KVR_RELAY_DRAIN_GONE]    = "SDDDDU",
        [KVR_RELAY_DRAIN_BLIND]   = "SUDDDU",
        [KVR_RELAY_DRAIN_LATE]    = "SUUUDU",
        [KVR_RELAY_DRAIN_ANEW]    = "SSSSSS"
    };
    static const char  states[] = "STBIDU";

    return (kvr_relay_drain_state_t)
           (strchr(states, rows[input][state]) - states);
}


/*
 * Begins the drain; one that runs goes on, and one that was not done begins
 * again.  The relay must have the lease.
 */
void kvr_relay_drain_begin(kvr_relay_t *r);

void kvr_relay_drain_tick(kvr_relay_t *r);

/* True when nothing is waited for. */
static inline bool
kvr_relay_drain_over(const kvr_relay_drain_t *d)
{
    return d->state == KVR_RELAY_DRAIN_SERVING
           || d->state >= KVR_RELAY_DRAIN_DRAINED;
}


/*
 * kv-relay --drain: calls the relay that runs, and waits.  Returns the exit
 * code of the process.
 */
int kvr_relay_drain_call(const kvr_relay_options_t *o);


#endif /* KVR_RELAY_DRAIN_H_INCLUDED */
