/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Estimates as kvr_router.h has them: from the rings to the shards.
 */


#include "kvr_zone.h"
#include "../core/kvr_hash.h"


#define KVR_ESTIMATES_MS     1000       /* between two looks for workers whose
                                           events tell more */
#define KVR_ESTIMATES_TEXT   16         /* 1/16 of the tokens of a text may be
                                           counted otherwise by the engine */
#define KVR_ESTIMATES_SMOOTH 16         /* prompts, of a mean */


/* A slice of the work. */
typedef struct {
    kvr_router_t  *router;
    uint64_t       until;           /* kvr_now_us() */
    uint32_t       now;             /* seconds */
} kvr_estimates_t;


static kvr_rc_t kvr_estimates_apply(const kvr_estimates_t *s,
    const kvr_routed_record_t *r);
static kvr_rc_t kvr_estimates_prompt(const kvr_estimates_t *s, kvr_shard_t *k,
    uint32_t h, const kvr_routed_record_t *r);
static uint32_t kvr_estimates_extra(const kvr_shard_t *k,
    const kvr_routed_record_t *r);
static kvr_rc_t kvr_estimates_answer(kvr_shard_t *k, uint32_t h,
    const kvr_routed_record_t *r);
static kvr_rc_t kvr_estimates_restart(kvr_shard_t *k, uint32_t h,
    const kvr_routed_record_t *r);
static bool kvr_estimates_evict(const kvr_estimates_t *s, kvr_shard_t *k,
    uint32_t h);
static bool kvr_estimates_tend(const kvr_estimates_t *s, kvr_shard_t *k);
static void kvr_estimates_take_over(kvr_shard_t *k);


bool
kvr_router_estimate(kvr_router_t *k, kvr_routed_t *const *rings, uint32_t n,
    uint64_t now_ms, uint32_t slice_us)
{
    bool                 more, found;
    uint32_t             i;
    uint64_t             head, next;
    kvr_rc_t             rc;
    kvr_estimates_t      s;
    kvr_routed_record_t  r;

    if (!kvr_router_leased(k, 0)) {
        return false;
    }

    s.router = k;
    s.until = kvr_now_us() + slice_us;
    s.now = (uint32_t) (now_ms / 1000);
    more = false;

    for (i = 0; i < k->nshards; i++) {

        if (now_ms - k->estimated_ms >= KVR_ESTIMATES_MS) {
            kvr_estimates_take_over(&k->shards[i]);
        }

        if (kvr_estimates_tend(&s, &k->shards[i])) {
            more = true;
        }
    }

    if (now_ms - k->estimated_ms >= KVR_ESTIMATES_MS) {
        k->estimated_ms = now_ms;
    }

    /* one record of each ring, so that a busy one does not hold up others */

    do {
        found = false;

        for (i = 0; i < n; i++) {

            if (!kvr_routed_read(rings[i], &r, k->scratch,
                                 KVR_EVENT_BLOCKS_MAX, &head, &next))
            {
                continue;
            }

            rc = kvr_estimates_apply(&s, &r);

            if (rc == KVR_BUSY) {
                return true;            /* to be read once more */
            }

            (void) kvr_routed_advance(rings[i], head, next);
            found = true;
        }

    } while (found && kvr_now_us() < s.until);

    return more || found;
}


/* ---- records ------------------------------------------------------------ */

/* Only KVR_BUSY tells that the record was not used. */

static kvr_rc_t
kvr_estimates_apply(const kvr_estimates_t *s, const kvr_routed_record_t *r)
{
    uint32_t      h;
    kvr_shard_t  *k;

    k = &s->router->shards[r->holder % s->router->nshards];
    h = r->holder / s->router->nshards;

    switch (r->kind) {

    case KVR_ROUTED_BEGIN:
    case KVR_ROUTED_END:
        return kvr_estimates_prompt(s, k, h, r);

    case KVR_ROUTED_ANSWER:
        return kvr_estimates_answer(k, h, r);

    case KVR_ROUTED_RESTART:
        return kvr_estimates_restart(k, h, r);

    default:
        return KVR_INVALID;
    }
}


