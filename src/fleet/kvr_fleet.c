/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_fleet.h"
#include "../core/kvr_hash.h"


#define KVR_FLEET_ATTEMPTS   1000       /* the maximum number of attempts of
                                           a reader while a writer is active */

static bool kvr_fleet_is(const kvr_worker_t *w, const char *id, size_t len);
static uint32_t kvr_fleet_slot(kvr_fleet_t *f);
static uint32_t kvr_fleet_next_generation(kvr_fleet_t *f);
static uint32_t kvr_fleet_spare_holder(kvr_fleet_t *f, uint32_t generation);
static kvr_rc_t kvr_fleet_copy_out(const kvr_fleet_t *f, uint32_t worker,
    void *to, size_t offset, size_t size, uint32_t *flags,
    uint32_t *generation);
static void kvr_fleet_copy_conf(kvr_fleet_t *f, kvr_worker_t *w,
    const kvr_worker_conf_t *conf);


/*
 * The maximum numbers of holders and views: some workers have several ranks,
 * and cleared views stay for a while.
 */

void
kvr_fleet_bounds(uint32_t max_workers, uint32_t *holders, uint32_t *views)
{
    *holders = kvr_min(max_workers * 2 + 64, KVR_VIEWS_MAX);
    *views = kvr_min(*holders * 2, KVR_VIEWS_MAX);
}


size_t
kvr_fleet_size(uint32_t max_workers)
{
    uint32_t  holders, views;

    kvr_fleet_bounds(max_workers, &holders, &views);

    return max_workers * sizeof(kvr_worker_t)
           + holders * sizeof(kvr_holder_t)
           + views * 2 * sizeof(uint32_t) + 4 * 64;
}


void
kvr_fleet_format(kvr_mem_t *mem, kvr_fleet_zone_t *z, uint64_t at,
    uint32_t max_workers)
{
    uint32_t       i;
    uint32_t      *views;
    kvr_worker_t  *workers;
    kvr_holder_t  *holders;

    memset(z, 0, sizeof(kvr_fleet_zone_t));

    z->max_workers = max_workers;
    kvr_fleet_bounds(max_workers, &z->max_holders, &z->max_views);

    z->off_workers = at;
    at += (max_workers * sizeof(kvr_worker_t) + 63) & ~(size_t) 63;
    z->off_holders = at;
    at += (z->max_holders * sizeof(kvr_holder_t) + 63) & ~(size_t) 63;
    z->off_views = at;
    at += (z->max_views * sizeof(uint32_t) + 63) & ~(size_t) 63;
    z->off_spans = at;

    workers = (kvr_worker_t *) (mem->base + z->off_workers);
    memset(workers, 0, max_workers * sizeof(kvr_worker_t));

    holders = (kvr_holder_t *) (mem->base + z->off_holders);
    memset(holders, 0, z->max_holders * sizeof(kvr_holder_t));

    for (i = 0; i < z->max_holders; i++) {
        holders[i].worker = UINT32_MAX;
    }

    views = (uint32_t *) (mem->base + z->off_views);

    for (i = 0; i < z->max_views; i++) {
        views[i] = UINT32_MAX;
    }

    memset(mem->base + z->off_spans, 0, z->max_views * sizeof(uint32_t));
}


void
kvr_fleet_attach(kvr_fleet_t *f, kvr_mem_t *mem, kvr_fleet_zone_t *z)
{
    f->mem = mem;
    f->zone = z;
    f->workers = (kvr_worker_t *) (mem->base + z->off_workers);
    f->holders = (kvr_holder_t *) (mem->base + z->off_holders);
    f->view_holder = (uint32_t *) (mem->base + z->off_views);
    f->view_span = (uint32_t *) (mem->base + z->off_spans);
    f->hints = NULL;
    f->hint_mask = 0;
}


void
kvr_fleet_hints(kvr_fleet_t *f, uint32_t *hints, uint32_t n)
{
    f->hints = hints;
    f->hint_mask = n - 1;
}


/* ---- workers ------------------------------------------------------------ */

