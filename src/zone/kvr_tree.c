/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A picture of the radix tree: the runs with the most blocks in and below
 * them.
 *
 * The table of runs is in no order.  So the first KVR_TREE_LOOKS runs of the
 * table are a random choice of all runs.  The runs before them are added, and
 * the blocks of each run are added to all runs before it.  A run then has
 * fewer blocks than the run before it, so the runs with the most blocks are a
 * tree.
 */


#include "kvr_views.h"

#include <stdlib.h>


#define KVR_TREE_LOOKS       8192       /* runs of the table, in one shard */
#define KVR_TREE_RUNS        16384      /* with the runs before them */
#define KVR_TREE_MAP         (2 * KVR_TREE_RUNS)    /* 2^k */


typedef struct {
    uint32_t    run;
    uint32_t    offset;
    uint32_t    parent;             /* index + 1; 0: the root */
    uint32_t    children;           /* not yet added to their parent */
    uint64_t    blocks;             /* in and below the run */
    bool        lost;               /* no room for the runs before it */
    bool        told;
} kvr_tree_run_t;


typedef struct {
    uint32_t         n;
    kvr_tree_run_t   runs[KVR_TREE_RUNS];
    kvr_tree_run_t  *order[KVR_TREE_RUNS];
    uint32_t         map[KVR_TREE_MAP];      /* run -> index + 1 */
} kvr_tree_t;


static uint32_t kvr_tree_shard(const kvr_router_t *r, uint32_t shard,
    kvr_tree_t *t, kvr_tree_node_t *nodes, uint32_t room, bool *cut);
static uint32_t kvr_tree_add(kvr_tree_t *t, uint32_t run);
static void kvr_tree_sum(kvr_tree_t *t);
static int kvr_tree_compare(const void *one, const void *two);
static void kvr_tree_tell(const kvr_router_t *r, uint32_t shard,
    const kvr_tree_t *t, const kvr_tree_run_t *run, kvr_tree_node_t *node);
static uint32_t kvr_tree_holder(const kvr_shard_t *k, uint32_t view);


kvr_rc_t
kvr_router_tree(kvr_router_t *r, kvr_tree_node_t *nodes, uint32_t *n,
    bool *cut)
{
    uint32_t     i;
    kvr_rc_t     rc;
    kvr_tree_t  *t;

    *n = 0;
    *cut = false;

    t = malloc(sizeof(kvr_tree_t));
    if (t == NULL) {
        return KVR_ERROR;
    }

    rc = KVR_OK;

    for (i = 0; i < r->nshards; i++) {

        rc = kvr_shard_lock(&r->shards[i], KVR_LOCK_MS);
        if (rc != KVR_OK) {
            break;
        }

        /* the shards that are left have equal parts of the room */

        *n += kvr_tree_shard(r, i, t, nodes + *n,
                             (KVR_TREE_NODES - *n) / (r->nshards - i), cut);

        kvr_shard_unlock(&r->shards[i]);
    }

    free(t);

    return rc;
}


static uint32_t
kvr_tree_shard(const kvr_router_t *r, uint32_t shard, kvr_tree_t *t,
    kvr_tree_node_t *nodes, uint32_t room, bool *cut)
{
    uint32_t         i, n, run, parent, offset;
    uint64_t         slot;
    kvr_tree_run_t  *it;

    const kvr_index_t *x = &r->shards[shard].index;

    t->n = 0;
    memset(t->map, 0, sizeof(t->map));

    slot = 0;

    while ((run = kvr_index_next_run(x, &slot)) != 0) {

        if (t->n == KVR_TREE_LOOKS) {
            *cut = true;
            break;
        }

        (void) kvr_tree_add(t, run);
    }

    /* runs are added meanwhile: those before the others */

    for (i = 0; i < t->n; i++) {
        parent = kvr_index_parent(x, t->runs[i].run, &offset);
        run = parent ? kvr_tree_add(t, parent) : 0;

        it = &t->runs[i];
        it->offset = offset;
        it->parent = run;
        it->blocks = kvr_index_run_blocks(x, it->run);
        it->lost = parent && run == 0;

        if (run) {
            t->runs[run - 1].children++;
        }
    }

    kvr_tree_sum(t);

    for (i = 0; i < t->n; i++) {
        t->order[i] = &t->runs[i];
    }

    qsort(t->order, t->n, sizeof(kvr_tree_run_t *), kvr_tree_compare);

    n = 0;

    for (i = 0; i < t->n; i++) {

        it = t->order[i];

        if (n == room || it->lost
            || (it->parent && !t->runs[it->parent - 1].told))
        {
            *cut = true;
            continue;
        }

        it->told = true;
        kvr_tree_tell(r, shard, t, it, &nodes[n++]);
    }

    return n;
}


