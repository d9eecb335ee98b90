/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_tally.h"
#include "../core/kvr_hash.h"


void
kvr_tally_add(kvr_tally_t *t, const char *word, size_t len)
{
    uint32_t            i, n;
    uint64_t            key, was;
    kvr_tally_place_t  *p;

    len = kvr_min(len, KVR_TALLY_LEN);
    key = kvr_hash_bytes(word, len, 0) | 1;

    for (n = 0; n < KVR_TALLY_WORDS; n++) {

        i = (uint32_t) ((key >> 8) + n) % KVR_TALLY_WORDS;
        p = &t->places[i];
        was = __atomic_load_n(&p->key, __ATOMIC_ACQUIRE);

        if (was == 0
            && __atomic_compare_exchange_n(&p->key, &was, key, false,
                                           __ATOMIC_ACQ_REL,
                                           __ATOMIC_ACQUIRE))
        {
            memcpy(p->word, word, len);
            __atomic_store_n(&p->len, (uint32_t) len, __ATOMIC_RELEASE);
            was = key;
        }

        if (was == key) {
            (void) __atomic_fetch_add(&p->count, 1, __ATOMIC_RELAXED);
            return;
        }
    }

    (void) __atomic_fetch_add(&t->others, 1, __ATOMIC_RELAXED);
}


uint64_t
kvr_tally_read(const kvr_tally_t *t, uint32_t i, const char **word,
    size_t *len)
{
    const kvr_tally_place_t  *p;

    p = &t->places[i];

    *len = __atomic_load_n(&p->len, __ATOMIC_ACQUIRE);
    *word = p->word;

    return __atomic_load_n(&p->count, __ATOMIC_RELAXED);
}
