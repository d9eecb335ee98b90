/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The invariants of the prefix cache.
 */


#include "kvr_check.h"
#include "kvr_prefix_check.h"


/* What was counted on the way. */
typedef struct {
    const kvr_prefix_t  *c;
    uint64_t             all;           /* nodes, namespaces too */
    uint64_t             listed;
    uint64_t             own;           /* locks that end at a node */
    uint64_t             words;         /* of pieces */
    kvr_prefix_stats_t   is;
} kvr_prefix_check_t;


static const char *kvr_prefix_check_tree(kvr_prefix_check_t *k);
static const char *kvr_prefix_check_node(kvr_prefix_check_t *k,
    uint32_t node);
static const char *kvr_prefix_check_place(kvr_prefix_check_t *k,
    const kvr_prefix_item_t *p);
static const char *kvr_prefix_check_children(kvr_prefix_check_t *k,
    uint32_t node);
static void kvr_prefix_check_piece(kvr_prefix_check_t *k, uint32_t piece);
static const char *kvr_prefix_check_lists(kvr_prefix_check_t *k);
static const char *kvr_prefix_check_list(kvr_prefix_check_t *k,
    const kvr_prefix_list_t *list, uint64_t *n);
static const char *kvr_prefix_check_locks(kvr_prefix_check_t *k);
static const char *kvr_prefix_check_counts(const kvr_prefix_check_t *k);
static void kvr_prefix_check_free(void *data, uint32_t piece, uint32_t words);


const char *
kvr_prefix_check(const kvr_prefix_t *c)
{
    uint32_t             i, node;
    uint64_t             n;
    const char          *why;
    kvr_prefix_check_t   k;

    if (c->mem.journal->n) {
        return "a transaction is open";
    }

    memset(&k, 0, sizeof(kvr_prefix_check_t));
    k.c = c;

    why = kvr_prefix_check_tree(&k);

    why = why ? why : kvr_prefix_check_lists(&k);
    why = why ? why : kvr_prefix_check_locks(&k);
    why = why ? why : kvr_prefix_check_counts(&k);

    if (why) {
        return why;
    }

    for (n = 0, i = 0; i < c->zone->nbuckets; i++) {
        for (node = c->buckets[i];
             node && n <= k.all;
             node = kvr_prefix_at(c, node)->chain)
        {
            if ((uint64_t) kvr_prefix_at(c, node)->hash * c->zone->nbuckets
                >> 32 != i)
            {
                return "a node is in a bucket of another hash";
            }

            n++;
        }
    }

    if (n != k.all) {
        return "the buckets have more or fewer nodes than the tree";
    }

    if (k.words != c->zone->arena.used) {
        return "memory is lost, or used twice";
    }

    return kvr_arena_check(&c->arena, kvr_prefix_check_free, NULL);
}


/* A free piece: its contents don't matter. */

static void
kvr_prefix_check_free(void *data, uint32_t piece, uint32_t words)
{
    (void) data;
    (void) piece;
    (void) words;
}


static const char *
kvr_prefix_check_tree(kvr_prefix_check_t *k)
{
    uint32_t                  node;
    const char               *why;
    const kvr_prefix_item_t  *p;

    node = k->c->zone->spaces;

    while (node) {
        why = kvr_prefix_check_node(k, node);
        if (why) {
            return why;
        }

        p = kvr_prefix_at(k->c, node);

        if (p->child) {
            node = p->child;
            continue;
        }

        while (p->next == 0 && p->parent) {
            p = kvr_prefix_at(k->c, p->parent);
        }

        node = p->next;
    }

    return NULL;
}


static void
kvr_prefix_check_piece(kvr_prefix_check_t *k, uint32_t piece)
{
    if (piece) {
        k->words += kvr_arena_size(&k->c->arena, piece);
    }
}


static const char *
kvr_prefix_check_node(kvr_prefix_check_t *k, uint32_t node)
{
    const char               *why;
    kvr_prefix_stats_t       *is;
    const kvr_prefix_item_t  *p;

    is = &k->is;
    p = kvr_prefix_at(k->c, node);
    k->all++;

    if (p->id == 0 || p->id > k->c->zone->ids) {
        return "a node has no id, or one that was not given yet";
    }

    if (p->prev ? kvr_prefix_at(k->c, p->prev)->next != node
                : p->parent ? kvr_prefix_at(k->c, p->parent)->child != node
                            : k->c->zone->spaces != node)
    {
        return "a node is not where its sibling or parent says";
    }

    kvr_prefix_check_piece(k, node);
    kvr_prefix_check_piece(k, p->units);
    kvr_prefix_check_piece(k, p->values);
    kvr_prefix_check_piece(k, p->value);

    why = kvr_prefix_check_children(k, node);

    if (why || p->flags & KVR_PREFIX_SPACE) {
        is->namespaces += why == NULL;
        return why;
    }

    if (p->flags & KVR_PREFIX_STORED) {
        is->entry_tokens += p->len;
        is->entries += (p->flags & KVR_PREFIX_ENTRY) != 0;

    } else {
        is->nodes++;
        is->tokens += p->len;
        is->protected += p->locks ? p->len : 0;
        is->evictable += p->locks ? 0 : p->len;
    }

    k->listed += (p->flags & KVR_PREFIX_LISTED) != 0;

    return kvr_prefix_check_place(k, p);
}


