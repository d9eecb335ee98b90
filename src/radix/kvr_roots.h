/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Roots: a filter of the first blocks that there are.
 *
 *     first hash ──► cell:  count, 16 bits │ bit: is it not 0?
 *
 * A prompt that begins as no other does is the commonest miss.  The children's
 * table answers it, but is too large for the processor's caches, as is its
 * bitmap in a large zone; these bits are 64 KiB at most.
 *
 * A bit that is 0 says that nothing hangs on the root by such a hash, and that
 * is always true.  One that is 1 says nothing: the table is asked.  So the
 * worst that can happen, with many more first blocks than cells, is one look
 * for nothing.
 *
 * A count that comes to its end stays there, and its bit stays 1: that would
 * take 65,535 first blocks in one cell of a table whose keys are secret.
 *
 * Readers look at a bit without a lock, and need no version: it never changes
 * because of other first blocks than those that a writer brings or takes away.
 */


#ifndef KVR_ROOTS_H_INCLUDED
#define KVR_ROOTS_H_INCLUDED


#include "kvr_radix_state.h"


#define KVR_ROOTS_MAX        (1u << 19) /* cells: 64 KiB of bits */


/* How many cells a table of so many children's slots goes with: 2^k. */
uint64_t kvr_roots_cells(uint64_t slots);

/* Bytes of bits and counts, a multiple of 64; to be zeroed. */
size_t kvr_roots_size(uint64_t cells);

/* key: kvr_children_key() of (root, 0, hash). */
#define kvr_roots_cell(x, key)  ((key) & ((x)->zone->nroots - 1))


/* For readers: false when there is no such child. */
static inline bool
kvr_roots_may(const kvr_radix_t *x, uint64_t key)
{
    uint64_t  cell;

    cell = kvr_roots_cell(x, key);

    return kvr_load64(&x->root_bits[cell / 64]) >> (cell & 63) & 1;
}


/* Writers: a child of the root comes, or goes. */
void kvr_roots_add(kvr_radix_t *x, uint64_t key);
void kvr_roots_delete(kvr_radix_t *x, uint64_t key);


#endif /* KVR_ROOTS_H_INCLUDED */
