/*
 * Copyright (C) the nginx-kv-router authors
 *
 * From an event to the index: kvr_shard_apply(), and kvr_router_write() for
 * those who have no event stream.
 */


#include "kvr_span.h"
#include "kvr_views.h"


static kvr_rc_t kvr_apply_store(kvr_shard_t *k, kvr_worker_t *w,
    uint32_t holder, const kvr_event_t *ev, uint32_t *unknown,
    kvr_why_t *why);
static kvr_rc_t kvr_apply_tier(kvr_shard_t *k, kvr_worker_t *w, uint32_t view,
    const kvr_event_t *ev, uint32_t *unknown);
static kvr_rc_t kvr_apply_hash(kvr_shard_t *k, uint32_t view,
    const kvr_event_t *ev, uint32_t n, uint64_t *seed);
static void kvr_apply_drop(kvr_shard_t *k, kvr_worker_t *w, uint32_t holder);
static kvr_rc_t kvr_apply_remove(kvr_shard_t *k, kvr_worker_t *w,
    uint32_t holder, const kvr_event_t *ev, uint32_t *unknown);
static kvr_rc_t kvr_apply_class(kvr_shard_t *k, uint32_t worker,
    uint32_t holder, const kvr_event_t *ev, kvr_why_t *why);
static kvr_rc_t kvr_apply_bits(kvr_shard_t *k, kvr_worker_t *w,
    uint32_t holder, const kvr_event_t *ev, kvr_why_t *why);


kvr_rc_t
kvr_shard_apply(kvr_shard_t *k, uint32_t worker, const kvr_event_t *ev,
    uint32_t *unknown, kvr_why_t *why)
{
    uint32_t       holder;
    kvr_rc_t       rc;
    kvr_worker_t  *w;

    *unknown = 0;
    *why = KVR_WHY_NONE;

    w = &k->fleet.workers[worker];

    rc = kvr_fleet_holder(&k->fleet, worker, ev->rank, &holder);

    if (rc != KVR_OK) {
        *why = KVR_WHY_RANK;
        rc = KVR_INVALID;

    } else {

        switch (ev->kind) {

        case KVR_STORE:
            rc = kvr_apply_store(k, w, holder, ev, unknown, why);
            break;

        case KVR_REMOVE:
            rc = kvr_apply_remove(k, w, holder, ev, unknown);
            break;

        case KVR_CLASS:
            rc = kvr_apply_class(k, worker, holder, ev, why);
            break;

        case KVR_BITS:
            rc = kvr_apply_bits(k, w, holder, ev, why);
            break;

        default: /* KVR_CLEAR */
            kvr_shard_clear(k, holder);
            kvr_count(k, &w->counters.clears, 1);
            rc = KVR_OK;
            break;
        }
    }

    if (rc == KVR_FULL) {
        *why = KVR_WHY_FULL;
        kvr_count(k, &k->zone->stores_full, 1);
        kvr_fleet_set_flags(&k->fleet, worker, KVR_WORKER_TRUNCATED, 0);
    }

    if (*why != KVR_WHY_NONE) {
        kvr_count(k, &w->counters.why[*why], 1);
    }

    return rc;
}


static kvr_rc_t
kvr_apply_store(kvr_shard_t *k, kvr_worker_t *w, uint32_t holder,
    const kvr_event_t *ev, uint32_t *unknown, kvr_why_t *why)
{
    bool             tier;
    uint32_t         view, done, n, span;
    uint64_t         seed;
    kvr_rc_t         rc;
    const uint64_t  *hashes, *handles;

    tier = ev->ntokens == 0 && ev->nlocals == 0;
    n = 0;
    span = 1;
    seed = 0;

    if (!tier) {
        *why = kvr_span_of(ev, k->params, &span, &n);

        if (*why != KVR_WHY_NONE) {
            return KVR_INVALID;
        }

        if (n < ev->nhandles) {
            *why = KVR_WHY_EXTRA_KEY;
        }

        if (n == 0) {
            return KVR_OK;
        }
    }

    rc = kvr_fleet_view(&k->fleet, holder, &view);
    if (rc != KVR_OK) {
        return rc;
    }

    /* the index begins its transactions with an empty log */

    kvr_txn_commit(&k->mem);
    kvr_index_begin(&k->index);

    if (tier) {
        return kvr_apply_tier(k, w, view, ev, unknown);
    }

    hashes = ev->locals;
    handles = ev->handles;
    seed = ev->seed;

    if (ev->ntokens) {
        rc = kvr_apply_hash(k, view, ev, n, &seed);
        hashes = k->hashes;
    }

    if (rc == KVR_OK && (span > 1 || k->fleet.view_span[view])) {

        if (ev->has_parent
            && !kvr_index_knows(&k->index, view, ev->parent))
        {
            rc = KVR_DECLINED;

        } else {
            rc = kvr_span_store(k, view, ev->handles, n, span, &handles);

            if (rc == KVR_FULL) {
                kvr_apply_drop(k, w, holder);
                return rc;
            }
        }
    }

    done = 0;

    if (rc == KVR_OK) {
        rc = kvr_index_store(&k->index, view, ev->tier, ev->has_parent,
                             ev->parent, handles, hashes, n * span, seed,
                             &done);
    }

    if (rc == KVR_DECLINED) {
        *why = w->flags & KVR_WORKER_TRUNCATED ? KVR_WHY_FORGOTTEN
                                               : KVR_WHY_PARENT;
        return KVR_INVALID;
    }

    kvr_count(k, &w->counters.stores, 1);
    kvr_count(k, &w->counters.blocks_stored, done);

    return rc;
}