/*
 * The largest view is written first: whatever a reader sees, each view holds
 * what the smaller ones hold.
 */

static kvr_rc_t
kvr_estimates_prompt(const kvr_estimates_t *s, kvr_shard_t *k, uint32_t h,
    const kvr_routed_record_t *r)
{
    uint32_t          i, n, busy;
    uint64_t         *locals, *handles;
    kvr_rc_t          rc;
    kvr_estimated_t  *e;

    n = r->n;
    locals = s->router->scratch;
    handles = s->router->scratch + KVR_EVENT_BLOCKS_MAX;
    busy = r->kind == KVR_ROUTED_BEGIN ? s->now + KVR_ESTIMATE_BUSY : 0;

    if (n == 0) {
        return KVR_OK;
    }

    kvr_hash_sequence(locals, n, handles);

    for (i = KVR_FLEET_ESTIMATES; i-- > 0; /* void */ ) {

        do {
            rc = kvr_estimated_enter(k, h, r->generation, &e);
            if (rc != KVR_OK) {
                return rc;
            }

            rc = kvr_estimated_store(k, h, i, locals, handles, n, s->now,
                                     busy, r->text);

            if (rc == KVR_OK && r->kind == KVR_ROUTED_END) {
                kvr_recency_extra(&k->recency, &e->caches[i], e->spaces[i],
                                  handles[n - 1], kvr_estimates_extra(k, r));
            }

            kvr_shard_unlock(k);

        } while (rc == KVR_DECLINED);
    }

    (void) kvr_estimates_evict(s, k, h);

    return KVR_OK;
}


/* The blocks of an answer, with what the prompt's blocks left of its end. */

static uint32_t
kvr_estimates_extra(const kvr_shard_t *k, const kvr_routed_record_t *r)
{
    uint64_t  tokens, known;

    tokens = r->completion;
    known = (uint64_t) r->n * k->params->block_size;

    if (!r->text && r->tokens > known
        && r->tokens - known < k->params->block_size)
    {
        tokens += r->tokens - known;
    }

    return (uint32_t) kvr_min(tokens / k->params->block_size, 1u << 20);
}


static kvr_rc_t
kvr_estimates_answer(kvr_shard_t *k, uint32_t h, const kvr_routed_record_t *r)
{
    uint64_t                each, text;
    kvr_rc_t                rc;
    kvr_capacity_t          c;
    kvr_estimated_t        *e;
    kvr_capacity_sample_t   a;

    rc = kvr_estimated_enter(k, h, r->generation, &e);
    if (rc != KVR_OK) {
        return rc;
    }

    /* a prompt routed before the estimate was dropped says nothing of it */

    if (e->since_ms && r->routed_ms <= e->since_ms) {
        kvr_shard_unlock(k);
        return KVR_OK;
    }

    kvr_count(k, &e->answers, 1);
    each = 0;

    if (r->text && r->bytes >= KVR_TEXT_BLOCK && r->tokens
        && r->tokens / 4 <= r->bytes)
    {
        each = r->tokens * 1000000 / r->bytes;
        text = e->text_tokens;

        kvr_set32(&k->mem, &e->text_tokens,
                  (uint32_t) (text ? (text * (KVR_ESTIMATES_SMOOTH - 1) + each)
                                     / KVR_ESTIMATES_SMOOTH : each));
    }

    if (!r->sibling) {
        /* the prompt's own tokens by byte are known better than the mean */

        each = each ? each * KVR_TEXT_BLOCK
                    : kvr_estimated_tokens(k, h, 1000000, r->text);

        a.hot = r->hot * each / 1000000;
        a.visible = r->visible * each / 1000000;
        a.ghost = r->ghost * each / 1000000;
        a.prompt = r->tokens ? r->tokens : r->n * each / 1000000;
        a.cached = r->cached;
        a.block = kvr_max(each / 1000000, 1);
        a.slack = r->text ? 2 * a.block + a.prompt / KVR_ESTIMATES_TEXT
                          : a.block;
        a.held = kvr_estimated_held(k, h, KVR_FLEET_VISIBLE);

        c = e->capacity;

        if (kvr_capacity_learn(&c, &a)) {
            kvr_estimated_clear(k, h, KVR_ESTIMATE_RESTARTED);
        }

        kvr_estimated_set_capacity(k, h, &c);
    }

    kvr_shard_unlock(k);

    return KVR_OK;
}


