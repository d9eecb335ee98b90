/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Histograms of times, as Prometheus has them, and what each worker served.
 *
 * A histogram counts how many times were at most as long as each of the bounds
 * of its kind, and sums the times up.  It lies in shared memory, all zero at
 * first.  All processes add to it with relaxed atomics, without a lock; a
 * process that is killed leaves a count and its sum apart by one time at most.
 * Numbers are read one by one: one number may be newer than another.
 */


#ifndef KVR_HISTOGRAM_H_INCLUDED
#define KVR_HISTOGRAM_H_INCLUDED


#include "../kvr.h"


#define KVR_HISTOGRAM_BOUNDS  14


typedef enum {
    KVR_TIME_DECIDE = 0,        /* the policy, with match and hash */
    KVR_TIME_TOKENIZE,          /* token ids of a text */
    KVR_TIME_PREFILL,           /* at another worker */
    KVR_TIME_WAIT,              /* in the queue for room */
    KVR_TIME_FIRST_BYTE,        /* from the request to the answer's first
                                   byte */
    KVR_TIMES
} kvr_time_t;


typedef struct {
    uint64_t    counts[KVR_HISTOGRAM_BOUNDS + 1];   /* the last one: longer
                                                       than all bounds */
    uint64_t    sum;            /* microseconds */
} kvr_histogram_t;


/* The bounds of a kind, ascending, in microseconds; a bound is inclusive. */
const uint32_t *kvr_histogram_bounds(kvr_time_t kind);

/* Adds a time, in microseconds; a negative time counts as 0. */
void kvr_histogram_add(kvr_histogram_t *h, kvr_time_t kind, int64_t us);


/* The answers of a worker by status: 1xx to 5xx, and without any. */
#define KVR_SERVED_STATUSES   6


/*
 * A worker's answers.  The record counts for one generation of the worker: the
 * first addition of another generation resets the record, and what other
 * processes add in that moment may be lost.
 */
typedef struct {
    uint64_t           generation;
    uint64_t           statuses[KVR_SERVED_STATUSES];
    kvr_histogram_t    first_byte;
} kvr_served_t;


/*
 * Adds the end of a request: its status (0: the client had none), and the time
 * from the request to the first byte in microseconds (negative: no byte came).
 */
void kvr_served_add(kvr_served_t *s, uint32_t generation, uint32_t status,
    int64_t first_byte_us);

/* Copies what was served by a generation; all zero for another one. */
void kvr_served_read(const kvr_served_t *s, uint32_t generation,
    kvr_served_t *out);

/* "1xx" to "5xx"; "none" */
const char *kvr_served_status_name(uint32_t i);


#endif /* KVR_HISTOGRAM_H_INCLUDED */
