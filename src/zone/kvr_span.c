/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_span.h"


static kvr_rc_t kvr_span_write(kvr_shard_t *k, uint32_t view, kvr_tier_t tier,
    bool add, const uint64_t *handles, uint32_t n, uint32_t *unknown);


uint64_t
kvr_span_handle(uint64_t handle, uint32_t j)
{
    return kvr_hash_bytes(&handle, sizeof(handle), j);
}


kvr_why_t
kvr_span_of(const kvr_event_t *ev, const kvr_params_t *params,
    uint32_t *span, uint32_t *n)
{
    *n = ev->nhandles;

    if (ev->ntokens == 0) {
        return kvr_span_of_locals(&ev->change, span);
    }

    if (ev->pairs != params->eagle) {
        return KVR_WHY_BIGRAM;
    }

    if (ev->block_size == 0 || ev->block_size % params->block_size != 0) {
        return KVR_WHY_BLOCK_SIZE;
    }

    *span = ev->block_size / params->block_size;

    if (ev->ntokens != (uint64_t) ev->nhandles * ev->block_size) {
        return KVR_WHY_LENGTH;
    }

    if (*span > KVR_SPAN_MAX
        || (uint64_t) ev->nhandles * *span > KVR_EVENT_BLOCKS_MAX)
    {
        return KVR_WHY_LIMIT;
    }

    if (*span > 1 && ev->mm_start) {

        for (*n = 0; *n < ev->nhandles; (*n)++) {
            if (ev->mm_start[*n + 1] != ev->mm_start[*n]) {
                break;
            }
        }
    }

    return KVR_WHY_NONE;
}


kvr_why_t
kvr_span_of_locals(const kvr_change_t *c, uint32_t *span)
{
    if (c->nhandles == 0 || c->nlocals % c->nhandles != 0) {
        return KVR_WHY_LENGTH;
    }

    *span = c->nlocals / c->nhandles;

    return (*span > KVR_SPAN_MAX || c->nlocals > KVR_EVENT_BLOCKS_MAX)
           ? KVR_WHY_LIMIT : KVR_WHY_NONE;
}


uint32_t
kvr_span_longest(const kvr_shard_t *k, uint32_t worker, const kvr_change_t *c)
{
    uint32_t             longest, holder;
    const kvr_holder_t  *h;

    if (c->nlocals
        || kvr_fleet_holder_find(&k->fleet, worker, c->rank, &holder)
           != KVR_OK)
    {
        return 1;
    }

    h = &k->fleet.holders[holder];
    longest = 1;

    if (h->view != KVR_VIEW_NONE) {
        longest = kvr_max(longest, k->fleet.view_span[h->view]);
    }

    if (h->aside != KVR_VIEW_NONE) {
        longest = kvr_max(longest, k->fleet.view_span[h->aside]);
    }

    return longest;
}


/*
 * The handles which derive from this one, from number `from` on, and by which
 * the view holds blocks in any of these tiers; the last first.
 */

static uint32_t
kvr_span_derived(kvr_shard_t *k, uint32_t view, uint64_t handle,
    uint32_t from, uint32_t tiers, uint64_t *out)
{
    uint32_t  j, n;

    n = 0;

    for (j = k->fleet.view_span[view] - 1; j > from; j--) {

        out[n] = kvr_span_handle(handle, j - 1);

        if (kvr_index_tiers(&k->index, view, out[n]) & tiers) {
            n++;
        }
    }

    return n;
}


