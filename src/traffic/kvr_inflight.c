/*
 * Copyright (C) the nginx-kv-router authors
 */


#include <stdlib.h>

#include "kvr_inflight.h"


#define KVR_INFLIGHT_ROOT    0          /* a node without blocks */
#define KVR_INFLIGHT_TABLE   (KVR_INFLIGHT_NODES * 2)
#define KVR_INFLIGHT_PARTS   4          /* one of them a request counts of what
                                           nobody counts */


typedef struct {
    uint32_t    holder;
    uint32_t    generation;
    uint32_t    count;                  /* requests */
} kvr_inflight_share_t;


/* The blocks of a prompt; nodes refer to parts of them. */
typedef struct {
    uint32_t    refs;                   /* nodes */
    uint32_t    pad;
    uint64_t    blocks[];
} kvr_inflight_text_t;


typedef struct {
    kvr_inflight_text_t   *text;
    kvr_inflight_share_t  *shares;
    uint32_t               nshares;
    uint32_t               size;        /* the capacity of shares */
    uint32_t               start;       /* in text */
    uint32_t               len;
    uint32_t               parent;
    uint32_t               next;        /* next node in the same list: of
                                           the table, or of free nodes */
} kvr_inflight_node_t;


/* Of one generation of a holder, in blocks. */
typedef struct {
    uint32_t    generation;
    uint32_t    held;                   /* different ones in the tree */
    uint32_t    counted;                /* of these, for the load */
} kvr_inflight_sum_t;


struct kvr_inflight_s {
    kvr_inflight_node_t   *nodes;
    uint32_t              *table;       /* by parent and first block */
    uint32_t               nnodes;      /* ever used */
    uint32_t               free;
    uint32_t               used;
    kvr_inflight_sum_t    *sums;        /* by holder */
    uint32_t               nsums;
};


/* Where a prompt ends in the tree. */
typedef struct {
    uint32_t    node;                   /* the last node that has some of
                                           the prompt's blocks */
    uint32_t    within;                 /* the number of that node's blocks */
    uint32_t    depth;                  /* blocks altogether */
} kvr_inflight_spot_t;


static void kvr_inflight_walk(const kvr_inflight_t *f, const uint64_t *locals,
    uint32_t n, kvr_inflight_spot_t *spot);
static uint32_t kvr_inflight_child(const kvr_inflight_t *f, uint32_t parent,
    uint64_t block);
static uint32_t kvr_inflight_split(kvr_inflight_t *f, uint32_t node,
    uint32_t at);
static uint32_t kvr_inflight_leaf(kvr_inflight_t *f, uint32_t parent,
    const uint64_t *locals, uint32_t n);
static void kvr_inflight_unlink(kvr_inflight_t *f, uint32_t node);
static void kvr_inflight_free(kvr_inflight_t *f, uint32_t node);
static bool kvr_inflight_room(kvr_inflight_node_t *v);
static kvr_inflight_share_t *kvr_inflight_share(kvr_inflight_node_t *v,
    uint32_t holder, uint32_t generation);
static kvr_inflight_sum_t *kvr_inflight_sum(kvr_inflight_t *f,
    uint32_t holder, uint32_t generation);
static uint32_t kvr_inflight_count(kvr_inflight_sum_t *sum, uint32_t fresh,
    uint32_t unknown, uint32_t all);


kvr_inflight_t *
kvr_inflight_create(void)
{
    kvr_inflight_t  *f;

    f = calloc(1, sizeof(kvr_inflight_t));
    if (f == NULL) {
        return NULL;
    }

    /* memory pages that are never used are never allocated */

    f->nodes = calloc(KVR_INFLIGHT_NODES, sizeof(kvr_inflight_node_t));
    f->table = calloc(KVR_INFLIGHT_TABLE, sizeof(uint32_t));
    f->nnodes = 1;

    if (f->nodes == NULL || f->table == NULL) {
        kvr_inflight_destroy(f);
        return NULL;
    }

    return f;
}


void
kvr_inflight_destroy(kvr_inflight_t *f)
{
    uint32_t  i;

    if (f == NULL) {
        return;
    }

    for (i = 1; f->nodes && i < f->nnodes; i++) {
        if (f->nodes[i].text) {
            kvr_inflight_free(f, i);
        }
    }

    free(f->nodes);
    free(f->table);
    free(f->sums);
    free(f);
}


