/*
 * Copyright (C) the nginx-kv-router authors
 *
 * From a change to the index: kvr_shard_apply(); from an event with tokens to
 * a change: kvr_shard_apply_event(); and kvr_router_write() for those who have
 * no event stream.
 */


#include "kvr_span.h"
#include "kvr_views.h"
#include "../core/kvr_clock.h"
#include "../traffic/kvr_churn.h"


static kvr_rc_t kvr_apply_count(kvr_shard_t *k, uint32_t worker, kvr_rc_t rc,
    kvr_why_t *why);
static kvr_rc_t kvr_apply_hash(kvr_shard_t *k, uint32_t worker,
    const kvr_event_t *ev, kvr_change_t *c, kvr_why_t *why);
static kvr_why_t kvr_apply_no_parent(const kvr_shard_t *k, uint32_t worker);
static kvr_rc_t kvr_apply_store(kvr_shard_t *k, uint32_t worker,
    uint32_t holder, const kvr_change_t *c, uint32_t *unknown,
    kvr_why_t *why);
static kvr_rc_t kvr_apply_tier(kvr_shard_t *k, kvr_worker_t *w, uint32_t view,
    const kvr_change_t *c, uint32_t *unknown);
static void kvr_apply_drop(kvr_shard_t *k, kvr_worker_t *w, uint32_t holder);
static kvr_rc_t kvr_apply_remove(kvr_shard_t *k, kvr_worker_t *w,
    uint32_t holder, const kvr_change_t *c, uint32_t *unknown);
static kvr_rc_t kvr_apply_class(kvr_shard_t *k, uint32_t worker,
    uint32_t holder, const kvr_change_t *c, kvr_why_t *why);
static kvr_rc_t kvr_apply_bits(kvr_shard_t *k, kvr_worker_t *w,
    uint32_t holder, const kvr_change_t *c, kvr_why_t *why);


kvr_rc_t
kvr_shard_apply(kvr_shard_t *k, uint32_t worker, const kvr_change_t *c,
    uint32_t *unknown, kvr_why_t *why)
{
    uint32_t       holder;
    kvr_rc_t       rc;
    kvr_worker_t  *w;

    *unknown = 0;
    *why = KVR_WHY_NONE;

    w = &k->fleet.workers[worker];

    rc = kvr_fleet_holder(&k->fleet, worker, c->rank, &holder);

    if (rc != KVR_OK) {
        *why = KVR_WHY_RANK;
        rc = KVR_INVALID;

    } else {

        switch (c->kind) {

        case KVR_STORE:
            rc = kvr_apply_store(k, worker, holder, c, unknown, why);
            break;

        case KVR_REMOVE:
            rc = kvr_apply_remove(k, w, holder, c, unknown);
            break;

        case KVR_CLASS:
            rc = kvr_apply_class(k, worker, holder, c, why);
            break;

        case KVR_BITS:
            rc = kvr_apply_bits(k, w, holder, c, why);
            break;

        default: /* KVR_CLEAR */
            kvr_shard_clear(k, holder);
            kvr_count(k, &w->counters.clears, 1);
            rc = KVR_OK;
            break;
        }
    }

    return kvr_apply_count(k, worker, rc, why);
}


/* Counts why a change, or a part of it, was not applied; returns rc. */

static kvr_rc_t
kvr_apply_count(kvr_shard_t *k, uint32_t worker, kvr_rc_t rc, kvr_why_t *why)
{
    if (rc == KVR_FULL) {
        *why = KVR_WHY_FULL;
        kvr_count(k, &k->zone->stores_full, 1);
        kvr_fleet_set_flags(&k->fleet, worker, KVR_WORKER_TRUNCATED, 0);
    }

    if (*why != KVR_WHY_NONE) {
        kvr_count(k, &k->fleet.workers[worker].counters.why[*why], 1);
    }

    return rc;
}


kvr_rc_t
kvr_shard_apply_event(kvr_shard_t *k, uint32_t worker, const kvr_event_t *ev,
    uint64_t seed, kvr_change_t *c, uint32_t *unknown, kvr_why_t *why)
{
    kvr_rc_t   rc;
    kvr_why_t  partial;

    *c = ev->change;
    c->seed = seed;

    if (ev->kind != KVR_STORE || ev->ntokens == 0) {
        return kvr_shard_apply(k, worker, c, unknown, why);
    }

    *unknown = 0;
    *why = KVR_WHY_NONE;

    rc = kvr_apply_hash(k, worker, ev, c, why);

    if (rc != KVR_OK || c->nhandles == 0) {
        return kvr_apply_count(k, worker, rc, why);
    }

    partial = *why;
    rc = kvr_shard_apply(k, worker, c, unknown, why);

    if (*why == KVR_WHY_NONE) {
        *why = partial;
        return kvr_apply_count(k, worker, rc, why);
    }

    return rc;
}


