/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Nodes of the prefix cache: found, made, split and removed.
 */


#include "kvr_prefix_state.h"

#include "../core/kvr_hash.h"
#include "../core/kvr_table.h"


#define KVR_PREFIX_ITEM_BIT  0x80000000u


/* The number of units that changes with nodes of these flags. */

static inline uint64_t *
kvr_prefix_of(kvr_prefix_t *c, uint32_t flags)
{
    kvr_prefix_stats_t  *s;

    s = &c->zone->stats;

    return flags & KVR_PREFIX_STORED ? &s->entry_tokens : &s->evictable;
}


void
kvr_prefix_item(uint64_t hash, uint32_t *units, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        units[i] = (uint32_t) kvr_hash_bytes(&i, sizeof(i), hash)
                   | KVR_PREFIX_ITEM_BIT;
    }
}


/* ---- buckets ------------------------------------------------------------ */

static uint32_t
kvr_prefix_hash(const kvr_prefix_t *c, uint32_t parent, uint32_t page,
    const void *units)
{
    size_t    bytes;
    uint64_t  first;

    bytes = (size_t) page * c->unit;
    first = 0;

    if (bytes <= sizeof(first)) {
        memcpy(&first, units, bytes);

    } else {
        first = kvr_hash_bytes(units, bytes, c->zone->secret[0]);
    }

    return (uint32_t)
           kvr_table_mix(kvr_table_spread(first) ^ c->zone->secret[0],
                         kvr_table_spread(parent) ^ c->zone->secret[1]);
}


static uint32_t
kvr_prefix_space_hash(const kvr_prefix_t *c, const kvr_prefix_key_t *key,
    uint32_t flags)
{
    return (uint32_t) kvr_hash_bytes(key->extra, key->extra_len,
                                     c->zone->secret[1] + flags);
}


static uint32_t *
kvr_prefix_bucket(const kvr_prefix_t *c, uint32_t hash)
{
    return &c->buckets[(uint64_t) hash * c->zone->nbuckets >> 32];
}


/* Puts a node into its bucket; fresh: the node was made in this transaction,
 * and needs no undo. */

static void
kvr_prefix_chain(kvr_prefix_t *c, uint32_t node, uint32_t hash, bool fresh)
{
    uint32_t           *bucket;
    kvr_prefix_item_t  *p;

    p = kvr_prefix_at(c, node);
    bucket = kvr_prefix_bucket(c, hash);

    if (fresh) {
        p->hash = hash;
        p->chain = *bucket;

    } else {
        kvr_set32(&c->mem, &p->hash, hash);
        kvr_set32(&c->mem, &p->chain, *bucket);
    }

    kvr_set32(&c->mem, bucket, node);
}


static void
kvr_prefix_unchain(kvr_prefix_t *c, uint32_t node)
{
    uint32_t           *at;
    kvr_prefix_item_t  *p;

    p = kvr_prefix_at(c, node);
    at = kvr_prefix_bucket(c, p->hash);

    while (*at != node) {
        at = &kvr_prefix_at(c, *at)->chain;
    }

    kvr_set32(&c->mem, at, p->chain);
}


/* ---- finding ------------------------------------------------------------ */

uint32_t
kvr_prefix_space(const kvr_prefix_t *c, const kvr_prefix_key_t *key,
    uint32_t flags)
{
    uint32_t                  node, hash;
    const kvr_prefix_item_t  *p;

    hash = kvr_prefix_space_hash(c, key, flags);

    for (node = *kvr_prefix_bucket(c, hash); node; node = p->chain) {
        p = kvr_prefix_at(c, node);

        if (p->hash == hash && p->len == key->extra_len
            && p->flags == (flags | KVR_PREFIX_SPACE)
            && (p->len == 0
                || memcmp(kvr_prefix_units(c, p), key->extra, p->len) == 0))
        {
            return node;
        }
    }

    return 0;
}


/* The child that begins with this page. */

