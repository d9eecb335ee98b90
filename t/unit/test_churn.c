/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Suffixes come and go by the ten thousands, each of blocks that were never
 * there before: what the index takes stays what is held, and comes back to
 * what it was.
 *
 *     test_churn [suffixes]
 */


#include "zone.h"


#define SUFFIX     64
#define PREFIXES   16                   /* chains that all workers keep, */
#define PREFIX     64                   /* of so many blocks */
#define LIVE       1024                 /* suffixes at a time */
#define WORKERS    8
#define CLEAR      3000                 /* suffixes between two clears */


typedef struct {
    uint64_t    first;                  /* 0: none; of its names */
    uint32_t    worker;
} suffix_t;


static void churn(uint32_t n);
static void come(suffix_t *s, uint32_t i);
static void go(suffix_t *s, uint32_t i);
static void prefix_store(uint32_t worker);
static void clear_one(suffix_t *live, uint32_t worker);
static bool near(uint64_t a, uint64_t b);


static const char *const  names[WORKERS] = { "a", "b", "c", "d", "e", "f",
                                             "g", "h" };
static uint32_t           refused;


int
main(int argc, char **argv)
{
    uint32_t  i, n;

    n = argc > 1 ? strtoul(argv[1], NULL, 0) : 20000;

    for (i = 0; i < KINDS; i++) {
        zone_open(&kinds[i], 64 << 20);
        churn(n);
        zone_close();
    }

    return done();
}


static void
churn(uint32_t n)
{
    uint32_t     i, w;
    uint64_t     early, late;
    suffix_t    *live;
    kvr_stats_t  start, full, end;

    live = calloc(LIVE, sizeof(suffix_t));
    refused = 0;
    early = 0;
    late = 0;

    for (w = 0; w < WORKERS; w++) {
        put(names[w]);
        prefix_store(w);
    }

    /* while one is cleared there are more views than workers: the index keeps
       the places that it once had for them */

    for (w = 0; w < WORKERS; w++) {
        clear_one(live, w);
    }

    kvr_router_stats(&router, &start);

    for (i = 0; i < n; i++) {
        go(&live[i % LIVE], i);
        come(&live[i % LIVE], i);

        if (i % CLEAR == CLEAR - 1) {
            clear_one(live, i / CLEAR % WORKERS);
        }

        kvr_router_stats(&router, &full);

        if (i < n / 2) {
            early = kvr_max(early, full.used_bytes);

        } else {
            late = kvr_max(late, full.used_bytes);
        }

        if (i % (n / 5) == n / 5 - 1) {
            note("%s: %u suffixes of %u blocks: %llu KiB, %llu runs, %llu "
                 "handles", kind->name, i + 1, SUFFIX,
                 (unsigned long long) full.used_bytes / 1024,
                 (unsigned long long) full.runs,
                 (unsigned long long) full.handles);
        }
    }

    is_u64(refused, 0, "%s: no event of %u was refused", kind->name, 2 * n);
    ok(late <= early + early / 100,
       "%s: the second half takes no more memory than the first (%llu, %llu)",
       kind->name, (unsigned long long) late, (unsigned long long) early);

    for (i = 0; i < LIVE; i++) {
        go(&live[i], i);
    }

    kvr_router_stats(&router, &end);

    ok(near(end.used_bytes, start.used_bytes),
       "%s: when all are gone memory is within 1 %% of the start "
       "(%llu and %llu bytes)", kind->name,
       (unsigned long long) end.used_bytes,
       (unsigned long long) start.used_bytes);

    ok(end.handles == start.handles && end.runs == start.runs
       && end.blocks == start.blocks && end.holes == start.holes
       && end.views_dying == 0,
       "%s: handles, runs, blocks, and holes are as at first", kind->name);

    for (w = 0; w < WORKERS; w++) {
        for (i = 1; i <= PREFIXES; i++) {
            refused += matched(names[w], row(1000 * i, PREFIX), PREFIX).device
                       != PREFIX;
        }
    }

    is_u64(refused, 0, "%s: and so are the answers", kind->name);
    free(live);
}


static void
come(suffix_t *s, uint32_t i)
{
    uint64_t  parent;

    s->first = (uint64_t) (i + 1) << 20;
    s->worker = i % WORKERS;
    parent = 1000 * (1 + i % PREFIXES) + i % PREFIX;

    refused += store(names[s->worker], parent, row(s->first, SUFFIX),
                     row(s->first, SUFFIX), SUFFIX) != KVR_OK;

    if (i % 4 == 0) {
        tier = KVR_HOST;
        refused += store(names[s->worker], parent, row(s->first, SUFFIX),
                         row(s->first, SUFFIX), SUFFIX / 2) != KVR_OK;
        tier = KVR_DEVICE;
    }
}


/* From the end, from the beginning, or the odd ones first. */

static void
go(suffix_t *s, uint32_t i)
{
    uint32_t  k, order;
    uint64_t  handles[SUFFIX];

    if (s->first == 0) {
        return;
    }

    order = (i / LIVE + i) % 3;

    for (k = 0; k < SUFFIX; k++) {
        handles[k] = s->first + (order == 0 ? SUFFIX - 1 - k
                                 : order == 1 ? k
                                 : (k * 2 + 1) % SUFFIX
                                   - (k >= SUFFIX / 2));
    }

    tier = KVR_HOST;
    (void) take_out(names[s->worker], handles, SUFFIX);
    tier = KVR_DEVICE;
    refused += take_out(names[s->worker], handles, SUFFIX) != KVR_OK
               || unknown != 0;
    s->first = 0;
}


static void
prefix_store(uint32_t worker)
{
    uint32_t  i;

    for (i = 1; i <= PREFIXES; i++) {
        refused += store(names[worker], 0, row(1000 * i, PREFIX),
                         row(1000 * i, PREFIX), PREFIX)
                   != KVR_OK;
    }
}


static void
clear_one(suffix_t *live, uint32_t worker)
{
    uint32_t  i;

    refused += clear(names[worker]) != KVR_OK;

    for (i = 0; i < LIVE; i++) {
        if (live[i].worker == worker) {
            live[i].first = 0;
        }
    }

    prefix_store(worker);

    while (kvr_router_tend(&router, now_ms, 100000)) { /* void */ }
}


static bool
near(uint64_t a, uint64_t b)
{
    return a <= b + b / 100 && b <= a + a / 100;
}