/* The index + 1 of a run, which is added if it is new; 0: there is no room. */

static uint32_t
kvr_tree_add(kvr_tree_t *t, uint32_t run)
{
    uint32_t  i;

    i = (run * 0x9e3779b1u) & (KVR_TREE_MAP - 1);

    while (t->map[i]) {

        if (t->runs[t->map[i] - 1].run == run) {
            return t->map[i];
        }

        i = (i + 1) & (KVR_TREE_MAP - 1);
    }

    if (t->n == KVR_TREE_RUNS) {
        return 0;
    }

    memset(&t->runs[t->n], 0, sizeof(kvr_tree_run_t));
    t->runs[t->n].run = run;
    t->map[i] = ++t->n;

    return t->n;
}


/* Adds the blocks of each run to those before it, leaves first. */

static void
kvr_tree_sum(kvr_tree_t *t)
{
    uint32_t         i, n;
    kvr_tree_run_t  *run, *parent;

    n = 0;

    for (i = 0; i < t->n; i++) {
        if (t->runs[i].children == 0) {
            t->order[n++] = &t->runs[i];
        }
    }

    for (i = 0; i < n; i++) {
        run = t->order[i];

        if (run->parent) {
            parent = &t->runs[run->parent - 1];
            parent->blocks += run->blocks;

            if (--parent->children == 0) {
                t->order[n++] = parent;
            }
        }
    }
}


/* The most blocks first, then by run, so that the order is always the same. */

static int
kvr_tree_compare(const void *one, const void *two)
{
    const kvr_tree_run_t *a = *(kvr_tree_run_t *const *) one;
    const kvr_tree_run_t *b = *(kvr_tree_run_t *const *) two;

    if (a->blocks != b->blocks) {
        return a->blocks > b->blocks ? -1 : 1;
    }

    return a->run < b->run ? -1 : a->run > b->run;
}


static void
kvr_tree_tell(const kvr_router_t *r, uint32_t shard, const kvr_tree_t *t,
    const kvr_tree_run_t *run, kvr_tree_node_t *node)
{
    uint32_t  i, k, view, holder, held, at;

    const kvr_shard_t *s = &r->shards[shard];

    memset(node, 0, sizeof(kvr_tree_node_t));

    node->shard = shard;
    node->run = run->run;
    node->parent = run->parent ? t->runs[run->parent - 1].run : 0;
    node->offset = run->offset;
    node->blocks = kvr_index_run_blocks(&s->index, run->run);
    node->below = (uint32_t) kvr_min(run->blocks - node->blocks, UINT32_MAX);

    i = 0;

    while ((view = kvr_index_next_view(&s->index, run->run, &i, &held))
           != UINT32_MAX)
    {
        holder = kvr_tree_holder(s, view);

        if (holder == KVR_HOLDER_NONE || held == 0) {
            continue;
        }

        node->holders++;
        at = node->nholders;

        if (at < KVR_TREE_HOLDERS) {
            node->nholders++;

        } else {
            at = 0;

            for (k = 1; k < KVR_TREE_HOLDERS; k++) {
                if (node->held[k].blocks < node->held[at].blocks) {
                    at = k;
                }
            }

            if (node->held[at].blocks >= held) {
                continue;
            }
        }

        node->held[at].holder = holder * r->nshards + shard;
        node->held[at].blocks = held;
    }
}


/* The holder that a view counts for at present. */

static uint32_t
kvr_tree_holder(const kvr_shard_t *k, uint32_t view)
{
    bool      shadow;
    uint32_t  worker, holder;

    view = kvr_index_view(&k->index, view, &shadow);

    if (shadow) {
        return KVR_HOLDER_NONE;
    }

    holder = k->fleet.view_holder[view];

    if (holder >= k->zone->fleet.max_holders) {
        return kvr_shard_estimates(k, view);
    }

    worker = k->fleet.holders[holder].worker;

    return kvr_fleet_estimated(&k->fleet.workers[worker]) ? KVR_HOLDER_NONE
                                                          : holder;
}
