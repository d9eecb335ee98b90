/*
 * Copyright (C) the nginx-kv-router authors
 *
 * How fast an index is, and how large.
 *
 *     index [--index radix|positional] [main] [scale] [beside]
 *
 * Without arguments: main.  One line of JSON a figure, on stdout:
 *
 *     {"who": "ours", "name": "find, hit", "unit": "ns", "value": 543.2}
 *
 * Each answer is compared with what it must be; a wrong one ends the program.
 * workload.h says what is stored and asked.
 */


#include "workload.h"
#include "index/kvr_index.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>


#define IX_BYTES_A_PAIR   80            /* of the zone's size, radix */
#define IX_BYTES_A_BLOCK  200           /* positional */
#define IX_TURNS          0             /* one-block events, sequences take
                                           turns */
#define IX_TOKENS         65536u        /* of the prompt that is hashed */
#define IX_SAMPLES        200000u       /* of one reader beside a writer */
#define IX_BESIDE_NS      1500000000u   /* how long it reads at most */


typedef struct {
    kvr_mem_t          mem;
    kvr_index_t        x;
    kvr_index_zone_t  *zone;
    kvr_depths_t       out;
    uint32_t           depths[3][WL_WORKERS];
} ix_t;


/* Shared by the processes of a row with a writer. */
typedef struct {
    volatile uint32_t  ready, go, stop;
    volatile uint64_t  written, wrote_ns, torn;
    uint64_t           n[2];
    uint64_t           ns[2][IX_SAMPLES];
} ix_common_t;


static void ix_main(void);
static void ix_scale(void);
static void ix_beside(void);
static void ix_beside_row(wl_t *w, uint32_t readers, uint64_t rate);


static uint64_t          ix_clock_ns;   /* what reading the clock costs */
static kvr_index_kind_t  ix_kind;


static void
ix_say(const char *name, const char *unit, double value)
{
    printf("{\"who\": \"ours\", \"name\": \"%s\", \"unit\": \"%s\","
           " \"value\": %.4g}\n", name, unit, value);
    fflush(stdout);
}


static void
ix_must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "index: wrong: %s\n", what);
        exit(1);
    }
}


static void
ix_clock(void)
{
    uint32_t  i;
    uint64_t  t, v[1001];

    for (i = 0; i < 1001; i++) {
        t = wl_now();
        v[i] = wl_now() - t;
    }

    qsort(v, 1001, sizeof(uint64_t), wl_order);
    ix_clock_ns = v[500];
}


/* ---- the index ---------------------------------------------------------- */

static void
ix_open(ix_t *ix, uint64_t pairs)
{
    void      *p;
    size_t     size;
    uint64_t   at, i, secret[4];

    size = pairs * (ix_kind == KVR_INDEX_RADIX ? IX_BYTES_A_PAIR
                                               : IX_BYTES_A_BLOCK)
           + (4u << 20);
    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
             -1, 0);

    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }

    for (i = 0; i < 4; i++) {
        secret[i] = wl_mix(i + 1);
    }

    memset(ix, 0, sizeof(ix_t));
    ix->mem.base = p;
    ix->mem.size = size;
    ix->mem.journal = p;
    at = (sizeof(kvr_journal_t) + 63) & ~(uint64_t) 63;
    ix->zone = (kvr_index_zone_t *) (ix->mem.base + at);
    at += (sizeof(kvr_index_zone_t) + 63) & ~(uint64_t) 63;

    kvr_index_format(&ix->mem, ix->zone, ix_kind, at, size - at, WL_WORKERS,
                     secret);
    kvr_index_attach(&ix->x, &ix->mem, ix->zone);

    for (i = 0; i < 3; i++) {
        ix->out.depths[i] = ix->depths[i];
    }

    ix->out.nviews = WL_WORKERS;
}


static void
ix_close(ix_t *ix)
{
    munmap(ix->mem.base, ix->mem.size);
}


/* One event: blocks [d, d + n) of sequence s. */

static inline void
ix_store(ix_t *ix, const wl_t *w, uint32_t view, uint32_t s, uint32_t d,
    uint32_t n)
{
    uint32_t  done;
    uint64_t  at;
    kvr_rc_t  rc;

    at = (uint64_t) s * WL_DEPTH + d;

    kvr_index_begin(&ix->x);
    rc = kvr_index_store(&ix->x, view, KVR_DEVICE, d != 0,
                         d ? w->handles[at - 1] : 0, w->handles + at,
                         w->locals + at, n, 0, &done);
    kvr_txn_commit(&ix->mem);

    ix_must(rc == KVR_OK, "store");
}


