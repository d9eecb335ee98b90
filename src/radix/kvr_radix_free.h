/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Transactions of the radix index, and how runs are freed in them.  Under the
 * zone's lock.
 */


#ifndef KVR_RADIX_FREE_H_INCLUDED
#define KVR_RADIX_FREE_H_INCLUDED


#include "kvr_radix.h"


/*
 * Room in the log that one step needs, whatever names engines choose:
 *
 *     4096    a view gets names of its own, or all of them go (KVR_OWN_COST)
 *      192    three names put or deleted (KVR_HANDLE_FAR each): one more, one
 *             that moves, one that was too much
 *       64    runs whose names are contested; a run's header
 *     1024    pieces of the arena, a dozen of 64 (KVR_ARENA_SETTLE) and what
 *             classes keep, given back once
 *      768    coverage, details, counters: many times what they are
 *
 * The deletion of a child comes after none of these, and has as much room to
 * itself (KVR_CHILDREN_ROW).
 */
#define KVR_RADIX_TXN_ROOM        6144
#define KVR_RADIX_LIMBO_ROOM      64


/* Would another step not fit? */
static inline bool
kvr_radix_short(const kvr_radix_t *x)
{
    return kvr_txn_room(x->mem) < KVR_RADIX_TXN_ROOM
           || kvr_arena_limbo_room(&x->arena) < KVR_RADIX_LIMBO_ROOM;
}


/* Between two steps: commits and goes on when it would not. */
static inline void
kvr_radix_commit_if_low(kvr_radix_t *x)
{
    if (kvr_radix_short(x)) {
        kvr_txn_commit(x->mem);
        kvr_radix_begin(x);
        x->early_commits++;
    }
}


/*
 * Somebody has let go of a run: forgets the names that nobody uses, trims a
 * tail that nobody has; frees the run when nobody has anything of it and
 * nothing hangs on it, then its parent likewise.
 * keep: a run to be left alone, whatever it holds at present; 0: none.
 */
void kvr_radix_free_if_empty(kvr_radix_t *x, uint32_t run, uint32_t keep);

/* The view lets go of all it has of a run; may commit before. */
void kvr_radix_drop(kvr_radix_t *x, uint32_t run, uint32_t view);


#endif /* KVR_RADIX_FREE_H_INCLUDED */