/* ---- requests ----------------------------------------------------------- */

uint32_t
kvr_inflight_add(kvr_inflight_t *f, uint32_t holder, uint32_t generation,
    const uint64_t *locals, uint32_t n, uint32_t known, uint32_t all,
    uint32_t *blocks)
{
    uint32_t               node;
    kvr_inflight_sum_t    *sum;
    kvr_inflight_spot_t    spot;
    kvr_inflight_node_t   *v;
    kvr_inflight_share_t  *share;

    *blocks = n;

    sum = kvr_inflight_sum(f, holder, generation);

    if (n == 0 || sum == NULL) {
        return 0;
    }

    kvr_inflight_walk(f, locals, n, &spot);

    /* 1. make a node end where the prompt leaves the tree */

    if (spot.within < f->nodes[spot.node].len) {

        spot.node = kvr_inflight_split(f, spot.node, spot.within);

        if (spot.node == 0) {
            return 0;
        }
    }

    /* 2. make a leaf for the blocks that are new */

    node = spot.node;

    if (spot.depth < n) {
        node = kvr_inflight_leaf(f, spot.node, locals + spot.depth,
                                 n - spot.depth);
    }

    /* 3. make room in all nodes up to the root: nothing can fail after this */

    for (v = &f->nodes[node]; node && v != f->nodes;
         v = &f->nodes[v->parent])
    {
        if (!kvr_inflight_room(v)) {

            if (f->nodes[node].nshares == 0) {
                kvr_inflight_unlink(f, node);
                kvr_inflight_free(f, node);
            }

            node = 0;
            break;
        }
    }

    if (node == 0) {
        return 0;
    }

    /* 4. count the request in these nodes */

    for (v = &f->nodes[node]; v != f->nodes; v = &f->nodes[v->parent]) {

        share = kvr_inflight_share(v, holder, generation);

        if (share) {
            share->count++;
            *blocks -= v->len;
            continue;
        }

        v->shares[v->nshares].holder = holder;
        v->shares[v->nshares].generation = generation;
        v->shares[v->nshares++].count = 1;
    }

    if (sum->generation == generation) {
        *blocks = kvr_inflight_count(sum, *blocks, n - kvr_min(known, n), all);
    }

    return node;
}


uint32_t
kvr_inflight_remove(kvr_inflight_t *f, uint32_t holder, uint32_t generation,
    uint32_t request)
{
    uint32_t               node, parent, gone, counted;
    kvr_inflight_sum_t    *sum;
    kvr_inflight_node_t   *v;
    kvr_inflight_share_t  *share;

    gone = 0;

    for (node = request; node != KVR_INFLIGHT_ROOT; node = parent) {

        v = &f->nodes[node];
        parent = v->parent;

        share = kvr_inflight_share(v, holder, generation);

        if (share == NULL || --share->count) {
            continue;
        }

        gone += v->len;
        *share = v->shares[--v->nshares];

        if (v->nshares == 0) {
            kvr_inflight_unlink(f, node);
            kvr_inflight_free(f, node);
        }
    }

    sum = &f->sums[holder];

    if (sum->generation != generation) {
        return gone;
    }

    counted = sum->counted;

    sum->held -= gone;
    sum->counted = kvr_min(counted, sum->held);

    return counted - sum->counted;
}


/*
 * Counts `fresh' blocks more in the tree, of a prompt that has `unknown'
 * blocks; returns how many more are counted for the load.
 */

static uint32_t
kvr_inflight_count(kvr_inflight_sum_t *sum, uint32_t fresh, uint32_t unknown,
    uint32_t all)
{
    uint32_t  before, left, others;

    before = sum->counted;
    others = all - kvr_min(all, before);

    sum->held += fresh;
    sum->counted += kvr_min(fresh, unknown);

    left = sum->held - sum->counted;

    if (left > others) {
        sum->counted += (left - others + KVR_INFLIGHT_PARTS - 1)
                        / KVR_INFLIGHT_PARTS;
    }

    return sum->counted - before;
}


