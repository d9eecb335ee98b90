/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The radix index: how many blocks of a prompt each view holds.
 *
 *                   children: (run, offset, hash) -> run
 *     prompt's      ┌────────┐
 *     hashes ──────►│ root,0 │──► run ──compare──► where it ends: child ──► …
 *                   └────────┘     │ coverage: view, depth
 *                                  ▼
 *                                  │ handles
 *                   handles:       ▼
 *                   engine's hash -> (run, offset)
 *                                  ▲
 *     events ──────────────────────┘
 *
 * kvr_run.h draws the runs, kvr_handles.h describes the handles of their
 * blocks, kvr_handle_table.h the table of handles, kvr_arena.h the memory;
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
 * that the lookup read belongs to one moment.  When one has changed, the
 * lookup restarts, a bounded number of times, and then answers with the prefix
 * that has not changed.
 *
 * ALLOCATE, THEN CHANGE.  A writer that finds no memory rolls its transaction
 * back.  Long events are cut into transactions of some 100 blocks, each of
 * which leaves the index consistent.
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

/*
 * Finds how many of the first n blocks of a prompt, given as local hashes,
 * each view holds, and returns the largest number.  Takes no lock.
 */
uint32_t kvr_radix_find(const kvr_radix_t *x, const uint64_t *hashes,
    uint32_t n, kvr_depths_t *out);


/* ---- writers: under the zone's lock ------------------------------------- */

/*
 * Opens a transaction: the log must be empty.  The functions below must be
 * called in a transaction.  Where their work is long, they commit in the
 * middle; the caller commits the last part, so that it can write a cursor in
 * the same transaction.
 */
void kvr_radix_begin(kvr_radix_t *x);

/*
 * Stores a chain of n blocks, with these local hashes and handles, for a view:
 * behind the block with the handle `parent`, or, without has_parent, from the
 * root.  seed: the chain's, when the hashes were made here, from tokens; or 0.
 *
 * When there is no memory, runs that were not used for long are evicted.
 *
 * KVR_DECLINED: the view does not hold the parent; nothing changed.
 * KVR_FULL: no memory and nothing to evict, or too many handles of one view
 * for the same few blocks (KVR_OWN_MAX).  Then the part that was not committed
 * is rolled back, and the log is empty.  *done becomes the number of blocks
 * stored.
 */
kvr_rc_t kvr_radix_store(kvr_radix_t *x, uint32_t view, kvr_tier_t tier,
    bool has_parent, uint64_t parent, const uint64_t *handles,
    const uint64_t *hashes, uint32_t n, uint64_t seed, uint32_t *done);

/*
 * Adds a tier to handles by which the view holds blocks; *unknown becomes the
 * number of handles by which it holds none.  KVR_FULL as above.
 */
kvr_rc_t kvr_radix_add_tier(kvr_radix_t *x, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown);

/*
 * The same, where another view, `from`, holds the blocks by these handles: the
 * view comes to hold them, too.
 */
kvr_rc_t kvr_radix_add(kvr_radix_t *x, uint32_t from, uint32_t view,
    kvr_tier_t tier, const uint64_t *handles, uint32_t n, uint32_t *unknown);

/*
 * Removes handles from a tier, each for itself; *unknown becomes the number of
 * handles that were not there.  KVR_FULL: there was no memory to note a hole,
 * so some of the handles are still there, and the view would over-report.  The
 * caller must then drop the whole view, which takes no memory.
 */
kvr_rc_t kvr_radix_remove(kvr_radix_t *x, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown);

/* The seed of the chain that a handle of the view belongs to; 0: unknown. */
kvr_rc_t kvr_radix_seed(const kvr_radix_t *x, uint32_t view, uint64_t handle,
    uint64_t *seed);

/*
 * Frees what the views hold for which dying() is true, looking at `slots`
 * slots of the children's table.  True when a round over the table is done:
 * a view may be used again when kvr_radix_view_empty() is true of it then.
 */
bool kvr_radix_reclaim(kvr_radix_t *x, bool (*dying)(void *data, uint32_t v),
    void *data, uint32_t slots);

/*
 * Evicts runs that were not used for more than age seconds and that have no
 * children, looking at `slots` slots of the children's table.  True when a
 * round over the table is done.
 */
bool kvr_radix_evict(kvr_radix_t *x, uint32_t age, uint32_t slots);

/* True when neither the view nor its shadow holds a block. */
bool kvr_radix_view_empty(const kvr_radix_t *x, uint32_t view);


/* ---- for the dump and the tests ----------------------------------------- */

/* Bits of the tiers in which the view holds a block by this handle. */
uint32_t kvr_radix_tiers(const kvr_radix_t *x, uint32_t view,
    uint64_t handle);

/*
 * Calls tell() with every handle of every view, run by run: the block that the
 * handle names, and bits of the tiers in which the view holds the block by it.
 * The caller must have the lock, and the log must be empty.
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
