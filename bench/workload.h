/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The benchmarks' workload: the same numbers in every program that takes part
 * (peers/dynamo/src/main.rs has a copy in Rust).  Nothing is random: all is
 * made of mix(), the finaliser of splitmix64.
 *
 *     local(s, d)    = mix(mix(s) + d)         block d of sequence s
 *     handle(s, d)   = Dynamo's sequence hash of local(s, 0..d), so that
 *                      indexes which make them by themselves agree
 *
 * main     n sequences of 1024 blocks, sequence s on worker s % 128 alone;
 *          blocks below 256 are those of sequence 2^32 + s % 4; sequences
 *          from 128 on find them there, and come without (an engine tells a
 *          block once); 1280 sequences make 1,015,808 pairs
 * branch   128 sequences, sequence s on worker s; blocks below 8 * s are
 *          those of sequence 0, others of 2^33 + s
 * all      8 sequences, each on all of 128 workers; blocks of 2^34 + s
 *
 * Query q asks for sequence mix(2^40 + q) % n of main, cut as the row says,
 * what is cut off being blocks of sequence 2^35 + q.
 */


#ifndef WORKLOAD_H_INCLUDED
#define WORKLOAD_H_INCLUDED


#include "core/kvr_hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>


#define WL_DEPTH     1024u
#define WL_SHARED    256u           /* blocks that a group has in common */
#define WL_GROUPS    4u
#define WL_WORKERS   128u
#define WL_STEP      8u             /* of branch */
#define WL_ALL       8u             /* sequences of all */
#define WL_QUERIES   4000u
#define WL_SEQUENCES 1280u          /* of main, 1 M pairs */


typedef struct {
    uint32_t    n;                  /* sequences */
    uint64_t   *locals;             /* n * WL_DEPTH */
    uint64_t   *handles;
} wl_t;


static inline uint64_t
wl_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;

    return x ^ x >> 31;
}


static inline uint64_t
wl_local(uint64_t s, uint32_t d)
{
    return wl_mix(wl_mix(s) + d);
}


/* Of main: the first block that the sequence's worker doesn't have yet. */
static inline uint32_t
wl_from(uint32_t s)
{
    return s < WL_WORKERS ? 0 : WL_SHARED;
}


static inline double
wl_pairs(const wl_t *w)
{
    return (double) w->n * (WL_DEPTH - WL_SHARED)
           + (double) kvr_min(w->n, WL_WORKERS) * WL_SHARED;
}


static inline void *
wl_alloc(size_t size)
{
    void  *p;

    p = malloc(size);

    if (p == NULL) {
        perror("malloc");
        exit(1);
    }

    return p;
}


/* kind: 'm'ain, 'b'ranch, 'a'll */

static inline void
wl_make(wl_t *w, char kind, uint32_t n)
{
    uint32_t   s, d;
    uint64_t   from, *l;

    w->n = n;
    w->locals = wl_alloc((size_t) n * WL_DEPTH * sizeof(uint64_t));
    w->handles = wl_alloc((size_t) n * WL_DEPTH * sizeof(uint64_t));

    for (s = 0; s < n; s++) {
        l = w->locals + (size_t) s * WL_DEPTH;

        for (d = 0; d < WL_DEPTH; d++) {

            switch (kind) {

            case 'm':
                from = d < WL_SHARED ? (UINT64_C(1) << 32) + s % WL_GROUPS : s;
                break;

            case 'b':
                from = d < s * WL_STEP ? 0 : (UINT64_C(1) << 33) + s;
                from = s == 0 ? 0 : from;
                break;

            default:
                from = (UINT64_C(1) << 34) + s;
            }

            l[d] = wl_local(from, d);
        }

        kvr_hash_sequence(l, WL_DEPTH, w->handles + (size_t) s * WL_DEPTH);
    }
}


static inline void
wl_free(wl_t *w)
{
    free(w->locals);
    free(w->handles);
}


/* Query q: its first `keep` blocks are held. */

static inline void
wl_query(const wl_t *w, uint32_t q, uint32_t keep, uint64_t *to)
{
    uint32_t  s, d;

    s = wl_mix((UINT64_C(1) << 40) + q) % w->n;
    memcpy(to, w->locals + (size_t) s * WL_DEPTH, keep * sizeof(uint64_t));

    for (d = keep; d < WL_DEPTH; d++) {
        to[d] = wl_local((UINT64_C(1) << 35) + q, d);
    }
}


static inline uint64_t
wl_now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}


static inline int
wl_order(const void *a, const void *b)
{
    uint64_t  x, y;

    x = *(const uint64_t *) a;
    y = *(const uint64_t *) b;

    return x < y ? -1 : x > y;
}


#endif /* WORKLOAD_H_INCLUDED */
