/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the writers of the positional index have in common; in a transaction.
 */


#ifndef KVR_POSITIONAL_STEPS_H_INCLUDED
#define KVR_POSITIONAL_STEPS_H_INCLUDED


#include "kvr_positional.h"


/* Room that one step needs: the longest clusters moved. */
#define KVR_POSITIONAL_TXN_ROOM       4096
#define KVR_POSITIONAL_LIMBO_ROOM     64


/* The log is empty: what every transaction begins with. */
static inline void
kvr_positional_open(kvr_positional_t *x)
{
    kvr_arena_settle(&x->arena);

    /* counters that change with every block are logged once, here */

    kvr_txn_log(x->mem, &x->handles.zone->used, KVR_UNDO_64,
                x->handles.zone->used);
    kvr_txn_log(x->mem, &x->zone->blocks, KVR_UNDO_64, x->zone->blocks);
}


/* Would another step not fit? */
static inline bool
kvr_positional_short(const kvr_positional_t *x)
{
    return kvr_txn_room(x->mem) < KVR_POSITIONAL_TXN_ROOM
           || kvr_arena_limbo_room(&x->arena) < KVR_POSITIONAL_LIMBO_ROOM;
}


/* Between two steps: commits and goes on when another would not fit. */
void kvr_positional_commit_if_low(kvr_positional_t *x);

/*
 * Somebody has let go of a block: frees it when nobody holds it and it has no
 * children, then its parent likewise; the block where that ends, or 0.  When
 * it takes more than one transaction, the zone remembers where to go on.
 */
uint32_t kvr_positional_free_if_empty(kvr_positional_t *x, uint32_t block);

/*
 * Takes record i, a handle's, out of a block, with its entry; the last record
 * comes to its place.
 */
void kvr_positional_evict_record(kvr_positional_t *x, uint32_t block,
    uint32_t i);

/* The entry of a handle goes. */
void kvr_positional_drop(kvr_positional_t *x, uint64_t slot);


#endif /* KVR_POSITIONAL_STEPS_H_INCLUDED */
