/*
 * Copyright (C) the nginx-kv-router authors
 *
 * How fast the radix index is, and how large.
 *
 *     index main          finds, stores, removals, memory, hashing
 *     index scale         0.1 M and 10 M pairs
 *     index chat=FILE     a script of run.py's, see script.py
 *     index trace=FILE    another one
 *     index worst         one-block prompts, staircases, longest lookups
 *     index positional    the positional index
 *     index beside        finds beside a writer
 *     index groups        finds where holders have KV-cache groups
 *     index pauses        longest turns of ttl=, longest stores when full
 *     index capacity=FILE what zones hold; the script is that of chats
 *     index snapshot      snapshots, built aside and swapped in
 *     index prefix        the prefix cache
 *     index turns         the turn cache
 *
 * One line of JSON a figure, on stdout:
 *
 *     {"who": "ours", "name": "find, hit", "unit": "ns", "value": 543.2}
 *
 * workload.h says what is stored and asked.
 */


#include "index.h"

#include <sys/mman.h>


uint64_t  ix_clock_ns;


void
ix_say(const char *name, const char *unit, double value)
{
    printf("{\"who\": \"ours\", \"name\": \"%s\", \"unit\": \"%s\","
           " \"value\": %.6g}\n", name, unit, value);
    fflush(stdout);
}


void
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

    ix_clock_ns = (uint64_t) ix_percentile(v, 1001, 50);
}


double
ix_percentile(uint64_t *v, uint32_t n, uint32_t p)
{
    qsort(v, n, sizeof(uint64_t), wl_order);

    return (double) v[(uint64_t) n * p / 100];
}


/* ---- the index ---------------------------------------------------------- */

void *
ix_map(size_t size)
{
    void  *p;

    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
             -1, 0);

    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }

    /* as nginx does it with a zone */
    (void) madvise(p, size, MADV_HUGEPAGE);

    return p;
}


void
ix_unmap(void *p, size_t size)
{
    munmap(p, size);
}


void
ix_open(ix_t *ix, uint64_t pairs, uint32_t bytes_a_pair)
{
    void      *p;
    size_t     size;
    uint64_t   at, i, secret[4];

    size = pairs * bytes_a_pair + (4u << 20);
    p = ix_map(size);

    for (i = 0; i < 4; i++) {
        secret[i] = wl_mix(i + 1);
    }

    memset(ix, 0, sizeof(ix_t));
    ix->mem.base = p;
    ix->mem.size = size;
    ix->mem.journal = p;
    at = (sizeof(kvr_journal_t) + 63) & ~(uint64_t) 63;
    ix->zone = (kvr_radix_zone_t *) (ix->mem.base + at);
    at += (sizeof(kvr_radix_zone_t) + 63) & ~(uint64_t) 63;

    kvr_radix_format(&ix->mem, ix->zone, at, size - at, WL_WORKERS, secret);
    kvr_radix_attach(&ix->x, &ix->mem, ix->zone);

    for (i = 0; i < 3; i++) {
        ix->out.depths[i] = ix->depths[i];
    }

    ix->out.nviews = WL_WORKERS;
}


void
ix_close(ix_t *ix)
{
    ix_unmap(ix->mem.base, ix->mem.size);
}


void
ix_must_be_empty(const ix_t *ix)
{
    uint32_t  view;

    for (view = 0; view < WL_WORKERS; view++) {
        ix_must(kvr_radix_view_empty(&ix->x, view), "not empty");
    }
}


/* The one place that looks into the index: what its functions don't tell. */

double
ix_bytes(const ix_t *ix)
{
    const kvr_radix_zone_t  *z;

    z = ix->zone;

    return (double) z->arena.used * sizeof(uint64_t)
           + (double) z->handles.used * sizeof(kvr_handle_line_t)
             * z->handles.nlines / z->handles.limit
           + (double) z->children_used * sizeof(uint64_t)
             * z->nchildren / z->children_limit;
}


uint64_t
ix_find(ix_t *ix, const uint64_t *hashes, uint32_t n, uint32_t *best)
{
    uint64_t  t, took;

    t = wl_now();
    *best = kvr_radix_find(&ix->x, hashes, n, &ix->out);
    took = wl_now() - t;

    return took > ix_clock_ns ? took - ix_clock_ns : 0;
}


int
main(int argc, char **argv)
{
    int          i;
    char        *file;
    const char  *row;

    if (argc == 1) {
        goto usage;
    }

    ix_clock();

    for (i = 1; i < argc; i++) {
        row = argv[i];
        file = strchr(argv[i], '=');

        if (file) {
            *file++ = '\0';
        }

        if (strcmp(row, "main") == 0) {
            rows_main();

        } else if (strcmp(row, "scale") == 0) {
            rows_scale();

        } else if (strcmp(row, "chat") == 0 && file) {
            rows_script("chat", file);

        } else if (strcmp(row, "trace") == 0 && file) {
            rows_script("trace", file);

        } else if (strcmp(row, "worst") == 0) {
            rows_worst();

        } else if (strcmp(row, "body") == 0) {
            rows_body();

        } else if (strcmp(row, "positional") == 0) {
            rows_positional();

        } else if (strcmp(row, "beside") == 0) {
            rows_beside();

        } else if (strcmp(row, "groups") == 0) {
            rows_groups();

        } else if (strcmp(row, "ingest") == 0) {
            rows_ingest();

        } else if (strcmp(row, "pauses") == 0) {
            rows_pauses();

        } else if (strcmp(row, "capacity") == 0 && file) {
            rows_capacity(file);

        } else if (strcmp(row, "snapshot") == 0) {
            rows_snapshot();

        } else if (strcmp(row, "prefix") == 0) {
            rows_prefix();

        } else if (strcmp(row, "turns") == 0) {
            rows_turns();

        } else {
            goto usage;
        }
    }

    return 0;

usage:

    fprintf(stderr, "usage: index [main] [scale] [chat=FILE] [trace=FILE]"
                    " [worst] [positional] [beside] [groups] [body] [ingest]"
                    " [pauses] [capacity=FILE] [snapshot] [prefix] [turns]\n");

    return 2;
}
