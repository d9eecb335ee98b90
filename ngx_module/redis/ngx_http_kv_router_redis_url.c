
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * URLs of Redis: wire/kvr_redis_url.h has their grammar; here a host becomes
 * addresses.
 */


#include "ngx_http_kv_router_redis.h"

#include <wire/kvr_redis_url.h>


static char *ngx_http_kv_router_redis_url_addrs(ngx_conf_t *cf,
    ngx_http_kv_router_redis_server_t *server, ngx_uint_t is_unix);
static ngx_int_t ngx_http_kv_router_redis_url_copy(ngx_pool_t *pool,
    ngx_str_t *dst, char *text);


ngx_uint_t
ngx_http_kv_router_redis_is_url(ngx_str_t *value)
{
    return kvr_redis_url_is((char *) value->data, value->len);
}


char *
ngx_http_kv_router_redis_url_parse(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_kv_router_redis_server_t *server)
{
    const char       *wrong;
    ngx_pool_t       *pool;
    kvr_redis_url_t   url;

    pool = cf->pool;

    if (ngx_http_kv_router_redis_mask(pool, value, &server->url) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    wrong = kvr_redis_url_parse(&url, (char *) value->data, value->len);

    if (wrong) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\", the URL %s",
                           &server->url, wrong);
        return NGX_CONF_ERROR;
    }

    server->ssl = url.tls;
    server->db = url.db;
    server->port = url.port;

    if (ngx_http_kv_router_redis_url_copy(pool, &server->user, url.user)
        != NGX_OK
        || ngx_http_kv_router_redis_url_copy(pool, &server->password,
                                             url.password)
           != NGX_OK
        || ngx_http_kv_router_redis_url_copy(pool, &server->host, url.host)
           != NGX_OK
        || ngx_http_kv_router_redis_url_copy(pool, &server->master, url.master)
           != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return ngx_http_kv_router_redis_url_addrs(cf, server, url.port == 0);
}


static char *
ngx_http_kv_router_redis_url_addrs(ngx_conf_t *cf,
    ngx_http_kv_router_redis_server_t *server, ngx_uint_t is_unix)
{
    char        *format;
    ngx_url_t    u;
    ngx_addr_t   addr;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.default_port = server->port;
    u.url.data = ngx_pnalloc(cf->pool, server->host.len + 5);
    if (u.url.data == NULL) {
        return NGX_CONF_ERROR;
    }

    if (is_unix) {
        format = "unix:%V";

    } else {
        format = ngx_strchr(server->host.data, ':') ? "[%V]" : "%V";
    }

    u.url.len = ngx_sprintf(u.url.data, format, &server->host) - u.url.data;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {

        if (u.err) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s in \"%V\"", u.err,
                               &server->url);
        }

        return NGX_CONF_ERROR;
    }

    server->addrs = u.addrs;
    server->naddrs = u.naddrs;

    if (is_unix) {
        server->host.len = 0;               /* a path is never resolved */

    } else {
        server->literal = ngx_parse_addr(cf->pool, &addr, server->host.data,
                                         server->host.len)
                          == NGX_OK;
    }

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_kv_router_redis_url_copy(ngx_pool_t *pool, ngx_str_t *dst, char *text)
{
    dst->len = ngx_strlen(text);
    dst->data = ngx_pnalloc(pool, dst->len + 1);
    if (dst->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(dst->data, text, dst->len + 1);

    return NGX_OK;
}


ngx_int_t
ngx_http_kv_router_redis_mask(ngx_pool_t *pool, ngx_str_t *value,
    ngx_str_t *masked)
{
    masked->data = ngx_pnalloc(pool, value->len + KVR_REDIS_URL_MASK);
    if (masked->data == NULL) {
        return NGX_ERROR;
    }

    masked->len = kvr_redis_url_mask((char *) masked->data,
                                     (char *) value->data, value->len);

    return NGX_OK;
}
