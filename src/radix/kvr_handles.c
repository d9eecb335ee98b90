/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_handles.h"
#include "kvr_radix_words.h"


#define KVR_HANDLES_AHEAD    32         /* lines fetched ahead */
#define KVR_HANDLES_SAME     32         /* the maximum number of blocks with
                                           one handle: a search may have to
                                           look at all of them */
#define KVR_HANDLES_LOG      512        /* log records kept for what is
                                           freed with handles: pages,
                                           coverage */


static inline bool kvr_handles_is(const kvr_radix_t *x, uint32_t view,
    uint64_t handle, uint32_t run, uint32_t offset, kvr_handle_ref_t *ref);
static bool kvr_handles_find_own(const kvr_radix_t *x, uint32_t view,
    uint64_t handle, kvr_handle_ref_t *ref);
static bool kvr_handles_contest(kvr_radix_t *x, uint32_t run,
    kvr_handle_key_t key);


bool
kvr_handles_find(const kvr_radix_t *x, uint32_t view, uint64_t handle,
    kvr_handle_ref_t *ref)
{
    uint64_t            word;
    kvr_handle_key_t    key;
    kvr_handle_walk_t   w;
    const kvr_hint_t   *hint;

    hint = &x->hints[kvr_handles_hint_at(handle)];

    /*
     * a new epoch may have begun in this transaction: then the run does not
     * exist any more
     */

    if (hint->handle == handle && hint->view == view && hint->run
        && kvr_load32(&x->arena.zone->epoch) == x->epoch
        && kvr_handles_is(x, view, handle, hint->run, hint->offset, ref))
    {
        return true;
    }

    key = kvr_handle_key(&x->handles, handle, KVR_SPACE_SHARED);
    kvr_handle_walk(&x->handles, key, &w);

    while ((word = kvr_handle_next(&x->handles, &w))) {
        if (kvr_handles_is(x, view, handle, kvr_handle_run(word),
                           kvr_handle_offset(word), ref))
        {
            return true;
        }
    }

    return x->view_owns[view] && kvr_handles_find_own(x, view, handle, ref);
}


/*
 * Is the handle the block's shared handle, and does the view hold the block by
 * it?
 */

static inline bool
kvr_handles_is(const kvr_radix_t *x, uint32_t view, uint64_t handle,
    uint32_t run, uint32_t offset, kvr_handle_ref_t *ref)
{
    uint32_t    pair;
    kvr_run_t  *r;

    r = kvr_radix_run(x, run);

    if (offset >= r->nhandles || *kvr_handles_at(x, r, offset) != handle) {
        return false;
    }

    pair = kvr_pairs_get(&x->cover, r, view);

    if (pair & KVR_COVER_OWN) {
        return false;
    }

    ref->run = run;
    ref->offset = offset;
    ref->own = 0;

    if (pair == KVR_COVER_DETAIL) {
        ref->tiers = kvr_cover_tiers(&x->cover, r, view, offset);

    } else {
        ref->tiers = offset < pair ? 1u << KVR_DEVICE : 0;
    }

    return ref->tiers != 0;
}


static bool
kvr_handles_find_own(const kvr_radix_t *x, uint32_t view, uint64_t handle,
    kvr_handle_ref_t *ref)
{
    uint32_t            i, offset;
    uint64_t            word, *handles;
    uint16_t           *blocks;
    kvr_own_t          *o;
    kvr_handle_walk_t   w;

    kvr_handle_walk(&x->handles,
                    kvr_handle_key(&x->handles, handle, KVR_SPACE_OWN(view)),
                    &w);

    while ((word = kvr_handle_next(&x->handles, &w))) {

        ref->run = kvr_handle_run(word);
        offset = kvr_handle_offset(word);
        o = kvr_own_find(x, kvr_radix_run(x, ref->run), view);

        if (o == NULL) {
            continue;
        }

        handles = kvr_own_handles(x, o);
        blocks = kvr_own_blocks(x, o);

        /* in most cases the handles come in the blocks' order */

        i = offset < o->n && handles[offset] == handle ? offset : 0;

        for ( /* void */ ; i < o->n; i++) {
            if (handles[i] == handle && kvr_own_offset(blocks[i]) == offset) {
                ref->offset = offset;
                ref->tiers = kvr_own_tiers(blocks[i]);
                ref->own = i + 1;

                return true;
            }
        }
    }

    return false;
}


