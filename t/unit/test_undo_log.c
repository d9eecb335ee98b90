/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The undo log's room, against names that were chosen to use it up: whoever
 * knows the zone's secret can have each lie as far from its home as may be.
 */


#include "radix/kvr_children.h"
#include "radix/kvr_handles.h"
#include "radix/kvr_radix_run.h"
#include "radix_fixture.h"


#define VIEWS   4
#define FIRST   1000                /* line of the table, where it begins */
#define BEFORE  (KVR_HANDLE_FAR - 1)
#define NAMES   KVR_RUN_MAX
#define FILL    (BEFORE * KVR_HANDLE_SLOTS)
#define SIZE    (4 << 20)
#define CROWD   (KVR_CHILDREN_ROW + 8)


static void trimmed(void);
static void killed(void);
static void own(uint32_t far);
static void crowd(void);
static uint64_t name(uint32_t space, uint32_t line);
static void fill(void);
static uint32_t most(void);


static fx_t          fx;
static fx_t         *f = &fx;
static kvr_radix_t  *x = &fx.x.u.radix;
static uint64_t      next;
static uint64_t      q[CROWD], h[CROWD], g[FILL];


int
main(void)
{
    fx_kind = KVR_INDEX_RADIX;

    trimmed();
    killed();
    own(BEFORE / 2);
    own(KVR_OWN_COST / NAMES - 1);
    crowd();

    return done();
}


/* A run full of names each of which takes KVR_HANDLE_FAR records. */

static void
trimmed(void)
{
    fx_open(f, SIZE, VIEWS);
    fill();

    ok(fx_store(f, 0, KVR_DEVICE, 0, h, q, NAMES) == KVR_OK,
       "%u names are stored far from their homes", NAMES);

    is_u64(fx_remove(f, 0, KVR_DEVICE, h, NAMES), 0,
           "and all go in one removal");

    ok(most() <= KVR_TXN_RECORDS && most() > KVR_TXN_RECORDS / 2,
       "with %u records of the log at most", most());

    ok(fx_whole(f, "the index"), "it is whole");

    fx_remove(f, 1, KVR_DEVICE, g, FILL);
    is_empty(f, "nothing is left of it");
    fx_close(f);
}


/* The same, by a writer that dies in the middle of it. */

static void
killed(void)
{
    uint32_t  unknown;

    fx_open(f, SIZE, VIEWS);
    fill();

    (void) fx_store(f, 0, KVR_DEVICE, 0, h, q, NAMES);

    unknown = 0;
    kvr_index_begin(&f->x);
    (void) kvr_index_remove(&f->x, 0, KVR_DEVICE, h, NAMES, &unknown);
    (void) kvr_txn_rollback(&f->mem);

    ok(x->zone->freeing != 0 && fx_whole(f, "half of it"),
       "half of a run's names are gone");

    fx_find(f, q, NAMES);
    is_u64(f->depths[2][0], 0, "and the view has none of its blocks");

    kvr_index_begin(&f->x);
    kvr_txn_commit(&f->mem);

    ok(x->zone->freeing == 0, "who comes next goes on with it");

    fx_remove(f, 1, KVR_DEVICE, g, FILL);
    is_empty(f, "to its end");
    fx_close(f);
}


/* Names of a view's own, so many lines from their homes. */

static void
own(uint32_t far)
{
    uint32_t  i, n, stored;

    fx_open(f, SIZE, VIEWS);
    fx_set_tries(f, 0);
    fill();

    for (i = 0; i < NAMES; i++) {
        h[i] = 1000000 + i;
    }

    (void) fx_store(f, 0, KVR_DEVICE, 0, h, q, NAMES);

    for (i = 0; i < NAMES; i++) {
        h[i] = name(KVR_SPACE_OWN(2), FIRST + BEFORE - far
                                      + i / KVR_HANDLE_SLOTS);
    }

    n = KVR_OWN_COST / (far + 1);

    kvr_index_begin(&f->x);
    (void) kvr_index_store(&f->x, 2, KVR_DEVICE, false, 0, h, q, NAMES, 0,
                           &stored);
    kvr_txn_commit(&f->mem);

    ok(stored <= n && stored + KVR_RADIX_CHUNK >= n,
       "of names %u lines from home a view has %u", far, stored);
    ok(fx_whole(f, "the index"), "it is whole");

    fx_reclaim(f, 2, UINT32_MAX);
    ok(kvr_index_view_empty(&f->x, 2), "and all go with the view");

    ok(most() <= KVR_TXN_RECORDS, "with %u records of the log at most",
       most());

    fx_remove(f, 1, KVR_DEVICE, g, FILL);
    fx_reclaim(f, 0, UINT32_MAX);
    is_empty(f, "nothing is left of it");
    fx_close(f);
}


/* First blocks that all have one home. */

static void
crowd(void)
{
    uint32_t  n;
    uint64_t  i;
    kvr_rc_t  rc;

    fx_open(f, SIZE, VIEWS);
    fx_set_tries(f, 0);
    rc = KVR_OK;

    for (n = 0, i = 0; rc == KVR_OK && n < CROWD; n++) {

        do {
            q[n] = fx_mix(i++);
        } while (kvr_table_home(kvr_children_key(x, 0, 0, q[n]),
                                x->zone->nchildren)
                 != x->zone->nchildren - 100);

        h[n] = n + 1;
        rc = fx_store(f, 0, KVR_DEVICE, 0, h + n, q + n, 1);
    }

    n--;
    ok(rc == KVR_FULL && n == KVR_CHILDREN_ROW,
       "%u runs in a row of the table are the most", n);
    ok(fx_whole(f, "the index"), "it is whole");

    fx_set_tries(f, KVR_RADIX_COST);
    ok(fx_store(f, 0, KVR_DEVICE, 0, h + n, q + n, 1) == KVR_OK
       && fx_usage(f).forgotten > 0, "some are forgotten for one more");

    (void) fx_remove(f, 0, KVR_DEVICE, h, n + 1);
    is_empty(f, "all of them go");

    ok(most() <= KVR_TXN_RECORDS, "with %u records of the log at most",
       most());
    fx_close(f);
}


/* A handle that was not given yet, whose home is that line. */

static uint64_t
name(uint32_t space, uint32_t line)
{
    uint64_t  handle;

    do {
        handle = fx_mix(next++);
    } while (kvr_handle_key(&x->handles, handle, space).line != line);

    return handle;
}


/*
 * View 1 fills lines from the first one on with names at their homes; names in
 * h, of blocks in q, will go to the lines behind these.
 */

static void
fill(void)
{
    uint32_t  i;

    next = 1;

    for (i = 0; i < FILL; i++) {
        g[i] = name(KVR_SPACE_SHARED, FIRST + i / KVR_HANDLE_SLOTS);
        q[i] = 100000 + i;
    }

    (void) fx_store(f, 1, KVR_DEVICE, 0, g, q, FILL);

    for (i = 0; i < NAMES; i++) {
        h[i] = name(KVR_SPACE_SHARED, FIRST + i / KVR_HANDLE_SLOTS);
        q[i] = 1 + i;
    }
}


/* Records that the log ever had. */

static uint32_t
most(void)
{
    uint32_t  n;

    for (n = KVR_TXN_RECORDS; n && f->mem.journal->records[n - 1].where == 0;
         n--)
    {
        /* void */
    }

    return n;
}
