/*
 * Copyright (C) the nginx-kv-router authors
 *
 * JSON text that is given to yajl piece by piece: up to a brace that closes
 * an object, then up to the next, so that at most one event ends in a piece.
 * Events come out one by one, and what was good before a syntax error is good
 * still.
 */


#ifndef KVR_PIECES_H_INCLUDED
#define KVR_PIECES_H_INCLUDED


#include "kvr_decoder.h"

#include <yajl/yajl_parse.h>


/*
 * Containers that we don't look into may be nested this deep.  More than in
 * msgpack: Dynamo's mm_extra_info alone has five in one another.
 */
#define KVR_PIECES_DEPTH  8


typedef struct {
    yajl_handle      parser;
    const char      *pos;
    size_t           left;

    bool             over;          /* with the answer in rc */
    kvr_rc_t         rc;            /* KVR_DONE or KVR_INVALID */
} kvr_pieces_t;


/* Many values after one another are fine.  KVR_FULL: out of memory. */
kvr_rc_t kvr_pieces_open(kvr_pieces_t *p, const yajl_callbacks *callbacks,
    void *ctx, const kvr_msgpack_t *in);

void kvr_pieces_feed(kvr_pieces_t *p);
void kvr_pieces_close(kvr_pieces_t *p);


#endif /* KVR_PIECES_H_INCLUDED */