/*
 * The sums of a holder, which begin anew with a generation.  NULL: out of
 * memory.
 */

static kvr_inflight_sum_t *
kvr_inflight_sum(kvr_inflight_t *f, uint32_t holder, uint32_t generation)
{
    kvr_inflight_sum_t  *sums;

    if (holder >= f->nsums) {

        sums = realloc(f->sums, (holder + 1) * sizeof(kvr_inflight_sum_t));
        if (sums == NULL) {
            return NULL;
        }

        memset(sums + f->nsums, 0,
               (holder + 1 - f->nsums) * sizeof(kvr_inflight_sum_t));

        f->sums = sums;
        f->nsums = holder + 1;
    }

    sums = &f->sums[holder];

    if (sums->generation < generation) {
        sums->generation = generation;
        sums->held = 0;
        sums->counted = 0;
    }

    return sums;
}


void
kvr_inflight_find(const kvr_inflight_t *f, const uint64_t *locals, uint32_t n,
    kvr_inflight_depth_t *depths, uint32_t nholders)
{
    uint32_t                     i, depth, node;
    kvr_inflight_spot_t          spot;
    kvr_inflight_depth_t        *d;
    const kvr_inflight_node_t   *v;
    const kvr_inflight_share_t  *share;

    kvr_inflight_walk(f, locals, n, &spot);

    /*
     * go from the deepest node up: a holder's depth is where it appears first
     */

    depth = spot.depth;

    for (node = spot.node; node != KVR_INFLIGHT_ROOT; node = v->parent) {

        v = &f->nodes[node];

        for (i = 0; i < v->nshares; i++) {
            share = &v->shares[i];

            if (share->holder >= nholders) {
                continue;
            }

            d = &depths[share->holder];

            if (d->generation == share->generation && d->depth < depth) {
                d->depth = depth;
            }
        }

        depth -= node == spot.node ? spot.within : v->len;
    }
}


uint32_t
kvr_inflight_nodes(const kvr_inflight_t *f)
{
    return f->used;
}


/* ---- the tree ----------------------------------------------------------- */

static void
kvr_inflight_walk(const kvr_inflight_t *f, const uint64_t *locals, uint32_t n,
    kvr_inflight_spot_t *spot)
{
    uint32_t                    node, i, len;
    const uint64_t             *blocks;
    const kvr_inflight_node_t  *v;

    spot->node = KVR_INFLIGHT_ROOT;
    spot->within = 0;
    spot->depth = 0;

    while (spot->depth < n) {

        node = kvr_inflight_child(f, spot->node, locals[spot->depth]);
        if (node == 0) {
            return;
        }

        v = &f->nodes[node];
        blocks = v->text->blocks + v->start;
        len = kvr_min(v->len, n - spot->depth);

        for (i = 1; i < len && blocks[i] == locals[spot->depth + i]; i++) {
            /* void */
        }

        spot->node = node;
        spot->within = i;
        spot->depth += i;

        if (i < v->len) {
            return;
        }
    }
}


static uint32_t
kvr_inflight_slot(uint32_t parent, uint64_t block)
{
    /* local hashes are hashes already */

    return (uint32_t) ((block ^ parent * UINT64_C(0x9e3779b97f4a7c15)) >> 16)
           % KVR_INFLIGHT_TABLE;
}


static uint32_t
kvr_inflight_child(const kvr_inflight_t *f, uint32_t parent, uint64_t block)
{
    uint32_t                    node;
    const kvr_inflight_node_t  *v;

    for (node = f->table[kvr_inflight_slot(parent, block)]; node;
         node = v->next)
    {
        v = &f->nodes[node];

        if (v->parent == parent && v->text->blocks[v->start] == block) {
            return node;
        }
    }

    return 0;
}


static void
kvr_inflight_link(kvr_inflight_t *f, uint32_t node)
{
    uint32_t             *list;
    kvr_inflight_node_t  *v;

    v = &f->nodes[node];
    list = &f->table[kvr_inflight_slot(v->parent, v->text->blocks[v->start])];

    v->next = *list;
    *list = node;
}


