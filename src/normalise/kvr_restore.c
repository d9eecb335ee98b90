/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Restores blocks that are gone.  A block's position follows from its parents,
 * most of which are gone, too:
 *
 *     held ─► gone ─► gone ─► this one        as the engine has it
 *     held ─► x    ─► x    ─► x               x: held in EXTERNAL, see
 *                                             kvr_restore_pin()
 *     held ─► x    ─► x    ─► host            it gets its tier
 *     held ─►  .   ─►  .   ─► host            the others are taken out: holes
 *
 * EXTERNAL is stored and never scored, so that at no moment, nor where a
 * process dies in between, a lookup finds more than the engine holds.
 */


#include "kvr_normalise_op.h"


static bool kvr_restore_path(kvr_normalise_op_t *op, uint64_t handle,
    uint32_t *n);
static bool kvr_restore_pin_piece(kvr_normalise_op_t *op,
    const kvr_known_block_t *top, const uint64_t *handles, uint32_t n);


bool
kvr_restore_pin(kvr_normalise_op_t *op, uint64_t handle)
{
    uint32_t            i, n, first, words;
    uint64_t           *path, path_hash;
    kvr_normaliser_t   *e;
    kvr_known_block_t  *b, *top;

    e = op->e;

    if (!kvr_restore_path(op, handle, &n)) {
        return false;
    }

    /* filled from the end of the array: the root comes first */

    path = &e->path[KVR_EVENT_BLOCKS_MAX - n];

    for (first = 0; first < n; first = i) {

        top = kvr_normalise_find(op, path[first]);
        path_hash = kvr_normalise_parent_path_hash(op, top->has_parent,
                                                   top->parent);
        words = 0;

        for (i = first; i < n; i++) {
            b = kvr_normalise_find(op, path[i]);

            if (b->k != top->k || b->seed != top->seed
                || words + b->k > KVR_EVENT_BLOCKS_MAX)
            {
                break;
            }

            memcpy(&e->locals[words], kvr_known_locals(b),
                   b->k * sizeof(uint64_t));
            words += b->k;

            /*
             * blocks before this one may have moved: compute its path hash
             * again
             */

            path_hash = kvr_normalise_path_hash(path_hash,
                                                kvr_known_locals(b), b->k);
            b->path_hash = path_hash;
        }

        if (!kvr_restore_pin_piece(op, top, &path[first], i - first)) {
            return false;
        }
    }

    return true;
}


/* Finds the path from the block up to a held block, or to the root. */

static bool
kvr_restore_path(kvr_normalise_op_t *op, uint64_t handle, uint32_t *n)
{
    uint32_t            i;
    kvr_normaliser_t   *e;
    kvr_known_block_t  *b;

    e = op->e;
    i = 0;

    while (kvr_normalise_tiers(op, handle) == 0) {

        b = kvr_normalise_find(op, handle);

        /*
         * this event has visited the block before, without finding it held:
         * the block can't be held now, or the path is a circle
         */

        if (b == NULL || b->k == 0 || b->stamp == e->stamp || op->steps == 0) {
            return false;
        }

        op->steps--;
        b->stamp = e->stamp;
        e->path[KVR_EVENT_BLOCKS_MAX - ++i] = handle;

        if (!b->has_parent) {
            break;
        }

        handle = b->parent;
    }

    *n = i;

    return true;
}


static bool
kvr_restore_pin_piece(kvr_normalise_op_t *op, const kvr_known_block_t *top,
    const uint64_t *handles, uint32_t n)
{
    uint32_t           i;
    kvr_rc_t           rc;
    kvr_why_t          why;
    kvr_change_t       c;
    kvr_normaliser_t  *e;

    e = op->e;

    memset(&c, 0, sizeof(kvr_change_t));

    c.kind = KVR_STORE;
    c.tier = KVR_EXTERNAL;
    c.rank = op->rank;
    c.has_parent = top->has_parent;
    c.parent = top->parent;
    c.seed = top->seed;
    c.handles = handles;
    c.nhandles = n;
    c.locals = e->locals;
    c.nlocals = n * top->k;

    rc = kvr_normalise_write(op, &c, &why);

    for (i = 0; i < n; i++) {

        if (rc != KVR_OK && kvr_normalise_tiers(op, handles[i]) == 0) {
            break;
        }

        e->pins[op->npins++] = handles[i];
    }

    if (i) {
        c.nhandles = i;
        c.nlocals = i * top->k;
        kvr_normalise_emit(op, &c);
    }

    return i == n;
}