/* The last n of the sequence's blocks below d, the last one first. */

static inline void
ix_remove(ix_t *ix, const wl_t *w, uint32_t view, uint32_t s, uint32_t d,
    uint32_t n)
{
    uint32_t         i, unknown;
    kvr_rc_t         rc;
    static uint64_t  h[WL_DEPTH];

    for (i = 0; i < n; i++) {
        h[i] = w->handles[(uint64_t) s * WL_DEPTH + d - 1 - i];
    }

    unknown = 0;
    kvr_index_begin(&ix->x);
    rc = kvr_index_remove(&ix->x, view, KVR_DEVICE, h, n, &unknown);
    kvr_txn_commit(&ix->mem);

    ix_must(rc == KVR_OK && unknown == 0, "remove");
}


/*
 * All of main by events of n blocks; ns a block.  One sequence comes after the
 * other, or, as when many are decoded at once, block d of all sequences and
 * then block d + 1 (n: IX_TURNS).
 */

static double
ix_fill(ix_t *ix, const wl_t *w, uint32_t n)
{
    uint32_t  s, d;
    uint64_t  t;

    t = wl_now();

    if (n == IX_TURNS) {
        for (d = 0; d < WL_DEPTH; d++) {
            for (s = 0; s < w->n && wl_from(s) <= d; s++) {
                ix_store(ix, w, s % WL_WORKERS, s, d, 1);
            }
        }

    } else {
        for (s = 0; s < w->n; s++) {
            for (d = wl_from(s); d < WL_DEPTH; d += n) {
                ix_store(ix, w, s % WL_WORKERS, s, d,
                         kvr_min(n, WL_DEPTH - d));
            }
        }
    }

    return (double) (wl_now() - t) / wl_pairs(w);
}


static double
ix_empty(ix_t *ix, const wl_t *w, uint32_t n)
{
    uint32_t  s, d;
    uint64_t  t;

    t = wl_now();

    if (n == IX_TURNS) {
        for (d = WL_DEPTH; d > 0; d--) {
            for (s = 0; s < w->n && wl_from(s) < d; s++) {
                ix_remove(ix, w, s % WL_WORKERS, s, d, 1);
            }
        }

    } else {
        for (s = w->n; s-- > 0; /* void */ ) {
            for (d = WL_DEPTH; d > wl_from(s) && d <= WL_DEPTH; d -= n) {
                ix_remove(ix, w, s % WL_WORKERS, s, d,
                          kvr_min(n, d - wl_from(s)));
            }
        }
    }

    return (double) (wl_now() - t) / wl_pairs(w);
}


/*
 * Bytes in use: pieces of the arena, and the two tables as large as they need
 * be for what is in them.
 */

static double
ix_bytes(const ix_t *ix)
{
    const kvr_radix_zone_t       *r;
    const kvr_positional_zone_t  *p;

    if (ix_kind == KVR_INDEX_POSITIONAL) {
        p = &ix->zone->u.positional;

        return (double) p->arena.used * sizeof(uint64_t)
               + (double) p->handles.used * sizeof(kvr_entry_t)
                 * p->handles.nslots / p->handles.limit
               + (double) p->blocks * sizeof(uint64_t)
                 * p->nplaces / p->blocks_limit;
    }

    r = &ix->zone->u.radix;

    return (double) r->arena.used * sizeof(uint64_t)
           + (double) r->handles.used * sizeof(kvr_handle_t)
             * r->handles.nslots / r->handles.limit
           + (double) r->children_used * sizeof(uint64_t)
             * r->nchildren / r->children_limit;
}


static uint64_t
ix_blocks(const ix_t *ix)
{
    kvr_index_usage_t  u;

    kvr_index_usage(&ix->x, &u);

    return u.blocks;
}


/* ---- find --------------------------------------------------------------- */

/*
 * The median of many lookups of 1024 blocks.  A prompt's hashes were made just
 * before in real life: they are in the cache, the index is where it is.
 */

