/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Usage: what engines say that they had cached of the prompts that were sent
 * to them, against what the index said.  A difference that lasts means that
 * the two don't speak of the same blocks.
 *
 * A worker has one record, beside the fleet, found by the worker's number.
 * All processes add to it with relaxed atomics; no lock.  It counts for one
 * generation of the worker: the first addition of another begins it anew, and
 * what others add in that moment may be lost.
 */


#ifndef KVR_USAGE_H_INCLUDED
#define KVR_USAGE_H_INCLUDED


#include "../kvr.h"


#define KVR_USAGE_WINDOW     50      /* prompts that a verdict is made of */
#define KVR_USAGE_BLOCKS     4       /* that such a prompt has at least */
#define KVR_USAGE_SHARE      5       /* a fifth of them speaks of a rule */
#define KVR_USAGE_NOTHING    20      /* a twentieth is as good as nothing */


typedef enum {
    KVR_USAGE_UNKNOWN = 0,      /* nothing was judged yet */
    KVR_USAGE_GOOD,
    KVR_USAGE_NEVER_MATCHED,    /* the engine finds blocks where the index,
                                   which holds some of it, has none */
    KVR_USAGE_NOT_CACHED,       /* the engine finds nothing of what the index
                                   says that it holds */
    KVR_USAGE_VERDICTS
} kvr_usage_verdict_t;


/* Of answers that said how much was cached; tokens. */
typedef struct {
    uint64_t    requests;
    uint64_t    prompt_tokens;      /* as the engine counts them */
    uint64_t    predicted_tokens;   /* that the worker had by its events */
    uint64_t    best_tokens;        /* that any worker had */
    uint64_t    cached_tokens;      /* that the engine had */
} kvr_usage_counters_t;


/* Of the prompts that verdicts are made of. */
typedef struct {
    uint64_t    requests;
    uint64_t    predicted;          /* in blocks */
    uint64_t    cached;
    uint64_t    often_predicted;    /* requests with KVR_USAGE_BLOCKS */
    uint64_t    often_cached;       /* requests with any */
} kvr_usage_window_t;


typedef struct {
    kvr_usage_counters_t  counters;
    kvr_usage_window_t    all;
    kvr_usage_window_t    judged;   /* what all was at the last verdict */
    uint32_t              verdict;
    uint32_t              generation;
} kvr_usage_t;


/* One answer; tokens, but for block_size and blocks, of the prompt. */
typedef struct {
    uint32_t    block_size;
    uint32_t    blocks;
    uint64_t    prompt_tokens;
    uint64_t    predicted;
    uint64_t    best;
    uint64_t    cached;
} kvr_usage_answer_t;


/* Any process, no lock.  All zero is a valid beginning. */
void kvr_usage_add(kvr_usage_t *u, uint32_t generation,
    const kvr_usage_answer_t *a);

/*
 * Judges when there are answers enough since the last time.  holds: the
 * worker holds blocks in the index.  True when *verdict is another one than
 * before, to one of all the processes that ask.
 */
bool kvr_usage_judge(kvr_usage_t *u, uint32_t generation, bool holds,
    kvr_usage_verdict_t *verdict);

/* The counters and verdict of that generation: zero for another one. */
void kvr_usage_read(const kvr_usage_t *u, uint32_t generation,
    kvr_usage_counters_t *counters, kvr_usage_verdict_t *verdict);

/* "unknown", "good", "never_matched", "not_cached" */
const char *kvr_usage_verdict_name(uint32_t verdict);


#endif /* KVR_USAGE_H_INCLUDED */
