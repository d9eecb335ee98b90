/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_pages.h"


const uint8_t  kvr_pages_tails[] = { 8, 16, 24, 32, 48, 48, 64, 64,
                                     96, 96, 96, 96, 128, 128, 128, 128 };


/* Replaces piece i, which has `used` words in use, by one of `words` words. */

static kvr_rc_t
kvr_pages_replace(kvr_arena_t *a, kvr_pages_t p, uint32_t i, uint32_t used,
    uint32_t words)
{
    uint32_t  piece;

    piece = kvr_arena_alloc(a, words);
    if (piece == 0) {
        return KVR_FULL;
    }

    kvr_copy_words(kvr_arena_at(a, piece), kvr_arena_at(a, p.pieces[i]),
                   used);

    kvr_arena_free(a, p.pieces[i]);
    kvr_set32(a->mem, &p.pieces[i], piece);

    return KVR_OK;
}


kvr_rc_t
kvr_pages_grow(kvr_arena_t *a, kvr_pages_t p, uint32_t used, uint32_t n)
{
    uint32_t  i, last, number, tail, piece, words;
    kvr_rc_t  rc;

    if (n <= used) {
        return KVR_OK;
    }

    last = kvr_pages_number(p, used);
    number = kvr_pages_number(p, n);
    tail = kvr_pages_tail(p, n);

    if (number == last && tail <= *p.tail) {
        return KVR_OK;
    }

    words = number > last ? p.page : tail;

    if (last && *p.tail < words) {
        rc = kvr_pages_replace(a, p, last - 1, used - (last - 1) * p.page,
                               words);
        if (rc != KVR_OK) {
            return rc;
        }
    }

    for (i = last; i < number; i++) {

        piece = kvr_arena_alloc(a, i + 1 < number ? p.page : tail);
        if (piece == 0) {
            return KVR_FULL;
        }

        kvr_set32(a->mem, &p.pieces[i], piece);
    }

    kvr_set32(a->mem, p.tail, tail);

    return KVR_OK;
}


void
kvr_pages_trim(kvr_arena_t *a, kvr_pages_t p, uint32_t used, uint32_t n)
{
    uint32_t  i, tail, last;

    last = kvr_pages_number(p, n);
    tail = *p.tail;

    for (i = kvr_pages_number(p, used); i-- > last; tail = p.page) {
        kvr_arena_free(a, p.pieces[i]);
    }

    if (last == 0) {
        tail = 0;

    } else if (kvr_pages_tail(p, n) < tail) {

        if (kvr_pages_replace(a, p, last - 1, n - (last - 1) * p.page,
                              kvr_pages_tail(p, n))
            == KVR_OK)
        {
            tail = kvr_pages_tail(p, n);

        } else {
            /*
             * when there is no memory for a shorter piece, the long one stays
             */
            kvr_arena_forgo(a);
        }
    }

    if (tail != *p.tail) {
        kvr_set32(a->mem, p.tail, tail);
    }
}