kvr_rc_t
kvr_handles_parent(const kvr_radix_t *x, uint32_t view, uint64_t handle,
    bool *has_parent, uint64_t *parent)
{
    uint32_t           i, run, offset;
    kvr_own_t         *o;
    kvr_run_t         *r;
    kvr_handle_ref_t   ref, before;

    *has_parent = false;

    if (!kvr_handles_find(x, view, handle, &ref)) {
        return KVR_DECLINED;
    }

    run = ref.run;
    offset = ref.offset;
    r = kvr_radix_run(x, run);

    if (offset == 0) {
        run = r->parent;
        offset = r->offset;

        if (run == 0) {
            return KVR_OK;
        }

        r = kvr_radix_run(x, run);
    }

    offset--;
    o = kvr_own_find(x, r, view);

    if (o == NULL) {

        if (offset < r->nhandles) {
            *parent = *kvr_handles_at(x, r, offset);
            *has_parent = kvr_handles_is(x, view, *parent, run, offset,
                                         &before);
        }

        return KVR_OK;
    }

    for (i = 0; i < o->n; i++) {
        if (kvr_own_offset(kvr_own_blocks(x, o)[i]) == offset) {
            *parent = kvr_own_handles(x, o)[i];
            *has_parent = true;
            break;
        }
    }

    return KVR_OK;
}


/* ---- shared ------------------------------------------------------------- */

/* Has the log room for adding or deleting one more handle? */

static inline bool
kvr_handles_room(const kvr_radix_t *x)
{
    return kvr_txn_room(x->mem) >= KVR_HANDLE_FAR + KVR_HANDLES_LOG;
}


uint32_t
kvr_handles_same(const kvr_radix_t *x, const kvr_run_t *r, uint32_t offset,
    const uint64_t *handles, uint32_t n)
{
    uint32_t  i, k, m;

    for (i = 0; i < n; i += m) {
        m = kvr_min(KVR_RUN_HANDLES - (offset + i) % KVR_RUN_HANDLES, n - i);
        k = kvr_radix_compare(kvr_handles_at(x, r, offset + i), handles + i,
                              m);

        if (k < m) {
            return i + k;
        }
    }

    return n;
}


kvr_rc_t
kvr_handles_append(kvr_radix_t *x, uint32_t run, const uint64_t *handles,
    uint32_t n, uint32_t *named)
{
    uint32_t           i, k, at;
    uint64_t          *to;
    kvr_rc_t           rc;
    kvr_run_t         *r;
    kvr_handle_key_t   keys[KVR_HANDLES_AHEAD], key;

    r = kvr_radix_run(x, run);
    at = r->nhandles;
    *named = 0;

    rc = kvr_pages_grow(&x->arena, kvr_run_handles(r), at, at + n);
    if (rc != KVR_OK) {
        return rc;
    }

    for (i = 0; i < n && i < KVR_HANDLES_AHEAD; i++) {
        keys[i] = kvr_handle_key(&x->handles, handles[i], KVR_SPACE_SHARED);
        kvr_handle_prefetch(&x->handles, keys[i]);
    }

    for (i = 0; i < n; i += k) {
        k = kvr_min(KVR_RUN_HANDLES - (at + i) % KVR_RUN_HANDLES, n - i);
        to = kvr_handles_at(x, r, at + i);

        kvr_radix_keep(x, to, k);
        kvr_copy_words(to, handles + i, k);
    }

    for (i = 0; i < n; i++) {

        key = keys[i % KVR_HANDLES_AHEAD];

        if (i + KVR_HANDLES_AHEAD < n) {
            keys[i % KVR_HANDLES_AHEAD]
                = kvr_handle_key(&x->handles, handles[i + KVR_HANDLES_AHEAD],
                                 KVR_SPACE_SHARED);
            kvr_handle_prefetch(&x->handles, keys[i % KVR_HANDLES_AHEAD]);
        }

        if (!kvr_handles_room(x)) {
            break;
        }

        rc = kvr_handle_put(&x->handles, key, run, at + i, false);
        if (rc != KVR_OK) {
            break;
        }
    }

    *named = i;

    if (i < n) {
        kvr_pages_trim(&x->arena, kvr_run_handles(r), at + n, at + i);
    }

    if (i) {
        kvr_set16(x->mem, &r->nhandles, at + i);
    }

    return rc == KVR_FULL ? KVR_FULL : KVR_OK;
}


