/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Pages: rows of words in pieces of the arena, as a run's hashes and names
 * are kept.  They grow at the end.
 *
 *     piece, a page │ piece, a page │ piece, `tail` words
 *
 * Only the last piece is shorter, of any size that the arena has; when it gets
 * too short a longer one takes its place.  How many words are in use the owner
 * knows.
 */


#ifndef KVR_PAGES_H_INCLUDED
#define KVR_PAGES_H_INCLUDED


#include "../core/kvr_arena.h"


/* Where the owner keeps them. */
typedef struct {
    uint32_t   *pieces;
    uint32_t   *tail;                   /* words of the last one; 0: none */
    uint32_t    page;                   /* words of the others */
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


#endif /* KVR_PAGES_H_INCLUDED */
