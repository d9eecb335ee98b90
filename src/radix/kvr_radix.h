/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The radix index: which view holds how much of which prompt.
 *
 *                   children: (run, offset, hash) -> run
 *     prompt's      ┌────────┐
 *     hashes ──────►│ root,0 │──► run ──compare──► where it ends: child ──► …
 *                   └────────┘     │ coverage: view, depth
 *                                  ▼
 *                                  │ names: handles
 *                   handles:       ▼
 *                   engine's hash -> (run, offset)
 *                                  ▲
 *     events ──────────────────────┘
 *
 * kvr_run.h draws the runs, kvr_names.h what their blocks are called,
 * kvr_handle_table.h the table of that, kvr_arena.h the memory.
 *
 *     find      one table access a run, one comparison a block
 *     store     as find, and one entry of the handle table a block that nobody
 *               had before
 *     remove    one change of coverage a run; the entry of a block that nobody
 *               has any more
 *
 * READERS AND WRITERS.  One writer, the owner of the zone's lock; any number
 * of readers without one.  A lookup notes the version of every run on its
 * way, and looks at all of them again at the end: when none has changed, all
 * that it read was true at one moment.  When one has, it begins anew, a
 * bounded number of times, and then answers the prefix that has not changed.
 *
 * ALLOCATE, THEN CHANGE.  A writer that finds no room rolls its transaction
 * back.  Long events are cut into transactions of some 100 blocks, each of
 * which leaves the index whole.
 */


#ifndef KVR_RADIX_H_INCLUDED
#define KVR_RADIX_H_INCLUDED


#include "../core/kvr_arena.h"
#include "../core/kvr_depths.h"
#include "kvr_handle_table.h"
#include "kvr_run.h"


#define KVR_RADIX_HOPS       2048       /* runs that one lookup follows; a
                                           longer way ends the match there */
#define KVR_RADIX_ATTEMPTS   8          /* of a lookup beside a writer */
#define KVR_RADIX_CHUNK      128        /* blocks of one transaction */
#define KVR_RADIX_COST       16384      /* of making room, in one event: views
                                           and names that go */
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
    uint64_t            view_owns;      /* offset: the same, own names */
    uint32_t            max_views;
    uint32_t            children_version;   /* odd while entries move */
    uint64_t            secret[2];
    uint64_t            blocks;         /* positions in the tree */
    uint64_t            pairs;          /* (view, handle) */
    uint64_t            details;        /* (run, view) pairs with one */
    uint64_t            torn;           /* lookups cut short; relaxed adds */
    uint64_t            reclaim_at;     /* next slot of the reclaim's scan */
    uint64_t            forget_at;      /* the same, of forgetting's */
    uint64_t            forgotten;      /* handles, since the start */
    uint32_t            tidying;        /* run to go on with; 0: none */
    uint32_t            pad;
    kvr_handle_zone_t   handles;
    kvr_arena_zone_t    arena;
} kvr_radix_zone_t;


/*
 * Where a writer will look next: at the end of a chain that it has stored, and
 * before the end of one that it has removed.  The writer's own memory, and a
 * guess: it is held against the index before it is believed.  With a new epoch
 * of the arena all are dropped.
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
    uint32_t            now;            /* second, for the runs' stamps; the
                                           owner of this handle sets it */
    uint32_t            breaths;        /* commits within events */
    uint32_t            cost;           /* that one event may be, of making
                                           room; 0: nothing is forgotten */
    uint64_t            random;         /* state of a generator */
    uint32_t            emptying;       /* chunk, a guess: there is more to
                                           forget in it; 0: none */

    /* called in a transaction, for each view that lost handles to forgetting;
       may be NULL */
    void              (*forgot)(void *data, uint32_t view, uint32_t handles);
    void               *forgot_data;

    bool                trimmed;        /* in this transaction: words behind
                                           a run's end may be somebody's */
    uint32_t            epoch;          /* of the hints */
    kvr_hint_t          hints[KVR_RADIX_HINTS];
} kvr_radix_t;


/* Bytes of the fixed tables that max_views views need. */
size_t kvr_radix_views_size(uint32_t max_views);

/*
 * Lays the index out in the bytes [at, at + size) of the zone: tables and
 * arena by fixed shares.  secret: 4 random words.
 */
