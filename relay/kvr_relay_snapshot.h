/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The mirror, written to Redis: parts first, each a normalised batch, then
 * parts that only relays read, then the pointer (wire/kvr_keys.h).  Afterwards
 * the log is trimmed up to it.
 */


#ifndef KVR_RELAY_SNAPSHOT_H_INCLUDED
#define KVR_RELAY_SNAPSHOT_H_INCLUDED


#include "kvr_relay_core.h"
#include "kvr_relay_parts.h"


typedef struct {
    bool                wanted;
    uint64_t            due_ms;         /* not before */
    bool                news;           /* one is in force, and routers are not
                                           told yet: the turn has it done */

    /* being written */
    bool                writing;
    bool                base;
    bool                pointing;
    bool                complete;
    uint64_t            at_epoch;
    uint64_t            at_seq;
    uint64_t            blocks;
    uint64_t            since_ms;
    kvr_relay_parts_t   parts;
    kvr_relay_parts_t   state;
    uint32_t            next;           /* parts, then state */
    uint32_t            outstanding;
    char               *engine_seq;     /* JSON */
    uint32_t            generation;     /* of answers that still count, */
    uint32_t            based;          /* and of the publisher's envelopes:
                                           with other ones it is of no use */

    /* in force */
    uint64_t            epoch;
    uint64_t            seq;
    bool                in_complete;
} kvr_relay_snapshot_t;


/* Asks for a snapshot as soon as one can be taken; why is for the log. */
void kvr_relay_snapshot_want(kvr_relay_t *r, const char *why);

/* Takes a snapshot now. base: the publisher waits for it. */
void kvr_relay_snapshot_start(kvr_relay_t *r, bool base);

/* Gives up the snapshot that is being written. */
void kvr_relay_snapshot_abort(kvr_relay_t *r);

void kvr_relay_snapshot_tick(kvr_relay_t *r);


#endif /* KVR_RELAY_SNAPSHOT_H_INCLUDED */
