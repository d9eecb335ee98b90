/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The last hour of a zone, for the graphs of the status page: a ring of
 * samples, one each 15 seconds.
 *
 * The ring lies in shared memory, all zero at first, and stays through
 * reloads.  A sample has counters, which readers subtract from the sample
 * before, and gauges.  A step is the number of 15 seconds since the clock's
 * beginning; the clock is monotonic.
 *
 * All processes ask whether a sample is due.  The one that moves the step on
 * writes the sample, without a lock: its place is marked as empty first and
 * with its step at the end, so that readers take whole samples only.  A
 * process that dies in between leaves the place empty: the graph has a gap of
 * 15 seconds.  A process that is stopped in between, and goes on an hour
 * later, can spoil one sample of the graph.
 */


#ifndef KVR_HISTORY_H_INCLUDED
#define KVR_HISTORY_H_INCLUDED


#include "kvr_histogram.h"


#define KVR_HISTORY_STEP_S   15
#define KVR_HISTORY_STEPS    241        /* an hour of differences */


typedef enum {
    /* counters */
    KVR_HISTORY_REQUESTS = 0,
    KVR_HISTORY_PROMPT,             /* blocks of prompts */
    KVR_HISTORY_OVERLAP,            /* blocks at the chosen workers */
    KVR_HISTORY_BEST,               /* blocks at the best workers */
    KVR_HISTORY_RANDOM,             /* blocks that a random worker has */
    KVR_HISTORY_LEAST_LOADED,       /* blocks at the least loaded workers */
    KVR_HISTORY_EVENTS,             /* messages of Redis */
    KVR_HISTORY_FAILED,             /* answers of 500 and above, and none */
    KVR_HISTORY_FIRST_BYTE,         /* counts of the histogram's parts */
    KVR_HISTORY_COUNTERS = KVR_HISTORY_FIRST_BYTE + KVR_HISTOGRAM_BOUNDS + 1,

    /* gauges */
    KVR_HISTORY_WORKERS = KVR_HISTORY_COUNTERS,
    KVR_HISTORY_WELL,               /* workers with nothing wrong */
    KVR_HISTORY_BLOCKS,             /* pairs of a worker and a block */
    KVR_HISTORY_USED_BYTES,
    KVR_HISTORY_WAITING,            /* requests in the queue */
    KVR_HISTORY_ACTIVE,             /* requests at engines */

    KVR_HISTORY_SERIES
} kvr_history_series_t;


typedef struct {
    uint64_t    step;               /* 0: empty, or being written */
    uint64_t    values[KVR_HISTORY_SERIES];
} kvr_history_sample_t;


typedef struct {
    uint64_t              step;     /* the last one that was begun */
    kvr_history_sample_t  samples[KVR_HISTORY_STEPS];
} kvr_history_t;


/*
 * Is a sample due at this time, in milliseconds of a monotonic clock?  One
 * caller of each step gets the step, the others get 0.  The caller must write
 * the sample at once.
 */
uint64_t kvr_history_due(kvr_history_t *h, uint64_t now_ms);

/* Writes the sample of the step that kvr_history_due() gave. */
void kvr_history_write(kvr_history_t *h, uint64_t step,
    const uint64_t values[KVR_HISTORY_SERIES]);

/* The step of a time. */
static inline uint64_t
kvr_history_step(uint64_t now_ms)
{
    return now_ms / (KVR_HISTORY_STEP_S * 1000);
}


/* Copies the sample of a step.  False: there is none. */
bool kvr_history_read(const kvr_history_t *h, uint64_t step,
    uint64_t values[KVR_HISTORY_SERIES]);

/*
 * The time below which a share (0..1) of the first bytes between two samples
 * came, in milliseconds, by linear interpolation within a part of the
 * histogram; a time above the last bound counts as that bound.  -1: no first
 * byte came in between.
 */
double kvr_history_first_byte_ms(const uint64_t before[KVR_HISTORY_SERIES],
    const uint64_t after[KVR_HISTORY_SERIES], double share);


#endif /* KVR_HISTORY_H_INCLUDED */
