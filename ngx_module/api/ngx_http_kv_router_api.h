
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The calls of the HTTP API: one function each.
 */


#ifndef _NGX_HTTP_KV_ROUTER_API_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_API_H_INCLUDED_


#include "ngx_http_kv_router_call.h"


ngx_int_t ngx_http_kv_router_call_query(ngx_http_kv_router_call_t *c);
ngx_int_t ngx_http_kv_router_call_query_by_hash(ngx_http_kv_router_call_t *c);
ngx_int_t ngx_http_kv_router_call_hash(ngx_http_kv_router_call_t *c);
ngx_int_t ngx_http_kv_router_call_events(ngx_http_kv_router_call_t *c);

ngx_int_t ngx_http_kv_router_call_route(ngx_http_kv_router_call_t *c);

ngx_int_t ngx_http_kv_router_call_workers(ngx_http_kv_router_call_t *c);
ngx_int_t ngx_http_kv_router_call_put_worker(ngx_http_kv_router_call_t *c);
ngx_int_t ngx_http_kv_router_call_delete_worker(ngx_http_kv_router_call_t *c);
ngx_int_t ngx_http_kv_router_call_drain(ngx_http_kv_router_call_t *c);

/* prefix caches: in ngx_module/prefix/ */

ngx_int_t ngx_http_kv_router_call_prefix(ngx_http_kv_router_call_t *c);
ngx_int_t ngx_http_kv_router_call_prefix_dump(ngx_http_kv_router_call_t *c);


#endif /* _NGX_HTTP_KV_ROUTER_API_H_INCLUDED_ */
