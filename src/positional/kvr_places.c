/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_places.h"


static bool kvr_places_read(const kvr_positional_t *x, uint32_t block,
    uint32_t position, uint64_t hash, uint64_t sequence, uint32_t *version,
    bool *torn);
static uint32_t kvr_places_sum(const kvr_positional_t *x, uint64_t from,
    uint64_t to, uint32_t *odd);


uint32_t
kvr_places_find(const kvr_positional_t *x, uint32_t position, uint64_t hash,
    uint64_t sequence, uint32_t *version, bool *torn)
{
    uint32_t  attempts, block, before, after, odd;
    uint64_t  i, n, slot, stripe, first, probes;

    n = x->zone->nplaces;

    for (attempts = 0; attempts < KVR_POSITIONAL_ATTEMPTS; attempts++) {

        i = kvr_table_home(sequence, n);
        first = i / KVR_POSITIONAL_STRIPE;
        stripe = first;
        odd = 0;
        before = kvr_places_sum(x, stripe, stripe, &odd);

        for (probes = 0; probes < n; probes++) {

            if (i / KVR_POSITIONAL_STRIPE != stripe) {
                stripe = i / KVR_POSITIONAL_STRIPE;
                before += kvr_places_sum(x, stripe, stripe, &odd);
            }

            slot = __atomic_load_n(&x->places[i], __ATOMIC_ACQUIRE);

            if (slot == 0) {
                break;
            }

            block = (uint32_t) (slot >> 32);

            if ((uint32_t) slot == kvr_places_tag(sequence)
                && kvr_places_read(x, block, position, hash, sequence,
                                   version, torn))
            {
                return *torn ? 0 : block;
            }

            i = kvr_table_next(i, n);
        }

        kvr_fence(__ATOMIC_ACQUIRE);

        /* versions only advance: if the sum is the same, each version is */

        after = kvr_places_sum(x, first, stripe, &odd);

        if (before == after && (odd & 1) == 0) {
            return 0;
        }
    }

    *torn = true;

    return 0;
}


/* Is this the block that the search is for? Torn ends the search, too. */

static bool
kvr_places_read(const kvr_positional_t *x, uint32_t block, uint32_t position,
    uint64_t hash, uint64_t sequence, uint32_t *version, bool *torn)
{
    uint32_t            i, v;
    const kvr_block_t  *b;

    b = kvr_block_at(&x->arena, block);

    for (i = 0; /* void */ ; i++) {
        v = __atomic_load_n(&b->version, __ATOMIC_ACQUIRE);

        if ((v & 1) == 0) {
            break;
        }

        if (i == KVR_PLACES_SPINS) {
            *torn = true;
            return true;
        }
    }

    *version = v;

    return kvr_load64(&b->sequence) == sequence
           && kvr_load64(&b->hash) == hash
           && kvr_load32(&b->position) == position;
}


/* Adds up the versions of the stripes from .. to, cyclically. */

static uint32_t
kvr_places_sum(const kvr_positional_t *x, uint64_t from, uint64_t to,
    uint32_t *odd)
{
    uint32_t  sum, v;
    uint64_t  n;

    n = (x->zone->nplaces - 1) / KVR_POSITIONAL_STRIPE + 1;
    sum = 0;

    for ( ;; ) {
        v = __atomic_load_n(&x->stripes[from], __ATOMIC_ACQUIRE);
        sum += v;
        *odd |= v;

        if (from == to) {
            return sum;
        }

        from = kvr_table_next(from, n);
    }
}


kvr_rc_t
kvr_places_add(kvr_positional_t *x, uint32_t block)
{
    uint64_t  i, sequence;

    if (x->zone->blocks >= x->zone->blocks_limit) {
        return KVR_FULL;
    }

    sequence = kvr_block_at(&x->arena, block)->sequence;
    i = kvr_table_home(sequence, x->zone->nplaces);

    while (x->places[i]) {
        i = kvr_table_next(i, x->zone->nplaces);
    }

    kvr_txn_log(x->mem, &x->places[i], KVR_UNDO_64, 0);
    __atomic_store_n(&x->places[i],
                     (uint64_t) block << 32 | kvr_places_tag(sequence),
                     __ATOMIC_RELEASE);

    kvr_put64(&x->zone->blocks, x->zone->blocks + 1);

    return KVR_OK;
}


void
kvr_places_delete(kvr_positional_t *x, uint32_t block)
{
    uint64_t  gap, j, n, nstripes, slot, home, stripe, first;

    n = x->zone->nplaces;
    nstripes = (n - 1) / KVR_POSITIONAL_STRIPE + 1;
    gap = kvr_table_home(kvr_block_at(&x->arena, block)->sequence, n);

    while ((uint32_t) (x->places[gap] >> 32) != block) {
        if (x->places[gap] == 0) {
            kvr_txn_damaged("a block is not in its table");
        }

        gap = kvr_table_next(gap, n);
    }

    first = gap / KVR_POSITIONAL_STRIPE;
    stripe = first;
    kvr_version_lock(x->mem, &x->stripes[stripe]);

    j = gap;

    for ( ;; ) {
        j = kvr_table_next(j, n);

        if (j / KVR_POSITIONAL_STRIPE != stripe) {
            stripe = j / KVR_POSITIONAL_STRIPE;
            kvr_version_lock(x->mem, &x->stripes[stripe]);
        }

        slot = x->places[j];

        if (slot == 0) {
            break;
        }

        home = kvr_table_home(slot << 32, n);

        if (kvr_table_moves(gap, j, home)) {
            kvr_set64(x->mem, &x->places[gap], slot);
            gap = j;
        }
    }

    kvr_set64(x->mem, &x->places[gap], 0);

    for ( ;; ) {
        kvr_version_unlock(&x->stripes[first]);

        if (first == stripe) {
            break;
        }

        first = kvr_table_next(first, nstripes);
    }

    kvr_put64(&x->zone->blocks, x->zone->blocks - 1);
}
