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
static void bounded_details(void);
static void bounded_classes(void);
static void million_tokens(void);
static void capped_positional(void);
static void both_to_the_bound(void);
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
    bounded_details();
    bounded_classes();
    million_tokens();
    capped_positional();
    both_to_the_bound();
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
 * Chains of n blocks, which the views from 0 on hold in the tier: each block
 * has a sibling, so that none is appended to its parent's run.
 */

static void
short_runs(fx_t *to, uint32_t n, uint32_t views, kvr_tier_t tier)
{
    uint32_t  i, v;
    uint64_t  side;

    for (i = 0; i < n; i++) {
        h[i] = q[i] = i + 1;
        side = 1000000 + i;

        fx_store(to, 0, KVR_DEVICE, i ? h[i - 1] : 0, &side, &side, 1);

        for (v = 0; v < views; v++) {
            fx_store(to, v, tier, i ? h[i - 1] : 0, &h[i], &q[i], 1);
        }
    }
}


/* A chain of more runs than a lookup follows. */

static void
capped(void)
{
    fx_open(f, 8 << 20, 4);
    short_runs(f, KVR_RADIX_HOPS + 200, 1, KVR_DEVICE);

    ok(f->zone->u.radix.children_used > KVR_RADIX_HOPS, "a chain of %lu runs",
       (unsigned long) f->zone->u.radix.children_used);
    is_u64(fx_find(f, q, KVR_RADIX_HOPS - 500), KVR_RADIX_HOPS - 500,
           "is followed");
    fx_find(f, q, KVR_RADIX_HOPS + 200);
    ok(f->depths[2][0] >= KVR_RADIX_HOPS && !f->torn
       && f->depths[2][0] < KVR_RADIX_HOPS + 200,
       "but only so far: %u blocks", f->depths[2][0]);
    ok(f->zone->u.radix.cut == 1 && f->cut, "which is counted and told");
    is_u64(f->looks, KVR_RADIX_HOPS, "a run is one look");
    fx_close(f);
}


/*
 * Blocks in host memory take a detail of each view in each run: more looks,
 * which end the match before the maximum number of runs.
 */

static void
bounded_details(void)
{
    uint32_t  v, same;

    fx_open(f, 32 << 20, 64);
    short_runs(f, 1200, 64, KVR_HOST);

    fx_find(f, q, 500);
    ok(f->depths[2][63] == 500 && !f->cut
       && f->looks == 500 * (1 + 64 / KVR_LOOK_DETAILS),
       "64 details are %u looks: %u", 64 / KVR_LOOK_DETAILS, f->looks);

    fx_find(f, q, 1200);

    for (v = 0, same = 0; v < 64; v++) {
        same += f->depths[1][v] == f->depths[1][0] && f->depths[0][v] == 0;
    }

    ok(f->cut && !f->torn && f->looks >= KVR_RADIX_LOOKS
       && f->looks <= KVR_RADIX_LOOKS + 64 / KVR_LOOK_DETAILS,
       "a lookup ends with its looks: %u", f->looks);
    ok(same == 64 && f->depths[1][0] < 1200
       && f->depths[1][0] >= KVR_RADIX_LOOKS / (1 + 64 / KVR_LOOK_DETAILS),
       "and all views have the blocks up to there: %u", f->depths[1][0]);
    fx_close(f);
}


/*
 * Views with classes go through the runs once more, each for itself: 62 of 64
 * hold 300 short runs, and the other two fewer.
 */

