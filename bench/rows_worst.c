/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The shapes that take most memory: prompts of one block, and staircases,
 * which leave their own way again after each block; and the longest lookup.
 */


#include "index.h"


#define ROWS_WAY          (KVR_RADIX_HOPS + 200)
#define ROWS_WAYS         401u          /* lookups */
#define ROWS_WINDOW       64u           /* blocks */


static void rows_one_block(void);
static void rows_staircase(void);
static void rows_long_way(const char *what, uint32_t workers,
    kvr_tier_t tier, bool groups);
static uint64_t rows_cpu(void);


void
rows_worst(void)
{
    rows_one_block();
    rows_staircase();
    rows_long_way("1 worker", 1, KVR_DEVICE, false);
    rows_long_way("128 workers", WL_WORKERS, KVR_DEVICE, false);
    rows_long_way("128 workers, details", WL_WORKERS, KVR_HOST, false);
    rows_long_way("128 workers, groups", WL_WORKERS, KVR_DEVICE, true);
}


static void
rows_one_block(void)
{
    ix_t       ix;
    uint32_t   i, q, best;
    uint64_t   k, t, *l;

    static uint64_t  v[WL_QUERIES];

    l = wl_alloc(WL_ONES * sizeof(uint64_t));

    for (i = 0; i < WL_ONES; i++) {
        l[i] = wl_one(i);               /* handles are the same */
    }

    ix_open(&ix, WL_ONES, IX_PROMPT_BYTES);

    for (k = 0; k < 2; k++) {
        t = wl_now();

        for (i = 0; i < WL_ONES; i++) {
            ix_store(&ix, i % WL_WORKERS, NULL, &l[i], &l[i], 1);
        }

        t = wl_now() - t;

        if (k == 0) {
            ix_say("one-block prompts: memory a pair", "bytes",
                   ix_bytes(&ix) / WL_ONES);

        } else {
            ix_say("one-block prompts: store", "ns", (double) t / WL_ONES);

            for (q = 0; q < WL_QUERIES; q++) {
                i = wl_mix((UINT64_C(1) << 40) + q) % WL_ONES;
                v[q] = ix_find(&ix, &l[i], 1, &best);
                ix_must(best == 1 && ix.out.depths[2][i % WL_WORKERS] == 1,
                        "find of one block");
                t = wl_one(WL_ONES + q);
                (void) ix_find(&ix, &t, 1, &best);
                ix_must(best == 0, "find of no block");
            }

            ix_say("one-block prompts: find", "ns",
                   ix_percentile(v, WL_QUERIES, 50));
        }

        t = wl_now();

        for (i = WL_ONES; i-- > 0; /* void */ ) {
            ix_remove(&ix, i % WL_WORKERS, &l[i], 1);
        }

        t = wl_now() - t;
        ix_must_be_empty(&ix);
    }

    ix_say("one-block prompts: remove", "ns", (double) t / WL_ONES);
    ix_close(&ix);
    free(l);
}


static void
rows_staircase(void)
{
    ix_t              ix;
    double            pairs;
    uint32_t          s, d, k, q, best;
    uint64_t          t;
    wl_stairs_t       w;

    static uint64_t   v[WL_QUERIES], spine[WL_DEPTH + 1];

    wl_stairs_make(&w, 0, WL_STAIRS);
    pairs = (double) WL_STAIRS * WL_DEPTH * 2;
    ix_open(&ix, (uint64_t) pairs, IX_PROMPT_BYTES);

    for (k = 0; k < 2; k++) {
        t = wl_now();

        for (d = 0; d < WL_DEPTH; d++) {
            for (s = 0; s < WL_STAIRS; s++) {
                q = wl_stair(s, d);
                ix_store(&ix, s % WL_WORKERS, d ? &w.handles[q - 2] : NULL,
                         &w.handles[q], &w.locals[q], 2);
            }
        }

        t = wl_now() - t;

        if (k == 0) {
            ix_say("staircase: memory a pair", "bytes",
                   ix_bytes(&ix) / pairs);

        } else {
            ix_say("staircase: store", "ns/block", t / pairs);

            for (q = 0; q < WL_QUERIES; q++) {
                s = wl_mix((UINT64_C(1) << 40) + q) % WL_STAIRS;

                for (d = 0; d < WL_DEPTH; d++) {
                    spine[d] = w.locals[wl_stair(s, d)];
                }

                v[q] = ix_find(&ix, spine, WL_DEPTH, &best);
                ix_must(best == WL_DEPTH
                        && ix.out.depths[2][s % WL_WORKERS] == WL_DEPTH,
                        "find of a staircase");

                d = q % WL_DEPTH;
                spine[d + 1] = w.locals[wl_stair(s, d) + 1];
                (void) ix_find(&ix, spine, kvr_min(d + 3, WL_DEPTH), &best);
                ix_must(best == kvr_min(d + 2, WL_DEPTH), "find of a stair");
            }

            ix_say("staircase: find", "ns", ix_percentile(v, WL_QUERIES, 50));
        }

        t = wl_now();

        for (d = WL_DEPTH; d-- > 0; /* void */ ) {
            for (s = WL_STAIRS; s-- > 0; /* void */ ) {
                ix_remove(&ix, s % WL_WORKERS, &w.handles[wl_stair(s, d)], 2);
            }
        }

        t = wl_now() - t;
        ix_must_be_empty(&ix);
    }

    ix_say("staircase: remove", "ns/block", t / pairs);
    ix_close(&ix);
    wl_stairs_free(&w);
}


