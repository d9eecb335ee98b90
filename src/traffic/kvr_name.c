/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The addresses that host names of workers have at present.
 */


#include "kvr_name.h"


#define KVR_NAME_WORDS  (sizeof(kvr_name_found_t) / sizeof(uint64_t))


bool
kvr_name_due(kvr_name_t *n, uint64_t mark, uint64_t now_ms)
{
    /*
     * a late result for another name may have been written: then no more than
     * the time of a lookup is waited for
     */

    return kvr_due_take(&n->due, mark, now_ms, KVR_NAME_LEASE_MS,
                        kvr_load64(&n->found.mark) == mark
                        ? UINT64_MAX : KVR_NAME_LEASE_MS);
}


bool
kvr_name_write(kvr_name_t *n, const kvr_name_found_t *found, uint64_t due_ms)
{
    uint32_t          seq;
    kvr_name_found_t  before;

    if (kvr_load64(&n->due.mark) != found->mark) {
        return false;
    }

    if (kvr_name_read(n, found->mark, &before)
        && memcmp(&before, found, sizeof(kvr_name_found_t)) == 0)
    {
        kvr_put64(&n->due.at_ms, due_ms);
        return false;
    }

    seq = kvr_load32(&n->seq) | 1;

    kvr_put32(&n->seq, seq);
    kvr_fence(__ATOMIC_RELEASE);

    kvr_copy_words(&n->found, found, KVR_NAME_WORDS);

    __atomic_store_n(&n->seq, seq + 1, __ATOMIC_RELEASE);

    kvr_put64(&n->due.at_ms, due_ms);

    return true;
}


bool
kvr_name_read(const kvr_name_t *n, uint64_t mark, kvr_name_found_t *found)
{
    uint32_t  seq;

    seq = __atomic_load_n(&n->seq, __ATOMIC_ACQUIRE);

    if ((seq & 1) == 0) {
        kvr_copy_words(found, &n->found, KVR_NAME_WORDS);
        kvr_fence(__ATOMIC_ACQUIRE);

        if (kvr_load32(&n->seq) == seq && found->mark == mark) {
            found->address[KVR_NAME_ADDRESS - 1] = '\0';
            return true;
        }
    }

    memset(found, 0, sizeof(kvr_name_found_t));

    return false;
}
