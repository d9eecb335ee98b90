/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Pace: how fast a pool grants, and how long a request would wait for that.
 * Pure; the caller has the pool's lock.
 */


#ifndef KVR_PACE_H_INCLUDED
#define KVR_PACE_H_INCLUDED


#include "../kvr.h"


#define KVR_PACE_SECONDS  10            /* counted */
#define KVR_PACE_SURE     50            /* grants before a wait is foreseen */


/* Zeroed memory is a pool that has granted nothing. */
typedef struct {
    uint64_t    granted;                /* requests, ever */
    uint64_t    first_ms;               /* when the first one was; monotonic */
    struct {
        uint64_t  second;
        uint64_t  granted;
    } last[KVR_PACE_SECONDS];
} kvr_pace_t;


/*
 * Counts n that are granted.  Returns what was granted per second in the last
 * seconds, or since the first one.
 */
double kvr_pace_count(kvr_pace_t *p, uint64_t now_ms, uint32_t n);

/*
 * The seconds that a request would wait, if `all' wait in its pool, and `own'
 * of its tenant, whose part of what is granted is `share'.  rate: granted per
 * second; 0: nobody knows, and no wait is foreseen.
 */
double kvr_pace_expected(uint32_t all, uint32_t own, double share,
    double rate);

/* Is a request refused at once that may wait for `limit' seconds? */
bool kvr_pace_late(const kvr_pace_t *p, double expected, double limit);


#endif /* KVR_PACE_H_INCLUDED */