void kvr_radix_format(kvr_mem_t *mem, kvr_radix_zone_t *z, uint64_t at,
    uint64_t size, uint32_t max_views, const uint64_t secret[4]);
void kvr_radix_attach(kvr_radix_t *x, kvr_mem_t *mem, kvr_radix_zone_t *z);


/* ---- readers ------------------------------------------------------------ */

/* The deepest match of any view; no lock.  n hashes of a prompt. */
uint32_t kvr_radix_find(const kvr_radix_t *x, const uint64_t *hashes,
    uint32_t n, kvr_depths_t *out);


/* ---- writers: under the zone's lock ------------------------------------- */

/*
 * Opens a transaction: the log must be empty.  Everything below is called in
 * one, commits and goes on where its work is long, and leaves the last part
 * to the caller's commit, so that a cursor can go with it.
 */
void kvr_radix_begin(kvr_radix_t *x);

/*
 * The view holds the blocks with these local hashes under these handles, as
 * a chain behind parent (handle; without has_parent from the root).  seed of
 * the chain when the hashes were made from tokens here, else 0.
 *
 * Where there is no room, runs that were not used for long are forgotten.
 *
 * KVR_DECLINED: parent unknown to the view; nothing changed.
 * KVR_FULL: no room, and nothing to forget, or too many handles of one view
 * for the same few blocks (KVR_OWN_MAX); what was not committed is rolled
 * back, the log is empty; *done blocks were stored.
 */
kvr_rc_t kvr_radix_store(kvr_radix_t *x, uint32_t view, kvr_tier_t tier,
    bool has_parent, uint64_t parent, const uint64_t *handles,
    const uint64_t *hashes, uint32_t n, uint64_t seed, uint32_t *done);

/*
 * Adds a tier to handles that the view knows; *unknown counts the others.
 * KVR_FULL as above.
 */
kvr_rc_t kvr_radix_add_tier(kvr_radix_t *x, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown);

/*
 * Takes handles out of a tier, each alone; *unknown counts those that were not
 * there.  KVR_FULL: a hole could not be written down for want of room, and
 * some of the handles are still there: the caller must drop the whole view,
 * which takes no memory, for it would over-report.
 */
kvr_rc_t kvr_radix_remove(kvr_radix_t *x, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown);

/* The seed of the chain that a handle of the view belongs to; 0: unknown. */
kvr_rc_t kvr_radix_seed(const kvr_radix_t *x, uint32_t view, uint64_t handle,
    uint64_t *seed);

/*
 * Reclaims what views hold for which dying[v] is not 0, looking at `slots`
 * slots of the children's table.  True when a whole round over it is done: a
 * view of which kvr_radix_view_empty() is true by then may be used again.
 */
bool kvr_radix_reclaim(kvr_radix_t *x, bool (*dying)(void *data, uint32_t v),
    void *data, uint32_t slots);

/*
 * Forgets runs that were not used for more than age seconds and on which none
 * hang, looking at `slots` slots of the children's table.  True when a whole
 * round over it is done.
 */
bool kvr_radix_forget(kvr_radix_t *x, uint32_t age, uint32_t slots);

static inline bool
kvr_radix_view_empty(const kvr_radix_t *x, uint32_t view)
{
    return x->cover.view_runs[view] == 0;
}


/* ---- for the dump and the tests ----------------------------------------- */

static inline kvr_run_t *
kvr_radix_run(const kvr_radix_t *x, uint32_t run)
{
    return kvr_arena_at(&x->arena, run);
}


/* The hash at an offset below the run's len. */
uint64_t kvr_radix_hash(const kvr_radix_t *x, const kvr_run_t *run,
    uint32_t offset);

/* Bits of the tiers in which the view holds a block by this handle. */
uint32_t kvr_radix_tiers(const kvr_radix_t *x, uint32_t view,
    uint64_t handle);

/*
 * Tells of every handle of every view, run by run: the block that it names,
 * and bits of the tiers in which it is held by it.  Under the lock, log empty.
 */
typedef struct {
    uint64_t    handle;
    uint32_t    run;
    uint32_t    view;
    uint16_t    offset;
    uint16_t    tiers;
} kvr_radix_name_t;

void kvr_radix_each(const kvr_radix_t *x,
    void (*tell)(void *data, const kvr_radix_name_t *name), void *data);


#endif /* KVR_RADIX_H_INCLUDED */
