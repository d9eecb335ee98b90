/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Locks of a prefix cache: taken, given back, and released for processes that
 * died.
 */


#include "kvr_prefix_state.h"

#include "../core/kvr_clock.h"


#define KVR_PREFIX_REAP_MS     100
#define KVR_PREFIX_REAP_LOOKS  16       /* owners; each look reads a file of
                                           /proc */
#define KVR_PREFIX_PATH        1024     /* nodes in a transaction */


/* The slot of this process among the owners; KVR_PREFIX_OWNERS: there is no
 * room. */

static uint32_t
kvr_prefix_owner(kvr_prefix_t *c)
{
    uint32_t  i, room;

    if (c->owners[c->slot].owner == c->self) {
        return c->slot;
    }

    room = KVR_PREFIX_OWNERS;

    for (i = 0; i < KVR_PREFIX_OWNERS; i++) {

        if (c->owners[i].owner == c->self) {
            c->slot = i;
            return i;
        }

        if (c->owners[i].owner == 0 && room == KVR_PREFIX_OWNERS) {
            room = i;
        }
    }

    if (room < KVR_PREFIX_OWNERS) {
        kvr_set64(&c->mem, &c->owners[room].owner, c->self);
        kvr_set64(&c->mem, &c->zone->stats.owners,
                  c->zone->stats.owners + 1);
        c->slot = room;
    }

    return room;
}


kvr_rc_t
kvr_prefix_take(kvr_prefix_t *c, uint32_t node, kvr_prefix_lock_t *lock)
{
    uint32_t              at, hops, slot, owner;
    uint64_t              units;
    kvr_prefix_item_t    *p;
    kvr_prefix_zone_t    *z;
    kvr_prefix_owner_t   *o;
    kvr_prefix_record_t  *r;

    z = c->zone;
    owner = kvr_prefix_owner(c);

    if (z->free == 0 || owner == KVR_PREFIX_OWNERS) {
        z->stats.locks_full++;
        return KVR_FULL;
    }

    units = 0;
    hops = 0;

    for (at = node; /* void */ ; at = p->parent) {
        p = kvr_prefix_at(c, at);

        if (p->flags & KVR_PREFIX_SPACE) {
            break;
        }

        /* one more than a walk has: the split at its end */

        if (hops++ > KVR_PREFIX_HOPS) {
            z->stats.deep++;
            return KVR_FULL;
        }

        units += p->locks ? 0 : p->len;

        kvr_set32(&c->mem, &p->locks, p->locks + 1);
        kvr_prefix_list(c, at);
    }

    slot = z->free - 1;
    r = &c->records[slot];
    o = &c->owners[owner];

    kvr_set32(&c->mem, &z->free, r->next);
    kvr_set64(&c->mem, &z->ids, z->ids + 1);

    kvr_set64(&c->mem, &r->id, z->ids);
    kvr_set32(&c->mem, &r->node, node);
    kvr_set32(&c->mem, &r->owner, owner);
    kvr_set32(&c->mem, &r->next, o->head);
    kvr_set32(&c->mem, &r->prev, 0);

    if (o->head) {
        kvr_set32(&c->mem, &c->records[o->head - 1].prev, slot + 1);
    }

    kvr_set32(&c->mem, &o->head, slot + 1);
    kvr_set32(&c->mem, &o->n, o->n + 1);

    kvr_set64(&c->mem, &z->stats.evictable, z->stats.evictable - units);
    kvr_set64(&c->mem, &z->stats.protected, z->stats.protected + units);
    kvr_set64(&c->mem, &z->stats.locks, z->stats.locks + 1);

    lock->id = r->id;
    lock->slot = slot;
    lock->pad = 0;

    return KVR_OK;
}


void
kvr_prefix_release(kvr_prefix_t *c, uint32_t slot)
{
    uint32_t              i, node;
    uint64_t              units;
    kvr_prefix_item_t    *p;
    kvr_prefix_zone_t    *z;
    kvr_prefix_owner_t   *o;
    kvr_prefix_record_t  *r;

    z = c->zone;
    r = &c->records[slot];
    o = &c->owners[r->owner];

    for ( ;; ) {

        units = 0;
        node = r->node;
        p = kvr_prefix_at(c, node);

        for (i = 0;
             i < KVR_PREFIX_PATH && (p->flags & KVR_PREFIX_SPACE) == 0;
             i++)
        {
            kvr_set32(&c->mem, &p->locks, p->locks - 1);
            units += p->locks ? 0 : p->len;
            kvr_prefix_list(c, node);

            node = p->parent;
            p = kvr_prefix_at(c, node);
        }

        kvr_set64(&c->mem, &z->stats.evictable, z->stats.evictable + units);
        kvr_set64(&c->mem, &z->stats.protected, z->stats.protected - units);

        if (p->flags & KVR_PREFIX_SPACE) {
            break;
        }

        kvr_set32(&c->mem, &r->node, node);
        kvr_txn_commit(&c->mem);
    }

    kvr_set32(&c->mem, r->prev ? &c->records[r->prev - 1].next : &o->head,
              r->next);

    if (r->next) {
        kvr_set32(&c->mem, &c->records[r->next - 1].prev, r->prev);
    }

    kvr_set64(&c->mem, &r->id, 0);
    kvr_set32(&c->mem, &r->next, z->free);
    kvr_set32(&c->mem, &z->free, slot + 1);
    kvr_set64(&c->mem, &z->stats.locks, z->stats.locks - 1);
    kvr_set32(&c->mem, &o->n, o->n - 1);

    if (o->n == 0) {
        kvr_set64(&c->mem, &o->owner, 0);
        kvr_set64(&c->mem, &z->stats.owners, z->stats.owners - 1);
    }

    kvr_txn_commit(&c->mem);
}