/*
 * Hashes the tokens of a store, into k->hashes: of as many blocks as can be
 * stored.
 */

static kvr_rc_t
kvr_apply_hash(kvr_shard_t *k, uint32_t worker, const kvr_event_t *ev,
    kvr_change_t *c, kvr_why_t *why)
{
    uint32_t        i, n, span, holder, view;
    uint64_t        known;
    kvr_contract_t  contract;

    if (kvr_fleet_holder(&k->fleet, worker, ev->rank, &holder) != KVR_OK) {
        *why = KVR_WHY_RANK;
        return KVR_INVALID;
    }

    *why = kvr_span_of(ev, k->params, &span, &n);

    if (*why != KVR_WHY_NONE) {
        return KVR_INVALID;
    }

    if (n < ev->nhandles) {
        *why = KVR_WHY_EXTRA_KEY;
    }

    c->nhandles = n;
    c->locals = k->hashes;
    c->nlocals = n * span;

    if (n == 0) {
        return KVR_OK;
    }

    /* salt and LoRA come with a chain's first block, and hold for all of it */

    if (ev->has_parent) {

        view = *kvr_fleet_written(&k->fleet, holder);
        known = c->seed;

        if (view == KVR_VIEW_NONE
            || kvr_index_seed(&k->index, view, ev->parent, &c->seed)
               != KVR_OK)
        {
            *why = kvr_apply_no_parent(k, worker);
            return KVR_INVALID;
        }

        if (c->seed == 0) {
            c->seed = known;
        }
    }

    if (c->seed == 0) {
        c->seed = kvr_hash_seed(ev->lora_name, ev->lora_len, ev->cache_salt,
                                ev->salt_len);
    }

    contract = kvr_params_contract(k->params);

    kvr_hasher_init(&k->hasher, c->seed);

    if (ev->mm_start == NULL || ev->block_size != contract.block_size) {
        (void) kvr_contract_hash(contract, &k->hasher, ev->tokens,
                                 (size_t) n * ev->block_size + contract.pairs,
                                 k->hashes);
        return KVR_OK;
    }

    for (i = 0; i < n; i++) {
        k->hashes[i] = kvr_hash_block_mm(&k->hasher,
                                         ev->tokens + i * contract.block_size,
                                         contract.block_size + contract.pairs,
                                         ev->mm + ev->mm_start[i],
                                         ev->mm_start[i + 1]
                                         - ev->mm_start[i]);
    }

    return KVR_OK;
}


/* The reason why a parent that is not held is not. */

static kvr_why_t
kvr_apply_no_parent(const kvr_shard_t *k, uint32_t worker)
{
    return k->fleet.workers[worker].flags & KVR_WORKER_TRUNCATED
           ? KVR_WHY_FORGOTTEN : KVR_WHY_PARENT;
}


static kvr_rc_t
kvr_apply_store(kvr_shard_t *k, uint32_t worker, uint32_t holder,
    const kvr_change_t *c, uint32_t *unknown, kvr_why_t *why)
{
    uint32_t         view, done, span;
    kvr_rc_t         rc;
    kvr_worker_t    *w;
    const uint64_t  *handles;

    w = &k->fleet.workers[worker];
    span = 1;

    if (c->nlocals != 0) {
        *why = kvr_span_of_locals(c, &span);

        if (*why != KVR_WHY_NONE) {
            return KVR_INVALID;
        }
    }

    rc = kvr_fleet_view(&k->fleet, holder, &view);
    if (rc != KVR_OK) {
        return rc;
    }

    /* the index begins its transactions with an empty log */

    kvr_txn_commit(&k->mem);
    kvr_index_begin(&k->index);

    if (c->nlocals == 0) {
        return kvr_apply_tier(k, w, view, c, unknown);
    }

    handles = c->handles;

    if (span > 1 || k->fleet.view_span[view]) {

        if (c->has_parent && !kvr_index_knows(&k->index, view, c->parent)) {
            *why = kvr_apply_no_parent(k, worker);
            return KVR_INVALID;
        }

        rc = kvr_span_store(k, view, c->handles, c->nhandles, span, &handles);

        if (rc == KVR_FULL) {
            kvr_apply_drop(k, w, holder);
            return rc;
        }
    }

    done = 0;

    if (rc == KVR_OK) {
        rc = kvr_index_store(&k->index, view, c->tier, c->has_parent,
                             c->parent, handles, c->locals, c->nlocals,
                             c->seed, &done);
    }

    if (rc == KVR_DECLINED) {
        *why = kvr_apply_no_parent(k, worker);
        return KVR_INVALID;
    }

    kvr_count(k, &w->counters.stores, 1);
    kvr_count(k, &w->counters.blocks_stored, done);

    /* a snapshot, which is built aside, says what was stored before */

    if (c->tier == KVR_DEVICE && !k->fleet.aside) {
        kvr_churn_add(&k->fleet.holders[holder].churn, done,
                      (uint32_t) (kvr_now_us() / 1000000));
    }

    return rc;
}


