/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The normaliser: what an engine's own events mean, beyond what they say, as
 * plain events.
 *
 * RouterEvents and normalised batches are idempotent sets: kvr_shard_apply()
 * is all they need.  An engine's own ("bare") batch leaves things unsaid, and
 * here is the memory for them, by holder (worker, rank):
 *
 *     copies      one block is stored more than once, and removed copy by
 *                 copy: only the last removal takes it out of its tier
 *     filtered    blocks that are not indexed: what hangs on them, and their
 *                 removals, are not indexed either, and nobody's fault
 *     groups      of which kind a KV cache group is, which only stores say,
 *                 and how large its blocks are
 *     gone        blocks removed not long ago, with their parents and local
 *                 hashes: an offload event without tokens, or a child, brings
 *                 them back to their places
 *     seeds       of chains with a LoRA or a salt, for who loads what was
 *                 saved into an index that does not know them
 *
 * What is held the index alone says; this memory only adds to it.  So where
 * it is empty (another process took the stream over) or full, a block counts
 * one copy and what was gone stays gone: the index may hold less than the
 * engine, never more.
 *
 * A process's own, for one thread; bounded when it is made.  What it knows of
 * a holder is dropped when the holder was cleared, by whomever, and when the
 * token of the shard's lease is another, for meanwhile another process may
 * have written.
 */


#ifndef KVR_NORMALISE_H_INCLUDED
#define KVR_NORMALISE_H_INCLUDED


#include "../zone/kvr_router.h"


#define KVR_NORMALISE_BLOCKS  (1u << 20)  /* the usual bound; 80 bytes each,
                                            taken as they are used */
#define KVR_NORMALISE_GROUPS  16          /* KV cache groups of a holder */
#define KVR_NORMALISE_PART   (256u << 10) /* bytes of a saved part, at most */


typedef struct kvr_normaliser_s  kvr_normaliser_t;


typedef struct {
    bool        counting;       /* copies; false: the first removal removes */
    uint32_t    blocks;         /* remembered, of all holders; 0: the usual */
} kvr_normalise_conf_t;


/* All since the normaliser was made, but for the first three. */
typedef struct {
    uint64_t    blocks;         /* held, and remembered */
    uint64_t    gone;
    uint64_t    filtered;
    uint64_t    restored;       /* blocks that offload events brought back */
    uint64_t    unremembered;   /* there was no room for */
} kvr_normalise_stats_t;


/*
 * Called with each normalised event that took effect in the index, in order:
 *
 *     STORE    with k local hashes to a handle, and a parent that is held; or
 *              with neither tokens nor locals: handles that are held already
 *              get the tier (a normalised batch says it with empty locals)
 *     REMOVE   handles that were held in the tier
 *     CLEAR
 *
 * Applied to an empty index, they make it the same.  What the event points at
 * holds during the call; the shard's lock is held.
 */
typedef void (*kvr_normalise_emit_pt)(void *data, const kvr_event_t *ev);


/*
 * For the workers of one router, which must outlive it; conf may be NULL:
 * counting, the usual bound.  NULL when out of memory.
 */
kvr_normaliser_t *kvr_normalise_create(kvr_router_t *r,
    const kvr_normalise_conf_t *conf);
void kvr_normalise_destroy(kvr_normaliser_t *e);

void kvr_normalise_stats(const kvr_normaliser_t *e,
    kvr_normalise_stats_t *out);

/*
 * Applies one event of a bare batch as the decoder gave it, whatever its
 * verdict, to a worker that is there; under the lock of its shard, as
 * kvr_shard_apply(), and counts in the worker's counters by kind.  An event
 * with ready locals is taken too: so a snapshot's parts are learned again.
 * emit may be NULL.
 *
 * KVR_OK: applied; *why is KVR_WHY_NONE, or says what of it was left out.
 * KVR_DECLINED: filtered, or below what was forgotten, or unknown: no harm.
 * KVR_INVALID: refused.
 * KVR_FULL: no room: the worker is flagged TRUNCATED; what was stored of it
 * was emitted.
 */
kvr_rc_t kvr_normalise_apply(kvr_normaliser_t *e, kvr_shard_t *k,
    uint32_t worker,
    const kvr_event_t *ev, kvr_why_t *why, kvr_normalise_emit_pt emit,
    void *data);

/*
 * The same for who has a router and no lock: takes that of the worker's shard
 * for the one event.  The worker has to be there (kvr_router_put_worker()).
 * KVR_BUSY: nothing was done, again later; KVR_ERROR: no such worker.
 */
kvr_rc_t kvr_normalise_event(kvr_normaliser_t *e, const char *worker,
    size_t len,
    const kvr_event_t *ev, kvr_why_t *why, kvr_normalise_emit_pt emit,
    void *data);

/*
 * What the index of a worker does not say: copies, filtered and gone blocks,
 * groups, seeds.  put() is called with parts in msgpack of at most
 * KVR_NORMALISE_PART bytes; any other answer than KVR_OK ends it and is
 * answered.  kvr_normalise_load() takes such parts, in order, after the
 * worker's index was filled again through kvr_normalise_event(); it believes
 * nothing it reads.
 * KVR_INVALID: not such a part, none of it was taken.  KVR_ERROR: no such
 * worker, or rank.  Both take the lock of the worker's shard (KVR_BUSY).
 */
kvr_rc_t kvr_normalise_save(kvr_normaliser_t *e, const char *worker,
    size_t len,
    kvr_rc_t (*put)(void *data, const void *part, size_t size), void *data);
kvr_rc_t kvr_normalise_load(kvr_normaliser_t *e, const char *worker,
    size_t len, const void *part, size_t size);


#endif /* KVR_NORMALISE_H_INCLUDED */
