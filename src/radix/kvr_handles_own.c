/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The handles of a view's own in a run.
 */


#include "kvr_handles.h"
#include "kvr_radix_run.h"


static kvr_rc_t kvr_own_put(kvr_radix_t *x, uint32_t run, kvr_own_t *o,
    uint64_t handle, uint32_t offset, uint32_t tiers);


kvr_own_t *
kvr_own_find(const kvr_radix_t *x, const kvr_run_t *r, uint32_t view)
{
    uint32_t     i;
    kvr_owns_t  *owns;

    if (r->owns == 0) {
        return NULL;
    }

    owns = kvr_arena_at(&x->arena, r->owns);

    for (i = 0; i < owns->n; i++) {
        if (owns->items[i].view == view) {
            return &owns->items[i];
        }
    }

    return NULL;
}


/* Makes an empty list of own handles with room for n records. */

static kvr_rc_t
kvr_own_make(kvr_radix_t *x, kvr_run_t *r, uint32_t view, uint32_t n,
    kvr_own_t **own)
{
    uint32_t     i, cap, piece;
    kvr_own_t   *o;
    kvr_owns_t  *owns, *old;

    old = r->owns ? kvr_arena_at(&x->arena, r->owns) : NULL;

    if (old == NULL || old->n == old->cap) {

        cap = old ? old->cap * 2 : 1;

        piece = kvr_arena_alloc(&x->arena, kvr_owns_words(cap));
        if (piece == 0) {
            return KVR_FULL;
        }

        owns = kvr_arena_at(&x->arena, piece);
        kvr_put32(&owns->n, 0);
        kvr_put32(&owns->cap, cap);

        if (old) {
            kvr_put32(&owns->n, old->n);
            kvr_copy_words(owns->items, old->items, old->n * 2);
            kvr_arena_free(&x->arena, r->owns);
        }

        kvr_set32(x->mem, &r->owns, piece);
        old = owns;
    }

    n = (n + 3) & ~3u;

    piece = kvr_arena_alloc(&x->arena, kvr_own_words(n));
    if (piece == 0) {
        return KVR_FULL;
    }

    o = &old->items[old->n];

    /*
     * these words may have been in use when this transaction began: log them
     */

    for (i = 0; i < 2; i++) {
        kvr_set_word(x->mem, o, i, 0);
    }

    kvr_put16(&o->view, view);
    kvr_put16(&o->n, 0);
    kvr_put16(&o->cap, n);
    kvr_put32(&o->piece, piece);
    kvr_put32(&o->cost, 0);

    kvr_set32(x->mem, &old->n, old->n + 1);

    *own = o;

    return KVR_OK;
}


static kvr_rc_t
kvr_own_widen(kvr_radix_t *x, kvr_own_t *o, uint32_t n)
{
    uint32_t   cap, piece;
    uint64_t  *handles;

    if (n <= o->cap) {
        return KVR_OK;
    }

    if (n > KVR_OWN_MAX) {
        return KVR_INVALID;
    }

    cap = (kvr_max(n, o->cap * 3u / 2) + 3) & ~3u;

    piece = kvr_arena_alloc(&x->arena, kvr_own_words(cap));
    if (piece == 0) {
        return KVR_FULL;
    }

    handles = kvr_arena_at(&x->arena, piece);
    kvr_copy_words(handles, kvr_own_handles(x, o), o->n);
    kvr_copy_words(handles + cap, kvr_own_blocks(x, o), (o->n + 3) / 4);

    kvr_arena_free(&x->arena, o->piece);
    kvr_set32(x->mem, &o->piece, piece);
    kvr_set16(x->mem, &o->cap, cap);

    return KVR_OK;
}


/* Frees the list; the caller has dealt with the entries of its handles. */

static void
kvr_own_free(kvr_radix_t *x, kvr_run_t *r, kvr_own_t *o)
{
    uint32_t     i;
    kvr_own_t   *last;
    kvr_owns_t  *owns;

    owns = kvr_arena_at(&x->arena, r->owns);
    last = &owns->items[owns->n - 1];

    kvr_arena_free(&x->arena, o->piece);

    if (o != last) {
        for (i = 0; i < 2; i++) {
            kvr_set_word(x->mem, o, i, ((kvr_word_t *) last)[i]);
        }
    }

    kvr_set32(x->mem, &owns->n, owns->n - 1);

    if (owns->n == 0) {
        kvr_arena_free(&x->arena, r->owns);
        kvr_set32(x->mem, &r->owns, 0);
    }
}


kvr_rc_t
kvr_own_add(kvr_radix_t *x, uint32_t run, uint32_t view, uint64_t handle,
    uint32_t offset, uint32_t tiers)
{
    kvr_rc_t    rc;
    kvr_run_t  *r;
    kvr_own_t  *o;

    r = kvr_radix_run(x, run);
    o = kvr_own_find(x, r, view);

    rc = o ? kvr_own_widen(x, o, o->n + 1u) : kvr_own_make(x, r, view, 4, &o);
    if (rc != KVR_OK) {
        return rc;
    }

    kvr_set32(x->mem, &o->cost, o->cost);
    kvr_set16(x->mem, &o->n, o->n);

    rc = kvr_own_put(x, run, o, handle, offset, tiers);
    if (rc != KVR_OK) {
        return rc;
    }

    kvr_set32(x->mem, &x->view_owns[view], x->view_owns[view] + 1);

    return KVR_OK;
}