kvr_rc_t
kvr_fleet_find(const kvr_fleet_t *f, const char *id, size_t len,
    uint32_t *worker)
{
    uint32_t   i, n, *hint;

    if (len == 0 || len > KVR_WORKER_ID_MAX) {
        return KVR_DECLINED;
    }

    n = kvr_min(kvr_load32(&f->zone->nworkers), f->zone->max_workers);
    hint = NULL;

    if (f->hints) {
        hint = &f->hints[kvr_hash_bytes(id, len, 0) & f->hint_mask];
        i = kvr_load32(hint);

        if (i < n && kvr_fleet_is(&f->workers[i], id, len)) {
            *worker = i;
            return KVR_OK;
        }
    }

    for (i = 0; i < n; i++) {

        if (kvr_fleet_is(&f->workers[i], id, len)) {

            if (hint) {
                kvr_put32(hint, i);
            }

            *worker = i;
            return KVR_OK;
        }
    }

    return KVR_DECLINED;
}


/* A slot's id never changes while the slot is in use. */

static bool
kvr_fleet_is(const kvr_worker_t *w, const char *id, size_t len)
{
    char  has[KVR_WORKER_ID_MAX + 1];

    if ((kvr_load32(&w->flags) & KVR_WORKER_USED) == 0) {
        return false;
    }

    kvr_copy_words(has, w->conf.id, sizeof(has) / 8);

    return memcmp(has, id, len) == 0 && has[len] == '\0';
}


kvr_rc_t
kvr_fleet_read(const kvr_fleet_t *f, uint32_t worker, kvr_worker_conf_t *conf,
    uint32_t *flags, uint32_t *generation)
{
    kvr_rc_t  rc;

    rc = kvr_fleet_copy_out(f, worker, conf, offsetof(kvr_worker_t, conf),
                            sizeof(kvr_worker_conf_t), flags, generation);
    if (rc != KVR_OK) {
        return rc;
    }

    /* make sure that both strings end, whatever was read */

    conf->id[KVR_WORKER_ID_MAX] = '\0';
    conf->address[KVR_ADDRESS_MAX] = '\0';
    conf->model[KVR_MODEL_MAX] = '\0';
    conf->lora[KVR_ADAPTERS_MAX] = '\0';

    return *flags & KVR_WORKER_USED ? KVR_OK : KVR_DECLINED;
}


kvr_rc_t
kvr_fleet_reason(const kvr_fleet_t *f, uint32_t worker, char *reason)
{
    uint32_t  flags, generation;
    kvr_rc_t  rc;

    rc = kvr_fleet_copy_out(f, worker, reason, offsetof(kvr_worker_t, reason),
                            KVR_REASON_MAX + 1, &flags, &generation);

    reason[KVR_REASON_MAX] = '\0';

    return rc;
}


/* Copies whole words of a worker, all from the same moment. */

static kvr_rc_t
kvr_fleet_copy_out(const kvr_fleet_t *f, uint32_t worker, void *to,
    size_t offset, size_t size, uint32_t *flags, uint32_t *generation)
{
    uint32_t             i, version;
    const kvr_worker_t  *w;

    if (worker >= f->zone->max_workers) {
        return KVR_DECLINED;
    }

    w = &f->workers[worker];

    for (i = 0; i < KVR_FLEET_ATTEMPTS; i++) {

        version = __atomic_load_n(&w->version, __ATOMIC_ACQUIRE);

        if (version & 1) {
            continue;
        }

        kvr_copy_words(to, (const char *) w + offset, size / 8);
        *flags = kvr_load32(&w->flags);
        *generation = kvr_load32(&w->generation);

        kvr_fence(__ATOMIC_ACQUIRE);

        if (kvr_load32(&w->version) == version) {
            return KVR_OK;
        }
    }

    return KVR_BUSY;
}


kvr_rc_t
kvr_fleet_put(kvr_fleet_t *f, const kvr_worker_conf_t *conf, uint32_t flags,
    uint32_t *worker)
{
    uint32_t       i, keep;
    kvr_worker_t  *w;

    if (kvr_fleet_find(f, conf->id, strlen(conf->id), &i) == KVR_OK) {
        w = &f->workers[i];
        keep = w->flags & (KVR_WORKER_DRAINS | KVR_WORKER_TRUNCATED
                           | KVR_WORKER_HYBRID | KVR_WORKER_REPORTS
                           | KVR_WORKER_PARTIAL);

    } else {
        i = kvr_fleet_slot(f);

        if (i == UINT32_MAX) {
            return KVR_FULL;
        }

        w = &f->workers[i];
        keep = 0;
    }

    if (conf->spec_drop && !f->zone->drops) {
        kvr_set32(f->mem, &f->zone->drops, 1);
    }

    kvr_version_lock(f->mem, &w->version);
    kvr_fleet_copy_conf(f, w, conf);
    kvr_set32(f->mem, &w->flags, KVR_WORKER_USED | flags | keep);
    kvr_version_unlock(&w->version);

    kvr_fleet_touch(f);

    *worker = i;

    return KVR_OK;
}


