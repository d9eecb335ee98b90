/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_zone.h"
#include "kvr_lease.h"
#include "kvr_views.h"


#define KVR_FIND_ATTEMPTS    8          /* the maximum number of attempts of
                                           a lookup while views change */
#define KVR_FIND_ALL         UINT32_MAX /* workers */


static uint32_t kvr_find_shard(const kvr_router_t *r, uint32_t shard,
    uint32_t worker, const uint64_t *locals, uint32_t n, uint32_t limit,
    bool early_exit, kvr_match_t *out, uint32_t cap);
static uint32_t kvr_look_shard(const kvr_router_t *r, uint32_t shard,
    uint32_t worker, const uint64_t *locals, uint32_t n, uint32_t limit,
    bool early_exit, kvr_match_t *out, uint32_t cap);
static bool kvr_look_estimate(const kvr_shard_t *k, uint32_t holder,
    uint32_t view, const uint32_t *depths, uint32_t nviews, kvr_match_t *m);
static void kvr_look_rule(void *data, uint32_t view, kvr_hit_rule_t *out);
static void kvr_look_drop(const kvr_shard_t *k, uint32_t view, uint32_t limit,
    kvr_match_t *m);
static void kvr_stats_add(const kvr_shard_t *k, kvr_stats_t *out);


const kvr_params_t *
kvr_router_params(const kvr_router_t *k)
{
    return &k->zone->params;
}


/* ---- processes ---------------------------------------------------------- */

kvr_rc_t
kvr_router_join(kvr_router_t *k)
{
    uint32_t      i;
    kvr_rc_t      rc;
    kvr_owner_t   self;
    kvr_shard_t  *first;

    self = kvr_owner_self();

    for (i = 0; i < k->nshards; i++) {
        k->shards[i].self = self;
        k->shards[i].token = 0;
    }

    k->peers.self = self;

    first = &k->shards[0];

    rc = kvr_shard_lock(first, KVR_LOCK_MS);
    if (rc != KVR_OK) {
        return rc;
    }

    (void) kvr_load_reclaim(&k->load);

    kvr_index_begin(&first->index);
    kvr_load_join(&k->load, self);

    kvr_shard_unlock(first);

    return KVR_OK;
}


void
kvr_router_reserve(kvr_router_t *k, kvr_reservation_t *r, uint64_t now_ms)
{
    kvr_shard_t  *first;

    first = &k->shards[0];

    if (k->load.slot != KVR_LOAD_NONE
        && kvr_load_row(&k->load, k->load.slot, r->holder) == NULL
        && kvr_shard_lock(first, KVR_LOCK_MS) == KVR_OK)
    {
        kvr_index_begin(&first->index);

        while (!kvr_load_make(&k->load, r->holder)) {
            (void) kvr_txn_rollback(&first->mem);
            kvr_index_begin(&first->index);

            if (!kvr_index_make_room(&first->index)) {
                break;
            }
        }

        kvr_shard_unlock(first);
    }

    kvr_load_reserve(&k->load, r, now_ms);
}


kvr_owner_t
kvr_router_self(const kvr_router_t *k)
{
    return k->shards[0].self;
}


void
kvr_router_leave(kvr_router_t *k)
{
    kvr_router_lease_release(k);
    kvr_peers_release(&k->peers, kvr_now_us() / 1000);

    if (kvr_shard_lock(&k->shards[0], KVR_LOCK_MS) != KVR_OK) {
        /*
         * this process can't leave cleanly: other processes find it dead and
         * clean up
         */
        return;
    }

    kvr_load_leave(&k->load);

    kvr_shard_unlock(&k->shards[0]);
}


bool
kvr_router_tend(kvr_router_t *k, uint64_t now_ms, uint32_t slice_us)
{
    bool      more;
    uint32_t  i;
    uint64_t  until;

    until = kvr_now_us() + slice_us;
    more = false;

    for (i = 0; i < k->nshards; i++) {
        if (kvr_shard_evict(&k->shards[i], k->ttl, now_ms, until)) {
            more = true;
        }
    }

    for (i = 0; i < k->nshards; i++) {
        kvr_shard_recover(&k->shards[i]);
    }

    kvr_flights_clear(&k->flights, now_ms);

    if (now_ms - k->tended_ms >= KVR_TEND_LOADS_MS) {
        k->tended_ms = now_ms;

        if (kvr_load_orphaned(&k->load)
            && kvr_shard_lock(&k->shards[0], 0) == KVR_OK)
        {
            (void) kvr_load_reclaim(&k->load);
            kvr_shard_unlock(&k->shards[0]);
        }
    }

    until = kvr_now_us() + slice_us;

    for (i = 0; i < k->nshards; i++) {
        if (kvr_shard_reclaim(&k->shards[i], until)) {
            more = true;
        }
    }

    return more;
}


