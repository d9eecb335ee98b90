/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The clock of waits, leases and slices: it goes on steadily, whatever is done
 * to the time of day, and is the same in all processes of a machine.
 */


#ifndef KVR_CLOCK_H_INCLUDED
#define KVR_CLOCK_H_INCLUDED


#include <stdint.h>
#include <time.h>


/* Microseconds since some moment. */
static inline uint64_t
kvr_now_us(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}


#endif /* KVR_CLOCK_H_INCLUDED */
