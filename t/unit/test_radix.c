/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Both indexes, case by case.  test_radix_room.c has what happens when memory
 * is short, test_radix_model.c the random streams.
 */


#include "radix_fixture.h"


#define MAX    (3 * KVR_RUN_MAX + 64)


static void example(void);
static bool shape(uint64_t runs, uint64_t handles, uint64_t details);
static void holes(void);
static void removals(void);
static void duplicates(void);
static void parents(void);
static void moves(void);
static void names(void);
static void tiers(void);
static uint64_t runs(uint32_t n);
static void long_chains(void);
static void divergence(void);
static void dense(void);
static void rollbacks(void);
static void many_in_one(void);
static void seeds(void);


static fx_t      fx;
static fx_t     *f = &fx;
static uint64_t  q[MAX], h[MAX], b[MAX];


int
main(void)
{
    for (fx_kind = 0; fx_kind < KVR_INDEX_KINDS; fx_kind++) {
        note("%s", kvr_index_name(fx_kind));

        example();
        holes();
        removals();
        duplicates();
        parents();
        moves();
        names();
        tiers();
        long_chains();
        divergence();
        dense();
        rollbacks();
        many_in_one();
        seeds();
    }

    return done();
}


/* ---- the example at the head of kvr_radix.c ------------------------------ */

static void
example(void)
{
    enum { A, B };

    uint64_t  abcd[] = { 'a', 'b', 'c', 'd' };
    uint64_t  abcef[] = { 'a', 'b', 'c', 'e', 'f' };
    uint64_t  names[] = { 1, 2, 3, 4 }, own[] = { 1, 2, 3, 9 };
    uint64_t  more[] = { 5, 6 };

    fx_open(f, 8 << 20, 2);

    fx_store(f, A, KVR_DEVICE, 0, names, abcd, 4);
    ok(shape(1, 4, 0), "1. one run with four names");

    fx_store(f, B, KVR_DEVICE, 0, names, abcd, 3);
    ok(shape(1, 4, 0), "2. B holds three blocks of it by the same names");

    fx_store(f, B, KVR_DEVICE, 3, more, abcef + 3, 2);
    ok(shape(2, 6, 0), "3. e and f are a run that hangs on the first one");
    is_depth(f, abcef, A, 5, 3, 3, 3, "A holds three blocks of a b c e f");
    is_depth(f, abcef, B, 5, 5, 5, 5, "B holds all five");

    fx_store(f, B, KVR_DEVICE, 3, own + 3, abcd + 3, 1);
    ok(shape(2, 10, 0), "4. B has four names of its own in the first run");
    is_depth(f, abcd, B, 4, 4, 4, 4, "and all of a b c d");

    fx_remove(f, A, KVR_DEVICE, names + 1, 1);
    ok(shape(2, 10, 1), "5. A has a detail");
    is_depth(f, abcd, A, 4, 1, 1, 1, "the hole ends the match");

    fx_store(f, A, KVR_DEVICE, 1, names + 1, abcd + 1, 1);
    ok(shape(2, 10, 0), "6. the detail is gone");
    is_depth(f, abcd, A, 4, 4, 4, 4, "and A has all four blocks again");

    fx_remove(f, A, KVR_DEVICE, names, 4);
    ok(shape(2, 6, 0), "7. the first run stays, for B holds it");
    fx_remove(f, B, KVR_DEVICE, more, 2);
    ok(shape(1, 4, 0), "the second run is freed");
    fx_remove(f, B, KVR_DEVICE, own, 4);
    is_empty(f, "and nothing is left");

    fx_close(f);
}


/* The positional index has another shape; there only the depths count. */

static bool
shape(uint64_t runs, uint64_t handles, uint64_t details)
{
    const kvr_radix_zone_t  *z;

    if (fx_kind != KVR_INDEX_RADIX) {
        return fx_whole(f, "example");
    }

    z = f->x.u.radix.zone;

    if (z->children_used != runs || z->handles.used != handles
        || z->details != details)
    {
        note("got %" PRIu64 " runs, %" PRIu64 " handles, %" PRIu64 " details",
             z->children_used, z->handles.used, z->details);
        return false;
    }

    return fx_whole(f, "example");
}


