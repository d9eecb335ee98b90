/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A list of byte strings, in the order in which they were added.
 */


#ifndef KVR_RELAY_PARTS_H_INCLUDED
#define KVR_RELAY_PARTS_H_INCLUDED


#include "kvr.h"


typedef struct {
    char      *bytes;
    size_t     len;
} kvr_relay_part_t;


typedef struct {
    kvr_relay_part_t  *items;
    uint32_t           n;
    uint32_t           size;
} kvr_relay_parts_t;


/* Adds a copy of the bytes to parts.  KVR_ERROR: out of memory. */
kvr_rc_t kvr_relay_parts_add(void *parts, const void *bytes, size_t len);
void kvr_relay_parts_free(kvr_relay_parts_t *parts);


#endif /* KVR_RELAY_PARTS_H_INCLUDED */
