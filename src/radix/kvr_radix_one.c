/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The commonest events there are: while an engine decodes, each chain grows by
 * one block at a time; and the last one of a chain is the first to go.
 *
 * Both are done here where they are simple, in one go under one version, and
 * left to the general way (kvr_radix.c, kvr_radix_remove.c) where not.
 */


#include "kvr_radix_one.h"
#include "kvr_radix_free.h"
#include "kvr_radix_words.h"


/*
 * Do all pages keep their sizes when the length changes from one to the other?
 */

static inline bool
kvr_one_stay(kvr_run_t *r, uint32_t from, uint32_t to)
{
    return kvr_pages_stay(kvr_run_handles(r), from, to)
           && kvr_pages_stay(kvr_run_pages(r), kvr_run_paged(from),
                             kvr_run_paged(to));
}


/* Makes room for one more block behind n hashes and handles. */

static kvr_rc_t
kvr_one_grow(kvr_radix_t *x, kvr_run_t *r, uint32_t n)
{
    kvr_rc_t  rc;

    rc = kvr_pages_grow(&x->arena, kvr_run_handles(r), n, n + 1);

    if (rc == KVR_OK) {
        kvr_version_lock(x->mem, &r->version);
        rc = kvr_pages_grow(&x->arena, kvr_run_pages(r), kvr_run_paged(n),
                            kvr_run_paged(n + 1));
        kvr_version_unlock(&r->version);
    }

    return rc;
}


/*
 * Gives back memory that n hashes and handles do not need, after one was
 * removed.
 */

static void
kvr_one_trim(kvr_radix_t *x, kvr_run_t *r, uint32_t n)
{
    kvr_pages_trim(&x->arena, kvr_run_handles(r), n + 1, n);

    kvr_version_lock(x->mem, &r->version);
    kvr_pages_trim(&x->arena, kvr_run_pages(r), kvr_run_paged(n + 1),
                   kvr_run_paged(n));
    kvr_version_unlock(&r->version);
}


bool
kvr_radix_store_one(kvr_radix_t *x, uint32_t view,
    const kvr_handle_ref_t *parent, kvr_handle_key_t key, uint64_t handle,
    uint64_t hash, uint64_t seed)
{
    uint16_t    *depth;
    uint32_t     n, *count;
    uint64_t    *to, *shared, *slot;
    kvr_mem_t   *m;
    kvr_run_t   *r;
    kvr_undo_t  *u;

    m = x->mem;
    n = parent->offset + 1;
    r = kvr_radix_run(x, parent->run);

    if (r->len != n || r->nhandles != n || n == KVR_RUN_MAX
        || x->view_owns[view] || (seed && r->seed == 0))
    {
        return false;
    }

    depth = kvr_pairs_word(&x->cover, r, view);

    if (depth == NULL || *depth != n) {
        return false;
    }

    slot = kvr_handle_spot(&x->handles, key);

    if (slot == NULL
        && kvr_handle_put_far(&x->handles, key, parent->run, n, false)
           != KVR_OK)
    {
        return false;
    }

    if (!kvr_one_stay(r, n, n + 1) && kvr_one_grow(x, r, n) != KVR_OK) {
        (void) kvr_txn_rollback(m);
        kvr_radix_begin(x);
        return false;
    }

    to = n < KVR_RUN_INLINE ? &r->hashes[n]
                            : kvr_radix_paged(x, r, n - KVR_RUN_INLINE);
    shared = kvr_handles_at(x, r, n);
    count = &x->view_handles[view];

    u = kvr_txn_note_begin(m, 8);

    if (slot) {
        kvr_txn_note(&u, m, slot, KVR_UNDO_64, 0);
    }

    kvr_txn_note(&u, m, &r->version, KVR_UNDO_VERSION, 0);
    kvr_txn_note(&u, m, &r->len, KVR_UNDO_16, n);
    kvr_txn_note(&u, m, depth, KVR_UNDO_16, n);
    kvr_txn_note(&u, m, &r->nhandles, KVR_UNDO_16, n);
    kvr_txn_note(&u, m, count, KVR_UNDO_32, *count);

    if (x->trimmed) {
        kvr_txn_note(&u, m, to, KVR_UNDO_64, *to);
        kvr_txn_note(&u, m, shared, KVR_UNDO_64, *shared);
    }

    kvr_txn_note_end(m, u);

    kvr_version_lock_noted(&r->version);
    kvr_put64(to, hash);
    kvr_put16(&r->len, n + 1);
    kvr_put16(depth, n + 1);
    kvr_version_unlock(&r->version);

    kvr_put64(shared, handle);
    kvr_put16(&r->nhandles, n + 1);

    if (slot) {
        kvr_put64(slot, kvr_handle_word(key, parent->run, n));
        kvr_put64(&x->handles.zone->used, x->handles.zone->used + 1);
    }

    kvr_put32(&r->stamp, x->now);
    kvr_put32(count, *count + 1);
    kvr_put64(&x->zone->blocks, x->zone->blocks + 1);
    kvr_put64(&x->zone->pairs, x->zone->pairs + 1);

    kvr_handles_hint(x, view, key, handle, parent->run, n);

    return true;
}


bool
kvr_radix_remove_one(kvr_radix_t *x, uint32_t view,
    const kvr_handle_ref_t *ref, kvr_handle_key_t key)
{
    uint16_t    *depth;
    uint32_t     n, *count;
    uint64_t     before;
    kvr_mem_t   *m;
    kvr_run_t   *r;
    kvr_undo_t  *u;

    m = x->mem;
    n = ref->offset;
    r = kvr_radix_run(x, ref->run);

    /* no other view holds a block of the run, and the run has no child */

    if (ref->own || n == 0 || r->len != n + 1 || r->nhandles != n + 1
        || r->npairs != 1 || r->nchildren || r->detail)
    {
        return false;
    }

    depth = kvr_pairs_word(&x->cover, r, view);

    if (depth == NULL || *depth != n + 1) {
        return false;
    }

    /*
     * prefetch the entry of the handle that will most likely be removed next
     */

    before = *kvr_handles_at(x, r, n - 1);
    kvr_handles_hint(x, view,
                     kvr_handle_key(&x->handles, before, KVR_SPACE_SHARED),
                     before, ref->run, n - 1);

    kvr_handle_delete(&x->handles, key, ref->run, n);

    count = &x->view_handles[view];

    u = kvr_txn_note_begin(m, 5);
    kvr_txn_note(&u, m, &r->version, KVR_UNDO_VERSION, 0);
    kvr_txn_note(&u, m, depth, KVR_UNDO_16, n + 1);
    kvr_txn_note(&u, m, &r->len, KVR_UNDO_16, n + 1);
    kvr_txn_note(&u, m, &r->nhandles, KVR_UNDO_16, n + 1);
    kvr_txn_note(&u, m, count, KVR_UNDO_32, *count);
    kvr_txn_note_end(m, u);

    kvr_version_lock_noted(&r->version);
    kvr_put16(depth, n);
    kvr_put16(&r->len, n);
    kvr_version_unlock(&r->version);

    kvr_put16(&r->nhandles, n);
    kvr_put32(count, *count - 1);
    kvr_put64(&x->zone->blocks, x->zone->blocks - 1);
    kvr_put64(&x->zone->pairs, x->zone->pairs - 1);
    x->trimmed = true;

    if (!kvr_one_stay(r, n + 1, n)) {
        kvr_one_trim(x, r, n);
    }

    return true;
}
