/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The indexes' memory: all is given back, and what happens when it is full.
 *
 *     test_radix_room [anything]      tells how fast the indexes are,
 *                                     too
 */


#include "radix_fixture.h"


#define MAX       (3 * KVR_RUN_MAX + 64)

/* of the speed test */
#define CHAINS    1000u
#define DEPTH     1024u


static void reclaim(void);
static void full_store(void);
static void full_tables(void);
static void shapes(void);
static uint32_t chains(fx_t *to, uint32_t len);
static void churn(void);
static void speed(void);


static fx_t      fx;
static fx_t     *f = &fx;
static uint64_t  q[MAX], h[MAX], b[MAX];


int
main(int argc, char **argv)
{
    for (fx_kind = 0; fx_kind < KVR_INDEX_KINDS; fx_kind++) {
        note("%s", kvr_index_name(fx_kind));

        reclaim();
        full_store();
        full_tables();
        shapes();
        churn();

        if (argc > 1) {
            speed();
        }
    }

    return done();
}


static void
reclaim(void)
{
    bool      good;
    uint32_t  i, v, rounds;

    fx_open(f, 16 << 20, 40);
    fx_count(h, 5000, 60);

    for (v = 0; v < 40; v++) {
        for (i = 0; i < 50; i++) {
            fx_count(q, 100, 60);
            fx_count(q + 10 + i % 40, 10000 * (i + 1), 60 - 10 - i % 40);
            fx_count(h, 1000000 * (i + 1), 60);
            fx_store(f, v, v % 3, 0, h, q, 60);
        }
    }

    fx_remove(f, 7, KVR_HOST, h + 3, 1);
    rounds = fx_reclaim(f, 7, 1000);
    ok(rounds <= 2, "a view is reclaimed in two rounds (%u)", rounds);
    is_depth(f, q, 7, 60, 0, 0, 0, "nothing is left of it");

    good = true;

    for (i = 0; i < 40; i++) {
        good = good && f->depths[2][i] == (i == 7 ? 0 : 60);
    }

    ok(good, "the others stay");

    fx_store(f, 7, KVR_DEVICE, 0, h, q, 30);
    is_depth(f, q, 7, 60, 30, 30, 30, "its number is used again");

    for (v = 0; v < 40; v++) {
        fx_reclaim(f, v, 100000);
    }

    is_empty(f, "all views reclaimed: nothing is left");
    fx_close(f);
}


/* The arena is full: chains of one block each use it up first. */

static void
full_store(void)
{
    bool      good;
    uint32_t  i, n, k, had, unknown, stored;
    kvr_rc_t  rc;

    fx_open(f, 1 << 20, 8);
    fx_set_tries(f, 0);
    rc = KVR_OK;

    for (n = 0; rc == KVR_OK && n < 1000; n++) {
        fx_count(q, 1000000 * (n + 1), 200);
        rc = fx_store(f, n % 8, KVR_DEVICE, 0, q, q, 200);
    }

    n--;
    is_u64(rc, (uint64_t) KVR_FULL, "the arena is full after %u chains", n);
    ok(fx_whole(f, "a full arena"), "the index is whole then");

    good = true;

    for (i = 0; i < n; i++) {
        fx_count(q, 1000000 * (i + 1), 200);
        fx_find(f, q, 200);
        good = good && f->depths[2][i % 8] == 200;
    }

    ok(good, "and answers as before");

    /* holes need room as well */

    had = 0;

    for (i = 0; i < n; i++) {
        fx_count(q, 1000000 * (i + 1), 200);

        for (k = 1; k < 100; k++) {
            if (fx_remove(f, i % 8, KVR_DEVICE, q + k, 1) == UINT32_MAX) {
                had++;
            }
        }
    }

    ok(fx_whole(f, "holes in a full arena"),
       "it stays whole when holes find no room (%u)", had);

    fx_reclaim(f, n % 8, 100000);
    fx_count(q, 1000000 * (uint64_t) (n + 1), 200);
    unknown = fx_store(f, n % 8, KVR_DEVICE, 0, q, q, 200);
    ok(unknown == KVR_OK, "a view dropped makes room");

    /* tail by tail everything goes without any memory */

    for (i = 0; i < 8; i++) {
        fx_reclaim(f, i, 1000000);
    }

    is_empty(f, "and all dropped leave nothing");

    /* an event that is cut by the end of the arena */

    fx_count(h, 1, MAX);
    fx_count(q, 1, MAX);
    rc = KVR_OK;

    for (i = 0; rc == KVR_OK; i++) {
        q[0] = i + 1;
        h[0] = 1000000 * (i + 1);

        for (k = 1; k < MAX; k++) {
            h[k] = h[0] + k;
        }

        kvr_index_begin(&f->x);
        rc = kvr_index_store(&f->x, i % 8, KVR_HOST, false, 0, h, q, MAX, 0,
                             &stored);
        kvr_txn_commit(&f->mem);
    }

    fx_find(f, q, MAX);
    ok(fx_whole(f, "an event cut off") && stored < MAX
       && f->depths[2][(i - 1) % 8] >= stored,
       "of an event cut off %u blocks were stored", stored);

    for (i = 0; i < 8; i++) {
        fx_reclaim(f, i, 1000000);
    }

    is_empty(f, "which can be dropped, too");
    fx_close(f);
}