/*
 * Applies a store event without tokens: the blocks are known, and are stored
 * in another tier.
 */

static kvr_rc_t
kvr_apply_tier(kvr_shard_t *k, kvr_worker_t *w, uint32_t view,
    const kvr_event_t *ev, uint32_t *unknown)
{
    uint32_t  done;
    kvr_rc_t  rc;

    done = 0;

    if (k->fleet.view_span[view]) {
        rc = kvr_span_add_tier(k, view, ev->tier, ev->handles, ev->nhandles,
                               unknown, &done);

    } else {
        rc = kvr_index_add_tier(&k->index, view, ev->tier, ev->handles,
                                ev->nhandles, unknown);
        done = ev->nhandles - *unknown;
    }

    kvr_count(k, &w->counters.stores, 1);
    kvr_count(k, &w->counters.blocks_stored, done);
    kvr_count(k, &w->counters.blocks_unknown, *unknown);

    return rc;
}


/*
 * Computes the local hashes of the first n handles of an event with tokens,
 * into k->hashes.  KVR_DECLINED: the parent is unknown.
 */

static kvr_rc_t
kvr_apply_hash(kvr_shard_t *k, uint32_t view, const kvr_event_t *ev,
    uint32_t n, uint64_t *seed)
{
    uint32_t        i;
    kvr_contract_t  c;

    /* salt and LoRA come with a chain's first block, and hold for all of it */

    if (ev->has_parent
        && kvr_index_seed(&k->index, view, ev->parent, seed) != KVR_OK)
    {
        return KVR_DECLINED;
    }

    if (*seed == 0) {
        *seed = ev->seed;
    }

    if (*seed == 0) {
        *seed = kvr_hash_seed(ev->lora_name, ev->lora_len, ev->cache_salt,
                              ev->salt_len);
    }

    c = kvr_params_contract(k->params);

    kvr_hasher_init(&k->hasher, *seed);

    if (ev->mm_start == NULL || ev->block_size != c.block_size) {
        (void) kvr_contract_hash(c, &k->hasher, ev->tokens,
                                 (size_t) n * ev->block_size + c.pairs,
                                 k->hashes);
        return KVR_OK;
    }

    for (i = 0; i < n; i++) {
        k->hashes[i] = kvr_hash_block_mm(&k->hasher,
                                         ev->tokens + i * c.block_size,
                                         c.block_size + c.pairs,
                                         ev->mm + ev->mm_start[i],
                                         ev->mm_start[i + 1]
                                         - ev->mm_start[i]);
    }

    return KVR_OK;
}


static kvr_rc_t
kvr_apply_remove(kvr_shard_t *k, kvr_worker_t *w, uint32_t holder,
    const kvr_event_t *ev, uint32_t *unknown)
{
    uint32_t  view, done;
    kvr_rc_t  rc;

    view = *kvr_fleet_written(&k->fleet, holder);
    rc = KVR_OK;
    done = 0;

    if (view == KVR_VIEW_NONE) {
        *unknown = ev->nhandles;

    } else {
        kvr_txn_commit(&k->mem);
        kvr_index_begin(&k->index);

        if (k->fleet.view_span[view]) {
            rc = kvr_span_remove(k, view, ev->tier, ev->handles,
                                 ev->nhandles, unknown, &done);

        } else {
            rc = kvr_index_remove(&k->index, view, ev->tier, ev->handles,
                                  ev->nhandles, unknown);
            done = ev->nhandles - *unknown;
        }

        if (rc == KVR_FULL) {
            kvr_apply_drop(k, w, holder);
        }
    }

    kvr_count(k, &w->counters.removes, 1);
    kvr_count(k, &w->counters.blocks_removed, done);
    kvr_count(k, &w->counters.blocks_unknown, *unknown);

    return rc;
}


/*
 * Describes a class of KV-cache groups.  A class that can't be kept makes the
 * worker's overlaps upper bounds: the index has no classes, no view is left
 * for a shadow, or the engine's blocks are no multiple of the zone's.
 */

