/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_flights.h"
#include "../core/kvr_table.h"
#include "../core/kvr_words.h"

#include <openssl/hmac.h>


#define KVR_FLIGHT_HOLDERS     (1u << 20)
#define KVR_FLIGHT_COUNT_MAX   127
#define KVR_FLIGHT_ONE         (UINT64_C(1) << 12)      /* of the count */
#define KVR_FLIGHT_CLEAR_MS    256000   /* in which all sets are looked at */


/* The parts of a word.  A name is all of it that stays: tag, holder, peer. */

#define kvr_flight_name(word)     ((word) >> 19)
#define kvr_flight_holder(word)   ((uint32_t) ((word) >> 20)                  \
                                   & (KVR_FLIGHT_HOLDERS - 1))
#define kvr_flight_peer(word)     ((word) & UINT64_C(1) << 19)
#define kvr_flight_count(word)    ((uint32_t) ((word) >> 12)                  \
                                   & KVR_FLIGHT_COUNT_MAX)
#define kvr_flight_until(word)    ((uint32_t) (word) & 0xfff)


/* Quarters of a second until a word ends; 0: it is free. */

static inline uint32_t
kvr_flight_left(uint64_t word, uint64_t now_ms)
{
    uint32_t  left;

    left = (kvr_flight_until(word) - (uint32_t) (now_ms / KVR_FLIGHT_QUARTER))
           & 0xfff;

    return word && left < 0x800 ? left : 0;
}


static inline uint32_t
kvr_flight_tag(uint64_t chain, uint32_t generation)
{
    return (uint32_t) (chain ^ generation * UINT32_C(0x9e3779b1) >> 8)
           & 0xffffff;
}


static inline uint64_t *
kvr_flight_set(const kvr_flights_t *f, uint64_t chain)
{
    return (uint64_t *) (f->base + f->zone->sets)
           + ((chain >> 16) * f->zone->nsets >> 32) * KVR_FLIGHT_WAYS;
}


static inline bool
kvr_flight_swap(uint64_t *at, uint64_t *was, uint64_t word)
{
    return __atomic_compare_exchange_n(at, was, word, false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED);
}


/* ---- the table ---------------------------------------------------------- */

void
kvr_flights_format(kvr_flights_zone_t *z, char *base, uint64_t at,
    uint64_t size)
{
    z->sets = at;
    z->nsets = size / (KVR_FLIGHT_WAYS * sizeof(uint64_t));
    z->last_ms = 0;

    memset(base + at, 0, size);
}


kvr_rc_t
kvr_flights_attach(kvr_flights_t *f, kvr_flights_zone_t *z, char *base,
    const char *key, size_t len)
{
    unsigned char  digest[EVP_MAX_MD_SIZE];

    f->zone = z;
    f->base = base;
    f->cleared = 0;
    f->seed[0] = UINT64_C(0x9e3779b97f4a7c15);
    f->seed[1] = UINT64_C(0xe7037ed1a0b428db);

    if (len == 0) {
        return KVR_OK;
    }

    if (HMAC(EVP_sha256(), key, (int) len,
             (const unsigned char *) "kv-router flights", 17, digest, NULL)
        == NULL)
    {
        return KVR_ERROR;
    }

    memcpy(f->seed, digest, sizeof(f->seed));
    f->seed[1] |= 1;

    return KVR_OK;
}


bool
kvr_flights_empty(const kvr_flights_t *f, uint64_t now_ms)
{
    return kvr_load64(&f->zone->last_ms) <= now_ms;
}


void
kvr_flights_clear(kvr_flights_t *f, uint64_t now_ms)
{
    uint64_t  *word, *end, was, to;

    /* the sets that were due since the clock began */

    to = now_ms * f->zone->nsets / KVR_FLIGHT_CLEAR_MS;

    if (f->cleared == 0
        || now_ms > kvr_load64(&f->zone->last_ms) + KVR_FLIGHT_CLEAR_MS)
    {
        f->cleared = to;
    }

    f->cleared = kvr_max(f->cleared + f->zone->nsets, to) - f->zone->nsets;

    for ( /* void */ ; f->cleared < to; f->cleared++) {
        word = (uint64_t *) (f->base + f->zone->sets)
               + f->cleared % f->zone->nsets * KVR_FLIGHT_WAYS;

        for (end = word + KVR_FLIGHT_WAYS; word < end; word++) {
            was = kvr_load64(word);

            if (was && kvr_flight_left(was, now_ms) == 0) {
                (void) kvr_flight_swap(word, &was, 0);
            }
        }
    }
}


