
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * kv_router_redis NAME URL [URL...] [channel=kv-events:*] [replay=on|off]
 */


#include "ngx_http_kv_router_redis.h"


#define NGX_HTTP_KV_ROUTER_REDIS_PORT  6379


static char *ngx_http_kv_router_redis_server(ngx_conf_t *cf,
    ngx_http_kv_router_redis_conf_t *rcf, ngx_str_t *value);
static ngx_int_t ngx_http_kv_router_redis_mask(ngx_pool_t *pool,
    ngx_str_t *value, ngx_str_t *masked);
static ngx_int_t ngx_http_kv_router_redis_unescape(ngx_pool_t *pool,
    u_char *start, u_char *end, ngx_str_t *dst);
static char *ngx_http_kv_router_redis_channel(
    ngx_http_kv_router_redis_conf_t *rcf, ngx_str_t *value);


char *
ngx_http_kv_router_redis_parse(ngx_conf_t *cf, ngx_http_kv_router_zone_t *zone)
{
    char                             *rv;
    ngx_str_t                        *value, s, masked;
    ngx_uint_t                        i;
    ngx_http_kv_router_redis_conf_t  *rcf;

    if (zone->redis) {
        return "is duplicate";
    }

    rcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_kv_router_redis_conf_t));
    if (rcf == NULL) {
        return NGX_CONF_ERROR;
    }

    if (ngx_array_init(&rcf->servers, cf->pool, 1,
                       sizeof(ngx_http_kv_router_redis_server_t))
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    ngx_str_set(&rcf->channel, "kv-events:*");
    ngx_str_set(&rcf->prefix, "kv-events:");
    rcf->replay = 1;

    value = cf->args->elts;

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "channel=", 8) == 0) {

            s.len = value[i].len - 8;
            s.data = value[i].data + 8;

            if (ngx_http_kv_router_redis_channel(rcf, &s) != NGX_CONF_OK) {
                goto invalid;
            }

            continue;
        }

        if (ngx_strcmp(value[i].data, "replay=on") == 0) {
            rcf->replay = 1;
            continue;
        }

        if (ngx_strcmp(value[i].data, "replay=off") == 0) {
            rcf->replay = 0;
            continue;
        }

        if (ngx_strncmp(value[i].data, "ssl_", 4) == 0
            || ngx_strncasecmp(value[i].data, (u_char *) "rediss://", 9) == 0)
        {
            if (ngx_http_kv_router_redis_mask(cf->pool, &value[i], &masked)
                != NGX_OK)
            {
                return NGX_CONF_ERROR;
            }

            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "TLS to Redis is not supported yet in \"%V\"",
                               &masked);
            return NGX_CONF_ERROR;
        }

        if (ngx_strncasecmp(value[i].data, (u_char *) "redis://", 8) == 0
            || ngx_strncasecmp(value[i].data, (u_char *) "unix:", 5) == 0)
        {
            rv = ngx_http_kv_router_redis_server(cf, rcf, &value[i]);
            if (rv != NGX_CONF_OK) {
                return rv;
            }

            continue;
        }

        goto invalid;
    }

    if (rcf->servers.nelts == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "no URL of Redis in \"%V\" directive", &value[0]);
        return NGX_CONF_ERROR;
    }

    zone->redis = rcf;

    return NGX_CONF_OK;

invalid:

    if (ngx_http_kv_router_redis_mask(cf->pool, &value[i], &masked)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"",
                       &masked);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_kv_router_redis_server(ngx_conf_t *cf,
    ngx_http_kv_router_redis_conf_t *rcf, ngx_str_t *value)
{
    u_char                             *p, *last, *at, *colon, *slash;
    ngx_url_t                           u;
    ngx_http_kv_router_redis_server_t  *server;

    server = ngx_array_push(&rcf->servers);
    if (server == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(server, sizeof(ngx_http_kv_router_redis_server_t));

    if (ngx_http_kv_router_redis_mask(cf->pool, value, &server->url)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = *value;
    u.default_port = NGX_HTTP_KV_ROUTER_REDIS_PORT;

    if (ngx_strncasecmp(value->data, (u_char *) "redis://", 8) == 0) {

        p = value->data + 8;
        last = value->data + value->len;

        at = NULL;

        for (slash = p; slash < last && *slash != '/'; slash++) {
            if (*slash == '@') {
                at = slash;
            }
        }

        if (at) {
            colon = ngx_strlchr(p, at, ':');

            /* a lone word is the password, as redis-cli has it */

            if (ngx_http_kv_router_redis_unescape(cf->pool, p,
                                                  colon ? colon : p,
                                                  &server->user)
                != NGX_OK
                || ngx_http_kv_router_redis_unescape(cf->pool,
                                                     colon ? colon + 1 : p,
                                                     at, &server->password)
                   != NGX_OK)
            {
                goto invalid;
            }

            if (server->password.len == 0) {
                goto invalid;
            }

            p = at + 1;
        }

        if (slash + 1 < last) {
            server->db = ngx_atoi(slash + 1, last - slash - 1);
            if (server->db == NGX_ERROR) {
                goto invalid;
            }
        }

        u.url.len = slash - p;
        u.url.data = p;

        if (u.url.len == 0 || ngx_strncasecmp(p, (u_char *) "unix:", 5) == 0)
        {
            goto invalid;
        }
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

    return NGX_CONF_OK;

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"",
                       &server->url);

    return NGX_CONF_ERROR;
}


/* whatever may be a password is hidden, in text that is no URL as well */

static ngx_int_t
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

    if (at == NULL || ngx_strncmp(value->data, "unix:", 5) == 0) {
        *masked = *value;
        return NGX_OK;
    }

    colon = ngx_strlchr(start, at, ':');

    if (colon) {
        colon++;

    } else {
        colon = start;
    }

    masked->data = ngx_pnalloc(pool, value->len + 3);
    if (masked->data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(masked->data, value->data, colon - value->data);
    p = ngx_cpymem(p, "***", 3);
    p = ngx_cpymem(p, at, last - at);

    masked->len = p - masked->data;

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


/* patterns are a prefix and '*': what the star stands for is the worker */

static char *
ngx_http_kv_router_redis_channel(ngx_http_kv_router_redis_conf_t *rcf,
    ngx_str_t *value)
{
    u_char  *p;
    size_t   i;

    if (value->len == 0) {
        return NGX_CONF_ERROR;
    }

    for (i = 0; i < value->len; i++) {

        switch (value->data[i]) {

        case '*':
            if (i == value->len - 1) {
                break;
            }

            /* fall through */

        case '?':
        case '[':
        case '\\':
            return NGX_CONF_ERROR;
        }
    }

    rcf->channel = *value;
    rcf->prefix = *value;

    if (value->data[value->len - 1] == '*') {
        rcf->prefix.len--;
        return NGX_CONF_OK;
    }

    /* the channel of one worker, whose id may have colons */

    p = ngx_strlchr(value->data, value->data + value->len, ':');

    rcf->prefix.len = p ? (size_t) (p + 1 - value->data) : 0;

    return kvr_worker_id_valid((char *) value->data + rcf->prefix.len,
                               value->len - rcf->prefix.len)
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}