/* ---- reading ------------------------------------------------------------ */

uint32_t
kvr_router_find(const kvr_router_t *k, const uint64_t *locals, uint32_t n,
    uint64_t tokens, bool early_exit, kvr_match_t *out, uint32_t cap)
{
    uint32_t  i, found, limit, size;

    found = 0;
    size = k->zone->params.block_size;

    if (tokens == 0) {
        tokens = (uint64_t) n * size;
    }

    limit = (uint32_t) kvr_min((tokens - (tokens != 0)) / size, n);

    for (i = 0; i < k->nshards; i++) {
        found += kvr_find_shard(k, i, KVR_FIND_ALL, locals, n, limit,
                                early_exit, out + found, cap - found);
    }

    return found;
}


uint32_t
kvr_router_depth(const kvr_router_t *k, uint32_t worker,
    const uint64_t *locals, uint32_t n)
{
    uint32_t     i, found, depth;
    kvr_match_t  m[KVR_RANKS_MAX];

    found = kvr_find_shard(k, worker % k->nshards, worker / k->nshards, locals,
                           n, KVR_LIMIT_NONE, false, m, KVR_RANKS_MAX);
    depth = 0;

    for (i = 0; i < found; i++) {
        depth = kvr_max(depth, m[i].disk);
    }

    return depth;
}


/*
 * A view may belong to another holder by the time that its depth is known, for
 * example when this process was stopped meanwhile.  Then the lookup is
 * repeated.
 */

static uint32_t
kvr_find_shard(const kvr_router_t *r, uint32_t shard, uint32_t worker,
    const uint64_t *locals, uint32_t n, uint32_t limit, bool early_exit,
    kvr_match_t *out, uint32_t cap)
{
    uint32_t      i, found, version, *versions;
    kvr_shard_t  *k;

    k = &r->shards[shard];
    versions = &k->zone->fleet.version;

    for (i = 0; i < KVR_FIND_ATTEMPTS; i++) {
        version = __atomic_load_n(versions, __ATOMIC_ACQUIRE);
        found = kvr_look_shard(r, shard, worker, locals, n, limit, early_exit,
                               out, cap);
        kvr_fence(__ATOMIC_ACQUIRE);

        if (found == 0 || kvr_load32(versions) == version) {
            return found;
        }
    }

    kvr_index_torn(&k->index);

    return 0;
}


/*
 * A lookup in one shard, for a worker of the shard or for all of them; the
 * holders' numbers are made those of the zone.
 */

static uint32_t
kvr_look_shard(const kvr_router_t *r, uint32_t shard, uint32_t worker,
    const uint64_t *locals, uint32_t n, uint32_t limit, bool early_exit,
    kvr_match_t *out, uint32_t cap)
{
    uint32_t            v, h, t, nviews, found, estimates;
    kvr_match_t        *m;
    kvr_depths_t        depths;
    const kvr_shard_t  *k;

    k = &r->shards[shard];

    /*
     * views that are made after this have no blocks that the lookup must see
     */

    nviews = kvr_min(kvr_load32(&k->zone->fleet.nviews),
                     k->zone->fleet.max_views);

    if (nviews == 0 || n == 0) {
        return 0;
    }

    for (t = 0; t < 3; t++) {
        depths.depths[t] = r->rows + t * k->zone->fleet.max_views;
    }

    depths.nviews = nviews;
    depths.early_exit = early_exit;
    depths.limit = limit;
    depths.rule = kvr_look_rule;
    depths.data = (void *) k;

    if (kvr_index_find(&k->index, locals, n, &depths) == 0) {
        return 0;
    }

    if (!depths.tiered) {
        depths.depths[0] = depths.depths[2];
        depths.depths[1] = depths.depths[2];
    }

    found = 0;
    estimates = kvr_load32(&k->zone->fleet.nestimates);

    for (v = 0; v < nviews && found < cap; v++) {

        if (depths.depths[2][v] == 0) {
            continue;
        }

        h = kvr_load32(&k->fleet.view_holder[v]);

        m = &out[found];
        m->device = depths.depths[0][v];
        m->host = depths.depths[1][v];
        m->disk = depths.depths[2][v];
        m->cut = depths.cut;
        m->estimated = 0;
        m->hot = 0;
        m->ghost = 0;

        if (estimates) {

            if (!kvr_look_estimate(k, h, v, depths.depths[2], nviews, m)) {
                continue;
            }

            h &= KVR_VIEW_HOLDER;
        }

        if (h >= k->zone->fleet.max_holders) {
            continue;               /* cleared, waits for its reclaim */
        }

        if (worker != KVR_FIND_ALL
            && kvr_load32(&k->fleet.holders[h].worker) != worker)
        {
            continue;
        }

        m->holder = h * r->nshards + shard;
        found++;

        if (limit != KVR_LIMIT_NONE && kvr_load32(&k->zone->fleet.drops)) {
            kvr_look_drop(k, v, limit, m);
            found -= m->disk == 0 && m->ghost == 0;
        }
    }

    return found;
}


