/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Pages: rows of words in pieces of the arena; a run keeps its hashes and its
 * handles in such rows.  Rows grow at the end.
 *
 *     piece, a page │ piece, a page │ piece, `tail` words
 *
 * Only the last piece is shorter; when it gets too short a longer one takes
 * its place.  How many words are in use the owner knows.
 */


#ifndef KVR_PAGES_H_INCLUDED
#define KVR_PAGES_H_INCLUDED


#include "../core/kvr_arena.h"


/* Where the owner keeps them. */
typedef struct {
    uint32_t   *pieces;
    uint32_t   *tail;                   /* words of the last one; 0: none */
    uint32_t    page;                   /* words of the others, to 128 */
} kvr_pages_t;


/*
 * Room for n words where `used` are in use.  What readers look at is to be
 * locked by the caller.  KVR_FULL.
 */
kvr_rc_t kvr_pages_grow(kvr_arena_t *a, kvr_pages_t p, uint32_t used,
    uint32_t n);

/* Gives back what n words of `used` don't need; locked as above. */
void kvr_pages_trim(kvr_arena_t *a, kvr_pages_t p, uint32_t used, uint32_t n);

/* Pieces that n words are in. */
static inline uint32_t
kvr_pages_number(kvr_pages_t p, uint32_t n)
{
    return (n + p.page - 1) / p.page;
}


/*
 * The last piece of n words, which are not 0.  Two sizes to a doubling: who
 * grows or shrinks word by word moves seldom, and what has shrunk takes what
 * it took before it grew.
 */

extern const uint8_t  kvr_pages_tails[16];

static inline uint32_t
kvr_pages_tail(kvr_pages_t p, uint32_t n)
{
    return kvr_pages_tails[(n - 1) % p.page / 8];
}


/* To grow or to trim from one to the other would change nothing. */
static inline bool
kvr_pages_stay(kvr_pages_t p, uint32_t from, uint32_t to)
{
    return kvr_pages_number(p, from) == kvr_pages_number(p, to)
           && (to == 0 || kvr_pages_tail(p, to) == *p.tail);
}


#endif /* KVR_PAGES_H_INCLUDED */
