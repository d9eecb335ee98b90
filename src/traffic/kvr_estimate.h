/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Estimates: workers without events (events=off) are taken to have cached what
 * they answered.  The blocks of such prompts are kept in the table of
 * predictions (kvr_predict.h), for KVR_ESTIMATE_MS, under a name that follows
 * from the worker's generation and from its epoch here.
 *
 * An engine that restarts has an empty cache, and says nothing of it.  The
 * answers do: KVR_ESTIMATE_MISSES of them in a row, each of a prompt that was
 * estimated to be cached, of which the engine had nothing.  The epoch is then
 * advanced, so that all estimates of the worker are void at once.
 *
 * A record is one word.  Any process reads and changes it, without a lock.
 */


#ifndef KVR_ESTIMATE_H_INCLUDED
#define KVR_ESTIMATE_H_INCLUDED


#include "../kvr.h"


#define KVR_ESTIMATE_MS      600000     /* the age at which an estimate ends */
#define KVR_ESTIMATE_SOON    5000       /* ms that a prompt in flight counts
                                           as cached when the zone has no
                                           predict= */
#define KVR_ESTIMATE_BLOCKS  4          /* the least number of blocks whose
                                           absence shows anything */
#define KVR_ESTIMATE_MISSES  10         /* in a row, that show a restart */


/* All zero is a valid beginning. */
typedef struct {
    uint64_t    state;          /* generation (32) | epoch (24) | misses (8) */
} kvr_estimate_t;


/*
 * The name of a worker's estimates, to be given for the generation in the
 * calls of kvr_predict.h.  It differs from the generation itself, under which
 * predictions are kept.
 */
uint32_t kvr_estimate_name(const kvr_estimate_t *e, uint32_t generation);

/*
 * Takes an answer of which the engine reported its cached tokens.  name: under
 * which the estimate was found, blocks: the number of blocks estimated.  True
 * when this answer is the last of those that show a restart: the worker's name
 * has changed.
 */
bool kvr_estimate_answer(kvr_estimate_t *e, uint32_t generation,
    uint32_t name, uint32_t blocks, uint64_t cached);

/* The engine was restarted: all estimates of the worker are void. */
void kvr_estimate_void(kvr_estimate_t *e, uint32_t generation);


#endif /* KVR_ESTIMATE_H_INCLUDED */
