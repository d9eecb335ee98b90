/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Spans: an engine's block of several of the index's.
 *
 *     engine      │        H        │        G        │
 *     index       │ H0   H1   H2  H │ G0   G1   G2  G │
 *
 * To the index a handle names one block.  The last one of a span has the
 * engine's own handle, so that what follows attaches behind the span; those
 * before it have handles that are derived from it.  Who removes a handle, or
 * adds a tier to it, means all of its span, and need not say how long it is:
 * a view remembers the longest that it ever had, and all the handles that may
 * derive from one are looked for.  A view without spans pays nothing.
 *
 * Stored with another length, a handle leaves what it had beyond it.
 *
 * One inner block may belong to many spans, as engine blocks that begin alike
 * do, and has a handle of each; of these a view may have so many in one run as
 * of any others (KVR_OWN_MAX).
 */


#ifndef KVR_SPAN_H_INCLUDED
#define KVR_SPAN_H_INCLUDED


#include "kvr_shard.h"


#define KVR_SPAN_MAX  256               /* blocks; the longest engine block,
                                           were the index's of one token */


/* The handle of block j, 0 the first, of a span that is longer than j + 1. */
uint64_t kvr_span_handle(uint64_t handle, uint32_t j);

/*
 * How many of the blocks of an index made with params each handle of a store
 * spans that comes with locals or tokens; *n: how many of the handles, from
 * the first on, can be stored.
 *
 * It is fewer than all where an engine's block has multimodal hashes, for
 * nobody says in which of its parts they are: this one and those behind it
 * must not be hashed as if they were plain.  They are KVR_FILTERED,
 * KVR_WHY_EXTRA_KEY.
 *
 * Answers KVR_WHY_NONE, or why all is to be refused: KVR_WHY_BLOCK_SIZE,
 * KVR_WHY_LENGTH, KVR_WHY_LIMIT (of spans, and of index blocks in one event),
 * KVR_WHY_BIGRAM, which decoders that know the index don't let through.
 */
kvr_why_t kvr_span_of(const kvr_event_t *ev, const kvr_params_t *params,
    uint32_t *span, uint32_t *n);


/*
 * How many blocks a handle of the event may stand for, which slices of it are
 * to reckon with: the longest span that its holder ever had, or 1.  Of a store
 * that comes with locals they tell, and it is 1.
 */
uint32_t kvr_span_longest(const kvr_shard_t *k, uint32_t worker,
    const kvr_event_t *ev);


/* ---- on a shard: under the lock ----------------------------------------- */

/*
 * The functions below are called in the index's transaction, and leave the
 * last part of their work in it.
 *
 * Makes the view ready for n handles of this span: what they had beyond it is
 * left.  KVR_FULL as of kvr_index_remove().  The handles of all the blocks, in
 * the shard's memory, in *out.
 */
kvr_rc_t kvr_span_store(kvr_shard_t *k, uint32_t view,
    const uint64_t *handles, uint32_t n, uint32_t span, const uint64_t **out);

/*
 * As kvr_index_remove() and kvr_index_add_tier(), all of each handle's span;
 * *unknown counts the engine's handles, *done is the number of blocks.
 */
kvr_rc_t kvr_span_remove(kvr_shard_t *k, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown, uint32_t *done);
kvr_rc_t kvr_span_add_tier(kvr_shard_t *k, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown, uint32_t *done);

/*
 * Is something held in the tier by what derives from a handle?  It may be when
 * the handle itself is not, where the end of its span was evicted, or did
 * not come in.  Reads only.
 */
bool kvr_span_left(kvr_shard_t *k, uint32_t view, kvr_tier_t tier,
    uint64_t handle);


#endif /* KVR_SPAN_H_INCLUDED */
