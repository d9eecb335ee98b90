/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Churn: how many blocks a holder has stored lately.  Each store counts at
 * once, and half of what was counted is gone after KVR_CHURN_HALF seconds.
 *
 * An engine stores what it computes, for all routers.  In a full cache each
 * block that is stored pushes another one out.  So a holder with more churn
 * than the others does more than its share of the fleet's prefill work, and
 * loses sooner what it has cached.
 *
 * A holder's churn is one word, all zero at first:
 *
 *     seconds of the monotonic clock (32) │ blocks, an IEEE 754 single (32)
 *
 * One process at a time writes it, under the shard's lock; readers take no
 * lock.  As it is one word, a reader sees the value before or after a store,
 * and a writer that dies leaves one of the two.  It is no part of a
 * transaction: the churn of a change that is rolled back stays.
 */


#ifndef KVR_CHURN_H_INCLUDED
#define KVR_CHURN_H_INCLUDED


#include "../kvr.h"


#define KVR_CHURN_HALF       240        /* seconds */


/* Counts so many blocks as stored now.  now_s: of the monotonic clock. */
void kvr_churn_add(uint64_t *churn, uint32_t blocks, uint32_t now_s);

/* The blocks stored lately; at least 0.  Any process may call it. */
double kvr_churn_read(const uint64_t *churn, uint32_t now_s);


#endif /* KVR_CHURN_H_INCLUDED */
