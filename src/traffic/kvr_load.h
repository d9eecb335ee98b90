/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Load: the requests that this nginx has sent to each holder and that are not
 * over.
 *
 * Each nginx process counts in a table of its own, one row a holder, in the
 * zone; a reader adds the tables up.  A process that dies takes its requests
 * with it, so its table is zeroed by whoever finds it dead: nothing leaks.
 * There are KVR_LOAD_PROCS tables; processes beyond that count in one shared
 * table, with atomic additions.  When one of these is killed, its load stays
 * in the shared table until none of them is left.
 *
 * A row is written by its own process only (the shared table: by all), with
 * relaxed atomics; readers may see one field newer than the other.
 *
 * A row counts for one generation of its holder.  When the number goes to
 * another worker, the first reservation resets the row; late releases
 * and late reservations of an earlier one are dropped.  In the shared table
 * there is but one generation.
 */


#ifndef KVR_LOAD_H_INCLUDED
#define KVR_LOAD_H_INCLUDED


#include "../kvr.h"
#include "../core/kvr_arena.h"
#include "../core/kvr_lock.h"


#define KVR_LOAD_PROCS       256         /* old generations of workers live as
                                            long as their streams */
#define KVR_LOAD_SHARED      KVR_LOAD_PROCS
#define KVR_LOAD_GATE_MS     100
#define KVR_LOAD_SHARERS     256         /* processes known to share a table */


/* One holder's load, in one process or over all. */
typedef struct {
    uint64_t    generation;         /* of the holder, as reserved */
    int64_t     active;             /* requests; one of several sequences
                                       counts as so many */
    int64_t     prefills;           /* requests before their first byte */
    int64_t     prefill_tokens;     /* uncached prompt tokens of those */
    int64_t     decode_blocks;      /* KV blocks of the requests */
    uint64_t    begun_ms;           /* when the first of the prefills that
                                       are counted was reserved; monotonic */
    uint64_t    ended_ms;           /* when a prefill ended last */
} kvr_load_row_t;


/* One request's reservation; the caller keeps it until the release. */
typedef struct {
    uint32_t    holder;
    uint32_t    generation;
    uint32_t    prefilling;         /* 1 until the first body byte */
    uint32_t    request;            /* returned by kvr_inflight_add(), for
                                       the caller */
    int64_t     prefill_tokens;
    int64_t     decode_blocks;
    int64_t     output_blocks;      /* of decode_blocks, since the start */
    int64_t     more;               /* sequences beyond the first one */
} kvr_reservation_t;


typedef struct {
    uint64_t    owner;              /* kvr_owner_t of the process; 0: free */
    uint64_t    table;              /* offset of its rows from the zone's base;
                                       stays with the slot when it is free */
    int64_t     waiting;            /* requests that wait for room */
} kvr_load_proc_t;


typedef struct {
    uint32_t         max_holders;
    uint32_t         nprocs;        /* slots ever used */
    uint64_t         overflow;      /* processes without a slot */
    uint64_t         reclaimed;     /* tables of dead processes zeroed */
    uint64_t         below_zero;    /* counters found there: a bug */
    kvr_lock_t       gate;          /* see kvr_load_shut() */
    kvr_load_proc_t  procs[KVR_LOAD_PROCS + 1];

    kvr_owner_t      sharers[KVR_LOAD_SHARERS];     /* 0: free */
    uint32_t         spilt;         /* a sharer was killed */
    uint32_t         unknown;       /* more sharers than known: the shared
                                           table is never zeroed */
} kvr_load_zone_t;


typedef struct {
    kvr_mem_t        *mem;
    kvr_arena_t      *arena;        /* memory of the processes' tables */
    kvr_load_zone_t  *zone;
    uint32_t          slot;         /* of this process */
    kvr_owner_t       self;         /* this process, once it has joined */
} kvr_load_t;


/* Bytes of one table; the shared one is laid out at offset `at`. */
size_t kvr_load_size(uint32_t max_holders);
void kvr_load_format(kvr_mem_t *mem, kvr_load_zone_t *z, uint64_t at,
    uint32_t max_holders);
void kvr_load_attach(kvr_load_t *l, kvr_mem_t *mem, kvr_arena_t *arena,
    kvr_load_zone_t *z);