static kvr_rc_t
kvr_apply_class(kvr_shard_t *k, uint32_t worker, uint32_t holder,
    const kvr_event_t *ev, kvr_why_t *why)
{
    uint32_t       view;
    kvr_rc_t       rc;
    kvr_class_t    c;
    kvr_worker_t  *w;

    w = &k->fleet.workers[worker];

    rc = kvr_fleet_view(&k->fleet, holder, &view);
    if (rc != KVR_OK) {
        return rc;
    }

    c.kind = ev->group_kind;
    c.window = ev->class_window;
    c.span = ev->block_size / k->params->block_size;

    if (ev->block_size % k->params->block_size || c.span == 0
        || c.span > KVR_SPAN_MAX
        || kvr_index_class_set(&k->index, view, ev->class_at, &c) != KVR_OK)
    {
        *why = KVR_WHY_GROUP;
        kvr_fleet_set_flags(&k->fleet, worker, KVR_WORKER_HYBRID, 0);
        return KVR_OK;
    }

    if (c.kind == KVR_GROUP_CHUNKED) {
        kvr_set32(&k->mem, &w->stream.chunked_block, ev->block_size);
    }

    return KVR_OK;
}


/* Applies what a class holds now, and what it holds no longer. */

static kvr_rc_t
kvr_apply_bits(kvr_shard_t *k, kvr_worker_t *w, uint32_t holder,
    const kvr_event_t *ev, kvr_why_t *why)
{
    uint32_t     view;
    kvr_rc_t     rc;
    kvr_class_t  classes[KVR_CLASSES_MAX];

    view = *kvr_fleet_written(&k->fleet, holder);

    if (view == KVR_VIEW_NONE
        || ev->class_at >= kvr_index_class_get(&k->index, view, classes))
    {
        *why = KVR_WHY_GROUP;
        return KVR_OK;
    }

    kvr_txn_commit(&k->mem);
    kvr_index_begin(&k->index);

    rc = kvr_span_class(k, view, ev->class_at, true, ev->handles, ev->nadded);
    if (rc != KVR_OK) {
        return rc;
    }

    rc = kvr_span_class(k, view, ev->class_at, false,
                        ev->handles + ev->nadded, ev->nhandles - ev->nadded);

    if (rc == KVR_FULL) {
        kvr_apply_drop(k, w, holder);
    }

    return rc;
}


/*
 * Drops all that a holder holds, because a hole can't be recorded: an index
 * with too little is safe, an index with too much is not.
 */

static void
kvr_apply_drop(kvr_shard_t *k, kvr_worker_t *w, uint32_t holder)
{
    kvr_shard_clear(k, holder);
    kvr_set32(&k->mem, &k->fleet.holders[holder].cleared, 0);
    kvr_set32(&k->mem, &w->stream.reason, KVR_DEG_FULL);
}


const char *
kvr_why_detail(kvr_why_t why)
{
    switch (why) {

    case KVR_WHY_PARENT:
        return "the parent is not held by this worker and rank";

    case KVR_WHY_BLOCK_SIZE:
        return "the block size is no multiple of the zone's";

    case KVR_WHY_EXTRA_KEY:
        return "multimodal hashes of a block that spans several of the zone's";

    case KVR_WHY_LENGTH:
        return "hashes, tokens and block size don't fit together";

    case KVR_WHY_LIMIT:
        return "too many blocks in one event";

    case KVR_WHY_RANK:
        return "the rank is out of range, or there is no room for it";

    case KVR_WHY_FULL:
        return "the zone is full";

    case KVR_WHY_FORGOTTEN:
        return "the parent is not held, and blocks of this worker were "
               "forgotten";

    default:
        return "";
    }
}


kvr_rc_t
kvr_router_write(kvr_router_t *r, const char *id, size_t len,
    const kvr_event_t *ev, uint64_t now_ms, uint32_t *unknown, kvr_why_t *why,
    const char **detail)
{
    uint32_t       worker;
    kvr_rc_t       rc;
    kvr_shard_t   *k;
    kvr_worker_t  *w;

    *why = KVR_WHY_NONE;
    *detail = "";
    *unknown = 0;

    k = kvr_shard_of(r, id, len);

    rc = kvr_shard_enter(k, id, len, &worker);
    if (rc != KVR_OK) {
        return rc;
    }

    w = &k->fleet.workers[worker];

    if (w->stream.source != KVR_SOURCE_NONE
        && w->stream.source != KVR_SOURCE_API)
    {
        kvr_shard_unlock(k);
        return KVR_LOST;
    }

    rc = kvr_shard_apply(k, worker, ev, unknown, why);

    kvr_set32(&k->mem, &w->stream.source, KVR_SOURCE_API);
    kvr_set32(&k->mem, &w->stream.confidence, KVR_EXTERNALLY_FED);
    kvr_set64(&k->mem, &w->stream.last_ms, now_ms);

    kvr_shard_unlock(k);

    if (*why != KVR_WHY_NONE) {
        *detail = kvr_why_detail(*why);
    }

    return rc;
}
