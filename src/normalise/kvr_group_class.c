/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The classes of a holder's KV cache groups, and the blocks of their groups.
 *
 * Handles are the same in all groups.  A copy of a block is counted for each
 * group; a class holds a block when all its groups do.  The index is told when
 * a class comes to hold a block, and when it holds it no longer:
 *
 *     store, a class's group      the block is complete, and the naming group
 *                                 holds it: told
 *                                 the naming group does not hold it: the block
 *                                 waits in the table of known blocks, whose
 *                                 size is the bound
 *     store, the naming group     what has waited is told
 *     removal, a class's group    told, if the block was complete
 *
 * When the table is full, a block of a group is not remembered, and the class
 * never gets it: less is told than the engine has, never more.
 */


#include "kvr_normalise_op.h"


static uint32_t kvr_class_find(const kvr_normalise_holder_t *h,
    const kvr_normalise_group_t *g, bool *alone);
static uint32_t kvr_class_window(const kvr_normalise_group_t *g);
static const kvr_normalise_group_t *kvr_class_group(
    const kvr_normalise_holder_t *h, uint32_t at);
static bool kvr_class_complete(const kvr_normalise_op_t *op, uint32_t at,
    uint64_t handle);
static kvr_rc_t kvr_class_store(kvr_normalise_op_t *op, const kvr_event_t *ev,
    kvr_why_t *why);
static kvr_rc_t kvr_class_remove(kvr_normalise_op_t *op,
    const kvr_event_t *ev, kvr_why_t *why);
static kvr_rc_t kvr_class_tell(kvr_normalise_op_t *op, uint32_t at,
    uint32_t n, bool added, kvr_why_t *why);
static kvr_rc_t kvr_class_put(kvr_normalise_op_t *op, uint32_t at,
    const uint64_t *handles, uint32_t n, uint32_t nadded, kvr_why_t *why);
static void kvr_class_empty(kvr_normalise_op_t *op, uint32_t at);


/* ---- classes ------------------------------------------------------------ */

void
kvr_class_join(kvr_normalise_op_t *op)
{
    bool                     alone;
    uint32_t                 i, at;
    kvr_normalise_group_t   *g;
    kvr_normalise_holder_t  *h;

    h = op->h;
    g = &h->groups[h->ngroups - 1];

    for (i = 0; i < h->ngroups; i++) {

        if (h->groups[i].kind == KVR_GROUP_INDEXED
            && h->groups[i].owner == 0)
        {
            break;
        }
    }

    if (g == &h->groups[i]) {

        /* the naming group: the blocks of the others must be as large */

        for (i = 0; i < h->ngroups; i++) {
            if (h->groups[i].owner && h->groups[i].size != g->size) {
                goto hybrid;
            }
        }

        return;
    }

    if (!kvr_group_has_rule(g->kind) || g->size == 0
        || (g->kind == KVR_GROUP_WINDOW && g->window == 0)
        || (i < h->ngroups && h->groups[i].size != g->size))
    {
        goto hybrid;
    }

    at = kvr_class_find(h, g, &alone);

    if (at == KVR_CLASSES_MAX) {
        op->e->blocks.unremembered++;
        goto hybrid;
    }

    if (!alone) {
        kvr_class_empty(op, at);
    }

    g->class_at = (uint8_t) at;
    g->owner = ++op->e->owner;

    if (alone) {
        h->nclasses++;
        kvr_class_describe(op);
    }

    return;

hybrid:

    kvr_fleet_set_flags(&op->k->fleet, op->worker, KVR_WORKER_HYBRID, 0);
}


/*
 * The class of a group; *alone: the group is its first.  KVR_CLASSES_MAX: no
 * class is left.
 */

static uint32_t
kvr_class_find(const kvr_normalise_holder_t *h,
    const kvr_normalise_group_t *g, bool *alone)
{
    uint32_t                      i;
    const kvr_normalise_group_t  *o;

    for (i = 0; i < h->ngroups; i++) {
        o = &h->groups[i];

        if (o->owner && o->kind == g->kind && o->size == g->size
            && kvr_class_window(o) == kvr_class_window(g))
        {
            *alone = false;
            return o->class_at;
        }
    }

    *alone = true;

    return h->nclasses;
}


