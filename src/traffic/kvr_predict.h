/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Predicted stores: what was routed to a holder a moment ago is taken to be
 * cached there, so that the siblings of a request follow it before the event
 * of its blocks has come.  A table of fixed size beside the index.
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
 * The search for a depth takes it that a prediction has no gaps, which entries
 * that had to go may have made: then it is too shallow, or over the gap.
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


/* In the zone; but for the counters nothing changes after the format. */
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
 * Chains of a prompt, for the two below: chains[i] is that of depth
 * (i + 1) * KVR_PREDICT_STRIDE.  Room for KVR_PREDICT_DEPTHS; returns how many
 * there are.
 */
uint32_t kvr_predict_chains(const kvr_predict_zone_t *z,
    const uint64_t *locals, uint32_t n, uint64_t *chains);

/*
 * The holder will have the prompt's first blocks until until_ms: those beyond
 * depth `from`, which the index says it has.  For any process, at any time,
 * without a lock; the clock is monotonic and the same in all of them.
 */
void kvr_predict_store(kvr_predict_zone_t *z, char *base,
    const uint64_t *chains, uint32_t nchains, uint32_t holder,
    uint32_t generation, uint32_t from, uint64_t until_ms);

/*
 * How many blocks the holder has of the prompt, by predictions that go on
 * where the index ends: at depth `from`.  Returns from when there is none.
 */
uint32_t kvr_predict_find(const kvr_predict_zone_t *z, const char *base,
    const uint64_t *chains, uint32_t nchains, uint32_t holder,
    uint32_t generation, uint32_t from, uint64_t now_ms);


#endif /* KVR_PREDICT_H_INCLUDED */