static void
bounded_classes(void)
{
    uint32_t     v, i, n, good, unknown;
    kvr_class_t  c;

    c.kind = KVR_GROUP_WINDOW;
    c.window = 4;
    c.span = 1;

    fx_open(f, 32 << 20, 64);
    short_runs(f, 300, 1, KVR_DEVICE);

    for (v = 0; v < 64; v++) {
        n = v == 7 ? 20 : v == 50 ? 1 : 300;

        kvr_index_begin(&f->x);
        (void) kvr_classes_set(&f->x.u.radix, v, 0, &c);
        kvr_txn_commit(&f->mem);
        fx_store(f, v, KVR_DEVICE, 0, h, q, n);

        for (i = 0; i < n; i++) {
            kvr_index_begin(&f->x);
            (void) kvr_radix_add(&f->x.u.radix, v,
                                 kvr_classes_shadow(&f->x.u.radix, v),
                                 KVR_DEVICE, &h[i], 1, &unknown);
            kvr_txn_commit(&f->mem);
        }
    }

    f->limit = 300;
    fx_find(f, q, 60);

    for (v = 0, good = 0; v < 64; v++) {
        good += f->depths[2][v] == (v == 7 ? 20 : v == 50 ? 1 : 60);
    }

    ok(good == 64 && !f->cut, "64 views with classes in 60 runs: all hits");

    fx_find(f, q, 300);

    for (v = 0, good = 0; v < 64; v++) {
        good += v == 7 ? f->depths[2][v] == 20
                : v == 50 ? f->depths[2][v] == 1
                : f->depths[2][v] < 300 && f->depths[2][v] >= 37
                  && f->depths[2][v] == f->depths[2][0];
    }

    ok(f->cut && f->looks <= 300 * (1 + 64 / KVR_LOOK_DETAILS)
                             + KVR_CLASSES_RUNS,
       "in 300 runs they share the looks: %u", f->looks);
    is_u64(good, 64, "short ways are gone to their ends, long ones in part");

    f->limit = 0;
    fx_close(f);
}


/* A million tokens are 65536 blocks of 16, here in full runs. */

static void
million_tokens(void)
{
    uint32_t   v;
    uint64_t  *long_q;

    long_q = malloc(65536 * sizeof(uint64_t));
    fx_count(long_q, 1, 65536);
    fx_open(f, 64 << 20, 16);

    for (v = 0; v < 16; v++) {
        fx_store(f, v, KVR_HOST, 0, long_q, long_q, 65536);
    }

    is_u64(fx_find(f, long_q, 65536), 65536,
           "1 M tokens in full runs are matched to their end");
    ok(f->depths[1][15] == 65536 && !f->cut
       && f->looks == 128 * (1 + 16 / KVR_LOOK_DETAILS),
       "by %u looks, where 16 views have details", f->looks);

    fx_close(f);
    free(long_q);
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


/*
 * Both indexes up to the smaller of their bounds, which is that of the radix
 * index: chains of short runs, views that end anywhere, with holes, and in
 * tiers.
 */

static void
both_to_the_bound(void)
{
    uint32_t     v, i, k, n, t, good, deep, holes;
    uint64_t     random;
    static fx_t  other;
    fx_t        *two[2];

    two[0] = f;
    two[1] = &other;

    for (k = 0; k < 2; k++) {
        fx_kind = k ? KVR_INDEX_POSITIONAL : KVR_INDEX_RADIX;
        fx_open(two[k], 32 << 20, 6);
        short_runs(two[k], KVR_RADIX_HOPS, 1, KVR_DEVICE);
    }

    fx_kind = KVR_INDEX_RADIX;
    holes = 0;

    for (v = 1; v < 6; v++) {

        random = fx_mix(v);
        n = v == 5 ? KVR_RADIX_HOPS : 1 + random % KVR_RADIX_HOPS;

        for (k = 0; k < 2; k++) {
            fx_store(two[k], v, v == 3 ? KVR_HOST : KVR_DEVICE, 0, h, q, n);
        }

        for (i = 0; v > 2 && i < 3; i++) {
            random = fx_mix(random);
            t = n / 2 + random % (n - n / 2);
            holes++;

            for (k = 0; k < 2; k++) {
                fx_remove(two[k], v, v == 3 ? KVR_HOST : KVR_DEVICE, &h[t], 1);
            }
        }
    }

    for (i = 0, good = 0, deep = 0; i < 400; i++) {

        random = fx_mix(1000 + i);
        n = i == 0 ? KVR_RADIX_HOPS : 1 + random % KVR_RADIX_HOPS;

        fx_find(f, q, n);
        fx_find(&other, q, n);
        deep += f->depths[2][0] == KVR_RADIX_HOPS;

        for (v = 0, k = 0; v < 6; v++) {
            for (t = 0; t < 3; t++) {
                k += f->depths[t][v] == other.depths[t][v];
            }
        }

        good += k == 18 && !f->cut && !other.cut
                && f->depths[2][0] == n;
    }

    ok(good == 400 && deep && holes == 9,
       "radix and positional agree up to the radix index's bound");

    fx_close(f);
    fx_close(&other);
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
