/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Spans: an engine's block can be several times as long as a block of the
 * index.  The span of a handle is the row of index blocks that the engine's
 * block covers.
 *
 *     engine      │        H        │        G        │
 *     index       │ H0   H1   H2  H │ G0   G1   G2  G │
 *
 * In the index a handle names one block.  The last block of a span has the
 * engine's own handle, so that the engine's next block attaches behind the
 * span.  The other blocks of the span have handles that are derived from it.
 * An event that removes a handle, or adds a tier to it, applies to the whole
 * span, and does not tell the span's length: the view remembers the longest
 * span that it ever had, and all derived handles up to that length are looked
 * up.  A view without spans pays nothing.
 *
 * If a handle is stored again with a shorter span, the derived handles beyond
 * the new span are removed.
 *
 * Engine blocks that begin alike share inner blocks: such a block has one
 * handle of each span.  KVR_OWN_MAX bounds their number in one run, as it
 * bounds all handles of a view's own.
 */


#ifndef KVR_SPAN_H_INCLUDED
#define KVR_SPAN_H_INCLUDED


#include "kvr_shard.h"


#define KVR_SPAN_MAX  256               /* blocks; the longest engine block,
                                           were the index's of one token */


/*
 * The derived handle of block j, from 0, of a span of more than j + 1 blocks;
 * the last block has the engine's handle.
 */
uint64_t kvr_span_handle(uint64_t handle, uint32_t j);

/*
 * For a store with locals or tokens: the number of blocks, of an index made
 * with params, that each handle spans; *n becomes the number of handles, from
 * the first on, that can be stored.
 *
 * *n is less than the number of handles when an engine's block has multimodal
 * hashes: the event does not say in which part of the block they are.  Then
 * this block and those behind it must not be hashed as plain ones.  They are
 * KVR_FILTERED, KVR_WHY_EXTRA_KEY.
 *
 * Returns KVR_WHY_NONE, or the reason why the whole event must be refused:
 * KVR_WHY_BLOCK_SIZE, KVR_WHY_LENGTH, KVR_WHY_LIMIT (of spans, and of index
 * blocks in one event), KVR_WHY_BIGRAM.  A decoder that knows the index's
 * parameters does not let the last one through.
 */
kvr_why_t kvr_span_of(const kvr_event_t *ev, const kvr_params_t *params,
    uint32_t *span, uint32_t *n);

/* The same for a change with locals: all of it can be stored, or nothing. */
kvr_why_t kvr_span_of_locals(const kvr_change_t *c, uint32_t *span);


/*
 * The maximum number of blocks that a handle of the change may stand for, by
 * which the change is cut into slices: the longest span that its holder ever
 * had, or 1.  For a store with locals it is 1: the locals are counted.
 */
uint32_t kvr_span_longest(const kvr_shard_t *k, uint32_t worker,
    const kvr_change_t *c);


/* ---- on a shard: under the lock ----------------------------------------- */

/*
 * The functions below are called in the index's transaction, and leave the
 * last part of their work in it.
 *
 * Makes the view ready for n handles of this span: blocks that the handles had
 * beyond it are removed.  KVR_FULL as of kvr_index_remove().  *out becomes the
 * array of the handles of all blocks, in the shard's memory.
 */
kvr_rc_t kvr_span_store(kvr_shard_t *k, uint32_t view,
    const uint64_t *handles, uint32_t n, uint32_t span, const uint64_t **out);

/*
 * As kvr_index_add_tier() (add) or kvr_index_remove(), for all blocks of each
 * handle's span.  *unknown becomes the number of the engine's handles that
 * were not held, *done the number of blocks.
 */
kvr_rc_t kvr_span_hold(kvr_shard_t *k, uint32_t view, kvr_tier_t tier,
    bool add, const uint64_t *handles, uint32_t n, uint32_t *unknown,
    uint32_t *done);

/*
 * A class of KV-cache groups holds all blocks of each handle's span from now
 * on, or no longer; handles that are not held are passed over.
 */
kvr_rc_t kvr_span_class(kvr_shard_t *k, uint32_t view, uint32_t at, bool add,
    const uint64_t *handles, uint32_t n);

/*
 * True when the view holds a block in the tier by a handle that derives from
 * this one.  Such a block may be left when the handle itself is not held: the
 * end of its span was evicted, or was never stored.  Changes nothing.
 */
bool kvr_span_left(kvr_shard_t *k, uint32_t view, kvr_tier_t tier,
    uint64_t handle);


#endif /* KVR_SPAN_H_INCLUDED */
