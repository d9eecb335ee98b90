/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_trust.h"

#include "../core/kvr_table.h"
#include "../core/kvr_words.h"


/*
 * A cell's word, from its low end: the window with a 1 above its oldest echo
 * (51 bits; 0: there is no window), the state (2 bits), the era (11 bits).
 */

#define KVR_TRUST_STATE_AT   (KVR_TRUST_WINDOW + 1)
#define KVR_TRUST_ERA_AT     (KVR_TRUST_STATE_AT + 2)
#define KVR_TRUST_ERAS       (UINT64_C(1) << (64 - KVR_TRUST_ERA_AT))

#define KVR_TRUST_TRIES      4          /* beside other incarnations */


static uint64_t kvr_trust_pack(kvr_trust_window_t w, uint64_t era);
static kvr_trust_window_t kvr_trust_unpack(uint64_t word, uint64_t era);
static uint64_t kvr_trust_hash(kvr_trust_who_t who);
static uint64_t kvr_trust_begin(kvr_trust_t *t, kvr_trust_who_t who);
static uint64_t kvr_trust_era(const kvr_trust_t *t, kvr_trust_who_t who);


#define kvr_trust_tally(p)  (void) __atomic_fetch_add(p, 1, __ATOMIC_RELAXED)


const char *
kvr_trust_name(uint32_t state)
{
    static const char  *names[] = { "shadow", "proven", "mismatch" };

    return names[state < KVR_TRUST_STATES ? state : KVR_TRUST_SHADOW];
}


/* ---- the states --------------------------------------------------------- */

kvr_trust_window_t
kvr_trust_next(kvr_trust_window_t w, bool full, bool vouched)
{
    uint32_t           recent, parted;
    kvr_trust_state_t  state;

    w.parted = (w.parted << 1 | !full) & ((UINT64_C(1) << KVR_TRUST_WINDOW)
                                          - 1);
    w.n = kvr_min(w.n + 1, (uint32_t) KVR_TRUST_WINDOW);

    parted = (uint32_t) __builtin_popcountll(w.parted);
    recent = kvr_min(w.n, (uint32_t) KVR_TRUST_RECENT)
             - (uint32_t) __builtin_popcountll(
                   w.parted & ((UINT64_C(1) << KVR_TRUST_RECENT) - 1));

    state = w.state;

    if (state != KVR_TRUST_MISMATCH && parted >= KVR_TRUST_PARTED) {
        state = KVR_TRUST_MISMATCH;

    } else if (state != KVR_TRUST_PROVEN && recent >= KVR_TRUST_FULL) {
        state = KVR_TRUST_PROVEN;

    } else if (state == KVR_TRUST_SHADOW && vouched
               && w.n >= KVR_TRUST_VOUCHED && parted == 0)
    {
        state = KVR_TRUST_PROVEN;
    }

    return state == w.state ? w : (kvr_trust_window_t) { state, 0, 0 };
}


/* ---- words -------------------------------------------------------------- */

static uint64_t
kvr_trust_pack(kvr_trust_window_t w, uint64_t era)
{
    return era << KVR_TRUST_ERA_AT
           | (uint64_t) w.state << KVR_TRUST_STATE_AT
           | UINT64_C(1) << w.n | w.parted;
}


/* The cell of that era; a new one if the word is another era's. */

static kvr_trust_window_t
kvr_trust_unpack(uint64_t word, uint64_t era)
{
    uint64_t            bits;
    kvr_trust_window_t  w = { KVR_TRUST_SHADOW, 0, 0 };

    bits = word & ((UINT64_C(1) << KVR_TRUST_STATE_AT) - 1);

    if (bits == 0 || word >> KVR_TRUST_ERA_AT != era) {
        return w;
    }

    w.state = word >> KVR_TRUST_STATE_AT & 3;
    w.n = 63 - (uint32_t) __builtin_clzll(bits);
    w.parted = bits & ~(UINT64_C(1) << w.n);

    return w;
}


/* ---- incarnations ------------------------------------------------------- */

static uint64_t
kvr_trust_hash(kvr_trust_who_t who)
{
    return kvr_table_spread(kvr_table_spread(who.epoch) + who.generation)
           & ~(KVR_TRUST_ERAS - 1);
}


/* The era of this incarnation; KVR_TRUST_ERAS: the record is of another. */

static uint64_t
kvr_trust_era(const kvr_trust_t *t, kvr_trust_who_t who)
{
    uint64_t  is;

    is = kvr_load64(&t->incarnation);

    return (is & ~(KVR_TRUST_ERAS - 1)) == kvr_trust_hash(who)
           ? is & (KVR_TRUST_ERAS - 1) : KVR_TRUST_ERAS;
}


