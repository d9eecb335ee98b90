/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_roots.h"


static void kvr_roots_count(kvr_radix_t *x, uint64_t key, bool more);


uint64_t
kvr_roots_cells(uint64_t slots)
{
    uint64_t  cells;

    for (cells = 64; cells * 4 <= slots && cells < KVR_ROOTS_MAX; cells *= 2) {
        /* void */
    }

    return cells;
}


size_t
kvr_roots_size(uint64_t cells)
{
    return (cells / 8 + cells * sizeof(uint16_t) + 63) & ~(size_t) 63;
}


void
kvr_roots_add(kvr_radix_t *x, uint64_t key)
{
    kvr_roots_count(x, key, true);
}


void
kvr_roots_delete(kvr_radix_t *x, uint64_t key)
{
    kvr_roots_count(x, key, false);
}


/* Adds a root to its cell's count, or takes one from it. */

static void
kvr_roots_count(kvr_radix_t *x, uint64_t key, bool more)
{
    uint16_t  count;
    uint64_t  cell;

    cell = kvr_roots_cell(x, key);
    count = x->root_counts[cell];

    if (count == UINT16_MAX) {
        return;
    }

    if (count == (more ? 0 : 1)) {
        kvr_set64(x->mem, &x->root_bits[cell / 64],
                  x->root_bits[cell / 64] ^ UINT64_C(1) << (cell & 63));
    }

    kvr_set16(x->mem, &x->root_counts[cell], more ? count + 1 : count - 1);
}
