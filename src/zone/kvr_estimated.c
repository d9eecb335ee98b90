/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_shard.h"
#include "../core/kvr_clock.h"
#include "../traffic/kvr_churn.h"


#define KVR_ESTIMATE_MOVES   32         /* ends in flight that are passed over
                                           in one call */


static void kvr_estimated_drop_views(kvr_shard_t *k, uint32_t holder);
static bool kvr_estimated_halved(const kvr_shard_t *k, uint32_t h);
static kvr_rc_t kvr_estimated_put(kvr_shard_t *k, uint32_t h, uint32_t e,
    const uint64_t *locals, const uint64_t *handles, uint32_t m, uint32_t n,
    uint32_t *done);
static void kvr_estimated_mark(kvr_shard_t *k, kvr_estimated_t *e,
    uint32_t marked, uint64_t handle);
static void kvr_estimated_cut(kvr_shard_t *k, uint32_t h, uint32_t e,
    kvr_point_t *p, uint64_t n);


/* ---- records ------------------------------------------------------------ */

static void
kvr_estimated_write(kvr_shard_t *k, void *to, const void *from, size_t size)
{
    uint32_t           i;
    const kvr_word_t  *words;

    words = from;

    for (i = 0; i < size / 8; i++) {
        kvr_set_word(&k->mem, to, i, words[i]);
    }
}


kvr_rc_t
kvr_estimated_enter(kvr_shard_t *k, uint32_t h, uint32_t generation,
    kvr_estimated_t **e)
{
    uint32_t             w;
    kvr_rc_t             rc;
    const kvr_worker_t  *worker;

    rc = kvr_shard_lock(k, KVR_LOCK_MS);
    if (rc != KVR_OK) {
        return rc;
    }

    w = h < k->zone->fleet.nholders ? k->fleet.holders[h].worker : UINT32_MAX;

    if (w < k->zone->fleet.nworkers) {
        worker = &k->fleet.workers[w];

        if (worker->generation == generation && kvr_fleet_estimated(worker)
            && (worker->flags & KVR_WORKER_DELETED) == 0)
        {
            kvr_estimated_sync(k, h);
            *e = &k->estimates[h];

            return KVR_OK;
        }
    }

    kvr_shard_unlock(k);

    return KVR_DECLINED;
}


void
kvr_estimated_sync(kvr_shard_t *k, uint32_t h)
{
    uint32_t          i, generation;
    kvr_estimated_t  *e, none;

    e = &k->estimates[h];
    generation = k->fleet.workers[k->fleet.holders[h].worker].generation;

    if (e->generation != generation) {

        kvr_estimated_drop_views(k, h);

        for (i = 0; i < KVR_FLEET_ESTIMATES; i++) {
            kvr_recency_clear(&k->recency, &e->caches[i]);
        }

        memset(&none, 0, sizeof(none));
        none.generation = generation;
        kvr_estimated_write(k, e, &none, sizeof(none));

    } else if (kvr_estimated_halved(k, h)) {
        kvr_estimated_clear(k, h, KVR_ESTIMATE_DIED);

    } else if (e->marked) {
        kvr_estimated_mark(k, e, KVR_MARK_NONE, 0);
    }

    kvr_txn_commit(&k->mem);
}


/*
 * Did a process die when it had committed a part of a change?  The mark goes
 * with the last part.
 */

static bool
kvr_estimated_halved(const kvr_shard_t *k, uint32_t h)
{
    uint32_t                view;
    const kvr_estimated_t  *e;

    e = &k->estimates[h];

    if (e->marked == KVR_MARK_NONE) {
        return false;
    }

    view = k->fleet.holders[h].estimate[e->marked >> 8];

    return view == KVR_VIEW_NONE
           || kvr_index_knows(&k->index, view, e->mark)
              == ((e->marked & 0xff) == KVR_MARK_STORE);
}


static void
kvr_estimated_mark(kvr_shard_t *k, kvr_estimated_t *e, uint32_t marked,
    uint64_t handle)
{
    kvr_set32(&k->mem, &e->marked, marked);
    kvr_set64(&k->mem, &e->mark, handle);
}


void
kvr_estimated_set_capacity(kvr_shard_t *k, uint32_t h,
    const kvr_capacity_t *capacity)
{
    kvr_estimated_write(k, &k->estimates[h].capacity, capacity,
                        sizeof(kvr_capacity_t));
}


