/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A bounded msgpack writer, of what kvr_msgpack.h reads.  When there is no
 * room for a value, `full' is set, and nothing more is written.
 */


#ifndef KVR_PACKER_H_INCLUDED
#define KVR_PACKER_H_INCLUDED


#include "kvr_msgpack.h"


typedef struct {
    char    *pos;
    size_t   left;
    bool     full;
} kvr_packer_t;


void kvr_pack(kvr_packer_t *out, mpack_token_t token);
void kvr_pack_u64(kvr_packer_t *out, uint64_t value);

/* The value, or nil. */
void kvr_pack_maybe(kvr_packer_t *out, bool is, uint64_t value);

void kvr_pack_text(kvr_packer_t *out, const char *text, size_t len);

/* Bytes as they are, without a head. */
void kvr_pack_bytes(kvr_packer_t *out, const void *bytes, size_t len);

/* A bin of n numbers, of `width' bytes each, the low byte first. */
void kvr_pack_numbers(kvr_packer_t *out, const uint64_t *values, uint32_t n,
    uint32_t width);


#endif /* KVR_PACKER_H_INCLUDED */
