
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_param.h"
#include "ngx_http_kv_router_resolver.h"

#include <core/kvr_hash.h>
#include <wire/kvr_address.h>


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


kvr_worker_conf_t *
ngx_http_kv_router_resolve_all(ngx_conf_t *cf, ngx_http_kv_router_zone_t *zone,
    ngx_str_t *name, ngx_str_t *resolve)
{
    ngx_uint_t          i;
    const char         *wrong;
    kvr_worker_conf_t  *w;

    wrong = kvr_address_wrong((char *) name->data);
    w = zone->conf.names.elts;

    for (i = 0; i < zone->conf.names.nelts; i++) {
        if (ngx_strcmp(w[i].address, name->data) == 0) {
            wrong = "the zone has this name already";
        }
    }

    w = ngx_array_push(&zone->conf.names);
    if (w == NULL) {
        return NULL;
    }

    kvr_worker_conf_init(w, "", 0);
    w->name = kvr_hash_bytes(name->data, name->len, 0);

    if (wrong == NULL
        && (kvr_address_named((char *) name->data) == 0
            || ngx_http_kv_router_param_copy(name, w->address,
                                             sizeof(w->address))
               != NGX_OK))
    {
        wrong = "it must be a host name of 249 bytes at most";
    }

    if (ngx_strcmp(resolve->data, "resolve=all") != 0) {
        wrong = "it must be \"resolve=all\"";
    }

    if (wrong) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid \"%V %V\": %s; workers of a name have no "
                           "id, write \"kv_router_worker %V HOST:PORT "
                           "resolve=all\"", name, resolve, wrong,
                           &zone->conf.name);
        return NULL;
    }

    return w;
}


ngx_uint_t
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


ngx_msec_t
ngx_http_kv_router_resolved(const ngx_resolver_ctx_t *ctx, uint32_t *error)
{
    time_t  valid;

    *error = ctx->state;

    if (ctx->state == NGX_OK && ctx->naddrs) {

        /* a second more: until then the resolver answers from its cache */

        valid = ngx_max(ctx->valid - ngx_time(), 0) + 1;

        return ngx_min(valid, NGX_HTTP_KV_ROUTER_RESOLVE_MAX) * 1000;
    }

    if (ctx->state == NGX_OK) {
        *error = NGX_RESOLVE_NXDOMAIN;
    }

    return NGX_HTTP_KV_ROUTER_RESOLVE_AGAIN;
}


void
ngx_http_kv_router_resolved_text(const ngx_resolver_addr_t *addr,
    in_port_t port, char text[KVR_NAME_ADDRESS])
{
    ngx_sockaddr_t  sa;

    ngx_memcpy(&sa, addr->sockaddr, addr->socklen);
    ngx_inet_set_port(&sa.sockaddr, port);

    ngx_memzero(text, KVR_NAME_ADDRESS);
    (void) ngx_sock_ntop(&sa.sockaddr, addr->socklen, (u_char *) text,
                         KVR_NAME_ADDRESS - 1, 1);
}


const char *
ngx_http_kv_router_name_error(uint32_t error)
{
    if (error == NGX_HTTP_KV_ROUTER_NO_RESOLVER) {
        return "no \"resolver\" in the http block";
    }

    return error ? ngx_resolver_strerror(error) : "";
}
