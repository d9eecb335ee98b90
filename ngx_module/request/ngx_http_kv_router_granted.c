
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Places of the queue, as all that check bounds see them: those that are
 * granted and not yet reserved, and those that have become free.
 */


#include "ngx_http_kv_router_route.h"


kvr_order_entry_t *
ngx_http_kv_router_queue_entry(const ngx_http_kv_router_ctx_t *ctx)
{
    return &ctx->zone->run.queue->admit.entries[ctx->queue.entry];
}


uint32_t
ngx_http_kv_router_queue_state(const ngx_http_kv_router_ctx_t *ctx)
{
    return ctx->queue.entry == KVR_ADMIT_NONE || ctx->zone->run.queue == NULL
           ? KVR_ADMIT_FREE
           : kvr_admit_state(&ctx->zone->run.queue->admit, ctx->queue.entry);
}


ngx_uint_t
ngx_http_kv_router_queue_owns(const ngx_http_kv_router_ctx_t *ctx,
    const ngx_http_kv_router_holder_t *h)
{
    return ctx && (ngx_http_kv_router_queue_state(ctx) & KVR_ADMIT_ROW) != 0
           && ngx_http_kv_router_queue_entry(ctx)->worker == h->first;
}


kvr_admit_row_t
ngx_http_kv_router_queue_granted(ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_ctx_t *ctx, const ngx_http_kv_router_holder_t *h)
{
    kvr_admit_row_t              row;
    ngx_http_kv_router_queue_t  *q;

    q = zone->run.queue;

    if (q == NULL || h == NULL) {
        row.tokens = 0;
        row.requests = q ? (int64_t) kvr_load64(&q->admit.zone->granted)
                           - (ctx && (ngx_http_kv_router_queue_state(ctx)
                                      & KVR_ADMIT_ROW) != 0)
                         : 0;
        return row;
    }

    row = kvr_admit_granted(&q->admit, h->first);
    row.requests -= (int64_t) ngx_http_kv_router_queue_owns(ctx, h);

    return row;
}


void
ngx_http_kv_router_queue_freed(ngx_http_kv_router_zone_t *zone,
    uint32_t holder)
{
    ngx_http_kv_router_queue_t  *q;

    q = zone->run.queue;

    if (q == NULL) {
        return;
    }

    if (q->nfreed < NGX_HTTP_KV_ROUTER_FREED) {
        q->freed[q->nfreed] = holder;
    }

    q->nfreed++;

    ngx_post_event(&q->look, &ngx_posted_events);
}