static double
ix_find(ix_t *ix, const wl_t *w, uint32_t keep, double *p99)
{
    uint32_t         q, best;
    uint64_t         t, took;
    static uint64_t  hashes[WL_DEPTH], v[WL_QUERIES];

    for (q = 0; q < WL_QUERIES; q++) {
        wl_query(w, q, keep, hashes);

        t = wl_now();
        best = kvr_index_find(&ix->x, hashes, WL_DEPTH, &ix->out);
        took = wl_now() - t;

        ix_must(best == keep, "find");
        v[q] = took > ix_clock_ns ? took - ix_clock_ns : 0;
    }

    qsort(v, WL_QUERIES, sizeof(uint64_t), wl_order);

    if (p99) {
        *p99 = (double) v[WL_QUERIES * 99 / 100];
    }

    return (double) v[WL_QUERIES / 2];
}


/* ---- rows: main --------------------------------------------------------- */

static void
ix_hashing(uint32_t size)
{
    char            name[64];
    uint32_t        i, k;
    uint32_t       *tokens;
    uint64_t        t, *out, v[101];
    kvr_hasher_t    h;

    tokens = wl_alloc(IX_TOKENS * sizeof(uint32_t));
    out = wl_alloc(IX_TOKENS / size * sizeof(uint64_t));

    for (i = 0; i < IX_TOKENS; i++) {
        tokens[i] = wl_mix(i) % 128000;
    }

    memset(&h, 0, sizeof(kvr_hasher_t));
    kvr_hasher_init(&h, KVR_HASH_SEED);

    for (k = 0; k < 101; k++) {
        t = wl_now();
        kvr_hash_blocks(&h, tokens, IX_TOKENS, size, out);
        v[k] = wl_now() - t;
    }

    qsort(v, 101, sizeof(uint64_t), wl_order);
    snprintf(name, sizeof(name), "hash a block, %u tokens", size);
    ix_say(name, "ns", (double) v[50] * size / IX_TOKENS);

    free(tokens);
    free(out);
}


static void
ix_main(void)
{
    char      event[32], name[64];
    wl_t      w;
    ix_t      ix;
    double    p99;
    uint32_t  i, k, s;

    static const uint32_t  sizes[4] = { 1024, 64, 1, IX_TURNS };

    wl_make(&w, 'm', WL_SEQUENCES);
    ix_open(&ix, w.n * WL_DEPTH);
    ix_fill(&ix, &w, WL_DEPTH);         /* the kernel gives memory now */
    ix_empty(&ix, &w, WL_DEPTH);

    for (i = 0; i < 4; i++) {

        if (sizes[i] == IX_TURNS) {
            snprintf(event, sizeof(event), "1 block an event, in turns");

        } else {
            snprintf(event, sizeof(event), "%u block%s an event", sizes[i],
                     sizes[i] == 1 ? "" : "s");
        }

        snprintf(name, sizeof(name), "store, %s", event);
        ix_say(name, "ns/block", ix_fill(&ix, &w, sizes[i]));

        if (sizes[i] == 64) {
            ix_say("find, hit", "ns", ix_find(&ix, &w, WL_DEPTH, &p99));
            ix_say("find, hit, p99", "ns", p99);
            ix_say("find, half", "ns", ix_find(&ix, &w, 512, NULL));
            ix_say("find, shared prefix", "ns",
                   ix_find(&ix, &w, WL_SHARED, NULL));
            ix_say("find, miss", "ns", ix_find(&ix, &w, 0, NULL));
            ix_say("memory a pair", "bytes",
                   ix_bytes(&ix) / wl_pairs(&w));
        }

        if (sizes[i] == IX_TURNS) {
            ix_say("find, hit, grown by decode", "ns",
                   ix_find(&ix, &w, WL_DEPTH, NULL));
        }

        snprintf(name, sizeof(name), "remove, %s", event);
        ix_say(name, "ns/block", ix_empty(&ix, &w, sizes[i]));
        ix_must(ix_blocks(&ix) == 0, "not empty");
    }

    ix_close(&ix);
    wl_free(&w);

    wl_make(&w, 'b', WL_WORKERS);
    ix_open(&ix, w.n * WL_DEPTH);

    for (s = 0; s < w.n; s++) {
        ix_store(&ix, &w, s, s, 0, WL_DEPTH);
    }

    w.n = 1;
    ix_say("find, 128 branches", "ns", ix_find(&ix, &w, WL_DEPTH, NULL));
    ix_close(&ix);
    wl_free(&w);

    wl_make(&w, 'a', WL_ALL);
    ix_open(&ix, WL_ALL * WL_DEPTH * WL_WORKERS);

    for (k = 0; k < WL_WORKERS; k++) {
        for (s = 0; s < w.n; s++) {
            ix_store(&ix, &w, k, s, 0, WL_DEPTH);
        }
    }

    ix_say("find, held by all 128", "ns", ix_find(&ix, &w, WL_DEPTH, NULL));
    ix_say("memory a pair, held by all 128", "bytes",
           ix_bytes(&ix) / (WL_ALL * WL_DEPTH * WL_WORKERS));
    ix_close(&ix);
    wl_free(&w);

    ix_hashing(16);
    ix_hashing(64);
}