/*
 * Takes a free slot for the process self.  For the lock's holder, inside a
 * transaction.  False: there is no slot, or no memory for its table, and the
 * process counts in the shared table.
 */
bool kvr_load_join(kvr_load_t *l, kvr_owner_t self);

/* Zeroes the process's table and frees its slot.  For the lock's holder. */
void kvr_load_leave(kvr_load_t *l);

/* True when a process with a slot is dead.  No lock; reads /proc. */
bool kvr_load_orphaned(const kvr_load_t *l);

/* Zeroes the tables of dead processes and returns their number.  For the
 * lock's holder. */
uint32_t kvr_load_reclaim(kvr_load_t *l);

/*
 * Adds the reservation to its holder's load.  When a later generation of the
 * holder has load in this process already, nothing is added, and the release
 * does nothing.
 */
void kvr_load_reserve(kvr_load_t *l, const kvr_reservation_t *r,
    uint64_t now_ms);

/* Ends the prefill, at the first body byte.  Later calls do nothing. */
void kvr_load_prefilled(kvr_load_t *l, kvr_reservation_t *r, uint64_t now_ms);

/*
 * Counts the prefill again, when a request was to be prefilled elsewhere, and
 * is not.  To be called before the first body byte only.  When the prefill is
 * counted already, the call does nothing.
 */
void kvr_load_prefill_again(kvr_load_t *l, kvr_reservation_t *r,
    uint64_t now_ms);

/*
 * Counts a request of this process that begins to wait for room (1), or no
 * longer waits (-1); and the requests that wait, over all processes.  No lock.
 */
void kvr_load_wait(kvr_load_t *l, int64_t n);
uint64_t kvr_load_waiting(const kvr_load_t *l);

/* Adds the blocks by which the answer has grown. */
void kvr_load_grow(kvr_load_t *l, kvr_reservation_t *r, int64_t blocks);

/*
 * Sets the number of the prompt's blocks that end with this request: other
 * requests in flight hold the rest of the prompt's blocks, too.
 */
void kvr_load_share(kvr_reservation_t *r, int64_t blocks);

/* Subtracts the reservation from the load and empties it; a second call does
 * nothing. */
void kvr_load_release(kvr_load_t *l, kvr_reservation_t *r, uint64_t now_ms);

/*
 * Shuts and opens the gate, which one process at a time can have: for a
 * process that reads the load of a holder, and reserves when the load is below
 * a limit.  To be held shortly.  When the process that has the gate dies, the
 * next one takes it at once.  When that process stands still, one other waits
 * for KVR_LOAD_GATE_MS and then takes the gate over.
 *
 * kvr_load_open() returns false when the gate was taken over meanwhile: the
 * load that the process has read may be an old one.  The process must release
 * what it has reserved behind the gate, and can begin again.
 */
void kvr_load_shut(kvr_load_t *l);
bool kvr_load_open(kvr_load_t *l);

/*
 * The load of one generation of a holder over all processes.  Any process, no
 * lock.  out->begun_ms is when the running prefill can have begun at the
 * earliest: when the first of those that are counted was reserved, or when the
 * one before ended.
 */
void kvr_load_read(const kvr_load_t *l, uint32_t holder, uint32_t generation,
    kvr_load_row_t *out);


/* The row of a holder in the table of a slot; KVR_LOAD_SHARED is one, too. */
static inline kvr_load_row_t *
kvr_load_row(const kvr_load_t *l, uint32_t slot, uint32_t holder)
{
    return (kvr_load_row_t *) (l->mem->base + l->zone->procs[slot].table)
           + holder;
}


/*
 * Begins to fetch the rows of a holder that kvr_load_read() reads of this
 * process and of the shared table.  A macro: gcc 12 finds that a function
 * which only prefetches does nothing, and drops the calls.
 */
#define kvr_load_prefetch(l, holder)                                          \
    (__builtin_prefetch(kvr_load_row(l, (l)->slot, holder)),                  \
     __builtin_prefetch(kvr_load_row(l, KVR_LOAD_SHARED, holder)))


#endif /* KVR_LOAD_H_INCLUDED */
