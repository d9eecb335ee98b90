/*
 * Copyright (C) the nginx-kv-router authors
 *
 * An engine's answer: how much of the prompt it had cached.  Engines say that
 * at the end, streamed or not, so only the end is kept:
 *
 *     "usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}
 *
 * or, in SGLang's own protocol, "meta_info":{…,"cached_tokens":8}.
 */


#ifndef KVR_ANSWER_H_INCLUDED
#define KVR_ANSWER_H_INCLUDED


#include "../kvr.h"


#define KVR_ANSWER_TAIL      1024    /* bytes: the end that is looked at */


/* The end of what was added, of twice the size for fewer moves. */
typedef struct {
    size_t      len;
    char        data[2 * KVR_ANSWER_TAIL];
} kvr_answer_t;


typedef struct {
    uint64_t    prompt_tokens;      /* 0: not in the answer */
    uint64_t    cached_tokens;
} kvr_answer_usage_t;


/* Adds a piece of the answer; len 0 of all zero is its beginning. */
void kvr_answer_add(kvr_answer_t *a, const void *data, size_t len);

/* At the end of the answer.  False when it doesn't say what was cached. */
bool kvr_answer_usage(const kvr_answer_t *a, kvr_answer_usage_t *usage);


#endif /* KVR_ANSWER_H_INCLUDED */