kvr_rc_t
kvr_prefix_lock(kvr_prefix_t *c, const kvr_prefix_node_t *node,
    kvr_prefix_lock_t *lock)
{
    kvr_rc_t  rc;
    uint32_t  at;

    memset(lock, 0, sizeof(kvr_prefix_lock_t));

    if (c->params.disabled || node->id == 0) {
        return KVR_OK;
    }

    rc = kvr_prefix_enter(c);
    if (rc != KVR_OK) {
        return rc;
    }

    at = kvr_prefix_resolve(c, node);

    if (at == 0) {
        c->zone->stats.stale++;
        rc = KVR_DECLINED;

    } else {
        rc = kvr_prefix_take(c, kvr_prefix_end_at(c, at, node->length), lock);

        if (rc != KVR_OK) {
            kvr_txn_rollback(&c->mem);
        }
    }

    kvr_prefix_exit(c);

    return rc;
}


kvr_rc_t
kvr_prefix_unlock(kvr_prefix_t *c, const kvr_prefix_lock_t *lock)
{
    kvr_rc_t              rc;
    kvr_prefix_record_t  *r;

    if (lock->id == 0) {
        return KVR_OK;
    }

    rc = kvr_prefix_enter(c);
    if (rc != KVR_OK) {
        return rc;
    }

    r = &c->records[kvr_min(lock->slot, c->zone->nrecords - 1)];

    if (r->id == lock->id && c->owners[r->owner].owner == c->self) {
        kvr_prefix_release(c, lock->slot);

    } else {
        c->zone->stats.stale++;
        rc = KVR_DECLINED;
    }

    kvr_prefix_exit(c);

    return rc;
}


/* ---- processes that end ------------------------------------------------- */

/* Releases locks of an owner, for one slice; KVR_DONE: it has none left. */

static kvr_rc_t
kvr_prefix_release_all(kvr_prefix_t *c, uint32_t slot, bool dead)
{
    kvr_rc_t             rc;
    kvr_owner_t          owner;
    kvr_prefix_owner_t  *o;

    o = &c->owners[slot];
    owner = kvr_load64(&o->owner);

    if (owner == 0 || (dead && kvr_owner_alive(owner))) {
        return KVR_DONE;
    }

    rc = kvr_prefix_enter(c);
    if (rc != KVR_OK) {
        return rc;
    }

    while (o->owner == owner && o->head) {
        kvr_prefix_release(c, o->head - 1);
        c->zone->stats.reaped += dead;

        if (!kvr_prefix_in_time(c)) {
            break;
        }
    }

    rc = o->owner == owner ? KVR_OK : KVR_DONE;

    kvr_prefix_exit(c);

    return rc;
}


void
kvr_prefix_leave(kvr_prefix_t *c)
{
    uint32_t  i;

    for (i = 0; i < KVR_PREFIX_OWNERS; i++) {
        if (kvr_load64(&c->owners[i].owner) == c->self) {
            while (kvr_prefix_release_all(c, i, false) == KVR_OK) {
                /* void */
            }
        }
    }
}


bool
kvr_prefix_tend(kvr_prefix_t *c)
{
    bool                more;
    uint32_t            i, looks, slot, last;
    uint64_t            now, due;
    kvr_prefix_zone_t  *z;

    z = c->zone;

    /* one process looks for all */

    now = kvr_now_us() / 1000;
    due = kvr_load64(&z->reap);

    if (now < due
        || !__atomic_compare_exchange_n(&z->reap, &due,
                                        now + KVR_PREFIX_REAP_MS, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    {
        return false;
    }

    more = false;

    if ((kvr_lock_orphaned(&z->lock) || kvr_load32(&z->prune))
        && kvr_prefix_enter(c) == KVR_OK)
    {
        more = !kvr_prefix_prune(c);
        kvr_prefix_exit(c);
    }

    last = kvr_load32(&z->reaped);
    looks = 0;

    for (i = 0; i < KVR_PREFIX_OWNERS && looks < KVR_PREFIX_REAP_LOOKS; i++) {

        slot = (last + i) % KVR_PREFIX_OWNERS;

        if (kvr_load64(&c->owners[slot].owner) == 0) {
            continue;
        }

        looks++;

        if (kvr_prefix_release_all(c, slot, true) != KVR_DONE) {
            more = true;
            break;
        }
    }

    kvr_put32(&z->reaped, (last + i) % KVR_PREFIX_OWNERS);

    if (more) {
        kvr_put64(&z->reap, 0);
    }

    return more;
}
