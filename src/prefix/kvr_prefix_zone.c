/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The prefix cache's zone: laid out, opened, entered and left.
 */


#include "kvr_prefix_state.h"

#include "../core/kvr_clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>


#define KVR_PREFIX_MAGIC     UINT64_C(0x31786966657270)    /* "prefix1" */
#define KVR_PREFIX_VERSION   1
#define KVR_PREFIX_BYTES_MAX (4u << 20)  /* of a key: a walk compares them in
                                            a slice */


static const char  *kvr_prefix_policies[KVR_PREFIX_POLICIES] = {
    "lru", "lfu", "fifo", "mru", "priority"
};

static const char  *kvr_prefix_names[KVR_PREFIX_UNITS] = {
    "tokens", "hashes", "bytes"
};

static const uint32_t  kvr_prefix_sizes[KVR_PREFIX_UNITS] = { 4, 8, 1 };


const char *
kvr_prefix_policy_name(uint32_t policy)
{
    return policy < KVR_PREFIX_POLICIES ? kvr_prefix_policies[policy] : "?";
}


const char *
kvr_prefix_units_name(uint32_t units)
{
    return units < KVR_PREFIX_UNITS ? kvr_prefix_names[units] : "?";
}


/* Sets where the parts of a zone are; they follow from its size alone. */

static void
kvr_prefix_layout(kvr_prefix_zone_t *z, uint64_t size)
{
    uint64_t  at;

    z->nrecords = (uint32_t) kvr_max(size / 16384, UINT64_C(1024));
    z->nbuckets = (uint32_t) kvr_min(size / 256, UINT64_C(1) << 30);

    at = kvr_lines(sizeof(kvr_prefix_zone_t));
    z->journal = at;

    at = kvr_lines(at + sizeof(kvr_journal_t));
    z->owners = at;

    at = kvr_lines(at + KVR_PREFIX_OWNERS * sizeof(kvr_prefix_owner_t));
    z->records = at;

    at = kvr_lines(at + z->nrecords * sizeof(kvr_prefix_record_t));
    z->buckets = at;

    at = kvr_lines(at + z->nbuckets * sizeof(uint32_t));
    kvr_arena_format(&z->arena, at, (size - at) / sizeof(uint64_t));
}


static kvr_rc_t
kvr_prefix_valid(const kvr_prefix_params_t *params, size_t size,
    char why[KVR_PREFIX_WHY])
{
    if (params->units >= KVR_PREFIX_UNITS
        || params->evict >= KVR_PREFIX_POLICIES)
    {
        snprintf(why, KVR_PREFIX_WHY, "there are no units %u, or no policy %u",
                 params->units, params->evict);
        return KVR_INVALID;
    }

    if (params->page_size < 1 || params->page_size > KVR_PREFIX_PAGE_MAX) {
        snprintf(why, KVR_PREFIX_WHY, "page_size is %u, it must be 1..%u",
                 params->page_size, KVR_PREFIX_PAGE_MAX);
        return KVR_INVALID;
    }

    if (size < KVR_PREFIX_ZONE_MIN
        || size > (uint64_t) UINT32_MAX * sizeof(uint64_t))
    {
        snprintf(why, KVR_PREFIX_WHY, "the zone has %zu bytes, it must have "
                 "1 MiB to 32 GiB", size);
        return KVR_INVALID;
    }

    return KVR_OK;
}


kvr_rc_t
kvr_prefix_format(void *base, size_t size, const kvr_prefix_params_t *params,
    char why[KVR_PREFIX_WHY])
{
    uint32_t              i;
    kvr_prefix_zone_t    *z;
    kvr_prefix_record_t  *records;

    if (kvr_prefix_valid(params, size, why) != KVR_OK) {
        return KVR_INVALID;
    }

    z = base;
    memset(z, 0, sizeof(kvr_prefix_zone_t));

    if (getrandom(z->secret, sizeof(z->secret), 0)
        != (ssize_t) sizeof(z->secret))
    {
        snprintf(why, KVR_PREFIX_WHY, "getrandom() failed");
        return KVR_ERROR;
    }

    z->size = size;
    z->version = KVR_PREFIX_VERSION;
    z->units = params->units;
    z->page_size = params->page_size;
    z->evict = params->evict;

    kvr_prefix_layout(z, size);

    records = (kvr_prefix_record_t *) ((char *) base + z->records);

    for (i = 0; i < z->nrecords; i++) {
        records[i].next = i + 1 < z->nrecords ? i + 2 : 0;
    }

    z->free = 1;

    /* last: a zone without the magic number is not one */

    __atomic_store_n(&z->magic, KVR_PREFIX_MAGIC, __ATOMIC_RELEASE);

    return KVR_OK;
}