/*
 * The views of an estimate are one match, which the largest of them gives:
 * true of that one.  While the estimate counts, the holder's own view does
 * not; true of the latter otherwise.
 */

static bool
kvr_look_estimate(const kvr_shard_t *k, uint32_t holder, uint32_t view,
    const uint32_t *depths, uint32_t nviews, kvr_match_t *m)
{
    bool                 own;
    uint32_t             h, w, v, e, rows[KVR_FLEET_ESTIMATES];
    const kvr_holder_t  *is;

    own = holder < k->zone->fleet.max_holders;
    h = holder & KVR_VIEW_HOLDER;

    if ((!own && !kvr_view_is_estimate(holder))
        || h >= k->zone->fleet.max_holders)
    {
        return false;
    }

    is = &k->fleet.holders[h];
    w = kvr_load32(&is->worker);

    if (w >= k->zone->fleet.max_workers) {
        return false;
    }

    if (own) {
        return kvr_load32(&is->estimate[KVR_FLEET_GHOST]) == KVR_VIEW_NONE
               || !kvr_fleet_estimated(&k->fleet.workers[w]);
    }

    if (kvr_load32(&is->estimate[KVR_FLEET_GHOST]) != view
        || !kvr_fleet_estimated(&k->fleet.workers[w]))
    {
        return false;
    }

    for (e = 0; e < KVR_FLEET_ESTIMATES; e++) {
        v = kvr_load32(&is->estimate[e]);
        rows[e] = v < nviews ? depths[v] : 0;
    }

    m->device = rows[KVR_FLEET_VISIBLE];
    m->host = rows[KVR_FLEET_VISIBLE];
    m->disk = rows[KVR_FLEET_VISIBLE];
    m->estimated = 1;
    m->hot = rows[KVR_FLEET_HOT];
    m->ghost = rows[KVR_FLEET_GHOST];

    return true;
}


/* Settings of the engine whose view this is. */

static void
kvr_look_rule(void *data, uint32_t view, kvr_hit_rule_t *out)
{
    uint32_t             h, w;
    const kvr_shard_t   *k;
    const kvr_worker_t  *worker;

    k = data;
    h = kvr_fleet_view_holder(&k->fleet, view);
    w = h < k->zone->fleet.max_holders
        ? kvr_load32(&k->fleet.holders[h].worker) : UINT32_MAX;

    out->chunk = 0;
    out->drop = false;

    if (w < k->zone->fleet.max_workers) {
        worker = &k->fleet.workers[w];
        out->chunk = kvr_load32(&worker->conf.attention_chunk)
                     / k->params->block_size;
        out->drop = kvr_load32(&worker->conf.spec_drop);
    }
}


/* An engine that drafts tokens loses a block, see kvr_hit.h. */

static void
kvr_look_drop(const kvr_shard_t *k, uint32_t view, uint32_t limit,
    kvr_match_t *m)
{
    uint32_t        span;
    kvr_class_t     classes[KVR_CLASSES_MAX];
    kvr_hit_rule_t  rule;

    kvr_look_rule((void *) k, view, &rule);

    if (!rule.drop || kvr_index_class_get(&k->index, view, classes)) {
        return;
    }

    span = kvr_max(kvr_load32(&k->fleet.view_span[view]), 1);

    m->device = kvr_hit(NULL, 0, NULL, span, m->device, limit, &rule);
    m->host = kvr_hit(NULL, 0, NULL, span, m->host, limit, &rule);
    m->disk = kvr_hit(NULL, 0, NULL, span, m->disk, limit, &rule);
}


