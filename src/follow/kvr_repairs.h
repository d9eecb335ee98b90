/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The repairs of a process: which workers want one, the few that run at a
 * time, and when to look for a snapshot again.
 *
 * If a worker's log does not reach back, or nothing is known of the worker,
 * the newest snapshot is loaded.  If there is none, the view is kept,
 * DEGRADED, and a new snapshot is asked for, and looked for again and again.
 */


#ifndef KVR_REPAIRS_H_INCLUDED
#define KVR_REPAIRS_H_INCLUDED


#include "kvr_repair.h"


/* the maximum number of workers in repair at a time (docs/operations.md) */
#define KVR_REPAIRS  4


typedef struct {
    kvr_repair_env_t   env;
    kvr_queue_t       *queue;       /* parked messages go back to it */
    bool               replay;      /* false: no worker is ever repaired */

    kvr_lane_t        *lanes;
    uint32_t           nlanes;
    kvr_repair_t       repairs[KVR_REPAIRS];
    uint32_t           nactive;
    uint32_t           nwanted;
    uint32_t           turn;        /* of the repair that steps first */
    uint32_t           looked;      /* lanes, up to this one */
    uint32_t           repaired;    /* since this was last logged */
    uint32_t           unrepaired;
} kvr_repairs_t;


/* env, queue and replay are set.  KVR_FULL: no memory. */
kvr_rc_t kvr_repairs_open(kvr_repairs_t *s);

/* Stops all repairs; what is parked goes to the queue. */
void kvr_repairs_close(kvr_repairs_t *s);

/* The lane of a worker; NULL: not a worker of the zone. */
kvr_lane_t *kvr_repairs_lane(kvr_repairs_t *s, const char *id, size_t len);

void kvr_repairs_want(kvr_repairs_t *s, kvr_lane_t *lane);

/*
 * Of all workers of these shards, a bit each: after a subscription, or when a
 * lease was taken.  Messages that were published before are only in the logs.
 */
void kvr_repairs_want_shards(kvr_repairs_t *s, uint64_t shards);

/*
 * To be called now and then, for the shards with a lease: starts repairs of
 * workers whose views only a snapshot can make whole.
 */
void kvr_repairs_tick(kvr_repairs_t *s, uint64_t shards, uint64_t now_ms);

/*
 * Goes on with one of the repairs, *r, and starts those that are wanted.
 * Returns as kvr_repair_step() does; KVR_NEXT_WAIT: none can go on now.
 */
kvr_next_t kvr_repairs_step(kvr_repairs_t *s, const kvr_turn_t *turn,
    kvr_ask_t *ask, kvr_repair_t **r);


#endif /* KVR_REPAIRS_H_INCLUDED */
