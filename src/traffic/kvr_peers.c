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


/* All three are one word, which is never half written. */

void
kvr_peers_set_place(kvr_peers_t *p, uint32_t own, uint32_t before,
    uint32_t all)
{
    if (kvr_peers_held(p)) {
        kvr_put64(&p->zone->place,
                  (uint64_t) all << 32 | before << 16 | own);
    }
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


/* If the process before died meanwhile, seq is odd already. */

void
kvr_peers_set_peers(kvr_peers_t *p, const kvr_peer_t *peers, uint32_t n)
{
    uint32_t           odd;
    kvr_peers_zone_t  *z;

    z = p->zone;

    if (!kvr_peers_held(p)) {
        return;
    }

    odd = kvr_load32(&z->seq) | 1;

    kvr_put32(&z->seq, odd);
    kvr_fence(__ATOMIC_RELEASE);

    kvr_put32(&z->npeers, n);
    kvr_copy_words(z->peers, peers, n * sizeof(kvr_peer_t) / 8);

    __atomic_store_n(&z->seq, odd + 1, __ATOMIC_RELEASE);
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


uint32_t
kvr_peers_part(const kvr_peers_t *p, uint32_t bound)
{
    uint64_t  place, own, before, all, part;

    place = kvr_load64(&p->zone->place);
    own = place & 0xffff;
    before = place >> 16 & 0xffff;
    all = place >> 32;

    if (all == 0 || bound == 0) {
        return bound;
    }

    part = bound * (before + own) / all - bound * before / all;

    return kvr_max((uint32_t) part, 1);
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
