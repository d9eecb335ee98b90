/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Pages: a row of 64-bit words that grows at its end.  A run keeps its hashes
 * and its handles in such rows.  A row consists of pieces of the arena:
 *
 *     piece of `page` words │ piece of `page` words │ piece of `tail` words
 *
 * Only the last piece can be shorter than a page.  If more words are needed, a
 * longer piece replaces the last one, or a new piece follows it.  The owner of
 * the row knows how many of its words are in use.
 */


#ifndef KVR_PAGES_H_INCLUDED
#define KVR_PAGES_H_INCLUDED


#include "../core/kvr_arena.h"


/* A row; the two pointers point into its owner. */
typedef struct {
    uint32_t   *pieces;                 /* the arena's numbers of the pieces */
    uint32_t   *tail;                   /* words of the last piece; 0: the row
                                           has no piece */
    uint32_t    page;                   /* words of each other piece, at most
                                           128 */
} kvr_pages_t;


/*
 * Enlarges a row of which `used` words are in use, if necessary, to n words.
 * If readers can see the row, the caller has made its version odd.  KVR_FULL:
 * the arena has no memory, and the caller rolls back.
 */
kvr_rc_t kvr_pages_grow(kvr_arena_t *a, kvr_pages_t p, uint32_t used,
    uint32_t n);

/*
 * Frees the pieces that n of the `used` words do not need.  The version is odd
 * as above.
 */
void kvr_pages_trim(kvr_arena_t *a, kvr_pages_t p, uint32_t used, uint32_t n);

/* The number of pieces of a row of n words. */
static inline uint32_t
kvr_pages_number(kvr_pages_t p, uint32_t n)
{
    return (n + p.page - 1) / p.page;
}


/*
 * The size of the last piece of a row of n words, in words; n is not 0.  There
 * are two sizes to each doubling, so that a row that grows or shrinks word by
 * word seldom moves.  The size depends on n alone: a row that has grown and
 * shrunk again takes the memory that it took before.
 */

extern const uint8_t  kvr_pages_tails[16];

static inline uint32_t
kvr_pages_tail(kvr_pages_t p, uint32_t n)
{
    return kvr_pages_tails[(n - 1) % p.page / 8];
}


/* True if a row of `from` words keeps its pieces when it has `to` words. */
static inline bool
kvr_pages_stay(kvr_pages_t p, uint32_t from, uint32_t to)
{
    return kvr_pages_number(p, from) == kvr_pages_number(p, to)
           && (to == 0 || kvr_pages_tail(p, to) == *p.tail);
}


#endif /* KVR_PAGES_H_INCLUDED */