static uint32_t
kvr_prefix_child(const kvr_prefix_t *c, uint32_t parent, uint32_t page,
    const void *units)
{
    uint32_t                  node, hash;
    const kvr_prefix_item_t  *p;

    hash = kvr_prefix_hash(c, parent, page, units);

    for (node = *kvr_prefix_bucket(c, hash); node; node = p->chain) {
        p = kvr_prefix_at(c, node);

        if (p->hash == hash && p->parent == parent
            && (p->flags & KVR_PREFIX_SPACE) == 0
            && memcmp(kvr_prefix_units(c, p), units, (size_t) page * c->unit)
               == 0)
        {
            return node;
        }
    }

    return 0;
}


/* How many of n units are the same. */

static uint32_t
kvr_prefix_common(const kvr_prefix_t *c, const char *a, const char *b,
    uint32_t n)
{
    size_t    i, bytes;
    uint64_t  x, y;

    bytes = (size_t) n * c->unit;

    if (memcmp(a, b, bytes) == 0) {
        return n;
    }

    for (i = 0; i + sizeof(x) <= bytes; i += sizeof(x)) {
        memcpy(&x, a + i, sizeof(x));
        memcpy(&y, b + i, sizeof(y));

        if (x != y) {
            break;
        }
    }

    while (i < bytes && a[i] == b[i]) {
        i++;
    }

    return (uint32_t) (i / c->unit);
}


void
kvr_prefix_find(kvr_prefix_t *c, const kvr_prefix_key_t *key, uint32_t n,
    uint32_t flags, kvr_prefix_walk_t *w)
{
    memset(w, 0, sizeof(kvr_prefix_walk_t));

    w->node = kvr_prefix_space(c, key, flags);
    kvr_prefix_walk(c, key, n, w);
}


uint32_t
kvr_prefix_place(kvr_prefix_t *c, const kvr_prefix_key_t *key, uint32_t flags,
    kvr_prefix_walk_t *w)
{
    const kvr_prefix_item_t  *p;

    if (w->node == 0) {
        w->node = kvr_prefix_space_make(c, key, flags);
        return w->node;
    }

    p = kvr_prefix_at(c, w->node);

    if ((p->flags & KVR_PREFIX_SPACE) == 0 && w->length < p->start + p->len) {
        w->node = kvr_prefix_split(c, w->node, w->length - p->start);
    }

    return w->node;
}


void
kvr_prefix_walk(kvr_prefix_t *c, const kvr_prefix_key_t *key, uint32_t n,
    kvr_prefix_walk_t *w)
{
    uint32_t                  node, page, common;
    const char               *units;
    const kvr_prefix_item_t  *p;

    if (w->node == 0) {
        return;
    }

    page = kvr_prefix_page(c, kvr_prefix_at(c, w->node)->flags);
    units = key->units;

    for ( /* void */ ; n - w->length >= page; w->hops++) {

        if (w->hops >= KVR_PREFIX_HOPS) {
            w->deep = true;
            c->zone->stats.deep++;
            return;
        }

        node = kvr_prefix_child(c, w->node, page,
                                units + (size_t) w->length * c->unit);
        if (node == 0) {
            return;
        }

        p = kvr_prefix_at(c, node);
        common = kvr_prefix_common(c, kvr_prefix_units(c, p),
                                   units + (size_t) w->length * c->unit,
                                   kvr_min(p->len, n - w->length));
        common = kvr_prefix_whole(common, page);

        w->node = node;
        w->length += common;

        if (common < p->len) {
            return;
        }

        if (p->flags & KVR_PREFIX_ENTRY) {
            w->entry = node;
        }
    }
}