kvr_rc_t
kvr_prefix_attach(kvr_prefix_t *c, void *base, size_t size,
    const kvr_prefix_params_t *params, char why[KVR_PREFIX_WHY])
{
    kvr_prefix_zone_t  *z;

    memset(c, 0, sizeof(kvr_prefix_t));

    if (kvr_prefix_valid(params, size, why) != KVR_OK) {
        return KVR_INVALID;
    }

    z = base;

    if (__atomic_load_n(&z->magic, __ATOMIC_ACQUIRE) != KVR_PREFIX_MAGIC
        || z->version != KVR_PREFIX_VERSION || z->size != size
        || z->buckets >= size || z->arena.base >= size)
    {
        snprintf(why, KVR_PREFIX_WHY, "the memory holds no prefix cache of "
                 "%zu bytes in layout %u", size, KVR_PREFIX_VERSION);
        return KVR_INVALID;
    }

    if (z->units != params->units || z->page_size != params->page_size
        || z->evict != params->evict)
    {
        snprintf(why, KVR_PREFIX_WHY, "it was made with key=%s page_size=%u "
                 "evict=%s, not key=%s page_size=%u evict=%s",
                 kvr_prefix_units_name(z->units), z->page_size,
                 kvr_prefix_policy_name(z->evict),
                 kvr_prefix_units_name(params->units), params->page_size,
                 kvr_prefix_policy_name(params->evict));
        return KVR_INVALID;
    }

    c->freed = malloc(KVR_PREFIX_FREED * sizeof(uint32_t));
    if (c->freed == NULL) {
        snprintf(why, KVR_PREFIX_WHY, "out of memory");
        return KVR_ERROR;
    }

    c->zone = z;
    c->params = *params;
    c->mem.base = base;
    c->mem.size = size;
    c->mem.journal = (kvr_journal_t *) ((char *) base + z->journal);
    c->records = (kvr_prefix_record_t *) ((char *) base + z->records);
    c->owners = (kvr_prefix_owner_t *) ((char *) base + z->owners);
    c->buckets = (uint32_t *) ((char *) base + z->buckets);
    c->unit = kvr_prefix_sizes[params->units];
    c->edge = KVR_PREFIX_EDGE * sizeof(uint32_t)
              / kvr_max(c->unit, (uint32_t) sizeof(uint32_t));

    kvr_arena_attach(&c->arena, &c->mem, &z->arena);
    kvr_prefix_join(c);

    return KVR_OK;
}


void
kvr_prefix_detach(kvr_prefix_t *c)
{
    free(c->freed);
    c->freed = NULL;
    c->zone = NULL;
}


void
kvr_prefix_join(kvr_prefix_t *c)
{
    c->self = kvr_owner_self();
    c->slot = 0;
}


/* ---- the lock ----------------------------------------------------------- */

kvr_rc_t
kvr_prefix_enter(kvr_prefix_t *c)
{
    bool                 broken;
    kvr_rc_t             rc;
    kvr_prefix_stats_t  *s;

    s = &c->zone->stats;
    rc = kvr_lock_acquire(&c->zone->lock, c->self, KVR_PREFIX_WAIT, &broken);

    if (rc != KVR_OK) {
        (void) __atomic_fetch_add(&s->busy, 1, __ATOMIC_RELAXED);
        return rc;
    }

    if (c->mem.journal->n) {
        kvr_txn_rollback(&c->mem);
        s->rollbacks++;
    }

    c->entered = kvr_now_us();
    kvr_arena_settle(&c->arena);

    return KVR_OK;
}


void
kvr_prefix_exit(kvr_prefix_t *c)
{
    uint64_t             took;
    kvr_prefix_stats_t  *s;

    kvr_txn_commit(&c->mem);

    s = &c->zone->stats;
    took = kvr_now_us() - c->entered;

    s->slices++;
    s->slow_slices += took > KVR_PREFIX_SLICE;
    s->longest_slice = kvr_max(s->longest_slice, took);

    kvr_lock_release(&c->zone->lock, c->self);
}


void
kvr_prefix_again(kvr_prefix_t *c)
{
    kvr_txn_commit(&c->mem);
    kvr_arena_settle(&c->arena);
}


bool
kvr_prefix_in_time(const kvr_prefix_t *c)
{
    return kvr_now_us() - c->entered < KVR_PREFIX_SLICE / 2;
}


kvr_rc_t
kvr_prefix_check_key(const kvr_prefix_t *c, const kvr_prefix_key_t *key,
    size_t max)
{
    return key->n > max || key->n * c->unit > KVR_PREFIX_BYTES_MAX
           || key->extra_len > KVR_PREFIX_EXTRA_MAX ? KVR_INVALID : KVR_OK;
}


void
kvr_prefix_stats(const kvr_prefix_t *c, kvr_prefix_stats_t *s)
{
    uint32_t         i;
    uint64_t        *to;
    const uint64_t  *from;

    from = (const uint64_t *) &c->zone->stats;
    to = (uint64_t *) s;

    for (i = 0; i < sizeof(kvr_prefix_stats_t) / sizeof(uint64_t); i++) {
        to[i] = kvr_load64(&from[i]);
    }

    s->used = kvr_load64(&c->zone->arena.used) * sizeof(uint64_t);
    s->size = (c->zone->arena.limit
               - c->zone->arena.first * (uint64_t) KVR_ARENA_CHUNK)
              * sizeof(uint64_t);
}