/* ---- holes and removals ------------------------------------------------- */

static void
holes(void)
{
    fx_open(f, 8 << 20, 8);
    fx_count(q, 100, 40);
    fx_count(h, 1000, 40);

    is_depth(f, q, 0, 40, 0, 0, 0, "an empty index has no match");
    is_u64(fx_find(f, q, 0), 0, "an empty prompt has no match");

    fx_store(f, 0, KVR_DEVICE, 0, h, q, 40);
    is_depth(f, q, 0, 40, 40, 40, 40, "a chain is found as it was stored");
    is_depth(f, q, 0, 23, 23, 23, 23, "a shorter prompt matches as a whole");

    fx_remove(f, 0, KVR_DEVICE, h + 20, 1);
    is_depth(f, q, 0, 40, 20, 20, 20, "a hole ends the match");

    fx_store(f, 0, KVR_DEVICE, h[19], h + 20, q + 20, 1);
    is_depth(f, q, 0, 40, 40, 40, 40, "filling the hole restores it");

    fx_remove(f, 0, KVR_DEVICE, h, 1);
    is_depth(f, q, 0, 40, 0, 0, 0, "without its first block nothing matches");

    fx_store(f, 0, KVR_DEVICE, 0, h, q, 1);
    is_depth(f, q, 0, 40, 40, 40, 40, "with it again everything does");

    fx_remove(f, 0, KVR_DEVICE, h + 10, 1);
    fx_remove(f, 0, KVR_DEVICE, h + 30, 1);
    fx_store(f, 0, KVR_DEVICE, h[9], h + 10, q + 10, 1);
    is_depth(f, q, 0, 40, 30, 30, 30,
             "of two holes filled one ends the match");

    fx_remove(f, 0, KVR_DEVICE, h, 40);
    is_empty(f, "a chain with a hole leaves nothing behind");
    fx_close(f);
}


static void
removals(void)
{
    uint32_t  i;

    fx_open(f, 8 << 20, 8);
    fx_count(q, 100, 300);
    fx_count(h, 1000, 300);

    for (i = 0; i < 3; i++) {
        fx_store(f, i, KVR_DEVICE, 0, h, q, 300);
    }

    fx_remove(f, 1, KVR_DEVICE, h + 150, 50);
    is_depth(f, q, 1, 300, 150, 150, 150,
             "a removal in the middle ends the match there");
    is_depth(f, q, 0, 300, 300, 300, 300, "and not for another holder");
    is_depth(f, q, 2, 300, 300, 300, 300, "nor for a third");

    fx_remove(f, 0, KVR_DEVICE, h, 300);
    is_depth(f, q, 0, 300, 0, 0, 0, "the head first: nothing is left of it");
    is_depth(f, q, 1, 300, 150, 150, 150, "others keep what they have");

    for (i = 0; i < 299; i++) {
        fx_remove(f, 2, KVR_DEVICE, h + i, 1);
    }

    is_depth(f, q, 2, 300, 0, 0, 0, "head first, block by block: no match");

    fx_store(f, 2, KVR_DEVICE, 0, h, q, 299);
    is_depth(f, q, 2, 300, 300, 300, 300,
             "the last block was there all the time");

    fx_backwards(b, h, 300);
    is_u64(fx_remove(f, 2, KVR_DEVICE, b, 300), 0,
           "tail first, all are known");

    b[0] = 7;
    b[1] = h[0];
    b[2] = h[0];
    b[3] = 8;
    b[4] = h[1];
    is_u64(fx_remove(f, 1, KVR_DEVICE, b, 5), 3,
           "unknown handles in a removal are counted");
    is_u64(fx_remove(f, 1, KVR_DEVICE, h, 2), 2,
           "and the known ones among them are gone");
    is_u64(fx_remove(f, 1, KVR_HOST, h + 2, 1), 1,
           "a handle is unknown to a tier that it is not in");
    is_u64(fx_remove(f, 1, KVR_DEVICE, h, 300), 52, "the rest is removed");
    is_empty(f, "three holders leave nothing behind");
    fx_close(f);
}


