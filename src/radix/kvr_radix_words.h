/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Functions that read, compare and write the hashes of a run, one word each.
 * Readers use those that compare, too.
 */


#ifndef KVR_RADIX_WORDS_H_INCLUDED
#define KVR_RADIX_WORDS_H_INCLUDED


#include "kvr_radix_state.h"


/* The i-th word of a run's pages. */
#define kvr_radix_paged(x, r, i)                                              \
    ((uint64_t *) kvr_arena_at(&(x)->arena, (r)->pages[(i) / KVR_RUN_PAGE])   \
     + (i) % KVR_RUN_PAGE)


/*
 * To be called before words behind the end of a run's hashes or handles are
 * written.  These words are unused, and need no log, unless they were in use
 * at the beginning of this transaction.
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
 * The number of the first of n hashes that are the run's from an offset on;
 * offset + n must be at most the run's length.  For readers as well: a page
 * number that a writer is changing ends the comparison.
 */
uint32_t kvr_radix_same(const kvr_radix_t *x, const kvr_run_t *r,
    uint32_t offset, const uint64_t *hashes, uint32_t n);

/* The number of the first of n words that are the same. */
uint32_t kvr_radix_compare(const uint64_t *a, const uint64_t *b, uint32_t n);


#endif /* KVR_RADIX_WORDS_H_INCLUDED */
