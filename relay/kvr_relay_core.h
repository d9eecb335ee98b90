/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What all headers of kv-relay stand on: its options, its counters, and the
 * name of the structure that has all of its modules (kvr_relay.h).
 */


#ifndef KVR_RELAY_CORE_H_INCLUDED
#define KVR_RELAY_CORE_H_INCLUDED


#include "kvr_relay_log.h"
#include "kvr_relay_options.h"

#include "normalise/kvr_normalise.h"
#include "wire/kvr_redis_url.h"
#include "zone/kvr_router.h"



/* the maximum length of the reason for "not complete", in bytes */
#define KVR_RELAY_REASON  160
/* The first base waits for all sources so long: less than routers wait. */
#define KVR_RELAY_SYNC_MS 3000
/* the maximum length of a channel's name, in bytes */
#define KVR_RELAY_KEY     160


typedef struct kvr_relay_s  kvr_relay_t;


/* All since the start. */
typedef struct {
    uint64_t    messages;           /* of the engine, applied */
    uint64_t    gaps;               /* in the engine's sequence */
    uint64_t    gaps_filled;        /* by replay */
    uint64_t    replays;            /* asked for */
    uint64_t    unanswered;         /* of these, those without any answer */
    uint64_t    reconnects;         /* of the engine */
    uint64_t    restarts;           /* of the engine, proven */
    uint64_t    why[KVR_WHYS];      /* filtered and refused, by reason */
    uint64_t    stored;             /* blocks, after counting */
    uint64_t    removed;
    uint64_t    envelopes;          /* acknowledged by Redis */
    uint64_t    dropped;            /* envelopes, for want of room */
    uint64_t    snapshots;
    uint64_t    snapshots_failed;
    uint64_t    redis_connects;
    uint64_t    redis_errors;       /* answers that are errors */
    uint64_t    lag_ms;             /* of the last one acknowledged */
} kvr_relay_counters_t;


#endif /* KVR_RELAY_CORE_H_INCLUDED */