static void
duplicates(void)
{
    uint32_t  i;

    fx_open(f, 8 << 20, 8);
    fx_count(q, 100, 40);
    fx_count(h, 1000, 40);

    for (i = 0; i < 3; i++) {
        fx_store(f, 0, KVR_DEVICE, 0, h, q, 40);
    }

    is_depth(f, q, 0, 40, 40, 40, 40, "stored three times, it is there once");

    fx_remove(f, 0, KVR_DEVICE, h + 39, 1);
    is_depth(f, q, 0, 40, 39, 39, 39, "and one removal takes it away");

    fx_store(f, 0, KVR_DEVICE, h[9], h + 10, q + 10, 30);
    is_depth(f, q, 0, 40, 40, 40, 40, "an overlapping event adds what is new");

    fx_remove(f, 0, KVR_DEVICE, h, 40);
    is_empty(f, "duplicates leave nothing behind");
    fx_close(f);
}


/* ---- handles ------------------------------------------------------------ */

static void
parents(void)
{
    fx_open(f, 8 << 20, 8);
    fx_count(q, 100, 40);
    fx_count(h, 1000, 40);

    is_u64(fx_store(f, 0, KVR_DEVICE, h[0], h + 1, q + 1, 5),
           (uint64_t) KVR_DECLINED, "a child before its parent is refused");
    is_empty(f, "and changes nothing");

    fx_store(f, 1, KVR_DEVICE, 0, h, q, 5);
    is_u64(fx_store(f, 0, KVR_DEVICE, h[0], h + 1, q + 1, 5),
           (uint64_t) KVR_DECLINED, "another view's parent is nobody's");

    /* its own parent: it moves behind itself */

    fx_store(f, 0, KVR_DEVICE, 0, h, q, 1);
    is_u64(fx_store(f, 0, KVR_DEVICE, h[0], h, q + 1, 1), KVR_OK,
           "a block that is its own parent is taken");
    is_depth(f, q, 0, 40, 0, 0, 0, "it has moved behind where it was");

    fx_store(f, 0, KVR_DEVICE, 0, h + 20, q, 1);
    is_depth(f, q, 0, 40, 2, 2, 2, "where it matches behind another's block");

    fx_remove(f, 0, KVR_DEVICE, h, 1);
    fx_remove(f, 0, KVR_DEVICE, h + 20, 1);
    fx_remove(f, 1, KVR_DEVICE, h, 5);

    /* a whole event with one name */

    fx_count(h, 7, 1);
    h[1] = h[2] = h[3] = h[0];
    fx_store(f, 0, KVR_DEVICE, 0, h, q, 4);
    is_depth(f, q, 0, 40, 0, 0, 0, "four blocks of one name: the last has it");
    is_u64(fx_remove(f, 0, KVR_DEVICE, h, 4), 3, "it is removed once");
    is_empty(f, "odd parents leave nothing behind");
    fx_close(f);
}


