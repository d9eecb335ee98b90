
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a request weighs at the worker that it is sent to: its load, from the
 * decision to the last byte, and what will be cached there because of it.
 */


#include "ngx_http_kv_router_route.h"


/* the longest time of a prefill in milliseconds: a day */

#define NGX_HTTP_KV_ROUTER_PREFILL  86400000

/* milliseconds until the prompt is looked for; each time twice as many */

#define NGX_HTTP_KV_ROUTER_LOOK     100


static ngx_int_t ngx_http_kv_router_depths_begin(
    ngx_http_kv_router_ctx_t *ctx);
static ngx_int_t ngx_http_kv_router_inflight(ngx_http_kv_router_ctx_t *ctx);
static void ngx_http_kv_router_prefill_over(ngx_event_t *ev);


/*
 * One element for each holder.  All lookups of this process share the array:
 * each lookup sets the elements that it reads.
 */

static kvr_inflight_depth_t  *ngx_http_kv_router_depths;
static ngx_uint_t             ngx_http_kv_router_ndepths;


/* ---- before the decision ------------------------------------------------ */

/*
 * Blocks of the prompt that are in flight to a candidate are not new load.  A
 * process knows what it has in flight itself; the flights tell it of others.
 *
 * Blocks that a candidate without events has by estimates and flights count as
 * held in device, and with predict= those of all flights do.
 */

