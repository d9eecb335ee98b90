/*
 * Copyright (C) the nginx-kv-router authors
 *
 * An index in memory of its own, of either kind, for the tests:
 *
 *     journal │ zone │ tables and arena │ the test's words (shared)
 *
 * and the naive model that it is held against: a trie of one node a block,
 * and maps (view, handle) -> (node, tiers), (view, node, tier) -> handles.
 */


#ifndef RADIX_FIXTURE_H_INCLUDED
#define RADIX_FIXTURE_H_INCLUDED


#include "../check/kvr_check.h"
#include "tap.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>


#define FX_WORDS    512             /* the test's own, at the end */
#define FX_VIEWS    1024            /* no test has more */


typedef struct {
    kvr_mem_t          mem;
    kvr_index_t        x;
    kvr_index_zone_t  *zone;
    uint64_t          *words;
    uint32_t           views;
    uint32_t           depths[3][FX_VIEWS];     /* of the last fx_find() */
    bool               torn;
    bool               early_exit;
} fx_t;


/* What fx_open() makes. */
static kvr_index_kind_t  fx_kind;


/* ---- random numbers ----------------------------------------------------- */

static inline uint64_t
fx_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;

    return x ^ x >> 31;
}


static inline uint64_t
fx_random(uint64_t *seed)
{
    *seed += 0x9e3779b97f4a7c15u;

    return fx_mix(*seed);
}


/* 0 .. n - 1 */
static inline uint32_t
fx_below(uint64_t *seed, uint32_t n)
{
    return (uint32_t) ((fx_random(seed) >> 32) * n >> 32);
}


static inline uint64_t
fx_now_ns(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}


/* ---- the index ---------------------------------------------------------- */

static inline void
fx_open(fx_t *f, size_t size, uint32_t views)
{
    void      *p;
    uint64_t   at, secret[4];

    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
             -1, 0);

    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }

    /* not fx_mix() of small numbers, which tests take for hashes */

    secret[0] = fx_mix(UINT64_MAX);
    secret[1] = fx_mix(UINT64_MAX - 1);
    secret[2] = fx_mix(UINT64_MAX - 2);
    secret[3] = fx_mix(UINT64_MAX - 3);

    f->mem.base = p;
    f->mem.size = size;
    f->mem.journal = p;
    at = (sizeof(kvr_journal_t) + 63) & ~(uint64_t) 63;
    f->zone = (kvr_index_zone_t *) (f->mem.base + at);
    at += (sizeof(kvr_index_zone_t) + 63) & ~(uint64_t) 63;
    size -= FX_WORDS * 8;
    f->words = (uint64_t *) (f->mem.base + size);
    f->views = views;

    kvr_index_format(&f->mem, f->zone, fx_kind, at, size - at, views, secret);
    kvr_index_attach(&f->x, &f->mem, f->zone);
}


/* What making room may cost in one event; 0: nothing is forgotten. */
static inline void
fx_set_tries(fx_t *f, uint32_t tries)
{
    if (f->zone->kind == KVR_INDEX_RADIX) {
        f->x.u.radix.cost = tries;

    } else {
        f->x.u.positional.cost = tries;
    }
}


static inline void
fx_close(fx_t *f)
{
    munmap(f->mem.base, f->mem.size);
}


/* The lookup; f->depths are whole afterwards, tiered or not. */
static inline uint32_t
fx_find(fx_t *f, const uint64_t *hashes, uint32_t n)
{
    uint32_t      t, best;
    kvr_depths_t  out;

    for (t = 0; t < 3; t++) {
        out.depths[t] = f->depths[t];
    }

    out.nviews = f->views;
    out.early_exit = f->early_exit;
    best = kvr_index_find(&f->x, hashes, n, &out);
    f->torn = out.torn;

    if (!out.tiered) {
        memcpy(f->depths[0], f->depths[2], f->views * sizeof(uint32_t));
        memcpy(f->depths[1], f->depths[2], f->views * sizeof(uint32_t));
    }

    return best;
}


/* Each in one transaction; parent 0: from the root. */

static inline kvr_rc_t
fx_store(fx_t *f, uint32_t view, kvr_tier_t tier, uint64_t parent,
    const uint64_t *handles, const uint64_t *hashes, uint32_t n)
{
    uint32_t  stored;
    kvr_rc_t  rc;

    kvr_index_begin(&f->x);
    rc = kvr_index_store(&f->x, view, tier, parent != 0, parent, handles,
                         hashes, n, 0, &stored);
    kvr_txn_commit(&f->mem);

    return rc;
}