void
kvr_estimated_forgot(kvr_shard_t *k, uint32_t h, uint32_t handles)
{
    kvr_count(k, &k->estimates[h].forgotten, handles);
}


static void
kvr_estimated_drop_views(kvr_shard_t *k, uint32_t holder)
{
    uint32_t  e, view;

    for (e = 0; e < KVR_FLEET_ESTIMATES; e++) {

        k->fleet.estimate = e + 1;
        view = kvr_fleet_drop_view(&k->fleet, holder);
        k->fleet.estimate = 0;

        if (view != KVR_VIEW_NONE && kvr_index_view_empty(&k->index, view)) {
            kvr_fleet_free_view(&k->fleet, view);
        }
    }
}


void
kvr_estimated_clear(kvr_shard_t *k, uint32_t h, kvr_estimate_why_t why)
{
    uint32_t          i;
    kvr_estimated_t  *e;

    e = &k->estimates[h];

    kvr_estimated_drop_views(k, h);

    for (i = 0; i < KVR_FLEET_ESTIMATES; i++) {
        kvr_recency_clear(&k->recency, &e->caches[i]);
        kvr_set32(&k->mem, &e->spaces[i], 0);
    }

    kvr_estimated_mark(k, e, KVR_MARK_NONE, 0);
    kvr_set64(&k->mem, &e->since_ms, kvr_now_us() / 1000);
    kvr_set64(&k->mem, &e->forgotten, 0);
    kvr_count(k, &e->cleared[why], 1);
}


/* ---- tokens ------------------------------------------------------------- */

uint64_t
kvr_estimated_tokens(const kvr_shard_t *k, uint32_t h, uint64_t blocks,
    bool text)
{
    uint64_t  each;

    if (!text) {
        return blocks * k->params->block_size;
    }

    each = kvr_load32(&k->estimates[h].text_tokens);

    return blocks * KVR_TEXT_BLOCK * (each ? each : KVR_ESTIMATE_TEXT)
           / 1000000;
}


uint64_t
kvr_estimated_held(const kvr_shard_t *k, uint32_t h, uint32_t e)
{
    uint32_t              view;
    uint64_t              held, text;
    const kvr_recency_t  *c;

    view = kvr_load32(&k->fleet.holders[h].estimate[e]);

    if (view >= k->zone->fleet.max_views) {
        return 0;
    }

    c = &k->estimates[h].caches[e];

    held = kvr_index_held(&k->index, view);
    text = kvr_min(kvr_load32(&c->text), held);

    return kvr_estimated_tokens(k, h, held - text + kvr_load64(&c->extra),
                                false)
           + kvr_estimated_tokens(k, h, text, true);
}


/* ---- store -------------------------------------------------------------- */

/* KVR_FULL: no view is free. */

static kvr_rc_t
kvr_estimated_open(kvr_shard_t *k, uint32_t h)
{
    uint32_t          i, view;
    kvr_rc_t          rc;
    kvr_estimated_t  *e;

    e = &k->estimates[h];

    if (e->spaces[0]) {
        return KVR_OK;
    }

    for (i = 0; i < KVR_FLEET_ESTIMATES; i++) {

        k->fleet.estimate = i + 1;
        rc = kvr_fleet_view(&k->fleet, h, &view);
        k->fleet.estimate = 0;

        if (rc != KVR_OK) {
            (void) kvr_txn_rollback(&k->mem);
            return rc;
        }

        kvr_set32(&k->mem, &e->spaces[i], kvr_recency_space(&k->recency));
    }

    kvr_txn_commit(&k->mem);

    return KVR_OK;
}


/* How many of the prompt's blocks does the view hold? */

static uint32_t
kvr_estimated_prefix(const kvr_shard_t *k, uint32_t view,
    const uint64_t *handles, uint32_t n)
{
    uint32_t  low, high, at;

    low = 0;
    high = n;

    while (low < high) {
        at = low + (high - low) / 2;

        if (kvr_index_knows(&k->index, view, handles[at])) {
            low = at + 1;

        } else {
            high = at;
        }
    }

    return low;
}


