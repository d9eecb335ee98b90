/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_trust.h"

#include "../core/kvr_table.h"
#include "../core/kvr_words.h"


/*
 * A cell's word, from its low end: bad (6 bits), good (5), the state (2), the
 * hash (51).
 */

#define KVR_TRUST_GOOD_AT   6
#define KVR_TRUST_STATE_AT  11
#define KVR_TRUST_HASH      (UINT64_MAX << 13)

#define KVR_TRUST_SUMS      (sizeof(kvr_usage_t) / sizeof(uint64_t))


#define kvr_trust_sum(p, n)  (void) __atomic_fetch_add(p, n, __ATOMIC_RELAXED)


const char *
kvr_trust_name(uint32_t state)
{
    static const char  *names[] = { "shadow", "proven", "mismatch" };

    return names[state < KVR_TRUST_STATES ? state : KVR_TRUST_SHADOW];
}


kvr_trust_score_t
kvr_trust_next(kvr_trust_score_t s, bool full)
{
    if (full) {
        s.good = kvr_min(s.good + 1, (uint32_t) KVR_TRUST_GOOD);
        s.bad -= s.bad != 0;

    } else {
        s.good -= kvr_min(s.good, (uint32_t) KVR_TRUST_LOSS);
        s.bad = kvr_min(s.bad + KVR_TRUST_COST, (uint32_t) KVR_TRUST_BAD);
    }

    if (s.state != KVR_TRUST_PROVEN && s.good == KVR_TRUST_GOOD) {
        return (kvr_trust_score_t) { KVR_TRUST_PROVEN, 0, 0 };
    }

    if (s.state != KVR_TRUST_MISMATCH && s.bad == KVR_TRUST_BAD) {
        return (kvr_trust_score_t) { KVR_TRUST_MISMATCH, 0, 0 };
    }

    return s;
}


/* ---- words -------------------------------------------------------------- */

static uint64_t
kvr_trust_hash(kvr_trust_who_t who)
{
    return kvr_table_spread(kvr_table_spread(who.epoch) + who.generation)
           & KVR_TRUST_HASH;
}


/* The score of that incarnation; a new one if the word is another's. */

static kvr_trust_score_t
kvr_trust_unpack(uint64_t word, uint64_t hash)
{
    if ((word & KVR_TRUST_HASH) != hash) {
        return (kvr_trust_score_t) { KVR_TRUST_SHADOW, 0, 0 };
    }

    return (kvr_trust_score_t) { word >> KVR_TRUST_STATE_AT & 3,
                                 word >> KVR_TRUST_GOOD_AT & 31, word & 63 };
}


/* ---- records ------------------------------------------------------------ */

/* Another generation begins with counters of zero. */

static void
kvr_trust_begin(kvr_trust_t *t, uint32_t generation)
{
    uint32_t   i;
    uint64_t   was, *sums;

    was = kvr_load64(&t->generation);

    if (was == generation
        || !__atomic_compare_exchange_n(&t->generation, &was,
                                        (uint64_t) generation, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    {
        return;
    }

    sums = (uint64_t *) &t->usage;

    for (i = 0; i < KVR_TRUST_SUMS; i++) {
        kvr_put64(&sums[i], 0);
    }

    for (i = 0; i < KVR_TRUST_ROUTES; i++) {
        kvr_put64(&t->cells[i].full, 0);
        kvr_put64(&t->cells[i].parted, 0);
        kvr_put64(&t->cells[i].mismatches, 0);
        kvr_put64(&t->cells[i].last, 0);
    }
}


bool
kvr_trust_add(kvr_trust_t *t, kvr_trust_who_t who, uint32_t route,
    uint32_t depth, uint32_t blocks, bool full)
{
    uint64_t            hash, word, next;
    kvr_trust_cell_t   *c;
    kvr_trust_score_t   was, is;

    kvr_trust_begin(t, who.generation);

    c = &t->cells[route];

    if (full) {
        kvr_trust_sum(&c->full, 1);

    } else {
        kvr_trust_sum(&c->parted, 1);
        kvr_put64(&c->last, (uint64_t) blocks << 32 | depth);
    }

    hash = kvr_trust_hash(who);
    word = kvr_load64(&c->word);

    do {
        was = kvr_trust_unpack(word, hash);
        is = kvr_trust_next(was, full);

        next = hash | (uint64_t) is.state << KVR_TRUST_STATE_AT
               | is.good << KVR_TRUST_GOOD_AT | is.bad;

    } while (!__atomic_compare_exchange_n(&c->word, &word, next, false,
                                          __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));

    if (is.state == was.state || is.state != KVR_TRUST_MISMATCH) {
        return false;
    }

    kvr_trust_sum(&c->mismatches, 1);

    return true;
}


void
kvr_trust_read(const kvr_trust_t *t, kvr_trust_who_t who, uint32_t route,
    kvr_trust_view_t *view)
{
    uint64_t                 last;
    const kvr_trust_cell_t  *c;

    *view = (kvr_trust_view_t) { 0 };

    c = &t->cells[route];

    view->state = kvr_trust_unpack(kvr_load64(&c->word),
                                   kvr_trust_hash(who)).state;

    if (kvr_load64(&t->generation) != who.generation) {
        return;
    }

    view->full = kvr_load64(&c->full);
    view->parted = kvr_load64(&c->parted);
    view->mismatches = kvr_load64(&c->mismatches);

    last = kvr_load64(&c->last);
    view->depth = (uint32_t) last;
    view->blocks = (uint32_t) (last >> 32);
}


void
kvr_usage_add(kvr_trust_t *t, uint32_t generation, const kvr_usage_t *a)
{
    uint32_t         i;
    uint64_t        *sums;
    const uint64_t  *add;

    kvr_trust_begin(t, generation);

    sums = (uint64_t *) &t->usage;
    add = (const uint64_t *) a;

    for (i = 0; i < KVR_TRUST_SUMS; i++) {
        kvr_trust_sum(&sums[i], add[i]);
    }
}


void
kvr_usage_read(const kvr_trust_t *t, uint32_t generation, kvr_usage_t *usage)
{
    if (kvr_load64(&t->generation) != generation) {
        *usage = (kvr_usage_t) { 0 };
        return;
    }

    kvr_copy_words(usage, &t->usage, KVR_TRUST_SUMS);
}
