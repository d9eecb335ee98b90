/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_radix_run.h"
#include "kvr_children.h"
#include "kvr_radix_words.h"


/* Appends hashes to a run; the new length is written last, for readers. */

kvr_rc_t
kvr_radix_append(kvr_radix_t *x, uint32_t run, const uint64_t *hashes,
    uint32_t n)
{
    uint32_t    i, k, at, len;
    uint64_t   *to;
    kvr_rc_t    rc;
    kvr_run_t  *r;

    r = kvr_radix_run(x, run);
    len = r->len;

    kvr_version_lock(x->mem, &r->version);

    if (len + n > KVR_RUN_INLINE) {
        rc = kvr_pages_grow(&x->arena, kvr_run_pages(r), kvr_run_paged(len),
                            kvr_run_paged(len + n));
        if (rc != KVR_OK) {
            return rc;              /* the rollback frees the version, too */
        }
    }

    for (i = 0; i < n; i += k) {
        at = len + i;

        if (at < KVR_RUN_INLINE) {
            k = kvr_min(KVR_RUN_INLINE - at, n - i);
            to = &r->hashes[at];

        } else {
            at -= KVR_RUN_INLINE;
            k = kvr_min(KVR_RUN_PAGE - at % KVR_RUN_PAGE, n - i);
            to = kvr_radix_paged(x, r, at);
        }

        kvr_radix_keep(x, to, k);
        kvr_copy_words(to, hashes + i, k);
    }

    kvr_set16(x->mem, &r->len, len + n);
    kvr_version_unlock(&r->version);

    kvr_put64(&x->zone->blocks, x->zone->blocks + n);

    return KVR_OK;
}


kvr_rc_t
kvr_radix_new_run(kvr_radix_t *x, uint32_t parent, uint32_t offset,
    const uint64_t *hashes, uint32_t n, uint64_t seed, uint32_t *run)
{
    kvr_rc_t    rc;
    kvr_run_t  *r, *up;

    *run = kvr_arena_alloc_run(&x->arena);
    if (*run == 0) {
        return KVR_FULL;
    }

    r = kvr_radix_run(x, *run);

    /* a version is even at rest, whatever the memory held at first */

    if (kvr_load32(&r->version) & 1) {
        kvr_version_unlock(&r->version);
    }

    kvr_version_lock(x->mem, &r->version);

    kvr_put32(&r->parent, parent);
    kvr_put16(&r->offset, offset);
    kvr_put16(&r->len, 0);
    kvr_put16(&r->npairs, 0);
    kvr_put16(&r->cap, 0);
    kvr_put32(&r->detail, 0);
    kvr_put32(&r->nchildren, 0);
    kvr_put32(&r->next, 0);
    kvr_put32(&r->stamp, x->now);
    kvr_put64(&r->seed, seed);
    kvr_put32(&r->pages_tail, 0);
    kvr_put32(&r->handles_tail, 0);
    kvr_put32(&r->owns, 0);
    kvr_put16(&r->nhandles, 0);
    kvr_put16(&r->contested, 0);

    kvr_version_unlock(&r->version);

    rc = kvr_radix_append(x, *run, hashes, n);
    if (rc != KVR_OK) {
        return rc;
    }

    rc = kvr_children_add(x, *run);
    if (rc != KVR_OK) {
        return rc;
    }

    if (parent) {
        up = kvr_radix_run(x, parent);
        kvr_set32(x->mem, &up->nchildren, up->nchildren + 1);

        kvr_set32(x->mem, &up->next, *run);
    }

    return KVR_OK;
}
