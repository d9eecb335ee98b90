/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a lookup does beside telling who has what: it may stop early, it is
 * bounded, and it notes what was of use.  Of the radix index, and where it is
 * another's affair too, of both.
 */


#include "radix_fixture.h"


#define MAX       8192


static void early_exit(void);
static void early_exit_positional(void);
static void every_block(void);
static void many_views(void);
static void capped(void);
static void capped_positional(void);
static void stamps(void);


static fx_t      fx;
static fx_t     *f = &fx;
static uint64_t  q[MAX], h[MAX];


int
main(void)
{
    early_exit();
    early_exit_positional();
    every_block();
    many_views();
    capped();
    capped_positional();
    stamps();

    return done();
}


/* Two views have the first run, one of them three more. */

static void
early_exit(void)
{
    fx_open(f, 4 << 20, 4);
    fx_count(q, 1, 2000);
    fx_count(h, 1, 2000);
    fx_store(f, 0, KVR_DEVICE, 0, h, q, 2000);
    fx_store(f, 1, KVR_DEVICE, 0, h, q, KVR_RUN_MAX);
    fx_store(f, 2, KVR_HOST, 0, h, q, KVR_RUN_MAX + 40);

    fx_find(f, q, 2000);
    ok(f->depths[0][0] == 2000 && f->depths[0][1] == KVR_RUN_MAX
       && f->depths[1][2] == KVR_RUN_MAX + 40, "a lookup looks at all");

    f->early_exit = true;

    fx_find(f, q, 2000);
    is_u64(f->depths[0][0], 2 * KVR_RUN_MAX,
           "early_exit: it stops behind the run where one view is left");
    ok(f->depths[0][1] == KVR_RUN_MAX && f->depths[1][2] == KVR_RUN_MAX + 40
       && f->depths[0][2] == 0, "with the exact scores of the others");

    fx_find(f, q, 300);
    ok(f->depths[0][0] == 300 && f->depths[0][1] == 300
       && f->depths[1][2] == 300, "and of all where several are left");

    f->early_exit = false;
    fx_close(f);
}


/* The same chains; a view with a hole is followed block by block. */

static void
early_exit_positional(void)
{
    fx_kind = KVR_INDEX_POSITIONAL;
    fx_open(f, 4 << 20, 4);
    fx_kind = KVR_INDEX_RADIX;

    fx_count(q, 1, 2000);
    fx_count(h, 1, 2000);
    fx_store(f, 0, KVR_DEVICE, 0, h, q, 2000);
    fx_store(f, 1, KVR_DEVICE, 0, h, q, KVR_RUN_MAX);
    fx_store(f, 2, KVR_HOST, 0, h, q, KVR_RUN_MAX + 40);

    f->early_exit = true;

    fx_find(f, q, 2000);
    ok(f->depths[0][0] > KVR_RUN_MAX + 40 && f->depths[0][0] < 2000,
       "early_exit, positional: it stops where one view is left: %u",
       f->depths[0][0]);
    ok(f->depths[0][1] == KVR_RUN_MAX && f->depths[1][2] == KVR_RUN_MAX + 40
       && f->depths[0][2] == 0, "with the exact scores of the others");

    fx_find(f, q, 300);
    ok(f->depths[0][0] == 300 && f->depths[0][1] == 300
       && f->depths[1][2] == 300, "and of all where several are left");

    fx_remove(f, 0, KVR_DEVICE, h + 1500, 1);
    fx_find(f, q, 2000);
    ok(f->depths[0][0] >= KVR_RUN_MAX + 40 && f->depths[0][0] < 1500
       && f->depths[0][1] == KVR_RUN_MAX
       && f->depths[1][2] == KVR_RUN_MAX + 40,
       "also when it is one with a hole, which comes last");

    fx_remove(f, 0, KVR_DEVICE, h + 100, 1);
    fx_find(f, q, 2000);
    ok(f->depths[0][0] == 100 && f->depths[0][1] == KVR_RUN_MAX
       && f->depths[1][2] == KVR_RUN_MAX + 40,
       "or first: then the others are all looked at");

    f->early_exit = false;
    fx_close(f);
}


/* Prompts that leave a chain of three runs at each of its blocks. */

static void
every_block(void)
{
    uint32_t  i, best, good;

    fx_open(f, 4 << 20, 4);
    fx_count(q, 1, 1100);
    fx_count(h, 1, 1100);
    fx_store(f, 0, KVR_DEVICE, 0, h, q, 1100);

    for (i = 0, good = 0; i < 1100; i++) {
        q[i] ^= UINT64_C(1) << 63;
        best = fx_find(f, q, 1100);
        good += best == i && f->depths[0][0] == i;
        q[i] ^= UINT64_C(1) << 63;
    }

    is_u64(good, 1100, "a match ends before the first block that differs");

    for (i = 1, good = 0; i <= 1100; i++) {
        good += fx_find(f, q, i) == i;
    }

    is_u64(good, 1100, "or with the prompt");
    fx_close(f);
}


/*
 * View v of 131 has 8 v of two runs' blocks and some more, by handles of its
 * own where v is odd; one has nothing of the first run.
 */

