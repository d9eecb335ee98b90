/*
 * Copyright (C) the nginx-kv-router authors
 *
 * From a connection to Redis to the right to publish there.
 *
 *     LEASE    only one relay of a worker works at a time; the others are
 *              standbys and try again each second
 *     LOAD     once: what an earlier relay left, into the mirror
 *     CHECK    after each reconnect: does Redis have what we think it has?
 *     READY    each second: the lease is renewed, membership written, a
 *              heartbeat sent, and routers asked whether they want a snapshot
 */


#ifndef KVR_RELAY_SESSION_H_INCLUDED
#define KVR_RELAY_SESSION_H_INCLUDED


#include "kvr_relay_core.h"


/*
 * The keys of a worker expire so long after its last relay has ended: a day,
 * in which somebody can repair the relay.
 */
#define KVR_RELAY_KEEP_SECONDS  "86400"


typedef enum {
    KVR_RELAY_NOWHERE,
    KVR_RELAY_LEASE,
    KVR_RELAY_LOAD,
    KVR_RELAY_CHECK,
    KVR_RELAY_READY,
    KVR_RELAY_LEAVING
} kvr_relay_phase_t;


typedef struct {
    kvr_relay_phase_t   phase;
    bool                started;        /* has loaded, once */
    bool                standby;        /* said so */
    bool                rival;          /* said whose id it is, too */
    bool                deaf;           /* the refusal of GETDEL was logged */
    bool                untrimmed;      /* and XTRIM */
    bool                told;           /* Redis has taken that the engine
                                           drains */
    char                token[33];      /* the lease's */
    uint64_t            beat_ms;        /* next one */

    uint64_t            log_epoch;      /* what Redis has */
    uint64_t            log_seq;
    uint64_t            snap_epoch;
    uint64_t            snap_seq;
    uint64_t            worker_epoch;

    uint32_t            parts;          /* of the snapshot that is loaded */
    uint32_t            state_parts;
    uint32_t            next;

    char                block_size[16];
    char                channel[KVR_RELAY_KEY];
    char                lease_key[KVR_KEY_MAX];
    char                worker_key[KVR_KEY_MAX];
    char                snap_key[KVR_KEY_MAX];
    char                ask_key[KVR_KEY_MAX];
    char                log_key[KVR_KEY_MAX];
} kvr_relay_session_t;


/* Makes the token of the lease.  False: there are no random numbers. */
bool kvr_relay_session_init(kvr_relay_t *r);

/* Called when Redis was reached, and when the connection was lost. */
void kvr_relay_session_up(kvr_relay_t *r);
void kvr_relay_session_down(kvr_relay_t *r);

void kvr_relay_session_tick(kvr_relay_t *r);

/* The next heartbeat is due at once. */
void kvr_relay_session_beat_now(kvr_relay_t *r);

/* Gives the lease back, and removes the worker. */
void kvr_relay_session_leave(kvr_relay_t *r);


#endif /* KVR_RELAY_SESSION_H_INCLUDED */
