/*
 * Copyright (C) the nginx-kv-router authors
 *
 * How a zone lies in memory; for kvr_router.c, kvr_ingest.c and kvr_dump.c.
 *
 *     kvr_zone_t    header, lock, lease, index, fleet and load headers
 *     journal       the undo log
 *     fleet         workers, holders, views
 *     load          the shared table
 *     index         of one kind or the other: tables, arena
 *
 * Everything is at offsets: processes may map the zone where they like.
 */


#ifndef KVR_ZONE_H_INCLUDED
#define KVR_ZONE_H_INCLUDED


#include "kvr_router.h"


#define KVR_ZONE_MAGIC       UINT64_C(0x6b76722d7a6f6e65)     /* "kvr-zone" */
#define KVR_ZONE_VERSION     2          /* of the layout; any change counts */
#define KVR_LOCK_MS          50         /* a writer's slices are far below */


typedef struct {
    kvr_owner_t       owner;            /* 0: free */
    uint64_t          token;            /* grows with each taking */
    uint64_t          renewed_ms;       /* monotonic */
} kvr_lease_t;


struct kvr_zone_s {
    uint64_t          magic;
    uint32_t          layout;           /* KVR_ZONE_VERSION */
    uint32_t          pad;
    uint64_t          size;
    kvr_params_t      params;

    kvr_lock_t        lock;
    kvr_lease_t       lease;

    uint64_t          journal;          /* offset */
    uint64_t          rollbacks;
    uint64_t          lock_breaks;
    uint64_t          stores_full;

    kvr_index_zone_t  index;
    kvr_fleet_zone_t  fleet;
    kvr_load_zone_t   load;
};


/*
 * The lock, for every writer: KVR_OK, KVR_BUSY.  Rolls back what a dead owner
 * left, so that the log is empty after it.
 */
kvr_rc_t kvr_zone_lock(kvr_router_t *k, uint32_t timeout_ms);
void kvr_zone_unlock(kvr_router_t *k);

/*
 * The lock, and the slot of a worker that is there.  KVR_DECLINED, KVR_BUSY:
 * without the lock.
 */
kvr_rc_t kvr_zone_enter(kvr_router_t *k, const char *id, size_t len,
    uint32_t *worker);

/* Adds to a counter of the zone. */
#define kvr_count(k, p, n)  kvr_set64(&(k)->mem, p, *(p) + (n))

/*
 * One event, kept by the decoder, for a worker that exists; under the lock,
 * log empty; commits all but its last part, to which the caller adds what
 * belongs to it.  Counts in the worker's counters.
 * KVR_INVALID: refused, *why says.  KVR_FULL: forgotten, the worker is flagged
 * TRUNCATED.
 */
kvr_rc_t kvr_zone_apply(kvr_router_t *k, uint32_t worker,
    const kvr_event_t *ev, uint32_t *unknown, kvr_why_t *why);

/* Empties a holder, or all of a worker's. */
void kvr_zone_clear(kvr_router_t *k, uint32_t holder);
void kvr_zone_clear_worker(kvr_router_t *k, uint32_t worker);


#endif /* KVR_ZONE_H_INCLUDED */
