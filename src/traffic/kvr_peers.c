/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_peers.h"


#define KVR_PEERS_ATTEMPTS  64

#define kvr_peers_row(p, holder)                                              \
    ((kvr_load_row_t *) ((p)->base + (p)->zone->rows) + (holder))


size_t
kvr_peers_size(uint32_t max_holders)
{
    _Static_assert(sizeof(kvr_peer_t) % 8 == 0, "whole words");

    return kvr_lines(max_holders * (sizeof(kvr_load_row_t) + 1));
}


void
kvr_peers_format(kvr_peers_zone_t *z, char *base, uint64_t at,
    uint32_t max_holders, uint64_t router)
{
    memset(z, 0, sizeof(kvr_peers_zone_t));
    memset(base + at, 0, kvr_peers_size(max_holders));

    z->rows = at;
    z->homes = at + max_holders * sizeof(kvr_load_row_t);
    z->max_holders = max_holders;
    z->alone = 1;
    z->router = router;
}


void
kvr_peers_attach(kvr_peers_t *p, kvr_peers_zone_t *z, char *base)
{
    memset(p, 0, sizeof(kvr_peers_t));

    p->zone = z;
    p->base = base;
}


/* ---- the lease ---------------------------------------------------------- */

static bool
kvr_peers_held(const kvr_peers_t *p)
{
    return kvr_load64(&p->zone->owner) == p->self;
}