uint32_t
kvr_prefix_resolve(const kvr_prefix_t *c, const kvr_prefix_node_t *node)
{
    uint32_t                  at;
    const kvr_arena_zone_t   *z;
    const kvr_prefix_item_t  *p;

    at = node->node;
    z = &c->zone->arena;

    if (node->id == 0
        || at < z->first * KVR_ARENA_CHUNK || at >= z->limit
        || at % KVR_ARENA_CHUNK % KVR_ARENA_RUN_WORDS
        || at % KVR_ARENA_CHUNK / KVR_ARENA_RUN_WORDS
           >= kvr_arena_classes[KVR_ARENA_RUN].slots
        || !kvr_arena_is(&c->arena, at, KVR_ARENA_RUN))
    {
        return 0;
    }

    p = kvr_prefix_at(c, at);

    if (p->id != node->id || p->flags & (KVR_PREFIX_SPACE | KVR_PREFIX_STORED)
        || node->length == 0 || node->length > p->start + p->len)
    {
        return 0;
    }

    /* the node may have been split since then */

    while (p->start >= node->length) {
        at = p->parent;
        p = kvr_prefix_at(c, at);
    }

    return at;
}


void
kvr_prefix_read(const kvr_prefix_t *c, const kvr_prefix_item_t *p,
    uint32_t from, uint32_t to, uint32_t *values)
{
    uint32_t     i;
    uint64_t     hash;
    const char  *units;

    if (p->values) {
        memcpy(values, (uint32_t *) kvr_arena_at(&c->arena, p->values) + from,
               (to - from) * sizeof(uint32_t));
        return;
    }

    units = kvr_prefix_units(c, p) + (size_t) from * c->unit;

    if (c->unit == sizeof(uint32_t)) {
        memcpy(values, units, (to - from) * sizeof(uint32_t));
        return;
    }

    for (i = 0; i < to - from; i++) {

        if (c->unit == 1) {
            values[i] = (uint8_t) units[i];
            continue;
        }

        memcpy(&hash, units + i * sizeof(hash), sizeof(hash));
        values[i] = (uint32_t) hash;
    }
}


/* ---- making ------------------------------------------------------------- */

/* A piece with a copy of data; 0: no memory. */

static uint32_t
kvr_prefix_row(kvr_prefix_t *c, const void *data, size_t bytes)
{
    uint32_t  piece;

    piece = kvr_arena_alloc(&c->arena, (uint32_t) ((bytes + 7) / 8));

    if (piece) {
        memcpy(kvr_arena_at(&c->arena, piece), data, bytes);
    }

    return piece;
}


/* Puts a new node before the first of its siblings, which is its next. */

static void
kvr_prefix_insert_first(kvr_prefix_t *c, uint32_t *first, uint32_t node)
{
    if (*first) {
        kvr_set32(&c->mem, &kvr_prefix_at(c, *first)->prev, node);
    }

    kvr_set32(&c->mem, first, node);
}


static void
kvr_prefix_take_out(kvr_prefix_t *c, uint32_t *first, kvr_prefix_item_t *p)
{
    kvr_set32(&c->mem, p->prev ? &kvr_prefix_at(c, p->prev)->next : first,
              p->next);

    if (p->next) {
        kvr_set32(&c->mem, &kvr_prefix_at(c, p->next)->prev, p->prev);
    }
}


/* A node with its units, and no place in the tree; 0: no memory. */

static uint32_t
kvr_prefix_new(kvr_prefix_t *c, const void *units, size_t bytes,
    const uint32_t *values, uint32_t len)
{
    uint32_t            node;
    kvr_prefix_item_t  *p;

    node = kvr_arena_alloc_run(&c->arena);
    if (node == 0) {
        return 0;
    }

    p = kvr_prefix_at(c, node);
    memset(p, 0, offsetof(kvr_prefix_item_t, data));

    kvr_set64(&c->mem, &c->zone->ids, c->zone->ids + 1);

    p->id = c->zone->ids;
    p->len = len;

    if (bytes > KVR_PREFIX_INLINE) {
        p->units = kvr_prefix_row(c, units, bytes);
        if (p->units == 0) {
            return 0;
        }

    } else if (bytes) {
        memcpy(p->data, units, bytes);
    }

    if (values) {
        p->values = kvr_prefix_row(c, values, len * sizeof(uint32_t));
        if (p->values == 0) {
            return 0;
        }
    }

    return node;
}


