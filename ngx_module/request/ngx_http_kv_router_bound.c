
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Bounds: max_active, of workers and of the zone, over all processes of nginx.
 *
 * Who looks for room and takes it has the gate of the load tables meanwhile,
 * so that two processes never take the same place.  The gate is shut for some
 * microseconds; a process that dies in it opens it by that.  One that is
 * stopped there (SIGSTOP) may take a place twice when it goes on.
 */


#include "ngx_http_kv_router_route.h"


static ngx_uint_t ngx_http_kv_router_bounded(ngx_http_kv_router_ctx_t *ctx);


static ngx_uint_t
ngx_http_kv_router_bounded(ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t  i;

    if (ctx->zone->max_active) {
        return 1;
    }

    for (i = 0; i < ctx->ncandidates; i++) {
        if (ctx->candidates[i].max_active) {
            return 1;
        }
    }

    return 0;
}


void
ngx_http_kv_router_bound_begin(ngx_http_kv_router_ctx_t *ctx)
{
    if (ngx_http_kv_router_bounded(ctx)) {
        kvr_load_shut(&ctx->zone->router.load);
    }
}


void
ngx_http_kv_router_bound_end(ngx_http_kv_router_ctx_t *ctx)
{
    if (ngx_http_kv_router_bounded(ctx)) {
        kvr_load_open(&ctx->zone->router.load);
    }
}


ngx_uint_t
ngx_http_kv_router_zone_full(ngx_http_kv_router_ctx_t *ctx)
{
    int64_t                       active;
    ngx_uint_t                    i;
    kvr_load_row_t                load;
    ngx_http_kv_router_holder_t  *h;

    if (ctx->zone->max_active == 0) {
        return 0;
    }

    active = 0;

    for (i = 0; i < ctx->fleet->n; i++) {
        h = &ctx->fleet->holders[i];

        kvr_load_read(&ctx->zone->router.load, h->holder, h->generation,
                      &load);

        active += load.active;
    }

    return active >= (int64_t) ctx->zone->max_active;
}


/* max_active is for all ranks of a worker. */

ngx_uint_t
ngx_http_kv_router_worker_full(ngx_http_kv_router_ctx_t *ctx, uint32_t i)
{
    int64_t                          active;
    uint32_t                         k;
    kvr_load_row_t                   load;
    ngx_http_kv_router_candidate_t  *c, *other;

    c = &ctx->candidates[i];

    if (c->max_active == 0) {
        return 0;
    }

    active = 0;

    for (k = 0; k < ctx->ncandidates; k++) {
        other = &ctx->candidates[k];

        if (other->worker == c->worker) {
            kvr_load_read(&ctx->zone->router.load, other->holder,
                          other->generation, &load);

            active += load.active;
        }
    }

    return active >= (int64_t) c->max_active;
}
