/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Estimates: what workers without events are taken to have cached.
 *
 * HOW IT WORKS.  An engine that publishes no events is taken to keep what it
 * computed, and to evict what was not used for longest when its cache is full.
 * So each prompt that such a worker answered is stored for it in the index, as
 * an event would be, and the estimate evicts as the engine does.
 *
 *     - At the first output of an answer the prompt's blocks are cached.  The
 *       process that serves the request notes so in a ring (kvr_routed.h);
 *       the process that has the lease of shard 0 reads the rings of all
 *       processes, and changes the index, some milliseconds later.  predict=
 *       covers the time between.
 *     - At the end of the answer its tokens are cached, too.  Their hashes are
 *       not known here, but they take room.
 *     - The capacity of the engine's cache is configured (capacity=), or is
 *       read from the engine's metrics, or is learned from the answers
 *       (kvr_capacity.h).
 *     - While no capacity is known, all is kept for KVR_ESTIMATE_TTL seconds
 *       after its last use.
 *     - When an engine is restarted, the estimate is empty again.
 *     - When the events of a worker are complete, they take the estimate's
 *       place, for good.
 *
 * THREE CACHES.  The estimate of a holder consists of three views of the
 * index, beside the one that events write.  They evict at half of the
 * capacity, at the capacity, and at one and a half of it.  Policies see the
 * second one alone; learning needs all of them.
 *
 * NAMES.  The handles of the blocks are the hashes of their chains
 * (kvr_hash_sequence()), so that all such workers share the index's blocks.
 * Blocks of text are other blocks than those of tokens, as their hashes have
 * another seed; both may be in the same view, and share one capacity.
 *
 * EVICTION.  kvr_recency.h knows which block of a view goes next.  A prompt
 * that is in flight counts as just used, for KVR_ESTIMATE_BUSY seconds at
 * most, as its process may have been killed.
 *
 * WHEN A PROCESS DIES.  A change of the index can take several transactions.
 * So a mark is committed before each one, and taken away together with the
 * change's last part.  The next process that finds a mark looks whether a part
 * of the change is there; only then the estimate is dropped.
 *
 * WHEN THE ZONE IS FULL, the index evicts what it likes.  An estimate that
 * lost an eighth so is dropped, as its ends of chains are not known any more.
 *
 * WHO MAY WRITE.  The owner of the shard's lock, which is mostly the process
 * with the lease of shard 0, whatever the shard.  The calls for others are in
 * kvr_router.h.
 */


#ifndef KVR_ESTIMATED_H_INCLUDED
#define KVR_ESTIMATED_H_INCLUDED


#include "kvr_recency.h"
#include "kvr_router.h"


#define KVR_ESTIMATE_TTL     600        /* seconds, while no capacity is
                                           known */
#define KVR_ESTIMATE_BUSY    60         /* seconds */
#define KVR_ESTIMATE_SLICE   256        /* blocks stored, */
#define KVR_ESTIMATE_CUT     64         /* and evicted, at once */
#define KVR_ESTIMATE_PART    64         /* 1/64 of a shard: the points */
#define KVR_ESTIMATE_LOST    8          /* 1/8 of the blocks: too many */
#define KVR_ESTIMATE_TEXT    250000     /* millionths of a token, by byte, as
                                           long as nothing was learned */


/* A holder's estimate, in the zone.  All zero is a valid beginning. */
typedef struct {
    uint32_t        generation;         /* of the worker */
    uint32_t        spaces[KVR_FLEET_ESTIMATES];    /* 0: there are no views */
    kvr_recency_t   caches[KVR_FLEET_ESTIMATES];
    kvr_capacity_t  capacity;
    uint64_t        mark;               /* handle of a block that the change
                                           which goes on stores first, or
                                           removes first */
    uint32_t        marked;             /* kvr_estimated_mark_t */
    uint32_t        text_tokens;        /* millionths of a token, by byte; 0:
                                           nothing learned */
    uint64_t        since_ms;           /* the last time that it was dropped */
    uint64_t        forgotten;          /* blocks that the index evicted since
                                           then */
    uint64_t        answers;
    uint64_t        refused;
    uint64_t        cleared[KVR_ESTIMATE_WHYS];
} kvr_estimated_t;


typedef enum {
    KVR_MARK_NONE = 0,
    KVR_MARK_STORE = 1,
    KVR_MARK_REMOVE = 2                 /* | view of the estimate << 8 */
} kvr_estimated_mark_t;


/* Bytes of the estimates of so many holders. */
#define kvr_estimated_size(holders)  ((holders) * sizeof(kvr_estimated_t))


/* ---- under the shard's lock; h: a holder of the shard ------------------- */

/*
 * Takes the lock and finds the estimate of a holder, as it has to be: what a
 * dead process left by half, or another worker had before, is gone.  The log
 * is empty.  KVR_DECLINED: the holder is not of this generation, or its worker
 * is not estimated.  KVR_BUSY.  After both the lock is not held.
 */
kvr_rc_t kvr_estimated_enter(kvr_shard_t *k, uint32_t h, uint32_t generation,
    kvr_estimated_t **e);

/* Makes the record that of this generation of the holder's worker. */
void kvr_estimated_sync(kvr_shard_t *k, uint32_t h);

/*
 * Stores the next slice of a prompt in one of the views, and notes its use.
 * KVR_OK: all of the prompt is stored; KVR_DECLINED: call again, for more.
 * KVR_FULL: no more of it can be stored.  Commits.
 */
kvr_rc_t kvr_estimated_store(kvr_shard_t *k, uint32_t h, uint32_t e,
    const uint64_t *locals, const uint64_t *handles, uint32_t n, uint32_t now,
    uint32_t busy, bool text);

/*
 * Evicts some of what a view has no room for, or what is too old: one slice.
 * True: there can be more.  *moves must be 0 at first.  Commits.
 */
bool kvr_estimated_evict(kvr_shard_t *k, uint32_t h, uint32_t e, uint32_t ttl,
    uint32_t now, uint32_t *moves);

/* True when there is something to evict; takes no lock. */
bool kvr_estimated_due(const kvr_shard_t *k, uint32_t h, uint32_t e,
    uint32_t ttl, uint32_t now);

/* Drops what is estimated of a holder; the caller commits. */
void kvr_estimated_clear(kvr_shard_t *k, uint32_t h, kvr_estimate_why_t why);

/* Writes a capacity. */
void kvr_estimated_set_capacity(kvr_shard_t *k, uint32_t h,
    const kvr_capacity_t *capacity);

/* The index evicted blocks of the holder. */
void kvr_estimated_forgot(kvr_shard_t *k, uint32_t h, uint32_t handles);

/* Tokens that a view holds, and that a number of blocks has; no lock. */
uint64_t kvr_estimated_held(const kvr_shard_t *k, uint32_t h, uint32_t e);
uint64_t kvr_estimated_tokens(const kvr_shard_t *k, uint32_t h,
    uint64_t blocks, bool text);


#endif /* KVR_ESTIMATED_H_INCLUDED */
