/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Envelopes: numbered within an epoch, sent in order by MULTI XADD PUBLISH
 * EXEC, kept until a snapshot covers them.
 *
 * An epoch, and whatever follows a loss, stands on a base: a snapshot with the
 * number of the envelope before the first.  Without one the publisher is
 * UNBASED: what the mirror sees isn't written down, for the base to come will
 * have it.  While the base is being written it is HELD: envelopes are made and
 * wait.
 */


#ifndef KVR_RELAY_PUBLISHER_H_INCLUDED
#define KVR_RELAY_PUBLISHER_H_INCLUDED


#include "kvr_relay_batch.h"
#include "kvr_relay_ring.h"


typedef enum {
    KVR_RELAY_UNBASED,
    KVR_RELAY_HELD,
    KVR_RELAY_OPEN
} kvr_relay_state_t;


typedef struct {
    kvr_relay_state_t   state;
    bool                fresh;      /* the base begins an epoch */
    bool                resumed;    /* Redis was looked at, since connected */
    bool                hole;       /* Redis lacks one in the middle */
    bool                refused;    /* one that it may have by a connection
                                       that was given up */
    bool                lasting;    /* the log has a time to go */
    uint64_t            retry_ms;   /* after a base that failed */

    uint64_t            epoch;
    uint64_t            known;      /* highest epoch seen in Redis */
    uint64_t            seq;        /* last one made, */
    uint64_t            sent;       /* given to the connection, */
    uint64_t            acked;      /* and in Redis */
    bool                sent_complete;  /* what the last one sent says */

    uint32_t            outstanding;
    size_t              outstanding_bytes;
    uint32_t            generation; /* of envelopes: another one since a loss,
                                       after which answers and snapshots of
                                       the one before don't count */

    kvr_relay_ring_t    ring;
    kvr_relay_batch_t   batch;
} kvr_relay_publisher_t;


/* False: out of memory. */
bool kvr_relay_publisher_init(kvr_relay_t *r);
void kvr_relay_publisher_free(kvr_relay_t *r);

/*
 * A kvr_relay_emit_pt whose data is the relay: adds a change that took effect
 * to the envelope.
 */
void kvr_relay_publisher_event(void *data, const kvr_change_t *ev);

/*
 * Makes an envelope of the changes that were added. last: the envelope
 * completes the batch engine_seq of the engine's rank; without it no batch of
 * the engine brought them, and both numbers are 0.
 */
void kvr_relay_publisher_end(kvr_relay_t *r, bool last, uint32_t rank,
    uint64_t engine_seq);

/*
 * Stops publishing until there is a base. fresh: the base is of a new epoch.
 */
void kvr_relay_publisher_unbase(kvr_relay_t *r, bool fresh);

/* Takes the mirror as it is now for the base.  The caller has written it. */
void kvr_relay_publisher_base(kvr_relay_t *r);

/*
 * The snapshot with this number is in force: older envelopes need not be kept.
 */
void kvr_relay_publisher_covered(kvr_relay_t *r, uint64_t seq, bool base);

/*
 * Called when Redis was reached, with the end of its log (0-0: the log is
 * empty) and its snapshot.  True: envelopes go on behind these.
 */
bool kvr_relay_publisher_resume(kvr_relay_t *r, uint64_t log_epoch,
    uint64_t log_seq, uint64_t snap_epoch, uint64_t snap_seq);
void kvr_relay_publisher_down(kvr_relay_t *r);

/* Sends what may be sent. */
void kvr_relay_publisher_tick(kvr_relay_t *r);

/* Publishes a heartbeat, once there is a base and Redis has been looked at. */
void kvr_relay_publisher_heartbeat(kvr_relay_t *r);

/* Are all envelopes that were made in Redis? */
bool kvr_relay_publisher_idle(const kvr_relay_t *r);


#endif /* KVR_RELAY_PUBLISHER_H_INCLUDED */
