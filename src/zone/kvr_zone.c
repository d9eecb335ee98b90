/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Making and opening a zone.
 */


#include "kvr_zone.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>


#define KVR_WORKERS_MAX      16384


/* Offsets of a zone's parts, in their order; the zone's own is 0. */

typedef struct {
    uint64_t  health;
    uint64_t  peers;
    uint64_t  selected;
    uint64_t  flights;
    uint64_t  frequency;
    uint64_t  shards;
} kvr_zone_places_t;


static bool kvr_zone_sound(const kvr_zone_t *z, size_t size);
static kvr_rc_t kvr_router_open(kvr_router_t *k, kvr_zone_t *z);
static bool kvr_zone_differs(const kvr_params_t *is,
    const kvr_params_t *wanted, char why[KVR_WHY_LEN]);


static uint32_t
kvr_zone_workers(const kvr_params_t *params)
{
    return kvr_shard_workers(params) * params->shards;
}


static uint32_t
kvr_zone_holders(const kvr_params_t *params)
{
    uint32_t  holders, views;

    kvr_fleet_bounds(kvr_shard_workers(params), &holders, &views);

    return holders * params->shards;
}


/* The list of the parts: each begins where the one before it ends. */

static void
kvr_zone_places(const kvr_params_t *params, uint64_t size,
    kvr_zone_places_t *at)
{
    at->health = kvr_lines(sizeof(kvr_zone_t));
    at->peers = at->health + kvr_health_size(kvr_zone_workers(params));
    at->selected = at->peers + kvr_peers_size(kvr_zone_holders(params));
    at->flights = at->selected
                  + kvr_lines(kvr_load_size(kvr_zone_holders(params)));
    at->frequency = at->flights + kvr_lines(kvr_min(size / KVR_FLIGHTS_PART,
                                                    KVR_FLIGHTS_BYTES));
    at->shards = at->frequency
                 + (params->frequency_ms
                    ? kvr_lines(size / KVR_FREQUENCY_PART) : 0);
}


/* The bytes of a fixed size may take half of the zone at most. */

uint64_t
kvr_router_least(const kvr_params_t *params)
{
    uint64_t           fixed;
    kvr_zone_places_t  at;

    kvr_zone_places(params, 0, &at);

    fixed = at.shards
            + params->shards * (kvr_shard_fixed(kvr_shard_workers(params),
                                                params->index)
                                + 64);

    return kvr_max(2 * fixed, KVR_ZONE_MIN);
}


/* The part of the zone that a shard has; answers the offset of its header. */

static uint64_t
kvr_zone_part(kvr_mem_t *mem, void *base, size_t size,
    const kvr_params_t *params, uint32_t shard)
{
    uint64_t           part;
    kvr_zone_places_t  at;

    kvr_zone_places(params, size, &at);

    part = (size - at.shards) / params->shards & ~UINT64_C(63);

    mem->journal = NULL;

    if (shard == 0) {
        mem->base = base;
        mem->size = at.shards + part;

        return at.shards;
    }

    mem->base = (char *) base + at.shards + part * shard;
    mem->size = part;

    return 0;
}


