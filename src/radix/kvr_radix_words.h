/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The hashes of a run, one word each, are read, compared and written.
 * Readers compare, too.
 */


#ifndef KVR_RADIX_WORDS_H_INCLUDED
#define KVR_RADIX_WORDS_H_INCLUDED


#include "kvr_radix_state.h"


/* The i-th word of its pages. */
#define kvr_radix_paged(x, r, i)                                              \
    ((uint64_t *) kvr_arena_at(&(x)->arena, (r)->pages[(i) / KVR_RUN_PAGE])   \
     + (i) % KVR_RUN_PAGE)


/*
 * Before words behind the end of a run's hashes, or names, are written.  They
 * are nobody's, and need no log, unless they were somebody's at the beginning
 * of this transaction.
 */
static inline void
kvr_radix_keep(kvr_radix_t *x, const uint64_t *words, uint32_t n)
{
    uint32_t  i;

    if (x->trimmed) {
        for (i = 0; i < n; i++) {
            kvr_txn_log(x->mem, &words[i], KVR_UNDO_64, words[i]);
        }
    }
}


/* The hash at an offset below the run's len. */
uint64_t kvr_radix_hash(const kvr_radix_t *x, const kvr_run_t *run,
    uint32_t offset);

/*
 * How many of n hashes are the run's, from an offset on; offset + n is at most
 * its length.  For readers as well: what is torn ends it.
 */
uint32_t kvr_radix_same(const kvr_radix_t *x, const kvr_run_t *r,
    uint32_t offset, const uint64_t *hashes, uint32_t n);

/* How many of n words are the same. */
uint32_t kvr_radix_compare(const uint64_t *a, const uint64_t *b, uint32_t n);


#endif /* KVR_RADIX_WORDS_H_INCLUDED */
