/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The naive model that an index is held against: a trie of one node a block,
 * and maps (view, handle) -> (node, tiers), (view, node, tier) -> handles.
 */


#ifndef MODEL_H_INCLUDED
#define MODEL_H_INCLUDED


#include "fixture.h"
#include "kvr.h"


/* ---- the model: maps ---------------------------------------------------- */

typedef struct mdl_entry_s  mdl_entry_t;

struct mdl_entry_s {
    mdl_entry_t  *next;
    uint64_t      a, b;
    uint64_t      node;
    uint32_t      n[KVR_TIERS];
};


typedef struct {
    mdl_entry_t  **buckets;
    uint64_t       nbuckets;
    uint64_t       n;
} mdl_map_t;


static inline mdl_entry_t **
mdl_place(const mdl_map_t *m, uint64_t a, uint64_t b)
{
    mdl_entry_t  **e;

    e = &m->buckets[fx_mix(fx_mix(a) ^ b) & (m->nbuckets - 1)];

    while (*e && ((*e)->a != a || (*e)->b != b)) {
        e = &(*e)->next;
    }

    return e;
}


static inline mdl_entry_t *
mdl_get(const mdl_map_t *m, uint64_t a, uint64_t b)
{
    return m->nbuckets ? *mdl_place(m, a, b) : NULL;
}


static inline mdl_entry_t *
mdl_add(mdl_map_t *m, uint64_t a, uint64_t b)
{
    uint64_t      i;
    mdl_map_t     old;
    mdl_entry_t  *e, *next, **to;

    if (m->n >= m->nbuckets) {
        old = *m;
        m->nbuckets = old.nbuckets ? old.nbuckets * 2 : 1024;
        m->buckets = calloc(m->nbuckets, sizeof(mdl_entry_t *));

        for (i = 0; i < old.nbuckets; i++) {
            for (e = old.buckets[i]; e; e = next) {
                next = e->next;
                to = mdl_place(m, e->a, e->b);
                e->next = NULL;
                *to = e;
            }
        }

        free(old.buckets);
    }

    to = mdl_place(m, a, b);

    if (*to == NULL) {
        *to = calloc(1, sizeof(mdl_entry_t));
        (*to)->a = a;
        (*to)->b = b;
        m->n++;
    }

    return *to;
}


static inline void
mdl_delete(mdl_map_t *m, uint64_t a, uint64_t b)
{
    mdl_entry_t  *e, **at;

    at = mdl_place(m, a, b);
    e = *at;

    if (e) {
        *at = e->next;
        m->n--;
        free(e);
    }
}


static inline void
mdl_clear(mdl_map_t *m)
{
    uint64_t      i;
    mdl_entry_t  *e, *next;

    for (i = 0; i < m->nbuckets; i++) {
        for (e = m->buckets[i]; e; e = next) {
            next = e->next;
            free(e);
        }
    }

    free(m->buckets);
    memset(m, 0, sizeof(mdl_map_t));
}


/* ---- the model: what the index means ------------------------------------ */

typedef struct {
    uint64_t     parent;
    uint64_t     hash;
    uint64_t     chain;             /* of all hashes from the root */
    uint32_t     depth;
} mdl_node_t;


typedef struct {
    mdl_map_t    handles;           /* view, handle -> node, n[tier] 0 or 1 */
    mdl_map_t    children;          /* node, hash -> node */
    mdl_map_t    held;              /* view, node -> n[tier] handles */
    mdl_node_t  *nodes;             /* [0] is the root */
    uint64_t     nnodes;
    uint64_t     room;
} mdl_t;


static inline void
mdl_open(mdl_t *m)
{
    memset(m, 0, sizeof(mdl_t));
    m->room = 1024;
    m->nodes = calloc(m->room, sizeof(mdl_node_t));
    m->nnodes = 1;
    m->nodes[0].chain = 1;
}


static inline void
mdl_close(mdl_t *m)
{
    mdl_clear(&m->handles);
    mdl_clear(&m->children);
    mdl_clear(&m->held);
    free(m->nodes);
}


static inline uint64_t
mdl_child(mdl_t *m, uint64_t node, uint64_t hash)
{
    mdl_entry_t  *e;

    e = mdl_get(&m->children, node, hash);

    if (e == NULL) {

        if (m->nnodes == m->room) {
            m->room *= 2;
            m->nodes = realloc(m->nodes, m->room * sizeof(mdl_node_t));
        }

        e = mdl_add(&m->children, node, hash);
        e->node = m->nnodes;

        m->nodes[e->node].parent = node;
        m->nodes[e->node].hash = hash;
        m->nodes[e->node].chain = fx_mix(m->nodes[node].chain ^ fx_mix(hash));
        m->nodes[e->node].depth = m->nodes[node].depth + 1;
        m->nnodes++;
    }

    return e->node;
}


