
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Whether the token ids that the zone's model makes of a text are believed.
 *
 * Each worker proves the route of the request for itself (kvr_trust.h), and a
 * request is tokenized before its worker is chosen.  The rule is:
 *
 *     The model's ids are used if more candidates have proven the route than
 *     are in mismatch.
 *
 * A candidate in shadow has no vote: an engine that was just started has
 * nothing cached, and what others have proven holds until its own echoes say
 * otherwise.  Ids that are wrong for a worker never make its overlap too
 * large: in the worker's own blocks they find at most what is really there.
 *
 * If the ids are not used, the rung below makes the prompt's ids, and the
 * model's ids are kept for the echo alone: the shadow.  They are not made at
 * all if no candidate's events could prove them.  In mismatch one request of
 * NGX_HTTP_KV_ROUTER_TRUST_DOUBTED has a shadow, so that the route can be
 * proven again.
 */


#include "ngx_http_kv_router_route.h"

#include <wire/kvr_route.h>


#define NGX_HTTP_KV_ROUTER_TRUST_DOUBTED  8


uint32_t
ngx_http_kv_router_ffi_trust(ngx_http_request_t *r, void *zone,
    uint32_t always)
{
    uint32_t                         i, worker, route;
    ngx_uint_t                       proven, mismatch, exact;
    kvr_trust_view_t                 view;
    ngx_http_kv_router_ctx_t        *ctx;
    ngx_http_kv_router_candidate_t  *c;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (always) {
        if (ctx && ctx->zone == zone) {
            ctx->keys.believed = 1;
        }

        return NGX_HTTP_KV_ROUTER_TRUST_BELIEVED;
    }

    if (ctx == NULL || ctx->zone != zone || !ctx->found.matched) {
        return NGX_HTTP_KV_ROUTER_TRUST_NONE;
    }

    route = kvr_route(ctx->prompt.form, KVR_FROM_MODEL);
    proven = 0;
    mismatch = 0;
    exact = 0;

    for (i = 0; i < ctx->found.match.n; i++) {
        c = &ctx->found.candidates[i];
        worker = kvr_router_holder_worker(&ctx->zone->run.router, c->holder);

        if (worker >= ctx->zone->run.sh->nworkers) {
            continue;
        }

        ngx_http_kv_router_echo_trust(ctx->zone, worker, c->generation, route,
                                      &view);

        proven += view.state == KVR_TRUST_PROVEN;
        mismatch += view.state == KVR_TRUST_MISMATCH;
        exact += ngx_http_kv_router_echo_worker(ctx->zone, worker) != NULL;
    }

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kv_router trust: route \"%s\" is proven by %ui "
                   "candidates, %ui are in mismatch, %ui are exact",
                   kvr_route_name(route), proven, mismatch, exact);

    ctx->keys.believed = proven > mismatch;

    if (ctx->keys.believed) {
        return NGX_HTTP_KV_ROUTER_TRUST_BELIEVED;
    }

    if (exact == 0
        || (mismatch && ngx_random() % NGX_HTTP_KV_ROUTER_TRUST_DOUBTED))
    {
        return NGX_HTTP_KV_ROUTER_TRUST_NONE;
    }

    return NGX_HTTP_KV_ROUTER_TRUST_SHADOW;
}