/*
 * The tables are full: of handles, of children.  Blocks that all views call by
 * the same names take entries alone, and no more of the arena; so do those
 * that each view calls by names of its own, with a little more of it.
 */

static void
full_tables(void)
{
    uint32_t  i, n, unknown;
    kvr_rc_t  rc;
    uint64_t  used;

    fx_open(f, 1 << 20, 64);
    fx_set_tries(f, 0);
    rc = KVR_OK;

    for (n = 0; rc == KVR_OK && n < 100000; n++) {
        fx_count(q, 1000 * (n + 1), 384);
        fx_count(h, 1000 * (n + 1), 384);
        rc = fx_store(f, n % 64, KVR_DEVICE, 0, h, q, 384);
    }

    n--;
    used = fx_usage(f).handles;
    is_u64(rc, (uint64_t) KVR_FULL, "handles or arena are full after %u chains",
           n);
    ok(fx_whole(f, "full handles")
       && (used > fx_usage(f).handles_max / 8 * 7
           || fx_kind == KVR_INDEX_POSITIONAL),
       "the index is whole then");
    fx_count(q, 1000 * 6, 384);
    is_depth(f, q, 5, 384, 384, 384, 384, "and answers as before");

    fx_count(h, 1000, 384);
    unknown = 0;
    kvr_index_begin(&f->x);
    kvr_index_remove(&f->x, 0, KVR_DEVICE, h, 384, &unknown);
    kvr_txn_rollback(&f->mem);
    ok(unknown == 0 && fx_whole(f, "removals from full handles"),
       "removals are rolled back");

    /* from its end on: holes would take memory */

    fx_backwards(b, h, 384);
    fx_remove(f, 0, KVR_DEVICE, b, 384);
    fx_count(q, 1000 * (n + 1), 384);
    fx_count(h, 1000 * (n + 1), 384);
    is_u64(fx_store(f, n % 64, KVR_DEVICE, 0, h, q, 384), KVR_OK,
           "a removal makes room");

    for (i = 0; i < 64; i++) {
        fx_reclaim(f, i, 1000000);
    }

    is_empty(f, "nothing is left of full handles");

    fx_close(f);
    fx_open(f, 1 << 20, 64);
    fx_set_tries(f, 0);

    rc = KVR_OK;

    for (n = 0; rc == KVR_OK; n++) {
        h[0] = q[0] = n + 1;
        rc = fx_store(f, 0, KVR_DEVICE, 0, h, q, 1);
    }

    n--;
    is_u64(rc, (uint64_t) KVR_FULL, "%u runs are all there is room for", n);
    ok(fx_whole(f, "full children"), "the index is whole then");
    q[0] = 1;
    is_depth(f, q, 0, 1, 1, 1, 1, "and answers as before");

    fx_count(h, n / 2, 60);
    unknown = 0;
    kvr_index_begin(&f->x);
    kvr_index_remove(&f->x, 0, KVR_DEVICE, h, 60, &unknown);
    kvr_txn_rollback(&f->mem);
    ok(unknown == 0 && fx_whole(f, "removals from full children"),
       "removals from a full table are rolled back");

    for (i = 1; i <= n; i++) {
        h[0] = i;
        fx_remove(f, 0, KVR_DEVICE, h, 1);
    }

    is_empty(f, "nothing is left of full children");
    fx_close(f);
}


/* What one shape of load has used is there for the next. */

static void
shapes(void)
{
    bool      good;
    fx_t      new;
    uint32_t  i, v, n, want;

    static const uint32_t  len[] = { MAX, 1, 70, 15, 200, 1, 1000, 3, MAX };

    fx_open(f, 1 << 20, 8);
    fx_set_tries(f, 0);
    good = true;

    for (i = 0; i < sizeof(len) / sizeof(len[0]); i++) {

        fx_open(&new, 1 << 20, 8);
        fx_set_tries(&new, 0);
        want = chains(&new, len[i]);
        fx_close(&new);

        n = chains(f, len[i]);

        if (n != want || !fx_whole(f, "shapes")) {
            note("chains of %u: %u, should be %u", len[i], n, want);
            good = false;
        }

        for (v = 0; v < 8; v++) {
            fx_reclaim(f, v, 1000000);
        }
    }

    ok(good, "after chains of any length there is room for as many of others "
       "as in the beginning");
    is_empty(f, "and nothing is left of them");
    fx_close(f);
}


