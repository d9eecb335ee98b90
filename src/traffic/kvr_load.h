/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Load: what this nginx has sent to each holder and not got back.
 *
 * Each nginx process counts in a table of its own, one row a holder, in the
 * zone; a reader adds the tables up.  A process that dies takes its requests
 * with it, so its table is zeroed by whoever finds it dead: nothing leaks.
 * There are KVR_LOAD_PROCS tables; processes beyond that count in one shared
 * table, with atomic additions.  What one of these leaves there when it is
 * killed goes when none of them is left.
 *
 * A row is written by its own process only (the shared table: by all), with
 * relaxed atomics; readers may see one field newer than the other.
 *
 * A row counts for one generation of its holder.  When the number goes to
 * another worker, the first reservation begins the row anew; late releases
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
#define KVR_LOAD_SHARERS     256         /* that are known, of that one */


/* One holder's load, in one process or over all. */
typedef struct {
    uint64_t    generation;         /* of the holder, as reserved */
    int64_t     active;             /* requests */
    int64_t     prefills;           /* requests before their first byte */
    int64_t     prefill_tokens;     /* uncached prompt tokens of those */
    int64_t     decode_blocks;      /* KV blocks of the requests */
} kvr_load_row_t;


/* What one request has reserved; the caller keeps it until the release. */
typedef struct {
    uint32_t    holder;
    uint32_t    generation;
    uint32_t    prefilling;         /* 1 until the first body byte */
    uint32_t    request;            /* kvr_inflight_add()'s, the caller's */
    int64_t     prefill_tokens;
    int64_t     decode_blocks;
    int64_t     output_blocks;      /* of decode_blocks, since the start */
} kvr_reservation_t;


typedef struct {
    uint64_t    owner;              /* kvr_owner_t of the process; 0: free */
    uint64_t    table;              /* offset of its rows from the zone's base;
                                       stays with the slot when it is free */
} kvr_load_proc_t;


typedef struct {
    uint32_t         max_holders;
    uint32_t         nprocs;        /* slots ever used */
    uint64_t         overflow;      /* processes that found no slot */
    uint64_t         reclaimed;     /* tables of dead processes zeroed */
    uint64_t         below_zero;    /* counters found there: a bug */
    kvr_lock_t       gate;          /* see kvr_load_shut() */
    kvr_load_proc_t  procs[KVR_LOAD_PROCS + 1];

    kvr_owner_t      sharers[KVR_LOAD_SHARERS];     /* 0: free */
    uint32_t         spilt;         /* one of them was killed */
    uint32_t         unknown;       /* there were more: it is never zeroed */
} kvr_load_zone_t;


typedef struct {
    kvr_mem_t        *mem;
    kvr_arena_t      *arena;        /* where a process's table comes from */
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
 * Joins as process self: takes a free slot.  For the lock's holder, inside a
 * transaction.  False: without a slot, or memory for its table, the process
 * counts in the shared one.
 */
bool kvr_load_join(kvr_load_t *l, kvr_owner_t self);

/* Leaves; the table is zeroed.  For the lock's holder. */
void kvr_load_leave(kvr_load_t *l);

/* Is there a dead process among them?  No lock; reads /proc. */
bool kvr_load_orphaned(const kvr_load_t *l);

/* Zeroes the tables of dead processes; returns how many.  Lock's holder. */
uint32_t kvr_load_reclaim(kvr_load_t *l);

/*
 * Adds r to its holder's load.  Nothing is added when a successor of the
 * holder has load in this process already; r's release does nothing then.
 */
void kvr_load_reserve(kvr_load_t *l, const kvr_reservation_t *r);

/* The first body byte: the prefill is over.  Once; later calls do nothing. */
void kvr_load_prefilled(kvr_load_t *l, kvr_reservation_t *r);

/*
 * It was to be prefilled elsewhere, and is not: the prefill is its own again.
 * Before the first body byte only; while it prefills this does nothing.
 */
void kvr_load_prefill_again(kvr_load_t *l, kvr_reservation_t *r);

/* The answer has grown by so many blocks. */
void kvr_load_grow(kvr_load_t *l, kvr_reservation_t *r, int64_t blocks);

/*
 * Other requests work on some of its prompt's blocks, so that only these of
 * them go with it.
 */
void kvr_load_share(kvr_reservation_t *r, int64_t blocks);

/* Gives everything back; r is empty after that, and a second call harmless. */
void kvr_load_release(kvr_load_t *l, kvr_reservation_t *r);

/*
 * Between these two no other process is in between them: for a process that
 * reads the load of a holder and reserves when there is room.  Not for long.
 * A process that dies there is found out at once; one that is stopped is
 * waited for KVR_LOAD_GATE_MS by one other, which then has the gate.
 */
void kvr_load_shut(kvr_load_t *l);
void kvr_load_open(kvr_load_t *l);

/*
 * The load of one generation of a holder over all processes.  Any process, no
 * lock.
 */
void kvr_load_read(const kvr_load_t *l, uint32_t holder, uint32_t generation,
    kvr_load_row_t *out);


#endif /* KVR_LOAD_H_INCLUDED */