/* ---- depths ------------------------------------------------------------- */

uint32_t
kvr_flights_chains(const kvr_flights_t *f, const uint64_t *locals, uint32_t n,
    uint64_t *chains)
{
    uint32_t  i;
    uint64_t  chain;

    chain = 0;
    n -= n % KVR_FLIGHT_STRIDE;

    for (i = 0; i < n; i++) {
        chain = kvr_table_mix(chain ^ locals[i] ^ f->seed[0], f->seed[1]);

        if ((i + 1) % KVR_FLIGHT_STRIDE == 0) {
            chains[i / KVR_FLIGHT_STRIDE] = chain >> 16;
        }
    }

    return n / KVR_FLIGHT_STRIDE;
}


/* The least step that makes at most `most` of so many blocks. */

static uint32_t
kvr_flight_step(uint32_t blocks, uint32_t most)
{
    uint32_t  step;

    for (step = KVR_FLIGHT_STRIDE; (uint64_t) step * most < blocks; step *= 2)
    {
        /* void */
    }

    return step;
}


/* The last multiple of step, a power of 2, before a depth. */

static inline uint32_t
kvr_flight_before(uint32_t depth, uint32_t step)
{
    return (depth - 1) & ~(step - 1);
}


static inline uint32_t
kvr_flight_last(uint32_t n)
{
    return n - n % KVR_FLIGHT_STRIDE;
}


void
kvr_flight_sample(kvr_flight_t *flight, const uint64_t *chains, uint32_t n,
    uint32_t from, bool whole)
{
    uint32_t  depth, step;

    step = kvr_flight_step(n - kvr_min(from, n), KVR_FLIGHT_SAMPLES - 1);
    flight->n = 0;

    for (depth = kvr_flight_last(n); depth > from && !(whole && flight->n);
         depth = kvr_flight_before(depth, step))
    {
        flight->chains[flight->n++] = chains[depth / KVR_FLIGHT_STRIDE - 1];
    }
}


/* ---- flights ------------------------------------------------------------ */

static void
kvr_flight_prefetch(const kvr_flights_t *f, const kvr_flight_t *flight)
{
    uint32_t  i;

    for (i = 0; i < flight->n; i++) {
        __builtin_prefetch(kvr_flight_set(f, flight->chains[i]), 1);
    }
}


static uint64_t
kvr_flight_chain_name(const kvr_flight_t *flight, uint32_t i, bool peer)
{
    return (uint64_t) kvr_flight_tag(flight->chains[i], flight->generation)
           << 21 | flight->holder << 1 | peer;
}


/*
 * Where a name is in a set, or where it can be: a free word, or that which
 * ends first.  *was: the word there.
 */

static uint64_t *
kvr_flight_place(uint64_t *set, uint64_t name, uint64_t now_ms, uint64_t *was)
{
    uint32_t  i, left, least;
    uint64_t  word, *best;

    best = set;
    least = UINT32_MAX;

    for (i = 0; i < KVR_FLIGHT_WAYS; i++) {
        word = kvr_load64(&set[i]);
        left = kvr_flight_left(word, now_ms);

        if (left && kvr_flight_name(word) == name) {
            *was = word;
            return &set[i];
        }

        if (left < least) {
            least = left;
            best = &set[i];
            *was = word;
        }
    }

    return best;
}


