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
 * The records of the log that one step needs at most, whatever handles the
 * engines choose:
 *
 *     4096    a view gets handles of its own, or all of them are deleted
 *             (KVR_OWN_COST)
 *      192    three handles put or deleted (KVR_HANDLE_FAR each): one that is
 *             new, one that moves, one that was too much
 *       64    runs whose handles are contested; a run's header
 *     1024    pieces of the arena, a dozen of 64 (KVR_ARENA_SETTLE), and the
 *             chunks that classes keep, given back once
 *      768    coverage, details, counters, which need far less
 *
 * The deletion of a child from the table is a step of its own
 * (KVR_CHILDREN_ROW).
 */
#define KVR_RADIX_TXN_ROOM        6144
#define KVR_RADIX_LIMBO_ROOM      64


/* True when the log or the limbo is too full for another step. */
static inline bool
kvr_radix_short(const kvr_radix_t *x)
{
    return kvr_txn_room(x->mem) < KVR_RADIX_TXN_ROOM
           || kvr_arena_limbo_room(&x->arena) < KVR_RADIX_LIMBO_ROOM;
}


/*
 * To be called between two steps: when the log or the limbo is too full for
 * another step, commits and begins a transaction.
 */
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
 * To be called when a view holds less of a run, or a child of it was freed.
 * Deletes shared handles that no view uses, and cuts off blocks at the run's
 * end that no view holds.  When no view holds any block of the run and it has
 * no children, frees the run, and goes on with its parent likewise.
 *
 * keep: do not free this run although it may hold nothing yet: the caller is
 * about to fill it; 0: none.
 */
void kvr_radix_free_if_empty(kvr_radix_t *x, uint32_t run, uint32_t keep);

/*
 * Takes all that the view holds of a run from it; the run is not freed.  May
 * commit first.
 */
void kvr_radix_drop(kvr_radix_t *x, uint32_t run, uint32_t view);


#endif /* KVR_RADIX_FREE_H_INCLUDED */