static bool
kvr_peers_exchange(kvr_peers_t *p, kvr_owner_t from, kvr_owner_t to)
{
    return __atomic_compare_exchange_n(&p->zone->owner, &from, to, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}


/* free_ms comes first: who finds the lease free must find since when. */

static void
kvr_peers_free(kvr_peers_t *p, kvr_owner_t owner, uint64_t now_ms)
{
    kvr_put64(&p->zone->free_ms, now_ms);
    (void) kvr_peers_exchange(p, owner, 0);
}


void
kvr_peers_release(kvr_peers_t *p, uint64_t now_ms)
{
    if (kvr_peers_held(p)) {
        kvr_peers_free(p, p->self, now_ms);
    }
}


bool
kvr_peers_lease(kvr_peers_t *p, bool leaving, uint64_t now_ms, bool *taken)
{
    uint64_t           renewed;
    kvr_owner_t        owner;
    kvr_peers_zone_t  *z;

    *taken = false;
    z = p->zone;
    owner = __atomic_load_n(&z->owner, __ATOMIC_ACQUIRE);

    if (owner == p->self) {

        if (leaving && !p->gave) {
            p->gave = true;
            kvr_peers_free(p, owner, now_ms);
            return false;
        }

        kvr_put64(&z->renewed_ms, now_ms);
        return kvr_peers_held(p);
    }

    if (owner) {
        renewed = kvr_load64(&z->renewed_ms);

        if (now_ms <= renewed + KVR_PEERS_DOUBT_MS
            || (now_ms <= renewed + KVR_PEERS_LEASE_MS
                && kvr_owner_alive(owner)))
        {
            return false;
        }
    }

    if (leaving) {
        if (owner) {
            kvr_peers_free(p, owner, now_ms);
            return false;
        }

        if (now_ms < kvr_load64(&z->free_ms) + KVR_PEERS_WAIT_MS) {
            return false;
        }
    }

    if (!kvr_peers_exchange(p, owner, p->self)) {
        return false;
    }

    *taken = true;

    kvr_put64(&z->renewed_ms, now_ms);
    kvr_put64(&z->fresh_until_ms, 0);
    kvr_zero_words(kvr_peers_row(p, 0), (size_t) z->max_holders
                                        * sizeof(kvr_load_row_t) / 8);

    return true;
}


/* ---- what the holder of the lease writes -------------------------------- */

/* The owner of a version that is left odd died: then it stays odd. */

static uint32_t
kvr_peers_begin(uint32_t *seq)
{
    uint32_t  odd;

    odd = kvr_load32(seq) | 1;

    kvr_put32(seq, odd);
    kvr_fence(__ATOMIC_RELEASE);

    return odd;
}


static void
kvr_peers_end(uint32_t *seq, uint32_t odd)
{
    __atomic_store_n(seq, odd + 1, __ATOMIC_RELEASE);
}


void
kvr_peers_set_row(kvr_peers_t *p, uint32_t holder, const kvr_load_row_t *row)
{
    kvr_load_row_t  *to;

    to = kvr_peers_row(p, holder);

    if (holder < p->zone->max_holders && kvr_peers_held(p)
        && !kvr_same_words(to, row, sizeof(kvr_load_row_t) / 8))
    {
        kvr_copy_words(to, row, sizeof(kvr_load_row_t) / 8);
    }
}


void
kvr_peers_set_fresh(kvr_peers_t *p, uint64_t until_ms)
{
    if (kvr_peers_held(p)) {
        __atomic_store_n(&p->zone->fresh_until_ms, until_ms,
                         __ATOMIC_RELEASE);
    }
}


void
kvr_peers_set_shares(kvr_peers_t *p, const uint32_t *shares, uint32_t n,
    uint32_t own)
{
    uint32_t           i, odd;
    kvr_peers_zone_t  *z;

    z = p->zone;

    if (!kvr_peers_held(p)) {
        return;
    }

    if ((z->shares_seq & 1) == 0 && z->nshares == n && z->own == own) {

        for (i = 0; i < n && z->shares[i] == shares[i]; i++) {
            /* void */
        }

        if (i == n) {
            return;
        }
    }

    odd = kvr_peers_begin(&z->shares_seq);

    kvr_put32(&z->nshares, n);
    kvr_put32(&z->own, own);

    for (i = 0; i < n; i++) {
        kvr_put32(&z->shares[i], shares[i]);
    }

    kvr_peers_end(&z->shares_seq, odd);
}


void
kvr_peers_set_homes(kvr_peers_t *p, const uint8_t *foreign)
{
    uint8_t   *homes;
    uint32_t   i;

    if (!kvr_peers_held(p)) {
        return;
    }

    homes = (uint8_t *) p->base + p->zone->homes;

    for (i = 0; foreign && i < p->zone->max_holders; i++) {
        if (homes[i] != foreign[i]) {
            __atomic_store_n(&homes[i], foreign[i], __ATOMIC_RELAXED);
        }
    }

    kvr_put32(&p->zone->alone, foreign == NULL);
}


void
kvr_peers_set_peers(kvr_peers_t *p, const kvr_peer_t *peers, uint32_t n)
{
    uint32_t           odd;
    kvr_peers_zone_t  *z;

    z = p->zone;

    if (kvr_peers_held(p)) {
        odd = kvr_peers_begin(&z->seq);

        kvr_put32(&z->npeers, n);
        kvr_copy_words(z->peers, peers, n * sizeof(kvr_peer_t) / 8);

        kvr_peers_end(&z->seq, odd);
    }
}


/* ---- what anyone reads -------------------------------------------------- */

void
kvr_peers_add(const kvr_peers_t *p, uint32_t holder, uint32_t generation,
    uint64_t now_ms, kvr_load_row_t *row)
{
    kvr_load_row_t  of;

    if (!kvr_peers_fresh(p, now_ms) || holder >= p->zone->max_holders) {
        return;
    }

    kvr_copy_words(&of, kvr_peers_row(p, holder),
                   sizeof(kvr_load_row_t) / 8);

    if (of.generation != generation) {
        return;
    }

    of.begun_ms = kvr_min(of.begun_ms, now_ms);
    kvr_load_sum(row, &of);
}


const uint8_t *
kvr_peers_homes(const kvr_peers_t *p)
{
    return kvr_load32(&p->zone->alone)
           ? NULL : (uint8_t *) p->base + p->zone->homes;
}


/*
 * Copies the shares.  While a process that died has left them half written,
 * those that were read before stay.
 */

static void
kvr_peers_look(kvr_peers_t *p)
{
    uint32_t                 i, seq;
    kvr_peers_shares_t       s;
    const kvr_peers_zone_t  *z;

    z = p->zone;
    seq = __atomic_load_n(&z->shares_seq, __ATOMIC_ACQUIRE);

    memset(&s, 0, sizeof(s));

    s.seq = seq;
    s.n = kvr_load32(&z->nshares);
    s.own = kvr_load32(&z->own);

    for (i = 0; i <= KVR_PEERS_MAX; i++) {
        s.of[i] = kvr_min(kvr_load32(&z->shares[i]), KVR_PEERS_SHARES);
    }

    kvr_fence(__ATOMIC_ACQUIRE);

    if ((seq & 1) == 0 && kvr_load32(&z->shares_seq) == seq
        && s.n <= KVR_PEERS_MAX + 1 && (s.n == 0 || s.own < s.n))
    {
        p->shares = s;
    }
}


uint32_t
kvr_peers_part(kvr_peers_t *p, uint32_t bound)
{
    uint32_t             i, n, all, left, rest, part;
    uint64_t             own, of, equal;
    kvr_peers_shares_t  *s;

    s = &p->shares;

    if (kvr_load32(&p->zone->shares_seq) != s->seq) {
        kvr_peers_look(p);
    }

    n = s->n;

    if (n < 2 || bound == 0) {
        return bound;
    }

    i = bound % KVR_PEERS_PARTS;

    if (s->parts[i].bound == bound) {
        return s->parts[i].part;
    }

    for (i = 0, all = 0; i < n; i++) {
        all += s->of[i];
    }

    equal = all == 0;
    all = equal ? n : all;
    left = bound > n ? bound - n : 0;

    own = (equal + s->of[s->own]) * left;
    part = 1 + (uint32_t) (own / all);

    /* the largest remainders get what rounding leaves, one each */

    for (i = 0, rest = left; i < n; i++) {
        rest -= (uint32_t) ((equal + s->of[i]) * left / all);
    }

    for (i = 0; i < n; i++) {
        of = (equal + s->of[i]) * left;

        if (rest && (of % all > own % all
                     || (of % all == own % all && i < s->own)))
        {
            rest--;
        }
    }

    part += rest > 0;

    i = bound % KVR_PEERS_PARTS;
    s->parts[i].bound = bound;
    s->parts[i].part = part;

    return part;
}


uint32_t
kvr_peers_read(const kvr_peers_t *p, kvr_peer_t *out)
{
    uint32_t                 i, n, seq;
    const kvr_peers_zone_t  *z;

    z = p->zone;

    for (i = 0; i < KVR_PEERS_ATTEMPTS; i++) {
        seq = __atomic_load_n(&z->seq, __ATOMIC_ACQUIRE);
        n = kvr_load32(&z->npeers);

        if ((seq & 1) || n > KVR_PEERS_MAX) {
            continue;
        }

        kvr_copy_words(out, z->peers, n * sizeof(kvr_peer_t) / 8);
        kvr_fence(__ATOMIC_ACQUIRE);

        if (kvr_load32(&z->seq) == seq) {
            return n;
        }
    }

    return 0;
}
