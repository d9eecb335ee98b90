
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * kv_router_redis NAME URL [URL...] [channel=kv-events:*] [replay=on|off]
 *     [ssl_verify=on|off] [ssl_trusted_certificate=FILE] [ssl_name=NAME]
 *     [ssl_certificate=FILE ssl_certificate_key=FILE]
 */


#include "ngx_http_kv_router_redis.h"


static char *ngx_http_kv_router_redis_ssl_param(
    ngx_http_kv_router_redis_conf_t *rcf, ngx_str_t *value);
static char *ngx_http_kv_router_redis_channel(
    ngx_http_kv_router_redis_conf_t *rcf, ngx_str_t *value);


char *
ngx_http_kv_router_redis_parse(ngx_conf_t *cf, ngx_http_kv_router_zone_t *zone)
{
    char                               *rv;
    ngx_str_t                          *value, *ssl_param, s, masked;
    ngx_uint_t                          i, ssl;
    ngx_http_kv_router_redis_conf_t    *rcf;
    ngx_http_kv_router_redis_server_t  *server;

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

    ngx_str_set(&rcf->channel, KVR_CHANNEL "*");
    ngx_str_set(&rcf->prefix, KVR_CHANNEL);
    rcf->replay = 1;
    rcf->ssl_verify = 1;
    rcf->core = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    ssl = 0;
    ssl_param = NULL;

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

        if (ngx_strncmp(value[i].data, "ssl_", 4) == 0) {

            if (ngx_http_kv_router_redis_ssl_param(rcf, &value[i])
                != NGX_CONF_OK)
            {
                goto invalid;
            }

            ssl_param = &value[i];
            continue;
        }

        if (ngx_http_kv_router_redis_is_url(&value[i])) {

            server = ngx_array_push(&rcf->servers);
            if (server == NULL) {
                return NGX_CONF_ERROR;
            }

            ngx_memzero(server, sizeof(ngx_http_kv_router_redis_server_t));

            rv = ngx_http_kv_router_redis_url_parse(cf, &value[i], server);
            if (rv != NGX_CONF_OK) {
                return rv;
            }

            ssl |= server->ssl;
            continue;
        }

        goto invalid;
    }

    if (rcf->servers.nelts == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "no URL of Redis in \"%V\" directive", &value[0]);
        return NGX_CONF_ERROR;
    }

    if (ssl_param && !ssl) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" is of no use without a \"rediss://\" URL",
                           ssl_param);
        return NGX_CONF_ERROR;
    }

    if ((rcf->ssl_certificate.len == 0) != (rcf->ssl_certificate_key.len == 0))
    {
        return "needs both of \"ssl_certificate\" and "
               "\"ssl_certificate_key\", or none";
    }

    if (ssl) {
        rv = ngx_http_kv_router_redis_ssl_conf(cf, rcf);
        if (rv != NGX_CONF_OK) {
            return rv;
        }
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
ngx_http_kv_router_redis_ssl_param(ngx_http_kv_router_redis_conf_t *rcf,
    ngx_str_t *value)
{
    u_char      *p;
    ngx_str_t   *s;
    ngx_uint_t   i;

    static const struct {
        ngx_str_t   name;
        size_t      offset;
    } names[] = {
        { ngx_string("ssl_trusted_certificate="),
          offsetof(ngx_http_kv_router_redis_conf_t,
                   ssl_trusted_certificate) },
        { ngx_string("ssl_name="),
          offsetof(ngx_http_kv_router_redis_conf_t, ssl_name) },
        { ngx_string("ssl_certificate="),
          offsetof(ngx_http_kv_router_redis_conf_t, ssl_certificate) },
        { ngx_string("ssl_certificate_key="),
          offsetof(ngx_http_kv_router_redis_conf_t, ssl_certificate_key) },
        { ngx_null_string, 0 }
    };

    if (ngx_strcmp(value->data, "ssl_verify=on") == 0) {
        rcf->ssl_verify = 1;
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(value->data, "ssl_verify=off") == 0) {
        rcf->ssl_verify = 0;
        return NGX_CONF_OK;
    }

    p = ngx_strlchr(value->data, value->data + value->len, '=');

    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    p++;

    for (i = 0; names[i].name.len; i++) {

        if ((size_t) (p - value->data) == names[i].name.len
            && ngx_strncmp(value->data, names[i].name.data, names[i].name.len)
               == 0)
        {
            s = (ngx_str_t *) ((u_char *) rcf + names[i].offset);
            s->len = value->data + value->len - p;
            s->data = p;

            return s->len ? NGX_CONF_OK : NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_ERROR;
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