/* The engine's blocks of a window, see kvr_hit.h; 0: the group has none. */

static uint32_t
kvr_class_window(const kvr_normalise_group_t *g)
{
    if (g->kind != KVR_GROUP_WINDOW || g->window == 0) {
        return 0;
    }

    return (uint32_t) (((uint64_t) g->window - 1 + g->size - 1) / g->size);
}


void
kvr_class_describe(kvr_normalise_op_t *op)
{
    uint32_t                      at;
    kvr_why_t                     why;
    kvr_change_t                  c;
    const kvr_normalise_group_t  *g;

    memset(&c, 0, sizeof(kvr_change_t));
    c.kind = KVR_CLASS;
    c.rank = op->rank;

    for (at = 0; at < op->h->nclasses; at++) {

        g = kvr_class_group(op->h, at);

        c.class_at = at;
        c.group_kind = g->kind;
        c.class_window = kvr_class_window(g);
        c.block_size = g->size;

        if (kvr_normalise_write(op, &c, &why) == KVR_OK) {
            kvr_normalise_emit(op, &c);
        }
    }
}


/* The first group of a class. */

static const kvr_normalise_group_t *
kvr_class_group(const kvr_normalise_holder_t *h, uint32_t at)
{
    const kvr_normalise_group_t  *g;

    for (g = h->groups; g->owner == 0 || g->class_at != at; g++) {
        /* void */
    }

    return g;
}


void
kvr_class_cleared(kvr_normalise_op_t *op)
{
    uint32_t                 i, ngroups, nclasses;
    kvr_normalise_holder_t  *h;

    h = op->h;
    ngroups = h->ngroups;
    nclasses = h->nclasses;

    kvr_normalise_reset(op->e, h);

    h->ngroups = ngroups;
    h->nclasses = nclasses;

    for (i = 0; i < ngroups; i++) {
        if (h->groups[i].owner) {
            h->groups[i].owner = ++op->e->owner;
        }
    }
}


/*
 * Takes all blocks from a class that gets another group: which of them that
 * group holds is not known yet.
 */

static void
kvr_class_empty(kvr_normalise_op_t *op, uint32_t at)
{
    uint32_t                  i, n, owner;
    kvr_why_t                 why;
    const kvr_known_block_t  *b;

    n = 0;
    owner = kvr_class_group(op->h, at)->owner;

    for (i = op->h->live.first; i; i = b->next) {
        b = &op->e->blocks.blocks[i];

        if (b->owner == owner) {
            op->e->handles[n++] = b->handle;
        }

        if (n == KVR_EVENT_BLOCKS_MAX) {
            (void) kvr_class_tell(op, at, n, false, &why);
            n = 0;
        }
    }

    (void) kvr_class_tell(op, at, n, false, &why);
}


/* ---- blocks ------------------------------------------------------------- */

kvr_rc_t
kvr_class_event(kvr_normalise_op_t *op, const kvr_event_t *ev,
    kvr_why_t *why)
{
    if (kvr_why_class(ev->otherwise) == KVR_WHY_IS_REFUSED) {
        return kvr_normalise_not(op, KVR_INVALID, why, ev->otherwise);
    }

    if (ev->nhandles + ev->nfiltered > KVR_EVENT_BLOCKS_MAX) {
        return kvr_normalise_not(op, KVR_INVALID, why, KVR_WHY_LIMIT);
    }

    if (ev->tier != KVR_DEVICE) {
        return kvr_normalise_not(op, KVR_DECLINED, why, KVR_WHY_GROUP);
    }

    return ev->kind == KVR_STORE ? kvr_class_store(op, ev, why)
                                 : kvr_class_remove(op, ev, why);
}


