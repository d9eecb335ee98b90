
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Workers without events: what they answered is estimated to be cached there.
 */


#include "ngx_http_kv_router_route.h"


static kvr_estimate_t *ngx_http_kv_router_estimate_of(
    ngx_http_kv_router_ctx_t *ctx, ngx_http_kv_router_candidate_t *c);


ngx_uint_t
ngx_http_kv_router_estimates(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t  i;

    for (i = 0; i < ctx->ncandidates; i++) {
        if (ctx->candidates[i].confidence == KVR_ESTIMATED) {
            return 1;
        }
    }

    return 0;
}


/* The record of the candidate's estimates, or NULL. */

static kvr_estimate_t *
ngx_http_kv_router_estimate_of(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_candidate_t *c)
{
    uint32_t  worker;

    worker = kvr_router_holder_worker(&ctx->zone->router, c->holder);

    return worker < ctx->zone->sh->nworkers
           ? &ctx->zone->sh->estimates[worker] : NULL;
}


void
ngx_http_kv_router_estimate(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_candidate_t *c)
{
    uint32_t         depth;
    kvr_estimate_t  *e;

    e = ngx_http_kv_router_estimate_of(ctx, c);
    if (e == NULL) {
        return;
    }

    depth = kvr_router_predicted(&ctx->zone->router, ctx->chains,
                                 ctx->nchains, c->holder,
                                 kvr_estimate_name(e, c->generation), 0,
                                 ngx_current_msec);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "kv_router estimate: worker \"%*s\" has %uD blocks",
                   (size_t) c->worker_len, c->worker, depth);

    c->device = depth;
    c->host = depth;
    c->disk = depth;
}


void
ngx_http_kv_router_estimate_charge(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_candidate_t *c)
{
    kvr_estimate_t  *e;

    e = ngx_http_kv_router_estimate_of(ctx, c);

    if (e) {
        ctx->estimate = kvr_estimate_name(e, c->generation);
    }
}


/*
 * The engine has computed the whole prompt: the prompt is estimated to be
 * cached, or to be so for longer.
 */

void
ngx_http_kv_router_estimate_store(ngx_http_kv_router_ctx_t *ctx)
{
    kvr_estimate_t                  *e;
    ngx_http_kv_router_candidate_t  *c;

    c = ctx->chosen;

    if (c->confidence != KVR_ESTIMATED || ctx->nchains == 0
        || ctx->form == KVR_FORM_NO_LOAD
        || ctx->request->headers_out.status != NGX_HTTP_OK)
    {
        return;
    }

    e = ngx_http_kv_router_estimate_of(ctx, c);

    if (e) {
        kvr_router_predict(&ctx->zone->router, ctx->chains, ctx->nchains,
                           c->holder, kvr_estimate_name(e, c->generation), 0,
                           ngx_current_msec + KVR_ESTIMATE_MS);
    }
}


void
ngx_http_kv_router_estimate_answer(ngx_http_kv_router_ctx_t *ctx,
    uint64_t cached)
{
    kvr_estimate_t                  *e;
    ngx_http_kv_router_candidate_t  *c;

    c = ctx->chosen;

    e = c->confidence == KVR_ESTIMATED ? ngx_http_kv_router_estimate_of(ctx, c)
                                       : NULL;

    if (e == NULL
        || !kvr_estimate_answer(e, c->generation, ctx->estimate,
                                c->device - c->predicted, cached))
    {
        return;
    }

    (void) ngx_atomic_fetch_add(&ctx->zone->sh->estimates_void, 1);

    ngx_log_error(NGX_LOG_NOTICE, ctx->request->connection->log, 0,
                  "kv_router zone \"%V\": worker \"%*s\" had nothing cached "
                  "of %d prompts in a row that it was estimated to have: it "
                  "was restarted, or its prefix caching is off; what was "
                  "estimated of it is forgotten", &ctx->zone->name,
                  (size_t) c->worker_len, c->worker, KVR_ESTIMATE_MISSES);
}


/* ---- a worker, whatever the request ------------------------------------- */

void
ngx_http_kv_router_estimate_void(ngx_http_kv_router_zone_t *zone,
    uint32_t number, uint32_t generation)
{
    kvr_estimate_void(&zone->sh->estimates[number], generation);

    (void) ngx_atomic_fetch_add(&zone->sh->estimates_void, 1);
}


void
ngx_http_kv_router_estimate_tell(ngx_http_kv_router_zone_t *zone,
    uint32_t number)
{
    uint32_t                    flags, generation, told;
    const kvr_worker_t         *w;
    kvr_worker_conf_t           conf;
    ngx_http_kv_router_turn_t  *turn;

    w = kvr_router_worker(&zone->router, number);
    turn = &zone->sh->turns[number];

    generation = kvr_load32(&w->generation);
    told = kvr_load32(&turn->told);

    if (told == generation + 1
        || ngx_http_kv_router_confidence(zone, w, number) != KVR_ESTIMATED
        || kvr_router_read_worker(&zone->router, number, &conf, &flags,
                                  &generation)
           != KVR_OK
        || flags & KVR_WORKER_DELETED
        || !__atomic_compare_exchange_n(&turn->told, &told, generation + 1,
                                        false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
    {
        return;
    }

    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                  "kv_router zone \"%V\": what worker \"%s\" has cached is "
                  "estimated from its answers: what other routers send there, "
                  "and when the engine drops blocks, is not known; with the "
                  "engine's KV events, a kv-relay beside it and "
                  "kv_router_redis it is", &zone->name, conf.id);
}
