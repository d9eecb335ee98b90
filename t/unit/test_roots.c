/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The filter of the root's children: it never says no for one that is there,
 * and is as before when all are gone.
 */


#include "radix/kvr_children.h"
#include "radix_fixture.h"


#define ROOTS   12000


static void sizes(void);
static void many(void);
static void others(void);
static void rollbacks(void);
static void sticky(void);

static uint64_t key_of(uint64_t hash);
static uint32_t found(const uint64_t *hashes, uint32_t n);
static uint32_t bits(void);


static fx_t          fx;
static fx_t         *f = &fx;
static kvr_radix_t  *x = &fx.x.u.radix;
static uint64_t      q[ROOTS], h[ROOTS];


int
main(void)
{
    sizes();
    many();
    others();
    rollbacks();
    sticky();

    return done();
}


static uint64_t
key_of(uint64_t hash)
{
    return kvr_children_key(x, 0, 0, hash);
}


/* How many prompts of one block are there. */

static uint32_t
found(const uint64_t *hashes, uint32_t n)
{
    uint32_t  i, k;

    for (i = 0, k = 0; i < n; i++) {
        k += fx_find(f, &hashes[i], 1);
    }

    return k;
}


static uint32_t
bits(void)
{
    uint32_t  n;
    uint64_t  i;

    for (i = 0, n = 0; i < x->zone->nroots / 64; i++) {
        n += (uint32_t) __builtin_popcountll(x->root_bits[i]);
    }

    return n;
}


static void
sizes(void)
{
    uint64_t  slots;

    is_u64(kvr_roots_cells(0), 64, "the least filter has 64 cells");
    is_u64(kvr_roots_cells(UINT32_MAX), KVR_ROOTS_MAX,
           "the largest one fits a cache");

    for (slots = 256; slots < KVR_ROOTS_MAX; slots += slots / 7) {
        if (kvr_roots_cells(slots) * 2 > slots
            || kvr_roots_cells(slots) * 4 < slots)
        {
            break;
        }
    }

    ok(slots >= KVR_ROOTS_MAX, "between them it grows with the table");
}


/* First blocks and cells are about as many. */

static void
many(void)
{
    uint32_t  i, second;

    fx_open(f, 8 << 20, 4);
    fx_count(q, 1, ROOTS);
    fx_count(h, 1, ROOTS);

    for (i = 0; i < ROOTS; i++) {
        fx_store(f, i % 4, KVR_DEVICE, 0, &h[i], &q[i], 1);
    }

    is_u64(found(q, ROOTS), ROOTS, "each of many first blocks is found");
    ok(fx_whole(f, "many"), "and is counted");

    for (i = 0, second = 0; i < ROOTS; i++) {
        second += kvr_roots_may(x, key_of(fx_mix(i)));
    }

    ok(second > ROOTS / 3 && second < ROOTS / 3 * 2,
       "%u of %u others are asked for in the table", second, ROOTS);

    for (i = 0; i < ROOTS; i += 2) {
        fx_remove(f, i % 4, KVR_DEVICE, &h[i], 1);
    }

    is_u64(found(q, ROOTS), ROOTS / 2, "the others stay when half are gone");
    ok(fx_whole(f, "half"), "and are counted");

    for (i = 1; i < ROOTS; i += 2) {
        fx_remove(f, i % 4, KVR_DEVICE, &h[i], 1);
    }

    is_u64(found(q, ROOTS), 0, "then all are gone");
    is_u64(bits(), 0, "and no bit is left");
    fx_close(f);
}


static void
others(void)
{
    uint32_t  i;

    fx_open(f, 4 << 20, 4);
    fx_count(q, 1, 100);
    fx_count(h, 1, 100);
    fx_store(f, 0, KVR_DEVICE, 0, h, q, 50);

    for (i = 50; i < 100; i++) {
        fx_store(f, 0, KVR_DEVICE, h[i - 50], &h[i], &q[i], 1);
    }

    ok(x->zone->children_used > 40, "children of other runs");
    is_u64(bits(), 1, "leave the root's cells alone");
    ok(fx_whole(f, "others"), "the index is whole");
    fx_close(f);
}


static void
rollbacks(void)
{
    uint32_t  n;

    fx_open(f, 4 << 20, 4);
    fx_count(q, 1, 10);
    fx_store(f, 0, KVR_DEVICE, 0, q, q, 1);

    kvr_index_begin(&f->x);
    kvr_index_store(&f->x, 0, KVR_DEVICE, false, 0, &q[5], &q[5], 1, 0, &n);
    ok(kvr_roots_may(x, key_of(q[5])), "a first block is about to come");
    kvr_txn_rollback(&f->mem);
    ok(!kvr_roots_may(x, key_of(q[5])) && fx_whole(f, "one that came not"),
       "rolled back, it did not");

    n = 0;
    kvr_index_begin(&f->x);
    kvr_index_remove(&f->x, 0, KVR_DEVICE, q, 1, &n);
    ok(!kvr_roots_may(x, key_of(q[0])), "another one is about to go");
    kvr_txn_rollback(&f->mem);
    ok(found(q, 1) == 1 && fx_whole(f, "one that went not"),
       "rolled back, it is there yet");

    fx_close(f);
}


/* What would take 65,535 first blocks in one cell. */

static void
sticky(void)
{
    uint64_t  cell;

    fx_open(f, 4 << 20, 4);
    fx_count(q, 1, 10);
    fx_store(f, 0, KVR_DEVICE, 0, q, q, 1);

    cell = kvr_roots_cell(x, key_of(q[0]));
    x->root_counts[cell] = UINT16_MAX - 1;
    fx_store(f, 0, KVR_DEVICE, 0, q, q, 1);
    is_u64(x->root_counts[cell], UINT16_MAX - 1,
           "a block that is stored again is counted once");

    x->root_counts[cell] = UINT16_MAX;
    ok(fx_whole(f, "full cell"), "a count at its end need not be true");

    fx_remove(f, 0, KVR_DEVICE, q, 1);
    ok(found(q, 1) == 0 && kvr_roots_may(x, key_of(q[0])),
       "when its last block goes its bit stays");
    is_u64(x->root_counts[cell], UINT16_MAX, "and so does the count");

    fx_store(f, 0, KVR_DEVICE, 0, q, q, 1);
    is_u64(x->root_counts[cell], UINT16_MAX, "it never begins anew");
    is_u64(found(q, 1), 1, "what comes back is found");
    fx_close(f);
}
