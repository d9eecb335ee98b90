
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Host names that nginx's resolver looks up: the "resolver" of the http block.
 */


#ifndef _NGX_HTTP_KV_ROUTER_RESOLVER_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_RESOLVER_H_INCLUDED_


#include "ngx_http_kv_router_module.h"


#define NGX_HTTP_KV_ROUTER_RESOLVE_AGAIN  5000     /* ms after a failure */
#define NGX_HTTP_KV_ROUTER_RESOLVE_MAX    86400    /* s, whatever the TTL */


/* milliseconds: the maximum, and the time without "resolver_timeout" */
#define NGX_HTTP_KV_ROUTER_RESOLVE  30000


/*
 * Checks the address of a worker from the API or Redis, as kvr_address_wrong()
 * does; a host name needs a resolver.
 */
const char *ngx_http_kv_router_address_wrong(ngx_http_kv_router_zone_t *zone,
    const char *address);

/*
 * Reads "HOST:PORT resolve=all" of a kv_router_worker: an element of the
 * zone's names, which all of its workers are like.  NULL: an error, which is
 * logged.
 */
kvr_worker_conf_t *ngx_http_kv_router_resolve_all(ngx_conf_t *cf,
    ngx_http_kv_router_zone_t *zone, ngx_str_t *name, ngx_str_t *resolve);

/* Does the http block have the directive "resolver"? */
ngx_uint_t ngx_http_kv_router_resolver(ngx_http_kv_router_zone_t *zone);

/*
 * Begins to look a name up.  NGX_AGAIN: the handler was called, or will be,
 * and must call ngx_resolve_name_done().  Until then *ctx is the lookup, and
 * the handler must set it to NULL first.  NGX_DECLINED: there is no resolver;
 * NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_kv_router_resolve(ngx_http_kv_router_zone_t *zone,
    ngx_str_t *name, ngx_resolver_handler_pt handler, void *data,
    ngx_resolver_ctx_t **ctx);

/*
 * Reads the result of a lookup.  *error: 0: the name has the addresses of ctx;
 * NGX_RESOLVE_NXDOMAIN: it has none; after all other errors it keeps those
 * that it had: a name server that fails must not take workers out.  Returns
 * the time in ms after which the name must be looked up again.
 */
ngx_msec_t ngx_http_kv_router_resolved(const ngx_resolver_ctx_t *ctx,
    uint32_t *error);

/* Writes an address of a lookup as text, with the port; ends with nulls. */
void ngx_http_kv_router_resolved_text(const ngx_resolver_addr_t *addr,
    in_port_t port, char text[KVR_NAME_ADDRESS]);


#endif /* _NGX_HTTP_KV_ROUTER_RESOLVER_H_INCLUDED_ */