/*
 * The flags of a worker that is gone from Redis: nobody needs to know that it
 * was there.  Tombstones, and members that are not indexed, say something.
 */

static inline bool
kvr_fleet_is_gone(uint32_t flags)
{
    return (flags & (KVR_WORKER_DELETED | KVR_WORKER_REDIS
                     | KVR_WORKER_NOT_INDEXED))
           == (KVR_WORKER_DELETED | KVR_WORKER_REDIS);
}


/*
 * Finds a slot for a new worker: of one that is gone, or a fresh one, or, if
 * there is none, of any deleted worker; with its holders.  Requests that still
 * run there are given back to the rows from which they were taken, so the load
 * stays right.
 */

static uint32_t
kvr_fleet_slot(kvr_fleet_t *f)
{
    uint32_t       i, n, deleted;
    kvr_worker_t  *w;

    n = f->zone->nworkers;
    deleted = UINT32_MAX;

    for (i = 0; i < n && !kvr_fleet_is_gone(f->workers[i].flags); i++) {
        if (f->workers[i].flags & KVR_WORKER_DELETED && deleted == UINT32_MAX)
        {
            deleted = i;
        }
    }

    w = &f->workers[i];

    if (i == n && n < f->zone->max_workers) {
        kvr_set32(f->mem, &w->first_holder, KVR_HOLDER_NONE);
        kvr_set32(f->mem, &w->generation, kvr_fleet_next_generation(f));
        kvr_set32(f->mem, &f->zone->nworkers, n + 1);

        return n;
    }

    i = (i < n) ? i : deleted;

    if (i == UINT32_MAX) {
        return i;
    }

    kvr_fleet_renew(f, i);

    return i;
}


void
kvr_fleet_renew(kvr_fleet_t *f, uint32_t worker)
{
    uint32_t       k, h;
    kvr_worker_t  *w;

    w = &f->workers[worker];

    kvr_set32(f->mem, &w->generation, kvr_fleet_next_generation(f));
    kvr_set64(f->mem, &w->expires_ms, 0);
    kvr_fleet_set_reason(f, worker, "");

    for (k = 0; k < sizeof(kvr_worker_counters_t) / 8; k++) {
        kvr_set_word(f->mem, &w->counters, k, 0);
    }

    for (h = w->first_holder; h != KVR_HOLDER_NONE; h = f->holders[h].next) {
        kvr_set32(f->mem, &f->holders[h].generation, w->generation);
        kvr_set64(f->mem, &f->holders[h].churn, 0);
    }
}


static uint32_t
kvr_fleet_next_generation(kvr_fleet_t *f)
{
    kvr_set32(f->mem, &f->zone->generation, f->zone->generation + 1);

    return f->zone->generation;
}


bool
kvr_fleet_room(const kvr_fleet_t *f)
{
    uint32_t  i, n;

    n = kvr_load32(&f->zone->nworkers);

    for (i = 0; i < n; i++) {
        if (kvr_load32(&f->workers[i].flags) & KVR_WORKER_DELETED) {
            return true;
        }
    }

    return n < f->zone->max_workers;
}


void
kvr_fleet_forget_stream(kvr_fleet_t *f, uint32_t worker)
{
    uint32_t       k, h;
    kvr_worker_t  *w;

    w = &f->workers[worker];

    for (k = 0; k < sizeof(kvr_stream_t) / 8; k++) {
        kvr_set_word(f->mem, &w->stream, k, 0);
    }

    for (h = w->first_holder; h != KVR_HOLDER_NONE; h = f->holders[h].next) {
        kvr_set64(f->mem, &f->holders[h].event_id, 0);
    }
}


/* Copies a configuration word by word, so that the log can undo it. */

static void
kvr_fleet_copy_conf(kvr_fleet_t *f, kvr_worker_t *w,
    const kvr_worker_conf_t *conf)
{
    uint32_t           i;
    kvr_worker_conf_t  copy;

    _Static_assert(sizeof(kvr_worker_conf_t) % 8 == 0, "whole words");
    _Static_assert(offsetof(kvr_worker_t, conf) % 8 == 0, "aligned");

    copy = *conf;

    for (i = 0; i < sizeof(copy) / 8; i++) {
        kvr_set_word(f->mem, &w->conf, i, ((kvr_word_t *) &copy)[i]);
    }
}


