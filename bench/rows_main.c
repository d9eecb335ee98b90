/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Sequences of 1024 blocks on 128 workers: 1 M pairs, fewer, more.
 */


#include "index.h"


#define ROWS_TURNS        0             /* one-block events, sequences take
                                           turns */
#define ROWS_TOKENS       65536u        /* of the prompt that is hashed */


static double rows_empty(ix_t *ix, const wl_t *w, uint32_t n);
static double rows_find(ix_t *ix, const wl_t *w, uint32_t keep, double *p99);
static void rows_branches(void);
static void rows_all(void);
static void rows_hashing(uint32_t size, uint64_t hashed);


void
rows_main(void)
{
    char      event[32], name[64];
    wl_t      w;
    ix_t      ix;
    double    p99;
    uint32_t  i;

    static const uint32_t  sizes[4] = { 1024, 64, 1, ROWS_TURNS };

    wl_make(&w, 'm', WL_SEQUENCES);
    ix_open(&ix, (uint64_t) w.n * WL_DEPTH, IX_PAIR_BYTES);
    rows_fill(&ix, &w, WL_DEPTH);       /* the kernel gives memory now */
    rows_empty(&ix, &w, WL_DEPTH);

    for (i = 0; i < 4; i++) {

        if (sizes[i] == ROWS_TURNS) {
            snprintf(event, sizeof(event), "1 block an event, in turns");

        } else {
            snprintf(event, sizeof(event), "%u block%s an event", sizes[i],
                     sizes[i] == 1 ? "" : "s");
        }

        snprintf(name, sizeof(name), "store, %s", event);
        ix_say(name, "ns/block", rows_fill(&ix, &w, sizes[i]));

        if (sizes[i] == 64) {
            ix_say("find, hit", "ns", rows_find(&ix, &w, WL_DEPTH, &p99));
            ix_say("find, hit, p99", "ns", p99);
            ix_say("find, half", "ns", rows_find(&ix, &w, 512, NULL));
            ix_say("find, shared prefix", "ns",
                   rows_find(&ix, &w, WL_SHARED, NULL));
            ix_say("find, miss", "ns", rows_find(&ix, &w, 0, NULL));
            ix_say("memory a pair", "bytes", ix_bytes(&ix) / wl_pairs(&w));
        }

        if (sizes[i] == ROWS_TURNS) {
            ix_say("find, hit, grown by decode", "ns",
                   rows_find(&ix, &w, WL_DEPTH, NULL));
        }

        snprintf(name, sizeof(name), "remove, %s", event);
        ix_say(name, "ns/block", rows_empty(&ix, &w, sizes[i]));
        ix_must_be_empty(&ix);
    }

    ix_close(&ix);
    wl_free(&w);

    rows_branches();
    rows_all();
    rows_hashing(16, WL_HASHED_16);
    rows_hashing(64, WL_HASHED_64);
}


void
rows_scale(void)
{
    char      name[64];
    wl_t      w;
    ix_t      ix;
    double    p99;
    uint32_t  i;

    static const struct {
        uint32_t     n;
        const char  *pairs;
    } sizes[2] = { { 96, "0.1 M pairs" }, { 13000, "10 M pairs" } };

    for (i = 0; i < 2; i++) {
        wl_make(&w, 'm', sizes[i].n);
        ix_open(&ix, (uint64_t) w.n * WL_DEPTH, IX_PAIR_BYTES);
        rows_fill(&ix, &w, 64);
        rows_empty(&ix, &w, 64);

        snprintf(name, sizeof(name), "%s: store, 64 blocks an event",
                 sizes[i].pairs);
        ix_say(name, "ns/block", rows_fill(&ix, &w, 64));
        snprintf(name, sizeof(name), "%s: find, hit", sizes[i].pairs);
        ix_say(name, "ns", rows_find(&ix, &w, WL_DEPTH, &p99));
        snprintf(name, sizeof(name), "%s: find, hit, p99", sizes[i].pairs);
        ix_say(name, "ns", p99);
        snprintf(name, sizeof(name), "%s: find, miss", sizes[i].pairs);
        ix_say(name, "ns", rows_find(&ix, &w, 0, NULL));
        snprintf(name, sizeof(name), "%s: memory a pair", sizes[i].pairs);
        ix_say(name, "bytes", ix_bytes(&ix) / wl_pairs(&w));
        snprintf(name, sizeof(name), "%s: remove, 64 blocks an event",
                 sizes[i].pairs);
        ix_say(name, "ns/block", rows_empty(&ix, &w, 64));

        ix_must_be_empty(&ix);
        ix_close(&ix);
        wl_free(&w);
    }
}


/*
 * One sequence comes after the other, or, as when many are decoded at once,
 * block d of all sequences and then block d + 1 (n: ROWS_TURNS).
 */