static kvr_rc_t
kvr_estimates_restart(kvr_shard_t *k, uint32_t h, const kvr_routed_record_t *r)
{
    kvr_rc_t          rc;
    kvr_estimated_t  *e;

    rc = kvr_estimated_enter(k, h, r->generation, &e);

    if (rc == KVR_OK) {
        kvr_estimated_clear(k, h, KVR_ESTIMATE_RESTARTED);
        kvr_shard_unlock(k);
    }

    return rc;
}


/* ---- what has no room, or is too old, or has no reason any more --------- */

/* True: the time is over before all is evicted. */

static bool
kvr_estimates_evict(const kvr_estimates_t *s, kvr_shard_t *k, uint32_t h)
{
    bool              more;
    uint32_t          i, moves, generation;
    kvr_rc_t          rc;
    kvr_estimated_t  *e;

    generation = kvr_load32(&k->estimates[h].generation);

    for (i = 0; i < KVR_FLEET_ESTIMATES; i++) {

        moves = 0;

        do {
            if (!kvr_estimated_due(k, h, i, s->router->ttl, s->now)) {
                break;
            }

            rc = kvr_estimated_enter(k, h, generation, &e);
            if (rc != KVR_OK) {
                return rc == KVR_BUSY;
            }

            more = kvr_estimated_evict(k, h, i, s->router->ttl, s->now,
                                       &moves);
            kvr_shard_unlock(k);

            if (more && kvr_now_us() >= s->until) {
                return true;
            }

        } while (more);
    }

    return false;
}


static bool
kvr_estimates_tend(const kvr_estimates_t *s, kvr_shard_t *k)
{
    bool           more;
    uint32_t       v, h, word;
    kvr_worker_t  *w;

    more = false;

    if (kvr_load32(&k->zone->recency.garbage)
        && kvr_shard_lock(k, 0) == KVR_OK)
    {
        more = kvr_recency_sweep(&k->recency);
        kvr_shard_unlock(k);
    }

    if (kvr_load32(&k->zone->fleet.nestimates) == 0) {
        return more;
    }

    for (v = 0; v < kvr_load32(&k->zone->fleet.nviews); v++) {

        word = kvr_load32(&k->fleet.view_holder[v]);
        h = word & KVR_VIEW_HOLDER;

        if (!kvr_view_is_estimate(word)
            || kvr_view_estimate_of(word) != KVR_FLEET_GHOST
            || h >= k->zone->fleet.nholders)
        {
            continue;
        }

        w = &k->fleet.workers[kvr_load32(&k->fleet.holders[h].worker)];

        if (kvr_fleet_estimated(w)) {

            more |= kvr_estimates_evict(s, k, h);

        } else if (kvr_shard_lock(k, 0) == KVR_OK) {

            if (!kvr_fleet_estimated(w)) {
                kvr_estimated_sync(k, h);
                kvr_estimated_clear(k, h, KVR_ESTIMATE_EVENTS);
            }

            kvr_shard_unlock(k);
        }
    }

    return more;
}


/* Workers of which events tell all by now are not estimated again. */

static void
kvr_estimates_take_over(kvr_shard_t *k)
{
    uint32_t       i;
    kvr_worker_t  *w;

    for (i = 0; i < kvr_load32(&k->zone->fleet.nworkers); i++) {

        w = &k->fleet.workers[i];

        if (kvr_load32(&w->conf.events_off) == 0
            || (kvr_load32(&w->flags) & (KVR_WORKER_EVENTS
                                         | KVR_WORKER_DELETED))
            || kvr_fleet_estimated(w)
            || kvr_shard_lock(k, 0) != KVR_OK)
        {
            continue;
        }

        if (w->conf.events_off && !kvr_fleet_estimated(w)
            && (w->flags & KVR_WORKER_DELETED) == 0)
        {
            kvr_fleet_set_flags(&k->fleet, i, KVR_WORKER_EVENTS, 0);
        }

        kvr_shard_unlock(k);
    }
}


