/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_check.h"
#include "kvr_check_pieces.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>


static void kvr_check_nobodys(void *data, uint32_t piece, uint32_t words);


static char  kvr_check_why[256];


bool
kvr_check_open(kvr_check_pieces_t *p, const kvr_arena_t *arena)
{
    p->arena = arena;
    p->why = NULL;
    p->marks = calloc(arena->zone->bump / 64 + 1, sizeof(uint64_t));

    return p->marks != NULL;
}


void
kvr_check_close(kvr_check_pieces_t *p)
{
    free(p->marks);
}


const char *
kvr_check_piece(kvr_check_pieces_t *p, uint32_t piece, uint32_t words,
    const char *what)
{
    uint64_t  i;

    if (piece < 8 || (uint64_t) piece + words > p->arena->zone->bump) {
        return kvr_check_fail("%s piece %u of %u words is outside", what,
                              piece, words);
    }

    for (i = piece; i < (uint64_t) piece + words; i++) {

        if (p->marks[i / 64] >> (i & 63) & 1) {
            return kvr_check_fail("%s piece %u of %u words is another's too",
                                  what, piece, words);
        }

        p->marks[i / 64] |= UINT64_C(1) << (i & 63);
    }

    return NULL;
}


const char *
kvr_check_alloc(kvr_check_pieces_t *p, uint32_t piece, uint32_t n,
    const char *what, uint64_t *used)
{
    uint32_t  words;

    if (piece >= p->arena->zone->bump) {
        return kvr_check_fail("%s piece %u is outside", what, piece);
    }

    words = kvr_arena_size(p->arena, piece);

    if (words < n) {
        return kvr_check_fail("%s piece %u has %u words of %u", what, piece,
                              words, n);
    }

    *used += words;

    return kvr_check_piece(p, piece, words, what);
}


const char *
kvr_check_free(kvr_check_pieces_t *p)
{
    const char  *why;

    why = kvr_arena_check(p->arena, kvr_check_nobodys, p);

    return why ? kvr_check_fail("the arena: %s", why) : p->why;
}


static void
kvr_check_nobodys(void *data, uint32_t piece, uint32_t words)
{
    const char          *why;
    kvr_check_pieces_t  *p;

    p = data;
    why = kvr_check_piece(p, piece, words, "free");

    if (p->why == NULL) {
        p->why = why;
    }
}


const char *
kvr_check_fail(const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    vsnprintf(kvr_check_why, sizeof(kvr_check_why), fmt, args);
    va_end(args);

    return kvr_check_why;
}
