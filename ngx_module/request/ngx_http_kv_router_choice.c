
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The choice: what the policy chose is kept, a worker is reserved, and the
 * decision is counted and told.
 */


#include "ngx_http_kv_router_route.h"


static ngx_int_t ngx_http_kv_router_choice_keep(ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_choice_t *choice);
static ngx_int_t ngx_http_kv_router_choice_order(ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_choice_t *choice);
static void ngx_http_kv_router_choice_count(ngx_http_kv_router_ctx_t *ctx);
static void ngx_http_kv_router_choice_compare(ngx_http_kv_router_ctx_t *ctx);
static uint64_t ngx_http_kv_router_mean(uint64_t sum, uint64_t n);
static uint32_t ngx_http_kv_router_take(ngx_http_kv_router_ctx_t *ctx,
    uint32_t i);
static void ngx_http_kv_router_mark_tried(ngx_http_kv_router_ctx_t *ctx,
    ngx_uint_t tried);


int
ngx_http_kv_router_ffi_reserve(ngx_http_request_t *r, void *zone,
    const ngx_http_kv_router_choice_t *choice, char **err)
{
    uint32_t                   i;
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->found.matched) {
        *err = "there was no match for this request";
        return NGX_ERROR;
    }

    if (ctx->choice.dry) {
        *err = "the match is only to be explained";
        return NGX_ERROR;
    }

    i = choice->norder ? choice->order[0] : UINT32_MAX;

    if (i >= ctx->found.match.n) {
        *err = "no such candidate";
        return NGX_ERROR;
    }

    ngx_http_kv_router_choice_drop(ctx);
    ngx_http_kv_router_ctx_reset(ctx);

    if (ngx_http_kv_router_choice_keep(ctx, choice) != NGX_OK
        || ngx_http_kv_router_choice_order(ctx, choice) != NGX_OK)
    {
        *err = "no memory";
        return NGX_ERROR;
    }

    i = ngx_http_kv_router_queue_enter(ctx, i) == NGX_OK
        ? ngx_http_kv_router_admit(ctx, i) : UINT32_MAX;

    if (i == UINT32_MAX) {

        ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "kv_router reservation: no worker has room");

        ngx_http_kv_router_attempt_drop(ctx);

        *err = "all workers are full by now";
        return NGX_BUSY;
    }

    ctx->choice.reserved = 1;

    ngx_http_kv_router_queue_kept(ctx);

    if (ctx->rank_sent || ngx_http_kv_router_ranks(ctx, i)) {
        ctx->try.rank = ctx->choice.chosen->rank;
    }

    ngx_http_kv_router_choice_count(ctx);
    ngx_http_kv_router_decided(ctx);

    return NGX_OK;
}


void
ngx_http_kv_router_choice_drop(ngx_http_kv_router_ctx_t *ctx)
{
    ngx_http_kv_router_attempt_forget(ctx);
    ngx_http_kv_router_uncharge(ctx, &ctx->choice.reservation);
    ngx_http_kv_router_estimate_end(ctx);
    ngx_http_kv_router_prefill_ended(ctx, NGX_HTTP_KV_ROUTER_ABORTED);
}


/* The words of the policy, and when it said them. */

