/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Entries of a prefix cache: keys that are stored with a value.
 */


#include "kvr_prefix_state.h"


#define KVR_PREFIX_PRUNE     32         /* nodes in a transaction */


static kvr_rc_t kvr_prefix_find_entry(kvr_prefix_t *c,
    const kvr_prefix_key_t *key, uint32_t n, bool exact, size_t *length,
    void *value, size_t *len);
static kvr_rc_t kvr_prefix_put_now(kvr_prefix_t *c,
    const kvr_prefix_key_t *key, const void *value, size_t len);
static void kvr_prefix_unset(kvr_prefix_t *c, uint32_t node);


static kvr_rc_t
kvr_prefix_check_entry(const kvr_prefix_t *c, const kvr_prefix_key_t *key)
{
    return key->n == 0 ? KVR_INVALID
                       : kvr_prefix_check_key(c, key, KVR_PREFIX_ENTRY_MAX);
}


/* ---- reading ------------------------------------------------------------ */

kvr_rc_t
kvr_prefix_get(kvr_prefix_t *c, const kvr_prefix_key_t *key, void *value,
    size_t *len)
{
    size_t    length;
    kvr_rc_t  rc;

    rc = kvr_prefix_check_entry(c, key);

    return rc != KVR_OK ? rc
                        : kvr_prefix_find_entry(c, key, (uint32_t) key->n,
                                                true, &length, value, len);
}


kvr_rc_t
kvr_prefix_longest(kvr_prefix_t *c, const kvr_prefix_key_t *key, bool strict,
    size_t *length, void *value, size_t *len)
{
    kvr_rc_t  rc;
    uint32_t  n;

    rc = kvr_prefix_check_key(c, key, KVR_PREFIX_KEY_MAX);
    n = (uint32_t) key->n - (strict && key->n);

    return rc != KVR_OK ? rc
                        : kvr_prefix_find_entry(c, key, n, false, length,
                                                value, len);
}


/* The longest entry in the first n units; exact: no shorter one. */

static kvr_rc_t
kvr_prefix_find_entry(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    uint32_t n, bool exact, size_t *length, void *value, size_t *len)
{
    kvr_rc_t                  rc;
    kvr_prefix_walk_t         w;
    const kvr_prefix_item_t  *p;

    *length = 0;
    *len = 0;

    if (c->params.disabled) {
        return KVR_DECLINED;
    }

    rc = kvr_prefix_enter(c);
    if (rc != KVR_OK) {
        return rc;
    }

    kvr_prefix_find(c, key, n, KVR_PREFIX_STORED, &w);

    rc = KVR_DECLINED;

    if (w.entry) {
        p = kvr_prefix_at(c, w.entry);

        if (!exact || p->start + p->len == n) {
            rc = KVR_OK;
            *length = p->start + p->len;
            *len = p->value_len;

            if (p->value_len) {
                memcpy(value, kvr_arena_at(&c->arena, p->value),
                       p->value_len);
            }

            kvr_prefix_use_entry(c, w.entry);
        }
    }

    c->zone->stats.hits += rc == KVR_OK;
    c->zone->stats.misses += rc != KVR_OK;

    kvr_prefix_exit(c);

    return rc;
}


/* ---- writing ------------------------------------------------------------ */

kvr_rc_t
kvr_prefix_put(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    const void *value, size_t len)
{
    bool                 done;
    kvr_rc_t             rc;
    kvr_prefix_stats_t  *s;

    rc = kvr_prefix_check_entry(c, key);

    if (rc == KVR_OK && len > KVR_PREFIX_VALUE_MAX) {
        rc = KVR_INVALID;
    }

    if (rc != KVR_OK || c->params.disabled) {
        return rc;
    }

    s = &c->zone->stats;
    done = false;

    do {
        rc = kvr_prefix_enter(c);
        if (rc != KVR_OK) {
            break;
        }

        if (!kvr_prefix_prune(c)) {
            kvr_prefix_exit(c);
            continue;
        }

        rc = kvr_prefix_put_now(c, key, value, len);
        done = rc == KVR_OK;

        if (rc == KVR_OK) {
            kvr_txn_commit(&c->mem);

            if (c->params.max_entries
                && s->entries > c->params.max_entries)
            {
                kvr_prefix_again(c);
                (void) kvr_prefix_drop_oldest(c);
            }

        } else {
            kvr_txn_rollback(&c->mem);

            if (rc == KVR_FULL && !c->params.refuse
                && kvr_prefix_drop_oldest(c))
            {
                rc = KVR_OK;
            }

            s->full += rc == KVR_FULL;
        }

        kvr_prefix_exit(c);

    } while (rc == KVR_OK && !done);

    return rc;
}