kvr_rc_t
kvr_router_format(void *base, size_t size, const kvr_params_t *params,
    char why[KVR_WHY_LEN])
{
    uint32_t            i;
    uint64_t            header, secret[7];
    kvr_mem_t           mem;
    kvr_zone_t         *z;
    kvr_zone_places_t   at;

    if (params->block_size == 0 || params->block_size > KVR_BLOCK_SIZE_MAX) {
        snprintf(why, KVR_WHY_LEN, "block_size must be 1..%u",
                 KVR_BLOCK_SIZE_MAX);
        return KVR_INVALID;
    }

    if (params->max_workers == 0 || params->max_workers > KVR_WORKERS_MAX) {
        snprintf(why, KVR_WHY_LEN, "max_workers must be 1..%u",
                 KVR_WORKERS_MAX);
        return KVR_INVALID;
    }

    if (params->shards == 0 || params->shards > KVR_SHARDS_MAX) {
        snprintf(why, KVR_WHY_LEN, "shards must be 1..%u", KVR_SHARDS_MAX);
        return KVR_INVALID;
    }

    if (params->index >= KVR_INDEX_KINDS) {
        snprintf(why, KVR_WHY_LEN, "there is no index %u", params->index);
        return KVR_INVALID;
    }

    if (params->frequency_ms != 0
        && (params->frequency_ms < KVR_FREQUENCY_MIN
            || params->frequency_ms > KVR_FREQUENCY_MAX))
    {
        snprintf(why, KVR_WHY_LEN, "frequency must be %u..%u ms, or 0",
                 KVR_FREQUENCY_MIN, KVR_FREQUENCY_MAX);
        return KVR_INVALID;
    }

    if (getrandom(secret, sizeof(secret), 0) != (ssize_t) sizeof(secret)) {
        snprintf(why, KVR_WHY_LEN, "getrandom() failed");
        return KVR_ERROR;
    }

    if (size < kvr_router_least(params)) {
        snprintf(why, KVR_WHY_LEN, "%zu bytes are too few for max_workers=%u "
                 "and shards=%u: at least %llu are needed", size,
                 params->max_workers, params->shards,
                 (unsigned long long) kvr_router_least(params));
        return KVR_INVALID;
    }

    if (size / params->shards > (uint64_t) UINT32_MAX * sizeof(uint64_t))
    {
        snprintf(why, KVR_WHY_LEN, "a zone may have 32 GiB for each shard at "
                 "most");
        return KVR_INVALID;
    }

    z = base;
    memset(z, 0, sizeof(kvr_zone_t));

    z->layout = KVR_ZONE_VERSION;
    z->size = size;
    z->params = *params;
    z->selections.free = KVR_SELECTIONS;

    kvr_zone_places(params, size, &at);

    memset((char *) base + at.health, 0, at.peers - at.health);

    kvr_load_format(&z->load, kvr_zone_holders(params), base, at.selected);

    kvr_peers_format(&z->peers, base, at.peers, kvr_zone_holders(params),
                     kvr_max(secret[6], 1));

    kvr_flights_format(&z->flights, base, at.flights,
                       at.frequency - at.flights);

    if (params->frequency_ms) {
        kvr_frequency_format(&z->frequency, base, at.frequency,
                             at.shards - at.frequency, params->frequency_ms,
                             &secret[4]);
    }

    for (i = 0; i < params->shards; i++) {
        header = kvr_zone_part(&mem, base, size, params, i);

        kvr_shard_format(&mem, header, kvr_shard_workers(params),
                         params->index, secret);
    }

    /* last: a zone without it is not one */

    __atomic_store_n(&z->magic, KVR_ZONE_MAGIC, __ATOMIC_RELEASE);

    return KVR_OK;
}


kvr_rc_t
kvr_router_attach(kvr_router_t *k, void *base, size_t size,
    const kvr_params_t *params, char why[KVR_WHY_LEN])
{
    kvr_rc_t            rc;
    kvr_zone_t         *z;
    kvr_zone_places_t   at;

    z = base;

    if (size < KVR_ZONE_MIN
        || __atomic_load_n(&z->magic, __ATOMIC_ACQUIRE) != KVR_ZONE_MAGIC)
    {
        snprintf(why, KVR_WHY_LEN, "the memory holds no kv-router zone");
        return KVR_INVALID;
    }

    if (z->layout != KVR_ZONE_VERSION) {
        snprintf(why, KVR_WHY_LEN, "the zone has layout %u, this software "
                 "has %u", z->layout, KVR_ZONE_VERSION);
        return KVR_INVALID;
    }

    memset(k, 0, sizeof(kvr_router_t));

    rc = KVR_INVALID;

    if (kvr_zone_sound(z, size)) {
        if (params && kvr_zone_differs(&z->params, params, why)) {
            return KVR_INVALID;
        }

        rc = kvr_router_open(k, z);
    }

    if (rc != KVR_OK) {
        kvr_router_detach(k);
        snprintf(why, KVR_WHY_LEN, "%s", rc == KVR_ERROR
                 ? "out of memory" : "the zone's header is damaged");
        return rc;
    }

    kvr_zone_places(&z->params, size, &at);

    kvr_load_attach(&k->load, &k->shards[0].mem,
                    kvr_index_arena(&k->shards[0].index), &z->load);

    kvr_peers_attach(&k->peers, &z->peers, base);

    (void) kvr_flights_attach(&k->flights, &z->flights, base, NULL, 0);

    k->health = (kvr_health_t *) ((char *) base + at.health);
    k->ttl = params ? params->ttl : z->params.ttl;

    return KVR_OK;
}


/* The header's own words, before anything that they lead to is read. */