static void
moves(void)
{
    uint64_t  other[40];

    fx_open(f, 8 << 20, 8);
    fx_count(q, 100, 40);
    fx_count(h, 1000, 40);
    fx_count(other, 500, 40);

    fx_store(f, 0, KVR_DEVICE, 0, h, q, 40);
    fx_store(f, 0, KVR_HOST, 0, h, q, 40);
    fx_store(f, 0, KVR_DEVICE, 0, h, other, 20);
    is_depth(f, q, 0, 40, 0, 0, 0,
             "handles stored elsewhere leave their blocks");

    memcpy(q, other, 20 * sizeof(uint64_t));
    is_depth(f, q, 0, 20, 20, 20, 20, "and are at the other place");
    is_u64(fx_remove(f, 0, KVR_HOST, h, 40), 20,
           "with the tier of the event only");
    is_u64(fx_remove(f, 0, KVR_DEVICE, h, 40), 0, "each is there once");
    is_empty(f, "what moved leaves nothing behind");

    /* inside a chain, onto a block that has another handle */

    fx_count(q, 100, 40);
    fx_store(f, 0, KVR_DEVICE, 0, h, q, 10);
    fx_store(f, 0, KVR_DEVICE, h[4], h + 2, q + 5, 1);
    is_depth(f, q, 0, 40, 2, 2, 2, "a handle moved along its chain: a hole");
    fx_remove(f, 0, KVR_DEVICE, h + 5, 1);
    fx_store(f, 0, KVR_DEVICE, h[1], h + 30, q + 2, 1);
    is_depth(f, q, 0, 40, 10, 10, 10, "the block it went to has it yet");
    fx_remove(f, 0, KVR_DEVICE, h, 40);
    is_empty(f, "nor does this");
    fx_close(f);
}


static void
names(void)
{
    fx_open(f, 8 << 20, 8);
    fx_count(q, 100, 40);
    fx_count(h, 1000, 40);
    fx_count(b, 2000, 40);

    fx_store(f, 0, KVR_DEVICE, 0, h, q, 40);
    fx_store(f, 0, KVR_DEVICE, 0, b, q, 20);
    fx_remove(f, 0, KVR_DEVICE, h + 10, 1);
    is_depth(f, q, 0, 40, 40, 40, 40, "a block with two handles survives one");

    fx_remove(f, 0, KVR_DEVICE, b + 10, 1);
    is_depth(f, q, 0, 40, 10, 10, 10, "and not both");

    fx_store(f, 0, KVR_DEVICE, b[9], b + 10, q + 10, 1);
    is_depth(f, q, 0, 40, 40, 40, 40, "either fills the hole");
    fx_remove(f, 0, KVR_DEVICE, b, 20);
    is_depth(f, q, 0, 40, 10, 10, 10, "the second set gone, the hole is back");

    /* other views have other names for the same, or the same for others */

    fx_store(f, 1, KVR_DEVICE, 0, b, q, 40);
    is_depth(f, q, 1, 40, 40, 40, 40, "each view has handles of its own");
    is_u64(fx_remove(f, 1, KVR_DEVICE, h, 40), 40,
           "one view's handles mean nothing in another");

    fx_count(q, 500, 40);
    fx_store(f, 2, KVR_DEVICE, 0, h, q, 40);
    is_depth(f, q, 2, 40, 40, 40, 40, "one handle names different blocks");
    is_depth(f, q, 0, 40, 0, 0, 0, "in different views");

    fx_remove(f, 0, KVR_DEVICE, h, 40);
    fx_remove(f, 1, KVR_DEVICE, b, 40);
    fx_remove(f, 2, KVR_DEVICE, h, 40);
    is_empty(f, "names leave nothing behind");
    fx_close(f);
}


