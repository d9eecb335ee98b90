/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The tree of a prefix cache: matched and inserted into.
 */


#include "kvr_prefix_state.h"


#define KVR_PREFIX_NODES     64         /* new ones in a transaction: each has
                                           up to 40 undo records */
#define KVR_PREFIX_RESTARTS  16         /* of an insertion whose way was
                                           evicted by others */


/* An insertion that takes several slices. */
typedef struct {
    const kvr_prefix_key_t     *key;
    const kvr_prefix_insert_t  *how;
    kvr_prefix_node_t           at;         /* how far it has come */
    uint32_t                    n;          /* units in whole pages */
    uint32_t                    existing;
    uint32_t                    restarts;
    uint32_t                    keep;       /* not to be evicted; 0: none */
    bool                        walked;     /* existing is known */
    bool                        done;
} kvr_prefix_insertion_t;


static kvr_rc_t kvr_prefix_lookup(kvr_prefix_t *c,
    const kvr_prefix_key_t *key, uint32_t n, kvr_prefix_node_t *node,
    kvr_prefix_lock_t *lock, uint32_t *values);
static void kvr_prefix_found(kvr_prefix_t *c, uint32_t node, uint32_t length,
    kvr_prefix_node_t *out, uint32_t *values);
static kvr_rc_t kvr_prefix_step(kvr_prefix_t *c, kvr_prefix_insertion_t *i);
static kvr_rc_t kvr_prefix_grow(kvr_prefix_t *c, kvr_prefix_insertion_t *i,
    kvr_prefix_walk_t *w);


kvr_rc_t
kvr_prefix_match(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    kvr_prefix_node_t *node, uint32_t *values)
{
    return kvr_prefix_lookup(c, key, (uint32_t) key->n, node, NULL, values);
}


kvr_rc_t
kvr_prefix_begin(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    kvr_prefix_node_t *node, kvr_prefix_lock_t *lock, uint32_t *values)
{
    memset(lock, 0, sizeof(kvr_prefix_lock_t));

    return kvr_prefix_lookup(c, key, key->n ? (uint32_t) key->n - 1 : 0, node,
                             lock, values);
}


/* Matches the first n units; lock: NULL, or what was found is locked. */

static kvr_rc_t
kvr_prefix_lookup(kvr_prefix_t *c, const kvr_prefix_key_t *key, uint32_t n,
    kvr_prefix_node_t *node, kvr_prefix_lock_t *lock, uint32_t *values)
{
    kvr_rc_t             rc;
    kvr_prefix_walk_t    w;
    kvr_prefix_stats_t  *s;

    memset(node, 0, sizeof(kvr_prefix_node_t));

    rc = kvr_prefix_check_key(c, key, KVR_PREFIX_KEY_MAX);

    if (rc != KVR_OK || c->params.disabled) {
        return rc;
    }

    rc = kvr_prefix_enter(c);
    if (rc != KVR_OK) {
        return rc;
    }

    kvr_prefix_find(c, key, kvr_prefix_whole(n, c->params.page_size), 0, &w);

    s = &c->zone->stats;
    s->hits += w.length != 0;
    s->misses += w.length == 0;
    s->asked += key->n;
    s->matched += w.length;

    if (w.length && lock) {
        w.node = kvr_prefix_end_at(c, w.node, w.length);
        rc = kvr_prefix_take(c, w.node, lock);

        if (rc == KVR_OK) {
            kvr_txn_commit(&c->mem);

        } else {
            kvr_txn_rollback(&c->mem);
            w.length = 0;
        }
    }

    if (w.length) {
        kvr_prefix_found(c, w.node, w.length, node, values);
        kvr_prefix_use(c, w.node, true, false, 0);
    }

    kvr_prefix_exit(c);

    return rc;
}


static void
kvr_prefix_found(kvr_prefix_t *c, uint32_t node, uint32_t length,
    kvr_prefix_node_t *out, uint32_t *values)
{
    uint32_t                  end;
    const kvr_prefix_item_t  *p;

    p = kvr_prefix_at(c, node);

    out->id = p->id;
    out->node = node;
    out->length = length;

    if (values == NULL) {
        return;
    }

    for (end = length; end; end = p->start, node = p->parent) {
        p = kvr_prefix_at(c, node);
        kvr_prefix_read(c, p, 0, end - p->start, values + p->start);
    }
}


/* ---- insertion ---------------------------------------------------------- */

