/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the rows of our program share: an index in memory of its own, events,
 * lookups, and how a figure is said.  Each answer is compared with what it
 * must be; a wrong one ends the program.
 */


#ifndef INDEX_H_INCLUDED
#define INDEX_H_INCLUDED


#include "workload.h"
#include "radix/kvr_classes.h"
#include "radix/kvr_radix.h"


/*
 * Sizes of zones: about twice what is needed, so that tables are half full; a
 * zone that is much too large makes all rows slower by cache and TLB misses.
 * They go with the bytes that the index needs a pair, see "memory a pair".
 */
#define IX_PAIR_BYTES     56u           /* a pair of a long chain, a chat */
#define IX_PROMPT_BYTES   960u          /* a pair that is a run of its own */

#define IX_EVENT_MAX      65536u        /* blocks */


typedef struct {
    kvr_mem_t          mem;
    kvr_radix_t        x;
    kvr_radix_zone_t  *zone;
    kvr_depths_t       out;
    uint32_t           depths[3][WL_WORKERS];
    uint64_t           backwards[IX_EVENT_MAX];
} ix_t;


/* One figure, a line of JSON on stdout. */
void ix_say(const char *name, const char *unit, double value);

void ix_must(bool good, const char *what);

/* What reading the clock costs, ns; taken off each lookup; ix_clock() measures
 * it. */
extern uint64_t  ix_clock_ns;
void ix_clock(void);

/* Zeroed memory that processes share, and an end of it. */
void *ix_map(size_t size);
void ix_unmap(void *p, size_t size);

/* An empty index in a zone for so many pairs. */
void ix_open(ix_t *ix, uint64_t pairs, uint32_t bytes_a_pair);
void ix_close(ix_t *ix);

/* Ends the program unless nobody holds anything. */
void ix_must_be_empty(const ix_t *ix);

/*
 * Bytes in use: pieces of the arena, and the two tables as large as they need
 * be for what is in them.
 */
double ix_bytes(const ix_t *ix);

/* ns that a lookup takes, its best match into *best. */
uint64_t ix_find(ix_t *ix, const uint64_t *hashes, uint32_t n,
    uint32_t *best);

/* The p-th percentile of n values, which are sorted by that. */
double ix_percentile(uint64_t *v, uint32_t n, uint32_t p);


/* Rows; index.c says which are which. */
void rows_main(void);
void rows_scale(void);
void rows_script(const char *name, const char *file);
void rows_worst(void);
void rows_positional(void);
void rows_body(void);
void rows_beside(void);
void rows_groups(void);
void rows_ingest(void);
void rows_capacity(const char *chat);
void rows_snapshot(void);
void rows_pauses(void);
void rows_prefix(void);
void rows_turns(void);
void rows_flights(void);
void rows_sync(void);

/* Of rows_main.c: stores all of main by events of n blocks; ns a block. */
double rows_fill(ix_t *ix, const wl_t *w, uint32_t n);


/* One event: n blocks behind a parent's handle, or from the root (NULL). */

static inline void
ix_store(ix_t *ix, uint32_t view, const uint64_t *parent,
    const uint64_t *handles, const uint64_t *locals, uint32_t n)
{
    uint32_t  done;
    kvr_rc_t  rc;

    kvr_radix_begin(&ix->x);
    rc = kvr_radix_store(&ix->x, view, KVR_DEVICE, parent != NULL,
                         parent ? *parent : 0, handles, locals, n, 0, &done);
    kvr_txn_commit(&ix->mem);

    ix_must(rc != KVR_FULL, "a full zone");
    ix_must(rc == KVR_OK, "store");
}


/* One event: n blocks, the last one first; n <= IX_EVENT_MAX. */

static inline void
ix_remove(ix_t *ix, uint32_t view, const uint64_t *handles, uint32_t n)
{
    uint32_t  i, unknown;
    kvr_rc_t  rc;

    for (i = 0; i < n; i++) {
        ix->backwards[i] = handles[n - 1 - i];
    }

    unknown = 0;
    kvr_radix_begin(&ix->x);
    rc = kvr_radix_remove(&ix->x, view, KVR_DEVICE, ix->backwards, n,
                          &unknown);
    kvr_txn_commit(&ix->mem);

    ix_must(rc == KVR_OK && unknown == 0, "remove");
}


/* Blocks [d, d + n) of sequence s of a workload. */

static inline void
ix_store_at(ix_t *ix, const wl_t *w, uint32_t s, uint32_t d, uint32_t n)
{
    const uint64_t  *h;

    h = w->handles + (size_t) s * WL_DEPTH + d;

    ix_store(ix, s % WL_WORKERS, d ? h - 1 : NULL, h,
             w->locals + (size_t) s * WL_DEPTH + d, n);
}


/* The last n of the sequence's blocks below d. */

static inline void
ix_remove_at(ix_t *ix, const wl_t *w, uint32_t s, uint32_t d, uint32_t n)
{
    ix_remove(ix, s % WL_WORKERS,
              w->handles + (size_t) s * WL_DEPTH + d - n, n);
}


#endif /* INDEX_H_INCLUDED */