/* As many as there is room for, each of its own. */

static uint32_t
chains(fx_t *to, uint32_t len)
{
    uint32_t  n;

    for (n = 0; /* void */ ; n++) {
        fx_count(q, (uint64_t) (n + 1) << 20, len);

        if (fx_store(to, n % 8, KVR_DEVICE, 0, q, q, len) != KVR_OK) {
            return n;
        }
    }
}


static void
churn(void)
{
    bool      good;
    uint32_t  i, k, v, n;
    uint64_t  words, handles, blocks, bump;

    fx_open(f, 16 << 20, 16);
    fx_count(q, 1, 64);
    fx_count(h, 1, 64);

    for (v = 0; v < 16; v++) {
        fx_store(f, v, KVR_DEVICE, 0, h, q, 64);
    }

    words = fx_usage(f).arena;
    handles = fx_usage(f).handles;
    blocks = fx_usage(f).blocks;
    bump = 0;

    for (i = 0; i < 40000; i++) {
        n = 1 + fx_mix(i) % 100;
        k = fx_mix(i) % 64;
        v = i % 16;
        fx_count(q + 64, (uint64_t) (i + 1) << 20, n);

        fx_store(f, v, KVR_DEVICE, h[k], q + 64, q + 64, n);

        if (i % 4 == 0) {
            fx_store(f, v, KVR_HOST, h[k], q + 64, q + 64, n);
            fx_remove(f, v, KVR_HOST, q + 64, n);
        }

        fx_backwards(b, q + 64, n);
        fx_remove(f, v, KVR_DEVICE, i & 1 ? b : q + 64, n);

        if (i == 5000) {
            bump = kvr_index_arena(&f->x)->zone->bump;
        }
    }

    good = fx_usage(f).arena == words && fx_usage(f).handles == handles
           && fx_usage(f).blocks == blocks;

    ok(good && fx_whole(f, "churn"),
       "40000 suffixes stored and removed: memory is as before");
    is_u64(kvr_index_arena(&f->x)->zone->bump, bump, "and the arena has not grown");
    fx_close(f);
}


/* ---- how fast, informally: any argument --------------------------------- */

static void
speed(void)
{
    uint32_t   i, k, n;
    uint64_t   t, seed, mask;
    uint64_t  *hashes, *handles, *tails;

    fx_open(f, 256 << 20, 128);
    hashes = malloc(CHAINS * DEPTH * sizeof(uint64_t));
    handles = malloc(CHAINS * DEPTH * sizeof(uint64_t));
    tails = malloc(CHAINS * DEPTH * sizeof(uint64_t));
    seed = 1;

    for (i = 0; i < CHAINS * DEPTH; i++) {
        hashes[i] = fx_random(&seed);
    }

    /* four groups share their first quarter */

    for (i = 0; i < CHAINS; i++) {
        memcpy(hashes + i * DEPTH, hashes + i % 4 * DEPTH, DEPTH / 4 * 8);

        for (n = i * DEPTH; n < (i + 1) * DEPTH; n++) {
            handles[n] = hashes[n] ^ 1;
        }

        fx_backwards(tails + i * DEPTH, handles + i * DEPTH, DEPTH);
    }

    for (k = 0; k < 3; k++) {

        t = fx_now_ns();

        for (i = 0; i < CHAINS * DEPTH; i += 64) {
            n = i % DEPTH;
            fx_store(f, i / DEPTH % 128, KVR_DEVICE, n ? handles[i - 1] : 0,
                     handles + i, hashes + i, 64);
        }

        note("store: %.1f ns a block",
             (double) (fx_now_ns() - t) / (CHAINS * DEPTH));

        for (mask = 15; mask < 65536; mask = mask << 6 | 63) {
            t = fx_now_ns();

            for (i = 0; i < 100000; i++) {
                fx_find(f, hashes + fx_mix(i & mask) % CHAINS * DEPTH, DEPTH);
            }

            note("find, depth 1024, one of %u prompts: %.0f ns",
                 (uint32_t) kvr_min(mask + 1, CHAINS),
                 (double) (fx_now_ns() - t) / i);
        }

        t = fx_now_ns();

        for (i = 0; i < CHAINS * DEPTH; i += 64) {
            fx_remove(f, i / DEPTH % 128, KVR_DEVICE, tails + i, 64);
        }

        note("remove: %.1f ns a block",
             (double) (fx_now_ns() - t) / (CHAINS * DEPTH));
    }

    is_empty(f, "the speed test leaves nothing behind");

    free(hashes);
    free(handles);
    free(tails);
    fx_close(f);
}
