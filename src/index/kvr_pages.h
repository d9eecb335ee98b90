/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Pages: up to KVR_PAGES * KVR_PAGE words in pieces of the arena, as a run's
 * hashes and names are kept.  They grow at the end.
 *
 *     piece, 64 words │ piece, 64 words │ piece, `tail` words
 *
 * Only the last piece is shorter, a multiple of 8 words; when it gets too
 * short a longer one takes its place.  How many words are in use the owner
 * knows.
 */


#ifndef KVR_PAGES_H_INCLUDED
#define KVR_PAGES_H_INCLUDED


#include "../core/kvr_arena.h"


#define KVR_PAGES            8
#define KVR_PAGE             64


typedef struct {
    uint32_t    pieces[KVR_PAGES];
    uint32_t    tail;                   /* words of the last one; 0: none */
} kvr_pages_t;


#define kvr_pages_number(n)  (((n) + KVR_PAGE - 1) / KVR_PAGE)

/* Where word i is; for those who know that it is there. */
#define kvr_pages_at(arena, p, i)                                             \
    ((uint64_t *) kvr_arena_at(arena, (p)->pieces[(i) / KVR_PAGE])            \
     + (i) % KVR_PAGE)


/*
 * Room for n words where `used` are in use, n <= KVR_PAGES * KVR_PAGE.  What
 * readers look at is to be locked by the caller.  KVR_FULL.
 */
kvr_rc_t kvr_pages_grow(kvr_arena_t *a, kvr_pages_t *p, uint32_t used,
    uint32_t n);

/* Gives back what n words of `used` don't need; locked as above. */
void kvr_pages_trim(kvr_arena_t *a, kvr_pages_t *p, uint32_t used, uint32_t n);

/* Words of the arena that n take. */
uint32_t kvr_pages_words(const kvr_pages_t *p, uint32_t n);


#endif /* KVR_PAGES_H_INCLUDED */
