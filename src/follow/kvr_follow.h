/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Following: all that a process with leases does with the messages of its
 * shards' workers, without I/O.
 *
 *     messages ──► queue ──► kvr_ingest ──► zone
 *                   │  ▲         ▲
 *         a gap,    ▼  │ repaired│ entries of pages
 *         in repair: parked      │
 *     kvr_repairs ◄──► logs, snapshots
 *
 * Messages of a worker in repair are parked until the log was read to its
 * end; then those that the log held are duplicates, and the rest follows
 * without a gap, since the log is written together with the publication.
 *
 * One message at a time is open in kvr_ingest, and is applied in slices.
 */


#ifndef KVR_FOLLOW_H_INCLUDED
#define KVR_FOLLOW_H_INCLUDED


#include "kvr_repairs.h"


typedef struct {
    kvr_router_t      *router;
    const kvr_tell_t  *tell;
    kvr_ingest_t      *ingest;
    kvr_queue_t        queue;
    kvr_repairs_t      repairs;

    kvr_queued_t      *message;     /* open in ingest, */
    kvr_repair_t      *repair;      /* or NULL: an entry of this one is */
    uint32_t           turn;        /* repairs and messages alternate */
    const char        *detail;      /* the last refusal that was logged, of
                                       workers without a lane */
    bool               full;        /* the queue, and that was logged */
    uint8_t            dropped;     /* the most of any lane */
} kvr_follow_t;


/*
 * f is all zeros; replay: missing messages are read from the logs.  KVR_FULL:
 * no memory, f must be closed.
 */
kvr_rc_t kvr_follow_open(kvr_follow_t *f, kvr_router_t *router,
    const kvr_tell_t *tell, bool replay);

/* Drops all that waits.  f is all zeros then. */
void kvr_follow_close(kvr_follow_t *f);

/*
 * A message of a channel; from KVR_OK on the reply is f's.  KVR_DECLINED: the
 * message was refused, or dropped because there are too many.  body is an
 * element of the reply; so is the worker's id, which can be any bytes.
 */
kvr_rc_t kvr_follow_push(kvr_follow_t *f, const kvr_reply_t *reply,
    const kvr_reply_t *body, const char *worker, size_t len);

/* Is there anything to do? */
bool kvr_follow_waits(const kvr_follow_t *f);

/*
 * Does the next bit of work: applies a slice of what is open, or opens a
 * message or an entry.  *bytes: the size of one that was applied to its end,
 * or 0.  KVR_NEXT_ASK: *r asks.  Never KVR_NEXT_APPLY or _DONE.
 */
kvr_next_t kvr_follow_step(kvr_follow_t *f, const kvr_turn_t *turn,
    size_t *bytes, kvr_ask_t *ask, kvr_repair_t **r);


#endif /* KVR_FOLLOW_H_INCLUDED */
