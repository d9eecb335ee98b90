/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Names: the handles by which holders know the blocks of a run.
 *
 * Engines name blocks by hashes of their own, and removals and parents come by
 * those names.  As a rule engines of a fleet agree, so a run has one array of
 * names, one of each block, which all its holders share:
 *
 *     hashes   a b c d e f        what the blocks are
 *     names    7 3 9 4            as whoever holds them calls them
 *
 * Who calls a block otherwise, or by two names, has a list of names of its
 * own in that run (kvr_own_t), from then on for all it holds of the run:
 * records (handle, offset, tiers), and KVR_COVER_OWN in its pair.
 *
 * Each name, shared or own, has its entry in the handles' table, which leads
 * back to (run, offset).  Whose name it is the coverage tells: a view that
 * holds a block in any tier, and has no names of its own there, holds it by
 * the shared name.
 *
 *     nhandles    at least up to the last block that is held by a shared name;
 *               in between there may be names that nobody uses at present
 *     contested some name here is also the name of another block, so that who
 *               comes to share it may hold that other block by it; never
 *               taken back while the run lives
 *
 * A view holds at most one block by one handle: storing it for another block
 * moves it.
 *
 * All of this is for the owner of the zone's lock, in a transaction.
 */


#ifndef KVR_HANDLES_H_INCLUDED
#define KVR_HANDLES_H_INCLUDED


#include "kvr_radix_state.h"


#define KVR_OWN_MAX          1024       /* names of a view's own in one run */
#define KVR_OWN_COST         4096       /* and records of the undo log that
                                           deleting all of them takes: 1 each,
                                           where they lie at home */


/* A view's own names in a run: handles, then places, in one piece. */
typedef struct {
    uint16_t    view;
    uint16_t    n;
    uint16_t    cap;                    /* a multiple of 4 */
    uint16_t    pad;
    uint32_t    piece;                  /* uint64_t[cap], uint16_t[cap] */
    uint32_t    cost;                   /* records: KVR_OWN_COST */
} kvr_own_t;

_Static_assert(sizeof(kvr_own_t) == 16, "own");


typedef struct {
    uint32_t    n;
    uint32_t    cap;
    kvr_own_t   items[];
} kvr_owns_t;

#define kvr_owns_words(cap)  (1 + 2 * (cap))
#define kvr_own_words(cap)   ((cap) + (cap) / 4)


/* A place in that piece: offset, tiers. */
#define kvr_own_block(offset, tiers)  ((uint16_t) ((offset) << 4 | (tiers)))
#define kvr_own_offset(place)         ((uint32_t) (place) >> 4)
#define kvr_own_tiers(place)          ((uint32_t) (place) & 0xf)


/* What a handle of a view names. */
typedef struct {
    uint32_t    run;
    uint32_t    offset;
    uint32_t    tiers;                  /* in which it is held by it */
    uint32_t    own;                    /* record + 1; 0: a shared name */
} kvr_handle_ref_t;


/* The name of block i, which is below nhandles; or the place for it. */
#define kvr_handles_at(x, r, i)                                               \
    ((uint64_t *) kvr_arena_at(&(x)->arena,                                   \
                             (r)->handles[(i) / KVR_RUN_HANDLES])             \
     + (i) % KVR_RUN_HANDLES)

#define kvr_own_handles(x, o)                                                 \
    ((uint64_t *) kvr_arena_at(&(x)->arena, (o)->piece))
#define kvr_own_blocks(x, o)                                                  \
    ((uint16_t *) (kvr_own_handles(x, o) + (o)->cap))


/* Does the view hold a block by this handle? */
bool kvr_handles_find(const kvr_radix_t *x, uint32_t view, uint64_t handle,
    kvr_handle_ref_t *ref);

/* Two handles at one place cost a look at the table, no more. */
static inline uint32_t
kvr_handles_hint_at(uint64_t handle)
{
    return (uint32_t) (kvr_table_spread(handle) % KVR_RADIX_HINTS);
}


/* The view will be asked about this one, which may be there, or not. */
static inline void
kvr_handles_hint(kvr_radix_t *x, uint32_t view, kvr_handle_key_t key,
    uint64_t handle, uint32_t run, uint32_t offset)
{
    kvr_hint_t  *hint;

    /* a removal will want its entry */
    kvr_handle_prefetch(&x->handles, key);

    hint = &x->hints[kvr_handles_hint_at(handle)];
    hint->handle = handle;
    hint->run = run;
    hint->offset = offset;
    hint->view = view;
}


/* ---- shared ------------------------------------------------------------- */

/* How many of n handles are the names of blocks from an offset on, all of
 * which have one. */
uint32_t kvr_handles_same(const kvr_radix_t *x, const kvr_run_t *r,
    uint32_t offset, const uint64_t *handles, uint32_t n);

/*
 * Names blocks from nhandles on, up to the first handle that names something
 * already, or as far as the log goes; *named of them.  KVR_FULL.
 */
kvr_rc_t kvr_handles_append(kvr_radix_t *x, uint32_t run,
    const uint64_t *handles, uint32_t n, uint32_t *named);

/*
 * Names one block at nhandles, though the handle may name others; KVR_FULL.
 * KVR_DECLINED, nothing done: it names too many.
 */
kvr_rc_t kvr_handles_append_one(kvr_radix_t *x, uint32_t run, uint64_t handle);

/*
 * Forgets the names from n on, the last first; false: not all, as the log
 * must be empty before more can go.
 */
bool kvr_handles_trim(kvr_radix_t *x, uint32_t run, uint32_t n);


/* ---- own ---------------------------------------------------------------- */

/*
 * A view that has a pair in a run and shares its names gets all that it holds
 * by them as names of its own; KVR_FULL.
 */
kvr_rc_t kvr_own_fork(kvr_radix_t *x, uint32_t run, uint32_t view);

/*
 * One more, held in one tier; the coverage is the caller's.  KVR_FULL, or
 * KVR_INVALID: the view has KVR_OWN_MAX of them here, or they lie so far from
 * their homes that to delete them would take more than KVR_OWN_COST.
 */
kvr_rc_t kvr_own_add(kvr_radix_t *x, uint32_t run, uint32_t view,
    uint64_t handle, uint32_t offset, uint32_t tiers);

/* Changes the tiers of a name that was found; 0: takes it out. */
void kvr_own_set(kvr_radix_t *x, const kvr_handle_ref_t *ref, uint32_t view,
    uint32_t tiers);

/*
 * Takes all of a view's out, which has some, and counts them.  In one go, for
 * what is held and by no name could never be removed: KVR_OWN_COST records and
 * a few, which the log must have room for.
 */
void kvr_own_drop(kvr_radix_t *x, uint32_t run, uint32_t view);

/* The view's, or NULL. */
kvr_own_t *kvr_own_find(const kvr_radix_t *x, const kvr_run_t *r,
    uint32_t view);


#endif /* KVR_HANDLES_H_INCLUDED */
