/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The state of the radix index: its part of the zone, and a process's handle
 * on it.  kvr_radix.h has the functions.
 */


#ifndef KVR_RADIX_STATE_H_INCLUDED
#define KVR_RADIX_STATE_H_INCLUDED


#include "../core/kvr_arena.h"
#include "kvr_cover.h"
#include "kvr_handle_table.h"


#define KVR_RADIX_HOPS       4096       /* runs that one lookup follows; a
                                           longer way ends the match there */

/*
 * A lookup, with all of its attempts, takes about so many looks: 1 for each
 * run, 1 more for each KVR_LOOK_DETAILS details of it, and 1 more for each
 * KVR_LOOK_DENSE views where it has an array of depths.  The match ends behind
 * the run with which the number is reached.  A look takes some 100 ns where
 * nothing of the run is in the processor's caches.
 */
#define KVR_RADIX_LOOKS      8192
#define KVR_LOOK_DETAILS     8
#define KVR_LOOK_DENSE       256

#define KVR_RADIX_ATTEMPTS   8          /* of a lookup beside a writer */
#define KVR_RADIX_CHUNK      128        /* blocks of one transaction */
#define KVR_RADIX_COST       16384      /* the maximum number of views and
                                           handles that one event evicts for
                                           memory */
#define KVR_RADIX_HINTS      4096       /* chains that grow at the same time */


typedef struct {
    uint64_t            children;       /* offset: u64 slots, run | tag */
    uint64_t            nchildren;      /* slots */
    uint64_t            children_used;
    uint64_t            children_limit;
    uint64_t            occupied;       /* offset: a bit for each slot */
    uint64_t            root_bits;      /* offset: kvr_roots.h */
    uint64_t            root_counts;    /* offset: u16 a cell */
    uint64_t            nroots;         /* cells, 2^k */
    uint64_t            view_runs;      /* offset: u32 a view, runs it has */
    uint64_t            view_handles;   /* offset: the same, handles */
    uint64_t            view_owns;      /* offset: the same, own handles */
    uint64_t            classes;        /* offset: kvr_classes.h */
    uint32_t            max_views;      /* with the shadows */
    uint32_t            shadows;        /* the first view that is a shadow */
    uint32_t            classed;        /* views that have classes */
    uint32_t            children_version;   /* odd while entries move */
    uint64_t            secret[2];
    uint64_t            blocks;         /* positions in the tree */
    uint64_t            pairs;          /* (view, handle) */
    uint64_t            details;        /* (run, view) pairs with one */
    uint64_t            torn;           /* lookups cut short; relaxed adds */
    uint64_t            cut;            /* lookups ended at the maximum number
                                           of runs; relaxed adds */
    uint64_t            reclaim_at;     /* next slot of the reclaim's scan */
    uint64_t            evict_at;       /* the same, of eviction's */
    uint64_t            forgotten;      /* handles, since the start */
    uint32_t            freeing;        /* run to free next; 0: none */
    uint32_t            pad;
    kvr_handle_zone_t   handles;
    kvr_arena_zone_t    arena;
} kvr_radix_zone_t;


/*
 * A guess at the block which a writer will look for next: the last one of a
 * chain that it has stored, or the one before those that it has removed.  Kept
 * in the process; each hint is checked against the index before it is used.
 * With a new epoch of the arena all hints are dropped.
 */
typedef struct {
    uint64_t            handle;
    uint32_t            run;
    uint16_t            offset;
    uint16_t            view;
} kvr_hint_t;


/* A process's handle; 64 KiB of it are hints. */
typedef struct {
    kvr_mem_t          *mem;
    kvr_radix_zone_t   *zone;
    kvr_arena_t         arena;
    kvr_handle_table_t  handles;
    kvr_cover_t         cover;
    uint64_t           *children;
    uint64_t           *occupied;
    uint64_t           *root_bits;
    uint16_t           *root_counts;
    uint32_t           *view_handles;
    uint32_t           *view_owns;
    uint64_t           *classes;
    uint32_t            now;            /* second, for the runs' stamps; the
                                           owner of this handle sets it */
    uint32_t            early_commits;  /* times a long event was
                                           committed in the middle: what
                                           is before can't be undone */
    uint32_t            cost;           /* the maximum number of views and
                                           handles that one event evicts for
                                           memory; 0: nothing is evicted */
    uint64_t            random;         /* state of a generator */
    uint32_t            emptying;       /* chunk with probably more to evict;
                                           0: none */

    /* called in a transaction, for each view that lost handles by eviction;
       may be NULL */
    void              (*evicted)(void *data, uint32_t view, uint32_t handles);
    void               *evicted_data;

    bool                trimmed;        /* a run was cut in this transaction:
                                           words behind its end must be logged
                                           before they are written */
    uint32_t            epoch;          /* of the hints */
    kvr_hint_t          hints[KVR_RADIX_HINTS];
} kvr_radix_t;


static inline kvr_run_t *
kvr_radix_run(const kvr_radix_t *x, uint32_t run)
{
    return kvr_arena_at(&x->arena, run);
}


#endif /* KVR_RADIX_STATE_H_INCLUDED */