/* The node that a handle names; UINT64_MAX when it is unknown. */
static inline uint64_t
mdl_node(const mdl_t *m, uint32_t view, uint64_t handle)
{
    mdl_entry_t  *e;

    e = mdl_get(&m->handles, view, handle);

    return e ? e->node : UINT64_MAX;
}


/* A handle names a node, in one tier more; it leaves the one it named. */
static inline void
mdl_hold(mdl_t *m, uint32_t view, uint64_t handle, uint64_t node,
    kvr_tier_t tier)
{
    uint32_t      t;
    mdl_entry_t  *e;

    e = mdl_add(&m->handles, view, handle);

    if (e->node != node) {
        for (t = 0; t < KVR_TIERS; t++) {
            if (e->n[t]) {
                mdl_get(&m->held, view, e->node)->n[t]--;
                e->n[t] = 0;
            }
        }

        e->node = node;
    }

    if (e->n[tier] == 0) {
        e->n[tier] = 1;
        mdl_add(&m->held, view, node)->n[tier]++;
    }
}


static inline bool
mdl_store(mdl_t *m, uint32_t view, kvr_tier_t tier, uint64_t parent,
    const uint64_t *handles, const uint64_t *hashes, uint32_t n)
{
    uint32_t  i;
    uint64_t  node;

    node = parent ? mdl_node(m, view, parent) : 0;

    if (node == UINT64_MAX) {
        return false;
    }

    for (i = 0; i < n; i++) {
        node = mdl_child(m, node, hashes[i]);
        mdl_hold(m, view, handles[i], node, tier);
    }

    return true;
}


static inline uint32_t
mdl_remove(mdl_t *m, uint32_t view, kvr_tier_t tier, const uint64_t *handles,
    uint32_t n)
{
    uint32_t      i, unknown;
    mdl_entry_t  *e;

    unknown = 0;

    for (i = 0; i < n; i++) {
        e = mdl_get(&m->handles, view, handles[i]);

        if (e == NULL || e->n[tier] == 0) {
            unknown++;
            continue;
        }

        e->n[tier] = 0;
        mdl_get(&m->held, view, e->node)->n[tier]--;

        if (e->n[0] + e->n[1] + e->n[2] + e->n[3] == 0) {
            mdl_delete(&m->handles, view, handles[i]);
        }
    }

    return unknown;
}


static inline void
mdl_drop(mdl_t *m, uint32_t view)
{
    uint32_t      i, t;
    uint64_t      b;
    mdl_map_t    *map;
    mdl_entry_t  *e, **at;

    for (i = 0; i < 2; i++) {
        map = i ? &m->held : &m->handles;

        for (b = 0; b < map->nbuckets; b++) {
            for (at = &map->buckets[b]; *at; /* void */ ) {
                e = *at;

                if (e->a != view) {
                    at = &e->next;
                    continue;
                }

                for (t = 0; t < KVR_TIERS; t++) {
                    e->n[t] = 0;
                }

                *at = e->next;
                map->n--;
                free(e);
            }
        }
    }
}


static inline void
mdl_find(const mdl_t *m, uint32_t view, const uint64_t *hashes, uint32_t n,
    uint32_t depths[3])
{
    bool          on[3], has;
    uint32_t      i, t;
    uint64_t      node;
    mdl_entry_t  *e;

    node = 0;

    for (t = 0; t < 3; t++) {
        depths[t] = 0;
        on[t] = true;
    }

    for (i = 0; i < n && on[2]; i++) {
        e = mdl_get(&m->children, node, hashes[i]);
        if (e == NULL) {
            break;
        }

        node = e->node;
        e = mdl_get(&m->held, view, node);
        has = false;

        for (t = 0; t < 3; t++) {
            has = has || (e && e->n[t]);
            on[t] = on[t] && has;
            depths[t] += on[t];
        }
    }
}


/* The hashes of a node's chain from the root; returns their number. */
static inline uint32_t
mdl_chain(const mdl_t *m, uint64_t node, uint64_t *hashes, uint32_t max)
{
    uint32_t  i, n;

    n = m->nodes[node].depth;

    for (i = n; i-- > 0; node = m->nodes[node].parent) {
        if (i < max) {
            hashes[i] = m->nodes[node].hash;
        }
    }

    return kvr_min(n, max);
}


#endif /* MODEL_H_INCLUDED */