/* ---- rows: scale -------------------------------------------------------- */

static void
ix_scale(void)
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
        ix_open(&ix, (uint64_t) w.n * WL_DEPTH);
        ix_fill(&ix, &w, 64);
        ix_empty(&ix, &w, 64);

        snprintf(name, sizeof(name), "%s: store, 64 blocks an event",
                 sizes[i].pairs);
        ix_say(name, "ns/block", ix_fill(&ix, &w, 64));
        snprintf(name, sizeof(name), "%s: find, hit", sizes[i].pairs);
        ix_say(name, "ns", ix_find(&ix, &w, WL_DEPTH, &p99));
        snprintf(name, sizeof(name), "%s: find, hit, p99", sizes[i].pairs);
        ix_say(name, "ns", p99);
        snprintf(name, sizeof(name), "%s: find, miss", sizes[i].pairs);
        ix_say(name, "ns", ix_find(&ix, &w, 0, NULL));
        snprintf(name, sizeof(name), "%s: memory a pair", sizes[i].pairs);
        ix_say(name, "bytes", ix_bytes(&ix) / wl_pairs(&w));
        snprintf(name, sizeof(name), "%s: remove, 64 blocks an event",
                 sizes[i].pairs);
        ix_say(name, "ns/block", ix_empty(&ix, &w, 64));

        ix_close(&ix);
        wl_free(&w);
    }
}


/* ---- rows: beside ------------------------------------------------------- */

/*
 * Readers look sequences up while a writer, another process, takes the second
 * halves of the very same sequences away and stores them again, 64 blocks an
 * event, at a rate; an answer is right from 512 to 1024.
 */

static void
ix_beside(void)
{
    wl_t      w;
    uint32_t  readers, i;

    static const uint64_t  rates[3] = { 0, 100000, 1000000 };

    wl_make(&w, 'm', WL_SEQUENCES);

    for (readers = 1; readers <= 2; readers++) {
        for (i = 0; i < 3; i++) {
            ix_beside_row(&w, readers, rates[i]);
        }
    }

    wl_free(&w);
}


static void
ix_reader(ix_t *ix, const wl_t *w, ix_common_t *c, uint32_t me)
{
    uint32_t         q, n, best;
    uint64_t         t, took, end;
    static uint64_t  hashes[WL_DEPTH];

    __atomic_add_fetch(&c->ready, 1, __ATOMIC_SEQ_CST);

    while (!c->go) {
        usleep(100);
    }

    end = wl_now() + IX_BESIDE_NS;
    n = 0;

    for (q = me * 1000003; n < IX_SAMPLES; q++) {
        wl_query(w, q, WL_DEPTH, hashes);

        t = wl_now();
        best = kvr_index_find(&ix->x, hashes, WL_DEPTH, &ix->out);
        took = wl_now() - t;

        ix_must(best <= WL_DEPTH && (best >= 512 || ix->out.torn),
                "find beside a writer");
        __atomic_add_fetch(&c->torn, ix->out.torn, __ATOMIC_RELAXED);
        c->ns[me][n++] = took > ix_clock_ns ? took - ix_clock_ns : 0;

        if (t > end) {
            break;
        }
    }

    c->n[me] = n;
    _exit(0);
}