void
kvr_fleet_set_reason(kvr_fleet_t *f, uint32_t worker, const char *reason)
{
    uint32_t       i;
    uint64_t       words[(KVR_REASON_MAX + 1) / 8];
    kvr_worker_t  *w;

    _Static_assert(sizeof(w->reason) % 8 == 0, "whole words");
    _Static_assert(offsetof(kvr_worker_t, reason) % 8 == 0, "aligned");

    w = &f->workers[worker];

    memset(words, 0, sizeof(words));
    memcpy(words, reason, strnlen(reason, KVR_REASON_MAX));

    if (memcmp(w->reason, words, sizeof(words)) == 0) {
        return;
    }

    kvr_version_lock(f->mem, &w->version);

    for (i = 0; i < sizeof(words) / 8; i++) {
        kvr_set_word(f->mem, w->reason, i, words[i]);
    }

    kvr_version_unlock(&w->version);
}


void
kvr_fleet_set_flags(kvr_fleet_t *f, uint32_t worker, uint32_t set,
    uint32_t clear)
{
    uint32_t       flags;
    kvr_worker_t  *w;

    w = &f->workers[worker];
    flags = (w->flags & ~clear) | set;

    if (flags == w->flags) {
        return;
    }

    kvr_version_lock(f->mem, &w->version);
    kvr_set32(f->mem, &w->flags, flags);
    kvr_version_unlock(&w->version);

    kvr_fleet_touch(f);
}


/* ---- holders and views -------------------------------------------------- */

kvr_rc_t
kvr_fleet_holder_find(const kvr_fleet_t *f, uint32_t worker, uint32_t rank,
    uint32_t *holder)
{
    uint32_t             h, steps;
    const kvr_holder_t  *holders;

    holders = f->holders;
    h = kvr_load32(&f->workers[worker].first_holder);

    for (steps = 0; steps < KVR_RANKS_MAX && h < f->zone->max_holders;
         steps++)
    {
        if (kvr_load32(&holders[h].rank) == rank
            && kvr_load32(&holders[h].worker) == worker)
        {
            *holder = h;
            return KVR_OK;
        }

        h = kvr_load32(&holders[h].next);
    }

    return KVR_DECLINED;
}


kvr_rc_t
kvr_fleet_holder(kvr_fleet_t *f, uint32_t worker, uint32_t rank,
    uint32_t *holder)
{
    uint32_t       e, h;
    kvr_holder_t  *p;
    kvr_worker_t  *w;

    if (rank >= KVR_RANKS_MAX) {
        return KVR_FULL;
    }

    if (kvr_fleet_holder_find(f, worker, rank, holder) == KVR_OK) {
        return KVR_OK;
    }

    w = &f->workers[worker];
    h = kvr_fleet_spare_holder(f, w->generation);

    if (h == KVR_HOLDER_NONE) {
        return KVR_FULL;
    }

    p = &f->holders[h];

    kvr_set32(f->mem, &p->worker, worker);
    kvr_set32(f->mem, &p->rank, rank);
    kvr_set32(f->mem, &p->view, KVR_VIEW_NONE);
    kvr_set32(f->mem, &p->next, w->first_holder);
    kvr_set32(f->mem, &p->generation, w->generation);
    kvr_set32(f->mem, &p->aside, KVR_VIEW_NONE);
    kvr_set32(f->mem, &p->cleared, 0);
    kvr_set32(f->mem, &p->dropped, p->dropped + 1);
    kvr_set64(f->mem, &p->event_id, 0);
    kvr_set64(f->mem, &p->churn, 0);

    for (e = 0; e < KVR_FLEET_ESTIMATES; e++) {
        kvr_set32(f->mem, &p->estimate[e], KVR_VIEW_NONE);
    }

    kvr_set32(f->mem, &w->first_holder, h);
    kvr_fleet_touch(f);

    *holder = h;

    return KVR_OK;
}


/*
 * A holder for a worker of that generation: a fresh one, or else one without
 * views that was a deleted worker's.  That worker loses all of its holders,
 * and has another generation if it comes back.  KVR_HOLDER_NONE: all are
 * taken.
 */