static kvr_rc_t
kvr_class_store(kvr_normalise_op_t *op, const kvr_event_t *ev,
    kvr_why_t *why)
{
    uint32_t            i, n;
    uint64_t            handle;
    kvr_normaliser_t   *e;
    kvr_known_block_t  *b;

    e = op->e;
    n = 0;

    for (i = 0; i < ev->nhandles + ev->nfiltered; i++) {

        handle = ev->handles[i];
        b = kvr_known_find(&e->blocks, op->group->owner, handle);

        if (b) {
            kvr_normalise_copy(op, b, ev->tier, ev->reused);
            continue;
        }

        b = kvr_known_add(&e->blocks, &op->h->live, op->group->owner, handle,
                          KVR_KNOWN_LIVE);

        if (b) {
            b->copies[KVR_DEVICE] = 1;

            if (kvr_class_complete(op, op->group->class_at, handle)
                && kvr_normalise_tiers(op, handle) & 1u << KVR_DEVICE)
            {
                e->handles[n++] = handle;
            }
        }
    }

    return kvr_class_tell(op, op->group->class_at, n, true, why);
}


static kvr_rc_t
kvr_class_remove(kvr_normalise_op_t *op, const kvr_event_t *ev,
    kvr_why_t *why)
{
    uint32_t            i, n;
    uint64_t            handle;
    kvr_normaliser_t   *e;
    kvr_known_block_t  *b;

    e = op->e;
    n = 0;

    for (i = 0; i < ev->nhandles; i++) {

        handle = ev->handles[i];
        b = kvr_known_find(&e->blocks, op->group->owner, handle);

        if (b == NULL || !kvr_normalise_last(op, b, ev, i)) {
            continue;
        }

        if (kvr_class_complete(op, op->group->class_at, handle)) {
            e->handles[n++] = handle;
        }

        kvr_known_delete(&e->blocks, &op->h->live, b);
    }

    return kvr_class_tell(op, op->group->class_at, n, false, why);
}


void
kvr_class_stored(kvr_normalise_op_t *op, const uint64_t *handles, uint32_t n)
{
    uint32_t   i, at, held;
    uint64_t  *out;
    kvr_why_t  why;

    /* the handles may be in e->handles themselves */

    out = op->e->path;

    for (at = 0; at < op->h->nclasses; at++) {

        held = 0;

        for (i = 0; i < n; i++) {
            if (kvr_class_complete(op, at, handles[i])) {
                out[held++] = handles[i];
            }
        }

        (void) kvr_class_put(op, at, out, held, held, &why);
    }
}


/* Do all groups of the class hold the block? */

static bool
kvr_class_complete(const kvr_normalise_op_t *op, uint32_t at, uint64_t handle)
{
    uint32_t                      i;
    const kvr_normalise_group_t  *g;

    for (i = 0; i < op->h->ngroups; i++) {
        g = &op->h->groups[i];

        if (g->owner && g->class_at == at
            && kvr_known_find(&op->e->blocks, g->owner, handle) == NULL)
        {
            return false;
        }
    }

    return true;
}


/* Tells the index of the first n of e->handles. */

static kvr_rc_t
kvr_class_tell(kvr_normalise_op_t *op, uint32_t at, uint32_t n, bool added,
    kvr_why_t *why)
{
    return kvr_class_put(op, at, op->e->handles, n, added ? n : 0, why);
}


static kvr_rc_t
kvr_class_put(kvr_normalise_op_t *op, uint32_t at, const uint64_t *handles,
    uint32_t n, uint32_t nadded, kvr_why_t *why)
{
    kvr_rc_t      rc;
    kvr_change_t  c;

    if (n == 0) {
        return KVR_OK;
    }

    memset(&c, 0, sizeof(kvr_change_t));
    c.kind = KVR_BITS;
    c.rank = op->rank;
    c.class_at = at;
    c.handles = handles;
    c.nhandles = n;
    c.nadded = nadded;

    rc = kvr_normalise_write(op, &c, why);

    if (rc == KVR_OK || rc == KVR_FULL) {
        kvr_normalise_emit(op, &c);
    }

    return rc;
}