static void
ix_writer(ix_t *ix, const wl_t *w, ix_common_t *c, uint64_t rate)
{
    uint32_t         s, d, i;
    uint64_t         start, due;
    struct timespec  ts;

    __atomic_add_fetch(&c->ready, 1, __ATOMIC_SEQ_CST);

    while (!c->go) {
        usleep(100);
    }

    start = wl_now();

    for (i = 0; !c->stop; i++) {
        s = wl_mix(i) % w->n;

        for (d = WL_DEPTH; d > 512; d -= 64) {
            ix_remove(ix, w, s % WL_WORKERS, s, d, 64);
        }

        for (d = 512; d < WL_DEPTH; d += 64) {
            ix_store(ix, w, s % WL_WORKERS, s, d, 64);
        }

        c->written += 1024;
        c->wrote_ns = wl_now() - start;
        due = c->written * 1000 / rate * 1000000;

        if (due > c->wrote_ns + 50000) {
            ts.tv_sec = 0;
            ts.tv_nsec = (long) kvr_min(due - c->wrote_ns, 500000000);
            nanosleep(&ts, NULL);
        }
    }

    _exit(0);
}


static void
ix_beside_row(wl_t *w, uint32_t readers, uint64_t rate)
{
    int           status;
    ix_t          ix;
    char          name[96], row[64];
    pid_t         pids[3];
    uint32_t      i, n;
    uint64_t      total;
    ix_common_t  *c;

    c = mmap(NULL, sizeof(ix_common_t), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ix_must(c != MAP_FAILED, "mmap");
    memset((void *) c, 0, sizeof(ix_common_t));

    ix_open(&ix, w->n * WL_DEPTH);
    ix_fill(&ix, w, 64);
    n = readers + (rate != 0);

    for (i = 0; i < n; i++) {
        pids[i] = fork();
        ix_must(pids[i] != -1, "fork");

        if (pids[i] == 0) {
            if (i < readers) {
                ix_reader(&ix, w, c, i);
            }

            ix_writer(&ix, w, c, rate);
        }
    }

    while (__atomic_load_n(&c->ready, __ATOMIC_SEQ_CST) < n) {
        usleep(100);
    }

    c->go = 1;

    for (i = 0; i < readers; i++) {
        ix_must(waitpid(pids[i], &status, 0) == pids[i] && status == 0,
                "a reader's end");
    }

    c->stop = 1;

    if (rate) {
        ix_must(waitpid(pids[readers], &status, 0) == pids[readers]
                && status == 0, "the writer's end");
    }

    /* both readers' samples as one */

    total = c->n[0];

    if (readers == 2) {
        memmove(&c->ns[0][c->n[0]], c->ns[1], c->n[1] * sizeof(uint64_t));
        total += c->n[1];
    }

    qsort(c->ns[0], total, sizeof(uint64_t), wl_order);

    snprintf(row, sizeof(row), "%u reader%s, %s blocks/s written", readers,
             readers == 1 ? "" : "s",
             rate == 0 ? "0" : rate == 100000 ? "100 k" : "1 M");
    snprintf(name, sizeof(name), "%s: find p50", row);
    ix_say(name, "ns", (double) c->ns[0][total / 2]);
    snprintf(name, sizeof(name), "%s: find p99", row);
    ix_say(name, "ns", (double) c->ns[0][total * 99 / 100]);

    if (rate) {
        snprintf(name, sizeof(name), "%s: in fact", row);
        ix_say(name, "k blocks/s", (double) c->written * 1e6 / c->wrote_ns);
        snprintf(name, sizeof(name), "%s: cut short", row);
        ix_say(name, "of 1000", (double) c->torn * 1000 / total);
    }

    ix_close(&ix);
    munmap(c, sizeof(ix_common_t));
}


static int
ix_usage(void)
{
    fprintf(stderr, "usage: index [--index radix|positional] [main] [scale]"
            " [beside]\n");

    return 2;
}


int
main(int argc, char **argv)
{
    int  i, first;

    ix_clock();
    first = 1;

    if (argc > 2 && strcmp(argv[1], "--index") == 0) {
        first = 3;

        if (strcmp(argv[2], "positional") == 0) {
            ix_kind = KVR_INDEX_POSITIONAL;

        } else if (strcmp(argv[2], "radix") != 0) {
            return ix_usage();
        }
    }

    if (argc == first) {
        ix_main();
    }

    for (i = first; i < argc; i++) {

        if (strcmp(argv[i], "main") == 0) {
            ix_main();

        } else if (strcmp(argv[i], "scale") == 0) {
            ix_scale();

        } else if (strcmp(argv[i], "beside") == 0) {
            ix_beside();

        } else {
            return ix_usage();
        }
    }

    return 0;
}
