
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Prefills elsewhere: Lua asks the workers, what they weigh there and how they
 * end is counted here, for the same health as that of requests.
 */


#include "ngx_http_kv_router_route.h"


static ngx_int_t ngx_http_kv_router_prefill_begin(
    ngx_http_kv_router_ctx_t *ctx, uint32_t i, char **err);


int
ngx_http_kv_router_ffi_prefill(ngx_http_request_t *r, void *zone,
    uint32_t i, char **err)
{
    ngx_int_t                  rc;
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->choice.reserved) {
        *err = "the request has no reservation";
        return NGX_ERROR;
    }

    if (i >= ctx->found.match.n) {
        *err = "no such candidate";
        return NGX_ERROR;
    }

    do {
        ngx_http_kv_router_prefill_ended(ctx, NGX_HTTP_KV_ROUTER_ABORTED);
        ngx_http_kv_router_bound_begin(ctx);

        rc = ngx_http_kv_router_prefill_begin(ctx, i, err);

    } while (ngx_http_kv_router_bound_end(ctx) != NGX_OK);

    if (rc == NGX_OK) {
        ngx_http_kv_router_prefilled(ctx, &ctx->choice.reservation);
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kv_router prefill: at worker \"%*s\", %s",
                   (size_t) ctx->found.candidates[i].worker_len,
                   ctx->found.candidates[i].worker,
                   rc == NGX_OK ? "reserved" : *err);

    return rc;
}


static ngx_int_t
ngx_http_kv_router_prefill_begin(ngx_http_kv_router_ctx_t *ctx, uint32_t i,
    char **err)
{
    if (ngx_http_kv_router_worker_full(ctx, i)) {
        *err = "it is full, by max_active or max_prefill_tokens";
        return NGX_DECLINED;
    }

    if (ngx_http_kv_router_attempt_ticket(ctx, i, 0, &ctx->try.prefill_ticket)
        != NGX_OK)
    {
        *err = "it is out";
        return NGX_DECLINED;
    }

    ngx_http_kv_router_charge(ctx, &ctx->choice.prefill, i);

    ctx->choice.prefiller = &ctx->found.candidates[i];
    ctx->try.prefilling = 1;
    ctx->times.prefill_us = ngx_http_kv_router_now_us();

    return NGX_OK;
}


int
ngx_http_kv_router_ffi_prefill_ended(ngx_http_request_t *r, void *zone,
    uint32_t how, char **err)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->choice.reserved) {
        *err = "the request has no reservation";
        return NGX_ERROR;
    }

    if (ctx->try.prefilling && how == NGX_HTTP_KV_ROUTER_DONE) {
        ngx_http_kv_router_speed_prefill(ctx);
    }

    ngx_http_kv_router_prefill_ended(ctx, ngx_min(how,
                                                 NGX_HTTP_KV_ROUTER_ABORTED));

    return NGX_OK;
}


void
ngx_http_kv_router_prefill_ended(ngx_http_kv_router_ctx_t *ctx, ngx_uint_t how)
{
    ngx_http_kv_router_uncharge(ctx, &ctx->choice.prefill);

    if (!ctx->try.prefilling) {
        return;
    }

    ctx->try.prefilling = 0;

    kvr_histogram_add(&ctx->zone->run.sh->times[KVR_TIME_PREFILL],
                      KVR_TIME_PREFILL,
                      (int64_t) (ngx_http_kv_router_now_us()
                                 - ctx->times.prefill_us));

    ngx_http_kv_router_attempt_judge(ctx, ctx->choice.prefiller,
                                     &ctx->try.prefill_ticket, how, 0);
}


int
ngx_http_kv_router_ffi_prefill_failed(ngx_http_request_t *r, void *zone,
    char **err)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->choice.reserved) {
        *err = "the request has no reservation";
        return NGX_ERROR;
    }

    ngx_http_kv_router_prefill_ended(ctx, NGX_HTTP_KV_ROUTER_ABORTED);

    if (!ctx->answer.output) {
        kvr_load_prefill_again(&ctx->zone->run.router.load,
                               &ctx->choice.reservation, ngx_current_msec);
        ngx_http_kv_router_prefill_timer(ctx, &ctx->choice.reservation,
                                         ctx->choice.chosen);
    }

    return NGX_OK;
}
