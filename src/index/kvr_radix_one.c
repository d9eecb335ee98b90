/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The commonest events there are: while an engine decodes, each chain grows by
 * one block at a time; and the last one of a chain is the first to go.
 *
 * Both are done here where they are simple, in one go under one version, and
 * left to the general way (kvr_radix.c, kvr_radix_remove.c) where not.
 */


#include "kvr_names.h"
#include "kvr_radix_run.h"


static bool kvr_one_pages(kvr_run_t *r, uint32_t from, uint32_t to);


/* From one length to the other all pages stay as they are. */

static bool
kvr_one_pages(kvr_run_t *r, uint32_t from, uint32_t to)
{
    return kvr_pages_stay(kvr_run_names(r), from, to)
           && kvr_pages_stay(kvr_run_pages(r), kvr_run_paged(from),
                             kvr_run_paged(to));
}


bool
kvr_radix_store_one(kvr_radix_t *x, uint32_t view, const kvr_name_t *parent,
    uint64_t handle, uint64_t hash, uint64_t seed)
{
    uint16_t          *depth;
    uint32_t           n;
    uint64_t          *to, *name;
    kvr_run_t         *r;
    kvr_handle_key_t   key;

    n = parent->offset + 1;
    r = kvr_radix_run(x, parent->run);

    if (r->len != n || r->nnames != n || n == KVR_RUN_MAX
        || x->view_owns[view] || (seed && r->seed == 0)
        || !kvr_one_pages(r, n, n + 1))
    {
        return false;
    }

    depth = kvr_cover_word(&x->cover, r, view);

    if (depth == NULL || *depth != n) {
        return false;
    }

    key = kvr_handle_key(&x->handles, handle, KVR_SPACE_SHARED);

    if (kvr_handle_put(&x->handles, key, parent->run, n, false) != KVR_OK) {
        return false;
    }

    to = n < KVR_RUN_INLINE ? &r->hashes[n]
                            : kvr_radix_paged(x, r, n - KVR_RUN_INLINE);
    name = kvr_names_at(x, r, n);

    if (x->trimmed) {
        kvr_radix_keep(x, to, 1);
        kvr_radix_keep(x, name, 1);
    }

    kvr_version_lock(x->mem, &r->version);
    kvr_put64(to, hash);
    kvr_set16(x->mem, &r->len, n + 1);
    kvr_set16(x->mem, depth, n + 1);
    kvr_version_unlock(&r->version);

    kvr_put64(name, handle);
    kvr_set16(x->mem, &r->nnames, n + 1);

    kvr_put32(&r->stamp, x->now);
    kvr_put64(&x->zone->blocks, x->zone->blocks + 1);
    kvr_radix_count(x, view, 1);

    kvr_names_hint(x, view, key, handle, parent->run, n);

    return true;
}


bool
kvr_radix_remove_one(kvr_radix_t *x, uint32_t view, const kvr_name_t *name,
    uint64_t handle)
{
    uint16_t   *depth;
    uint32_t    n;
    uint64_t    before;
    kvr_run_t  *r;

    n = name->offset;
    r = kvr_radix_run(x, name->run);

    /* nobody else has anything of the run, and nothing hangs on it */

    if (name->own || n == 0 || r->len != n + 1 || r->nnames != n + 1
        || r->npairs != 1 || r->nchildren || r->detail
        || !kvr_one_pages(r, n + 1, n))
    {
        return false;
    }

    depth = kvr_cover_word(&x->cover, r, view);

    if (depth == NULL || *depth != n + 1) {
        return false;
    }

    kvr_handle_delete(&x->handles,
                      kvr_handle_key(&x->handles, handle, KVR_SPACE_SHARED),
                      name->run, n);

    kvr_version_lock(x->mem, &r->version);
    kvr_set16(x->mem, depth, n);
    kvr_set16(x->mem, &r->len, n);
    kvr_version_unlock(&r->version);

    kvr_set16(x->mem, &r->nnames, n);
    x->trimmed = true;

    kvr_put64(&x->zone->blocks, x->zone->blocks - 1);
    kvr_radix_count(x, view, -1);

    before = *kvr_names_at(x, r, n - 1);
    kvr_names_hint(x, view,
                   kvr_handle_key(&x->handles, before, KVR_SPACE_SHARED),
                   before, name->run, n - 1);

    return true;
}
