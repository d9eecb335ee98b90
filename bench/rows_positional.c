/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The positional index: sequences of 1024 blocks on 128 workers, as in
 * rows_main.c, each figure for 1024 blocks.
 */


#include "index.h"
#include "positional/kvr_positional.h"


#define ROWS_BYTES        192u          /* of the zone, a pair */


typedef struct {
    kvr_mem_t                mem;
    kvr_positional_t         x;
    kvr_positional_zone_t   *zone;
    size_t                   size;
    kvr_depths_t             out;
    uint32_t                 depths[3][WL_WORKERS];
} rows_positional_t;


static void rows_positional_open(rows_positional_t *p, uint64_t pairs);
static void rows_positional_store(rows_positional_t *p, const wl_t *w,
    uint32_t s);
static void rows_positional_remove(rows_positional_t *p, const wl_t *w,
    uint32_t s, uint32_t from, uint32_t to);
static double rows_positional_find(rows_positional_t *p, const wl_t *w,
    uint32_t keep);


void
rows_positional(void)
{
    wl_t               w;
    uint32_t           s, k;
    uint64_t           t;
    double             blocks;
    rows_positional_t  p;

    wl_make(&w, 'm', WL_SEQUENCES);
    blocks = wl_pairs(&w);
    rows_positional_open(&p, (uint64_t) w.n * WL_DEPTH);

    /* the second time, as the kernel gives memory in the first one */

    for (k = 0; k < 2; k++) {
        t = wl_now();

        for (s = 0; s < w.n; s++) {
            rows_positional_store(&p, &w, s);
        }

        t = wl_now() - t;

        if (k == 0) {
            goto remove;
        }

        ix_say("positional: store, 1024 blocks", "us",
               t / 1000.0 / blocks * WL_DEPTH);
        ix_say("positional: find, hit", "us",
               rows_positional_find(&p, &w, WL_DEPTH) / 1000.0);
        ix_say("positional: find, half", "us",
               rows_positional_find(&p, &w, 512) / 1000.0);
        ix_say("positional: find, miss", "us",
               rows_positional_find(&p, &w, 0) / 1000.0);

        /* a hole in each worker, behind what is asked for */

        for (s = w.n - WL_WORKERS; s < w.n; s++) {
            rows_positional_remove(&p, &w, s, WL_DEPTH - 2, WL_DEPTH - 1);
        }

        w.n -= WL_WORKERS;
        ix_say("positional: find, hit, holes elsewhere", "us",
               rows_positional_find(&p, &w, WL_DEPTH) / 1000.0);
        w.n += WL_WORKERS;

        for (s = w.n - WL_WORKERS; s < w.n; s++) {
            rows_positional_store(&p, &w, s);
        }

    remove:

        t = wl_now();

        for (s = w.n; s-- > 0; /* void */ ) {
            rows_positional_remove(&p, &w, s, wl_from(s), WL_DEPTH);
        }

        t = wl_now() - t;

        for (s = 0; s < WL_WORKERS; s++) {
            ix_must(kvr_positional_view_empty(&p.x, s), "not empty");
        }
    }

    ix_say("positional: remove, 1024 blocks", "us",
           t / 1000.0 / blocks * WL_DEPTH);

    ix_unmap(p.mem.base, p.size);
    wl_free(&w);
}


static void
rows_positional_open(rows_positional_t *p, uint64_t pairs)
{
    uint64_t  at, i, secret[4];

    memset(p, 0, sizeof(rows_positional_t));

    p->size = pairs * ROWS_BYTES + (4u << 20);
    p->mem.base = ix_map(p->size);
    p->mem.size = p->size;
    p->mem.journal = (kvr_journal_t *) p->mem.base;

    for (i = 0; i < 4; i++) {
        secret[i] = wl_mix(i + 1);
    }

    at = (sizeof(kvr_journal_t) + 63) & ~(uint64_t) 63;
    p->zone = (kvr_positional_zone_t *) (p->mem.base + at);
    at += (sizeof(kvr_positional_zone_t) + 63) & ~(uint64_t) 63;

    kvr_positional_format(&p->mem, p->zone, at, p->size - at, WL_WORKERS,
                          secret);
    kvr_positional_attach(&p->x, &p->mem, p->zone);

    for (i = 0; i < 3; i++) {
        p->out.depths[i] = p->depths[i];
    }

    p->out.nviews = WL_WORKERS;
}


/* All blocks of a sequence that it does not share, in one event. */

static void
rows_positional_store(rows_positional_t *p, const wl_t *w, uint32_t s)
{
    size_t    at;
    uint32_t  done, from;

    from = wl_from(s);
    at = (size_t) s * WL_DEPTH + from;

    kvr_positional_begin(&p->x);
    ix_must(kvr_positional_store(&p->x, s % WL_WORKERS, KVR_DEVICE, from != 0,
                                 from ? w->handles[at - 1] : 0,
                                 w->handles + at, w->locals + at,
                                 WL_DEPTH - from, 0, &done) == KVR_OK,
            "store");
    kvr_txn_commit(&p->mem);
}


/* Blocks [from, to) of a sequence, the last one first. */

static void
rows_positional_remove(rows_positional_t *p, const wl_t *w, uint32_t s,
    uint32_t from, uint32_t to)
{
    uint32_t  i, unknown;
    uint64_t  handles[WL_DEPTH];

    for (i = 0; i < to - from; i++) {
        handles[i] = w->handles[(size_t) s * WL_DEPTH + to - 1 - i];
    }

    unknown = 0;
    kvr_positional_begin(&p->x);
    ix_must(kvr_positional_remove(&p->x, s % WL_WORKERS, KVR_DEVICE, handles,
                                  to - from, &unknown) == KVR_OK
            && unknown == 0, "remove");
    kvr_txn_commit(&p->mem);
}


/* The median of many lookups of 1024 blocks, ns. */

static double
rows_positional_find(rows_positional_t *p, const wl_t *w, uint32_t keep)
{
    uint32_t         q, s, best;
    uint64_t         t, took;
    static uint64_t  hashes[WL_DEPTH], v[WL_QUERIES];

    for (q = 0; q < WL_QUERIES; q++) {
        s = wl_query(w, q, keep, hashes);

        t = wl_now();
        best = kvr_positional_find(&p->x, hashes, WL_DEPTH, &p->out);
        took = wl_now() - t;

        v[q] = took > ix_clock_ns ? took - ix_clock_ns : 0;
        ix_must(best == keep && p->out.depths[2][s % WL_WORKERS] == keep,
                "find");
    }

    return ix_percentile(v, WL_QUERIES, 50);
}
