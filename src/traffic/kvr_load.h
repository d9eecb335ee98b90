/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Load: the requests that this nginx has sent to each holder and that are not
 * over.
 *
 * Each nginx process counts in a table of its own, one row a holder, in the
 * zone; a reader adds the tables up.  A process that dies takes its requests
 * with it, so its table is zeroed by whoever finds it dead: nothing leaks.
 * There are KVR_LOAD_PROCS tables.  The requests of a process without a table
 * are not counted in any process's load; there is a counter of them.
 *
 * A table has parts of KVR_LOAD_ROWS rows.  A part is taken from the arena
 * when the process first sends a request to one of its holders, so that the
 * memory follows the size of the fleet.  Parts stay with the table when its
 * process ends: the next process of that slot goes on with them.
 *
 * A row is written by its own process only, with relaxed atomics; readers may
 * see one field newer than the other.  The pointers to parts are written by
 * the owner of shard 0's lock, in a transaction.  A reader without the lock
 * sees a part that is zeroed, or none.  When a process dies while it takes a
 * part, the part is given back with its transaction: no row of it was written.
 *
 * One table more, KVR_LOAD_SELECTED, is no process's: it has the requests of
 * kvr_selections.h, and is written by the owner of their lock.  Its rows lie
 * in the zone from the beginning; the table is read once `parts' says where.
 *
 * A row counts for one generation of its holder.  When the number goes to
 * another worker, the first reservation resets the row; late releases
 * and late reservations of an earlier one are dropped.
 */


#ifndef KVR_LOAD_H_INCLUDED
#define KVR_LOAD_H_INCLUDED


#include "../kvr.h"
#include "../core/kvr_arena.h"
#include "../core/kvr_lock.h"


#define KVR_LOAD_PROCS       256         /* old generations of workers live as
                                            long as their streams */
#define KVR_LOAD_SELECTED    KVR_LOAD_PROCS      /* no process's table */
#define KVR_LOAD_NONE        (KVR_LOAD_PROCS + 1)  /* no table */
#define KVR_LOAD_ROWS        32          /* of a part */
#define KVR_LOAD_GATE_MS     100
#define KVR_LOAD_BEAT_MS     1000        /* a process that was stuck so long
                                            judges no other: all may have been
                                            stopped */

/* The number of parts of a table. */
#define kvr_load_parts(max_holders)                                           \
    (((size_t) (max_holders) + KVR_LOAD_ROWS - 1) / KVR_LOAD_ROWS)


/* One holder's load, in one process or over all. */
typedef struct {
    uint64_t    generation;         /* of the holder, as reserved */
    int64_t     active;             /* requests; one of several sequences
                                       counts as so many */
    int64_t     prefills;           /* requests before their first output */
    int64_t     prefill_tokens;     /* uncached prompt tokens of those */
    int64_t     decode_blocks;      /* KV blocks of the requests */
    uint64_t    begun_ms;           /* when the first of the prefills that
                                       are counted was reserved; monotonic */
    uint64_t    ended_ms;           /* when a prefill ended last */
} kvr_load_row_t;


/* Adds a row to others.  A prefill runs since the latest of all beginnings. */
static inline void
kvr_load_sum(kvr_load_row_t *sum, const kvr_load_row_t *row)
{
    sum->active += row->active;
    sum->prefills += row->prefills;
    sum->prefill_tokens += row->prefill_tokens;
    sum->decode_blocks += row->decode_blocks;

    if (row->prefills > 0) {
        sum->begun_ms = kvr_max(sum->begun_ms, row->begun_ms);
    }
}


/* One request's reservation; the caller keeps it until the release. */
typedef struct {
    uint32_t    holder;
    uint32_t    generation;
    uint32_t    prefilling;         /* 1 until the first output */
    uint32_t    counted;            /* set by kvr_load_reserve() */
    uint32_t    request;            /* for the caller: as returned by
                                       kvr_inflight_add() */
    void       *flight;             /* the same: what others know of it */
    int64_t     prefill_tokens;
    int64_t     decode_blocks;
    int64_t     output_blocks;      /* of decode_blocks, since the start */
    int64_t     more;               /* sequences beyond the first one */
} kvr_reservation_t;


typedef struct {
    uint64_t    owner;              /* kvr_owner_t of the process; 0: free */
    uint64_t    parts;              /* where the offsets of its parts are, all
                                       from the zone's base; 0: none so far */
    int64_t     waiting;            /* requests that wait for room */
    uint64_t    beat_ms;            /* monotonic: when the process ran its
                                       timers last; 0: nobody waits for it */
} kvr_load_proc_t;


typedef struct {
    uint32_t         max_holders;
    uint32_t         nprocs;        /* slots ever used */
    uint64_t         uncounted;     /* requests without a row to count in */
    uint64_t         reclaimed;     /* tables of dead processes zeroed */
    uint64_t         below_zero;    /* counters found there: a bug */
    kvr_lock_t       gate;          /* see kvr_load_shut() */
    uint64_t         selected;      /* where the offsets of the parts of
                                       KVR_LOAD_SELECTED are */
    kvr_load_proc_t  procs[KVR_LOAD_PROCS + 1];
} kvr_load_zone_t;


typedef struct {
    kvr_mem_t        *mem;
    kvr_arena_t      *arena;        /* memory of the tables' parts */
    kvr_load_zone_t  *zone;
    uint32_t          slot;         /* of this process, or KVR_LOAD_NONE */
    kvr_owner_t       self;         /* this process, once it has joined */
} kvr_load_t;


/* The table KVR_LOAD_SELECTED lies at the offset, and has kvr_load_size()
 * bytes. */
uint64_t kvr_load_size(uint32_t max_holders);
void kvr_load_format(kvr_load_zone_t *z, uint32_t max_holders, char *base,
    uint64_t at);
void kvr_load_attach(kvr_load_t *l, kvr_mem_t *mem, kvr_arena_t *arena,
    kvr_load_zone_t *z);

/*
 * Takes a free slot for the process self.  For the lock's holder, inside a
 * transaction.  When all slots are taken, the process has no table.
 */
void kvr_load_join(kvr_load_t *l, kvr_owner_t self);

/*
 * Makes the row of a holder in this process's table.  For the lock's holder,
 * inside a transaction.  False: the process has no table, or the arena has no
 * memory, and the caller must roll back.
 */
bool kvr_load_make(kvr_load_t *l, uint32_t holder);

/* Bytes of the arena, zeroed: their offset from the zone's base, or 0.  For
 * the lock's holder, inside a transaction. */
uint64_t kvr_load_piece(const kvr_load_t *l, size_t size);

/* Zeroes the process's table and frees its slot.  For the lock's holder. */
void kvr_load_leave(kvr_load_t *l);

/* True when a process with a slot is dead.  No lock; reads /proc. */
bool kvr_load_orphaned(const kvr_load_t *l);

/* Zeroes the tables of dead processes and returns their number.  For the
 * lock's holder. */
uint32_t kvr_load_reclaim(kvr_load_t *l);

/*
 * Adds the reservation to its holder's load, see kvr_router_reserve().  When
 * the process has no row of the holder, or a later generation of the holder
 * has load in this process already, nothing is added, and the release does
 * nothing.
 */
void kvr_load_reserve(kvr_load_t *l, kvr_reservation_t *r, uint64_t now_ms);

/* Ends the prefill, at the first output.  Later calls do nothing. */
void kvr_load_prefilled(kvr_load_t *l, kvr_reservation_t *r, uint64_t now_ms);

/*
 * Counts the prefill again, when a request was to be prefilled elsewhere, and
 * is not.  To be called before the first output only.  When the prefill is
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

/*
 * Tells the others that this process runs its timers: to be called each
 * 100 ms, and with now_ms 0 when it ends.  Returns another process that is
 * alive, and has not called this for stuck_ms; 0: there is none.  A process is
 * returned once each time that it is stuck, to one process.  No lock.
 */
kvr_owner_t kvr_load_beat(kvr_load_t *l, uint64_t now_ms, uint64_t stuck_ms);

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


/* The row of a holder in the table of a slot; NULL: there is none. */
static inline kvr_load_row_t *
kvr_load_row(const kvr_load_t *l, uint32_t slot, uint32_t holder)
{
    uint64_t  at;

    if (slot >= KVR_LOAD_NONE || holder >= l->zone->max_holders) {
        return NULL;
    }

    at = kvr_load64(&l->zone->procs[slot].parts);

    if (at) {
        at = kvr_load64((uint64_t *) (l->mem->base + at)
                        + holder / KVR_LOAD_ROWS);
    }

    return at ? (kvr_load_row_t *) (l->mem->base + at) + holder % KVR_LOAD_ROWS
              : NULL;
}


/*
 * Begins to fetch the row of a holder that kvr_load_read() reads of this
 * process.  A macro: gcc 12 finds that a function which only prefetches does
 * nothing, and drops the calls.
 */
#define kvr_load_prefetch(l, holder)                                          \
    __builtin_prefetch(kvr_load_row(l, (l)->slot, holder))


#endif /* KVR_LOAD_H_INCLUDED */