ngx_int_t
ngx_http_kv_router_expect(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         i, depth;
    ngx_http_kv_router_candidate_t  *c;

    ctx->found.best = ctx->found.match.best;
    ctx->found.chains = NULL;

    if (ctx->keys.lookup.hash == NULL) {
        return NGX_OK;
    }

    if (ctx->keys.ids.hash && ngx_http_kv_router_inflight(ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    if (!ngx_http_kv_router_flies(ctx)) {
        return NGX_OK;
    }

    if (ngx_http_kv_router_depths_begin(ctx) != NGX_OK
        || ngx_http_kv_router_flights_find(ctx, ngx_http_kv_router_depths,
                                           ngx_http_kv_router_ndepths)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < ctx->found.match.n; i++) {
        c = &ctx->found.candidates[i];
        depth = ngx_http_kv_router_depths[c->holder].depth;

        if (c->confidence == KVR_ESTIMATED) {
            depth = ngx_max(depth, ctx->found.estimates[i].device);
            ngx_http_kv_router_estimate(ctx, i, depth);

            ctx->found.best = ngx_max(ctx->found.best,
                                      c->device - c->predicted);
            ctx->found.match.best = ngx_max(ctx->found.match.best, c->device);
            continue;
        }

        /* exact views have nothing of a text */

        if (ctx->keys.of_text) {
            continue;
        }

        if (ctx->zone->conf.predict == 0) {

            if (depth > c->in_flight) {
                c->additional_blocks -= depth - c->in_flight;
                c->in_flight = depth;
            }

            continue;
        }

        if (depth <= c->device) {
            continue;
        }

        ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "kv_router prediction: worker \"%*s\" has %uD "
                       "blocks", (size_t) c->worker_len, c->worker, depth);

        c->predicted = depth - c->device;
        c->device = depth;
        c->host = ngx_max(c->host, depth);
        c->disk = ngx_max(c->disk, depth);

        ctx->found.match.best = ngx_max(ctx->found.match.best, depth);
    }

    return NGX_OK;
}


/* Sets the depths of all candidates to 0. */

static ngx_int_t
ngx_http_kv_router_depths_begin(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         i, max;
    ngx_http_kv_router_candidate_t  *c;

    max = kvr_router_max_holders(&ctx->zone->run.router);

    if (max > ngx_http_kv_router_ndepths) {
        ngx_free(ngx_http_kv_router_depths);

        ngx_http_kv_router_ndepths = 0;
        ngx_http_kv_router_depths = ngx_calloc(
                                        max * sizeof(kvr_inflight_depth_t),
                                        ngx_cycle->log);
        if (ngx_http_kv_router_depths == NULL) {
            return NGX_ERROR;
        }

        ngx_http_kv_router_ndepths = max;
    }

    for (i = 0; i < ctx->found.match.n; i++) {
        c = &ctx->found.candidates[i];
        ngx_http_kv_router_depths[c->holder].generation = c->generation;
        ngx_http_kv_router_depths[c->holder].depth = 0;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kv_router_inflight(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         i;
    ngx_http_kv_router_candidate_t  *c;

    if (ctx->zone->run.inflight == NULL) {

        ctx->zone->run.inflight = kvr_inflight_create();
        if (ctx->zone->run.inflight == NULL) {
            return NGX_ERROR;
        }
    }

    if (kvr_inflight_nodes(ctx->zone->run.inflight) == 0) {
        return NGX_OK;
    }

    if (ngx_http_kv_router_depths_begin(ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    kvr_inflight_find(ctx->zone->run.inflight, ctx->keys.ids.hash,
                      ctx->found.match.prompt_blocks,
                      ngx_http_kv_router_depths, ngx_http_kv_router_ndepths);

    for (i = 0; i < ctx->found.match.n; i++) {
        c = &ctx->found.candidates[i];
        c->in_flight = ngx_http_kv_router_depths[c->holder].depth;
        c->additional_blocks -= c->in_flight;
    }

    return NGX_OK;
}


/* ---- the decision ------------------------------------------------------- */

uint32_t
ngx_http_kv_router_other_blocks(ngx_http_kv_router_ctx_t *ctx)
{
    return ctx->prompt.others / ctx->zone->conf.params.block_size;
}


/* Of several texts only the first one has ids. */

static ngx_uint_t
ngx_http_kv_router_known(ngx_http_kv_router_ctx_t *ctx)
{
    return ctx->found.match.prompt_tokens
           && (ctx->prompt.prompts <= 1 || ctx->prompt.others);
}


void
ngx_http_kv_router_weigh(ngx_http_kv_router_ctx_t *ctx)
{
    if ((!ngx_http_kv_router_known(ctx) || ctx->keys.of_text)
        && ctx->prompt.form != KVR_FORM_NO_LOAD && ctx->prompt.bytes == 0)
    {
        ctx->prompt.bytes = ngx_http_kv_router_body_bytes(ctx);
    }
}


/*
 * The tokens that are to be prefilled at c.  Where ids are not known it is the
 * bytes of the text by 4, nothing cached, and one block at least.  So it is
 * for a text of which the estimate knows less than half: fields that it does
 * not read may be text.
 */

uint32_t
ngx_http_kv_router_uncached(ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_candidate_t *c)
{
    uint32_t  tokens, cached;

    if (ngx_http_kv_router_known(ctx)
        && (!ctx->keys.of_text
            || ctx->prompt.bytes / 2 <= ctx->keys.text_bytes))
    {
        /* the blocks in flight are prefilled for another request already */

        tokens = ctx->found.match.prompt_tokens;
        cached = ngx_max(c->device, (uint32_t) c->in_flight)
                 * ctx->found.match.block_size;

        return tokens - ngx_min(cached, tokens) + ctx->prompt.others;
    }

    tokens = ngx_min(ctx->prompt.bytes / 4, KVR_TOKENS_MAX);

    return ngx_max(tokens, ctx->found.match.block_size);
}


/* A request that is no load keeps an empty reservation. */

void
ngx_http_kv_router_charge(ngx_http_kv_router_ctx_t *ctx, kvr_reservation_t *s,
    uint32_t i)
{
    uint32_t                         blocks, known;
    ngx_http_kv_router_candidate_t  *c;

    if (ctx->prompt.form == KVR_FORM_NO_LOAD) {
        return;
    }

    c = &ctx->found.candidates[i];

    blocks = ctx->found.match.prompt_blocks;

    s->holder = c->holder;
    s->generation = c->generation;
    s->prefilling = 1;
    s->request = 0;
    s->flight = NULL;
    s->prefill_tokens = ngx_http_kv_router_uncached(ctx, c);
    s->output_blocks = 0;
    s->more = (s == &ctx->choice.reservation) ? ctx->prompt.sequences - 1 : 0;

    if (ctx->keys.ids.hash && ctx->zone->run.inflight) {
        known = ctx->found.chains && ctx->zone->conf.predict == 0
                && c->confidence != KVR_ESTIMATED ? c->in_flight : 0;

        s->request = kvr_inflight_add(ctx->zone->run.inflight, c->holder,
                                      c->generation, ctx->keys.ids.hash,
                                      blocks, known,
                                      (uint32_t) ngx_max(c->decode_blocks, 0),
                                      &blocks);

        if (s->request == 0) {
            ngx_http_kv_router_count(ctx->zone->run.sh, UNSHARED, 1);
        }
    }

    s->decode_blocks = blocks + ngx_http_kv_router_other_blocks(ctx);

    ngx_log_debug5(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router reservation: worker \"%*s\" rank %uD, %L tokens "
                   "to prefill, %L blocks", (size_t) c->worker_len, c->worker,
                   c->rank, s->prefill_tokens, s->decode_blocks);

    kvr_router_reserve(&ctx->zone->run.router, s, ngx_current_msec);
    kvr_peers_uncached(&ctx->zone->run.router.peers, s->prefill_tokens);
    ngx_http_kv_router_prefill_timer(ctx, s, c);

    ngx_http_kv_router_flight_begin(ctx, s, i);
}


/* ---- afterwards --------------------------------------------------------- */

/*
 * An answer that is not streamed shows only at its end that its prefill was
 * over.  So the prefill ends when the worker's speed has done the tokens that
 * were queued before the request, and the request's own; or when the worker
 * has stored the prompt, which is looked for after 0.1, 0.3, 0.7, ... seconds.
 */

void
ngx_http_kv_router_prefill_timer(ngx_http_kv_router_ctx_t *ctx,
    const kvr_reservation_t *s, const ngx_http_kv_router_candidate_t *c)
{
    double        ms;
    ngx_event_t  *ev;

    if (!s->prefilling || (c->prefill_tps <= 0 && ctx->keys.ids.hash == NULL)
        || (ctx->prompt.stream && ngx_http_kv_router_shows_output(ctx, c)))
    {
        return;
    }

    ms = NGX_HTTP_KV_ROUTER_PREFILL;
    ev = &ctx->prefill_end;

    if (c->prefill_tps > 0) {
        ms = ngx_min(ms, (c->prefill_tokens + s->prefill_tokens) * 1000
                         / c->prefill_tps);
    }

    if (ev->timer_set) {
        ngx_del_timer(ev);
    }

    ev->handler = ngx_http_kv_router_prefill_over;
    ev->data = ctx;
    ev->log = ctx->request->connection->log;
    ev->cancelable = 1;

    ctx->times.prefilled_ms = ngx_current_msec + (ngx_msec_t) ms;
    ctx->times.look_ms = NGX_HTTP_KV_ROUTER_LOOK;

    ngx_add_timer(ev, (ngx_msec_t) ngx_min(ms, NGX_HTTP_KV_ROUTER_LOOK));
}


/*
 * Has the worker stored all whole blocks of the prompt but one that its last
 * token fills?  Several ranks of a worker are looked up as one.
 */

static ngx_uint_t
ngx_http_kv_router_prefill_stored(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         n, worker;
    kvr_router_t                    *k;
    ngx_http_kv_router_candidate_t  *c;

    k = &ctx->zone->run.router;
    c = ctx->choice.prefill.prefilling ? ctx->choice.prefiller
                                       : ctx->choice.chosen;

    if (ctx->keys.ids.hash == NULL || ctx->prompt.others
        || ngx_http_kv_router_ranks(ctx, c - ctx->found.candidates))
    {
        return 0;
    }

    worker = kvr_router_holder_worker(k, c->holder);
    n = kvr_contract_blocks(kvr_params_contract(&ctx->zone->conf.params),
                            ctx->found.match.prompt_tokens - 1);

    return n && worker < ctx->zone->run.sh->nworkers
           && kvr_load32(&kvr_router_worker(k, worker)->generation)
              == c->generation
           && kvr_router_depth(k, worker, ctx->keys.ids.hash, n) >= n;
}


static void
ngx_http_kv_router_prefill_over(ngx_event_t *ev)
{
    ngx_http_kv_router_ctx_t *ctx = ev->data;

    ngx_msec_int_t  left;

    left = (ngx_msec_int_t) (ctx->times.prefilled_ms - ngx_current_msec);

    if (left > 0 && !ngx_http_kv_router_prefill_stored(ctx)) {
        ctx->times.look_ms *= 2;
        ngx_add_timer(ev, ngx_min((ngx_msec_t) left, ctx->times.look_ms));
        return;
    }

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ev->log, 0,
                   "kv_router prefill: over by the worker's %s",
                   left > 0 ? "events" : "speed");

    ngx_http_kv_router_prefilled(ctx, &ctx->choice.reservation);
    ngx_http_kv_router_prefilled(ctx, &ctx->choice.prefill);
}


void
ngx_http_kv_router_prefilled(ngx_http_kv_router_ctx_t *ctx,
    kvr_reservation_t *s)
{
    if (s->holder != KVR_HOLDER_NONE) {
        ngx_http_kv_router_queue_freed(ctx->zone, s->holder);
        kvr_load_prefilled(&ctx->zone->run.router.load, s, ngx_current_msec);
    }
}


void
ngx_http_kv_router_unshare(ngx_http_kv_router_ctx_t *ctx, kvr_reservation_t *s)
{
    if (s->request) {
        kvr_load_share(s, kvr_inflight_remove(ctx->zone->run.inflight,
                                              s->holder, s->generation,
                                              s->request)
                          + ngx_http_kv_router_other_blocks(ctx));
        s->request = 0;
    }
}


void
ngx_http_kv_router_uncharge(ngx_http_kv_router_ctx_t *ctx,
    kvr_reservation_t *s)
{
    if (s->holder == KVR_HOLDER_NONE) {
        return;
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router release: %s, %L blocks streamed",
                   s == &ctx->choice.prefill ? "the prefill elsewhere"
                                             : "the request",
                   s->output_blocks);

    if (ctx->prefill_end.timer_set) {
        ngx_del_timer(&ctx->prefill_end);
    }

    ngx_http_kv_router_flight_end(ctx, s);

    ngx_http_kv_router_unshare(ctx, s);

    ngx_http_kv_router_queue_freed(ctx->zone, s->holder);
    kvr_load_release(&ctx->zone->run.router.load, s, ngx_current_msec);
}
