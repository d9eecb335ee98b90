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
 * view has offset of the run in tier, by one handle more, or one less.
 * KVR_FULL: the caller rolls back.  del never fails for a block that is held.
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

/* Takes a view out, with all it has. */
void kvr_cover_drop(kvr_cover_t *c, kvr_run_t *run, uint32_t view);

/*
 * One after the last block that anybody has, and, in *named, after the last
 * one that is held by a shared handle.  Looks no further when both
 * have come to `enough`.
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
