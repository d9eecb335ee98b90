/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The pieces of an arena, each of which must be one thing's alone: what the
 * checks of both indexes share.
 */


#ifndef KVR_CHECK_PIECES_H_INCLUDED
#define KVR_CHECK_PIECES_H_INCLUDED


#include "core/kvr_arena.h"


typedef struct {
    const kvr_arena_t  *arena;
    uint64_t           *marks;          /* a bit for each word */
    const char         *why;            /* of a free piece */
} kvr_check_pieces_t;


/* False: out of memory.  To be closed in any case. */
bool kvr_check_open(kvr_check_pieces_t *p, const kvr_arena_t *arena);
void kvr_check_close(kvr_check_pieces_t *p);

/* Takes the words of a piece; they must be nobody's so far. */
const char *kvr_check_piece(kvr_check_pieces_t *p, uint32_t piece,
    uint32_t words, const char *what);

/* A piece of the arena, of n words at least; *used: and what it takes. */
const char *kvr_check_alloc(kvr_check_pieces_t *p, uint32_t piece,
    uint32_t n, const char *what, uint64_t *used);

/* Those that the arena has as free must be all that are left. */
const char *kvr_check_free(kvr_check_pieces_t *p);

/* The message, in a static buffer. */
const char *kvr_check_fail(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));


#endif /* KVR_CHECK_PIECES_H_INCLUDED */