kvr_rc_t
kvr_span_store(kvr_shard_t *k, uint32_t view, const uint64_t *handles,
    uint32_t n, uint32_t span, const uint64_t **out)
{
    uint32_t    i, j, t, gone, unknown;
    kvr_rc_t    rc;
    uint64_t    derived[KVR_SPAN_MAX];
    uint64_t   *to;

    if (k->fleet.view_span[view] < span) {
        /*
         * the span is recorded before its first handle is stored, so that a
         * crash leaves no handle that can't be found
         */
        kvr_set32(&k->mem, &k->fleet.view_span[view], span);
        kvr_txn_commit(&k->mem);
        kvr_index_begin(&k->index);
    }

    unknown = 0;

    for (i = 0; k->fleet.view_span[view] > span && i < n; i++) {

        gone = kvr_span_derived(k, view, handles[i], span - 1, UINT32_MAX,
                                derived);

        for (t = 0; gone && t < KVR_TIERS; t++) {

            rc = kvr_index_remove(&k->index, view, t, derived, gone,
                                  &unknown);
            if (rc != KVR_OK) {
                return rc;
            }

            kvr_txn_commit(&k->mem);
            kvr_index_begin(&k->index);
        }
    }

    *out = handles;

    if (span > 1) {
        to = k->handles;
        *out = to;

        for (i = 0; i < n; i++) {

            for (j = 0; j < span - 1; j++) {
                *to++ = kvr_span_handle(handles[i], j);
            }

            *to++ = handles[i];
        }
    }

    return KVR_OK;
}


kvr_rc_t
kvr_span_hold(kvr_shard_t *k, uint32_t view, kvr_tier_t tier, bool add,
    const uint64_t *handles, uint32_t n, uint32_t *unknown, uint32_t *done)
{
    uint32_t  i, all, missed;
    kvr_rc_t  rc;
    uint64_t  blocks[KVR_SPAN_MAX];

    if (k->fleet.view_span[view] == 0) {
        rc = kvr_span_write(k, view, tier, add, handles, n, unknown);
        *done = n - *unknown;
        return rc;
    }

    for (i = 0; i < n; i++) {

        if (add && !kvr_index_knows(&k->index, view, handles[i])) {
            (*unknown)++;
            continue;
        }

        blocks[0] = handles[i];
        all = 1 + kvr_span_derived(k, view, handles[i], 0,
                                   add ? UINT32_MAX : 1u << tier, blocks + 1);
        missed = 0;

        rc = kvr_span_write(k, view, tier, add, blocks, all, &missed);
        if (rc != KVR_OK) {
            return rc;
        }

        *unknown += missed != 0;
        *done += all - missed;

        kvr_txn_commit(&k->mem);
        kvr_index_begin(&k->index);
    }

    return KVR_OK;
}


static kvr_rc_t
kvr_span_write(kvr_shard_t *k, uint32_t view, kvr_tier_t tier, bool add,
    const uint64_t *handles, uint32_t n, uint32_t *unknown)
{
    return add ? kvr_index_add_tier(&k->index, view, tier, handles, n, unknown)
               : kvr_index_remove(&k->index, view, tier, handles, n, unknown);
}


/*
 * All handles that may derive from one are tried: the view may not hold what
 * its classes still do.
 */

kvr_rc_t
kvr_span_class(kvr_shard_t *k, uint32_t view, uint32_t at, bool add,
    const uint64_t *handles, uint32_t n)
{
    uint32_t  i, j, span, all, unknown;
    kvr_rc_t  rc;
    uint64_t  blocks[KVR_SPAN_MAX];

    span = kvr_max(k->fleet.view_span[view], 1);
    unknown = 0;

    if (span == 1) {
        return kvr_index_class_hold(&k->index, view, at, add, handles, n,
                                    &unknown);
    }

    for (i = 0; i < n; i++) {

        all = 0;

        for (j = 0; j < span - 1; j++) {
            blocks[all++] = kvr_span_handle(handles[i], j);
        }

        blocks[all++] = handles[i];

        rc = kvr_index_class_hold(&k->index, view, at, add, blocks, all,
                                  &unknown);
        if (rc != KVR_OK) {
            return rc;
        }

        kvr_txn_commit(&k->mem);
        kvr_index_begin(&k->index);
    }

    return KVR_OK;
}


bool
kvr_span_left(kvr_shard_t *k, uint32_t view, kvr_tier_t tier, uint64_t handle)
{
    uint64_t  derived[KVR_SPAN_MAX];

    return k->fleet.view_span[view]
           && kvr_span_derived(k, view, handle, 0, 1u << tier, derived);
}
