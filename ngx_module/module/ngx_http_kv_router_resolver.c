
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_resolver.h"

#include <wire/kvr_address.h>


static ngx_uint_t ngx_http_kv_router_resolver(
    ngx_http_kv_router_zone_t *zone);


const char *
ngx_http_kv_router_address_wrong(ngx_http_kv_router_zone_t *zone,
    const char *address)
{
    const char  *wrong;

    wrong = kvr_address_wrong(address);

    if (wrong == NULL && kvr_address_named(address)
        && !ngx_http_kv_router_resolver(zone))
    {
        return "a host name needs the directive \"resolver\" in the http "
               "block: add it, or write an IP address";
    }

    return wrong;
}


static ngx_uint_t
ngx_http_kv_router_resolver(ngx_http_kv_router_zone_t *zone)
{
    ngx_resolver_t  *resolver;

    /* nginx gives an http block without the directive one without servers */

    resolver = zone->conf.core->resolver;

    return resolver && resolver->connections.nelts;
}


ngx_int_t
ngx_http_kv_router_resolve(ngx_http_kv_router_zone_t *zone, ngx_str_t *name,
    ngx_resolver_handler_pt handler, void *data, ngx_resolver_ctx_t **ctx)
{
    ngx_resolver_ctx_t         *new, temp;
    ngx_http_core_loc_conf_t   *core;

    *ctx = NULL;
    core = zone->conf.core;

    if (!ngx_http_kv_router_resolver(zone)) {
        return NGX_DECLINED;
    }

    ngx_memzero(&temp, sizeof(ngx_resolver_ctx_t));
    temp.name = *name;

    new = ngx_resolve_start(core->resolver, &temp);

    if (new == NULL || new == NGX_NO_RESOLVER) {
        return NGX_ERROR;
    }

    new->name = *name;
    new->handler = handler;
    new->data = data;
    new->timeout = core->resolver_timeout == NGX_CONF_UNSET_MSEC
                   ? NGX_HTTP_KV_ROUTER_RESOLVE
                   : ngx_min(core->resolver_timeout,
                             NGX_HTTP_KV_ROUTER_RESOLVE);
    new->cancelable = 1;

    /* ngx_resolve_name() may call the handler at once */

    *ctx = new;

    if (ngx_resolve_name(new) != NGX_OK) {
        *ctx = NULL;
        return NGX_ERROR;
    }

    return NGX_AGAIN;
}
