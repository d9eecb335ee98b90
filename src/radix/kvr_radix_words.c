/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_radix_words.h"


#define KVR_RADIX_FEW        16         /* words, compared one by one */


uint64_t
kvr_radix_hash(const kvr_radix_t *x, const kvr_run_t *run, uint32_t offset)
{
    if (offset < KVR_RUN_INLINE) {
        return run->hashes[offset];
    }

    return *kvr_radix_paged(x, run, offset - KVR_RUN_INLINE);
}


/*
 * How many of n hashes equal the run's, from an offset on? The run must have n
 * blocks there.
 */

uint32_t
kvr_radix_same(const kvr_radix_t *x, const kvr_run_t *r, uint32_t offset,
    const uint64_t *hashes, uint32_t n)
{
    uint32_t         i, k, m, at, piece;
    const uint64_t  *part;

    for (i = 0; i < n; i += m) {

        at = offset + i;

        if (at < KVR_RUN_INLINE) {
            m = KVR_RUN_INLINE - at;
            part = r->hashes + at;

        } else {
            at -= KVR_RUN_INLINE;
            piece = kvr_load32(&r->pages[at / KVR_RUN_PAGE]);
            at %= KVR_RUN_PAGE;
            m = kvr_min(KVR_RUN_PAGE - at, n - i);

            if (!kvr_arena_valid(&x->arena, piece, at + m)) {
                return i;               /* torn: the version will tell */
            }

            part = (uint64_t *) kvr_arena_at(&x->arena, piece) + at;
        }

        m = kvr_min(m, n - i);
        k = kvr_radix_compare(part, hashes + i, m);

        if (k < m) {
            return i + k;
        }
    }

    return n;
}


/* The C library compares with the widest instructions that the CPU has. */

uint32_t
kvr_radix_compare(const uint64_t *a, const uint64_t *b, uint32_t n)
{
    uint32_t  i, half;

    if (kvr_same_words(a, b, n)) {
        return n;
    }

    /*
     * the words differ: find the place by halving, the data is in the cache
     * now
     */

    i = 0;

    while (n > KVR_RADIX_FEW) {
        half = n / 2;

        if (kvr_same_words(a + i, b + i, half)) {
            i += half;
            n -= half;

        } else {
            n = half;
        }
    }

    for ( /* void */ ; n && kvr_load64(&a[i]) == b[i]; n--) {
        i++;
    }

    return i;
}
