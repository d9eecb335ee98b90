
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * TLS to Redis.  Whose certificate can't be verified gets no password.
 */


#include "ngx_http_kv_router_redis_link.h"


static void ngx_http_kv_router_redis_ssl_handler(ngx_connection_t *c);
static ngx_str_t *ngx_http_kv_router_redis_ssl_name(
    ngx_http_kv_router_redis_t *r, ngx_uint_t *literal);


void
ngx_http_kv_router_redis_ssl(ngx_http_kv_router_redis_t *r)
{
    ngx_str_t         *name;
    ngx_uint_t         literal;
    ngx_connection_t  *c;

    c = r->peer.connection;

    r->log.action = "SSL handshaking with redis";

    name = ngx_http_kv_router_redis_ssl_name(r, &literal);

    c->pool = ngx_create_pool(256, &r->log);

    if (c->pool == NULL
        || ngx_http_kv_router_tls_begin(&r->zone->conf.redis->tls, c,
                                        literal ? NULL : name)
           != NGX_OK)
    {
        ngx_http_kv_router_redis_failed(r, 0, "no memory for redis", NULL);
        return;
    }

    ngx_http_kv_router_redis_debug(r, "begins TLS");

    /* nginx logs the failure itself: do not log it twice */

    if (ngx_http_kv_router_redis_current(r)->down) {
        r->log.log_level = NGX_LOG_EMERG;
    }

    if (ngx_http_kv_router_tls_handshake(c,
                                         ngx_http_kv_router_redis_ssl_handler)
        == NGX_AGAIN)
    {
        ngx_add_timer(c->write, NGX_HTTP_KV_ROUTER_CONNECT);
        return;
    }

    ngx_http_kv_router_redis_ssl_handler(c);
}


static void
ngx_http_kv_router_redis_ssl_handler(ngx_connection_t *c)
{
    ngx_int_t                    rc;
    ngx_str_t                   *name, detail;
    ngx_uint_t                   literal;
    ngx_http_kv_router_redis_t  *r;

    r = c->data;

    r->log.log_level = ngx_cycle->log->log_level;

    if (!ngx_http_kv_router_tls_done(c)) {
        ngx_http_kv_router_redis_failed(r,
                                        c->write->timedout ? NGX_ETIMEDOUT : 0,
                                        "SSL handshake failed", NULL);
        return;
    }

    if (c->write->timer_set) {
        ngx_del_timer(c->write);
    }

    name = ngx_http_kv_router_redis_ssl_name(r, &literal);

    rc = ngx_http_kv_router_tls_check(&r->zone->conf.redis->tls, c, name,
                                      literal, &detail);

    if (rc != NGX_OK) {
        ngx_http_kv_router_redis_failed(r, 0, rc == NGX_DECLINED
                                        ? "redis's certificate does not match"
                                        : "redis's certificate can't be "
                                          "verified", &detail);
        return;
    }

    r->next(r);
}


static ngx_str_t *
ngx_http_kv_router_redis_ssl_name(ngx_http_kv_router_redis_t *r,
    ngx_uint_t *literal)
{
    ngx_http_kv_router_redis_server_t  *server;

    if (r->zone->conf.redis->tls.name.len) {
        *literal = 0;
        return &r->zone->conf.redis->tls.name;
    }

    server = ngx_http_kv_router_redis_current(r);

    if (server->master.len && !r->asking) {
        *literal = 1;
        return &r->master_host;
    }

    *literal = server->literal;

    return &server->host;
}
