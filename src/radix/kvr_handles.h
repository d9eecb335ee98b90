/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Handles: the hashes by which engines know the blocks of a run.
 *
 * An engine names blocks by hashes of its own, and an event names the blocks
 * that it removes, and the parent of those that it stores, by these handles.
 * As a rule the engines of a fleet use the same handles, so a run has one
 * array of handles, one for each block, which all its holders share:
 *
 *     hashes   a b c d e f        local hashes: the contents of the blocks
 *     handles  7 3 9 4            the engines' hashes of the blocks
 *
 * When a view uses another handle for a block, or two of them, it gets a list
 * of handles of its own in that run (kvr_own_t).  From then on the list has
 * all that the view holds of the run: records (handle, offset, tiers), and
 * the view's pair has the bit KVR_COVER_OWN.
 *
 * Each handle, shared or own, has an entry in the table of handles, which
 * leads back to (run, offset).  The coverage says which views use a shared
 * handle: a view that holds a block in any tier, and has no handles of its own
 * in the run, holds the block by the shared handle.
 *
 *     nhandles   length of the shared array: at least up to the last block
 *                that is held by a shared handle; some of the handles in
 *                between may be used by no view at present
 *     contested  a handle of this run is also the handle of another block, so
 *                a view that begins to share the run's handles may hold that
 *                other block by it; never reset while the run lives
 *
 * A view holds at most one block by one handle: when the handle is stored for
 * another block, it moves there.
 *
 * The functions are for the owner of the zone's lock, in a transaction.
 */


#ifndef KVR_HANDLES_H_INCLUDED
#define KVR_HANDLES_H_INCLUDED


#include "kvr_radix_state.h"


#define KVR_OWN_MAX          1024       /* a view's own handles in one run */
#define KVR_OWN_COST         4096       /* records of the undo log that it may
                                           take to delete all of them: 1 each,
                                           where they lie at home */


/* A view's own handles in a run; `piece` has the handles, then the blocks. */
typedef struct {
    uint16_t    view;
    uint16_t    n;
    uint16_t    cap;                    /* a multiple of 4 */
    uint16_t    pad;
    uint32_t    piece;                  /* uint64_t[cap], uint16_t[cap] */
    uint32_t    cost;                   /* of the undo log, to delete them */
} kvr_own_t;

_Static_assert(sizeof(kvr_own_t) == 16, "own");


typedef struct {
    uint32_t    n;
    uint32_t    cap;
    kvr_own_t   items[];
} kvr_owns_t;

#define kvr_owns_words(cap)  (1 + 2 * (cap))
#define kvr_own_words(cap)   ((cap) + (cap) / 4)


/* The block of a view's own handle, packed: offset in the run, tiers. */
#define kvr_own_block(offset, tiers)  ((uint16_t) ((offset) << 4 | (tiers)))
#define kvr_own_offset(block)         ((uint32_t) (block) >> 4)
#define kvr_own_tiers(block)          ((uint32_t) (block) & 0xf)


/* The block that a view holds by a handle. */
typedef struct {
    uint32_t    run;
    uint32_t    offset;
    uint32_t    tiers;                  /* in which the view holds the block */
    uint32_t    own;                    /* index in kvr_own_t + 1; 0: a shared
                                           handle */
} kvr_handle_ref_t;


/* The address of the shared handle of block i, which is at most nhandles. */
#define kvr_handles_at(x, r, i)                                               \
    ((uint64_t *) kvr_arena_at(&(x)->arena,                                   \
                             (r)->handles[(i) / KVR_RUN_HANDLES])             \
     + (i) % KVR_RUN_HANDLES)

#define kvr_own_handles(x, o)                                                 \
    ((uint64_t *) kvr_arena_at(&(x)->arena, (o)->piece))
#define kvr_own_blocks(x, o)                                                  \
    ((uint16_t *) (kvr_own_handles(x, o) + (o)->cap))


