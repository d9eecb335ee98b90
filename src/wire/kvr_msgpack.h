/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A bounded msgpack reader over bytes that are all there: libmpack reads the
 * tokens, this adds what hostile input asks for.
 *
 *   - a string's bytes and a container's elements are never more than the
 *     bytes that are left, so a count may be trusted for an allocation;
 *   - nothing recurses: a value is skipped with a table of KVR_MSGPACK_DEPTH
 *     counters, whatever its depth;
 *   - what is broken stays broken: KVR_INVALID leaves nothing to read.
 */


#ifndef KVR_MSGPACK_H_INCLUDED
#define KVR_MSGPACK_H_INCLUDED


#include "../kvr.h"

/* in C23 this is no macro any more, and mpack.h would make one of its own */

#ifndef bool
#define bool  bool
#endif

#include <mpack.h>


#define KVR_MSGPACK_DEPTH  8    /* containers in one another; events need 6 */


typedef struct {
    const char          *pos;
    size_t               left;
} kvr_msgpack_t;


typedef struct {
    mpack_token_type_t   type;      /* MPACK_TOKEN_SINT: below zero */
    uint32_t             count;     /* bytes, elements, or pairs of a map */
    uint64_t             number;    /* integers, in two's complement; bool */
    const char          *bytes;     /* strings, not terminated */
} kvr_msgpack_item_t;


/* Reads one token; a string comes with its bytes, a container without. */
kvr_rc_t kvr_msgpack_read(kvr_msgpack_t *in, kvr_msgpack_item_t *item);

/*
 * Skips the contents of an item that was just read.  KVR_FULL: the value was
 * skipped, but its containers, the item included, were nested deeper than
 * `room`.
 */
kvr_rc_t kvr_msgpack_skip_rest(kvr_msgpack_t *in,
    const kvr_msgpack_item_t *item, uint32_t room);

/* Skips a whole value; the answers are those of kvr_msgpack_skip_rest(). */
kvr_rc_t kvr_msgpack_skip(kvr_msgpack_t *in, uint32_t room);

/*
 * Reads up to n integers of 0..2^32-1 and returns their number.  The first
 * value of another kind ends the call.
 */
uint32_t kvr_msgpack_u32s(kvr_msgpack_t *in, uint32_t *out, uint32_t n);

/* True for a string that equals the terminated one. */
bool kvr_msgpack_equals(const kvr_msgpack_item_t *item, const char *text);


#endif /* KVR_MSGPACK_H_INCLUDED */