void
kvr_flights_add(const kvr_flights_t *f, const kvr_flight_t *flight,
    kvr_flight_kind_t kind, bool peer, uint64_t now_ms, uint64_t until_ms)
{
    bool       there;
    uint32_t   i, count, until;
    uint64_t  *at, last, name, was, word;

    if (flight->n == 0 || flight->holder >= KVR_FLIGHT_HOLDERS) {
        return;
    }

    until_ms = (until_ms + KVR_FLIGHT_QUARTER - 1) / KVR_FLIGHT_QUARTER;
    until = (uint32_t) until_ms & 0xfff;
    until_ms *= KVR_FLIGHT_QUARTER;

    /* a second more: most flights find that it is late enough */

    last = kvr_load64(&f->zone->last_ms);

    while (last < until_ms
           && !kvr_flight_swap(&f->zone->last_ms, &last, until_ms + 1000))
    {
        /* void */
    }

    kvr_flight_prefetch(f, flight);

    for (i = 0; i < flight->n; i++) {
        name = kvr_flight_chain_name(flight, i, peer);

        do {
            at = kvr_flight_place(kvr_flight_set(f, flight->chains[i]), name,
                                  now_ms, &was);

            there = kvr_flight_name(was) == name
                    && kvr_flight_left(was, now_ms);
            count = there ? kvr_flight_count(was) : 0;

            if (count < KVR_FLIGHT_COUNT_MAX
                && (kind == KVR_FLIGHT_COUNTED
                    || (kind == KVR_FLIGHT_RENEWED && !there)))
            {
                count++;
            }

            word = name << 19 | count * KVR_FLIGHT_ONE | until;

            if (there && kvr_flight_left(was, now_ms)
                         > kvr_flight_left(word, now_ms))
            {
                word = (word & ~UINT64_C(0xfff)) | kvr_flight_until(was);
            }

        } while (!kvr_flight_swap(at, &was, word));
    }
}


void
kvr_flights_end(const kvr_flights_t *f, const kvr_flight_t *flight, bool peer,
    uint64_t now_ms)
{
    uint32_t   i, count;
    uint64_t  *at, name, was, word;

    kvr_flight_prefetch(f, flight);

    for (i = 0; i < flight->n; i++) {
        name = kvr_flight_chain_name(flight, i, peer);

        do {
            at = kvr_flight_place(kvr_flight_set(f, flight->chains[i]), name,
                                  now_ms, &was);

            count = kvr_flight_count(was);

            if (kvr_flight_name(was) != name || count == 0
                || count == KVR_FLIGHT_COUNT_MAX)
            {
                break;
            }

            word = count == 1 ? 0 : was - KVR_FLIGHT_ONE;

        } while (!kvr_flight_swap(at, &was, word));
    }
}


void
kvr_flights_find(const kvr_flights_t *f, const uint64_t *chains, uint32_t n,
    bool peers, uint64_t now_ms, kvr_inflight_depth_t *depths,
    uint32_t nholders)
{
    uint32_t               i, depth, holder, step;
    uint64_t               chain, word, *set;
    kvr_inflight_depth_t  *d;

    step = kvr_flight_step(n, KVR_FLIGHT_LOOKUPS);

    for (depth = kvr_flight_last(n); depth;
         depth = kvr_flight_before(depth, step))
    {
        chain = chains[depth / KVR_FLIGHT_STRIDE - 1];
        __builtin_prefetch(kvr_flight_set(f, chain));
    }

    for (depth = kvr_flight_last(n); depth;
         depth = kvr_flight_before(depth, step))
    {
        chain = chains[depth / KVR_FLIGHT_STRIDE - 1];
        set = kvr_flight_set(f, chain);

        for (i = 0; i < KVR_FLIGHT_WAYS; i++) {
            word = kvr_load64(&set[i]);
            holder = kvr_flight_holder(word);

            /* most words are 0: that is asked first */

            if (word == 0 || kvr_flight_left(word, now_ms) == 0
                || (kvr_flight_peer(word) && !peers) || holder >= nholders)
            {
                continue;
            }

            d = &depths[holder];

            if (d->depth < depth
                && kvr_flight_tag(chain, d->generation) == word >> 40)
            {
                d->depth = depth;
            }
        }
    }
}
