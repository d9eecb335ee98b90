
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * URLs of Redis:
 *
 *     redis://[[user:]password@]host[:port][/db]
 *     rediss://…                                       with TLS
 *     unix:/path[?db=N]
 *     unix://[[user:]password@]/path[?db=N]
 */


#include "ngx_http_kv_router_redis.h"


#define NGX_HTTP_KV_ROUTER_REDIS_PORT  6379


static ngx_int_t ngx_http_kv_router_redis_url_user(ngx_pool_t *pool,
    u_char *start, u_char *at, ngx_http_kv_router_redis_server_t *server);
static ngx_int_t ngx_http_kv_router_redis_url_host(ngx_conf_t *cf,
    ngx_str_t *host, ngx_http_kv_router_redis_server_t *server);
static ngx_int_t ngx_http_kv_router_redis_unescape(ngx_pool_t *pool,
    u_char *start, u_char *end, ngx_str_t *dst);


ngx_uint_t
ngx_http_kv_router_redis_is_url(ngx_str_t *value)
{
    return ngx_strncasecmp(value->data, (u_char *) "redis://", 8) == 0
           || ngx_strncasecmp(value->data, (u_char *) "rediss://", 9) == 0
           || ngx_strncasecmp(value->data, (u_char *) "unix:", 5) == 0;
}


char *
ngx_http_kv_router_redis_url_parse(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_kv_router_redis_server_t *server)
{
    u_char     *p, *last, *at, *slash, *end, *db;
    ngx_str_t   s;
    ngx_url_t   u;
    ngx_uint_t  is_unix;

    if (ngx_http_kv_router_redis_mask(cf->pool, value, &server->url)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    last = value->data + value->len;

    is_unix = ngx_strncasecmp(value->data, (u_char *) "unix:", 5) == 0;
    server->ssl = ngx_strncasecmp(value->data, (u_char *) "rediss", 6) == 0;

    p = ngx_strlchr(value->data, last, ':') + 1;

    if (!is_unix || ngx_strncmp(p, "//", 2) == 0) {
        p += 2;
    }

    at = NULL;

    for (slash = p; slash < last && *slash != '/'; slash++) {
        if (*slash == '@') {
            at = slash;
        }
    }

    if (at) {
        if (ngx_http_kv_router_redis_url_user(cf->pool, p, at, server)
            != NGX_OK)
        {
            goto invalid;
        }

        p = at + 1;
    }

    end = slash;
    db = slash + 1;

    if (is_unix) {

        /* a socket's path has no question mark that would be its own */

        end = ngx_strlchr(slash, last, '?');
        end = end ? end : last;
        db = end;

        if (end < last) {
            if (ngx_strncmp(end, "?db=", 4) != 0) {
                goto invalid;
            }

            db = end + 4;

            if (db == last) {
                goto invalid;
            }
        }

        if (p != slash || end - p < 2) {
            goto invalid;
        }
    }

    if (db < last) {
        server->db = ngx_atoi(db, last - db);

        if (server->db == NGX_ERROR) {
            goto invalid;
        }
    }

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.default_port = NGX_HTTP_KV_ROUTER_REDIS_PORT;
    u.url.len = end - p;
    u.url.data = p;

    if (is_unix) {
        u.url.len += 5;
        u.url.data = ngx_pnalloc(cf->pool, u.url.len);
        if (u.url.data == NULL) {
            return NGX_CONF_ERROR;
        }

        ngx_memcpy(ngx_cpymem(u.url.data, "unix:", 5), p, end - p);

    } else if (u.url.len == 0
               || ngx_strncasecmp(p, (u_char *) "unix:", 5) == 0)
    {
        goto invalid;
    }

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {

        if (u.err == NULL) {
            return NGX_CONF_ERROR;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s in \"%V\"", u.err,
                           &server->url);
        return NGX_CONF_ERROR;
    }

    server->addrs = u.addrs;
    server->naddrs = u.naddrs;
    server->port = u.port;

    if (is_unix) {
        return NGX_CONF_OK;
    }

    s = u.host;

    return ngx_http_kv_router_redis_url_host(cf, &s, server) == NGX_OK
           ? NGX_CONF_OK : NGX_CONF_ERROR;

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"",
                       &server->url);

    return NGX_CONF_ERROR;
}


