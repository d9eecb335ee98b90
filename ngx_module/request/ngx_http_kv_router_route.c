
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A request's decision, its tries at engines, its end.
 */


#include "ngx_http_kv_router_route.h"


static void ngx_http_kv_router_route_release(ngx_http_kv_router_ctx_t *ctx);

static uint32_t ngx_http_kv_router_best_left(ngx_http_kv_router_ctx_t *ctx,
    ngx_uint_t anyhow);
static uint32_t ngx_http_kv_router_take(ngx_http_kv_router_ctx_t *ctx,
    uint32_t i);
static void ngx_http_kv_router_go(ngx_http_kv_router_ctx_t *ctx, uint32_t i);
static void ngx_http_kv_router_mark_tried(ngx_http_kv_router_ctx_t *ctx,
    ngx_uint_t tried);
static uint32_t ngx_http_kv_router_admit(ngx_http_kv_router_ctx_t *ctx,
    uint32_t i);

static ngx_int_t ngx_http_kv_router_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_kv_router_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt  ngx_http_next_body_filter;


/* ---- the decision ------------------------------------------------------- */

ngx_int_t
ngx_http_kv_router_copy_str(ngx_pool_t *pool, ngx_str_t *to,
    const u_char *data, size_t len)
{
    to->len = 0;
    to->data = ngx_pnalloc(pool, len + 1);

    if (to->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(to->data, data, len);
    to->len = len;

    return NGX_OK;
}


/* Moves the reservation of the request, and its load, to candidate i. */

static void
ngx_http_kv_router_go(ngx_http_kv_router_ctx_t *ctx, uint32_t i)
{
    ngx_http_kv_router_uncharge(ctx, &ctx->choice.reservation);
    ngx_http_kv_router_charge(ctx, &ctx->choice.reservation, i);

    ctx->choice.chosen = &ctx->found.candidates[i];

    if (ctx->prompt.reports
        && kvr_router_mark(&ctx->zone->router,
                           kvr_router_holder_worker(
                               &ctx->zone->router, ctx->choice.chosen->holder),
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


/*
 * Reserves for the request where the maximum numbers allow it: candidate i,
 * or the next one, as ngx_http_kv_router_take() has it.  UINT32_MAX: there is
 * no room.  A request that has a reservation is one of the zone's already.
 */

static uint32_t
ngx_http_kv_router_admit(ngx_http_kv_router_ctx_t *ctx, uint32_t i)
{
    uint32_t  chosen;

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


int
ngx_http_kv_router_ffi_reserve(ngx_http_request_t *r, void *zone,
    const ngx_http_kv_router_choice_t *choice, char **err)
{
    size_t                           n;
    u_char                          *p;
    uint32_t                         i, k, chosen;
    ngx_http_kv_router_ctx_t        *ctx;
    ngx_http_kv_router_shctx_t      *sh;
    ngx_http_kv_router_candidate_t  *c;

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

    ctx->try.tried = ngx_pcalloc(r->pool, ctx->found.ncandidates);
    ctx->choice.ranked = NULL;
    ctx->choice.nranked = 0;
    ctx->try.rank = UINT32_MAX;

    if (ctx->try.tried == NULL
        || ngx_http_kv_router_copy_str(r->pool, &ctx->choice.policy,
                                       choice->policy, choice->policy_len)
           != NGX_OK
        || ngx_http_kv_router_copy_str(r->pool, &ctx->choice.reason,
                                       choice->reason, choice->reason_len)
           != NGX_OK)
    {
        *err = "no memory";
        return NGX_ERROR;
    }

    if (choice->norder > 1) {
        n = ngx_min(choice->norder - 1, ctx->found.match.n);

        ctx->choice.ranked = ngx_palloc(r->pool, n * sizeof(uint32_t));
        if (ctx->choice.ranked == NULL) {
            *err = "no memory";
            return NGX_ERROR;
        }

        ngx_memcpy(ctx->choice.ranked, &choice->order[1],
                   n * sizeof(uint32_t));
        ctx->choice.nranked = n;
    }

    /* the reason may be sent in a header: control characters become spaces */

    p = ctx->choice.reason.data;

    for (n = 0; n < ctx->choice.reason.len; n++) {
        if (p[n] < 0x20 || p[n] == 0x7f) {
            p[n] = ' ';
        }
    }

    /* a worker that only prefills must not get a retry of a decode request */

    c = ctx->found.candidates;

    for (k = 0; k < ctx->found.ncandidates; k++) {
        ctx->try.tried[k] = c[k].role == KVR_ROLE_PREFILL
                            && c[i].role != KVR_ROLE_PREFILL;
    }

    ngx_http_kv_router_prefill_ended(ctx, NGX_HTTP_KV_ROUTER_ABORTED);

    ctx->choice.prefiller = NULL;
    ctx->choice.why = choice->why;

    ngx_log_debug7(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kv_router policy \"%V\" chose worker \"%*s\" rank %uD "
                   "because of %s: \"%V\", %uD others ranked",
                   &ctx->choice.policy, (size_t) c[i].worker_len, c[i].worker,
                   c[i].rank, ngx_http_kv_router_why_name(choice->why),
                   &ctx->choice.reason, ctx->choice.nranked);

    ctx->choice.us = choice->us;
    ctx->times.decided_us = ngx_http_kv_router_now_us();
    ctx->times.first_byte_us = 0;
    ctx->answer.output_tokens = 0;
    ctx->answer.line_end = 0;
    ctx->answer.cached_tokens = -1;
    ctx->answer.usage_done = 0;
    ctx->answer.usage_tokens = 0;
    ctx->times.routed_ms = ngx_current_msec;
    ctx->answer.encoded = 0;
    kvr_answer_init(&ctx->answer.search, ctx->prompt.form);

    ctx->try.tries = 0;
    ctx->try.stale = 0;
    ctx->try.again = 0;

    ngx_http_kv_router_uncharge(ctx, &ctx->choice.reservation);
    chosen = ngx_http_kv_router_admit(ctx, i);

    if (chosen == UINT32_MAX) {

        ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "kv_router reservation: no worker has room");

        ngx_http_kv_router_attempt_drop(ctx);
        ctx->choice.reserved = 0;

        *err = "all workers have their max_active requests by now";
        return NGX_BUSY;
    }

    ctx->choice.reserved = 1;

    if (ctx->rank_sent
        || ngx_http_kv_router_ranks(ctx, ctx->choice.chosen
                                         - ctx->found.candidates))
    {
        ctx->try.rank = ctx->choice.chosen->rank;
    }

    sh = ctx->zone->sh;

    ngx_http_kv_router_count(sh, REQUESTS, 1);
    (void) ngx_atomic_fetch_add(&sh->by_rung[ctx->keys.rung], 1);
    ngx_http_kv_router_count(sh, PROMPT_BLOCKS,
                             ctx->found.match.prompt_blocks);
    ngx_http_kv_router_count(sh, OVERLAP_BLOCKS,
                             ctx->choice.chosen->device
                             - ctx->choice.chosen->predicted);
    ngx_http_kv_router_count(sh, BEST_BLOCKS, ctx->found.best);
    kvr_histogram_add(&sh->times[KVR_TIME_DECIDE], KVR_TIME_DECIDE,
                      (int64_t) choice->us);
    ngx_http_kv_router_count_reason(ctx);
    ngx_http_kv_router_decided(ctx);

    if (choice->why < NGX_HTTP_KV_ROUTER_REASONS) {
        (void) ngx_atomic_fetch_add(&sh->by_reason[choice->why], 1);
    }

    if (choice->why == NGX_HTTP_KV_ROUTER_POLICY_ERROR) {
        ngx_http_kv_router_count(sh, POLICY_ERRORS, 1);
    }

    return NGX_OK;
}


void
ngx_http_kv_router_ffi_refused(void *data, uint32_t why)
{
    ngx_http_kv_router_zone_t *zone = data;

    if (why < NGX_HTTP_KV_ROUTER_REASONS) {
        (void) ngx_atomic_fetch_add(&zone->sh->by_reason[why], 1);
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\": a request is refused: %s",
                   &zone->name, ngx_http_kv_router_why_name(why));
}


void
ngx_http_kv_router_ffi_policy_slow(void *data)
{
    ngx_http_kv_router_zone_t *zone = data;

    ngx_http_kv_router_count(zone->sh, POLICY_SLOW, 1);
}


int
ngx_http_kv_router_ffi_reserved(ngx_http_request_t *r, void *zone)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    return ctx && ctx->zone == zone && ctx->choice.reserved ? NGX_OK
                                                            : NGX_DECLINED;
}


/* ---- the balancer ------------------------------------------------------- */

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


int
ngx_http_kv_router_ffi_peer(ngx_http_request_t *r, void *zone,
    const char **host, size_t *host_len, uint32_t *port, uint32_t *left,
    char **err)
{
    uint32_t                      i, n;
    ngx_http_kv_router_ctx_t     *ctx;
    ngx_http_kv_router_holder_t  *h;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->choice.reserved) {
        *err = "the request was not routed in its access phase: write "
               "access_by_lua_block { router:access() } into its location";
        return NGX_DECLINED;
    }

    /*
     * if an internal redirect leads back to an engine, the balancer makes a
     * first try for a request that was tried before.  Such a try, too, takes
     * the next candidate.
     */

    if (ctx->try.again) {
        ctx->try.again = 0;

        ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "kv_router retry: the same worker, whose connection "
                       "was closed");

        i = ctx->choice.chosen - ctx->found.candidates;

        (void) ngx_http_kv_router_attempt_take(ctx, i, 1);
        ngx_http_kv_router_go(ctx, i);

    } else if (ctx->try.tries) {

        ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "kv_router retry: the next worker");

        i = ngx_http_kv_router_admit(ctx, UINT32_MAX);

        if (i == UINT32_MAX) {
            ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                           "kv_router retry: no worker is left");

        } else {
            ctx->choice.why = NGX_HTTP_KV_ROUTER_RETRY;

            ngx_http_kv_router_count(ctx->zone->sh, RETRIES, 1);
            (void) ngx_atomic_fetch_add(
                       &ctx->zone->sh->by_reason[NGX_HTTP_KV_ROUTER_RETRY], 1);
        }

    } else {
        i = 0;
    }

    if (i == UINT32_MAX) {
        *err = "no worker is left to try";
        return NGX_DECLINED;
    }

    if (ngx_http_kv_router_tell_rank(r, ctx) != NGX_OK) {
        *err = "no memory";
        return NGX_DECLINED;
    }

    if (ngx_http_kv_router_attempt_begin(r, ctx) != NGX_OK) {
        *err = "its upstream was made before it was routed";
        return NGX_DECLINED;
    }

    ctx->try.tries++;

    h = ngx_http_kv_router_holder(ctx, ctx->choice.chosen);

    *host = (char *) h->host.data;
    *host_len = h->host.len;
    *port = h->port;

    n = 0;

    for (i = 0; i < ctx->found.ncandidates; i++) {
        n += !ctx->try.tried[i];
    }

    *left = n;

    ngx_log_debug5(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kv_router peer: worker \"%V\" rank %uD at \"%V\", "
                   "try %ui, %uD candidates left",
                   &h->id, h->rank, &h->address, ctx->try.tries, n);

    return NGX_OK;
}


