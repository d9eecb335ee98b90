/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The oldest items of a sample, as Redis evicts: to keep all items in the
 * order of their age, each lookup would have to write to memory that other
 * processes read.
 */


#ifndef KVR_EVICT_SAMPLE_H_INCLUDED
#define KVR_EVICT_SAMPLE_H_INCLUDED


#include "../kvr.h"


#define KVR_EVICT_SAMPLE     32
#define KVR_EVICT_BEST       8          /* of the sample are evicted */


typedef struct {
    uint32_t    n;
    uint32_t    items[KVR_EVICT_SAMPLE];        /* the oldest first */
    uint32_t    ages[KVR_EVICT_SAMPLE];
} kvr_evict_sample_t;


/* Adds an item to the sample, each once, at most KVR_EVICT_SAMPLE of them. */
static inline void
kvr_evict_sample_add(kvr_evict_sample_t *o, uint32_t item, uint32_t age)
{
    uint32_t  k;

    for (k = 0; k < o->n; k++) {
        if (o->items[k] == item) {
            return;
        }
    }

    for (k = o->n++; k && o->ages[k - 1] < age; k--) {
        o->items[k] = o->items[k - 1];
        o->ages[k] = o->ages[k - 1];
    }

    o->items[k] = item;
    o->ages[k] = age;
}


/* Seconds since a stamp; another process's clock may be ahead of ours. */
static inline uint32_t
kvr_evict_age(uint32_t now, uint32_t stamp)
{
    return now - stamp > INT32_MAX ? 0 : now - stamp;
}


#endif /* KVR_EVICT_SAMPLE_H_INCLUDED */