/* Adds a record to a list which has room for it, and whose head is logged. */

static kvr_rc_t
kvr_own_put(kvr_radix_t *x, uint32_t run, kvr_own_t *o, uint64_t handle,
    uint32_t offset, uint32_t tiers)
{
    uint32_t  room, cost;
    kvr_rc_t  rc;

    room = kvr_txn_room(x->mem);

    rc = kvr_handle_put(&x->handles,
                        kvr_handle_key(&x->handles, handle,
                                       KVR_SPACE_OWN(o->view)),
                        run, offset, true);
    if (rc != KVR_OK) {
        return rc;
    }

    cost = o->cost + (room - (uint32_t) kvr_txn_room(x->mem));

    if (cost > KVR_OWN_COST) {
        return KVR_INVALID;
    }

    /*
     * the memory behind the last record is unused, or held a record deleted in
     * this transaction, which kvr_own_set() has logged
     */

    kvr_put64(&kvr_own_handles(x, o)[o->n], handle);
    kvr_put16(&kvr_own_blocks(x, o)[o->n], kvr_own_block(offset, tiers));

    kvr_put16(&o->n, o->n + 1);
    kvr_put32(&o->cost, cost);

    return KVR_OK;
}


/*
 * Deletes a handle's entry from the table; returns the number of log records
 * that this took.
 */

static uint32_t
kvr_own_delete(kvr_radix_t *x, uint32_t run, const kvr_own_t *o, uint32_t i)
{
    uint32_t  room;

    room = kvr_txn_room(x->mem);

    kvr_handle_delete(&x->handles,
                      kvr_handle_key(&x->handles, kvr_own_handles(x, o)[i],
                                     KVR_SPACE_OWN(o->view)),
                      run, kvr_own_offset(kvr_own_blocks(x, o)[i]));

    return room - (uint32_t) kvr_txn_room(x->mem);
}


void
kvr_own_set(kvr_radix_t *x, const kvr_handle_ref_t *ref, uint32_t view,
    uint32_t tiers)
{
    uint32_t    i, last;
    uint64_t   *handles;
    uint16_t   *blocks;
    kvr_run_t  *r;
    kvr_own_t  *o;

    r = kvr_radix_run(x, ref->run);
    o = kvr_own_find(x, r, view);
    i = ref->own - 1;
    handles = kvr_own_handles(x, o);
    blocks = kvr_own_blocks(x, o);

    if (tiers) {
        kvr_set16(x->mem, &blocks[i], kvr_own_block(ref->offset, tiers));
        return;
    }

    kvr_set32(x->mem, &o->cost,
              o->cost - kvr_own_delete(x, ref->run, o, i));

    last = o->n - 1u;

    kvr_set64(x->mem, &handles[i], handles[last]);
    kvr_set16(x->mem, &blocks[i], blocks[last]);

    if (i != last) {
        kvr_txn_log(x->mem, &handles[last], KVR_UNDO_64, handles[last]);
        kvr_txn_log(x->mem, &blocks[last], KVR_UNDO_16, blocks[last]);
    }

    kvr_set16(x->mem, &o->n, last);
    kvr_set32(x->mem, &x->view_owns[view], x->view_owns[view] - 1);

    if (last == 0) {
        kvr_own_free(x, r, o);
    }
}


kvr_rc_t
kvr_own_fork(kvr_radix_t *x, uint32_t run, uint32_t view)
{
    uint32_t    i, tiers;
    kvr_rc_t    rc;
    kvr_run_t  *r;
    kvr_own_t  *o;

    r = kvr_radix_run(x, run);

    rc = kvr_own_make(x, r, view, kvr_cover_held(&x->cover, r, view) + 4, &o);
    if (rc != KVR_OK) {
        return rc;
    }

    for (i = 0; i < r->nhandles; i++) {
        tiers = kvr_cover_tiers(&x->cover, r, view, i);

        if (tiers == 0) {
            continue;
        }

        rc = kvr_own_put(x, run, o, *kvr_handles_at(x, r, i), i, tiers);
        if (rc != KVR_OK) {
            return rc;
        }
    }

    kvr_set32(x->mem, &x->view_owns[view], x->view_owns[view] + o->n);
    kvr_pairs_set_own(&x->cover, r, view);

    return KVR_OK;
}


void
kvr_own_drop(kvr_radix_t *x, uint32_t run, uint32_t view)
{
    uint32_t    i;
    kvr_run_t  *r;
    kvr_own_t  *o;

    r = kvr_radix_run(x, run);
    o = kvr_own_find(x, r, view);

    for (i = 0; i < o->n; i++) {
        (void) kvr_own_delete(x, run, o, i);
    }

    kvr_set32(x->mem, &x->view_owns[view], x->view_owns[view] - o->n);
    kvr_radix_count(x, view, -(int32_t) o->n);
    kvr_own_free(x, r, o);
}
