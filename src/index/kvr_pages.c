/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_pages.h"


static kvr_rc_t kvr_pages_replace(kvr_arena_t *a, kvr_pages_t *p, uint32_t i,
    uint32_t had, uint32_t used, uint32_t words);
static uint32_t kvr_pages_tail(uint32_t n);


/* The last piece of n words, which are not 0. */

static uint32_t
kvr_pages_tail(uint32_t n)
{
    return ((n - 1) % KVR_PAGE + 8) & ~7u;
}


/* Piece i, of `had` words, `used` of them in use, gets `words`. */

static kvr_rc_t
kvr_pages_replace(kvr_arena_t *a, kvr_pages_t *p, uint32_t i, uint32_t had,
    uint32_t used, uint32_t words)
{
    uint32_t  piece;

    piece = kvr_arena_alloc(a, words);
    if (piece == 0) {
        return KVR_FULL;
    }

    kvr_copy_words(kvr_arena_at(a, piece), kvr_arena_at(a, p->pieces[i]),
                   used);

    kvr_arena_free(a, p->pieces[i], had);
    kvr_set32(a->mem, &p->pieces[i], piece);

    return KVR_OK;
}


kvr_rc_t
kvr_pages_grow(kvr_arena_t *a, kvr_pages_t *p, uint32_t used, uint32_t n)
{
    uint32_t  i, last, tail, piece, words;
    kvr_rc_t  rc;

    last = kvr_pages_number(used);
    tail = kvr_pages_tail(n);
    words = kvr_pages_number(n) > last ? KVR_PAGE : tail;

    if (n <= used || (kvr_pages_number(n) == last && tail <= p->tail)) {
        return KVR_OK;
    }

    if (last && p->tail < words) {
        rc = kvr_pages_replace(a, p, last - 1, p->tail,
                               used - (last - 1) * KVR_PAGE, words);
        if (rc != KVR_OK) {
            return rc;
        }
    }

    for (i = last; i < kvr_pages_number(n); i++) {

        words = i + 1 < kvr_pages_number(n) ? KVR_PAGE : tail;

        piece = kvr_arena_alloc(a, words);
        if (piece == 0) {
            return KVR_FULL;
        }

        kvr_set32(a->mem, &p->pieces[i], piece);
    }

    kvr_set32(a->mem, &p->tail, tail);

    return KVR_OK;
}


void
kvr_pages_trim(kvr_arena_t *a, kvr_pages_t *p, uint32_t used, uint32_t n)
{
    uint32_t  i, tail, last;

    last = kvr_pages_number(n);
    tail = p->tail;

    for (i = kvr_pages_number(used); i-- > last; tail = KVR_PAGE) {
        kvr_arena_free(a, p->pieces[i], tail);
    }

    if (last == 0) {
        tail = 0;

    } else if (kvr_pages_tail(n) < tail
               && kvr_pages_replace(a, p, last - 1, tail,
                                    n - (last - 1) * KVR_PAGE,
                                    kvr_pages_tail(n))
                  == KVR_OK)
    {
        /* where there is no room for a shorter one, the long one stays */

        tail = kvr_pages_tail(n);
    }

    if (tail != p->tail) {
        kvr_set32(a->mem, &p->tail, tail);
    }
}


uint32_t
kvr_pages_words(const kvr_pages_t *p, uint32_t n)
{
    if (n == 0) {
        return 0;
    }

    return (kvr_pages_number(n) - 1) * kvr_arena_rounded(KVR_PAGE)
           + kvr_arena_rounded(p->tail);
}
