/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_index.h"
#include "../positional/kvr_positional_evict.h"
#include "../radix/kvr_handles.h"
#include "../radix/kvr_radix_evict.h"
#include "../radix/kvr_radix_words.h"
#include "../radix/kvr_roots.h"


static bool kvr_index_valid_radix(const kvr_radix_zone_t *r, uint64_t size);
static bool kvr_index_valid_positional(const kvr_positional_zone_t *p,
    uint64_t size);
static bool kvr_index_valid_arena(const kvr_arena_zone_t *a, uint64_t size);
static void kvr_index_each_positional(const kvr_positional_t *x,
    void (*tell)(void *data, const kvr_index_handle_t *h), void *data);


/* Calls the function of the kind of index that the zone has. */
#define kvr_index_call(x, name, ...)                                       \
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
    if (z->kind == KVR_INDEX_RADIX) {
        return kvr_index_valid_radix(&z->u.radix, size)
               && kvr_index_valid_arena(&z->u.radix.arena, size);
    }

    return z->kind == KVR_INDEX_POSITIONAL
           && kvr_index_valid_positional(&z->u.positional, size)
           && kvr_index_valid_arena(&z->u.positional.arena, size);
}


/* Are n items of `bytes` bytes each, beginning at `at`, inside the zone? */

static bool
kvr_index_inside(uint64_t size, uint64_t at, uint64_t n, size_t bytes)
{
    return at % sizeof(uint64_t) == 0 && at < size && n != 0
           && n <= (size - at) / bytes;
}


/*
 * Is a table with one item for each view inside the zone? It may begin in the
 * middle of a word.
 */

static bool
kvr_index_inside_views(uint64_t size, uint64_t at, uint32_t max_views)
{
    return kvr_index_inside(size, at & ~UINT64_C(7), max_views + 1,
                            sizeof(uint32_t));
}


static bool
kvr_index_valid_radix(const kvr_radix_zone_t *r, uint64_t size)
{
    uint64_t  n;

    n = r->nchildren;

    return kvr_index_inside(size, r->children, n, sizeof(uint64_t))
           && n <= UINT32_MAX && r->children_limit <= n
           && r->children_used <= r->children_limit
           && kvr_index_inside(size, r->occupied, n / 64 + 1,
                               sizeof(uint64_t))
           && r->nroots >= 64 && r->nroots <= KVR_ROOTS_MAX
           && (r->nroots & (r->nroots - 1)) == 0
           && kvr_index_inside(size, r->root_bits, r->nroots / 64,
                               sizeof(uint64_t))
           && kvr_index_inside(size, r->root_counts, r->nroots,
                               sizeof(uint16_t))
           && r->max_views <= KVR_VIEWS_LIMIT && r->shadows <= r->max_views
           && r->max_views - r->shadows == kvr_classes_shadows(r->shadows)
           && kvr_index_inside(size, r->classes, r->shadows + 1,
                               KVR_CLASSES_MAX * sizeof(uint64_t))
           && kvr_index_inside_views(size, r->view_runs, r->max_views)
           && kvr_index_inside_views(size, r->view_handles, r->max_views)
           && kvr_index_inside_views(size, r->view_owns, r->max_views)
           && r->reclaim_at <= n && r->evict_at <= n
           && r->freeing < r->arena.limit
           && kvr_index_inside(size, r->handles.lines, r->handles.nlines,
                               sizeof(kvr_handle_line_t))
           && r->handles.lines % sizeof(kvr_handle_line_t) == 0
           && r->handles.nlines <= UINT32_MAX
           && r->handles.limit <= r->handles.nlines * KVR_HANDLE_SLOTS
           && r->handles.used <= r->handles.limit;
}