void
kvr_restore_unpin(kvr_normalise_op_t *op)
{
    uint32_t            i, n;
    uint64_t           *pins;
    kvr_why_t           why;
    kvr_change_t        c;
    kvr_known_block_t  *b;

    pins = op->e->pins;
    n = 0;

    for (i = 0; i < op->npins; i++) {
        b = kvr_normalise_find(op, pins[i]);

        /* an event may have stored the block in that tier meanwhile */

        if (b == NULL || b->copies[KVR_EXTERNAL] == 0) {
            pins[n++] = pins[i];
        }
    }

    op->npins = 0;

    if (n == 0) {
        return;
    }

    memset(&c, 0, sizeof(kvr_change_t));

    c.kind = KVR_REMOVE;
    c.tier = KVR_EXTERNAL;
    c.rank = op->rank;
    c.handles = pins;
    c.nhandles = n;

    if (kvr_normalise_write(op, &c, &why) == KVR_OK) {
        kvr_normalise_emit(op, &c);
    }
}


/*
 * The blocks of a store are held: tells of them.  Returns how many there are;
 * if the zone was not full, that is all.
 */

static uint32_t
kvr_restore_held(kvr_normalise_op_t *op, kvr_change_t *add)
{
    uint32_t            i, n;
    uint64_t            handle;
    kvr_known_block_t  *b;

    for (i = 0, n = 0; i < add->nhandles; i++) {
        handle = add->handles[i];

        if ((kvr_normalise_tiers(op, handle) >> add->tier & 1) == 0) {
            continue;
        }

        b = kvr_normalise_find(op, handle);

        if (b) {
            kvr_normalise_hold(op, b, add->tier, op->e->tiers[i] == 0);
        }

        op->e->handles[n++] = handle;
    }

    add->nhandles = n;

    if (n) {
        kvr_normalise_emit(op, add);
    }

    if (op->h->nclasses && add->tier == KVR_DEVICE) {
        kvr_class_stored(op, add->handles, n);
    }

    return n;
}


kvr_rc_t
kvr_restore_offload(kvr_normalise_op_t *op, const kvr_event_t *ev,
    kvr_why_t *why)
{
    uint32_t            i, n, tiers, missing;
    uint64_t            handle;
    kvr_rc_t            rc;
    kvr_why_t           what;
    kvr_change_t        add;
    kvr_normaliser_t   *e;
    kvr_known_block_t  *b;

    e = op->e;
    n = 0;
    missing = 0;
    what = KVR_WHY_NONE;

    for (i = 0; i < ev->nhandles; i++) {

        handle = ev->handles[i];
        tiers = kvr_normalise_tiers(op, handle);
        b = kvr_normalise_find(op, handle);

        if (tiers >> ev->tier & 1) {

            if (b) {
                kvr_normalise_copy(op, b, ev->tier, ev->reused);
            }

        } else if (tiers || (b && b->k && kvr_restore_pin(op, handle))) {
            e->restored += tiers == 0;
            e->tiers[n] = (uint8_t) tiers;
            e->handles[n++] = handle;

        } else if (b && b->not_indexed) {
            what = b->why;

        } else {
            missing++;
        }
    }

    rc = KVR_OK;

    if (n) {
        add = ev->change;
        add.has_parent = false;
        add.handles = e->handles;
        add.nhandles = n;

        rc = kvr_normalise_write(op, &add, why);
        n = kvr_restore_held(op, &add);
    }

    kvr_restore_unpin(op);

    if (missing) {
        kvr_count(op->k, &op->w->counters.blocks_unknown, missing);
        what = KVR_WHY_UNKNOWN;
    }

    if (rc == KVR_OK && what != KVR_WHY_NONE) {
        return kvr_normalise_not(op, n ? KVR_OK : KVR_DECLINED, why, what);
    }

    return rc;
}
