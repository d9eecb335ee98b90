/*
 * Copyright (C) the nginx-kv-router authors
 *
 * See index.h.
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


void
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
