/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The normaliser turns an engine's own events (kvr_event_t) into changes
 * (kvr_change_t), which contain all that is needed to apply them.
 *
 * RouterEvents and normalised batches are idempotent sets: kvr_shard_apply()
 * is all they need.  The meaning of an engine's own ("bare") batch depends on
 * earlier batches.  The normaliser remembers, for each holder (worker, rank):
 *
 *     copies      one block is stored more than once, and removed copy by
 *                 copy: only the last removal takes it out of its tier
 *     filtered    blocks that are not indexed: their descendants and their
 *                 removals are not indexed either, and are no error
 *     groups      the kind of each KV cache group, which only stores contain,
 *                 and the size of its blocks; the blocks of groups with a rule
 *                 (kvr_hit.h), with their copies: kvr_group_class.c
 *     gone        blocks removed not long ago, with their parents and local
 *                 hashes: an offload event without tokens, or a child,
 *                 restores them
 *     seeds       of chains with a LoRA or a salt, for a load of saved parts
 *                 into an index that does not know these chains
 *
 * Only the index decides whether a block is held; this memory adds details.
 * If the memory is empty (another process took the stream over) or full, a
 * block counts one copy and a block that is gone stays gone: the index may
 * hold less than the engine, never more.
 *
 * A normaliser belongs to one process and one thread; its size is set when it
 * is made.  The memory of a holder is dropped when any process cleared the
 * holder, and when the token of the shard's lease has changed, because another
 * process may have written in the meantime.
 */


#ifndef KVR_NORMALISE_H_INCLUDED
#define KVR_NORMALISE_H_INCLUDED


#include "../zone/kvr_router.h"


#define KVR_NORMALISE_BLOCKS  (1u << 20)  /* the default; 80 bytes each,
                                            allocated as they are used */
#define KVR_NORMALISE_GROUPS  16          /* KV cache groups of a holder */
#define KVR_NORMALISE_PART   (256u << 10) /* maximum bytes of a saved part */


typedef struct kvr_normaliser_s  kvr_normaliser_t;


typedef struct {
    bool        counting;       /* count copies; false: the first removal
                                   takes the block out of its tier */
    uint32_t    blocks;         /* maximum remembered of all holders; 0:
                                   KVR_NORMALISE_BLOCKS */
} kvr_normalise_conf_t;


/* The first three are current numbers, the others totals. */
typedef struct {
    uint64_t    blocks;         /* held, and remembered */
    uint64_t    gone;
    uint64_t    filtered;
    uint64_t    restored;       /* blocks that offload events brought back */
    uint64_t    unremembered;   /* the table was full */
} kvr_normalise_stats_t;


/*
 * Called with each change that took effect in the index, in order:
 *
 *     STORE    with k local hashes to a handle, and a parent that is held; or
 *              with neither tokens nor locals: handles that are held already
 *              get the tier (a normalised batch has empty locals then)
 *     REMOVE   handles that were held in the tier
 *     CLEAR
 *     CLASS    a class of KV cache groups
 *     BITS     what a class holds now, and no longer
 *
 * Applied to an empty index, these changes make a copy of the index.  The
 * change and its arrays are valid during the call only.  The shard's lock is
 * held.
 */
typedef void (*kvr_normalise_emit_pt)(void *data, const kvr_change_t *c);


/*
 * Makes a normaliser for the workers of one router, which must outlive the
 * normaliser.  conf may be NULL: counting, KVR_NORMALISE_BLOCKS.  NULL: out of
 * memory.
 */
kvr_normaliser_t *kvr_normalise_create(kvr_router_t *r,
    const kvr_normalise_conf_t *conf);
void kvr_normalise_destroy(kvr_normaliser_t *e);

void kvr_normalise_stats(const kvr_normaliser_t *e,
    kvr_normalise_stats_t *out);

/*
 * Applies one event of a bare batch, as the decoder returned it and with any
 * verdict, to an existing worker, and counts the event in the worker's
 * counters by kind.  The caller holds the lock of the worker's shard, as for
 * kvr_shard_apply().  An event with ready locals can be applied too: the parts
 * of a snapshot have them.  emit may be NULL.
 *
 * KVR_OK: applied; *why is KVR_WHY_NONE, or the reason why a part of the event
 * was left out.
 * KVR_DECLINED: the event is filtered, its parent was forgotten, or its blocks
 * are unknown; the view stays correct.
 * KVR_INVALID: the event is refused.
 * KVR_FULL: the index is full: the worker is flagged TRUNCATED; the blocks
 * that were stored were emitted.
 */
kvr_rc_t kvr_normalise_apply(kvr_normaliser_t *e, kvr_shard_t *k,
    uint32_t worker,
    const kvr_event_t *ev, kvr_why_t *why, kvr_normalise_emit_pt emit,
    void *data);

/*
 * The same for a caller without the lock: takes the lock of the worker's shard
 * for one event.  The worker must exist (kvr_router_put_worker()).
 * KVR_BUSY: nothing was done, try again; KVR_ERROR: no such worker.
 */
kvr_rc_t kvr_normalise_event(kvr_normaliser_t *e, const char *worker,
    size_t len,
    const kvr_event_t *ev, kvr_why_t *why, kvr_normalise_emit_pt emit,
    void *data);

/*
 * Forgets the KV cache groups of a worker's rank, whose engine may be another
 * one from now on.  To be called before the rank is cleared.  KVR_BUSY;
 * KVR_ERROR: no such worker, or rank.
 */
kvr_rc_t kvr_normalise_forget_groups(kvr_normaliser_t *e, const char *worker,
    size_t len, uint32_t rank);

/*
 * kvr_normalise_save() saves the normaliser's memory of a worker: copies,
 * filtered and gone blocks, groups, seeds.  put() is called with parts in
 * msgpack of at most KVR_NORMALISE_PART bytes.  If put() does not return
 * KVR_OK, the save ends and returns the same.
 *
 * kvr_normalise_load() loads such parts, in order, after the worker's index
 * was filled again through kvr_normalise_event().  Every value of a part is
 * checked before any is used.
 *
 * KVR_INVALID: not such a part, nothing of it was loaded.  KVR_ERROR: no such
 * worker, or rank.  Both calls take the lock of the worker's shard (KVR_BUSY).
 */
kvr_rc_t kvr_normalise_save(kvr_normaliser_t *e, const char *worker,
    size_t len,
    kvr_rc_t (*put)(void *data, const void *part, size_t size), void *data);
kvr_rc_t kvr_normalise_load(kvr_normaliser_t *e, const char *worker,
    size_t len, const void *part, size_t size);


#endif /* KVR_NORMALISE_H_INCLUDED */
