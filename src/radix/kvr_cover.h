/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Coverage: how much of a run each view holds, by pairs and details.  For the
 * owner of the zone's lock, in a transaction.
 */


#ifndef KVR_COVER_H_INCLUDED
#define KVR_COVER_H_INCLUDED


#include "kvr_pairs.h"


/*
 * add: the view has one handle more of the block at that offset, in that tier.
 * del: one handle less; with the last one the view holds the block no more.
 * KVR_FULL: the arena has no memory, and the caller rolls back.  del never
 * fails for a block that the view holds.
 */
kvr_rc_t kvr_cover_add(kvr_cover_t *c, kvr_run_t *run, uint32_t view,
    uint32_t offset, kvr_tier_t tier);
kvr_rc_t kvr_cover_del(kvr_cover_t *c, kvr_run_t *run, uint32_t view,
    uint32_t offset, kvr_tier_t tier);

/* Bits of the tiers in which the view has a block. */
uint32_t kvr_cover_tiers(const kvr_cover_t *c, const kvr_run_t *run,
    uint32_t view, uint32_t offset);

/* The number of blocks that the view has, in any tier. */
uint32_t kvr_cover_held(const kvr_cover_t *c, const kvr_run_t *run,
    uint32_t view);

/* Removes a view from the run, with all the blocks that it holds. */
void kvr_cover_drop(kvr_cover_t *c, kvr_run_t *run, uint32_t view);

/*
 * Returns 1 + the offset of the last block that any view holds.  Sets *named
 * to 1 + the offset of the last block that any view holds by the run's shared
 * handles.  Both are 0 if there is none.  Stops looking when both are `enough`
 * or more.
 */
uint32_t kvr_cover_top(const kvr_cover_t *c, const kvr_run_t *run,
    uint32_t enough, uint32_t *named);

/* True when no view holds anything of the run. */
static inline bool
kvr_cover_empty(const kvr_run_t *run)
{
    return run->npairs == 0;
}


#endif /* KVR_COVER_H_INCLUDED */
