/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_index.h"


static const kvr_handles_t *kvr_index_handles(const kvr_index_t *x);


/* The index that the zone has. */
#define kvr_index_call(x, name, ...)                                          \
    ((x)->zone->kind == KVR_INDEX_RADIX                                       \
     ? kvr_radix_##name(&(x)->u.radix, ##__VA_ARGS__)                         \
     : kvr_positional_##name(&(x)->u.positional, ##__VA_ARGS__))


const char *
kvr_index_name(kvr_index_kind_t kind)
{
    return kind == KVR_INDEX_RADIX ? "radix" : "positional";
}


size_t
kvr_index_views_size(kvr_index_kind_t kind, uint32_t max_views)
{
    return kind == KVR_INDEX_RADIX ? kvr_radix_views_size(max_views)
                                   : kvr_positional_views_size(max_views);
}


void
kvr_index_format(kvr_mem_t *mem, kvr_index_zone_t *z, kvr_index_kind_t kind,
    uint64_t at, uint64_t size, uint32_t max_views, const uint64_t secret[4])
{
    memset(z, 0, sizeof(kvr_index_zone_t));
    z->kind = kind;

    if (kind == KVR_INDEX_RADIX) {
        kvr_radix_format(mem, &z->u.radix, at, size, max_views, secret);

    } else {
        kvr_positional_format(mem, &z->u.positional, at, size, max_views,
                              secret);
    }
}


void
kvr_index_attach(kvr_index_t *x, kvr_mem_t *mem, kvr_index_zone_t *z)
{
    x->zone = z;

    if (z->kind == KVR_INDEX_RADIX) {
        kvr_radix_attach(&x->u.radix, mem, &z->u.radix);

    } else {
        kvr_positional_attach(&x->u.positional, mem, &z->u.positional);
    }
}


bool
kvr_index_valid(const kvr_index_zone_t *z, uint64_t size)
{
    uint64_t                      end;
    const kvr_arena_zone_t       *a;
    const kvr_radix_zone_t       *r;
    const kvr_handles_zone_t     *h;
    const kvr_positional_zone_t  *p;

    if (z->kind >= KVR_INDEX_KINDS) {
        return false;
    }

    if (z->kind == KVR_INDEX_RADIX) {
        r = &z->u.radix;
        a = &r->arena;
        h = &r->handles;

        if (r->children >= size || r->children_used > r->nchildren) {
            return false;
        }

    } else {
        p = &z->u.positional;
        a = &p->arena;
        h = &p->handles;

        if (p->places >= size || p->stripes >= size
            || p->blocks > p->nplaces)
        {
            return false;
        }
    }

    end = a->base + a->limit * sizeof(uint64_t);

    return a->bump <= a->limit && end <= size && h->slots < size
           && h->used <= h->limit;
}


void
kvr_index_usage(const kvr_index_t *x, kvr_index_usage_t *out)
{
    uint32_t                      v;
    const kvr_arena_zone_t       *a;
    const kvr_radix_zone_t       *r;
    const kvr_handles_zone_t     *h;
    const kvr_positional_zone_t  *p;

    if (x->zone->kind == KVR_INDEX_RADIX) {
        r = &x->zone->u.radix;
        a = &r->arena;
        h = &r->handles;

        out->entries = kvr_load64(&r->children_used);
        out->entries_max = r->children_limit;
        out->blocks = kvr_load64(&r->blocks);
        out->holes = kvr_load64(&r->details);
        out->torn = kvr_load64(&r->torn);

    } else {
        p = &x->zone->u.positional;
        a = &p->arena;
        h = &p->handles;

        out->entries = kvr_load64(&p->blocks);
        out->entries_max = p->blocks_limit;
        out->blocks = out->entries;
        out->torn = kvr_load64(&p->torn);
        out->holes = 0;

        for (v = 0; v < p->max_views; v++) {
            out->holes += kvr_load32(&x->u.positional.view_broken[v])
                          & ~KVR_BROKEN_HIDDEN;
        }
    }

    out->arena = kvr_load64(&a->used) * sizeof(uint64_t);
    out->arena_max = a->limit * sizeof(uint64_t);
    out->handles = kvr_load64(&h->used);
    out->handles_max = h->limit;

    out->bytes = out->arena + out->handles * sizeof(kvr_handle_t)
                 + out->entries * sizeof(uint64_t);
}


/* ---- writers ------------------------------------------------------------ */

void
kvr_index_begin(kvr_index_t *x)
{
    kvr_index_call(x, begin);
}


kvr_rc_t
kvr_index_store(kvr_index_t *x, uint32_t view, kvr_tier_t tier,
    bool has_parent, uint64_t parent, const uint64_t *handles,
    const uint64_t *hashes, uint32_t n, uint64_t seed, uint32_t *done)
{
    return kvr_index_call(x, store, view, tier, has_parent, parent, handles,
                          hashes, n, seed, done);
}


kvr_rc_t
kvr_index_add_tier(kvr_index_t *x, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown)
{
    return kvr_index_call(x, add_tier, view, tier, handles, n, unknown);
}


kvr_rc_t
kvr_index_remove(kvr_index_t *x, uint32_t view, kvr_tier_t tier,
    const uint64_t *handles, uint32_t n, uint32_t *unknown)
{
    return kvr_index_call(x, remove, view, tier, handles, n, unknown);
}


kvr_rc_t
kvr_index_seed(const kvr_index_t *x, uint32_t view, uint64_t handle,
    uint64_t *seed)
{
    return kvr_index_call(x, seed, view, handle, seed);
}


bool
kvr_index_reclaim(kvr_index_t *x, bool (*dying)(void *data, uint32_t v),
    void *data, uint32_t slots)
{
    return kvr_index_call(x, reclaim, dying, data, slots);
}


bool
kvr_index_view_empty(const kvr_index_t *x, uint32_t view)
{
    return kvr_index_call(x, view_empty, view);
}


/* ---- for the dump and the tests ----------------------------------------- */

static const kvr_handles_t *
kvr_index_handles(const kvr_index_t *x)
{
    return x->zone->kind == KVR_INDEX_RADIX ? &x->u.radix.handles
                                            : &x->u.positional.handles;
}


bool
kvr_index_handle(const kvr_index_t *x, uint64_t *at, kvr_index_handle_t *out)
{
    const kvr_handle_t   *e;
    const kvr_handles_t  *h;

    h = kvr_index_handles(x);

    while (*at < h->zone->nslots) {
        e = &h->slots[(*at)++];

        if (e->place) {
            out->handle = e->handle;
            out->run = kvr_place_run(e->place);
            out->offset = kvr_place_offset(e->place);
            out->view = kvr_place_view(e->place);
            out->tiers = kvr_place_tiers(e->place);

            return true;
        }
    }

    return false;
}


bool
kvr_index_has(const kvr_index_t *x, uint32_t view, uint64_t handle)
{
    uint64_t  slot;

    return kvr_handles_find(kvr_index_handles(x), handle, view, &slot);
}


uint32_t
kvr_index_parent(const kvr_index_t *x, uint32_t run, uint32_t *offset)
{
    const kvr_run_t    *r;
    const kvr_block_t  *b;

    if (x->zone->kind == KVR_INDEX_RADIX) {
        r = kvr_radix_run(&x->u.radix, run);
        *offset = r->offset;

        return r->parent;
    }

    b = kvr_block_at(&x->u.positional.arena, run);
    *offset = b->parent != 0;

    return b->parent;
}


uint32_t
kvr_index_depth(const kvr_index_t *x, uint32_t run)
{
    uint32_t  depth, offset;

    if (x->zone->kind == KVR_INDEX_POSITIONAL) {
        return kvr_block_at(&x->u.positional.arena, run)->position;
    }

    for (depth = 0; run; depth += offset) {
        run = kvr_index_parent(x, run, &offset);
    }

    return depth;
}


uint64_t
kvr_index_hash(const kvr_index_t *x, uint32_t run, uint32_t offset)
{
    return x->zone->kind == KVR_INDEX_RADIX
           ? kvr_radix_hash(&x->u.radix, kvr_radix_run(&x->u.radix, run),
                            offset)
           : kvr_block_at(&x->u.positional.arena, run)->hash;
}


const char *
kvr_index_check(const kvr_index_t *x)
{
    return kvr_index_call(x, check);
}