kvr_rc_t
kvr_estimated_store(kvr_shard_t *k, uint32_t h, uint32_t i,
    const uint64_t *locals, const uint64_t *handles, uint32_t n, uint32_t now,
    uint32_t busy, bool text)
{
    uint32_t          m, part, done;
    kvr_rc_t          rc;
    kvr_estimated_t  *e;

    e = &k->estimates[h];

    rc = kvr_estimated_open(k, h);

    while (kvr_recency_room(&k->recency) < 2
           && kvr_recency_sweep(&k->recency))
    {
        kvr_txn_commit(&k->mem);
    }

    if (rc != KVR_OK || kvr_recency_room(&k->recency) < 2) {

        if (rc == KVR_OK && kvr_recency_oldest(&k->recency, &e->caches[i])) {
            kvr_estimated_cut(k, h, i,
                              kvr_recency_oldest(&k->recency, &e->caches[i]),
                              UINT64_MAX);
        }

        kvr_count(k, &e->refused, 1);
        kvr_txn_commit(&k->mem);

        return KVR_FULL;
    }

    m = kvr_estimated_prefix(k, k->fleet.holders[h].estimate[i], handles, n);
    part = kvr_min(n, m + KVR_ESTIMATE_SLICE);
    done = 0;

    if (m < n) {
        rc = kvr_estimated_put(k, h, i, locals, handles, m, part, &done);
        part = m + done;

        if (i == KVR_FLEET_VISIBLE) {
            kvr_churn_add(&k->fleet.holders[h].churn, done,
                          (uint32_t) (kvr_now_us() / 1000000));
        }
    }

    if (m == n || done) {
        kvr_recency_use(&k->recency, &e->caches[i], e->spaces[i], handles, m,
                        part, now, busy, text);
    }

    if (rc != KVR_OK) {
        kvr_count(k, &e->refused, 1);
        rc = KVR_FULL;

    } else if (part < n) {
        rc = KVR_DECLINED;
    }

    kvr_estimated_mark(k, e, KVR_MARK_NONE, 0);
    kvr_txn_commit(&k->mem);

    return rc;
}


/* Puts the blocks from m to n into the index; the caller commits. */

static kvr_rc_t
kvr_estimated_put(kvr_shard_t *k, uint32_t h, uint32_t i,
    const uint64_t *locals, const uint64_t *handles, uint32_t m, uint32_t n,
    uint32_t *done)
{
    kvr_estimated_mark(k, &k->estimates[h], KVR_MARK_STORE | i << 8,
                       handles[m]);
    kvr_txn_commit(&k->mem);
    kvr_index_begin(&k->index);

    return kvr_index_store(&k->index, k->fleet.holders[h].estimate[i],
                           KVR_DEVICE, m != 0, m ? handles[m - 1] : 0,
                           handles + m, locals + m, n - m, 0, done);
}


/* ---- evict -------------------------------------------------------------- */

/* Tokens that a view has more than it may have. */

static uint64_t
kvr_estimated_over(const kvr_shard_t *k, uint32_t h, uint32_t e)
{
    uint64_t  held, most;

    most = kvr_load64(&k->estimates[h].capacity.tokens);

    if (most == 0) {
        return 0;
    }

    most = most * (e + 1) / 2;
    held = kvr_estimated_held(k, h, e);

    return held - kvr_min(held, most);
}


static bool
kvr_estimated_old(const kvr_point_t *p, uint32_t ttl, uint32_t now)
{
    return ttl && kvr_load32(&p->tick) + (uint64_t) ttl <= now;
}


/*
 * The seconds that a prompt stays without use; 0: as long as there is room.
 * With ttl=, prompts go a little before the index would evict their blocks.
 */

static uint32_t
kvr_estimated_ttl(const kvr_estimated_t *e, uint32_t ttl)
{
    ttl -= ttl / 8;

    if (kvr_load64(&e->capacity.tokens)) {
        return ttl;
    }

    return ttl ? kvr_min(ttl, KVR_ESTIMATE_TTL) : KVR_ESTIMATE_TTL;
}


bool
kvr_estimated_due(const kvr_shard_t *k, uint32_t h, uint32_t i, uint32_t ttl,
    uint32_t now)
{
    uint32_t                number;
    const kvr_estimated_t  *e;

    e = &k->estimates[h];
    number = kvr_load32(&e->caches[i].uses.first);

    return (number && number < k->zone->recency.npoints
            && kvr_estimated_old(&k->recency.points[number],
                                 kvr_estimated_ttl(e, ttl), now))
           || kvr_estimated_over(k, h, i) != 0
           || kvr_load64(&e->forgotten) != 0;
}