/*
 * A chain of more runs than a lookup follows: each block has a sibling, so
 * that none is appended to its parent's run.  A block that a worker has in its
 * host memory alone takes a detail of the run, and so does one in a class of
 * KV-cache groups.
 */

static void
rows_long_way(const char *what, uint32_t workers, kvr_tier_t tier, bool groups)
{
    ix_t             ix;
    char             name[80];
    double           us;
    uint32_t         i, v, best, done;
    uint64_t         side, t;
    kvr_class_t      class;
    static uint64_t  way[ROWS_WAY], took[ROWS_WAYS];

    for (i = 0; i < ROWS_WAY; i++) {
        way[i] = wl_mix((UINT64_C(1) << 41) + i);
    }

    ix_open(&ix, (uint64_t) ROWS_WAY * (workers + 1), IX_PROMPT_BYTES);

    class.kind = KVR_GROUP_WINDOW;
    class.window = ROWS_WINDOW;
    class.span = 1;

    for (v = 0; groups && v < workers; v++) {
        kvr_radix_begin(&ix.x);
        ix_must(kvr_classes_set(&ix.x, v, 0, &class) == KVR_OK, "a class");
        kvr_txn_commit(&ix.mem);
        ix.out.limit = ROWS_WAY;
    }

    for (i = 0; i < ROWS_WAY; i++) {
        side = wl_mix((UINT64_C(1) << 42) + i);
        ix_store(&ix, 0, i ? &way[i - 1] : NULL, &side, &side, 1);

        for (v = 0; v < workers; v++) {
            kvr_radix_begin(&ix.x);
            ix_must(kvr_radix_store(&ix.x, v, tier, i != 0,
                                    i ? way[i - 1] : 0, &way[i], &way[i], 1,
                                    0, &done) == KVR_OK, "a step of the way");

            if (groups) {
                ix_must(kvr_radix_add(&ix.x, v, kvr_classes_shadow(&ix.x, v),
                                      KVR_DEVICE, &way[i], 1, &done)
                        == KVR_OK, "a block of a class");
            }

            kvr_txn_commit(&ix.mem);
        }
    }

    for (i = 0; i < ROWS_WAYS; i++) {
        t = rows_cpu();
        best = kvr_radix_find(&ix.x, way, ROWS_WAY, &ix.out);
        took[i] = rows_cpu() - t;
        ix_must(ix.out.cut && !ix.out.torn && best
                && ix.out.depths[2][workers - 1], "find of a way");
    }

    us = ix_percentile(took, ROWS_WAYS, 50) / 1000.0;

    snprintf(name, sizeof(name), "the longest way, %s: blocks", what);
    ix_say(name, "", ix.out.depths[2][workers - 1]);
    snprintf(name, sizeof(name), "the longest way, %s: find", what);
    ix_say(name, "us", us);
    snprintf(name, sizeof(name), "the longest way, %s: find, p99", what);
    ix_say(name, "us", ix_percentile(took, ROWS_WAYS, 99) / 1000.0);
    ix_close(&ix);
}


/* Of this thread, ns: others of the machine may interrupt long lookups. */

static uint64_t
rows_cpu(void)
{
    struct timespec  t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);

    return (uint64_t) t.tv_sec * 1000000000u + t.tv_nsec;
}
