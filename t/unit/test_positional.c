/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the positional index alone has: broken links, stamps and forgetting.
 * What it means is in test_radix.c and test_radix_model.c.
 */


#include "radix_fixture.h"


#define MAX     2000
#define VIEWS   8


static void links(void);
static void hidden(void);
static void deep(void);
static void forget(void);
static void forget_slices(void);
static void freeing(void);
static void crowd(void);
static void forgot(void *data, uint32_t view, uint32_t handles);
static void keeps(uint32_t view, uint32_t depth, const char *what);
static bool sweep(uint32_t age, uint32_t slots);


static fx_t               fx;
static fx_t              *f = &fx;
static kvr_positional_t  *x;
static uint64_t           q[MAX], h[MAX], b[MAX];
static uint32_t           told[VIEWS];


int
main(void)
{
    fx_kind = KVR_INDEX_POSITIONAL;
    x = &f->x.u.positional;

    links();
    hidden();
    deep();
    forget();
    forget_slices();
    freeing();
    crowd();

    return done();
}


static void
links(void)
{
    fx_open(f, 8 << 20, VIEWS);
    fx_count(q, 100, 300);
    fx_count(h, 1000, 300);

    fx_store(f, 0, KVR_DEVICE, 0, h, q, 300);
    fx_store(f, 1, KVR_DEVICE, 0, h, q, 300);
    is_u64(fx_usage(f).holes, 0, "a whole chain has no broken link");

    fx_remove(f, 0, KVR_DEVICE, h + 100, 1);
    is_u64(fx_usage(f).holes, 3, "a hole breaks one, in all rows");
    is_depth(f, q, 0, 300, 100, 100, 100, "and ends the match");
    is_depth(f, q, 1, 300, 300, 300, 300, "of this view only");

    fx_store(f, 0, KVR_HOST, h[99], h + 100, q + 100, 1);
    is_u64(fx_usage(f).holes, 1, "a block in host mends two of the rows");
    is_depth(f, q, 0, 300, 100, 300, 300, "and is a bridge in them");

    fx_remove(f, 0, KVR_DEVICE, h + 150, 50);
    is_u64(fx_usage(f).holes, 4, "a long hole breaks one more in each row");
    is_depth(f, q, 0, 300, 100, 150, 150, "and ends the match, too");

    fx_backwards(b, h + 200, 100);
    fx_remove(f, 0, KVR_DEVICE, b, 100);
    is_u64(fx_usage(f).holes, 1, "without its far side it is the end");

    fx_store(f, 0, KVR_DEVICE, 0, h, q, 300);
    is_u64(fx_usage(f).holes, 0, "stored again, all links are whole");
    is_depth(f, q, 0, 300, 300, 300, 300, "and all is found");

    fx_remove(f, 0, KVR_DEVICE, h, 300);
    is_depth(f, q, 0, 300, 0, 0, 0, "a block alone in the middle is no match");
    fx_close(f);
}


/* A view that dies leaves the answers at once. */

static void
hidden(void)
{
    uint32_t  view;

    fx_open(f, 8 << 20, VIEWS);
    fx_count(q, 100, 300);
    fx_count(h, 1000, 300);
    fx_store(f, 2, KVR_DEVICE, 0, h, q, 300);
    fx_store(f, 3, KVR_DEVICE, 0, h, q, 200);

    view = 2;

    do {
        kvr_index_begin(&f->x);
        kvr_index_reclaim(&f->x, fx_dying, &view, 1);
        kvr_txn_commit(&f->mem);
    } while (x->view_handles[2] == 300);

    is_depth(f, q, 2, 300, 0, 0, 0,
             "a view of which a block is reclaimed has no answers");
    is_depth(f, q, 3, 300, 200, 200, 200, "others have");

    fx_reclaim(f, 2, 1000);
    fx_store(f, 2, KVR_DEVICE, 0, h, q, 30);
    is_depth(f, q, 2, 300, 30, 30, 30, "reclaimed, it is as new");
    fx_close(f);
}


/* Views that end everywhere along a long prompt. */

static void
deep(void)
{
    bool      good;
    uint32_t  i, t;

    fx_open(f, 32 << 20, 200);
    fx_count(q, 100, MAX);
    fx_count(h, 10000, MAX);

    for (i = 0; i < 200; i++) {
        fx_store(f, i, i % 3, 0, h, q, 1 + i * 19 % MAX);
    }

    fx_find(f, q, MAX);
    good = true;

    for (i = 0; i < 200; i++) {
        for (t = 0; t < 3; t++) {
            good = good
                   && f->depths[t][i] == (t < i % 3 ? 0 : 1 + i * 19 % MAX);
        }
    }

    ok(good && fx_whole(f, "200 ends"), "200 views with 200 ends are exact");
    fx_close(f);
}


/* ---- forgetting --------------------------------------------------------- */

static void
forgot(void *data, uint32_t view, uint32_t handles)
{
    told[view] += handles;
}


static bool
sweep(uint32_t age, uint32_t slots)
{
    bool  round;

    x->evicted = forgot;

    kvr_index_begin(&f->x);
    round = kvr_positional_evict(x, age, slots);
    kvr_txn_commit(&f->mem);

    return round;
}


/* The view has so many blocks of q; this lookup is not one that counts. */

static void
keeps(uint32_t view, uint32_t depth, const char *what)
{
    uint32_t  now;

    now = x->now;
    x->now = 0;
    fx_find(f, q, 60);
    x->now = now;

    ok(f->depths[2][view] == depth && fx_whole(f, what), "%s", what);
}


