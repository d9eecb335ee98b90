/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The invariants of the index and of its memory, for the tests and the fuzz
 * targets: each function looks at all of them and returns NULL, or a sentence
 * that says which one is broken, in a static buffer.  The caller holds the
 * zone's lock, and the log is empty.  The functions take long.
 */


#ifndef KVR_CHECK_H_INCLUDED
#define KVR_CHECK_H_INCLUDED


#include "index/kvr_index.h"


/* Either index, by its kind. */
const char *kvr_index_check(const kvr_index_t *x);

const char *kvr_radix_check(const kvr_radix_t *x);
const char *kvr_positional_check(const kvr_positional_t *x);

/* Also calls nobodys() for each piece below the bump that is free or in
   limbo. */
const char *kvr_arena_check(const kvr_arena_t *a,
    void (*nobodys)(void *data, uint32_t piece, uint32_t words), void *data);


#endif /* KVR_CHECK_H_INCLUDED */