static void
kvr_inflight_unlink(kvr_inflight_t *f, uint32_t node)
{
    uint32_t             *list;
    kvr_inflight_node_t  *v;

    v = &f->nodes[node];
    list = &f->table[kvr_inflight_slot(v->parent, v->text->blocks[v->start])];

    while (*list != node) {
        list = &f->nodes[*list].next;
    }

    *list = v->next;
}


/* ---- nodes -------------------------------------------------------------- */

/*
 * Makes a node with a reference on its text, not linked yet; 0: there is no
 * free node.
 */

static uint32_t
kvr_inflight_make(kvr_inflight_t *f, uint32_t parent,
    kvr_inflight_text_t *text, uint32_t start, uint32_t len)
{
    uint32_t              node;
    kvr_inflight_node_t  *v;

    node = f->free;

    if (node) {
        f->free = f->nodes[node].next;

    } else if (f->nnodes < KVR_INFLIGHT_NODES) {
        node = f->nnodes++;

    } else {
        return 0;
    }

    v = &f->nodes[node];
    memset(v, 0, sizeof(kvr_inflight_node_t));

    text->refs++;

    v->text = text;
    v->parent = parent;
    v->start = start;
    v->len = len;

    f->used++;

    return node;
}


static void
kvr_inflight_free(kvr_inflight_t *f, uint32_t node)
{
    kvr_inflight_node_t  *v;

    v = &f->nodes[node];

    if (--v->text->refs == 0) {
        free(v->text);
    }

    free(v->shares);

    v->text = NULL;
    v->shares = NULL;
    v->next = f->free;

    f->free = node;
    f->used--;
}


/*
 * Splits a node.  The node keeps its number and its last blocks, because
 * requests and children refer to it.  Its first blocks go to a new node above
 * it, which is returned. 0: there was no memory, and nothing has changed.
 */

static uint32_t
kvr_inflight_split(kvr_inflight_t *f, uint32_t node, uint32_t at)
{
    uint32_t              above;
    kvr_inflight_node_t  *v, *a;

    v = &f->nodes[node];

    above = kvr_inflight_make(f, v->parent, v->text, v->start, at);
    if (above == 0) {
        return 0;
    }

    a = &f->nodes[above];

    a->shares = malloc(v->size * sizeof(kvr_inflight_share_t));

    if (a->shares == NULL) {
        kvr_inflight_free(f, above);
        return 0;
    }

    a->size = v->size;
    a->nshares = v->nshares;
    memcpy(a->shares, v->shares, v->nshares * sizeof(kvr_inflight_share_t));

    kvr_inflight_unlink(f, node);

    v->parent = above;
    v->start += at;
    v->len -= at;

    kvr_inflight_link(f, above);
    kvr_inflight_link(f, node);

    return above;
}


static uint32_t
kvr_inflight_leaf(kvr_inflight_t *f, uint32_t parent, const uint64_t *locals,
    uint32_t n)
{
    uint32_t              node;
    kvr_inflight_text_t  *text;

    text = malloc(sizeof(kvr_inflight_text_t) + n * sizeof(uint64_t));
    if (text == NULL) {
        return 0;
    }

    text->refs = 0;
    memcpy(text->blocks, locals, n * sizeof(uint64_t));

    node = kvr_inflight_make(f, parent, text, 0, n);

    if (node == 0) {
        free(text);
        return 0;
    }

    kvr_inflight_link(f, node);

    return node;
}


/* Makes room for one more holder. */

static bool
kvr_inflight_room(kvr_inflight_node_t *v)
{
    uint32_t               size;
    kvr_inflight_share_t  *shares;

    if (v->nshares < v->size) {
        return true;
    }

    size = v->size ? v->size * 2 : 2;

    shares = realloc(v->shares, size * sizeof(kvr_inflight_share_t));
    if (shares == NULL) {
        return false;
    }

    v->shares = shares;
    v->size = size;

    return true;
}


static kvr_inflight_share_t *
kvr_inflight_share(kvr_inflight_node_t *v, uint32_t holder,
    uint32_t generation)
{
    uint32_t  i;

    for (i = 0; i < v->nshares; i++) {
        if (v->shares[i].holder == holder
            && v->shares[i].generation == generation)
        {
            return &v->shares[i];
        }
    }

    return NULL;
}
