/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_radix_run.h"
#include "kvr_children.h"
#include "kvr_names.h"


static void kvr_radix_trim(kvr_radix_t *x, kvr_run_t *r, uint32_t len);


/* Between two steps: commits when another would not fit. */

void
kvr_radix_breathe(kvr_radix_t *x)
{
    if (kvr_txn_room(x->mem) < KVR_RADIX_TXN_ROOM
        || kvr_arena_limbo_room(&x->arena) < KVR_RADIX_LIMBO_ROOM)
    {
        kvr_txn_commit(x->mem);
        kvr_radix_begin(x);
    }
}


/* ---- hashes ------------------------------------------------------------- */

uint64_t
kvr_radix_hash(const kvr_radix_t *x, const kvr_run_t *run, uint32_t offset)
{
    const uint64_t  *page;

    if (offset < KVR_RUN_INLINE) {
        return run->hashes[offset];
    }

    offset -= KVR_RUN_INLINE;
    page = kvr_arena_at(&x->arena, run->pages[offset / KVR_RUN_PAGE]);

    return page[offset % KVR_RUN_PAGE];
}


/* How many of n hashes are the run's, from an offset on; n fits. */

uint32_t
kvr_radix_same(const kvr_radix_t *x, const kvr_run_t *r, uint32_t offset,
    const uint64_t *hashes, uint32_t n)
{
    uint32_t         i, k, m, at, piece;
    const uint64_t  *part;

    for (i = 0; i < n; i += m) {

        at = offset + i;

        if (at < KVR_RUN_INLINE) {
            m = KVR_RUN_INLINE - at;
            part = r->hashes + at;

        } else {
            at -= KVR_RUN_INLINE;
            piece = kvr_load32(&r->pages[at / KVR_RUN_PAGE]);

            if (!kvr_arena_valid(&x->arena, piece, KVR_RUN_PAGE)) {
                return i;               /* torn: the version will tell */
            }

            at %= KVR_RUN_PAGE;
            m = KVR_RUN_PAGE - at;
            part = (uint64_t *) kvr_arena_at(&x->arena, piece) + at;
        }

        m = kvr_min(m, n - i);
        k = kvr_radix_compare(part, hashes + i, m);

        if (k < m) {
            return i + k;
        }
    }

    return n;
}


/* The C library compares with the widest instructions that the CPU has. */

uint32_t
kvr_radix_compare(const uint64_t *a, const uint64_t *b, uint32_t n)
{
    uint32_t  i;

    if (memcmp(a, b, n * sizeof(uint64_t)) == 0) {
        return n;
    }

    for (i = 0; i < n && a[i] == b[i]; i++) { /* void */ }

    return i;
}


/*
 * Words behind the end are nobody's, and need no log, unless they were
 * somebody's at the beginning of this transaction.
 */

void
kvr_radix_keep(kvr_radix_t *x, const uint64_t *words, uint32_t n)
{
    uint32_t  i;

    if (x->trimmed) {
        for (i = 0; i < n; i++) {
            kvr_txn_log(x->mem, &words[i], KVR_UNDO_64, words[i]);
        }
    }
}


/* Readers see the new length last. */

kvr_rc_t
kvr_radix_append(kvr_radix_t *x, uint32_t run, const uint64_t *hashes,
    uint32_t n)
{
    uint32_t    i, k, p, len, piece, pages[KVR_RUN_PAGES];
    uint64_t   *page;
    kvr_run_t  *r;

    r = kvr_radix_run(x, run);
    len = r->len;

    for (p = kvr_run_npages(len); p < kvr_run_npages(len + n); p++) {
        pages[p] = kvr_arena_alloc(&x->arena, KVR_RUN_PAGE);

        if (pages[p] == 0) {
            return KVR_FULL;
        }
    }

    kvr_version_lock(x->mem, &r->version);

    for (p = kvr_run_npages(len); p < kvr_run_npages(len + n); p++) {
        kvr_set32(x->mem, &r->pages[p], pages[p]);
    }

    for (i = 0; i < n; /* void */ ) {
        p = len + i;

        if (p < KVR_RUN_INLINE) {
            k = kvr_min(KVR_RUN_INLINE - p, n - i);
            kvr_radix_keep(x, &r->hashes[p], k);
            memcpy(&r->hashes[p], hashes + i, k * sizeof(uint64_t));

        } else {
            p -= KVR_RUN_INLINE;
            piece = r->pages[p / KVR_RUN_PAGE];
            page = kvr_arena_at(&x->arena, piece);
            p %= KVR_RUN_PAGE;
            k = kvr_min(KVR_RUN_PAGE - p, n - i);
            kvr_radix_keep(x, page + p, k);
            memcpy(page + p, hashes + i, k * sizeof(uint64_t));
        }

        i += k;
    }

    kvr_set16(x->mem, &r->len, len + n);
    kvr_version_unlock(&r->version);

    x->zone->blocks += n;

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

    if (r->version & 1) {
        kvr_version_unlock(&r->version);
    }

    kvr_version_lock(x->mem, &r->version);

    r->parent = parent;
    r->offset = offset;
    r->len = 0;
    r->npairs = 0;
    r->cap = 0;
    r->detail = 0;
    r->nchildren = 0;
    r->next = 0;
    r->stamp = 0;
    r->seed = seed;
    r->names = 0;
    r->owns = 0;
    r->nnames = 0;
    r->names_cap = 0;
    r->contested = 0;

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

        if (offset == KVR_RUN_MAX && up->next == 0) {
            kvr_set32(x->mem, &up->next, *run);
        }
    }

    return KVR_OK;
}


/* Drops the hashes from len on, which nobody has. */

static void
kvr_radix_trim(kvr_radix_t *x, kvr_run_t *r, uint32_t len)
{
    uint32_t  p;

    if (len == r->len) {
        return;
    }

    x->trimmed = true;

    kvr_version_lock(x->mem, &r->version);

    for (p = kvr_run_npages(len); p < kvr_run_npages(r->len); p++) {
        kvr_arena_free(&x->arena, r->pages[p], KVR_RUN_PAGE);
    }

    x->zone->blocks -= r->len - len;
    kvr_set16(x->mem, &r->len, len);

    kvr_version_unlock(&r->version);
}


void
kvr_radix_tidy(kvr_radix_t *x, uint32_t run, uint32_t keep)
{
    uint32_t    top, named, parent;
    kvr_run_t  *r, *up;

    while (run && run != keep) {

        r = kvr_radix_run(x, run);
        top = kvr_cover_top(&x->cover, r, r->len, &named);

        if (named < r->nnames) {
            kvr_names_trim(x, run, named);
        }

        if (r->nchildren) {
            return;
        }

        if (!kvr_cover_empty(r)) {
            kvr_radix_trim(x, r, top);
            return;
        }

        parent = r->parent;

        kvr_children_delete(x, run);

        if (parent) {
            up = kvr_radix_run(x, parent);
            kvr_set32(x->mem, &up->nchildren, up->nchildren - 1);

            if (up->next == run) {
                kvr_set32(x->mem, &up->next, 0);
            }
        }

        kvr_radix_trim(x, r, 0);
        kvr_arena_free_run(&x->arena, run);

        kvr_radix_breathe(x);

        run = parent;
    }
}
