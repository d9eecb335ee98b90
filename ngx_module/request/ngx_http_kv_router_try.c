
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A try: the balancer is told the worker of the next one.  Behind one address
 * there may be several ranks: a header of the request names the rank, at each
 * try.
 */


#include "ngx_http_kv_router_route.h"


#define NGX_HTTP_KV_ROUTER_RANK_HEADER  "x-data-parallel-rank"


static ngx_int_t ngx_http_kv_router_rank_header(ngx_http_request_t *r,
    uint32_t rank);


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

            ngx_http_kv_router_count(ctx->zone->run.sh, RETRIES, 1);
            (void) ngx_atomic_fetch_add(
                       &ctx->zone->run.sh->by_reason[NGX_HTTP_KV_ROUTER_RETRY],
                       1);
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
