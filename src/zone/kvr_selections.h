/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Selections: requests that were given a worker here, and that somebody else
 * sends there.  Whoever knows the id of a selection says that its first output
 * has come, that it goes on, or that it is over; else it goes with its lease,
 * or with its worker.
 *
 * A selection is load as a request of a process's own is, by the functions of
 * kvr_load.h and kvr_flights.h; its rows are the table KVR_LOAD_SELECTED.  The
 * process that selects has reserved before, and releases afterwards: for some
 * microseconds both count.
 *
 * THE TABLE has KVR_SELECTIONS entries.  Parts of it are taken from the arena
 * as they are needed, and stay.  An entry with a lease of 0 is free.  Entries
 * that were used are listed by their numbers; the others are those from `used'
 * on.  An id has the number of its entry and 128 random bits: who has not got
 * it can't guess it.
 *
 * WHO MAY WRITE.  All but a new part is written with the lock, held for some
 * microseconds.  A part is taken under the lock of shard 0, in a transaction,
 * and can be used once `nparts' counts it, which is after the commit.
 *
 * WHAT READERS SEE.  The rows, as those of any process, and `held'.
 *
 * WHEN A PROCESS DIES with the lock, the next one that takes it undoes the one
 * change that was begun: what an entry, its row and the lists were is written
 * in `undo' before.  A flight of a selection that is made or ends just then
 * stays until its time.
 */


#ifndef KVR_SELECTIONS_H_INCLUDED
#define KVR_SELECTIONS_H_INCLUDED


#include "kvr_router.h"


#define KVR_SELECTIONS        65536
#define KVR_SELECTIONS_PART   10        /* entries: a chunk of the arena */
#define KVR_SELECTIONS_PARTS  ((KVR_SELECTIONS + KVR_SELECTIONS_PART - 1)     \
                               / KVR_SELECTIONS_PART)
#define KVR_SELECTIONS_MS     100       /* between two slices of a sweep */
#define KVR_SELECTIONS_SLICE  4096      /* entries */


typedef struct {
    uint64_t    bits[2];                /* random */
    uint32_t    place;                  /* the number of the entry */
} kvr_selection_id_t;


typedef struct {
    uint64_t           bits[2];         /* of the id */
    uint64_t           lease_ms;        /* when the lease ends; 0: the entry is
                                           free */
    uint64_t           prefilled_ms;    /* the prefill is over by then; 0: not
                                           known */
    uint64_t           flight_ms;       /* when the flight ends by itself */
    uint32_t           next;            /* free entry */
    uint32_t           known;           /* for the caller: blocks that the
                                           holder and the best one had */
    uint32_t           best;
    uint32_t           pad;
    kvr_reservation_t  load;
    kvr_flight_t       flight;          /* COUNTED; n 0: none */
} kvr_selection_t;


typedef struct {
    kvr_lock_t         lock;
    uint64_t           swept_ms;
    uint32_t           next;            /* entry to be swept */
    uint32_t           held;            /* entries that are not free */
    uint32_t           free;            /* the first; KVR_SELECTIONS: none */
    uint32_t           used;            /* entries that were ever used */

    struct {
        uint32_t           place;       /* of the entry, and one; 0: at rest */
        uint32_t           held;
        uint32_t           free;
        uint32_t           used;
        uint64_t           lease_ms;
        kvr_reservation_t  load;
        kvr_load_row_t     row;
    } undo;

    uint32_t           nparts;
    uint32_t           parts[KVR_SELECTIONS_PARTS];  /* words from the base */
} kvr_selections_zone_t;


typedef enum {
    KVR_SELECTION_FIRST = 0,            /* the prefill is over */
    KVR_SELECTION_RENEW,                /* the lease begins anew */
    KVR_SELECTION_END
} kvr_selection_event_t;


/* Milliseconds until a selection's flight ends if it is not renewed. */
static inline uint32_t
kvr_selection_flight_ms(uint32_t lease_ms)
{
    return kvr_min(lease_ms, KVR_FLIGHT_TIMED_MAX);
}


/*
 * Makes a selection of what the caller has reserved: load, prefilled_ms,
 * known, best and flight are of `s', which stays the caller's.  The flight is
 * one that the caller has added just now, for kvr_selection_flight_ms(), and
 * forgets.  KVR_FULL: the table is full, or the zone.  KVR_BUSY: another
 * process has the lock for long.  KVR_ERROR: no random bits.
 */
kvr_rc_t kvr_router_select(kvr_router_t *k, const kvr_selection_t *s,
    uint64_t now_ms, uint32_t lease_ms, kvr_selection_id_t *id);

/*
 * Tells what has become of a selection.  *was: as it was before.
 * KVR_DECLINED: there is no such one, or no longer; nothing was changed.
 * KVR_BUSY as above.
 */
kvr_rc_t kvr_router_selected(kvr_router_t *k, const kvr_selection_id_t *id,
    kvr_selection_event_t event, uint64_t now_ms, uint32_t lease_ms,
    kvr_selection_t *was);

/*
 * Ends selections whose lease is over or whose worker has gone, and prefills
 * that are over by now: a slice of the table, by one process each
 * KVR_SELECTIONS_MS; every process may call this at any time.  freed() is told
 * the holders that have less load.  Returns how many leases were over.
 */
uint32_t kvr_router_selections_sweep(kvr_router_t *k, uint64_t now_ms,
    void (*freed)(void *data, uint32_t holder), void *data);

/* The number of selections.  No lock. */
uint32_t kvr_router_selections(const kvr_router_t *k);


#endif /* KVR_SELECTIONS_H_INCLUDED */
