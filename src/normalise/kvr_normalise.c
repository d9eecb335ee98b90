/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_normalise_op.h"
#include "../zone/kvr_span.h"

#include <stdlib.h>


static kvr_rc_t kvr_normalise_clear(kvr_normalise_op_t *op,
    const kvr_event_t *ev, kvr_why_t *why);
static kvr_rc_t kvr_normalise_class(kvr_normalise_op_t *op,
    const kvr_event_t *ev, kvr_why_t *why);
static kvr_rc_t kvr_normalise_store(kvr_normalise_op_t *op,
    const kvr_event_t *ev, kvr_why_t *why);
static kvr_rc_t kvr_normalise_parent(kvr_normalise_op_t *op,
    const kvr_event_t *ev, kvr_why_t *why);
static kvr_rc_t kvr_normalise_blocks(kvr_normalise_op_t *op,
    const kvr_event_t *ev, uint32_t n, kvr_why_t *why);
static void kvr_normalise_learn(kvr_normalise_op_t *op,
    const kvr_change_t *c, bool reused);
static void kvr_normalise_learn_one(kvr_normalise_op_t *op,
    kvr_known_block_t *b, const kvr_change_t *one, uint64_t path_hash,
    uint32_t tiers, bool reused);
static kvr_rc_t kvr_normalise_remove(kvr_normalise_op_t *op,
    const kvr_event_t *ev, kvr_why_t *why);


kvr_normaliser_t *
kvr_normalise_create(kvr_router_t *r, const kvr_normalise_conf_t *conf)
{
    size_t             n;
    uint32_t           blocks;
    kvr_normaliser_t  *e;

    e = calloc(1, sizeof(kvr_normaliser_t));
    if (e == NULL) {
        return NULL;
    }

    n = KVR_EVENT_BLOCKS_MAX;
    blocks = conf && conf->blocks ? conf->blocks : KVR_NORMALISE_BLOCKS;

    e->router = r;
    e->counting = conf ? conf->counting : true;
    e->groups = r->shards[0].zone->index.kind == KVR_INDEX_RADIX;
    e->max_holders = r->shards[0].zone->fleet.max_holders;

    /* the system gives pages of the array only as they are used */

    e->holders = calloc((size_t) e->max_holders * r->nshards,
                        sizeof(kvr_normalise_holder_t));
    e->handles = calloc(n, sizeof(uint64_t));
    e->tiers = calloc(n, sizeof(uint8_t));
    e->path = calloc(n, sizeof(uint64_t));
    e->pins = calloc(n, sizeof(uint64_t));
    e->locals = calloc(n, sizeof(uint64_t));

    if (e->holders == NULL || e->handles == NULL || e->tiers == NULL
        || e->path == NULL || e->pins == NULL || e->locals == NULL
        || !kvr_known_init(&e->blocks, blocks))
    {
        kvr_normalise_destroy(e);
        return NULL;
    }

    return e;
}


void
kvr_normalise_destroy(kvr_normaliser_t *e)
{
    if (e == NULL) {
        return;
    }

    kvr_known_done(&e->blocks);

    free(e->holders);
    free(e->handles);
    free(e->tiers);
    free(e->path);
    free(e->pins);
    free(e->locals);
    free(e);
}


void
kvr_normalise_stats(const kvr_normaliser_t *e, kvr_normalise_stats_t *out)
{
    const kvr_known_t  *t;

    t = &e->blocks;

    out->gone = t->gone.n;
    out->filtered = t->filtered.n;
    out->blocks = t->fresh - 1 - t->free.n - t->dead.n - t->gone.n
                  - t->filtered.n;
    out->restored = e->restored;
    out->unremembered = t->unremembered;
}


/* ---- events ------------------------------------------------------------- */

kvr_rc_t
kvr_normalise_event(kvr_normaliser_t *e, const char *worker, size_t len,
    const kvr_event_t *ev, kvr_why_t *why, kvr_normalise_emit_pt emit,
    void *data)
{
    kvr_rc_t            rc;
    kvr_normalise_op_t  op;

    *why = KVR_WHY_NONE;

    rc = kvr_normalise_enter(&op, e, worker, len);
    if (rc != KVR_OK) {
        return rc;
    }

    rc = kvr_normalise_apply(e, op.k, op.worker, ev, why, emit, data);
    kvr_shard_unlock(op.k);

    return rc;
}