void
kvr_router_stats(const kvr_router_t *k, kvr_stats_t *out)
{
    uint32_t  i;

    memset(out, 0, sizeof(kvr_stats_t));

    for (i = 0; i < k->nshards; i++) {
        kvr_stats_add(&k->shards[i], out);
    }

    out->zone_bytes = k->zone->size;
    out->load_reclaimed = kvr_load64(&k->zone->load.reclaimed);
    out->load_uncounted = kvr_load64(&k->zone->load.uncounted);
    out->load_below_zero = kvr_load64(&k->zone->load.below_zero);
    out->selections = kvr_load32(&k->zone->selections.held);
    out->frequency_max = k->zone->frequency.nsets * KVR_FREQUENCY_WAYS;
    out->frequency_replaced = kvr_load64(&k->zone->frequency.replaced);
    out->frequency_cut = kvr_load64(&k->zone->frequency.cut);
}


void
kvr_router_shard_stats(const kvr_router_t *k, uint32_t shard,
    kvr_stats_t *out)
{
    memset(out, 0, sizeof(kvr_stats_t));

    kvr_stats_add(&k->shards[shard], out);

    out->zone_bytes = k->shards[shard].mem.size;
}


static void
kvr_stats_add(const kvr_shard_t *k, kvr_stats_t *out)
{
    kvr_index_usage_t        usage;
    const kvr_shard_zone_t  *z;

    z = k->zone;

    kvr_index_usage(&k->index, &usage);

    out->used_bytes += usage.bytes;
    out->arena_bytes += usage.arena_max;
    out->arena_used += usage.arena;
    out->pairs += usage.pairs;
    out->handles += usage.handles;
    out->handles_max += usage.handles_max;
    out->runs += usage.entries;
    out->runs_max += usage.entries_max;
    out->blocks += usage.blocks;
    out->holes += usage.holes;
    out->views_dying += kvr_load32(&z->fleet.ndying);
    out->rollbacks += kvr_load64(&z->rollbacks);
    out->lock_breaks += kvr_load64(&z->lock_breaks);
    out->stores_full += kvr_load64(&z->stores_full);
    out->forgotten += usage.forgotten;
    out->lookups_torn += usage.torn;
    out->lookups_cut += usage.cut;
    out->workers += kvr_load32(&z->fleet.nworkers);
    out->holders += kvr_load32(&z->fleet.nholders);
}


/* ---- leases ------------------------------------------------------------- */

void
kvr_router_lease_holder(const kvr_router_t *k, uint32_t shard, uint32_t *pid,
    uint64_t *token)
{
    const kvr_lease_t  *lease;

    lease = &k->shards[shard].zone->lease;

    *pid = (uint32_t) kvr_owner_pid(kvr_load64(&lease->owner));
    *token = kvr_load64(&lease->token);
}


kvr_rc_t
kvr_router_lease(kvr_router_t *k, uint32_t shard, uint32_t wait_ms,
    uint64_t now_ms)
{
    return kvr_shard_lease(&k->shards[shard], wait_ms, now_ms);
}


bool
kvr_router_leased(const kvr_router_t *k, uint32_t shard)
{
    const kvr_shard_t  *s;

    s = &k->shards[shard];

    return s->token && kvr_load64(&s->zone->lease.token) == s->token
           && kvr_load64(&s->zone->lease.owner) == s->self;
}


void
kvr_router_lease_release(kvr_router_t *k)
{
    uint32_t  i;

    for (i = 0; i < k->nshards; i++) {
        kvr_shard_lease_release(&k->shards[i]);
    }
}


/* ---- requests ----------------------------------------------------------- */

uint32_t
kvr_router_touch(const kvr_router_t *k, const uint64_t *locals,
    const kvr_match_t *matches, uint32_t n, uint64_t now_ms, uint32_t *out)
{
    uint32_t  i, depth;

    if (k->zone->params.frequency_ms == 0) {
        return 0;
    }

    depth = 0;

    for (i = 0; i < n; i++) {
        depth = kvr_max(depth, matches[i].disk);
    }

    return kvr_frequency_touch(&k->zone->frequency, (char *) k->zone, locals,
                               depth, now_ms, out);
}


bool
kvr_router_classed(const kvr_router_t *k, uint32_t holder)
{
    uint32_t            h, view;
    kvr_class_t         classes[KVR_CLASSES_MAX];
    const kvr_shard_t  *s;

    s = &k->shards[holder % k->nshards];
    h = holder / k->nshards;

    if (kvr_index_classed(&s->index) == 0 || h >= s->zone->fleet.max_holders) {
        return false;
    }

    view = kvr_load32(&s->fleet.holders[h].view);

    return view < s->zone->fleet.max_views
           && kvr_index_class_get(&s->index, view, classes) != 0;
}