static void
forget(void)
{
    fx_open(f, 8 << 20, VIEWS);
    fx_count(q, 100, 60);
    fx_count(h, 1000, 60);
    fx_count(b, 9000, 60);
    memset(told, 0, sizeof(told));

    x->now = 1000;
    fx_store(f, 0, KVR_DEVICE, 0, h, q, 50);
    fx_store(f, 0, KVR_HOST, 0, b, q, 50);
    fx_store(f, 1, KVR_DEVICE, 0, h, q, 40);

    x->now = 1100;
    ok(sweep(100, UINT32_MAX), "a round is done");
    keeps(0, 50, "what is not older than that stays");

    x->now = 1050;
    fx_find(f, q, 49);
    x->now = 1060;
    fx_find(f, q, 30);

    x->now = 1101;
    sweep(100, UINT32_MAX);
    keeps(0, 49, "the last block is forgotten first");
    is_u64(x->view_handles[0], 98, "with all its handles");
    is_u64(fx_remove(f, 0, KVR_DEVICE, h + 49, 1), 1, "which are unknown");

    x->now = 1151;
    sweep(100, UINT32_MAX);
    keeps(0, 30, "then those before it, but what a lookup has matched");
    keeps(1, 30, "for all who have them");
    ok(told[0] == 40 && told[1] == 10 && x->zone->forgotten == 50,
       "each handle is told to its view");

    x->now = 1400;
    fx_store(f, 2, KVR_DEVICE, 0, h, q, 10);
    sweep(100, UINT32_MAX);
    keeps(0, 10, "a store keeps what it stores");

    x->now = 100;
    sweep(100, UINT32_MAX);
    keeps(0, 10, "a clock set back forgets nothing");

    x->now = 2000;
    sweep(100, UINT32_MAX);
    is_empty(f, "in the end nothing is left");
    fx_close(f);
}


/* Wide trees by small slices, with holes and blocks that nobody has. */

static void
forget_slices(void)
{
    uint32_t  i, v, rounds;

    fx_open(f, 16 << 20, VIEWS);
    memset(told, 0, sizeof(told));
    x->now = 10;

    for (i = 0; i < 400; i++) {
        fx_count(q, 100, 60);
        fx_count(q + 5 + i % 40, 10000 * (i + 1), 55 - i % 40);
        fx_count(h, 1000000 * (i + 1), 60);

        for (v = 0; v < VIEWS; v++) {
            fx_store(f, v, v % KVR_TIERS, 0, h, q, 60);
        }

        fx_remove(f, i % VIEWS, i % VIEWS % KVR_TIERS, h + 3, 40);
    }

    x->now = 100;

    for (rounds = 0; rounds < 100 && fx_usage(f).handles; /* void */ ) {
        rounds += sweep(1, 500);
    }

    ok(rounds <= 62, "a tree of 60 levels is forgotten in %u rounds",
       rounds);
    is_empty(f, "and leaves nothing behind");
    fx_close(f);
}


/*
 * A long chain that nobody has, behind which the last block is taken: more
 * than one transaction, and the one in between may be the last of a process.
 */

static void
freeing(void)
{
    uint32_t  i, n, unknown;
    bool      good;

    fx_open(f, 16 << 20, VIEWS);
    good = true;

    for (i = 0; i < 2; i++) {

        fx_count(q, 100, MAX);
        fx_count(h, 5000, MAX);
        fx_store(f, 0, KVR_DEVICE, 0, h, q, MAX);
        fx_remove(f, 0, KVR_DEVICE, h, MAX - 1);
        is_u64(fx_usage(f).blocks, MAX, "the last block keeps its chain");

        kvr_index_begin(&f->x);
        unknown = 0;
        kvr_index_remove(&f->x, 0, KVR_DEVICE, h + MAX - 1, 1, &unknown);

        if (i) {
            kvr_txn_rollback(&f->mem);
        }

        kvr_txn_commit(&f->mem);
        n = (uint32_t) fx_usage(f).blocks;

        if (i) {
            good = n > 0 && n < MAX && x->zone->freeing
                   && fx_whole(f, "half a chain");
            kvr_index_begin(&f->x);
            kvr_txn_commit(&f->mem);
        }

        is_empty(f, i ? "the next transaction goes on with what is left"
                      : "a chain that nobody has is freed");
    }

    ok(good, "a chain is freed in more transactions than one");
    fx_close(f);
}


/* One block by more names than it has room for. */

static void
crowd(void)
{
    uint32_t  n;
    kvr_rc_t  rc;

    fx_open(f, 64 << 20, VIEWS);
    q[0] = 1;
    rc = KVR_OK;

    for (n = 0; rc == KVR_OK && n < 2 * KVR_BLOCK_RECORDS; n++) {
        h[0] = n + 1;
        rc = fx_store(f, n % VIEWS, KVR_DEVICE, 0, h, q, 1);
    }

    n--;
    ok(rc == KVR_FULL && n == KVR_BLOCK_RECORDS,
       "a block has %u records at most", n);
    is_u64(fx_usage(f).forgotten, 0, "and nothing is forgotten for one more");
    is_u64(x->zone->handles.used, n, "and nothing is left of one more");

    x->now = UINT32_MAX / 4;
    sweep(1, UINT32_MAX);
    is_empty(f, "all of them go together");
    fx_close(f);
}