/* ---- for any process ---------------------------------------------------- */

kvr_rc_t
kvr_router_estimate_capacity(kvr_router_t *k, uint32_t worker, uint64_t tokens,
    kvr_capacity_source_t source)
{
    uint32_t         w, h;
    kvr_rc_t         rc;
    kvr_shard_t     *shard;
    kvr_capacity_t   c;

    shard = &k->shards[worker % k->nshards];
    w = worker / k->nshards;

    rc = kvr_shard_lock(shard, KVR_LOCK_MS);
    if (rc != KVR_OK) {
        return rc;
    }

    if (w >= shard->zone->fleet.nworkers
        || (shard->fleet.workers[w].flags
            & (KVR_WORKER_USED | KVR_WORKER_DELETED)) != KVR_WORKER_USED)
    {
        kvr_shard_unlock(shard);
        return KVR_DECLINED;
    }

    for (h = shard->fleet.workers[w].first_holder; h != KVR_HOLDER_NONE;
         h = shard->fleet.holders[h].next)
    {
        kvr_estimated_sync(shard, h);
        c = shard->estimates[h].capacity;

        if (kvr_capacity_set(&c, tokens, source)) {
            kvr_estimated_set_capacity(shard, h, &c);
            kvr_txn_commit(&shard->mem);
        }
    }

    kvr_shard_unlock(shard);

    return KVR_OK;
}


kvr_rc_t
kvr_router_estimate_read(const kvr_router_t *k, uint32_t holder,
    kvr_estimate_info_t *out)
{
    uint32_t                i, h, w;
    kvr_shard_t            *s;
    const kvr_estimated_t  *e;

    s = &k->shards[holder % k->nshards];
    h = holder / k->nshards;

    if (h >= kvr_load32(&s->zone->fleet.nholders)) {
        return KVR_DECLINED;
    }

    e = &s->estimates[h];
    w = kvr_load32(&s->fleet.holders[h].worker);

    if (w >= s->zone->fleet.max_workers || kvr_load32(&e->generation) == 0
        || kvr_load32(&e->generation)
           != kvr_load32(&s->fleet.workers[w].generation))
    {
        return KVR_DECLINED;
    }

    out->capacity = kvr_load64(&e->capacity.tokens);
    out->source = kvr_load32(&e->capacity.source);
    out->grown = kvr_load64(&e->capacity.grown);
    out->shrunk = kvr_load64(&e->capacity.shrunk);
    out->answers = kvr_load64(&e->answers);
    out->refused = kvr_load64(&e->refused);
    out->ends = kvr_load32(&e->caches[KVR_FLEET_VISIBLE].ends);
    out->held = kvr_estimated_held(s, h, KVR_FLEET_VISIBLE);
    out->ghosts = kvr_estimated_held(s, h, KVR_FLEET_GHOST);
    out->ghosts -= kvr_min(out->held, out->ghosts);
    out->text_tokens = kvr_load32(&e->text_tokens);

    if (out->text_tokens == 0) {
        out->text_tokens = KVR_ESTIMATE_TEXT;
    }

    for (i = 0; i < KVR_ESTIMATE_WHYS; i++) {
        out->cleared[i] = kvr_load64(&e->cleared[i]);
    }

    return KVR_OK;
}


uint32_t
kvr_router_estimate_blocks(const kvr_router_t *k, uint32_t holder,
    uint32_t text_blocks)
{
    return (uint32_t) (kvr_estimated_tokens(&k->shards[holder % k->nshards],
                                            holder / k->nshards, text_blocks,
                                            true)
                       / k->zone->params.block_size);
}


const char *
kvr_estimate_why_name(uint32_t why)
{
    static const char  *names[] = {
        "restarted", "events", "asked", "full", "died"
    };

    return why < KVR_ESTIMATE_WHYS ? names[why] : "unknown";
}
