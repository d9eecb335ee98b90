/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What engines can be asked for, and when a probe has to look again.
 */


#include "kvr_rungs.h"


#define KVR_RUNGS_WORDS  (sizeof(kvr_rungs_found_t) / sizeof(uint64_t))


bool
kvr_rungs_due(kvr_rungs_t *r, uint64_t mark, uint64_t now_ms)
{
    return kvr_due_take(&r->due, mark, now_ms, KVR_RUNGS_LEASE_MS,
                        UINT64_MAX);
}


void
kvr_rungs_write(kvr_rungs_t *r, uint32_t generation,
    const kvr_rungs_found_t *found, uint64_t now_ms)
{
    uint32_t           seq;
    kvr_rungs_found_t  copy;

    seq = kvr_load32(&r->seq) | 1;

    copy = *found;
    copy.rungs |= KVR_RUNG_KNOWN;

    kvr_put32(&r->seq, seq);
    kvr_fence(__ATOMIC_RELEASE);

    kvr_put32(&r->generation, generation);
    kvr_copy_words(&r->found, &copy, KVR_RUNGS_WORDS);

    __atomic_store_n(&r->seq, seq + 1, __ATOMIC_RELEASE);

    kvr_put32(&r->failed, 0);
    kvr_put64(&r->due.at_ms, now_ms + KVR_RUNGS_AGAIN_MS);
}


uint32_t
kvr_rungs_failed(kvr_rungs_t *r, uint64_t now_ms)
{
    uint32_t  n;
    uint64_t  delay;

    n = kvr_load32(&r->failed);

    delay = KVR_RUNGS_RETRY_MAX_MS;

    if (n < 16 && ((uint64_t) KVR_RUNGS_RETRY_MS << n) < delay) {
        delay = (uint64_t) KVR_RUNGS_RETRY_MS << n;
    }

    n = (n == UINT32_MAX) ? n : n + 1;

    kvr_put32(&r->failed, n);
    kvr_put64(&r->due.at_ms, now_ms + delay);

    return n;
}


bool
kvr_rungs_read(const kvr_rungs_t *r, uint32_t generation,
    kvr_rungs_found_t *found)
{
    uint32_t  seq;

    seq = __atomic_load_n(&r->seq, __ATOMIC_ACQUIRE);

    if ((seq & 1) == 0 && kvr_load32(&r->generation) == generation) {
        kvr_copy_words(found, &r->found, KVR_RUNGS_WORDS);
        kvr_fence(__ATOMIC_ACQUIRE);

        if (kvr_load32(&r->seq) == seq && (found->rungs & KVR_RUNG_KNOWN)) {
            found->version[KVR_RUNGS_VERSION_MAX] = '\0';
            return true;
        }
    }

    memset(found, 0, sizeof(kvr_rungs_found_t));

    return false;
}


uint32_t
kvr_rungs_bits(const kvr_rungs_t *r, uint32_t generation)
{
    kvr_rungs_found_t  found;

    return kvr_rungs_read(r, generation, &found) ? found.rungs : 0;
}


void
kvr_rungs_doubt(kvr_rungs_t *r, uint64_t now_ms)
{
    uint64_t  last;

    last = kvr_load64(&r->doubt_ms);

    if ((last && now_ms < last + KVR_RUNGS_DOUBT_MS)
        || !__atomic_compare_exchange_n(&r->doubt_ms, &last, now_ms, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    {
        return;
    }

    kvr_put64(&r->due.at_ms, now_ms);
}