kvr_rc_t
kvr_normalise_apply(kvr_normaliser_t *e, kvr_shard_t *k, uint32_t worker,
    const kvr_event_t *ev, kvr_why_t *why, kvr_normalise_emit_pt emit,
    void *data)
{
    kvr_rc_t            rc;
    kvr_event_t         known;
    kvr_normalise_op_t  op;

    memset(&op, 0, sizeof(kvr_normalise_op_t));

    op.e = e;
    op.k = k;
    op.worker = worker;
    op.w = &k->fleet.workers[worker];
    op.steps = KVR_EVENT_BLOCKS_MAX;
    op.emit = emit;
    op.data = data;

    *why = KVR_WHY_NONE;
    e->stamp++;

    if (ev->verdict == KVR_REFUSED) {
        return kvr_normalise_not(&op, KVR_INVALID, why, ev->why);
    }

    if (kvr_normalise_op(&op, ev->rank) != KVR_OK) {
        return kvr_normalise_not(&op, KVR_INVALID, why, KVR_WHY_RANK);
    }

    *why = kvr_groups_filter(&op, ev);

    if (kvr_why_class(*why) == KVR_WHY_IS_REFUSED) {
        return kvr_normalise_not(&op, KVR_INVALID, why, *why);
    }

    if (*why != KVR_WHY_NONE) {

        if (ev->kind == KVR_STORE) {
            kvr_groups_not_indexed(&op, ev->handles,
                                   ev->nhandles + ev->nfiltered, *why);
        }

        return kvr_normalise_not(&op, KVR_DECLINED, why, *why);
    }

    if (op.group) {
        return kvr_class_event(&op, ev, why);
    }

    if (ev->verdict == KVR_FILTERED) {
        /* the group is known from earlier events: the other verdict counts */
        known = *ev;
        known.why = ev->otherwise;
        ev = &known;
    }

    switch (ev->kind) {

    case KVR_STORE:
        rc = kvr_normalise_store(&op, ev, why);
        break;

    case KVR_REMOVE:
        rc = kvr_normalise_remove(&op, ev, why);
        break;

    case KVR_CLASS:
    case KVR_BITS:
        rc = kvr_normalise_class(&op, ev, why);
        break;

    default: /* KVR_CLEAR */
        rc = kvr_normalise_clear(&op, ev, why);
        break;
    }

    return rc;
}


/* A CLEAR is always emitted, even if nothing was held. */

static kvr_rc_t
kvr_normalise_clear(kvr_normalise_op_t *op, const kvr_event_t *ev,
    kvr_why_t *why)
{
    uint32_t  unknown;
    kvr_rc_t  rc;

    rc = kvr_shard_apply(op->k, op->worker, &ev->change, &unknown, why);

    kvr_class_cleared(op);
    op->h->dropped = op->k->fleet.holders[op->holder].dropped;
    op->h->all_known = true;

    kvr_normalise_emit(op, &ev->change);
    kvr_class_describe(op);

    return rc;
}


/* A part of a snapshot: what it says of classes is not remembered here. */

static kvr_rc_t
kvr_normalise_class(kvr_normalise_op_t *op, const kvr_event_t *ev,
    kvr_why_t *why)
{
    if (!op->e->groups) {
        kvr_fleet_set_flags(&op->k->fleet, op->worker, KVR_WORKER_HYBRID, 0);
        return KVR_OK;
    }

    return kvr_normalise_write(op, &ev->change, why);
}


kvr_rc_t
kvr_normalise_forget_groups(kvr_normaliser_t *e, const char *worker,
    size_t len, uint32_t rank)
{
    kvr_rc_t            rc;
    kvr_normalise_op_t  op;

    rc = kvr_normalise_enter(&op, e, worker, len);
    if (rc != KVR_OK) {
        return rc;
    }

    rc = kvr_normalise_op(&op, rank);

    if (rc == KVR_OK) {

        kvr_normalise_reset(e, op.h);

        if (op.k->fleet.holders[op.holder].next == KVR_HOLDER_NONE
            && op.k->fleet.workers[op.worker].first_holder == op.holder)
        {
            kvr_fleet_set_flags(&op.k->fleet, op.worker, 0,
                                KVR_WORKER_HYBRID);
        }
    }

    kvr_shard_unlock(op.k);

    return rc == KVR_OK ? KVR_OK : KVR_ERROR;
}


/* ---- stores ------------------------------------------------------------- */

static kvr_rc_t
kvr_normalise_store(kvr_normalise_op_t *op, const kvr_event_t *ev,
    kvr_why_t *why)
{
    uint32_t  span, n;
    kvr_rc_t  rc;

    if (ev->nhandles > KVR_EVENT_BLOCKS_MAX) {
        return kvr_normalise_not(op, KVR_INVALID, why, KVR_WHY_LIMIT);
    }

    if (ev->ntokens == 0 && ev->nlocals == 0) {
        return kvr_restore_offload(op, ev, why);
    }

    /* check the span first: the parent may be missing for its span */

    *why = kvr_span_of(ev, op->k->params, &span, &n);

    if (*why != KVR_WHY_NONE) {
        return kvr_normalise_not(op, KVR_INVALID, why, *why);
    }

    rc = kvr_normalise_parent(op, ev, why);

    if (rc == KVR_OK) {
        rc = kvr_normalise_blocks(op, ev, n, why);
    }

    kvr_restore_unpin(op);

    return rc;
}


