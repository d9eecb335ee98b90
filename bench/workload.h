/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The benchmarks' workload: the same numbers in every program that takes part
 * (peers/common/workload.rs says it in Rust).  Nothing is random: all is made
 * of mix(), the finaliser of splitmix64.
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
 * ones     262144 prompts of one block, block 0 of 2^36 + i, prompt i on
 *          worker i % 128
 * stairs   128 staircases, staircase s on worker s; step d is a block of
 *          2^37 + s behind step d - 1, and behind it one of 2^38 + s, which is
 *          an end; one event a step, step d of all of them before d + 1
 *
 * Chats and the trace come as files: script.py.
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
#define WL_ONES      262144u
#define WL_STAIRS    128u

/* XOR of the hashes of the prompt that is hashed, by tokens a block. */
#define WL_HASHED_16 UINT64_C(0xa91ae5c2161e6ae2)
#define WL_HASHED_64 UINT64_C(0x5f9c613a235bcd6d)


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


/* Query q: its first `keep` blocks are held; the sequence they are of. */

static inline uint32_t
wl_query(const wl_t *w, uint32_t q, uint32_t keep, uint64_t *to)
{
    uint32_t  s, d;

    s = wl_mix((UINT64_C(1) << 40) + q) % w->n;
    memcpy(to, w->locals + (size_t) s * WL_DEPTH, keep * sizeof(uint64_t));

    for (d = keep; d < WL_DEPTH; d++) {
        to[d] = wl_local((UINT64_C(1) << 35) + q, d);
    }

    return s;
}


static inline uint64_t
wl_one(uint32_t i)
{
    return wl_local((UINT64_C(1) << 36) + i, 0);
}


typedef struct {
    uint64_t   *locals;             /* of a step two, side by side */
    uint64_t   *handles;
} wl_stairs_t;


/* Where step d of a staircase is; the end behind it is the next. */
static inline size_t
wl_stair(uint32_t s, uint32_t d)
{
    return ((size_t) s * WL_DEPTH + d) * 2;
}


static inline void
wl_stairs_make(wl_stairs_t *w, uint32_t first, uint32_t n)
{
    size_t     at;
    uint32_t   s, d;
    uint64_t   pair[2], out[2];

    w->locals = wl_alloc(wl_stair(n, 0) * sizeof(uint64_t));
    w->handles = wl_alloc(wl_stair(n, 0) * sizeof(uint64_t));

    for (s = 0; s < n; s++) {
        for (d = 0; d < WL_DEPTH; d++) {
            at = wl_stair(s, d);
            w->locals[at] = wl_local((UINT64_C(1) << 37) + first + s, d);
            w->locals[at + 1] = wl_local((UINT64_C(1) << 38) + first + s, d);

            /* the hash of a chain of two is that of (parent, block) */

            pair[0] = d ? w->handles[at - 2] : w->locals[at];
            pair[1] = w->locals[at];
            kvr_hash_sequence(pair, 2, out);
            w->handles[at] = d ? out[1] : out[0];

            pair[0] = w->handles[at];
            pair[1] = w->locals[at + 1];
            kvr_hash_sequence(pair, 2, out);
            w->handles[at + 1] = out[1];
        }
    }
}


static inline void
wl_stairs_free(wl_stairs_t *w)
{
    free(w->locals);
    free(w->handles);
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