static void
tiers(void)
{
    uint32_t  unknown;

    fx_open(f, 8 << 20, 8);
    fx_count(q, 100, 40);
    fx_count(h, 1000, 40);

    fx_store(f, 0, KVR_DEVICE, 0, h, q, 10);
    fx_store(f, 0, KVR_HOST, h[9], h + 10, q + 10, 10);
    fx_store(f, 0, KVR_DISK, h[19], h + 20, q + 20, 10);
    is_depth(f, q, 0, 40, 10, 20, 30, "tiers are cumulative");

    fx_store(f, 0, KVR_EXTERNAL, h[29], h + 30, q + 30, 10);
    is_depth(f, q, 0, 40, 10, 20, 30, "external is never scored");

    fx_store(f, 0, KVR_DISK, h[38], h + 39, q + 39, 1);
    is_depth(f, q, 0, 40, 10, 20, 30, "nor does it bridge a hole");

    fx_store(f, 0, KVR_HOST, 0, h, q, 10);
    fx_remove(f, 0, KVR_DEVICE, h + 4, 1);
    is_depth(f, q, 0, 40, 4, 20, 30, "a block left to host ends device there");

    fx_remove(f, 0, KVR_HOST, h + 4, 1);
    is_depth(f, q, 0, 40, 4, 4, 4, "taken out of both, it ends all");

    fx_store(f, 0, KVR_DISK, h[3], h + 4, q + 4, 1);
    is_depth(f, q, 0, 40, 4, 4, 30, "on disk it is a bridge for disk alone");

    unknown = 0;
    kvr_index_begin(&f->x);
    kvr_index_add_tier(&f->x, 0, KVR_DEVICE, h, 40, &unknown);
    kvr_txn_commit(&f->mem);
    is_u64(unknown, 0, "a tier is added to handles that are known");
    is_depth(f, q, 0, 40, 40, 40, 40, "then device has all of them");

    fx_remove(f, 0, KVR_HOST, h, 40);
    fx_remove(f, 0, KVR_DISK, h, 40);
    fx_remove(f, 0, KVR_EXTERNAL, h, 40);
    is_depth(f, q, 0, 40, 40, 40, 40, "with device alone it is a plain chain");
    is_u64(fx_usage(f).holes, 0, "without details");

    unknown = 0;
    kvr_index_begin(&f->x);
    kvr_index_add_tier(&f->x, 1, KVR_DEVICE, h, 40, &unknown);
    kvr_txn_commit(&f->mem);
    is_u64(unknown, 40, "no tier is added to unknown handles");

    fx_remove(f, 0, KVR_DEVICE, h, 40);
    is_empty(f, "tiers leave nothing behind");
    fx_close(f);
}


/* ---- runs --------------------------------------------------------------- */

/* Of a chain of so many blocks; a positional index has none but blocks. */

static uint64_t
runs(uint32_t n)
{
    return fx_kind == KVR_INDEX_RADIX ? (n + KVR_RUN_MAX - 1) / KVR_RUN_MAX
                                      : n;
}


static void
long_chains(void)
{
    uint32_t  i, n;

    fx_open(f, 8 << 20, 8);
    n = 3 * KVR_RUN_MAX;
    fx_count(q, 100, n + 1);
    fx_count(h, 5000, n + 1);

    fx_store(f, 0, KVR_DEVICE, 0, h, q, n);
    is_depth(f, q, 0, n + 1, n, n, n, "a chain of three runs is found");
    is_u64(fx_usage(f).entries, runs(n), "and has three runs, or its blocks");

    for (i = 0; i < n; i++) {
        fx_store(f, 1, KVR_DEVICE, i ? h[i - 1] : 0, h + i, q + i, 1);
    }

    is_depth(f, q, 1, n + 1, n, n, n, "a chain grows by events of one block");
    is_u64(fx_usage(f).entries, runs(n), "along the runs that are there");

    fx_remove(f, 0, KVR_DEVICE, h, n);

    fx_backwards(b, h, n);
    fx_remove(f, 1, KVR_DEVICE, b, n - 10);
    is_depth(f, q, 1, n + 1, 10, 10, 10, "and is cut from its end");
    is_u64(fx_usage(f).blocks, 10, "to the last block that is held");
    fx_remove(f, 1, KVR_DEVICE, h, 10);
    is_empty(f, "a long chain leaves nothing behind");

    for (i = 0; i < n; i++) {
        fx_store(f, 1, KVR_DEVICE, i ? h[i - 1] : 0, h + i, q + i, 1);
    }

    is_depth(f, q, 1, n + 1, n, n, n, "it grows by itself, too");
    is_u64(fx_usage(f).entries, runs(n), "to three runs");
    fx_remove(f, 1, KVR_DEVICE, h + KVR_RUN_MAX, 1);
    is_depth(f, q, 1, n, KVR_RUN_MAX, KVR_RUN_MAX, KVR_RUN_MAX,
             "a hole where a run begins ends the match there");
    fx_remove(f, 1, KVR_DEVICE, h, n);
    is_empty(f, "and leaves nothing");
    fx_close(f);
}