/* a lone word is the password, as redis-cli has it */

static ngx_int_t
ngx_http_kv_router_redis_url_user(ngx_pool_t *pool, u_char *start, u_char *at,
    ngx_http_kv_router_redis_server_t *server)
{
    u_char  *colon;

    colon = ngx_strlchr(start, at, ':');

    if (ngx_http_kv_router_redis_unescape(pool, start, colon ? colon : start,
                                          &server->user)
        != NGX_OK
        || ngx_http_kv_router_redis_unescape(pool, colon ? colon + 1 : start,
                                             at, &server->password)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return server->password.len ? NGX_OK : NGX_ERROR;
}


/* the host must be one that a certificate or a resolver can name */

static ngx_int_t
ngx_http_kv_router_redis_url_host(ngx_conf_t *cf, ngx_str_t *host,
    ngx_http_kv_router_redis_server_t *server)
{
    ngx_addr_t  addr;

    if (host->len > 2 && host->data[0] == '[') {
        host->data++;
        host->len -= 2;
    }

    server->host.data = ngx_pnalloc(cf->pool, host->len + 1);
    if (server->host.data == NULL) {
        return NGX_ERROR;
    }

    server->host.len = host->len;
    ngx_cpystrn(server->host.data, host->data, host->len + 1);

    server->literal = ngx_parse_addr(cf->pool, &addr, server->host.data,
                                     server->host.len)
                      == NGX_OK;

    return NGX_OK;
}


/* whatever may be a password is hidden, in text that is no URL as well */

ngx_int_t
ngx_http_kv_router_redis_mask(ngx_pool_t *pool, ngx_str_t *value,
    ngx_str_t *masked)
{
    u_char  *p, *start, *last, *at, *colon;

    last = value->data + value->len;

    start = ngx_strnstr(value->data, "://", value->len);
    start = start ? start + 3 : value->data;

    at = NULL;

    for (p = start; p < last; p++) {
        if (*p == '@') {
            at = p;
        }
    }

    if (at == NULL || ngx_strncasecmp(start, (u_char *) "unix:", 5) == 0) {
        *masked = *value;

    } else {
        colon = ngx_strlchr(start, at, ':');
        colon = colon ? colon + 1 : start;

        masked->data = ngx_pnalloc(pool, value->len + 3);
        if (masked->data == NULL) {
            return NGX_ERROR;
        }

        p = ngx_cpymem(masked->data, value->data, colon - value->data);
        p = ngx_cpymem(p, "***", 3);
        p = ngx_cpymem(p, at, last - at);

        masked->len = p - masked->data;
    }

    /* "?password=…", as other clients have it */

    p = ngx_strnstr(masked->data, "password=", masked->len);

    if (p) {
        masked->len = p - masked->data + sizeof("password=") - 1;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kv_router_redis_unescape(ngx_pool_t *pool, u_char *start,
    u_char *end, ngx_str_t *dst)
{
    u_char     *p, *d;
    ngx_int_t   n;

    d = ngx_pnalloc(pool, end - start + 1);
    if (d == NULL) {
        return NGX_ERROR;
    }

    dst->data = d;

    for (p = start; p < end; p++) {

        if (*p != '%') {
            *d++ = *p;
            continue;
        }

        if (end - p < 3) {
            return NGX_ERROR;
        }

        n = ngx_hextoi(p + 1, 2);
        if (n == NGX_ERROR) {
            return NGX_ERROR;
        }

        *d++ = (u_char) n;
        p += 2;
    }

    dst->len = d - dst->data;

    return NGX_OK;
}