uint32_t
kvr_prefix_space_make(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    uint32_t flags)
{
    uint32_t            node;
    kvr_prefix_item_t  *p;

    node = kvr_prefix_new(c, key->extra, key->extra_len, NULL,
                          (uint32_t) key->extra_len);
    if (node == 0) {
        return 0;
    }

    p = kvr_prefix_at(c, node);
    p->flags = flags | KVR_PREFIX_SPACE;
    p->next = c->zone->spaces;

    kvr_prefix_insert_first(c, &c->zone->spaces, node);
    kvr_prefix_chain(c, node, kvr_prefix_space_hash(c, key, flags), true);
    kvr_set64(&c->mem, &c->zone->stats.namespaces,
              c->zone->stats.namespaces + 1);

    return node;
}


uint32_t
kvr_prefix_make(kvr_prefix_t *c, uint32_t parent, const void *units,
    const uint32_t *values, uint32_t len)
{
    uint32_t             node;
    uint64_t            *tokens;
    kvr_prefix_item_t   *p, *up;
    kvr_prefix_stats_t  *s;

    node = kvr_prefix_new(c, units, (size_t) len * c->unit, values, len);
    if (node == 0) {
        return 0;
    }

    s = &c->zone->stats;
    p = kvr_prefix_at(c, node);
    up = kvr_prefix_at(c, parent);

    p->flags = up->flags & KVR_PREFIX_STORED;
    p->parent = parent;
    p->start = up->flags & KVR_PREFIX_SPACE ? 0 : up->start + up->len;
    p->next = up->child;

    kvr_prefix_chain(c, node,
                     kvr_prefix_hash(c, parent, kvr_prefix_page(c, p->flags),
                                     units),
                     true);

    kvr_prefix_insert_first(c, &up->child, node);

    tokens = kvr_prefix_of(c, p->flags);
    kvr_set64(&c->mem, tokens, *tokens + len);

    if (p->flags & KVR_PREFIX_STORED) {
        return node;
    }

    kvr_set64(&c->mem, &s->nodes, s->nodes + 1);
    kvr_set64(&c->mem, &s->tokens, s->tokens + len);

    kvr_prefix_list(c, node);

    if ((up->flags & KVR_PREFIX_SPACE) == 0) {
        kvr_prefix_list(c, parent);
    }

    return node;
}


/* Takes the first n units from a node; false: no memory. */

static bool
kvr_prefix_cut(kvr_prefix_t *c, kvr_prefix_item_t *p, uint32_t n)
{
    size_t    bytes;
    uint32_t  i, units, values, len;
    uint64_t  data[KVR_PREFIX_INLINE / sizeof(uint64_t)];

    len = p->len - n;
    bytes = (size_t) len * c->unit;
    units = 0;
    values = 0;

    if (bytes > KVR_PREFIX_INLINE) {
        units = kvr_prefix_row(c, kvr_prefix_units(c, p)
                                  + (size_t) n * c->unit, bytes);
        if (units == 0) {
            return false;
        }

    } else {
        memset(data, 0, sizeof(data));
        memcpy(data, kvr_prefix_units(c, p) + (size_t) n * c->unit, bytes);

        for (i = 0; i < (bytes + 7) / 8; i++) {
            kvr_set_word(&c->mem, p->data, i, data[i]);
        }
    }

    if (p->values) {
        values = kvr_prefix_row(c, (uint32_t *) kvr_arena_at(&c->arena,
                                                             p->values) + n,
                                len * sizeof(uint32_t));
        if (values == 0) {
            return false;
        }

        kvr_arena_free(&c->arena, p->values);
        kvr_set32(&c->mem, &p->values, values);
    }

    if (p->units) {
        kvr_arena_free(&c->arena, p->units);
        kvr_set32(&c->mem, &p->units, units);
    }

    kvr_set32(&c->mem, &p->start, p->start + n);
    kvr_set32(&c->mem, &p->len, len);

    return true;
}