/*
 * Makes the record this incarnation's and returns its era.  Each change of the
 * incarnation is another era.  The words are emptied, too: one of 2,048 eras
 * ago, of a route without an echo since then, must not come back.
 */

static uint64_t
kvr_trust_begin(kvr_trust_t *t, kvr_trust_who_t who)
{
    uint32_t  i, was;
    uint64_t  is, era;

    was = kvr_load32(&t->generation);

    if (was != who.generation
        && __atomic_compare_exchange_n(&t->generation, &was, who.generation,
                                       false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED))
    {
        for (i = 0; i < KVR_TRUST_ROUTES; i++) {
            kvr_put64(&t->cells[i].full, 0);
            kvr_put64(&t->cells[i].parted, 0);
            kvr_put64(&t->cells[i].mismatches, 0);
            kvr_put64(&t->cells[i].last, 0);
        }
    }

    is = kvr_load64(&t->incarnation);
    era = kvr_trust_era(t, who);

    if (era < KVR_TRUST_ERAS) {
        return era;
    }

    era = (is + 1) & (KVR_TRUST_ERAS - 1);

    if (!__atomic_compare_exchange_n(&t->incarnation, &is,
                                     kvr_trust_hash(who) | era, false,
                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    {
        return KVR_TRUST_ERAS;
    }

    for (i = 0; i < KVR_TRUST_ROUTES; i++) {
        kvr_put64(&t->cells[i].word, 0);
    }

    return era;
}


/* ---- echoes ------------------------------------------------------------- */

kvr_trust_state_t
kvr_trust_add(kvr_trust_t *t, kvr_trust_who_t who, uint32_t route,
    uint32_t depth, uint32_t blocks, bool vouched, uint32_t *seen)
{
    bool                full;
    uint32_t            i;
    uint64_t            era, word;
    kvr_trust_cell_t   *c;
    kvr_trust_window_t  was, is;

    era = KVR_TRUST_ERAS;

    for (i = 0; i < KVR_TRUST_TRIES && era == KVR_TRUST_ERAS; i++) {
        era = kvr_trust_begin(t, who);
    }

    if (era == KVR_TRUST_ERAS) {
        return KVR_TRUST_STATES;
    }

    c = &t->cells[route];
    full = depth >= blocks;

    if (full) {
        kvr_trust_tally(&c->full);

    } else {
        kvr_trust_tally(&c->parted);
        kvr_put64(&c->last, (uint64_t) blocks << 32 | depth);
    }

    word = kvr_load64(&c->word);

    do {
        was = kvr_trust_unpack(word, era);
        is = kvr_trust_next(was, full, vouched);

    } while (!__atomic_compare_exchange_n(&c->word, &word,
                                          kvr_trust_pack(is, era), false,
                                          __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));

    if (is.state == was.state) {
        return KVR_TRUST_STATES;
    }

    if (is.state == KVR_TRUST_MISMATCH) {
        kvr_trust_tally(&c->mismatches);
    }

    *seen = kvr_min(was.n + 1, (uint32_t) KVR_TRUST_WINDOW);

    return is.state;
}


bool
kvr_trust_asks(const kvr_trust_t *t, kvr_trust_who_t who, uint32_t route)
{
    uint64_t            era;
    kvr_trust_window_t  w;

    era = kvr_trust_era(t, who);

    if (era == KVR_TRUST_ERAS) {
        return false;
    }

    w = kvr_trust_unpack(kvr_load64(&t->cells[route].word), era);

    return w.state == KVR_TRUST_SHADOW && w.parted == 0
           && w.n + 1 >= KVR_TRUST_VOUCHED;
}


void
kvr_trust_read(const kvr_trust_t *t, kvr_trust_who_t who, uint32_t route,
    kvr_trust_view_t *view)
{
    uint64_t                 era, last;
    const kvr_trust_cell_t  *c;

    *view = (kvr_trust_view_t) { 0 };

    c = &t->cells[route];
    era = kvr_trust_era(t, who);

    if (era < KVR_TRUST_ERAS) {
        view->state = kvr_trust_unpack(kvr_load64(&c->word), era).state;
    }

    if (kvr_load32(&t->generation) != who.generation) {
        return;
    }

    view->full = kvr_load64(&c->full);
    view->parted = kvr_load64(&c->parted);
    view->mismatches = kvr_load64(&c->mismatches);

    last = kvr_load64(&c->last);
    view->depth = (uint32_t) last;
    view->blocks = (uint32_t) (last >> 32);
}
