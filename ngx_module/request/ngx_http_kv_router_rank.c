
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Behind one address there may be several ranks: a header of the request names
 * the rank, at each try.
 */


#include "ngx_http_kv_router_route.h"


#define NGX_HTTP_KV_ROUTER_RANK_HEADER  "x-data-parallel-rank"


static ngx_int_t ngx_http_kv_router_rank_header(ngx_http_request_t *r,
    uint32_t rank);


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


int
ngx_http_kv_router_ffi_rank(ngx_http_request_t *r, void *zone, uint32_t i,
    uint32_t *rank)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->zone != zone || !ctx->choice.reserved) {
        return NGX_DECLINED;
    }

    if (i < ctx->found.match.n) {
        *rank = ctx->found.candidates[i].rank;

        return ngx_http_kv_router_ranks(ctx, i) ? NGX_OK : NGX_DECLINED;
    }

    if (ctx->try.rank == UINT32_MAX) {
        return NGX_DECLINED;
    }

    *rank = ctx->try.rank;
    ctx->rank_sent = 1;

    return NGX_OK;
}


/*
 * If an earlier try named a rank, the next try must name the rank of its own
 * worker, even if that worker has only one.  nginx made the upstream request
 * for the first worker: the request must be made again.
 */

ngx_int_t
ngx_http_kv_router_tell_rank(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx)
{
    uint32_t              rank;
    ngx_http_upstream_t  *u;

    rank = ctx->choice.chosen->rank;

    if (rank == ctx->try.rank
        || (ctx->try.rank == UINT32_MAX
            && !ngx_http_kv_router_ranks(ctx, ctx->choice.chosen
                                              - ctx->found.candidates)))
    {
        return NGX_OK;
    }

    if (ngx_http_kv_router_rank_header(r, rank) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->try.rank = rank;
    ctx->rank_sent = 1;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kv_router rank %uD is told to the engine", rank);

    u = r->upstream;
    u->request_bufs = r->request_body ? r->request_body->bufs : NULL;

    return u->create_request(r);
}


static ngx_int_t
ngx_http_kv_router_rank_header(ngx_http_request_t *r, uint32_t rank)
{
    u_char                        *value;
    ngx_str_t                      name;
    ngx_uint_t                     found;
    ngx_table_elt_t               *h;
    ngx_http_kv_router_headers_t   at = { &r->headers_in.headers.part, 0 };

    ngx_str_set(&name, NGX_HTTP_KV_ROUTER_RANK_HEADER);

    value = ngx_pnalloc(r->pool, NGX_INT32_LEN + 1);
    if (value == NULL) {
        return NGX_ERROR;
    }

    *ngx_sprintf(value, "%uD", rank) = '\0';

    found = 0;

    while ((h = ngx_http_kv_router_header(&at, (char *) name.data))) {
        h->value.len = ngx_strlen(value);
        h->value.data = value;
        found = 1;
    }

    if (found) {
        return NGX_OK;
    }

    h = ngx_list_push(&r->headers_in.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->hash = ngx_hash_key(name.data, name.len);
    h->key = name;
    h->value.len = ngx_strlen(value);
    h->value.data = value;
    h->lowcase_key = name.data;

    return NGX_OK;
}