static bool
kvr_index_valid_positional(const kvr_positional_zone_t *p, uint64_t size)
{
    uint64_t  n;

    n = p->nplaces;

    return kvr_index_inside(size, p->places, n, sizeof(uint64_t))
           && n <= UINT32_MAX && p->blocks_limit < n
           && p->blocks <= p->blocks_limit
           && kvr_index_inside(size, p->stripes,
                               (n - 1) / KVR_POSITIONAL_STRIPE + 1,
                               sizeof(uint32_t))
           && p->max_views <= KVR_VIEWS_LIMIT
           && kvr_index_inside_views(size, p->view_handles, p->max_views)
           && kvr_index_inside_views(size, p->view_broken, p->max_views)
           && p->reclaim_at <= n && p->evict_at <= n
           && p->freeing < p->arena.limit && p->evicting < p->arena.limit
           && kvr_index_inside(size, p->handles.slots, p->handles.nslots,
                               sizeof(kvr_entry_t))
           && p->handles.nslots <= UINT32_MAX
           && p->handles.limit < p->handles.nslots
           && p->handles.used <= p->handles.limit;
}


static bool
kvr_index_valid_arena(const kvr_arena_zone_t *a, uint64_t size)
{
    uint32_t  i;

    for (i = 0; i < KVR_ARENA_SPAN; i++) {
        if (a->room[i] >= a->nchunks) {
            return false;
        }
    }

    if (a->nlimbo > KVR_ARENA_LIMBO) {
        return false;
    }

    for (i = 0; i < a->nlimbo; i++) {
        if (a->limbo[i] >= a->limit) {
            return false;
        }
    }

    return a->limit == (uint64_t) a->nchunks * KVR_ARENA_CHUNK
           && kvr_index_inside(size, a->base, a->limit, sizeof(uint64_t))
           && a->first < a->nchunks && a->low <= a->nchunks
           && a->chunks <= a->nchunks - a->first
           && a->bump <= a->limit && a->used <= a->limit;
}


void
kvr_index_usage(const kvr_index_t *x, kvr_index_usage_t *out)
{
    uint32_t                      v;
    const kvr_arena_zone_t       *a;
    const kvr_radix_zone_t       *r;
    const kvr_positional_zone_t  *p;

    if (x->zone->kind == KVR_INDEX_RADIX) {
        r = &x->zone->u.radix;
        a = &r->arena;

        out->pairs = kvr_load64(&r->pairs);
        out->handles = kvr_load64(&r->handles.used);
        out->handles_max = r->handles.limit;
        out->entries = kvr_load64(&r->children_used);
        out->entries_max = r->children_limit;
        out->blocks = kvr_load64(&r->blocks);
        out->holes = kvr_load64(&r->details);
        out->forgotten = kvr_load64(&r->forgotten);
        out->torn = kvr_load64(&r->torn);
        out->cut = kvr_load64(&r->cut);
        out->bytes = out->handles * sizeof(uint64_t);

    } else {
        p = &x->zone->u.positional;
        a = &p->arena;

        out->pairs = kvr_load64(&p->handles.used);
        out->handles = out->pairs;
        out->handles_max = p->handles.limit;
        out->entries = kvr_load64(&p->blocks);
        out->entries_max = p->blocks_limit;
        out->blocks = out->entries;
        out->holes = 0;
        out->forgotten = kvr_load64(&p->forgotten);
        out->torn = kvr_load64(&p->torn);
        out->cut = kvr_load64(&p->cut);
        out->bytes = out->handles * sizeof(kvr_entry_t);

        for (v = 0; v < p->max_views; v++) {
            out->holes += kvr_load32(&x->u.positional.view_broken[v])
                          & ~KVR_BROKEN_HIDDEN;
        }
    }

    out->arena = kvr_load64(&a->used) * sizeof(uint64_t);
    out->arena_max = a->limit * sizeof(uint64_t);
    out->bytes += out->arena + out->entries * sizeof(uint64_t);
}


uint64_t
kvr_index_slots(const kvr_index_t *x)
{
    return x->zone->kind == KVR_INDEX_RADIX ? x->zone->u.radix.nchildren
                                            : x->zone->u.positional.nplaces;
}


