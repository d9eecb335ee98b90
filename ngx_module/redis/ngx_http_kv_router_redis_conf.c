
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * kv_router_redis NAME URL [URL...] [channel=kv-events:*] [replay=on|off]
 *     [ssl_verify=on|off] [ssl_trusted_certificate=FILE] [ssl_name=NAME]
 *     [ssl_certificate=FILE ssl_certificate_key=FILE]
 */


#include "ngx_http_kv_router_redis.h"
#include "../module/ngx_http_kv_router_param.h"


static char *ngx_http_kv_router_redis_channel(ngx_conf_t *cf,
    ngx_str_t *value, void *field);


#define at(field)                                                             \
    ngx_http_kv_router_at(ngx_http_kv_router_redis_conf_t, field)

static const ngx_http_kv_router_param_t  ngx_http_kv_router_redis_params[] = {

    { ngx_string("channel"), NGX_HTTP_KV_ROUTER_SET,
      0, 0, 0, 0, ngx_http_kv_router_redis_channel, 0 },

    { ngx_string("replay"), NGX_HTTP_KV_ROUTER_FLAG,
      at(replay), 0, 0, NULL, 0 },

    { ngx_string("ssl_verify"), NGX_HTTP_KV_ROUTER_FLAG,
      at(tls.verify), 0, 0, NULL, 0 },

    { ngx_string("ssl_trusted_certificate"), NGX_HTTP_KV_ROUTER_STR,
      at(tls.trusted_certificate), 0, 0, NULL, 0 },

    { ngx_string("ssl_name"), NGX_HTTP_KV_ROUTER_STR,
      at(tls.name), 0, 0, NULL, 0 },

    { ngx_string("ssl_certificate"), NGX_HTTP_KV_ROUTER_STR,
      at(tls.certificate), 0, 0, NULL, 0 },

    { ngx_string("ssl_certificate_key"), NGX_HTTP_KV_ROUTER_STR,
      at(tls.certificate_key), 0, 0, NULL, 0 },

    { ngx_null_string, 0, 0, 0, 0, 0, NULL, 0 }
};

#undef at


char *
ngx_http_kv_router_redis_parse(ngx_conf_t *cf, ngx_http_kv_router_zone_t *zone)
{
    char                               *rv;
    ngx_str_t                          *value, *ssl_param, masked;
    ngx_uint_t                          i, ssl;
    ngx_http_kv_router_redis_conf_t    *rcf;
    ngx_http_kv_router_redis_server_t  *server;

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
    rcf->tls.verify = 1;

    ssl = 0;
    ssl_param = NULL;

    value = cf->args->elts;

    for (i = 2; i < cf->args->nelts; i++) {

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

        if (ngx_http_kv_router_redis_mask(cf->pool, &value[i], &masked)
            != NGX_OK)
        {
            return NGX_CONF_ERROR;
        }

        rv = ngx_http_kv_router_param(cf, &value[i], &masked,
                                      ngx_http_kv_router_redis_params,
                                      "URLs (redis://host:port, "
                                      "rediss://host:port, "
                                      "redis-sentinel://host:port/MASTER, "
                                      "unix:/path)",
                                      rcf, NULL);
        if (rv != NGX_CONF_OK) {
            return rv;
        }

        if (ngx_strncmp(value[i].data, "ssl_", 4) == 0) {
            ssl_param = &value[i];
        }
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

    if ((rcf->tls.certificate.len == 0)
        != (rcf->tls.certificate_key.len == 0))
    {
        return "needs both of \"ssl_certificate\" and "
               "\"ssl_certificate_key\", or none";
    }

    if (ssl) {
        rv = ngx_http_kv_router_tls_conf(cf, &rcf->tls, "rediss://");
        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    zone->conf.redis = rcf;

    return NGX_CONF_OK;
}


/* A pattern is a prefix and '*': the star stands for the worker's id. */

static char *
ngx_http_kv_router_redis_channel(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    ngx_http_kv_router_redis_conf_t *rcf = field;

    u_char  *p;
    size_t   i;

    static char  must[] = "it must be the channel of one worker, or a prefix "
                          "and \"*\"";

    if (value->len == 0) {
        return must;
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
            return must;
        }
    }

    rcf->channel = *value;
    rcf->prefix = *value;

    if (value->data[value->len - 1] == '*') {
        rcf->prefix.len--;
        return NGX_CONF_OK;
    }

    /* without a star, the channel is one worker's; the id may have colons */

    p = ngx_strlchr(value->data, value->data + value->len, ':');

    rcf->prefix.len = p ? (size_t) (p + 1 - value->data) : 0;

    return kvr_worker_id_valid((char *) value->data + rcf->prefix.len,
                               value->len - rcf->prefix.len)
           ? NGX_CONF_OK : must;
}
