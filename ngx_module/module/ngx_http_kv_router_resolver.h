
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Host names that nginx's resolver looks up: the "resolver" of the http block.
 */


#ifndef _NGX_HTTP_KV_ROUTER_RESOLVER_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_RESOLVER_H_INCLUDED_


#include "ngx_http_kv_router_module.h"


/* milliseconds: the maximum, and the time without "resolver_timeout" */
#define NGX_HTTP_KV_ROUTER_RESOLVE  30000


/*
 * Checks the address of a worker from the API or Redis, as kvr_address_wrong()
 * does; a host name needs a resolver.
 */
const char *ngx_http_kv_router_address_wrong(ngx_http_kv_router_zone_t *zone,
    const char *address);

/*
 * Begins to look a name up.  NGX_AGAIN: the handler was called, or will be,
 * and must call ngx_resolve_name_done().  Until then *ctx is the lookup, and
 * the handler must set it to NULL first.  NGX_DECLINED: there is no resolver;
 * NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_kv_router_resolve(ngx_http_kv_router_zone_t *zone,
    ngx_str_t *name, ngx_resolver_handler_pt handler, void *data,
    ngx_resolver_ctx_t **ctx);


#endif /* _NGX_HTTP_KV_ROUTER_RESOLVER_H_INCLUDED_ */