static void
divergence(void)
{
    bool      good;
    uint32_t  i, n;
    uint64_t  save;

    fx_open(f, 16 << 20, 4);
    n = KVR_RUN_MAX + 20;
    fx_count(q, 100, n);
    fx_count(h, 5000, n);
    fx_store(f, 0, KVR_DEVICE, 0, h, q, n);

    /* a branch of one block at each offset, by another view */

    fx_store(f, 1, KVR_DEVICE, 0, h, q, n);

    for (i = 0; i < n; i++) {
        save = 1000000 + i;
        b[i] = 2000000 + i;
        fx_store(f, 1, KVR_DEVICE, i ? h[i - 1] : 0, b + i, &save, 1);
    }

    good = true;

    for (i = 0; i < n; i++) {
        save = q[i];
        q[i] = 1000000 + i;
        fx_find(f, q, n);
        good = good && f->depths[2][0] == i && f->depths[2][1] == i + 1;
        q[i] = save;
    }

    ok(good && fx_whole(f, "branches"),
       "a branch at each offset of a run is found");

    fx_remove(f, 0, KVR_DEVICE, h, n);
    fx_remove(f, 1, KVR_DEVICE, h, n);
    is_depth(f, q, 1, n, 0, 0, 0, "the trunk is let go of below its branches");

    q[0] = 1000000;
    is_depth(f, q, 1, n, 1, 1, 1, "the first branch stays");
    fx_remove(f, 1, KVR_DEVICE, b, n);
    is_empty(f, "branches leave nothing behind");
    fx_close(f);
}


static void
dense(void)
{
    bool      good;
    uint32_t  i, d;

    fx_open(f, 32 << 20, 700);
    fx_count(q, 100, 50);
    fx_count(h, 5000, 50);

    for (i = 0; i < 600; i++) {
        fx_store(f, i * 11 % 700, KVR_DEVICE, 0, h, q, 1 + i % 50);
    }

    good = true;
    fx_find(f, q, 50);

    for (i = 0; i < 700; i++) {
        d = f->depths[2][i * 11 % 700];
        good = good && d == (i < 600 ? 1 + i % 50 : 0);
    }

    ok(good && fx_whole(f, "dense"),
       "hundreds of views, each with its depth");

    for (i = 0; i < 600; i += 2) {
        fx_remove(f, i * 11 % 700, KVR_DEVICE, h, 1);
    }

    for (i = 1; i < 600; i += 2) {
        fx_store(f, i * 11 % 700, KVR_HOST, 0, h, q, 50);
    }

    good = true;
    fx_find(f, q, 50);

    for (i = 0; i < 600; i++) {
        d = i * 11 % 700;
        good = good && f->depths[0][d] == (i & 1 ? 1 + i % 50 : 0)
               && f->depths[1][d] == (i & 1 ? 50 : 0)
               && f->depths[2][d] == f->depths[1][d];
    }

    ok(good && fx_whole(f, "dense with details"),
       "hundreds of views with holes and tiers");

    for (i = 0; i < 700; i++) {
        fx_remove(f, i, KVR_DEVICE, h, 50);
        fx_remove(f, i, KVR_HOST, h, 50);
    }

    is_empty(f, "hundreds of views leave nothing behind");
    fx_close(f);
}