static bool
kvr_zone_sound(const kvr_zone_t *z, size_t size)
{
    kvr_zone_places_t  at;

    if (z->size != size
        || z->params.shards == 0 || z->params.shards > KVR_SHARDS_MAX
        || z->params.max_workers == 0
        || z->params.max_workers > KVR_WORKERS_MAX
        || z->params.index >= KVR_INDEX_KINDS
        || size < kvr_router_least(&z->params))
    {
        return false;
    }

    kvr_zone_places(&z->params, size, &at);

    return z->load.max_holders == kvr_zone_holders(&z->params)
           && z->peers.max_holders == z->load.max_holders
           && z->peers.rows == at.peers
           && z->peers.homes == at.peers + z->peers.max_holders
                                           * sizeof(kvr_load_row_t)
           && z->load.selected == at.selected
           && z->flights.sets == at.flights
           && z->flights.nsets == (at.frequency - at.flights)
                                  / (KVR_FLIGHT_WAYS * sizeof(uint64_t))
           && z->frequency.sets < size
           && z->frequency.nsets <= (size - z->frequency.sets)
                                    / sizeof(kvr_frequency_set_t)
           && (z->params.frequency_ms == 0) == (z->frequency.nsets == 0);
}


/*
 * The process's memory, and its handles of the shards.  KVR_ERROR: no memory;
 * KVR_INVALID: a shard is damaged.
 */

static kvr_rc_t
kvr_router_open(kvr_router_t *k, kvr_zone_t *z)
{
    uint32_t   i, nhints;
    uint64_t   header;
    kvr_mem_t  mem;

    k->zone = z;
    k->nshards = z->params.shards;
    k->shards = calloc(k->nshards, sizeof(kvr_shard_t));

    nhints = 16;

    while (nhints < 2 * z->params.max_workers) {
        nhints *= 2;
    }

    k->hints = calloc(nhints, sizeof(uint32_t));
    k->scratch = malloc(2 * KVR_EVENT_BLOCKS_MAX * sizeof(uint64_t));

    if (k->shards == NULL || k->hints == NULL || k->scratch == NULL) {
        return KVR_ERROR;
    }

    for (i = 0; i < k->nshards; i++) {
        header = kvr_zone_part(&mem, z, z->size, &z->params, i);

        if (!kvr_shard_attach(&k->shards[i], &mem, header, &z->params,
                              k->scratch))
        {
            return KVR_INVALID;
        }

        kvr_fleet_hints(&k->shards[i].fleet, k->hints, nhints);
        kvr_shard_evict_init(&k->shards[i]);
    }

    k->rows = malloc(3 * k->shards[0].zone->fleet.max_views
                     * sizeof(uint32_t));

    return k->rows ? KVR_OK : KVR_ERROR;
}


static bool
kvr_zone_differs(const kvr_params_t *is, const kvr_params_t *wanted,
    char why[KVR_WHY_LEN])
{
    uint32_t  i;

    const struct {
        const char  *name;
        const char  *unit;
        uint32_t     is;
        uint32_t     wanted;
    } numbers[] = {
        { "block_size", "", is->block_size, wanted->block_size },
        { "max_workers", "", is->max_workers, wanted->max_workers },
        { "shards", "", is->shards, wanted->shards },
        { "frequency", "ms", is->frequency_ms, wanted->frequency_ms }
    };

    for (i = 0; i < kvr_nelts(numbers); i++) {
        if (numbers[i].wanted != numbers[i].is) {
            snprintf(why, KVR_WHY_LEN, "it was made with %s=%u%s, not %u%s",
                     numbers[i].name, numbers[i].is, numbers[i].unit,
                     numbers[i].wanted, numbers[i].unit);
            return true;
        }
    }

    if (wanted->eagle != is->eagle) {
        snprintf(why, KVR_WHY_LEN, "it was made with eagle=%s, not %s",
                 is->eagle ? "on" : "off", wanted->eagle ? "on" : "off");
        return true;
    }

    if (wanted->index != is->index) {
        snprintf(why, KVR_WHY_LEN, "it was made with index=%s, not %s",
                 kvr_index_name(is->index), kvr_index_name(wanted->index));
        return true;
    }

    if (strcmp(wanted->model, is->model) != 0) {
        snprintf(why, KVR_WHY_LEN, "it was made with model \"%.60s\", not "
                 "\"%.60s\"", is->model, wanted->model);
        return true;
    }

    return false;
}


void
kvr_router_bounds(const kvr_params_t *params, uint32_t *workers,
    uint32_t *holders)
{
    *workers = kvr_shard_workers(params) * params->shards;
    *holders = kvr_zone_holders(params);
}


void
kvr_router_detach(kvr_router_t *k)
{
    free(k->shards);
    free(k->hints);
    free(k->rows);
    free(k->scratch);

    k->shards = NULL;
    k->hints = NULL;
    k->rows = NULL;
    k->scratch = NULL;
}
