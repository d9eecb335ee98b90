
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_decisions.h"
#include "../core/kvr_words.h"


bool
kvr_decisions_due(kvr_decisions_t *d, uint64_t second)
{
    uint64_t  was;

    was = __atomic_load_n(&d->second, __ATOMIC_RELAXED);

    if (was != second
        && __atomic_compare_exchange_n(&d->second, &was, second, false,
                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    {
        __atomic_store_n(&d->taken, 0, __ATOMIC_RELAXED);
    }

    if (__atomic_load_n(&d->taken, __ATOMIC_RELAXED) >= KVR_DECISIONS_RATE) {
        return false;
    }

    return __atomic_fetch_add(&d->taken, 1, __ATOMIC_RELAXED)
           < KVR_DECISIONS_RATE;
}


uint64_t
kvr_decisions_add(kvr_decisions_t *d, const kvr_decision_t *decision)
{
    uint64_t               n;
    kvr_decision_place_t  *p;

    n = __atomic_fetch_add(&d->next, 1, __ATOMIC_RELAXED);
    p = &d->places[n % KVR_DECISIONS];

    __atomic_store_n(&p->version, 2 * n + 1, __ATOMIC_RELAXED);
    kvr_fence(__ATOMIC_RELEASE);

    memcpy(&p->decision, decision, sizeof(kvr_decision_t));

    __atomic_store_n(&p->version, 2 * n + 2, __ATOMIC_RELEASE);

    return n + 1;
}


kvr_decision_t *
kvr_decisions_open(kvr_decisions_t *d, uint64_t number)
{
    uint64_t               version;
    kvr_decision_place_t  *p;

    p = &d->places[(number - 1) % KVR_DECISIONS];
    version = 2 * number;

    if (!__atomic_compare_exchange_n(&p->version, &version, version - 1, false,
                                     __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
    {
        return NULL;
    }

    kvr_fence(__ATOMIC_RELEASE);

    return &p->decision;
}


void
kvr_decisions_close(kvr_decisions_t *d, uint64_t number)
{
    uint64_t               version;
    kvr_decision_place_t  *p;

    p = &d->places[(number - 1) % KVR_DECISIONS];
    version = 2 * number - 1;

    /* another record may have taken the place meanwhile */

    (void) __atomic_compare_exchange_n(&p->version, &version, version + 1,
                                       false, __ATOMIC_RELEASE,
                                       __ATOMIC_RELAXED);
}


bool
kvr_decisions_read(const kvr_decisions_t *d, uint32_t i,
    kvr_decision_t *decision)
{
    uint64_t                     n;
    const kvr_decision_place_t  *p;

    n = __atomic_load_n(&d->next, __ATOMIC_ACQUIRE);

    if (i >= KVR_DECISIONS || i >= n) {
        return false;
    }

    n -= i + 1;
    p = &d->places[n % KVR_DECISIONS];

    if (__atomic_load_n(&p->version, __ATOMIC_ACQUIRE) != 2 * n + 2) {
        return false;
    }

    memcpy(decision, &p->decision, sizeof(kvr_decision_t));
    kvr_fence(__ATOMIC_ACQUIRE);

    if (__atomic_load_n(&p->version, __ATOMIC_RELAXED) != 2 * n + 2) {
        return false;
    }

    decision->noptions = kvr_min(decision->noptions, KVR_DECISION_OPTIONS);
    decision->policy_len = kvr_min(decision->policy_len, KVR_DECISION_TEXT);
    decision->reason_len = kvr_min(decision->reason_len, KVR_DECISION_TEXT);
    decision->model_len = kvr_min(decision->model_len, KVR_DECISION_TEXT);

    return true;
}
