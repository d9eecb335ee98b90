/*
 * Copyright (C) the nginx-kv-router authors
 *
 * How the positional index lies in its part of the zone:
 *
 *     handles and broken links of each view │ entries │ places │ stripes │
 *     arena
 */


#include "kvr_positional.h"


/* Shares of the memory, in 256ths: see Limits in docs/operations.md. */
#define KVR_POSITIONAL_HANDLES_SHARE  64
#define KVR_POSITIONAL_PLACES_SHARE   32


size_t
kvr_positional_views_size(uint32_t max_views)
{
    return kvr_lines(max_views * 2 * sizeof(uint32_t));
}


void
kvr_positional_format(kvr_mem_t *mem, kvr_positional_zone_t *z, uint64_t at,
    uint64_t size, uint32_t max_views, const uint64_t secret[4])
{
    uint64_t  all, bytes, stripes;

    memset(z, 0, sizeof(kvr_positional_zone_t));

    z->max_views = max_views;
    z->secret[0] = secret[0];
    z->secret[1] = secret[1];
    z->handles.secret[0] = secret[2];
    z->handles.secret[1] = secret[3] | 1;

    bytes = kvr_positional_views_size(max_views);
    memset(mem->base + at, 0, bytes);
    z->view_handles = kvr_part(&at, &size, bytes);
    z->view_broken = z->view_handles + max_views * sizeof(uint32_t);

    /* slots are numbered by 32 bits of the hash */

    all = size / 256;

    bytes = all * KVR_POSITIONAL_HANDLES_SHARE;
    z->handles.nslots = kvr_min(bytes / sizeof(kvr_entry_t), UINT32_MAX);
    z->handles.limit = z->handles.nslots / 5 * 4;
    z->handles.slots = kvr_part(&at, &size,
                                z->handles.nslots * sizeof(kvr_entry_t));

    bytes = all * KVR_POSITIONAL_PLACES_SHARE;
    z->nplaces = kvr_min(bytes / sizeof(uint64_t), UINT32_MAX);
    z->blocks_limit = z->nplaces / 10 * 7;
    z->places = kvr_part(&at, &size, z->nplaces * sizeof(uint64_t));

    stripes = (z->nplaces - 1) / KVR_POSITIONAL_STRIPE + 1;
    z->stripes = kvr_part(&at, &size, stripes * sizeof(uint32_t));
    memset(mem->base + z->stripes, 0, stripes * sizeof(uint32_t));

    kvr_arena_format(&z->arena, at, size / sizeof(uint64_t));
}


void
kvr_positional_attach(kvr_positional_t *x, kvr_mem_t *mem,
    kvr_positional_zone_t *z)
{
    x->mem = mem;
    x->zone = z;
    x->places = (uint64_t *) (mem->base + z->places);
    x->stripes = (uint32_t *) (mem->base + z->stripes);
    x->view_handles = (uint32_t *) (mem->base + z->view_handles);
    x->view_broken = (uint32_t *) (mem->base + z->view_broken);
    x->now = 0;
    x->cost = KVR_POSITIONAL_COST;
    x->emptying = 0;
    x->evicted = NULL;
    x->evicted_data = NULL;

    kvr_arena_attach(&x->arena, mem, &z->arena);
    kvr_entries_attach(&x->handles, mem, &z->handles);
}