static const char *
kvr_prefix_check_place(kvr_prefix_check_t *k, const kvr_prefix_item_t *p)
{
    bool                      listed;
    uint32_t                  page;
    const kvr_prefix_item_t  *up;

    page = kvr_prefix_page(k->c, p->flags);
    up = kvr_prefix_at(k->c, p->parent);

    if (p->len == 0 || p->len > k->c->edge || p->len % page
        || (p->units == 0 && p->len * k->c->unit > KVR_PREFIX_INLINE))
    {
        return "a node has a length that none may have";
    }

    if (p->start != (up->flags & KVR_PREFIX_SPACE ? 0 : up->start + up->len)
        || (p->flags & KVR_PREFIX_STORED) != (up->flags & KVR_PREFIX_STORED))
    {
        return "a node does not begin where its parent ends";
    }

    listed = p->flags & KVR_PREFIX_STORED
             ? (p->flags & KVR_PREFIX_ENTRY) != 0
             : p->locks == 0 && (k->c->zone->evict != KVR_PREFIX_MRU
                                 || p->child == 0);

    if (listed != ((p->flags & KVR_PREFIX_LISTED) != 0)) {
        return "a node is listed, and must not be, or the other way round";
    }

    return NULL;
}


/* Locks of a node are those of its children, and its own. */

static const char *
kvr_prefix_check_children(kvr_prefix_check_t *k, uint32_t node)
{
    uint32_t                  child, locks;
    const kvr_prefix_item_t  *p, *q;

    p = kvr_prefix_at(k->c, node);
    locks = 0;

    for (child = p->child; child; child = q->next) {
        q = kvr_prefix_at(k->c, child);

        if (q->parent != node) {
            return "a child has another parent";
        }

        locks += q->locks;
    }

    if (p->flags & KVR_PREFIX_SPACE) {
        return p->child ? NULL : "a namespace has no node";
    }

    if (p->child == 0 && p->flags & KVR_PREFIX_STORED
        && (p->flags & KVR_PREFIX_ENTRY) == 0 && k->c->zone->prune != node)
    {
        return "a leaf of the store has no entry";
    }

    if (p->locks < locks) {
        return "a node has fewer locks than its children";
    }

    k->own += p->locks - locks;

    return NULL;
}


/* ---- lists -------------------------------------------------------------- */

static const char *
kvr_prefix_check_lists(kvr_prefix_check_t *k)
{
    bool         filled;
    uint32_t     i;
    uint64_t     n;
    const char  *why;

    n = 0;
    why = kvr_prefix_check_list(k, &k->c->zone->entries, &n);

    if (why == NULL && n != k->is.entries) {
        return "the list of entries is not complete";
    }

    for (i = 0; why == NULL && i < KVR_PREFIX_LEVELS; i++) {
        filled = k->c->zone->filled[i / 64] >> i % 64 & 1;

        if (filled != (k->c->zone->levels[i].newest != 0)) {
            return "a level is empty and marked, or not empty and not marked";
        }

        why = kvr_prefix_check_list(k, &k->c->zone->levels[i], &n);
    }

    if (why == NULL && n != k->listed) {
        return "the lists have more or fewer nodes than say so";
    }

    return why;
}


static const char *
kvr_prefix_check_list(kvr_prefix_check_t *k, const kvr_prefix_list_t *list,
    uint64_t *n)
{
    uint32_t                  node, newer;
    const kvr_prefix_item_t  *p;

    newer = 0;

    for (node = list->newest; node && *n <= k->listed; node = p->older) {
        p = kvr_prefix_at(k->c, node);

        if (p->newer != newer || (p->flags & KVR_PREFIX_LISTED) == 0) {
            return "a list is broken";
        }

        newer = node;
        (*n)++;
    }

    return list->oldest == newer ? NULL : "a list ends elsewhere";
}


/* ---- locks -------------------------------------------------------------- */

static const char *
kvr_prefix_check_locks(kvr_prefix_check_t *k)
{
    uint32_t                    i, slot, n;
    uint64_t                    free;
    const kvr_prefix_t         *c;
    const kvr_prefix_owner_t   *o;
    const kvr_prefix_record_t  *r;

    c = k->c;

    for (i = 0; i < KVR_PREFIX_OWNERS; i++) {
        o = &c->owners[i];
        n = 0;

        for (slot = o->head; slot; slot = r->next) {
            r = &c->records[slot - 1];

            if (r->id == 0 || r->owner != i || ++n > o->n
                || kvr_prefix_at(c, r->node)->id == 0
                || kvr_prefix_at(c, r->node)->locks == 0)
            {
                return "a lock is not its owner's, or locks nothing";
            }
        }

        if (n != o->n || (n == 0) != (o->owner == 0)) {
            return "an owner has more or fewer locks than say so";
        }

        k->is.owners += n != 0;
        k->is.locks += n;
    }

    free = 0;

    for (slot = c->zone->free; slot; slot = c->records[slot - 1].next) {
        if (c->records[slot - 1].id || ++free > c->zone->nrecords) {
            return "a free lock is in use";
        }
    }

    if (free + k->is.locks != c->zone->nrecords) {
        return "locks are lost";
    }

    return k->own == k->is.locks ? NULL
                                 : "nodes have more or fewer locks than are "
                                   "taken";
}


static const char *
kvr_prefix_check_counts(const kvr_prefix_check_t *k)
{
    const kvr_prefix_stats_t  *is, *said;

    is = &k->is;
    said = &k->c->zone->stats;

    return is->nodes == said->nodes
           && is->tokens == said->tokens
           && is->evictable == said->evictable
           && is->protected == said->protected
           && is->evictable + is->protected == is->tokens
           && is->namespaces == said->namespaces
           && is->entries == said->entries
           && is->entry_tokens == said->entry_tokens
           && is->locks == said->locks
           && is->owners == said->owners ? NULL : "a count is wrong";
}