static void
many_views(void)
{
    uint32_t  v, n, want, good;
    uint64_t  own[2000];

    fx_open(f, 16 << 20, 131);
    fx_count(q, 1, 1100);
    fx_count(h, 1, 1100);

    for (v = 0; v < 131; v++) {

        if (v == 70) {
            continue;
        }

        n = 8 * v + 1;
        fx_count(own, 1000000 + v * 2000, n);
        fx_store(f, v, KVR_DEVICE, 0, v & 1 ? own : h, q, n);
    }

    for (n = 1, good = 0; n <= 1100; n++) {

        good += fx_find(f, q, n) == kvr_min(n, 1041);

        for (v = 0; v < 131; v++) {
            want = v == 70 ? 0 : kvr_min(8 * v + 1, n);

            if (f->depths[2][v] != want || f->depths[0][v] != want) {
                note("view %u has %u of %u, should have %u", v,
                     f->depths[2][v], n, want);
                good = 0;
            }
        }
    }

    is_u64(good, 1100, "each of many views has its depth of any prompt");

    f->early_exit = true;
    fx_find(f, q, 1100);
    ok(f->depths[2][129] == 1033 && f->depths[2][130] > 1024,
       "early_exit: where more than one is left, all are looked at");
    f->early_exit = false;

    ok(fx_whole(f, "many views"), "the index is whole");
    fx_close(f);
}


/*
 * A chain of more runs than a lookup follows: each block has a sibling, so
 * that none is appended to its parent's run.
 */

static void
capped(void)
{
    uint32_t  i;

    fx_open(f, 8 << 20, 4);

    for (i = 0; i < KVR_RADIX_HOPS + 200; i++) {
        h[i] = q[i] = i + 1;
        h[MAX - 1] = q[MAX - 1] = 1000000 + i;

        fx_store(f, 0, KVR_DEVICE, i ? h[i - 1] : 0, &h[MAX - 1],
                 &q[MAX - 1], 1);
        fx_store(f, 0, KVR_DEVICE, i ? h[i - 1] : 0, &h[i], &q[i], 1);
    }

    ok(f->zone->u.radix.children_used > KVR_RADIX_HOPS, "a chain of %lu runs",
       (unsigned long) f->zone->u.radix.children_used);
    is_u64(fx_find(f, q, KVR_RADIX_HOPS - 500), KVR_RADIX_HOPS - 500,
           "is followed");
    fx_find(f, q, KVR_RADIX_HOPS + 200);
    ok(f->depths[2][0] >= KVR_RADIX_HOPS && !f->torn
       && f->depths[2][0] < KVR_RADIX_HOPS + 200,
       "but only so far: %u blocks", f->depths[2][0]);
    ok(f->zone->u.radix.cut == 1, "which is counted");
    fx_close(f);
}


/* A view with a hole is followed block by block, and only so far. */

static void
capped_positional(void)
{
    uint32_t         i;
    static uint64_t  long_q[KVR_POSITIONAL_STEPS + 200];

    fx_kind = KVR_INDEX_POSITIONAL;
    fx_open(f, 16 << 20, 4);
    fx_kind = KVR_INDEX_RADIX;

    fx_count(long_q, 1, KVR_POSITIONAL_STEPS + 200);

    for (i = 0; i < KVR_POSITIONAL_STEPS + 200; i += 100) {
        fx_store(f, 0, KVR_DEVICE, i ? long_q[i - 1] : 0, &long_q[i],
                 &long_q[i],
                 kvr_min(100, KVR_POSITIONAL_STEPS + 200 - i));
    }

    is_u64(fx_find(f, long_q, KVR_POSITIONAL_STEPS + 200),
           KVR_POSITIONAL_STEPS + 200,
           "positional: without a hole a chain of any length is followed");
    is_u64(f->zone->u.positional.cut, 0, "and no lookup is cut");

    fx_remove(f, 0, KVR_DEVICE, &long_q[KVR_POSITIONAL_STEPS + 100], 1);
    fx_find(f, long_q, KVR_POSITIONAL_STEPS + 200);
    ok(f->depths[2][0] > KVR_POSITIONAL_STEPS - 100
       && f->depths[2][0] <= KVR_POSITIONAL_STEPS && !f->torn
       && f->zone->u.positional.cut == 1,
       "with a hole only so far, which is counted: %u blocks",
       f->depths[2][0]);
    fx_close(f);
}


/* Once a second, and only by what matched. */

static void
stamps(void)
{
    uint32_t  age;

    fx_open(f, 4 << 20, 4);
    fx_count(q, 1, 1000);
    kvr_index_set_now(&f->x, 100);
    fx_store(f, 0, KVR_DEVICE, 0, q, q, 1000);

    kvr_index_set_now(&f->x, 200);
    fx_find(f, q, 300);
    kvr_index_set_now(&f->x, 250);

    for (age = 0; age < 2; age++) {
        kvr_index_begin(&f->x);
        while (!kvr_index_evict(&f->x, 100, 1000)) { /* void */ }
        kvr_txn_commit(&f->mem);
    }

    fx_find(f, q, 1000);
    is_u64(f->depths[0][0], KVR_RUN_MAX,
           "what matched is of use, what did not is forgotten");
    ok(fx_whole(f, "stamps"), "the index is whole");
    fx_close(f);
}
