/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_histogram.h"


#define kvr_histogram_inc(p, n)                                               \
    (void) __atomic_fetch_add(p, n, __ATOMIC_RELAXED)


/*
 * Decisions take microseconds, questions and waits milliseconds, first bytes
 * up to a minute.
 */

static const uint32_t  kvr_histogram_short[KVR_HISTOGRAM_BOUNDS] = {
    5, 10, 20, 30, 50, 75, 100, 200, 500,
    1000, 2000, 5000, 10000, 100000
};

static const uint32_t  kvr_histogram_middle[KVR_HISTOGRAM_BOUNDS] = {
    50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000,
    100000, 500000, 1000000, 10000000
};

static const uint32_t  kvr_histogram_long[KVR_HISTOGRAM_BOUNDS] = {
    5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000,
    5000000, 10000000, 20000000, 30000000, 60000000
};


const uint32_t *
kvr_histogram_bounds(kvr_time_t kind)
{
    switch (kind) {

    case KVR_TIME_DECIDE:
        return kvr_histogram_short;

    case KVR_TIME_TOKENIZE:
        return kvr_histogram_middle;

    default: /* waits, prefills and first bytes */
        return kvr_histogram_long;
    }
}


void
kvr_histogram_add(kvr_histogram_t *h, kvr_time_t kind, int64_t us)
{
    uint32_t         i;
    const uint32_t  *bounds;

    us = us > 0 ? us : 0;
    bounds = kvr_histogram_bounds(kind);

    for (i = 0; i < KVR_HISTOGRAM_BOUNDS && us > bounds[i]; i++) {
        /* void */
    }

    kvr_histogram_inc(&h->counts[i], 1);
    kvr_histogram_inc(&h->sum, (uint64_t) us);
}


void
kvr_served_add(kvr_served_t *s, uint32_t generation, uint32_t status,
    int64_t first_byte_us)
{
    size_t     i;
    uint64_t   was, *word;

    was = __atomic_load_n(&s->generation, __ATOMIC_RELAXED);

    if (was != generation
        && __atomic_compare_exchange_n(&s->generation, &was, generation,
                                       false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED))
    {
        word = (uint64_t *) s;

        for (i = 1; i < sizeof(kvr_served_t) / sizeof(uint64_t); i++) {
            __atomic_store_n(&word[i], 0, __ATOMIC_RELAXED);
        }
    }

    i = status >= 100 && status < 600 ? status / 100 - 1
                                      : KVR_SERVED_STATUSES - 1;

    kvr_histogram_inc(&s->statuses[i], 1);

    if (first_byte_us >= 0) {
        kvr_histogram_add(&s->first_byte, KVR_TIME_FIRST_BYTE, first_byte_us);
    }
}


void
kvr_served_read(const kvr_served_t *s, uint32_t generation, kvr_served_t *out)
{
    size_t           i;
    uint64_t        *to;
    const uint64_t  *from;

    memset(out, 0, sizeof(kvr_served_t));
    out->generation = generation;

    if (__atomic_load_n(&s->generation, __ATOMIC_RELAXED) != generation) {
        return;
    }

    from = (const uint64_t *) s;
    to = (uint64_t *) out;

    for (i = 1; i < sizeof(kvr_served_t) / sizeof(uint64_t); i++) {
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    }
}


const char *
kvr_served_status_name(uint32_t i)
{
    static const char  *names[KVR_SERVED_STATUSES] = {
        "1xx", "2xx", "3xx", "4xx", "5xx", "none"
    };

    return names[i];
}