kvr_rc_t
kvr_prefix_insert(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    const kvr_prefix_insert_t *how, uint32_t *existing,
    kvr_prefix_node_t *node)
{
    kvr_rc_t                rc;
    uint64_t                some;
    kvr_prefix_insertion_t  i;

    *existing = 0;
    memset(node, 0, sizeof(kvr_prefix_node_t));

    rc = kvr_prefix_check_key(c, key, KVR_PREFIX_KEY_MAX);

    if (rc == KVR_OK && how->priority >= KVR_PREFIX_LEVELS) {
        rc = KVR_INVALID;
    }

    if (rc != KVR_OK || c->params.disabled) {
        return rc;
    }

    memset(&i, 0, sizeof(kvr_prefix_insertion_t));

    i.key = key;
    i.how = how;
    i.n = kvr_prefix_whole((uint32_t) key->n, c->params.page_size);

    if (how->from) {
        i.at = *how->from;
    }

    do {
        rc = kvr_prefix_enter(c);
        if (rc != KVR_OK) {
            break;
        }

        rc = kvr_prefix_step(c, &i);

        if (rc == KVR_FULL) {
            kvr_txn_rollback(&c->mem);

            some = 0;

            if (!c->params.refuse) {
                some = kvr_prefix_evict_some(c,
                           kvr_min(i.n - i.at.length, 16 * c->edge), i.keep,
                           how->freed.fn != NULL);

                some = some || kvr_prefix_drop_oldest(c);
            }

            if (some) {
                rc = KVR_OK;

            } else {
                c->zone->stats.full++;
            }
        }

        kvr_prefix_exit(c);
        kvr_prefix_tell(c, &how->freed);

    } while (rc == KVR_OK && !i.done);

    *existing = i.existing;
    *node = i.at;

    return rc;
}


/* Finds the place where an insertion goes on. */

static kvr_rc_t
kvr_prefix_start(kvr_prefix_t *c, kvr_prefix_insertion_t *i,
    kvr_prefix_walk_t *w)
{
    uint32_t                  node;
    const kvr_prefix_item_t  *p;

    memset(w, 0, sizeof(kvr_prefix_walk_t));

    node = kvr_prefix_resolve(c, &i->at);

    if (i->at.id && (node == 0 || i->at.length > i->n)) {

        if (!i->walked) {
            c->zone->stats.stale++;
            return KVR_DECLINED;
        }

        if (++i->restarts > KVR_PREFIX_RESTARTS) {
            c->zone->stats.busy++;
            return KVR_BUSY;
        }

        memset(&i->at, 0, sizeof(kvr_prefix_node_t));
    }

    if (node == 0) {
        w->node = kvr_prefix_space(c, i->key, 0);
        return KVR_OK;
    }

    /* a walk begins behind a node, not inside */

    p = kvr_prefix_at(c, node);

    if (i->at.length < p->start + p->len) {
        node = p->parent;
    }

    w->node = node;
    p = kvr_prefix_at(c, node);

    if (p->flags & KVR_PREFIX_SPACE) {
        return KVR_OK;
    }

    w->length = p->start + p->len;

    while ((p->flags & KVR_PREFIX_SPACE) == 0) {
        p = kvr_prefix_at(c, p->parent);
        w->hops++;
    }

    return KVR_OK;
}


/* One slice of an insertion. */

static kvr_rc_t
kvr_prefix_step(kvr_prefix_t *c, kvr_prefix_insertion_t *i)
{
    kvr_rc_t           rc;
    uint32_t           existing;
    kvr_prefix_walk_t  w;

    rc = kvr_prefix_start(c, i, &w);
    if (rc != KVR_OK) {
        return rc;
    }

    kvr_prefix_walk(c, i->key, i->n, &w);

    if (!i->walked) {
        i->walked = true;
        i->existing = w.length;
    }

    existing = w.length;

    if (existing) {
        i->keep = w.node;
        i->at.id = kvr_prefix_at(c, w.node)->id;
        i->at.node = w.node;
        i->at.length = existing;
    }

    if (existing < i->n && !w.deep) {
        rc = kvr_prefix_grow(c, i, &w);
        if (rc != KVR_OK) {
            return rc;
        }

        c->zone->stats.inserted += w.length - existing;

        i->keep = w.node;
        i->at.id = kvr_prefix_at(c, w.node)->id;
        i->at.node = w.node;
        i->at.length = w.length;
    }

    i->done = w.length == i->n || w.deep;

    kvr_txn_commit(&c->mem);

    if (w.length) {
        kvr_prefix_use(c, w.node, i->done, true, i->how->priority);
    }

    return KVR_OK;
}


/* Adds nodes where a walk ended. */

static kvr_rc_t
kvr_prefix_grow(kvr_prefix_t *c, kvr_prefix_insertion_t *i,
    kvr_prefix_walk_t *w)
{
    uint32_t         k, len, node;
    const char      *units;
    const uint32_t  *values;

    if (kvr_prefix_place(c, i->key, 0, w) == 0) {
        return KVR_FULL;
    }

    for (k = 0; w->length < i->n && k < KVR_PREFIX_NODES; k++) {

        if (w->hops == KVR_PREFIX_HOPS) {
            w->deep = true;
            c->zone->stats.deep++;
            break;
        }

        len = kvr_min(i->n - w->length,
                      kvr_prefix_whole(c->edge, c->params.page_size));
        units = (const char *) i->key->units + (size_t) w->length * c->unit;
        values = i->how->values ? i->how->values + w->length : NULL;

        node = kvr_prefix_make(c, w->node, units, values, len);
        if (node == 0) {
            return KVR_FULL;
        }

        w->node = node;
        w->length += len;
        w->hops++;
    }

    return KVR_OK;
}