uint32_t
kvr_prefix_split(kvr_prefix_t *c, uint32_t node, uint32_t n)
{
    uint32_t             up, page;
    uint32_t            *values;
    kvr_prefix_item_t   *p, *q;
    kvr_prefix_stats_t  *s;

    s = &c->zone->stats;
    p = kvr_prefix_at(c, node);
    page = kvr_prefix_page(c, p->flags);
    values = p->values ? kvr_arena_at(&c->arena, p->values) : NULL;

    up = kvr_prefix_new(c, kvr_prefix_units(c, p), (size_t) n * c->unit,
                        values, n);
    if (up == 0) {
        return 0;
    }

    q = kvr_prefix_at(c, up);

    q->flags = p->flags & KVR_PREFIX_STORED;
    q->parent = p->parent;
    q->child = node;
    q->next = p->next;
    q->prev = p->prev;
    q->start = p->start;
    q->locks = p->locks;
    q->level = p->level;

    kvr_prefix_unchain(c, node);
    kvr_prefix_chain(c, up, p->hash, true);

    kvr_set32(&c->mem, q->prev ? &kvr_prefix_at(c, q->prev)->next
                               : &kvr_prefix_at(c, q->parent)->child, up);

    if (q->next) {
        kvr_set32(&c->mem, &kvr_prefix_at(c, q->next)->prev, up);
    }

    if (!kvr_prefix_cut(c, p, n)) {
        return 0;
    }

    kvr_set32(&c->mem, &p->parent, up);
    kvr_set32(&c->mem, &p->next, 0);
    kvr_set32(&c->mem, &p->prev, 0);
    kvr_prefix_chain(c, node,
                     kvr_prefix_hash(c, up, page, kvr_prefix_units(c, p)),
                     false);

    if ((p->flags & KVR_PREFIX_STORED) == 0) {
        kvr_set64(&c->mem, &s->nodes, s->nodes + 1);
        kvr_prefix_list_beside(c, up, node);
    }

    return up;
}


uint32_t
kvr_prefix_end_at(kvr_prefix_t *c, uint32_t node, uint32_t length)
{
    uint32_t                  up;
    const kvr_prefix_item_t  *p;

    p = kvr_prefix_at(c, node);

    if (p->start + p->len == length) {
        return node;
    }

    up = kvr_prefix_split(c, node, length - p->start);

    if (up == 0) {
        kvr_txn_rollback(&c->mem);
        return node;
    }

    return up;
}


/* ---- removing ----------------------------------------------------------- */

static void
kvr_prefix_free(kvr_prefix_t *c, uint32_t node)
{
    kvr_prefix_item_t  *p;

    p = kvr_prefix_at(c, node);

    kvr_prefix_unchain(c, node);

    if (p->units) {
        kvr_arena_free(&c->arena, p->units);
    }

    if (p->values) {
        kvr_arena_free(&c->arena, p->values);
    }

    kvr_set64(&c->mem, &p->id, 0);
    kvr_arena_free(&c->arena, node);
}


void
kvr_prefix_remove(kvr_prefix_t *c, uint32_t node)
{
    uint32_t             parent;
    uint64_t            *tokens;
    kvr_prefix_item_t   *p, *up;
    kvr_prefix_stats_t  *s;

    s = &c->zone->stats;
    p = kvr_prefix_at(c, node);
    parent = p->parent;
    up = kvr_prefix_at(c, parent);

    kvr_prefix_take_out(c, &up->child, p);

    tokens = kvr_prefix_of(c, p->flags);
    kvr_set64(&c->mem, tokens, *tokens - p->len);

    if ((p->flags & KVR_PREFIX_STORED) == 0) {
        kvr_prefix_unlist(c, node);
        kvr_set64(&c->mem, &s->nodes, s->nodes - 1);
        kvr_set64(&c->mem, &s->tokens, s->tokens - p->len);
    }

    kvr_prefix_free(c, node);

    if (up->child) {
        return;
    }

    if (up->flags & KVR_PREFIX_SPACE) {
        kvr_set64(&c->mem, &s->namespaces, s->namespaces - 1);
        kvr_prefix_take_out(c, &c->zone->spaces, up);
        kvr_prefix_free(c, parent);

    } else if ((up->flags & KVR_PREFIX_STORED) == 0) {
        kvr_prefix_list(c, parent);
    }
}
