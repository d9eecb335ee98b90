/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_routed.h"
#include "../core/kvr_words.h"


/*
 * A record is a word with its number of words, a kvr_routed_record_t, and the
 * hashes.  It does not go over the end of the ring: a word KVR_ROUTED_SKIP
 * says that the next record is at the beginning.
 */
#define KVR_ROUTED_SKIP      UINT64_MAX
#define KVR_ROUTED_FIXED     (1 + sizeof(kvr_routed_record_t) / 8)


static uint64_t *
kvr_routed_at(const kvr_routed_t *r, uint64_t word)
{
    return (uint64_t *) (r + 1) + word % r->words;
}


void
kvr_routed_format(kvr_routed_t *r, size_t size)
{
    memset(r, 0, sizeof(kvr_routed_t));

    r->words = (size - sizeof(kvr_routed_t)) / 8;
}


bool
kvr_routed_append(kvr_routed_t *r, const kvr_routed_record_t *record,
    const uint64_t *locals)
{
    bool                 cut;
    uint64_t             n, need, skip, tail, *p;
    kvr_routed_record_t  copy;

    n = record->kind <= KVR_ROUTED_END ? record->n : 0;
    need = r->words / KVR_ROUTED_PART - KVR_ROUTED_FIXED;
    cut = n > need;
    n = kvr_min(n, need);
    need = KVR_ROUTED_FIXED + n;

    tail = r->tail;
    skip = r->words - tail % r->words;

    if (skip >= need) {
        skip = 0;
    }

    /* the reader of a record was done with it before its place was free */

    if (tail + skip + need - __atomic_load_n(&r->head, __ATOMIC_ACQUIRE)
        > r->words)
    {
        kvr_put64(&r->dropped, r->dropped + 1);
        return false;
    }

    if (skip) {
        kvr_put64(kvr_routed_at(r, tail), KVR_ROUTED_SKIP);
        tail += skip;
    }

    p = kvr_routed_at(r, tail);
    kvr_put64(p, need);

    copy = *record;

    if (record->kind <= KVR_ROUTED_END) {
        copy.n = (uint32_t) n;
    }

    kvr_copy_words(p + 1, &copy, sizeof(copy) / 8);

    if (n) {
        kvr_copy_words(p + KVR_ROUTED_FIXED, locals, n);
    }

    __atomic_store_n(&r->tail, tail + need, __ATOMIC_RELEASE);

    kvr_put64(&r->appended, r->appended + 1);
    kvr_put64(&r->cut, r->cut + cut);

    return true;
}


bool
kvr_routed_read(kvr_routed_t *r, kvr_routed_record_t *record,
    uint64_t *locals, uint32_t max, uint64_t *head, uint64_t *next)
{
    uint64_t  at, n, tail, *p;

    for ( ;; ) {

        at = __atomic_load_n(&r->head, __ATOMIC_ACQUIRE);
        tail = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);
        *head = at;

        if (at == tail) {
            return false;
        }

        p = kvr_routed_at(r, at);

        if (kvr_load64(p) == KVR_ROUTED_SKIP) {
            at += r->words - at % r->words;
            p = kvr_routed_at(r, at);
        }

        n = kvr_load64(p);

        if (n >= KVR_ROUTED_FIXED && n <= r->words / KVR_ROUTED_PART
            && n <= tail - at && at % r->words + n <= r->words)
        {
            kvr_copy_words(record, p + 1, sizeof(kvr_routed_record_t) / 8);
            *next = at + n;
            n -= KVR_ROUTED_FIXED;

            if (record->kind <= KVR_ROUTED_END) {
                n = kvr_min(n, max);
                record->n = (uint32_t) kvr_min(record->n, n);
                kvr_copy_words(locals, p + KVR_ROUTED_FIXED, record->n);
            }

            /* when another process has read it, the place may be reused */

            kvr_fence(__ATOMIC_ACQUIRE);

            if (kvr_load64(&r->head) == *head) {
                return true;
            }

        } else if (kvr_routed_advance(r, *head, tail)) {
            kvr_put64(&r->damaged, r->damaged + 1);
        }
    }
}


bool
kvr_routed_advance(kvr_routed_t *r, uint64_t head, uint64_t next)
{
    return __atomic_compare_exchange_n(&r->head, &head, next, false,
                                       __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}


uint64_t
kvr_routed_unread(const kvr_routed_t *r)
{
    uint64_t  head;

    head = kvr_load64(&r->head);

    return (kvr_load64(&r->tail) - head) * sizeof(uint64_t);
}