static ngx_int_t
ngx_http_kv_router_choice_keep(ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_choice_t *choice)
{
    ngx_pool_t  *pool;

    pool = ctx->request->pool;

    if (ngx_http_kv_router_copy_str(pool, &ctx->choice.policy, choice->policy,
                                    choice->policy_len)
        != NGX_OK
        || ngx_http_kv_router_copy_str(pool, &ctx->choice.reason,
                                       choice->reason, choice->reason_len)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_kv_router_plain(&ctx->choice.reason);

    ctx->choice.why = choice->why;
    ctx->choice.us = choice->us;

    ctx->times.decided_us = ngx_http_kv_router_now_us();
    ctx->times.first_byte_us = 0;
    ctx->times.routed_ms = ngx_current_msec;

    kvr_answer_init(&ctx->answer.search, ctx->prompt.form);

    return NGX_OK;
}


/* The candidates in the order in which they are tried. */

static ngx_int_t
ngx_http_kv_router_choice_order(ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_choice_t *choice)
{
    uint32_t                         k, n;
    ngx_pool_t                      *pool;
    ngx_http_kv_router_candidate_t  *c, *first;

    pool = ctx->request->pool;
    n = ngx_min(choice->norder - 1, ctx->found.match.n);

    ctx->try.tried = ngx_pcalloc(pool, ctx->found.ncandidates);
    ctx->choice.ranked = n ? ngx_palloc(pool, n * sizeof(uint32_t)) : NULL;

    if (ctx->try.tried == NULL || (n && ctx->choice.ranked == NULL)) {
        return NGX_ERROR;
    }

    if (n) {
        ngx_memcpy(ctx->choice.ranked, &choice->order[1],
                   n * sizeof(uint32_t));
        ctx->choice.nranked = n;
    }

    /* a worker that only prefills must not get a retry of a decode request */

    c = ctx->found.candidates;
    first = &c[choice->order[0]];

    for (k = 0; k < ctx->found.ncandidates; k++) {
        ctx->try.tried[k] = c[k].role == KVR_ROLE_PREFILL
                            && first->role != KVR_ROLE_PREFILL;
    }

    ngx_log_debug7(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router policy \"%V\" chose worker \"%*s\" rank %uD "
                   "because of %s: \"%V\", %uD others ranked",
                   &ctx->choice.policy, (size_t) first->worker_len,
                   first->worker, first->rank,
                   ngx_http_kv_router_why_name(choice->why),
                   &ctx->choice.reason, n);

    return NGX_OK;
}


static void
ngx_http_kv_router_choice_count(ngx_http_kv_router_ctx_t *ctx)
{
    ngx_http_kv_router_shctx_t      *sh;
    ngx_http_kv_router_candidate_t  *c;

    sh = ctx->zone->run.sh;
    c = ctx->choice.chosen;

    ngx_http_kv_router_count(sh, REQUESTS, 1);
    (void) ngx_atomic_fetch_add(&sh->by_rung[ctx->keys.rung], 1);
    ngx_http_kv_router_count(sh, PROMPT_BLOCKS,
                             ctx->found.match.prompt_blocks);
    ngx_http_kv_router_count(sh, OVERLAP_BLOCKS, c->device - c->predicted);
    ngx_http_kv_router_count(sh, BEST_BLOCKS, ctx->found.best);
    ngx_http_kv_router_choice_compare(ctx);
    kvr_histogram_add(&sh->times[KVR_TIME_DECIDE], KVR_TIME_DECIDE,
                      (int64_t) ctx->choice.us);
    ngx_http_kv_router_count_reason(ctx);

    if (ctx->choice.why < NGX_HTTP_KV_ROUTER_REASONS) {
        (void) ngx_atomic_fetch_add(&sh->by_reason[ctx->choice.why], 1);
    }

    if (ctx->choice.why == NGX_HTTP_KV_ROUTER_POLICY_ERROR) {
        ngx_http_kv_router_count(sh, POLICY_ERRORS, 1);
    }
}


/*
 * Counts what other choices would have found: a random candidate the mean of
 * all, the least loaded one the mean of those with the fewest requests.
 */

static void
ngx_http_kv_router_choice_compare(ngx_http_kv_router_ctx_t *ctx)
{
    double                           fewest;
    uint32_t                         i, had;
    uint64_t                         n, sum, nleast, least;
    ngx_http_kv_router_shctx_t      *sh;
    ngx_http_kv_router_candidate_t  *c;

    n = sum = nleast = least = 0;
    fewest = 0;

    for (i = 0; i < ctx->found.match.n; i++) {
        c = &ctx->found.candidates[i];

        /* the other half of a pair: this request could not go there */

        if ((c->role == KVR_ROLE_PREFILL)
            != (ctx->choice.chosen->role == KVR_ROLE_PREFILL))
        {
            continue;
        }

        had = c->device - c->predicted;
        n++;
        sum += had;

        if (nleast == 0 || c->active_requests < fewest) {
            fewest = c->active_requests;
            nleast = least = 0;
        }

        if (c->active_requests == fewest) {
            nleast++;
            least += had;
        }
    }

    sh = ctx->zone->run.sh;

    ngx_http_kv_router_count(sh, RANDOM_BLOCKS,
                             ngx_http_kv_router_mean(sum, n));
    ngx_http_kv_router_count(sh, LEAST_LOADED_BLOCKS,
                             ngx_http_kv_router_mean(least, nleast));
}


/* The mean as a whole number, rounded by chance, so that sums are right. */

static uint64_t
ngx_http_kv_router_mean(uint64_t sum, uint64_t n)
{
    if (n == 0) {
        return 0;
    }

    return sum / n + ((uint64_t) ngx_random() % n < sum % n);
}


/* ---- the worker --------------------------------------------------------- */

/* A request that has a reservation is one of the zone's already. */

uint32_t
ngx_http_kv_router_admit(ngx_http_kv_router_ctx_t *ctx, uint32_t i)
{
    uint32_t  chosen;

    ngx_http_kv_router_weigh(ctx);

    for ( ;; ) {

        ngx_http_kv_router_bound_begin(ctx);

        if (ctx->choice.reservation.holder == KVR_HOLDER_NONE
            && ngx_http_kv_router_zone_full(ctx))
        {
            chosen = UINT32_MAX;

        } else {
            chosen = ngx_http_kv_router_take(ctx, i);
        }

        if (chosen != UINT32_MAX) {
            ngx_http_kv_router_go(ctx, chosen);
        }

        if (ngx_http_kv_router_bound_end(ctx) == NGX_OK
            || chosen == UINT32_MAX)
        {
            return chosen;
        }

        ngx_http_kv_router_uncharge(ctx, &ctx->choice.reservation);
        ngx_http_kv_router_mark_tried(ctx, 0);
    }
}


/*
 * Finds the next candidate that was not tried and is healthy now: in the
 * policy's order, then by overlap and load.  UINT32_MAX: there is none.  If
 * anyhow is set, unhealthy candidates count, too.
 */

static uint32_t
ngx_http_kv_router_best_left(ngx_http_kv_router_ctx_t *ctx, ngx_uint_t anyhow)
{
    uint32_t                         i, k, best;
    ngx_http_kv_router_candidate_t  *c;

    for (k = 0; k < ctx->choice.nranked; k++) {
        i = ctx->choice.ranked[k];

        if (i < ctx->found.match.n && !ctx->try.tried[i]
            && ngx_http_kv_router_attempt_usable(ctx, i, anyhow)
            && !ngx_http_kv_router_worker_full(ctx, i))
        {
            return i;
        }
    }

    best = UINT32_MAX;

    for (i = 0; i < ctx->found.ncandidates; i++) {

        c = &ctx->found.candidates[i];

        if (ctx->try.tried[i]
            || !ngx_http_kv_router_attempt_usable(ctx, i, anyhow)
            || ngx_http_kv_router_worker_full(ctx, i))
        {
            continue;
        }

        if (best == UINT32_MAX
            || c->device > ctx->found.candidates[best].device
            || (c->device == ctx->found.candidates[best].device
                && c->active_requests
                   < ctx->found.candidates[best].active_requests))
        {
            best = i;
        }
    }

    return best;
}


/*
 * Gives the request to candidate i, or, if i is not usable or UINT32_MAX, to
 * the next best one, and returns its number.  Unusable candidates come last
 * and are tried all the same.  If none is left, returns i, or UINT32_MAX if i
 * is full.
 */

static uint32_t
ngx_http_kv_router_take(ngx_http_kv_router_ctx_t *ctx, uint32_t i)
{
    uint32_t  next, n;

    if (i != UINT32_MAX && ngx_http_kv_router_worker_full(ctx, i)) {
        i = UINT32_MAX;
    }

    next = i;

    for (n = 0; n <= ctx->found.ncandidates; n++) {

        if (next == UINT32_MAX) {
            next = ngx_http_kv_router_best_left(ctx, 0);
        }

        if (next == UINT32_MAX) {
            break;
        }

        if (ngx_http_kv_router_attempt_take(ctx, next, 0) == NGX_OK) {
            return next;
        }

        /* the worker failed meanwhile, or another request probes it */

        next = UINT32_MAX;
    }

    next = i;

    if (i == UINT32_MAX || !ngx_http_kv_router_attempt_usable(ctx, i, 1)) {
        next = ngx_http_kv_router_best_left(ctx, 1);
    }

    if (next != UINT32_MAX) {
        (void) ngx_http_kv_router_attempt_take(ctx, next, 1);
        return next;
    }

    return i;
}


/* Moves the reservation of the request, and its load, to candidate i. */

void
ngx_http_kv_router_go(ngx_http_kv_router_ctx_t *ctx, uint32_t i)
{
    ngx_http_kv_router_uncharge(ctx, &ctx->choice.reservation);
    ngx_http_kv_router_charge(ctx, &ctx->choice.reservation, i);

    ctx->choice.chosen = &ctx->found.candidates[i];

    if (ctx->prompt.reports
        && kvr_router_mark(&ctx->zone->run.router,
                           kvr_router_holder_worker(
                               &ctx->zone->run.router,
                               ctx->choice.chosen->holder),
                           KVR_WORKER_REPORTS, 0)
           == KVR_BUSY)
    {
        ngx_http_kv_router_warn(ctx->zone, NGX_LOG_WARN,
                                ctx->request->connection->log,
                                "the zone is busy, so the view of worker "
                                "\"%*s\" is not marked as an upper bound, "
                                "though this request asks for full reports",
                                (size_t) ctx->choice.chosen->worker_len,
                                ctx->choice.chosen->worker);
    }

    /* if a worker fails, all its ranks fail: none of them is tried again */

    ngx_http_kv_router_mark_tried(ctx, 1);
}


static void
ngx_http_kv_router_mark_tried(ngx_http_kv_router_ctx_t *ctx, ngx_uint_t tried)
{
    uint32_t  k;

    for (k = 0; k < ctx->found.ncandidates; k++) {
        if (ctx->found.candidates[k].worker == ctx->choice.chosen->worker) {
            ctx->try.tried[k] = tried;
        }
    }
}


/* ---- no choice ---------------------------------------------------------- */

void
ngx_http_kv_router_ffi_refused(void *data, uint32_t why)
{
    ngx_http_kv_router_zone_t *zone = data;

    if (why < NGX_HTTP_KV_ROUTER_REASONS) {
        (void) ngx_atomic_fetch_add(&zone->run.sh->by_reason[why], 1);
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\": a request is refused: %s",
                   &zone->conf.name, ngx_http_kv_router_why_name(why));
}


void
ngx_http_kv_router_ffi_policy_slow(void *data)
{
    ngx_http_kv_router_zone_t *zone = data;

    ngx_http_kv_router_count(zone->run.sh, POLICY_SLOW, 1);
}


int
ngx_http_kv_router_ffi_reserved(ngx_http_request_t *r, void *zone)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    return ctx && ctx->zone == zone && ctx->choice.reserved ? NGX_OK
                                                            : NGX_DECLINED;
}