static kvr_rc_t
kvr_prefix_put_now(kvr_prefix_t *c, const kvr_prefix_key_t *key,
    const void *value, size_t len)
{
    uint32_t             n, node, piece;
    const char          *units;
    kvr_prefix_walk_t    w;
    kvr_prefix_item_t   *p;
    kvr_prefix_stats_t  *s;

    s = &c->zone->stats;
    n = (uint32_t) key->n;

    kvr_prefix_find(c, key, n, KVR_PREFIX_STORED, &w);

    (void) kvr_prefix_place(c, key, KVR_PREFIX_STORED, &w);

    while (w.node && w.length < n) {

        if (w.hops++ >= KVR_PREFIX_HOPS) {
            s->deep += !w.deep;
            return KVR_INVALID;
        }

        units = (const char *) key->units + (size_t) w.length * c->unit;
        node = kvr_prefix_make(c, w.node, units, NULL,
                               kvr_min(n - w.length, c->edge));

        w.node = node;
        w.length += kvr_min(n - w.length, c->edge);
    }

    if (w.node == 0) {
        return KVR_FULL;
    }

    p = kvr_prefix_at(c, w.node);
    piece = 0;

    if (len) {
        piece = kvr_arena_alloc(&c->arena, (uint32_t) (len + 7) / 8);
        if (piece == 0) {
            return KVR_FULL;
        }

        memcpy(kvr_arena_at(&c->arena, piece), value, len);
    }

    if (p->value) {
        kvr_arena_free(&c->arena, p->value);
    }

    kvr_set32(&c->mem, &p->value, piece);
    kvr_set32(&c->mem, &p->value_len, (uint32_t) len);

    if ((p->flags & KVR_PREFIX_ENTRY) == 0) {
        kvr_set32(&c->mem, &p->flags, p->flags | KVR_PREFIX_ENTRY);
        kvr_set64(&c->mem, &s->entries, s->entries + 1);
    }

    kvr_prefix_use_entry(c, w.node);

    return KVR_OK;
}


kvr_rc_t
kvr_prefix_delete(kvr_prefix_t *c, const kvr_prefix_key_t *key)
{
    bool               done;
    kvr_rc_t           rc;
    kvr_prefix_walk_t  w;

    rc = kvr_prefix_check_entry(c, key);

    if (rc == KVR_OK && c->params.disabled) {
        rc = KVR_DECLINED;
    }

    for (done = false; rc == KVR_OK && !done; /* void */ ) {

        rc = kvr_prefix_enter(c);
        if (rc != KVR_OK) {
            break;
        }

        if (kvr_prefix_prune(c)) {
            done = true;
            kvr_prefix_find(c, key, (uint32_t) key->n, KVR_PREFIX_STORED, &w);

            if (w.entry && w.entry == w.node && w.length == key->n) {
                kvr_prefix_unset(c, w.entry);
                (void) kvr_prefix_prune(c);

            } else {
                rc = KVR_DECLINED;
            }
        }

        kvr_prefix_exit(c);
    }

    return rc;
}


kvr_rc_t
kvr_prefix_clear(kvr_prefix_t *c)
{
    bool      more;
    kvr_rc_t  rc;
    uint64_t  left;

    left = kvr_load64(&c->zone->stats.entries);

    do {
        rc = kvr_prefix_enter(c);
        if (rc != KVR_OK) {
            break;
        }

        more = kvr_prefix_prune(c);

        while (more && left) {
            kvr_prefix_again(c);
            more = kvr_prefix_drop_oldest(c);
            left -= more;

            if (!kvr_prefix_in_time(c)) {
                break;
            }
        }

        more = c->zone->prune || (left && more);

        kvr_prefix_exit(c);

    } while (more);

    return rc;
}


/* ---- removing ----------------------------------------------------------- */

/* A node ends no entry any more.  Commits. */

static void
kvr_prefix_unset(kvr_prefix_t *c, uint32_t node)
{
    kvr_prefix_item_t   *p;
    kvr_prefix_stats_t  *s;

    s = &c->zone->stats;
    p = kvr_prefix_at(c, node);

    kvr_prefix_unlist(c, node);

    if (p->value) {
        kvr_arena_free(&c->arena, p->value);
        kvr_set32(&c->mem, &p->value, 0);
    }

    kvr_set32(&c->mem, &p->value_len, 0);
    kvr_set32(&c->mem, &p->flags, p->flags & ~KVR_PREFIX_ENTRY);
    kvr_set64(&c->mem, &s->entries, s->entries - 1);
    kvr_set32(&c->mem, &c->zone->prune, node);

    kvr_prefix_again(c);
}


bool
kvr_prefix_drop_oldest(kvr_prefix_t *c)
{
    if (!kvr_prefix_prune(c)) {
        return true;
    }

    if (c->zone->entries.oldest == 0) {
        return false;
    }

    c->zone->stats.entries_evicted++;

    kvr_prefix_unset(c, c->zone->entries.oldest);
    (void) kvr_prefix_prune(c);

    return true;
}


bool
kvr_prefix_prune(kvr_prefix_t *c)
{
    uint32_t                  i, node, parent;
    const kvr_prefix_item_t  *p;

    for (node = c->zone->prune; node; /* void */ ) {

        for (i = 0; i < KVR_PREFIX_PRUNE && node; i++) {
            p = kvr_prefix_at(c, node);

            if (p->child || p->flags & KVR_PREFIX_ENTRY) {
                node = 0;
                break;
            }

            parent = p->parent;

            if (kvr_prefix_at(c, parent)->flags & KVR_PREFIX_SPACE) {
                parent = 0;
            }

            kvr_prefix_remove(c, node);
            node = parent;
        }

        kvr_set32(&c->mem, &c->zone->prune, node);
        kvr_prefix_again(c);

        if (node && !kvr_prefix_in_time(c)) {
            return false;
        }
    }

    return true;
}
