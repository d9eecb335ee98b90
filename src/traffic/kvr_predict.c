/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_predict.h"
#include "../core/kvr_table.h"


static void kvr_predict_put(kvr_prediction_t *set, uint64_t name,
    uint32_t holder, uint32_t until);


/* Time in eighths of a second, never 0: 0 marks a free entry. */

static inline uint32_t
kvr_predict_time(uint64_t ms)
{
    return (uint32_t) (ms / 125) | 1;
}


static inline uint64_t
kvr_predict_load(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}


static inline kvr_prediction_t *
kvr_predict_set(const kvr_predict_zone_t *z, const char *base, uint64_t chain)
{
    return (kvr_prediction_t *) (base + z->sets)
           + kvr_table_home(chain, z->nsets) * KVR_PREDICT_WAYS;
}


void
kvr_predict_format(kvr_predict_zone_t *z, char *base, uint64_t at,
    uint64_t size, const uint64_t secret[2])
{
    memset(z, 0, sizeof(kvr_predict_zone_t));

    z->sets = at;
    z->nsets = size / (KVR_PREDICT_WAYS * sizeof(kvr_prediction_t));
    z->secret[0] = secret[0];
    z->secret[1] = secret[1] | 1;

    memset(base + at, 0, size);
}


uint32_t
kvr_predict_chains(const kvr_predict_zone_t *z, const uint64_t *locals,
    uint32_t n, uint64_t *chains)
{
    uint32_t  i, k;
    uint64_t  chain;

    chain = 0;
    k = kvr_min(n / KVR_PREDICT_STRIDE, KVR_PREDICT_DEPTHS);

    for (i = 0; i < k * KVR_PREDICT_STRIDE; i++) {
        chain = kvr_table_mix(chain ^ locals[i] ^ z->secret[0], z->secret[1]);

        if ((i + 1) % KVR_PREDICT_STRIDE == 0) {
            chains[i / KVR_PREDICT_STRIDE] = chain;
        }
    }

    return k;
}


/*
 * The name of a prediction. All holders of a chain use one set; the name tells
 * them apart.
 */

static uint64_t
kvr_predict_name(const kvr_predict_zone_t *z, uint64_t chain, uint32_t holder,
    uint32_t generation)
{
    return kvr_table_mix(chain ^ ((uint64_t) generation << 32 | holder),
                         z->secret[1]);
}


void
kvr_predict_store(kvr_predict_zone_t *z, char *base, const uint64_t *chains,
    uint32_t nchains, uint32_t holder, uint32_t generation, uint32_t from,
    uint64_t until_ms)
{
    uint32_t  i, until;

    until = kvr_predict_time(until_ms);

    for (i = from / KVR_PREDICT_STRIDE; i < nchains; i++) {

        if (i + 4 < nchains) {
            __builtin_prefetch(kvr_predict_set(z, base, chains[i + 4]), 1);
        }

        kvr_predict_put(kvr_predict_set(z, base, chains[i]),
                        kvr_predict_name(z, chains[i], holder, generation),
                        holder, until);
    }

    if (i > from / KVR_PREDICT_STRIDE) {
        (void) __atomic_fetch_add(&z->stores, i - from / KVR_PREDICT_STRIDE,
                                  __ATOMIC_RELAXED);
    }
}


static void
kvr_predict_put(kvr_prediction_t *set, uint64_t name, uint32_t holder,
    uint32_t until)
{
    int32_t   left, least;
    uint32_t  i, best;
    uint64_t  whose;

    best = 0;
    least = INT32_MAX;

    for (i = 0; i < KVR_PREDICT_WAYS; i++) {

        whose = kvr_predict_load(&set[i].whose);

        if (whose == 0 || (kvr_predict_load(&set[i].tag) ^ whose) == name) {
            best = i;
            break;
        }

        left = (int32_t) ((uint32_t) whose - until);

        if (left < least) {
            least = left;
            best = i;
        }
    }

    whose = (uint64_t) holder << 32 | until;

    __atomic_store_n(&set[best].whose, whose, __ATOMIC_RELAXED);
    __atomic_store_n(&set[best].tag, name ^ whose, __ATOMIC_RELAXED);
}


static bool
kvr_predict_has(const kvr_predict_zone_t *z, const char *base, uint64_t chain,
    uint32_t holder, uint32_t generation, uint32_t now)
{
    uint32_t                 i;
    uint64_t                 name, whose;
    const kvr_prediction_t  *set;

    set = kvr_predict_set(z, base, chain);
    name = kvr_predict_name(z, chain, holder, generation);

    for (i = 0; i < KVR_PREDICT_WAYS; i++) {

        whose = kvr_predict_load(&set[i].whose);

        if (whose >> 32 == holder
            && (kvr_predict_load(&set[i].tag) ^ whose) == name)
        {
            return (int32_t) ((uint32_t) whose - now) > 0;
        }
    }

    return false;
}


/*
 * A prediction covers the blocks from where the index ended, when it was made,
 * to some depth: its end is searched for in growing steps, then by halves.
 */

uint32_t
kvr_predict_find(const kvr_predict_zone_t *z, const char *base,
    const uint64_t *chains, uint32_t nchains, uint32_t holder,
    uint32_t generation, uint32_t from, uint64_t now_ms)
{
    uint32_t  low, high, mid, step, now;

    now = kvr_predict_time(now_ms);
    low = from / KVR_PREDICT_STRIDE;            /* the first stride behind
                                                   `from` */

    if (low >= nchains
        || !kvr_predict_has(z, base, chains[low], holder, generation, now))
    {
        return from;
    }

    /* chains[low] is there, chains[high] is not */

    for (step = 1, high = nchains; low + step < nchains; step *= 2) {

        if (!kvr_predict_has(z, base, chains[low + step], holder, generation,
                             now))
        {
            high = low + step;
            break;
        }

        low += step;
    }

    while (high - low > 1) {
        mid = low + (high - low) / 2;

        if (kvr_predict_has(z, base, chains[mid], holder, generation, now)) {
            low = mid;

        } else {
            high = mid;
        }
    }

    return (low + 1) * KVR_PREDICT_STRIDE;
}


void
kvr_predict_store_whole(kvr_predict_zone_t *z, char *base,
    const uint64_t *chains, uint32_t nchains, uint32_t holder,
    uint32_t generation, uint32_t from, uint64_t until_ms)
{
    if (nchains) {
        from = kvr_max(from, (nchains - 1) * KVR_PREDICT_STRIDE);
        kvr_predict_store(z, base, chains, nchains, holder, generation, from,
                          until_ms);
    }
}


uint32_t
kvr_predict_find_whole(const kvr_predict_zone_t *z, const char *base,
    const uint64_t *chains, uint32_t nchains, uint32_t holder,
    uint32_t generation, uint32_t from, uint64_t now_ms)
{
    uint32_t  i, now;

    now = kvr_predict_time(now_ms);

    for (i = nchains; i > from / KVR_PREDICT_STRIDE; i--) {

        if (i > 4) {
            __builtin_prefetch(kvr_predict_set(z, base, chains[i - 5]));
        }

        if (kvr_predict_has(z, base, chains[i - 1], holder, generation, now)) {
            return i * KVR_PREDICT_STRIDE;
        }
    }

    return from;
}
