
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a request weighs at the worker that it is sent to: its load, from the
 * decision to the last byte, and what will be cached there because of it.
 */


#include "ngx_http_kv_router_route.h"


static ngx_uint_t ngx_http_kv_router_others(
    const ngx_http_kv_router_ctx_t *ctx);
static ngx_int_t ngx_http_kv_router_inflight(ngx_http_kv_router_ctx_t *ctx);


/*
 * Milliseconds for which a prompt that was sent counts as cached at a worker
 * without events, and as in flight for the other processes.
 */

#define NGX_HTTP_KV_ROUTER_PREDICT  5000


/*
 * One element for each holder.  All lookups of this process share the array:
 * each lookup sets the elements that it reads.
 */

static kvr_inflight_depth_t  *ngx_http_kv_router_depths;
static ngx_uint_t             ngx_http_kv_router_ndepths;


/* ---- before the decision ------------------------------------------------ */

/*
 * Blocks that a candidate has by estimates or predictions count as held in
 * device.  Blocks of the prompt that are in flight to the candidate are not
 * new load.
 *
 * A process knows what it has in flight itself.  Where predict= is not set,
 * predictions tell it of the other processes: they count as in flight.
 */

ngx_int_t
ngx_http_kv_router_expect(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         i, depth, from;
    kvr_router_t                    *k;
    ngx_http_kv_router_candidate_t  *c;

    ctx->found.best = ctx->found.match.best;

    if (ctx->keys.lookup.hash == NULL) {
        return NGX_OK;
    }

    if (ctx->keys.ids.hash && ngx_http_kv_router_inflight(ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->zone->conf.predict == 0 && !ngx_http_kv_router_others(ctx)
        && !ngx_http_kv_router_estimates(ctx))
    {
        return NGX_OK;
    }

    ctx->found.chains = ngx_palloc(r->pool,
                                   (ctx->keys.lookup.n / KVR_PREDICT_STRIDE
                                    + 1) * sizeof(uint64_t));
    if (ctx->found.chains == NULL) {
        return NGX_ERROR;
    }

    k = &ctx->zone->run.router;
    ctx->found.nchains = kvr_router_chains(k, ctx->keys.lookup.hash,
                                           ctx->keys.lookup.n,
                                           ctx->found.chains);

    for (i = 0; i < ctx->found.match.n; i++) {
        c = &ctx->found.candidates[i];

        /* exact views have nothing of a text */

        if (ctx->keys.of_text && c->confidence != KVR_ESTIMATED) {
            continue;
        }

        from = c->confidence == KVR_ESTIMATED ? ctx->found.estimates[i].device
                                              : c->device;

        depth = kvr_router_predicted(k, ctx->found.chains, ctx->found.nchains,
                                     c->holder, c->generation, from,
                                     ngx_current_msec);

        if (c->confidence == KVR_ESTIMATED) {
            ngx_http_kv_router_estimate(ctx, i, depth);

            ctx->found.best = ngx_max(ctx->found.best,
                                      c->device - c->predicted);
            ctx->found.match.best = ngx_max(ctx->found.match.best, c->device);
            continue;
        }

        if (ctx->zone->conf.predict == 0) {

            if (depth > c->device) {
                c->in_flight = ngx_max(c->in_flight, depth);
            }

            continue;
        }

        if (depth > c->device) {
            ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                           "kv_router prediction: worker \"%*s\" has %uD "
                           "blocks", (size_t) c->worker_len, c->worker, depth);
        }

        c->predicted = depth - c->device;
        c->device = depth;
        c->host = ngx_max(c->host, depth);
        c->disk = ngx_max(c->disk, depth);

        ctx->found.match.best = ngx_max(ctx->found.match.best, depth);
    }

    return NGX_OK;
}


/* Are there other processes that route requests of the zone? */

static ngx_uint_t
ngx_http_kv_router_others(const ngx_http_kv_router_ctx_t *ctx)
{
    return ctx->zone->conf.processes->worker_processes > 1;
}


static ngx_int_t
ngx_http_kv_router_inflight(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t                         i, max;
    ngx_http_kv_router_candidate_t  *c;

    if (ctx->zone->run.inflight == NULL) {

        ctx->zone->run.inflight = kvr_inflight_create();
        if (ctx->zone->run.inflight == NULL) {
            return NGX_ERROR;
        }
    }

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

    if (kvr_inflight_nodes(ctx->zone->run.inflight) == 0) {
        return NGX_OK;
    }

    for (i = 0; i < ctx->found.match.n; i++) {
        c = &ctx->found.candidates[i];
        ngx_http_kv_router_depths[c->holder].generation = c->generation;
        ngx_http_kv_router_depths[c->holder].depth = 0;
    }

    kvr_inflight_find(ctx->zone->run.inflight, ctx->keys.ids.hash,
                      ctx->found.match.prompt_blocks,
                      ngx_http_kv_router_depths, max);

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


/* A request that is no load keeps an empty reservation. */

void
ngx_http_kv_router_charge(ngx_http_kv_router_ctx_t *ctx, kvr_reservation_t *s,
    uint32_t i)
{
    uint32_t                         cached, blocks, from;
    ngx_msec_t                       ms;
    ngx_http_kv_router_candidate_t  *c;

    if (ctx->prompt.form == KVR_FORM_NO_LOAD) {
        return;
    }

    c = &ctx->found.candidates[i];

    /* the blocks in flight are prefilled for another request already */

    cached = ngx_min(ngx_max(c->device, (uint32_t) c->in_flight)
                     * ctx->found.match.block_size,
                     ctx->found.match.prompt_tokens);

    blocks = ctx->found.match.prompt_blocks;

    s->holder = c->holder;
    s->generation = c->generation;
    s->prefilling = 1;
    s->request = 0;
    s->prefill_tokens = ctx->found.match.prompt_tokens - cached
                        + ctx->prompt.others;
    s->output_blocks = 0;
    s->more = (s == &ctx->choice.reservation) ? ctx->prompt.sequences - 1 : 0;

    if (ctx->keys.ids.hash && ctx->zone->run.inflight) {
        s->request = kvr_inflight_add(ctx->zone->run.inflight, c->holder,
                                      c->generation, ctx->keys.ids.hash,
                                      blocks, &blocks);

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

    ms = ctx->zone->conf.predict;

    from = c->device - c->predicted;

    if (c->confidence == KVR_ESTIMATED) {
        ms = ms ? ms : NGX_HTTP_KV_ROUTER_PREDICT;
        from = ctx->found.estimates[i].device;

    } else if (ctx->keys.of_text) {
        return;

    } else if (ms == 0 && ngx_http_kv_router_others(ctx)) {
        ms = NGX_HTTP_KV_ROUTER_PREDICT;
    }

    if (ctx->found.nchains && ms) {
        kvr_router_predict(&ctx->zone->run.router, ctx->found.chains,
                           ctx->found.nchains, c->holder, c->generation, from,
                           ngx_current_msec + ms);
    }
}


/* ---- afterwards --------------------------------------------------------- */

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

    if (s->request) {
        kvr_load_share(s, kvr_inflight_remove(ctx->zone->run.inflight,
                                              s->holder, s->generation,
                                              s->request)
                          + ngx_http_kv_router_other_blocks(ctx));
        s->request = 0;
    }

    kvr_load_release(&ctx->zone->run.router.load, s, ngx_current_msec);
}
