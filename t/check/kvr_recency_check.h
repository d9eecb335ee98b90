/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The invariants of the estimates of a shard; as in kvr_check.h.  Of a shard
 * whose index evicted blocks of estimates there are none: true.
 */


#ifndef KVR_RECENCY_CHECK_H_INCLUDED
#define KVR_RECENCY_CHECK_H_INCLUDED


#include "zone/kvr_shard.h"


const char *kvr_recency_check(kvr_shard_t *k);


#endif /* KVR_RECENCY_CHECK_H_INCLUDED */