static void
seeds(void)
{
    uint32_t  stored;
    uint64_t  seed;

    fx_open(f, 8 << 20, 4);
    fx_count(q, 100, 40);
    fx_count(h, 1000, 40);

    kvr_index_begin(&f->x);
    kvr_index_store(&f->x, 0, KVR_DEVICE, false, 0, h, q, 20, 1337, &stored);
    kvr_txn_commit(&f->mem);

    seed = 0;
    ok(kvr_index_seed(&f->x, 0, h[19], &seed) == KVR_OK && seed == 1337,
       "a chain knows the seed it was stored with");
    ok(kvr_index_seed(&f->x, 1, h[19], &seed) == KVR_DECLINED,
       "an unknown handle has none");

    fx_store(f, 0, KVR_DEVICE, h[9], h + 20, q + 20, 5);
    seed = 0;
    kvr_index_seed(&f->x, 0, h[20], &seed);
    is_u64(seed, 1337, "a branch has its parent's");
    fx_close(f);
}


/* ---- transactions ------------------------------------------------------- */

static void
rollbacks(void)
{
    uint32_t  stored, unknown;
    uint64_t  other[64];

    fx_open(f, 8 << 20, 8);
    fx_count(q, 100, 60);
    fx_count(h, 1000, 60);
    fx_count(other, 9000, 60);
    fx_store(f, 0, KVR_DEVICE, 0, h, q, 40);

    kvr_index_begin(&f->x);
    kvr_index_store(&f->x, 0, KVR_DEVICE, true, h[39], h + 40, q + 40, 20, 0,
                    &stored);
    kvr_txn_rollback(&f->mem);
    is_depth(f, q, 0, 60, 40, 40, 40, "a store is rolled back");

    unknown = 0;
    fx_backwards(b, h, 40);
    kvr_index_begin(&f->x);
    kvr_index_remove(&f->x, 0, KVR_DEVICE, b, 30, &unknown);
    kvr_txn_rollback(&f->mem);
    is_depth(f, q, 0, 60, 40, 40, 40, "a removal is rolled back");

    /* the place of the blocks removed is used again at once */

    kvr_index_begin(&f->x);
    kvr_index_remove(&f->x, 0, KVR_DEVICE, b, 30, &unknown);
    kvr_index_store(&f->x, 0, KVR_DEVICE, true, h[9], other, other, 20, 0,
                    &stored);
    kvr_txn_rollback(&f->mem);
    is_depth(f, q, 0, 60, 40, 40, 40, "both in one transaction are, too");

    kvr_index_begin(&f->x);
    kvr_index_remove(&f->x, 0, KVR_DEVICE, b, 40, &unknown);
    kvr_index_store(&f->x, 0, KVR_DEVICE, false, 0, other, other, 60, 0,
                    &stored);
    kvr_index_store(&f->x, 1, KVR_HOST, false, 0, h, q, 60, 0, &stored);
    kvr_txn_rollback(&f->mem);
    is_depth(f, q, 0, 60, 40, 40, 40, "and when all of it was removed");

    fx_remove(f, 0, KVR_DEVICE, h, 40);
    is_empty(f, "rollbacks leave nothing behind");
    fx_close(f);
}


static void
many_in_one(void)
{
    uint32_t  i, stored, unknown;

    fx_open(f, 16 << 20, 8);
    kvr_index_begin(&f->x);

    for (i = 0; i < 5000; i++) {
        h[0] = q[0] = i + 1;
        kvr_index_store(&f->x, 0, KVR_DEVICE, false, 0, h, q, 1, 0, &stored);
    }

    kvr_txn_commit(&f->mem);
    q[0] = 5000;
    is_depth(f, q, 0, 1, 1, 1, 1,
             "5000 stores in one transaction fit its log");

    kvr_index_begin(&f->x);
    unknown = 0;

    for (i = 0; i < 5000; i++) {
        h[0] = i + 1;
        kvr_index_remove(&f->x, 0, KVR_DEVICE, h, 1, &unknown);
    }

    kvr_txn_commit(&f->mem);
    is_empty(f, "and 5000 removals");
    fx_close(f);
}
