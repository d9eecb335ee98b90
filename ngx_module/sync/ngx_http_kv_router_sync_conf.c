
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * kv_router_sync NAME off
 * kv_router_sync NAME [name=NAME] [timeout=TIME] [key=SECRET]
 *     [bounds=shared|own]
 */


#include "ngx_http_kv_router_sync.h"
#include "../module/ngx_http_kv_router_param.h"


#define NGX_HTTP_KV_ROUTER_SYNC_TIMEOUT_MAX  60000  /* ms */
#define NGX_HTTP_KV_ROUTER_SYNC_KEY_MIN      16     /* bytes */


static char *
ngx_http_kv_router_sync_name(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    size_t  i;

    static char  must[] = "it must be 1..63 printable ASCII characters";

    for (i = 0; i < value->len; i++) {
        if (value->data[i] < ' ' || value->data[i] > '~') {
            return must;
        }
    }

    if (value->len == 0 || value->len > KVR_PEERS_NAME_MAX) {
        return must;
    }

    *(ngx_str_t *) field = *value;

    return NGX_CONF_OK;
}


/* A reader of the channel can try short keys until one fits. */

static char *
ngx_http_kv_router_sync_key(ngx_conf_t *cf, ngx_str_t *value, void *field)
{
    if (value->len < NGX_HTTP_KV_ROUTER_SYNC_KEY_MIN) {
        return "it must have 16 characters or more";
    }

    *(ngx_str_t *) field = *value;

    return NGX_CONF_OK;
}


static const char *const  ngx_http_kv_router_sync_bounds[] = {
    "shared", "own", NULL
};


#define at(field)                                                             \
    ngx_http_kv_router_at(ngx_http_kv_router_sync_conf_t, field)

static const ngx_http_kv_router_param_t  ngx_http_kv_router_sync_params[] = {

    { ngx_string("name"), NGX_HTTP_KV_ROUTER_SET,
      at(name), 0, 0, ngx_http_kv_router_sync_name, 0 },

    { ngx_string("timeout"), NGX_HTTP_KV_ROUTER_MSEC,
      at(timeout), 2 * KVR_TELLER_ABOUT_MS,
      NGX_HTTP_KV_ROUTER_SYNC_TIMEOUT_MAX, NULL, 0 },

    { ngx_string("key"), NGX_HTTP_KV_ROUTER_SET,
      at(key), 0, 0, ngx_http_kv_router_sync_key, 0 },

    { ngx_string("bounds"), NGX_HTTP_KV_ROUTER_WORD,
      at(bounds_own), 0, 0, ngx_http_kv_router_sync_bounds, 0 },

    { ngx_null_string, 0, 0, 0, 0, 0, NULL, 0 }
};

#undef at


char *
ngx_http_kv_router_sync(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    u_char                     *p;
    ngx_str_t                  *value, shown;
    ngx_uint_t                  i;
    ngx_http_kv_router_zone_t  *zone;

    zone = ngx_http_kv_router_conf_zone(cf, cmd);
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }

    if (zone->conf.sync.set) {
        return "is duplicate";
    }

    zone->conf.sync.set = 1;

    value = cf->args->elts;

    if (cf->args->nelts == 3 && ngx_strcmp(value[2].data, "off") == 0) {
        zone->conf.sync.on = 0;
        return NGX_CONF_OK;
    }

    for (i = 2; i < cf->args->nelts; i++) {

        /* a message shows no secret, not even behind a name that is wrong */

        shown = value[i];
        p = ngx_strlchr(shown.data, shown.data + shown.len, '=');

        if (p && ngx_tolower(shown.data[0]) == 'k') {
            shown.len = p + 1 - shown.data;
        }

        if (ngx_http_kv_router_param(cf, &value[i], &shown,
                                     ngx_http_kv_router_sync_params, "off",
                                     &zone->conf.sync, NULL)
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}