/* Restores the parent if it is gone; *why: the reason if that fails. */

static kvr_rc_t
kvr_normalise_parent(kvr_normalise_op_t *op, const kvr_event_t *ev,
    kvr_why_t *why)
{
    kvr_known_block_t  *b;

    if (!ev->has_parent || kvr_normalise_tiers(op, ev->parent)) {
        return KVR_OK;
    }

    b = kvr_normalise_find(op, ev->parent);

    if (b && b->state == KVR_KNOWN_GONE && kvr_restore_pin(op, ev->parent)) {
        return KVR_OK;
    }

    if (b && b->not_indexed) {
        kvr_groups_not_indexed(op, ev->handles, ev->nhandles + ev->nfiltered,
                               b->why);
        return kvr_normalise_not(op, KVR_DECLINED, why, b->why);
    }

    if ((b && b->state == KVR_KNOWN_LIVE)
        || op->w->flags & KVR_WORKER_TRUNCATED)
    {
        return kvr_normalise_not(op, KVR_DECLINED, why, KVR_WHY_FORGOTTEN);
    }

    if (kvr_groups_partial(op, ev)) {
        kvr_groups_not_indexed(op, ev->handles, ev->nhandles + ev->nfiltered,
                               KVR_WHY_PARTIAL);
        return kvr_normalise_not(op, KVR_DECLINED, why, KVR_WHY_PARTIAL);
    }

    return kvr_normalise_not(op, KVR_INVALID, why, KVR_WHY_PARENT);
}


/* Applies the first n blocks of a store, and records the result. */

static kvr_rc_t
kvr_normalise_blocks(kvr_normalise_op_t *op, const kvr_event_t *ev,
    uint32_t n, kvr_why_t *why)
{
    uint32_t            i, unknown;
    kvr_rc_t            rc;
    kvr_change_t        c;
    kvr_normaliser_t   *e;
    kvr_known_block_t  *b;

    e = op->e;

    kvr_normalise_fetch(op, ev->handles, n);

    for (i = 0; i < n; i++) {
        e->tiers[i] = op->h->all_known
                      && !kvr_normalise_find(op, ev->handles[i])
                      ? 0 : (uint8_t) kvr_normalise_tiers(op, ev->handles[i]);
    }

    b = ev->has_parent ? kvr_normalise_find(op, ev->parent) : NULL;

    rc = kvr_shard_apply_event(op->k, op->worker, ev, b ? b->seed : ev->seed,
                               &c, &unknown, why);
    kvr_normalise_dropped(op);

    if (rc != KVR_OK && rc != KVR_FULL) {
        return kvr_why_class(*why) == KVR_WHY_IS_FORGOTTEN ? KVR_DECLINED : rc;
    }

    if (rc == KVR_FULL) {

        /* the first blocks were stored: find the first block that was not */

        for (i = 0; i < n; i++) {
            if ((kvr_normalise_tiers(op,
                                     ev->handles[i]) >> ev->tier & 1) == 0) {
                break;
            }
        }

        n = i;

    } else if (n < ev->nhandles) {
        kvr_groups_not_indexed(op, &ev->handles[n],
                               ev->nhandles - n + ev->nfiltered, *why);

    } else if (ev->nfiltered) {
        kvr_groups_not_indexed(op, &ev->handles[n], ev->nfiltered, ev->why);
        (void) kvr_normalise_not(op, rc, why, ev->why);
    }

    if (n) {
        c.nlocals = c.nlocals / c.nhandles * n;
        c.nhandles = n;

        kvr_normalise_learn(op, &c, ev->reused);
    }

    if (op->h->nclasses && ev->tier == KVR_DEVICE) {
        kvr_class_stored(op, ev->handles, n);
    }

    return rc;
}


/*
 * Records the blocks of a store.  If a block is held with the same path hash,
 * another copy of the block is not emitted; consecutive other blocks are
 * emitted together.
 */

