/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What all fixtures stand on: memory that processes share, random numbers, and
 * the time.
 */


#ifndef FIXTURE_H_INCLUDED
#define FIXTURE_H_INCLUDED


#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>


/* Zeroed memory, the same for processes that are forked.  The program ends
   when there is none. */
static inline void *
shared_memory(size_t size)
{
    void  *p;

    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
             -1, 0);

    if (p == MAP_FAILED) {
        printf("Bail out! no memory\n");
        exit(1);
    }

    return p;
}


/* ---- random numbers ----------------------------------------------------- */

static inline uint64_t
fx_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;

    return x ^ x >> 31;
}


static inline uint64_t
fx_random(uint64_t *seed)
{
    *seed += 0x9e3779b97f4a7c15u;

    return fx_mix(*seed);
}


/* 0 .. n - 1 */
static inline uint32_t
fx_below(uint64_t *seed, uint32_t n)
{
    return (uint32_t) ((fx_random(seed) >> 32) * n >> 32);
}


static inline uint64_t
fx_now_ns(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}


#endif /* FIXTURE_H_INCLUDED */