static uint32_t
kvr_fleet_spare_holder(kvr_fleet_t *f, uint32_t generation)
{
    uint32_t             e, h;
    kvr_worker_t        *w;
    const kvr_holder_t  *p;

    h = f->zone->nholders;

    if (h < f->zone->max_holders) {
        kvr_set32(f->mem, &f->zone->nholders, h + 1);
        return h;
    }

    for (h = 0; h < f->zone->max_holders; h++) {

        p = &f->holders[h];
        w = &f->workers[p->worker];

        if ((int32_t) (generation - p->generation) <= 0
            || p->view != KVR_VIEW_NONE || p->aside != KVR_VIEW_NONE)
        {
            continue;
        }

        for (e = 0; e < KVR_FLEET_ESTIMATES; e++) {
            if (p->estimate[e] != KVR_VIEW_NONE) {
                break;
            }
        }

        if (e < KVR_FLEET_ESTIMATES) {
            continue;
        }

        if (p->generation != w->generation) {
            return h;
        }

        if (w->flags & KVR_WORKER_DELETED) {
            kvr_set32(f->mem, &w->first_holder, KVR_HOLDER_NONE);
            kvr_set32(f->mem, &w->generation, kvr_fleet_next_generation(f));

            return h;
        }
    }

    return KVR_HOLDER_NONE;
}


/* The lowest free number: arrays indexed by view stay short. */

kvr_rc_t
kvr_fleet_view(kvr_fleet_t *f, uint32_t holder, uint32_t *view)
{
    uint32_t  v, *has;

    has = kvr_fleet_written(f, holder);

    if (*has != KVR_VIEW_NONE) {
        *view = *has;
        return KVR_OK;
    }

    for (v = 0; v < f->zone->max_views; v++) {
        if (f->view_holder[v] == UINT32_MAX) {
            break;
        }
    }

    if (v == f->zone->max_views) {
        return KVR_FULL;
    }

    /* a lookup that finds the new owner must find the version changed */

    kvr_fleet_touch(f);
    kvr_fence(__ATOMIC_RELEASE);

    kvr_set32(f->mem, &f->view_holder[v],
              holder | (f->estimate ? kvr_view_estimate(f->estimate - 1)
                                    : f->aside ? KVR_VIEW_ASIDE : 0));
    kvr_set32(f->mem, &f->view_span[v], 0);
    kvr_set32(f->mem, has, v);

    if (f->estimate) {
        kvr_set32(f->mem, &f->zone->nestimates, f->zone->nestimates + 1);

    } else if (f->aside) {
        kvr_set32(f->mem, &f->zone->naside, f->zone->naside + 1);
    }

    if (v >= f->zone->nviews) {
        kvr_set32(f->mem, &f->zone->nviews, v + 1);
    }

    *view = v;

    return KVR_OK;
}


uint32_t
kvr_fleet_drop_view(kvr_fleet_t *f, uint32_t holder)
{
    uint32_t  view, *has;

    has = kvr_fleet_written(f, holder);
    view = *has;

    if (view != KVR_VIEW_NONE) {
        kvr_set32(f->mem, &f->view_holder[view], KVR_VIEW_DYING);
        kvr_set32(f->mem, has, KVR_VIEW_NONE);
        kvr_set32(f->mem, &f->zone->ndying, f->zone->ndying + 1);

        if (f->estimate) {
            kvr_set32(f->mem, &f->zone->nestimates, f->zone->nestimates - 1);

        } else if (f->aside) {
            kvr_set32(f->mem, &f->zone->naside, f->zone->naside - 1);

        } else {
            kvr_set32(f->mem, &f->holders[holder].dropped,
                      f->holders[holder].dropped + 1);
        }
    }

    return view;
}


void
kvr_fleet_swap_view(kvr_fleet_t *f, uint32_t holder)
{
    kvr_holder_t  *h;

    h = &f->holders[holder];

    if (h->aside == KVR_VIEW_NONE) {
        return;
    }

    kvr_set32(f->mem, &f->view_holder[h->aside], holder);
    kvr_set32(f->mem, &h->view, h->aside);
    kvr_set32(f->mem, &h->dropped, h->dropped + 1);
    kvr_set32(f->mem, &h->aside, KVR_VIEW_NONE);
    kvr_set32(f->mem, &f->zone->naside, f->zone->naside - 1);
}


void
kvr_fleet_free_view(kvr_fleet_t *f, uint32_t view)
{
    kvr_set32(f->mem, &f->view_holder[view], UINT32_MAX);
    kvr_set32(f->mem, &f->zone->ndying, f->zone->ndying - 1);
}


bool
kvr_fleet_wants_snapshot(const kvr_worker_t *w)
{
    return kvr_load32(&w->stream.source) == KVR_SOURCE_ENVELOPE
           && kvr_load32(&w->stream.contiguous) == 0
           && kvr_load32(&w->stream.reason) != KVR_DEG_INCOMPLETE;
}
