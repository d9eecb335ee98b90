/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The capacity of an engine's prefix cache, learned from what its answers say
 * of cached tokens.
 *
 * The estimate of a worker plays three caches that evict what was not used for
 * longest (kvr_estimated.h), of half the capacity C, of C, and of one and a
 * half C.  So each prompt is a question to the engine:
 *
 *     in C, not in C/2, and the engine has it not:   C is too large
 *     in 1.5 C, not in C, and the engine has it:     C is too small
 *
 * Each such answer changes C by a fiftieth.  Where both are as frequent, C
 * stays: an engine that others use, too, gets the capacity that is left for
 * us.  What is in none of the two says nothing of the capacity.
 *
 * A configured or scraped value is the first C, and C stays between its fourth
 * part and its double.  Without such a value nothing is evicted until the
 * engine has lost something that it had, while it still has something else:
 * what was held at that moment is the first C.
 *
 * Ten answers in a row with nothing cached, of prompts that were estimated to
 * be cached, tell of a restart.
 *
 * The functions are pure: they change the state that they are given.
 */


#ifndef KVR_CAPACITY_H_INCLUDED
#define KVR_CAPACITY_H_INCLUDED


#include "../kvr.h"


#define KVR_CAPACITY_STEP    50         /* 1/50 up or down an answer */
#define KVR_CAPACITY_BLOCKS  4          /* the least number of blocks whose
                                           absence shows a restart */
#define KVR_CAPACITY_MISSES  10         /* in a row, that show a restart */


/* The source of the first value; a later one overrides an earlier one. */
typedef enum {
    KVR_CAPACITY_NONE = 0,      /* nothing is known: C is 0 */
    KVR_CAPACITY_LEARNED,
    KVR_CAPACITY_SCRAPED,
    KVR_CAPACITY_CONFIGURED
} kvr_capacity_source_t;


/* All zero is a valid beginning. */
typedef struct {
    uint64_t    tokens;         /* C; 0: not known */
    uint64_t    first;          /* as configured, scraped, or at first */
    uint64_t    lost;           /* held when a prompt was lost as a whole, and
                                   nothing else was heard since; 0: none */
    uint64_t    grown;          /* answers by which C grew */
    uint64_t    shrunk;
    uint32_t    source;         /* kvr_capacity_source_t */
    uint32_t    misses;         /* in a row */
} kvr_capacity_t;


/* An answer: tokens, but for n. */
typedef struct {
    uint64_t    hot;            /* the prompt's, in C/2, in C and in 1.5 C */
    uint64_t    visible;
    uint64_t    ghost;
    uint64_t    prompt;
    uint64_t    cached;         /* as the engine says */
    uint64_t    slack;          /* tokens by which two of these may differ
                                   without a reason */
    uint64_t    block;          /* tokens of a block */
    uint64_t    held;           /* all that is visible at present */
} kvr_capacity_sample_t;


/*
 * Sets a value from a source.  False: nothing changed, as the value is the
 * same as before, or is known from a source that overrides this one.
 * tokens 0: the source has no value any more.
 */
bool kvr_capacity_set(kvr_capacity_t *c, uint64_t tokens,
    kvr_capacity_source_t source);

/* True: the engine was restarted, it has nothing any more. */
bool kvr_capacity_learn(kvr_capacity_t *c, const kvr_capacity_sample_t *s);

/* "none", "learned", "scraped", "configured" */
const char *kvr_capacity_source_name(uint32_t source);


#endif /* KVR_CAPACITY_H_INCLUDED */