/* ---- the end ------------------------------------------------------------ */

int
ngx_http_kv_router_ffi_outcome(ngx_http_request_t *r, void *zone,
    ngx_http_kv_router_outcome_t *out)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->choice.reserved) {
        return NGX_DECLINED;
    }

    out->holder = ctx->choice.chosen->holder;
    out->rank = ctx->choice.chosen->rank;
    out->tries = ctx->try.tries;
    out->status = r->err_status ? r->err_status : r->headers_out.status;
    out->first_byte_us = ctx->times.first_byte_us
                         ? ctx->times.first_byte_us - ctx->times.decided_us
                         : -1;
    out->total_us = ngx_http_kv_router_now_us() - ctx->times.decided_us;
    out->worker_len = ctx->choice.chosen->worker_len;
    out->worker = ctx->choice.chosen->worker;

    return NGX_OK;
}


/*
 * After all tries, the answer comes from nginx's error page or from another
 * location, not from a worker.
 */

static ngx_int_t
ngx_http_kv_router_header_filter(ngx_http_request_t *r)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = (r == r->main) ? ngx_http_kv_router_get_ctx(r) : NULL;

    if (ctx && ctx->choice.reserved && ctx->try.tries && !ctx->try.taken) {
        ngx_http_kv_router_uncharge(ctx, &ctx->choice.reservation);
        ngx_http_kv_router_prefill_ended(ctx, NGX_HTTP_KV_ROUTER_ABORTED);
    }

    /* later, nginx's own gzip filter sets the header, too */

    if (ctx && ctx->choice.reserved && r->headers_out.content_encoding
        && r->headers_out.content_encoding->value.len)
    {
        ctx->answer.encoded = 1;
    }

    return ngx_http_next_header_filter(r);
}


