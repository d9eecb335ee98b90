/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Predicted stores: the blocks of a prompt that was routed to a holder a
 * moment ago are taken to be cached there, so that the siblings of a request
 * follow it before the event of its blocks has come.  A table of fixed size
 * beside the index.
 *
 * A prediction says that a holder has the first d blocks of a prompt.  It is
 * kept for depths d that are multiples of KVR_PREDICT_STRIDE, in a set of
 * KVR_PREDICT_WAYS entries that the chain of local hashes up to d names:
 *
 *     tag:    chain ^ whose           whose:  holder (32) │ until, 1/8 s (32)
 *
 * An entry is two words that are written without a lock.  One that is torn
 * between two writers, or by a writer's death, has a tag that fits no chain,
 * and counts as nothing.  When a set is full, the entry that ends first goes.
 * The search for a depth assumes that a prediction has no gaps.  When entries
 * were replaced, there are gaps: the depth found is then before or behind one.
 *
 * Predictions are guesses: they are never part of an answer, a dump or a
 * count of the index.  They end with their time, or when the holder's number
 * goes to another (the holder's generation is part of the chain).
 */


#ifndef KVR_PREDICT_H_INCLUDED
#define KVR_PREDICT_H_INCLUDED


#include "../kvr.h"


#define KVR_PREDICT_STRIDE   4          /* blocks: a quarter of the work, and
                                           at most 3 blocks too few */
#define KVR_PREDICT_DEPTHS   512        /* depths of one prompt: bounds the
                                           work to some 20 us */
#define KVR_PREDICT_WAYS     8          /* two cache lines */
#define KVR_PREDICT_MAX      3600000    /* ms */


typedef struct {
    uint64_t    tag;
    uint64_t    whose;                  /* 0: free */
} kvr_prediction_t;


/* In the zone.  After the format only the counters change. */
typedef struct {
    uint64_t    sets;                   /* offset from the zone's base */
    uint64_t    nsets;
    uint64_t    secret[2];
    uint64_t    stores;                 /* predictions made */
} kvr_predict_zone_t;


/* Makes an empty table in size bytes at offset at, a multiple of 64. */
void kvr_predict_format(kvr_predict_zone_t *z, char *base, uint64_t at,
    uint64_t size, const uint64_t secret[2]);

/*
 * Writes the chains of a prompt, for the two functions below: chains[i] is of
 * depth (i + 1) * KVR_PREDICT_STRIDE.  chains must have room for
 * KVR_PREDICT_DEPTHS.  Returns the number of chains.
 */
uint32_t kvr_predict_chains(const kvr_predict_zone_t *z,
    const uint64_t *locals, uint32_t n, uint64_t *chains);

/*
 * Predicts, until until_ms, that the holder has the prompt's blocks beyond
 * depth `from`, up to which the index says so.  For any process, at any time,
 * without a lock.  The clock must be the same monotonic one in all processes.
 */
void kvr_predict_store(kvr_predict_zone_t *z, char *base,
    const uint64_t *chains, uint32_t nchains, uint32_t holder,
    uint32_t generation, uint32_t from, uint64_t until_ms);

/*
 * The number of blocks of the prompt that the holder has by the index and the
 * predictions behind depth `from`, where the index ends.  Without a prediction
 * it is from.
 */
uint32_t kvr_predict_find(const kvr_predict_zone_t *z, const char *base,
    const uint64_t *chains, uint32_t nchains, uint32_t holder,
    uint32_t generation, uint32_t from, uint64_t now_ms);

/*
 * The same for a holder with several KV-cache groups, which keeps the end of a
 * prompt and not every beginning of it.  Such a prediction is kept for the
 * deepest depth alone, and counts for prompts which have all of that depth.
 */
void kvr_predict_store_whole(kvr_predict_zone_t *z, char *base,
    const uint64_t *chains, uint32_t nchains, uint32_t holder,
    uint32_t generation, uint32_t from, uint64_t until_ms);
uint32_t kvr_predict_find_whole(const kvr_predict_zone_t *z,
    const char *base, const uint64_t *chains, uint32_t nchains,
    uint32_t holder, uint32_t generation, uint32_t from, uint64_t now_ms);


#endif /* KVR_PREDICT_H_INCLUDED */