kvr_rc_t
kvr_handles_append_one(kvr_radix_t *x, uint32_t run, uint64_t handle)
{
    kvr_rc_t           rc;
    kvr_run_t         *r;
    kvr_handle_key_t   key;

    r = kvr_radix_run(x, run);
    key = kvr_handle_key(&x->handles, handle, KVR_SPACE_SHARED);

    if (!kvr_handles_contest(x, run, key)) {
        return KVR_DECLINED;
    }

    rc = kvr_pages_grow(&x->arena, kvr_run_handles(r), r->nhandles,
                        r->nhandles + 1u);
    if (rc != KVR_OK) {
        return rc;
    }

    kvr_radix_keep(x, kvr_handles_at(x, r, r->nhandles), 1);
    kvr_put64(kvr_handles_at(x, r, r->nhandles), handle);

    rc = kvr_handle_put(&x->handles, key, run, r->nhandles, true);
    if (rc != KVR_OK) {
        return rc;
    }

    kvr_set16(x->mem, &r->nhandles, r->nhandles + 1);

    return KVR_OK;
}


/*
 * A handle with this key is about to be added to the run. If other blocks have
 * the same key, all their runs are marked as contested.  Only the tag is
 * compared: about one run in millions is marked without need.  False: too many
 * blocks have this key.
 */

static bool
kvr_handles_contest(kvr_radix_t *x, uint32_t run, kvr_handle_key_t key)
{
    uint32_t            n;
    uint64_t            word;
    kvr_run_t          *r, *other;
    kvr_handle_walk_t   w;

    kvr_handle_walk(&x->handles, key, &w);

    for (n = 0; (word = kvr_handle_next(&x->handles, &w)); n++) {

        if (n == KVR_HANDLES_SAME) {
            return false;
        }

        other = kvr_radix_run(x, kvr_handle_run(word));

        if (!other->contested) {
            kvr_set16(x->mem, &other->contested, 1);
        }
    }

    r = kvr_radix_run(x, run);

    if (n && !r->contested) {
        kvr_set16(x->mem, &r->contested, 1);
    }

    return true;
}


bool
kvr_handles_trim(kvr_radix_t *x, uint32_t run, uint32_t n)
{
    uint32_t           i, last;
    kvr_run_t         *r;
    kvr_handle_key_t   keys[KVR_HANDLES_AHEAD], key;

    r = kvr_radix_run(x, run);

    if (n >= r->nhandles) {
        return true;
    }

    last = r->nhandles;
    x->trimmed = true;

    for (i = last; i-- > n && last - i <= KVR_HANDLES_AHEAD; /* void */ ) {
        keys[i % KVR_HANDLES_AHEAD] = kvr_handle_key(&x->handles,
                                                   *kvr_handles_at(x, r, i),
                                                   KVR_SPACE_SHARED);
        kvr_handle_prefetch(&x->handles, keys[i % KVR_HANDLES_AHEAD]);
    }

    for (i = last; i > n; i--) {

        if (!kvr_handles_room(x)) {
            break;
        }

        key = keys[(i - 1) % KVR_HANDLES_AHEAD];

        if (i > n + KVR_HANDLES_AHEAD) {
            keys[(i - 1) % KVR_HANDLES_AHEAD]
                = kvr_handle_key(&x->handles,
                                 *kvr_handles_at(x, r, i - 1
                                                       - KVR_HANDLES_AHEAD),
                                 KVR_SPACE_SHARED);
            kvr_handle_prefetch(&x->handles,
                                keys[(i - 1) % KVR_HANDLES_AHEAD]);
        }

        kvr_handle_delete(&x->handles, key, run, i - 1);
    }

    if (i < last) {
        kvr_set16(x->mem, &r->nhandles, i);
        kvr_pages_trim(&x->arena, kvr_run_handles(r), last, i);
    }

    return i == n;
}
