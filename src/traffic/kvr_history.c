
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_history.h"
#include "../core/kvr_words.h"


uint64_t
kvr_history_due(kvr_history_t *h, uint64_t now_ms)
{
    uint64_t  step, last;

    step = kvr_history_step(now_ms);
    last = __atomic_load_n(&h->step, __ATOMIC_RELAXED);

    if (step <= last
        || !__atomic_compare_exchange_n(&h->step, &last, step, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    {
        return 0;
    }

    return step;
}


void
kvr_history_write(kvr_history_t *h, uint64_t step,
    const uint64_t values[KVR_HISTORY_SERIES])
{
    uint32_t               i;
    kvr_history_sample_t  *s;

    s = &h->samples[step % KVR_HISTORY_STEPS];

    __atomic_store_n(&s->step, 0, __ATOMIC_RELAXED);
    kvr_fence(__ATOMIC_RELEASE);

    for (i = 0; i < KVR_HISTORY_SERIES; i++) {
        __atomic_store_n(&s->values[i], values[i], __ATOMIC_RELAXED);
    }

    __atomic_store_n(&s->step, step, __ATOMIC_RELEASE);
}


bool
kvr_history_read(const kvr_history_t *h, uint64_t step,
    uint64_t values[KVR_HISTORY_SERIES])
{
    uint32_t                     i;
    const kvr_history_sample_t  *s;

    s = &h->samples[step % KVR_HISTORY_STEPS];

    if (step == 0 || __atomic_load_n(&s->step, __ATOMIC_ACQUIRE) != step) {
        return false;
    }

    for (i = 0; i < KVR_HISTORY_SERIES; i++) {
        values[i] = __atomic_load_n(&s->values[i], __ATOMIC_RELAXED);
    }

    kvr_fence(__ATOMIC_ACQUIRE);

    return __atomic_load_n(&s->step, __ATOMIC_RELAXED) == step;
}


double
kvr_history_first_byte_ms(const uint64_t before[KVR_HISTORY_SERIES],
    const uint64_t after[KVR_HISTORY_SERIES], double share)
{
    double           wanted, n, low, high;
    uint32_t         i;
    uint64_t         all, part;
    const uint32_t  *bounds;

    bounds = kvr_histogram_bounds(KVR_TIME_FIRST_BYTE);
    before += KVR_HISTORY_FIRST_BYTE;
    after += KVR_HISTORY_FIRST_BYTE;
    all = 0;

    for (i = 0; i <= KVR_HISTOGRAM_BOUNDS; i++) {
        all += after[i] - before[i];
    }

    if (all == 0) {
        return -1;
    }

    wanted = share * (double) all;
    n = 0;

    for (i = 0; i < KVR_HISTOGRAM_BOUNDS; i++) {
        part = after[i] - before[i];

        if (part != 0 && n + (double) part >= wanted) {
            low = i ? bounds[i - 1] : 0;
            high = bounds[i];
            return (low + (high - low) * (wanted - n) / (double) part) / 1000;
        }

        n += (double) part;
    }

    return bounds[KVR_HISTOGRAM_BOUNDS - 1] / 1000.0;
}
