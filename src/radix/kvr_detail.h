/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Details: the blocks of a run that a view holds, block by block.
 *
 * A plain depth d says that the view holds exactly the blocks 0 to d - 1 of
 * the run in the device tier, by one handle each.  If that is not so (a hole,
 * a block in another tier, two handles of one block), the view has a detail
 * instead: one bit for each block and tier, and, once a block has two handles,
 * the number of handles of each.  The view's pair then has KVR_COVER_DETAIL in
 * place of a depth (kvr_pairs.h).
 *
 * Only kvr_cover.c calls these functions.  All of them are for the owner of
 * the zone's lock, in a transaction.  KVR_FULL: the arena has no memory, and
 * the caller rolls back.
 */


#ifndef KVR_DETAIL_H_INCLUDED
#define KVR_DETAIL_H_INCLUDED


#include "kvr_pairs.h"


/*
 * The bits and the counts of a detail, and the sizes of both in words of the
 * arena, 64 bits each.  Of the bits, tier t has the words t * d->words to
 * (t + 1) * d->words - 1.
 */
#define kvr_detail_bits(c, d)                                                 \
    ((uint64_t *) kvr_arena_at((c)->arena, (d)->bits))
#define kvr_detail_counts(c, d)                                               \
    ((uint16_t *) kvr_arena_at((c)->arena, (d)->counts))
#define kvr_detail_bits_words(d)    ((uint32_t) (d)->words * KVR_TIERS)
#define kvr_detail_counts_words(d)  ((uint32_t) (d)->words * KVR_TIERS * 16)


/* The detail of a view whose pair has KVR_COVER_DETAIL. */
kvr_detail_t *kvr_detail_find(const kvr_cover_t *c, const kvr_run_t *run,
    uint32_t view);

/*
 * Makes a detail for a view that has a plain depth, or no pair: the detail
 * describes the same blocks, and replaces the depth.
 */
kvr_rc_t kvr_detail_make(kvr_cover_t *c, kvr_run_t *run, uint32_t view,
    kvr_detail_t **detail);

/* Enlarges a detail, if necessary, so that it has a bit for that offset. */
kvr_rc_t kvr_detail_widen(kvr_cover_t *c, kvr_run_t *run, kvr_detail_t *d,
    uint32_t offset);

/*
 * Counts one more handle of a block that the view holds in that tier.  The
 * first such call gives the detail its counts.
 */
kvr_rc_t kvr_detail_count(kvr_cover_t *c, kvr_detail_t *d, uint32_t offset,
    kvr_tier_t tier);

/*
 * To be called when bits or counts have changed.  Computes the depth of each
 * tier anew.  If a plain depth describes the view's blocks again, that depth
 * replaces the detail; if the view holds nothing, its pair is removed.  In
 * both cases d is freed.
 */
void kvr_detail_settle(kvr_cover_t *c, kvr_run_t *run, kvr_detail_t *d);

/* Frees a detail.  The caller changes or removes the view's pair. */
void kvr_detail_drop(kvr_cover_t *c, kvr_run_t *run, kvr_detail_t *d);


#endif /* KVR_DETAIL_H_INCLUDED */
