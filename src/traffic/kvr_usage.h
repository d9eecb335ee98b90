/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Usage: how much of the prompts the engines report as cached, compared with
 * what the index said.  A difference that lasts means that events and prompts
 * are not about the same blocks.
 *
 * A worker has one record, beside the fleet, found by the worker's number.
 * All processes add to it with relaxed atomics; no lock.  It counts for one
 * generation of the worker: the first addition of another generation resets
 * the record, and what other processes add in that moment may be lost.
 */


#ifndef KVR_USAGE_H_INCLUDED
#define KVR_USAGE_H_INCLUDED


#include "../kvr.h"


#define KVR_USAGE_WINDOW     50      /* prompts before a verdict */
#define KVR_USAGE_BLOCKS     4       /* the minimum of such a prompt */
#define KVR_USAGE_SHARE      5       /* 1/5 of the prompts: a rule */
#define KVR_USAGE_NOTHING    20      /* 1/20 of the blocks: nothing */
#define KVR_USAGE_LESS       20      /* 1/20 of the prompts: more than by
                                        chance */


typedef enum {
    KVR_USAGE_UNKNOWN = 0,      /* nothing was judged yet */
    KVR_USAGE_GOOD,
    KVR_USAGE_NEVER_MATCHED,    /* the engine finds blocks where the index,
                                   which holds some of it, has none */
    KVR_USAGE_NOT_CACHED,       /* the engine finds nothing of what the index
                                   says that it holds */
    KVR_USAGE_LESS_CACHED,      /* of some prompts the engine finds less than
                                   half of what the index says */
    KVR_USAGE_VERDICTS
} kvr_usage_verdict_t;


/* Sums over the answers that reported cached tokens; tokens. */
typedef struct {
    uint64_t    requests;
    uint64_t    prompt_tokens;      /* as the engine counts them */
    uint64_t    predicted_tokens;   /* the worker had, by its events */
    uint64_t    best_tokens;        /* the best worker had */
    uint64_t    cached_tokens;      /* the engine had */
} kvr_usage_counters_t;


/* Sums over the prompts that are judged. */
typedef struct {
    uint64_t    requests;
    uint64_t    predicted;          /* in blocks */
    uint64_t    cached;
    uint64_t    often_predicted;    /* requests with KVR_USAGE_BLOCKS */
    uint64_t    often_cached;       /* requests with any */
    uint64_t    often_less;         /* requests with KVR_USAGE_BLOCKS, of which
                                       less than half was cached */
} kvr_usage_window_t;


typedef struct {
    kvr_usage_counters_t  counters;
    kvr_usage_window_t    all;
    kvr_usage_window_t    judged;   /* the sums at the last verdict */
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
 * Judges when there are KVR_USAGE_WINDOW prompts since the last verdict.
 * holds: the worker holds blocks in the index.  bound: its overlaps are upper
 * bounds, and never KVR_USAGE_LESS_CACHED.  True when *verdict differs from
 * the last one; only one of the processes that ask gets true.
 */
bool kvr_usage_judge(kvr_usage_t *u, uint32_t generation, bool holds,
    bool bound, kvr_usage_verdict_t *verdict);

/* The counters and the verdict of a generation; zero for another one. */
void kvr_usage_read(const kvr_usage_t *u, uint32_t generation,
    kvr_usage_counters_t *counters, kvr_usage_verdict_t *verdict);

/* "unknown", "good", "never_matched", "not_cached", "less_cached" */
const char *kvr_usage_verdict_name(uint32_t verdict);


#endif /* KVR_USAGE_H_INCLUDED */
