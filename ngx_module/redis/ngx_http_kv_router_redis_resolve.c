
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The addresses of a Redis that is known by name, from the resolver that is
 * configured at the level of http.
 */


#include "ngx_http_kv_router_redis_link.h"
#include "../module/ngx_http_kv_router_resolver.h"


static void ngx_http_kv_router_redis_resolve_handler(ngx_resolver_ctx_t *ctx);
static ngx_int_t ngx_http_kv_router_redis_resolved(
    ngx_http_kv_router_redis_t *r, ngx_resolver_ctx_t *ctx);


ngx_int_t
ngx_http_kv_router_redis_resolve(ngx_http_kv_router_redis_t *r)
{
    ngx_http_kv_router_redis_server_t  *server;

    server = ngx_http_kv_router_redis_current(r);

    if (server->host.len == 0 || server->literal) {
        return NGX_OK;
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, &r->log, 0,
                   "kv_router zone \"%V\": redis %s: resolves \"%V\"",
                   &r->zone->conf.name, r->purpose, &server->host);

    return ngx_http_kv_router_resolve(r->zone, &server->host,
                                      ngx_http_kv_router_redis_resolve_handler,
                                      r, &r->resolving)
           == NGX_AGAIN ? NGX_AGAIN : NGX_OK;
}


void
ngx_http_kv_router_redis_resolve_stop(ngx_http_kv_router_redis_t *r)
{
    if (r->resolving) {
        ngx_resolve_name_done(r->resolving);
        r->resolving = NULL;
    }

    r->addrs = NULL;

    if (r->pool) {
        ngx_destroy_pool(r->pool);
        r->pool = NULL;
    }
}


static void
ngx_http_kv_router_redis_resolve_handler(ngx_resolver_ctx_t *ctx)
{
    ngx_uint_t                          level;
    ngx_http_kv_router_redis_t         *r;
    ngx_http_kv_router_redis_server_t  *server;

    r = ctx->data;
    r->resolving = NULL;

    server = ngx_http_kv_router_redis_current(r);

    if (ctx->state) {
        level = server->unresolved || r->beside ? NGX_LOG_INFO : NGX_LOG_ERR;
        server->unresolved |= !r->beside;

        ngx_log_error(level, &r->log, 0,
                      "\"%V\" could not be resolved (%i: %s), using the "
                      "addresses known", &ctx->name, ctx->state,
                      ngx_resolver_strerror(ctx->state));

    } else if (ngx_http_kv_router_redis_resolved(r, ctx) == NGX_OK) {
        server->unresolved = 0;
    }

    ngx_resolve_name_done(ctx);

    r->next(r);
}


static ngx_int_t
ngx_http_kv_router_redis_resolved(ngx_http_kv_router_redis_t *r,
    ngx_resolver_ctx_t *ctx)
{
    u_char      *p;
    in_port_t    port;
    ngx_pool_t  *pool;
    ngx_addr_t  *addrs;
    ngx_uint_t   i;

    if (ctx->naddrs == 0) {
        return NGX_ERROR;
    }

    port = ngx_http_kv_router_redis_current(r)->port;

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, ngx_cycle->log);
    if (pool == NULL) {
        return NGX_ERROR;
    }

    addrs = ngx_pcalloc(pool, ctx->naddrs * sizeof(ngx_addr_t));
    if (addrs == NULL) {
        goto failed;
    }

    for (i = 0; i < ctx->naddrs; i++) {

        addrs[i].socklen = ctx->addrs[i].socklen;
        addrs[i].sockaddr = ngx_palloc(pool, addrs[i].socklen);
        p = ngx_pnalloc(pool, NGX_SOCKADDR_STRLEN);

        if (addrs[i].sockaddr == NULL || p == NULL) {
            goto failed;
        }

        ngx_memcpy(addrs[i].sockaddr, ctx->addrs[i].sockaddr,
                   addrs[i].socklen);
        ngx_inet_set_port(addrs[i].sockaddr, port);

        addrs[i].name.data = p;
        addrs[i].name.len = ngx_sock_ntop(addrs[i].sockaddr, addrs[i].socklen,
                                          p, NGX_SOCKADDR_STRLEN, 1);
    }

    if (r->pool) {
        ngx_destroy_pool(r->pool);
    }

    r->pool = pool;
    r->addrs = addrs;
    r->naddrs = ctx->naddrs;

    return NGX_OK;

failed:

    ngx_destroy_pool(pool);

    return NGX_ERROR;
}
