/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Pieces that were merged a while ago, with their ids: words come again.
 *
 * A piece has one slot, by its hash.  A piece that finds its slot taken by
 * another one takes it over: nothing is ever evicted otherwise, and a
 * collision costs time only.  Pieces that are too long for a slot are not
 * kept.
 *
 * For one thread, and one tokenizer.
 */


#ifndef KVR_PIECES_H_INCLUDED
#define KVR_PIECES_H_INCLUDED


#include "../kvr.h"


#define KVR_PIECES_SLOTS     16384      /* 1.5 MB: more are hardly faster */

#define KVR_PIECES_LEN       124        /* bytes of a piece that is kept */
#define KVR_PIECES_IDS       32         /* ids of such a piece */


typedef struct kvr_pieces_s  kvr_pieces_t;


/*
 * slots: a power of 2, 8 at least; an eighth as many are there for longer
 * pieces, in addition.  NULL: no memory, or no such number.
 */
kvr_pieces_t *kvr_pieces_new(uint32_t slots);
void kvr_pieces_free(kvr_pieces_t *p);

/*
 * Copies a piece's ids to out, which has room for KVR_PIECES_IDS; returns
 * their number, 0: the piece is not there.  hash: XXH3-64 of the piece.
 */
uint32_t kvr_pieces_find(kvr_pieces_t *p, const char *text, size_t len,
    uint64_t hash, uint32_t *out);

/* Keeps a piece, if it is short enough. */
void kvr_pieces_keep(kvr_pieces_t *p, const char *text, size_t len,
    uint64_t hash, const uint32_t *ids, uint32_t n);


#endif /* KVR_PIECES_H_INCLUDED */
