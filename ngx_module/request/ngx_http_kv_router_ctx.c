
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_ctx.h"


static void ngx_http_kv_router_cleanup(void *data);


static ngx_http_kv_router_release_pt  ngx_http_kv_router_release;


void
ngx_http_kv_router_ctx_init(ngx_http_kv_router_release_pt release)
{
    ngx_http_kv_router_release = release;
}


ngx_http_kv_router_ctx_t *
ngx_http_kv_router_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_kv_router_module);

    if (ctx || r != r->main) {
        return ctx;
    }

    /* an internal redirect has zeroed the contexts */

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_kv_router_cleanup) {
            ctx = cln->data;

            if (ctx->request == r) {
                ngx_http_set_ctx(r, ctx, ngx_http_kv_router_module);
                return ctx;
            }
        }
    }

    return NULL;
}


double
ngx_http_kv_router_now_us(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (double) ts.tv_sec * 1e6 + (double) ts.tv_nsec / 1e3;
}


ngx_http_kv_router_ctx_t *
ngx_http_kv_router_make_ctx(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone)
{
    ngx_uint_t                   rank_sent;
    ngx_pool_cleanup_t          *cln;
    ngx_http_kv_router_ctx_t    *ctx;
    ngx_http_kv_router_fleet_t  *fleet;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx && ctx->zone == zone) {
        return ctx;
    }

    fleet = ngx_http_kv_router_fleet_get(zone);
    if (fleet == NULL) {
        return NULL;
    }

    if (ctx) {
        /* another zone routed the request before: that routing ends now */
        ngx_http_kv_router_cleanup(ctx);
        rank_sent = ctx->rank_sent;

    } else {

        rank_sent = 0;

        cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_kv_router_ctx_t));
        if (cln == NULL) {
            ngx_http_kv_router_fleet_put(fleet);
            return NULL;
        }

        ctx = cln->data;
        cln->handler = ngx_http_kv_router_cleanup;

        ngx_http_set_ctx(r, ctx, ngx_http_kv_router_module);
    }

    ngx_memzero(ctx, sizeof(ngx_http_kv_router_ctx_t));
    ngx_http_kv_router_ctx_reset(ctx);
    ctx->queue.entry = KVR_ADMIT_NONE;
    ctx->rank_sent = rank_sent;
    ctx->request = r;
    ctx->zone = zone;
    ctx->fleet = fleet;
    ctx->times.began_us = ngx_http_kv_router_now_us();

    return ctx;
}


void
ngx_http_kv_router_ctx_reset(ngx_http_kv_router_ctx_t *ctx)
{
    ngx_memzero(&ctx->choice, sizeof(ctx->choice));
    ngx_memzero(&ctx->try, sizeof(ctx->try));
    ngx_memzero(&ctx->answer, sizeof(ctx->answer));

    ctx->choice.reservation.holder = KVR_HOLDER_NONE;
    ctx->choice.prefill.holder = KVR_HOLDER_NONE;
    ctx->try.rank = UINT32_MAX;
    ctx->answer.cached_tokens = -1;
}


ngx_uint_t
ngx_http_kv_router_ranks(ngx_http_kv_router_ctx_t *ctx, uint32_t i)
{
    uint32_t  k;

    for (k = 0; k < ctx->found.ncandidates; k++) {
        if (k != i && ctx->found.candidates[k].worker
                      == ctx->found.candidates[i].worker)
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_http_kv_router_cleanup(void *data)
{
    ngx_http_kv_router_ctx_t *ctx = data;

    if (ctx->fleet == NULL) {
        return;
    }

    ngx_http_kv_router_release(ctx);
    ngx_http_kv_router_fleet_put(ctx->fleet);
    ctx->fleet = NULL;
}


void *
ngx_http_kv_router_buffer(ngx_http_kv_router_ctx_t *ctx,
    ngx_http_kv_router_buffer_e which, size_t size)
{
    void                         *data;
    ngx_http_kv_router_buffer_t  *buffer;

    buffer = &ctx->buffers[which];

    /* if a decision was made, it refers to the old buffer: keep that buffer */

    if (size > buffer->size || ctx->choice.reserved) {

        /* each size is twice the last, which bounds the memory left behind */

        if (size > buffer->size) {
            size = ngx_max(size, 2 * buffer->size);
        }

        data = ngx_palloc(ctx->request->pool, size);
        if (data == NULL) {
            return NULL;
        }

        buffer->data = data;
        buffer->size = size;
    }

    return buffer->data;
}


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


void
ngx_http_kv_router_plain(ngx_str_t *s)
{
    u_char  *p;

    for (p = s->data; p < s->data + s->len; p++) {
        if (*p < 0x20 || *p == 0x7f) {
            *p = ' ';
        }
    }
}