bool
kvr_estimated_evict(kvr_shard_t *k, uint32_t h, uint32_t i, uint32_t ttl,
    uint32_t now, uint32_t *moves)
{
    bool              old;
    uint32_t          view;
    uint64_t          over, each;
    kvr_point_t      *p;
    kvr_estimated_t  *e;

    e = &k->estimates[h];

    if (e->spaces[i] == 0) {
        return false;
    }

    view = k->fleet.holders[h].estimate[KVR_FLEET_GHOST];
    over = kvr_estimated_over(k, h, i);
    p = kvr_recency_oldest(&k->recency, &e->caches[i]);
    old = p && kvr_estimated_old(p, kvr_estimated_ttl(e, ttl), now);

    if ((over && p == NULL)
        || e->forgotten > kvr_index_held(&k->index, view) / KVR_ESTIMATE_LOST
                          + KVR_ESTIMATE_CUT)
    {
        kvr_estimated_clear(k, h, KVR_ESTIMATE_FULL);
        kvr_txn_commit(&k->mem);
        return false;
    }

    if (over == 0 && !old) {
        return false;
    }

    if (p->busy > now && *moves < kvr_min(e->caches[i].ends,
                                          KVR_ESTIMATE_MOVES))
    {
        kvr_recency_renew(&k->recency, &e->caches[i], p);
        kvr_txn_commit(&k->mem);
        (*moves)++;

        return true;
    }

    /* an answer's blocks are the zone's, whatever the prompt's are */

    each = kvr_estimated_tokens(k, h, 1, p->extra == 0
                                         && p->flags & KVR_POINT_TEXT);
    each = kvr_max(each, 1);

    kvr_estimated_cut(k, h, i, p, old ? UINT64_MAX : (over + each - 1) / each);

    return true;
}


/* Takes at most n blocks from the end of the chain with this point. */

static void
kvr_estimated_cut(kvr_shard_t *k, uint32_t h, uint32_t i, kvr_point_t *p,
    uint64_t n)
{
    bool              has_parent;
    uint32_t          m, view, unknown;
    uint64_t          parent, gone[KVR_ESTIMATE_CUT];
    kvr_rc_t          rc;
    kvr_recency_t    *c;
    kvr_estimated_t  *e;

    e = &k->estimates[h];
    c = &e->caches[i];
    view = k->fleet.holders[h].estimate[i];

    if (p->extra) {
        (void) kvr_recency_take_extra(&k->recency, c, p,
                                      (uint32_t) kvr_min(n, UINT32_MAX));
        kvr_txn_commit(&k->mem);
        return;
    }

    if ((p->flags & KVR_POINT_END) == 0
        || kvr_index_parent_handle(&k->index, view, p->handle, &has_parent,
                                   &parent) != KVR_OK)
    {
        /* used later by what hangs on it; or the index forgot the block */

        kvr_recency_forget(&k->recency, c, p);
        kvr_txn_commit(&k->mem);
        return;
    }

    n = kvr_min(n, KVR_ESTIMATE_CUT);
    gone[0] = p->handle;

    for (m = 1; m < n && has_parent; m++) {

        if (kvr_recency_find(&k->recency, p->space, parent)) {
            break;
        }

        gone[m] = parent;
        (void) kvr_index_parent_handle(&k->index, view, parent, &has_parent,
                                       &parent);
    }

    kvr_estimated_mark(k, e, KVR_MARK_REMOVE | i << 8, gone[0]);
    kvr_txn_commit(&k->mem);
    kvr_index_begin(&k->index);

    unknown = 0;
    rc = kvr_index_remove(&k->index, view, KVR_DEVICE, gone, m, &unknown);

    if (rc == KVR_FULL) {
        kvr_estimated_clear(k, h, KVR_ESTIMATE_FULL);
        kvr_txn_commit(&k->mem);
        return;
    }

    kvr_recency_shorten(&k->recency, c, p, m, has_parent, parent);
    kvr_estimated_mark(k, e, KVR_MARK_NONE, 0);
    kvr_txn_commit(&k->mem);
}
