/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Prefix caches for tests.
 */


#ifndef PREFIX_FIXTURE_H_INCLUDED
#define PREFIX_FIXTURE_H_INCLUDED


#include "fixture.h"
#include "tap.h"

#include "../check/kvr_prefix_check.h"


typedef struct {
    kvr_prefix_t          c;
    void                 *base;
    size_t                size;
    kvr_prefix_params_t   params;
    uint32_t              freed[1 << 21];   /* the last values told */
    uint32_t              nfreed;
} px_t;


static inline void
px_open(px_t *f, size_t size, uint32_t units, uint32_t page, uint32_t evict)
{
    char  why[KVR_PREFIX_WHY];

    memset(&f->params, 0, sizeof(kvr_prefix_params_t));

    f->params.units = units;
    f->params.page_size = page;
    f->params.evict = evict;
    f->size = size;
    f->base = shared_memory(size);

    if (kvr_prefix_format(f->base, size, &f->params, why) != KVR_OK
        || kvr_prefix_attach(&f->c, f->base, size, &f->params, why) != KVR_OK)
    {
        printf("Bail out! %s\n", why);
        exit(1);
    }
}


static inline void
px_close(px_t *f)
{
    kvr_prefix_detach(&f->c);
    munmap(f->base, f->size);
}


static inline kvr_prefix_key_t
px_key(const void *units, size_t n, const char *extra)
{
    kvr_prefix_key_t  key;

    key.units = units;
    key.n = n;
    key.extra = extra;
    key.extra_len = extra ? strlen(extra) : 0;

    return key;
}


/* True when all invariants hold; else it says which does not. */
static inline bool
px_sound(px_t *f, const char *when)
{
    const char  *why;

    why = kvr_prefix_check(&f->c);

    if (why) {
        note("%s: %s", when, why);
    }

    return why == NULL;
}


static inline void
px_freed(void *data, const uint32_t *values, uint32_t n)
{
    px_t  *f = data;

    memcpy(f->freed + f->nfreed, values, n * sizeof(uint32_t));
    f->nfreed += n;
}


/* Values that are told are kept in f->freed. */
static inline kvr_prefix_freed_t
px_keep(px_t *f)
{
    kvr_prefix_freed_t  freed = { px_freed, f };

    f->nfreed = 0;

    return freed;
}


/* Inserts; returns how many units there were. */
static inline uint32_t
px_insert(px_t *f, const void *units, uint32_t n, const char *extra,
    const uint32_t *values)
{
    uint32_t             existing;
    kvr_prefix_key_t     key;
    kvr_prefix_node_t    node;
    kvr_prefix_insert_t  how;

    memset(&how, 0, sizeof(how));
    how.values = values;
    how.freed = px_keep(f);

    key = px_key(units, n, extra);

    if (kvr_prefix_insert(&f->c, &key, &how, &existing, &node) != KVR_OK) {
        return UINT32_MAX;
    }

    return existing;
}


/* Matches; returns the length. */
static inline uint32_t
px_match(px_t *f, const void *units, uint32_t n, const char *extra,
    kvr_prefix_node_t *node, uint32_t *values)
{
    kvr_prefix_key_t   key;
    kvr_prefix_node_t  here;

    key = px_key(units, n, extra);
    node = node ? node : &here;

    if (kvr_prefix_match(&f->c, &key, node, values) != KVR_OK) {
        return UINT32_MAX;
    }

    return node->length;
}


static inline uint64_t
px_evict(px_t *f, uint64_t n)
{
    uint64_t  done;

    return kvr_prefix_evict(&f->c, n, &done, px_keep(f)) == KVR_OK
           ? done : UINT64_MAX;
}


static inline kvr_prefix_stats_t
px_stats(px_t *f)
{
    kvr_prefix_stats_t  s;

    kvr_prefix_stats(&f->c, &s);

    return s;
}


#endif /* PREFIX_FIXTURE_H_INCLUDED */
