/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_radix_run.h"
#include "kvr_children.h"
#include "kvr_names.h"


#define KVR_RADIX_FEW        16         /* words, compared one by one */


static void kvr_radix_open(kvr_radix_t *x);
static void kvr_radix_pause(kvr_radix_t *x, uint32_t run);
static void kvr_radix_trim(kvr_radix_t *x, kvr_run_t *r, uint32_t len);


/* ---- transactions ------------------------------------------------------- */

void
kvr_radix_begin(kvr_radix_t *x)
{
    kvr_radix_open(x);

    if (x->zone->tidying) {
        kvr_radix_tidy(x, x->zone->tidying, 0);
        kvr_txn_commit(x->mem);
        kvr_radix_open(x);
    }
}


static void
kvr_radix_open(kvr_radix_t *x)
{
    kvr_undo_t        *u;
    kvr_radix_zone_t  *z;

    z = x->zone;

    if (z->arena.nlimbo) {
        kvr_arena_settle(&x->arena);
    }

    /* counters that change with every block are logged once, here */

    u = kvr_txn_note_begin(x->mem, 3);
    kvr_txn_note(&u, x->mem, &z->handles.used, KVR_UNDO_64, z->handles.used);
    kvr_txn_note(&u, x->mem, &z->blocks, KVR_UNDO_64, z->blocks);
    kvr_txn_note(&u, x->mem, &z->pairs, KVR_UNDO_64, z->pairs);
    kvr_txn_note_end(x->mem, u);

    x->trimmed = false;

    if (!kvr_arena_same_epoch(&x->arena, x->epoch)) {
        memset(x->hints, 0, sizeof(x->hints));
        x->epoch = kvr_arena_epoch(&x->arena);
    }
}


/* As kvr_radix_breathe() between two steps of tidying: whoever is next goes on
 * with it. */

static void
kvr_radix_pause(kvr_radix_t *x, uint32_t run)
{
    if (kvr_radix_short(x)) {
        kvr_set32(x->mem, &x->zone->tidying, run);
        kvr_txn_commit(x->mem);
        kvr_radix_open(x);
        x->breaths++;
    }
}


/* ---- hashes ------------------------------------------------------------- */

uint64_t
kvr_radix_hash(const kvr_radix_t *x, const kvr_run_t *run, uint32_t offset)
{
    if (offset < KVR_RUN_INLINE) {
        return run->hashes[offset];
    }

    return *kvr_radix_paged(x, run, offset - KVR_RUN_INLINE);
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
            at %= KVR_RUN_PAGE;
            m = kvr_min(KVR_RUN_PAGE - at, n - i);

            if (!kvr_arena_valid(&x->arena, piece, at + m)) {
                return i;               /* torn: the version will tell */
            }

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
    uint32_t  i, half;

    if (kvr_same_words(a, b, n)) {
        return n;
    }

    /* where it differs: by halves, for it is in the cache now */

    i = 0;

    while (n > KVR_RADIX_FEW) {
        half = n / 2;

        if (kvr_same_words(a + i, b + i, half)) {
            i += half;
            n -= half;

        } else {
            n = half;
        }
    }

    for ( /* void */ ; n && kvr_load64(&a[i]) == b[i]; n--) {
        i++;
    }

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
    kvr_put32(&r->names_tail, 0);
    kvr_put32(&r->owns, 0);
    kvr_put16(&r->nnames, 0);
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


/* Drops the hashes from len on, which nobody has. */

static void
kvr_radix_trim(kvr_radix_t *x, kvr_run_t *r, uint32_t len)
{
    if (len == r->len) {
        return;
    }

    x->trimmed = true;

    kvr_version_lock(x->mem, &r->version);

    kvr_pages_trim(&x->arena, kvr_run_pages(r), kvr_run_paged(r->len),
                   kvr_run_paged(len));

    kvr_put64(&x->zone->blocks, x->zone->blocks - (r->len - len));
    kvr_set16(x->mem, &r->len, len);

    kvr_version_unlock(&r->version);
}


void
kvr_radix_tidy(kvr_radix_t *x, uint32_t run, uint32_t keep)
{
    uint32_t    top, named, parent;
    kvr_run_t  *r, *up;

    for ( /* void */ ; run && run != keep; run = parent) {

        kvr_radix_pause(x, run);

        r = kvr_radix_run(x, run);
        top = kvr_cover_top(&x->cover, r, r->len, &named);

        while (!kvr_names_trim(x, run, named)) {
            kvr_radix_pause(x, run);
        }

        if (r->nchildren) {
            break;
        }

        if (!kvr_cover_empty(r)) {
            kvr_radix_trim(x, r, top);
            break;
        }

        kvr_radix_pause(x, run);

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
        kvr_arena_free(&x->arena, run);
    }

    if (x->zone->tidying) {
        kvr_set32(x->mem, &x->zone->tidying, 0);
    }
}