/*
 * Applies a store without locals: the blocks are known, and are stored in
 * another tier.
 */

static kvr_rc_t
kvr_apply_tier(kvr_shard_t *k, kvr_worker_t *w, uint32_t view,
    const kvr_change_t *c, uint32_t *unknown)
{
    uint32_t  done;
    kvr_rc_t  rc;

    done = 0;

    rc = kvr_span_hold(k, view, c->tier, true, c->handles, c->nhandles,
                       unknown, &done);

    kvr_count(k, &w->counters.stores, 1);
    kvr_count(k, &w->counters.blocks_stored, done);
    kvr_count(k, &w->counters.blocks_unknown, *unknown);

    return rc;
}


static kvr_rc_t
kvr_apply_remove(kvr_shard_t *k, kvr_worker_t *w, uint32_t holder,
    const kvr_change_t *c, uint32_t *unknown)
{
    uint32_t  view, done;
    kvr_rc_t  rc;

    view = *kvr_fleet_written(&k->fleet, holder);
    rc = KVR_OK;
    done = 0;

    if (view == KVR_VIEW_NONE) {
        *unknown = c->nhandles;

    } else {
        kvr_txn_commit(&k->mem);
        kvr_index_begin(&k->index);

        rc = kvr_span_hold(k, view, c->tier, false, c->handles, c->nhandles,
                           unknown, &done);

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
    const kvr_change_t *c, kvr_why_t *why)
{
    uint32_t       view;
    kvr_rc_t       rc;
    kvr_class_t    group;
    kvr_worker_t  *w;

    w = &k->fleet.workers[worker];

    rc = kvr_fleet_view(&k->fleet, holder, &view);
    if (rc != KVR_OK) {
        return rc;
    }

    group.kind = c->group_kind;
    group.window = c->class_window;
    group.span = c->block_size / k->params->block_size;

    if (c->block_size % k->params->block_size || group.span == 0
        || group.span > KVR_SPAN_MAX
        || kvr_index_class_set(&k->index, view, c->class_at, &group) != KVR_OK)
    {
        *why = KVR_WHY_GROUP;
        kvr_fleet_set_flags(&k->fleet, worker, KVR_WORKER_HYBRID, 0);
        return KVR_OK;
    }

    if (group.kind == KVR_GROUP_CHUNKED) {
        kvr_set32(&k->mem, &w->stream.chunked_block, c->block_size);
    }

    return KVR_OK;
}


/* Applies what a class holds now, and what it holds no longer. */

static kvr_rc_t
kvr_apply_bits(kvr_shard_t *k, kvr_worker_t *w, uint32_t holder,
    const kvr_change_t *c, kvr_why_t *why)
{
    uint32_t     view;
    kvr_rc_t     rc;
    kvr_class_t  classes[KVR_CLASSES_MAX];

    view = *kvr_fleet_written(&k->fleet, holder);

    if (view == KVR_VIEW_NONE
        || c->class_at >= kvr_index_class_get(&k->index, view, classes))
    {
        *why = KVR_WHY_GROUP;
        return KVR_OK;
    }

    kvr_txn_commit(&k->mem);
    kvr_index_begin(&k->index);

    rc = kvr_span_class(k, view, c->class_at, true, c->handles, c->nadded);
    if (rc != KVR_OK) {
        return rc;
    }

    rc = kvr_span_class(k, view, c->class_at, false,
                        c->handles + c->nadded, c->nhandles - c->nadded);

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
        return "the rank is out of range, or all (worker, rank) pairs are "
               "taken: raise max_workers";

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
    kvr_change_t   change;
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

    rc = kvr_shard_apply_event(k, worker, ev, ev->seed, &change, unknown,
                               why);

    kvr_set32(&k->mem, &w->stream.source, KVR_SOURCE_API);
    kvr_set32(&k->mem, &w->stream.confidence, KVR_UNVERIFIED);
    kvr_set64(&k->mem, &w->stream.last_ms, now_ms);

    kvr_shard_unlock(k);

    if (*why != KVR_WHY_NONE) {
        *detail = kvr_why_detail(*why);
    }

    return rc;
}