/*
 * The first byte of an answer ends the prefill.  The last byte ends the
 * request's load at the engine, although the client may still be receiving.
 */

static ngx_int_t
ngx_http_kv_router_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_str_t                 *type;
    ngx_uint_t                 streamed;
    ngx_chain_t               *cl;
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = in && r == r->main && r->upstream ? ngx_http_kv_router_get_ctx(r)
                                            : NULL;

    if (ctx == NULL || !ctx->choice.reserved) {
        return ngx_http_next_body_filter(r, in);
    }

    type = &r->headers_out.content_type;

    streamed = type->len >= sizeof("text/event-stream") - 1
               && ngx_strncasecmp(type->data, (u_char *) "text/event-stream",
                                  sizeof("text/event-stream") - 1)
                  == 0;

    for (cl = in; cl; cl = cl->next) {

        if (ctx->times.first_byte_us == 0 && ngx_buf_size(cl->buf) > 0) {
            ctx->times.first_byte_us = ngx_http_kv_router_now_us();

            ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                           "kv_router first byte, %uL us after the decision",
                           (uint64_t) (ctx->times.first_byte_us
                                       - ctx->times.decided_us));

            ngx_http_kv_router_decided_first_byte(ctx);

            if (streamed) {
                ngx_http_kv_router_speed_answer(r, ctx);
            }

            if (ngx_http_kv_router_attempt_answered(ctx) == NGX_OK) {
                ngx_http_kv_router_echo(ctx);
                ngx_http_kv_router_estimate_begin(ctx);
                ngx_http_kv_router_prefill_ended(ctx,
                                                 NGX_HTTP_KV_ROUTER_DONE);
            }

            kvr_load_prefilled(&ctx->zone->router.load,
                               &ctx->choice.reservation, ngx_current_msec);
            ngx_http_kv_router_prefill_ended(ctx, NGX_HTTP_KV_ROUTER_ABORTED);
        }

        if (streamed && ngx_buf_in_memory(cl->buf)) {
            ngx_http_kv_router_streamed(ctx, cl->buf);
        }

        ngx_http_kv_router_usage(r, ctx, cl->buf);

        if (cl->buf->last_buf) {
            ngx_http_kv_router_uncharge(ctx, &ctx->choice.reservation);
            ngx_http_kv_router_estimate_end(ctx);
        }
    }

    return ngx_http_next_body_filter(r, in);
}


/* Gives back all reservations of a request when its context ends. */

static void
ngx_http_kv_router_route_release(ngx_http_kv_router_ctx_t *ctx)
{
    ngx_http_kv_router_attempt_past(ctx);
    ngx_http_kv_router_attempt_forget(ctx);
    ngx_http_kv_router_uncharge(ctx, &ctx->choice.reservation);
    ngx_http_kv_router_estimate_end(ctx);
    ngx_http_kv_router_prefill_ended(ctx, NGX_HTTP_KV_ROUTER_ABORTED);
    ngx_http_kv_router_waited(ctx);
    ngx_http_kv_router_count_end(ctx);
}


void
ngx_http_kv_router_filter_init(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_kv_router_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_kv_router_body_filter;

    ngx_http_kv_router_ctx_init(ngx_http_kv_router_route_release);
}
