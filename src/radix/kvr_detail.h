/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Details: a view's coverage of a run where a depth does not say it all.  For
 * kvr_cover.c; all of it under the zone's lock and in a transaction.
 */


#ifndef KVR_DETAIL_H_INCLUDED
#define KVR_DETAIL_H_INCLUDED


#include "kvr_pairs.h"


#define kvr_detail_bits(c, d)                                                 \
    ((uint64_t *) kvr_arena_at((c)->arena, (d)->bits))
#define kvr_detail_counts(c, d)                                               \
    ((uint16_t *) kvr_arena_at((c)->arena, (d)->counts))
#define kvr_detail_bits_words(d)    ((uint32_t) (d)->words * KVR_TIERS)
#define kvr_detail_counts_words(d)  ((uint32_t) (d)->words * KVR_TIERS * 16)


/* The view's detail, which its pair says there is. */
kvr_detail_t *kvr_detail_find(const kvr_cover_t *c, const kvr_run_t *run,
    uint32_t view);

/* Gives a view with a depth, or with nothing, one that says the same. */
kvr_rc_t kvr_detail_make(kvr_cover_t *c, kvr_run_t *run, uint32_t view,
    kvr_detail_t **detail);

/* Makes room for an offset, when the run has grown; KVR_FULL. */
kvr_rc_t kvr_detail_widen(kvr_cover_t *c, kvr_run_t *run, kvr_detail_t *d,
    uint32_t offset);

/* One handle more for a block that the view has in that tier; KVR_FULL. */
kvr_rc_t kvr_detail_count(kvr_cover_t *c, kvr_detail_t *d, uint32_t offset,
    kvr_tier_t tier);

/*
 * The bits or counts have changed: works the depths out, and goes back to a
 * plain depth, or to nothing, where that says it all; d may be gone then.
 */
void kvr_detail_settle(kvr_cover_t *c, kvr_run_t *run, kvr_detail_t *d);

/* Frees it; the view's pair is the caller's to change. */
void kvr_detail_drop(kvr_cover_t *c, kvr_run_t *run, kvr_detail_t *d);


#endif /* KVR_DETAIL_H_INCLUDED */