/* The handles that were unknown; UINT32_MAX for KVR_FULL. */
static inline uint32_t
fx_remove(fx_t *f, uint32_t view, kvr_tier_t tier, const uint64_t *handles,
    uint32_t n)
{
    uint32_t  unknown;
    kvr_rc_t  rc;

    unknown = 0;
    kvr_index_begin(&f->x);
    rc = kvr_index_remove(&f->x, view, tier, handles, n, &unknown);
    kvr_txn_commit(&f->mem);

    return rc == KVR_OK ? unknown : UINT32_MAX;
}


static inline bool
fx_dying(void *data, uint32_t view)
{
    return view == *(uint32_t *) data;
}


/* Until nothing is left of the view; returns how many rounds that took. */
static inline uint32_t
fx_reclaim(fx_t *f, uint32_t view, uint32_t slots)
{
    bool      round;
    uint32_t  rounds;

    for (rounds = 0; rounds < 100; /* void */ ) {
        kvr_index_begin(&f->x);
        round = kvr_index_reclaim(&f->x, fx_dying, &view, slots);
        kvr_txn_commit(&f->mem);

        rounds += round;

        if (round && kvr_index_view_empty(&f->x, view)) {
            break;
        }
    }

    return rounds;
}


static inline bool
fx_whole(fx_t *f, const char *when)
{
    const char  *why;

    why = kvr_index_check(&f->x);

    if (why) {
        printf("# %s, %s: %s\n", kvr_index_name(f->zone->kind), when, why);
    }

    return why == NULL;
}


static inline void
fx_count(uint64_t *a, uint64_t from, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        a[i] = from + i;
    }
}


static inline void
fx_backwards(uint64_t *to, const uint64_t *from, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        to[i] = from[n - 1 - i];
    }
}


/* The view's depths for the prompt q[0..n), and a look at everything. */

static inline bool
is_depth(fx_t *f, const uint64_t *q, uint32_t view, uint32_t n,
    uint32_t device, uint32_t host, uint32_t disk, const char *what)
{
    bool  good;

    fx_find(f, q, n);

    good = f->depths[0][view] == device && f->depths[1][view] == host
           && f->depths[2][view] == disk;

    if (!ok(good && fx_whole(f, what), "%s", what) && !good) {
        note("got %u, %u, %u; want %u, %u, %u", f->depths[0][view],
             f->depths[1][view], f->depths[2][view], device, host, disk);
    }

    return good;
}


static inline kvr_index_usage_t
fx_usage(const fx_t *f)
{
    kvr_index_usage_t  usage;

    kvr_index_usage(&f->x, &usage);

    return usage;
}


static inline bool
fx_empty(const fx_t *f)
{
    kvr_index_usage_t  u;

    u = fx_usage(f);

    return u.arena == 0 && u.pairs == 0 && u.handles == 0 && u.blocks == 0
           && u.entries == 0 && u.holes == 0;
}


static inline bool
is_empty(fx_t *f, const char *what)
{
    return ok(fx_empty(f) && fx_whole(f, what), "%s", what);
}


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


static inline bool
mdl_store(mdl_t *m, uint32_t view, kvr_tier_t tier, uint64_t parent,
    const uint64_t *handles, const uint64_t *hashes, uint32_t n)
{
    uint32_t      i, t;
    uint64_t      node;
    mdl_entry_t  *e, *held;

    node = parent ? mdl_node(m, view, parent) : 0;

    if (node == UINT64_MAX) {
        return false;
    }

    for (i = 0; i < n; i++) {
        node = mdl_child(m, node, hashes[i]);
        e = mdl_add(&m->handles, view, handles[i]);

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
            held = mdl_add(&m->held, view, node);
            held->n[tier]++;
        }
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


/* Compares the two on a prompt, for all views; says where they differ. */
static inline bool
fx_agree(fx_t *f, const mdl_t *m, const uint64_t *hashes, uint32_t n)
{
    bool      good;
    uint32_t  v, t, best, top, depths[3];

    good = true;
    top = 0;
    best = fx_find(f, hashes, n);

    for (v = 0; v < f->views; v++) {
        mdl_find(m, v, hashes, n, depths);
        top = kvr_max(top, depths[2]);

        for (t = 0; t < 3; t++) {
            if (f->depths[t][v] != depths[t]) {
                printf("# %s, a prompt of %u: view %u, tier %u: got %u, "
                       "want %u\n", kvr_index_name(f->zone->kind), n, v, t,
                       f->depths[t][v], depths[t]);
                good = false;
            }
        }
    }

    if (best != top) {
        printf("# %s, a prompt of %u: best %u, want %u\n",
               kvr_index_name(f->zone->kind), n, best, top);
        good = false;
    }

    return good;
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


#endif /* RADIX_FIXTURE_H_INCLUDED */
