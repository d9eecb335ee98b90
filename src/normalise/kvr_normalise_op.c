/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_normalise_op.h"


static void kvr_normalise_lost(kvr_normalise_op_t *op,
    kvr_normalise_holder_t *h, uint32_t view);


kvr_rc_t
kvr_normalise_enter(kvr_normalise_op_t *op, kvr_normaliser_t *e,
    const char *worker, size_t len)
{
    kvr_rc_t  rc;

    memset(op, 0, sizeof(kvr_normalise_op_t));

    op->e = e;
    op->k = kvr_shard_of(e->router, worker, len);

    rc = kvr_shard_enter(op->k, worker, len, &op->worker);

    return rc == KVR_OK || rc == KVR_BUSY ? rc : KVR_ERROR;
}


kvr_rc_t
kvr_normalise_op(kvr_normalise_op_t *op, uint32_t rank)
{
    kvr_rc_t                 rc;
    kvr_shard_t             *k;
    kvr_normaliser_t        *e;
    const kvr_holder_t      *holder;
    kvr_normalise_holder_t  *h;

    e = op->e;
    k = op->k;

    rc = kvr_fleet_holder(&k->fleet, op->worker, rank, &op->holder);
    if (rc != KVR_OK) {
        return rc;
    }

    holder = &k->fleet.holders[op->holder];
    h = &e->holders[(size_t) (k - e->router->shards) * e->max_holders
                    + op->holder];

    if (h->owner == 0 || h->token != k->token || h->dropped != holder->dropped
        || h->generation != holder->generation)
    {
        kvr_normalise_lost(op, h, holder->view);

        h->all_known = holder->view == KVR_VIEW_NONE;
        h->token = k->token;
        h->dropped = holder->dropped;
        h->generation = holder->generation;
    }

    op->rank = rank;
    op->h = h;

    return KVR_OK;
}


void
kvr_normalise_reset(kvr_normaliser_t *e, kvr_normalise_holder_t *h)
{
    kvr_known_drop(&e->blocks, &h->live);

    h->owner = ++e->owner;
    h->ngroups = 0;
    h->nclasses = 0;
}


/*
 * Drops the memory of a holder whose view may have classes: which groups of
 * them hold a block is not known any more.
 */

static void
kvr_normalise_lost(kvr_normalise_op_t *op, kvr_normalise_holder_t *h,
    uint32_t view)
{
    kvr_class_t  classes[KVR_CLASSES_MAX];

    if (h->nclasses
        || (view != KVR_VIEW_NONE
            && kvr_index_class_get(&op->k->index, view, classes)))
    {
        kvr_fleet_set_flags(&op->k->fleet, op->worker, KVR_WORKER_HYBRID, 0);
    }

    kvr_normalise_reset(op->e, h);
}


kvr_rc_t
kvr_normalise_write(kvr_normalise_op_t *op, const kvr_change_t *c,
    kvr_why_t *why)
{
    uint32_t  unknown;
    kvr_rc_t  rc;

    rc = kvr_shard_apply(op->k, op->worker, c, &unknown, why);
    kvr_normalise_dropped(op);

    return rc;
}


void
kvr_normalise_dropped(kvr_normalise_op_t *op)
{
    kvr_change_t         clear;
    const kvr_holder_t  *holder;

    holder = &op->k->fleet.holders[op->holder];

    if (op->h->dropped == holder->dropped) {
        return;
    }

    kvr_normalise_lost(op, op->h, holder->view);
    op->h->dropped = holder->dropped;
    op->h->all_known = true;
    op->npins = 0;

    memset(&clear, 0, sizeof(kvr_change_t));
    clear.kind = KVR_CLEAR;
    clear.rank = op->rank;

    kvr_normalise_emit(op, &clear);
}


kvr_rc_t
kvr_normalise_not(kvr_normalise_op_t *op, kvr_rc_t rc, kvr_why_t *why,
    kvr_why_t what)
{
    *why = what;
    kvr_count(op->k, &op->w->counters.why[what], 1);

    return rc;
}


void
kvr_normalise_emit(kvr_normalise_op_t *op, const kvr_change_t *c)
{
    if (op->emit != NULL) {
        op->emit(op->data, c);
    }
}


/*
 * A block loaded without its count is taken to have one copy: removing it
 * early is allowed, keeping it too long is not.
 */

void
kvr_normalise_copy(kvr_normalise_op_t *op, kvr_known_block_t *b,
    kvr_tier_t tier, bool reused)
{
    uint16_t  *copies;

    copies = &b->copies[tier];

    if (op->e->counting && !reused && *copies && *copies < UINT16_MAX) {
        (*copies)++;
    }
}


void
kvr_normalise_hold(kvr_normalise_op_t *op, kvr_known_block_t *b,
    kvr_tier_t tier, bool fresh)
{
    if (fresh) {
        memset(b->copies, 0, sizeof(b->copies));
    }

    b->copies[tier] = 1;

    if (b->state != KVR_KNOWN_LIVE) {
        kvr_known_move(&op->e->blocks, &op->h->live, b,
                       KVR_KNOWN_LIVE);
    }
}


bool
kvr_normalise_last(kvr_normalise_op_t *op, kvr_known_block_t *b,
    const kvr_event_t *ev, uint32_t i)
{
    uint32_t  left;

    if (!op->e->counting) {
        return true;
    }

    if (ev->remaining) {
        left = ev->remaining[i];

    } else {
        left = b && b->copies[ev->tier] ? b->copies[ev->tier] - 1 : 0;
    }

    if (left && b) {
        b->copies[ev->tier] = (uint16_t) kvr_min(left, UINT16_MAX);
    }

    return left == 0;
}