static void
kvr_normalise_learn(kvr_normalise_op_t *op, const kvr_change_t *c,
    bool reused)
{
    bool                held, same;
    uint32_t            i, k;
    uint64_t            path_hash;
    kvr_change_t        one, row;
    kvr_normaliser_t   *e;
    kvr_known_block_t  *b;

    e = op->e;
    k = c->nlocals / c->nhandles;

    one = *c;
    one.nhandles = 1;
    one.nlocals = k;

    row = *c;
    row.nhandles = 0;

    path_hash = kvr_normalise_parent_path_hash(op, c->has_parent, c->parent);

    for (i = 0; i < c->nhandles; i++) {

        one.handles = &c->handles[i];
        one.locals = &c->locals[(size_t) i * k];

        if (i) {
            one.has_parent = true;
            one.parent = c->handles[i - 1];
        }

        path_hash = kvr_normalise_path_hash(path_hash, one.locals, k);

        b = kvr_normalise_find(op, *one.handles);
        held = e->tiers[i] >> c->tier & 1;
        same = b && b->k == k && b->path_hash == path_hash;

        kvr_normalise_learn_one(op, b, &one, path_hash,
                                same ? e->tiers[i] : 0, reused);

        if (held && same) {

            if (row.nhandles) {
                row.nlocals = row.nhandles * k;
                kvr_normalise_emit(op, &row);
                row.nhandles = 0;
            }

            continue;
        }

        if (row.nhandles++ == 0) {
            row.handles = one.handles;
            row.locals = one.locals;
            row.has_parent = one.has_parent;
            row.parent = one.parent;
        }
    }

    if (row.nhandles) {
        row.nlocals = row.nhandles * k;
        kvr_normalise_emit(op, &row);
    }
}


/* tiers: bits of tiers in which the block was held at this path hash. */

static void
kvr_normalise_learn_one(kvr_normalise_op_t *op, kvr_known_block_t *b,
    const kvr_change_t *one, uint64_t path_hash, uint32_t tiers, bool reused)
{
    if (tiers >> one->tier & 1) {
        kvr_normalise_copy(op, b, one->tier, reused);
        return;
    }

    if (b == NULL) {
        b = kvr_normalise_add(op, *one->handles, KVR_KNOWN_LIVE);

        if (b == NULL) {
            op->h->all_known = false;
            return;
        }
    }

    b->has_parent = one->has_parent;
    b->parent = one->parent;
    b->path_hash = path_hash;
    b->seed = one->seed;

    kvr_known_set_locals(&op->e->blocks, b, one->locals, one->nlocals);
    kvr_normalise_hold(op, b, one->tier, tiers == 0);
}


/* ---- removals ----------------------------------------------------------- */

/* These blocks are out of a tier; one that is in no other is gone. */

static void
kvr_normalise_forget(kvr_normalise_op_t *op, const kvr_change_t *gone)
{
    uint32_t            i;
    kvr_known_block_t  *b;

    for (i = 0; i < gone->nhandles; i++) {
        b = kvr_normalise_find(op, gone->handles[i]);

        if (b == NULL) {
            continue;
        }

        b->copies[gone->tier] = 0;

        if (b->state == KVR_KNOWN_LIVE
            && kvr_normalise_tiers(op, gone->handles[i]) == 0)
        {
            kvr_known_move(&op->e->blocks, &op->h->live, b, KVR_KNOWN_GONE);
        }
    }
}


static kvr_rc_t
kvr_normalise_remove(kvr_normalise_op_t *op, const kvr_event_t *ev,
    kvr_why_t *why)
{
    uint32_t            i, n, missing, tiers, view;
    uint64_t            handle;
    kvr_rc_t            rc;
    kvr_why_t           what;
    kvr_change_t        gone;
    kvr_known_block_t  *b;

    if (ev->nhandles > KVR_EVENT_BLOCKS_MAX) {
        return kvr_normalise_not(op, KVR_INVALID, why, KVR_WHY_LIMIT);
    }

    view = op->k->fleet.holders[op->holder].view;
    n = 0;
    missing = 0;
    what = KVR_WHY_NONE;

    for (i = 0; i < ev->nhandles; i++) {

        handle = ev->handles[i];
        b = kvr_normalise_find(op, handle);
        tiers = kvr_normalise_tiers(op, handle);

        if (tiers >> ev->tier & 1) {

            if (kvr_normalise_last(op, b, ev, i)) {
                op->e->handles[n++] = handle;
            }

        } else if (view != KVR_VIEW_NONE
                   && kvr_span_left(op->k, view, ev->tier, handle))
        {
            /*
             * the end of this span was forgotten, and its copies were counted
             * then
             */
            op->e->handles[n++] = handle;

        } else if (b && b->not_indexed) {

            if (!ev->everywhere || ev->tier == KVR_DEVICE) {
                what = b->why;
            }

        } else if (!ev->everywhere || (ev->tier == KVR_DEVICE && !tiers)) {
            missing++;
        }
    }

    gone = ev->change;
    gone.handles = op->e->handles;
    gone.nhandles = n;

    rc = kvr_normalise_write(op, &gone, why);

    if (missing) {
        kvr_count(op->k, &op->w->counters.blocks_unknown, missing);
    }

    if (rc != KVR_OK) {
        return rc;
    }

    if (n) {
        kvr_normalise_forget(op, &gone);
        kvr_normalise_emit(op, &gone);
    }

    if (what != KVR_WHY_NONE) {
        return kvr_normalise_not(op, n ? KVR_OK : KVR_DECLINED, why, what);
    }

    return KVR_OK;
}
