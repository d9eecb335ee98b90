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
 * kvr_run.h draws the runs, kvr_handles.h what their blocks are called,
 * kvr_handle_table.h the table of that, kvr_arena.h the memory;
 * kvr_radix_state.h has the types.
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


#include "../core/kvr_depths.h"
#include "kvr_radix_state.h"


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
 * Where there is no room, runs that were not used for long are evicted.
 *
 * KVR_DECLINED: parent unknown to the view; nothing changed.
 * KVR_FULL: no room, and nothing to evict, or too many handles of one view
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
 * Evicts runs that were not used for more than age seconds and on which none
 * hang, looking at `slots` slots of the children's table.  True when a whole
 * round over it is done.
 */
bool kvr_radix_evict(kvr_radix_t *x, uint32_t age, uint32_t slots);

static inline bool
kvr_radix_view_empty(const kvr_radix_t *x, uint32_t view)
{
    return x->cover.view_runs[view] == 0;
}


/* ---- for the dump and the tests ----------------------------------------- */

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
} kvr_radix_handle_t;

void kvr_radix_each(const kvr_radix_t *x,
    void (*tell)(void *data, const kvr_radix_handle_t *h), void *data);


#endif /* KVR_RADIX_H_INCLUDED */