/* Finds the block that the view holds by this handle; false: none. */
bool kvr_handles_find(const kvr_radix_t *x, uint32_t view, uint64_t handle,
    kvr_handle_ref_t *ref);

/* As kvr_index_parent_handle(). */
kvr_rc_t kvr_handles_parent(const kvr_radix_t *x, uint32_t view,
    uint64_t handle, bool *has_parent, uint64_t *parent);

/* The hint's index.  Handles that share one cost a look at the table. */
static inline uint32_t
kvr_handles_hint_at(uint64_t handle)
{
    return (uint32_t) (kvr_table_spread(handle) % KVR_RADIX_HINTS);
}


/*
 * Notes where the view may hold the handle: the next event probably uses it.
 * A wrong hint does no harm.
 */
static inline void
kvr_handles_hint(kvr_radix_t *x, uint32_t view, kvr_handle_key_t key,
    uint64_t handle, uint32_t run, uint32_t offset)
{
    kvr_hint_t  *hint;

    /* a removal will read the handle's entry */
    kvr_handle_prefetch(&x->handles, key);

    hint = &x->hints[kvr_handles_hint_at(handle)];
    hint->handle = handle;
    hint->run = run;
    hint->offset = offset;
    hint->view = view;
}


/* ---- shared ------------------------------------------------------------- */

/*
 * The number of the first of n handles that are the shared handles of the
 * blocks from an offset on.  offset + n must be at most nhandles.
 */
uint32_t kvr_handles_same(const kvr_radix_t *x, const kvr_run_t *r,
    uint32_t offset, const uint64_t *handles, uint32_t n);

/*
 * Appends shared handles for the blocks from nhandles on.  Stops before the
 * first handle that has an entry already, or where the log is full; *named
 * becomes the number of handles appended.  KVR_FULL.
 */
kvr_rc_t kvr_handles_append(kvr_radix_t *x, uint32_t run,
    const uint64_t *handles, uint32_t n, uint32_t *named);

/*
 * Appends the shared handle of the block at nhandles, even if the handle
 * names other blocks too; KVR_FULL.  KVR_DECLINED, nothing done: the handle
 * names too many blocks.
 */
kvr_rc_t kvr_handles_append_one(kvr_radix_t *x, uint32_t run, uint64_t handle);

/*
 * Deletes the shared handles from n on, the last first.  False: some are left,
 * and the caller must commit before it calls again, as the log is full.
 */
bool kvr_handles_trim(kvr_radix_t *x, uint32_t run, uint32_t n);


/* ---- own ---------------------------------------------------------------- */

/*
 * Gives a view that has a pair in a run and uses the shared handles a list of
 * its own: a copy of the handles of all blocks that it holds.  KVR_FULL.
 */
kvr_rc_t kvr_own_fork(kvr_radix_t *x, uint32_t run, uint32_t view);

/*
 * Adds a handle to the view's own, held in one tier; the caller changes the
 * coverage.  KVR_FULL, or KVR_INVALID: the view has KVR_OWN_MAX handles of its
 * own in the run, or their entries lie so far from their homes that it would
 * take more than KVR_OWN_COST records to delete them.
 */
kvr_rc_t kvr_own_add(kvr_radix_t *x, uint32_t run, uint32_t view,
    uint64_t handle, uint32_t offset, uint32_t tiers);

/* Changes the tiers of a view's own handle; 0: deletes the handle. */
void kvr_own_set(kvr_radix_t *x, const kvr_handle_ref_t *ref, uint32_t view,
    uint32_t tiers);

/*
 * Deletes all handles of a view's own in the run (the view must have some) and
 * corrects the view's count.  All in one transaction, as a block that is held
 * without a handle could never be removed: the log must have room for
 * KVR_OWN_COST records and a few.
 */
void kvr_own_drop(kvr_radix_t *x, uint32_t run, uint32_t view);

/* The view's own handles in the run, or NULL. */
kvr_own_t *kvr_own_find(const kvr_radix_t *x, const kvr_run_t *r,
    uint32_t view);


#endif /* KVR_HANDLES_H_INCLUDED */