double
rows_fill(ix_t *ix, const wl_t *w, uint32_t n)
{
    uint32_t  s, d;
    uint64_t  t;

    t = wl_now();

    if (n == ROWS_TURNS) {
        for (d = 0; d < WL_DEPTH; d++) {
            for (s = 0; s < w->n && wl_from(s) <= d; s++) {
                ix_store_at(ix, w, s, d, 1);
            }
        }

    } else {
        for (s = 0; s < w->n; s++) {
            for (d = wl_from(s); d < WL_DEPTH; d += n) {
                ix_store_at(ix, w, s, d, kvr_min(n, WL_DEPTH - d));
            }
        }
    }

    return (double) (wl_now() - t) / wl_pairs(w);
}


static double
rows_empty(ix_t *ix, const wl_t *w, uint32_t n)
{
    uint32_t  s, d;
    uint64_t  t;

    t = wl_now();

    if (n == ROWS_TURNS) {
        for (d = WL_DEPTH; d > 0; d--) {
            for (s = 0; s < w->n && wl_from(s) < d; s++) {
                ix_remove_at(ix, w, s, d, 1);
            }
        }

    } else {
        for (s = w->n; s-- > 0; /* void */ ) {
            for (d = WL_DEPTH; d > wl_from(s) && d <= WL_DEPTH; d -= n) {
                ix_remove_at(ix, w, s, d, kvr_min(n, d - wl_from(s)));
            }
        }
    }

    return (double) (wl_now() - t) / wl_pairs(w);
}


/*
 * The median of many lookups of 1024 blocks.  A prompt's hashes were made just
 * before in real life: they are in the cache, the index is where it is.
 */

static double
rows_find(ix_t *ix, const wl_t *w, uint32_t keep, double *p99)
{
    uint32_t         q, s, best;
    static uint64_t  hashes[WL_DEPTH], v[WL_QUERIES];

    for (q = 0; q < WL_QUERIES; q++) {
        s = wl_query(w, q, keep, hashes);
        v[q] = ix_find(ix, hashes, WL_DEPTH, &best);
        ix_must(best == keep && ix->out.depths[2][s % WL_WORKERS] == keep,
                "find");
    }

    if (p99) {
        *p99 = ix_percentile(v, WL_QUERIES, 99);
    }

    return ix_percentile(v, WL_QUERIES, 50);
}


static void
rows_branches(void)
{
    wl_t      w;
    ix_t      ix;
    uint32_t  s;

    wl_make(&w, 'b', WL_WORKERS);
    ix_open(&ix, w.n * WL_DEPTH, IX_PAIR_BYTES);

    for (s = 0; s < w.n; s++) {
        ix_store_at(&ix, &w, s, 0, WL_DEPTH);
    }

    w.n = 1;
    ix_say("find, 128 branches", "ns", rows_find(&ix, &w, WL_DEPTH, NULL));

    for (s = 1; s < WL_WORKERS; s++) {
        ix_must(ix.out.depths[2][s] == s * WL_STEP, "a branch's depth");
    }

    ix_close(&ix);
    wl_free(&w);
}


static void
rows_all(void)
{
    wl_t       w;
    ix_t       ix;
    size_t     at;
    uint32_t   s, k;

    wl_make(&w, 'a', WL_ALL);
    ix_open(&ix, WL_ALL * WL_DEPTH * WL_WORKERS, IX_PAIR_BYTES);

    for (k = 0; k < WL_WORKERS; k++) {
        for (s = 0; s < w.n; s++) {
            at = (size_t) s * WL_DEPTH;
            ix_store(&ix, k, NULL, w.handles + at, w.locals + at, WL_DEPTH);
        }
    }

    ix_say("find, held by all 128", "ns",
           rows_find(&ix, &w, WL_DEPTH, NULL));

    for (k = 0; k < WL_WORKERS; k++) {
        ix_must(ix.out.depths[2][k] == WL_DEPTH, "a worker's depth");
    }

    ix_say("memory a pair, held by all 128", "bytes",
           ix_bytes(&ix) / (WL_ALL * WL_DEPTH * WL_WORKERS));
    ix_close(&ix);
    wl_free(&w);
}


static void
rows_hashing(uint32_t size, uint64_t hashed)
{
    char            name[64];
    uint32_t        i, k;
    uint32_t       *tokens;
    uint64_t        t, *out, v[101];
    kvr_hasher_t    h;

    tokens = wl_alloc(ROWS_TOKENS * sizeof(uint32_t));
    out = wl_alloc(ROWS_TOKENS / size * sizeof(uint64_t));

    for (i = 0; i < ROWS_TOKENS; i++) {
        tokens[i] = wl_mix(i) % 128000;
    }

    memset(&h, 0, sizeof(kvr_hasher_t));
    kvr_hasher_init(&h, KVR_HASH_SEED);

    for (k = 0; k < 101; k++) {
        t = wl_now();
        kvr_hash_blocks(&h, tokens, ROWS_TOKENS, size, out);
        v[k] = wl_now() - t;
    }

    for (i = 0; i < ROWS_TOKENS / size; i++) {
        hashed ^= out[i];
    }

    ix_must(hashed == 0, "hashes");

    snprintf(name, sizeof(name), "hash a block, %u tokens", size);
    ix_say(name, "ns", ix_percentile(v, 101, 50) * size / ROWS_TOKENS);

    free(tokens);
    free(out);
}