void
kvr_index_set_now(kvr_index_t *x, uint32_t now)
{
    if (x->zone->kind == KVR_INDEX_RADIX) {
        x->u.radix.now = now;

    } else {
        x->u.positional.now = now;
    }
}


void
kvr_index_on_evict(kvr_index_t *x,
    void (*evicted)(void *data, uint32_t view, uint32_t handles), void *data)
{
    if (x->zone->kind == KVR_INDEX_RADIX) {
        x->u.radix.evicted = evicted;
        x->u.radix.evicted_data = data;

    } else {
        x->u.positional.evicted = evicted;
        x->u.positional.evicted_data = data;
    }
}


void
kvr_index_torn(const kvr_index_t *x)
{
    uint64_t  *torn;

    torn = x->zone->kind == KVR_INDEX_RADIX ? &x->zone->u.radix.torn
                                            : &x->zone->u.positional.torn;

    (void) __atomic_fetch_add(torn, 1, __ATOMIC_RELAXED);
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


kvr_rc_t
kvr_index_parent_handle(const kvr_index_t *x, uint32_t view, uint64_t handle,
    bool *has_parent, uint64_t *parent)
{
    return x->zone->kind == KVR_INDEX_RADIX
           ? kvr_handles_parent(&x->u.radix, view, handle, has_parent, parent)
           : kvr_positional_parent(&x->u.positional, view, handle, has_parent,
                                   parent);
}


bool
kvr_index_reclaim(kvr_index_t *x, bool (*dying)(void *data, uint32_t v),
    void *data, uint32_t slots)
{
    return kvr_index_call(x, reclaim, dying, data, slots);
}


bool
kvr_index_evict(kvr_index_t *x, uint32_t age, uint32_t slots)
{
    return kvr_index_call(x, evict, age, slots);
}


bool
kvr_index_make_room(kvr_index_t *x)
{
    uint32_t  cost;

    cost = 0;

    return kvr_index_call(x, make_room, 0, &cost);
}


bool
kvr_index_view_empty(const kvr_index_t *x, uint32_t view)
{
    return kvr_index_call(x, view_empty, view);
}


void
kvr_index_fetch(const kvr_index_t *x, uint32_t view, const uint64_t *handles,
    uint32_t n)
{
    uint32_t          i;
    kvr_handle_key_t  key;

    for (i = 0; i < n; i++) {

        if (x->zone->kind == KVR_INDEX_RADIX) {
            key = kvr_handle_key(&x->u.radix.handles, handles[i],
                                 KVR_SPACE_SHARED);
            kvr_handle_prefetch(&x->u.radix.handles, key);

        } else {
            kvr_entries_prefetch(&x->u.positional.handles, handles[i], view);
        }
    }
}


uint32_t
kvr_index_tiers(const kvr_index_t *x, uint32_t view, uint64_t handle)
{
    uint64_t      slot;
    kvr_entry_t  *e;

    if (x->zone->kind == KVR_INDEX_RADIX) {
        return kvr_radix_tiers(&x->u.radix, view, handle);
    }

    e = kvr_entries_find(&x->u.positional.handles, handle, view, &slot);

    return e ? kvr_entry_tiers(e->word) : 0;
}


/* ---- classes ------------------------------------------------------------ */

kvr_rc_t
kvr_index_class_set(kvr_index_t *x, uint32_t view, uint32_t i,
    const kvr_class_t *c)
{
    return x->zone->kind == KVR_INDEX_RADIX
           ? kvr_classes_set(&x->u.radix, view, i, c) : KVR_DECLINED;
}


uint32_t
kvr_index_class_get(const kvr_index_t *x, uint32_t view,
    kvr_class_t out[KVR_CLASSES_MAX])
{
    return x->zone->kind == KVR_INDEX_RADIX
           ? kvr_classes_get(&x->u.radix, view, out) : 0;
}


uint32_t
kvr_index_classed(const kvr_index_t *x)
{
    return x->zone->kind == KVR_INDEX_RADIX
           ? kvr_load32(&x->zone->u.radix.classed) : 0;
}


void
kvr_index_class_forget(kvr_index_t *x, uint32_t view)
{
    if (x->zone->kind == KVR_INDEX_RADIX) {
        kvr_classes_forget(&x->u.radix, view);
    }
}


kvr_rc_t
kvr_index_class_hold(kvr_index_t *x, uint32_t view, uint32_t i, bool add,
    const uint64_t *handles, uint32_t n, uint32_t *unknown)
{
    uint32_t  shadow;

    shadow = kvr_classes_shadow(&x->u.radix, view);

    return add ? kvr_radix_add(&x->u.radix, view, shadow, i, handles, n,
                               unknown)
               : kvr_radix_remove(&x->u.radix, shadow, i, handles, n, unknown);
}


uint32_t
kvr_index_held(const kvr_index_t *x, uint32_t view)
{
    return x->zone->kind == KVR_INDEX_RADIX
           ? kvr_load32(&x->u.radix.view_handles[view])
           : kvr_load32(&x->u.positional.view_handles[view]);
}


/* ---- for the dump and the tests ----------------------------------------- */

void
kvr_index_each(const kvr_index_t *x,
    void (*tell)(void *data, const kvr_index_handle_t *h), void *data)
{
    if (x->zone->kind == KVR_INDEX_RADIX) {
        kvr_radix_each(&x->u.radix, tell, data);

    } else {
        kvr_index_each_positional(&x->u.positional, tell, data);
    }
}


static void
kvr_index_each_positional(const kvr_positional_t *x,
    void (*tell)(void *data, const kvr_index_handle_t *h), void *data)
{
    uint64_t            i;
    kvr_index_handle_t  h;
    const kvr_entry_t  *e;

    h.offset = 0;

    for (i = 0; i < x->handles.zone->nslots; i++) {
        e = &x->handles.slots[i];

        if (e->word) {
            h.handle = e->handle;
            h.run = kvr_entry_block(e->word);
            h.view = kvr_entry_view(e->word);
            h.tiers = kvr_entry_tiers(e->word);

            tell(data, &h);
        }
    }
}


uint32_t
kvr_index_view(const kvr_index_t *x, uint32_t view, bool *shadow)
{
    uint32_t  is;

    is = x->zone->kind == KVR_INDEX_RADIX
         ? kvr_classes_view(&x->u.radix, view) : view;

    *shadow = is != view;

    return is;
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


uint32_t
kvr_index_next_run(const kvr_index_t *x, uint64_t *slot)
{
    uint64_t            i, n, word;
    const kvr_radix_t  *r;

    if (x->zone->kind != KVR_INDEX_RADIX) {
        return 0;
    }

    r = &x->u.radix;
    n = r->zone->nchildren;

    for (i = *slot; i < n; i = (i | 63) + 1) {
        word = r->occupied[i / 64] >> (i & 63);

        if (word) {
            i += (uint64_t) __builtin_ctzll(word);
            *slot = i + 1;

            return (uint32_t) (r->children[i] >> 32);
        }
    }

    return 0;
}


uint32_t
kvr_index_run_blocks(const kvr_index_t *x, uint32_t run)
{
    return kvr_radix_run(&x->u.radix, run)->len;
}


uint32_t
kvr_index_next_view(const kvr_index_t *x, uint32_t run, uint32_t *i,
    uint32_t *held)
{
    uint32_t          view;
    const kvr_run_t  *r;

    r = kvr_radix_run(&x->u.radix, run);
    view = kvr_pairs_next(&x->u.radix.cover, r, i);

    if (view != UINT32_MAX) {
        *held = kvr_cover_held(&x->u.radix.cover, r, view);
        (*i)++;
    }

    return view;
}
