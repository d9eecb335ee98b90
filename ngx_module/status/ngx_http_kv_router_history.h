
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the status page shows beside the present numbers: the last hour, the
 * last decisions, the prefixes that are asked for most often, and the tree.
 */


#ifndef _NGX_HTTP_KV_ROUTER_HISTORY_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_HISTORY_H_INCLUDED_


#include "ngx_http_kv_router_stats.h"


/* takes a sample if one is due; called each 100 ms by each process */
void ngx_http_kv_router_history_tend(ngx_http_kv_router_zone_t *zone);

/* parts of the JSON: an object each */
void ngx_http_kv_router_history_json(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, yajl_gen g);
void ngx_http_kv_router_decisions_json(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, yajl_gen g);
void ngx_http_kv_router_prefixes_json(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, yajl_gen g);
void ngx_http_kv_router_tree_json(ngx_http_request_t *r,
    ngx_http_kv_router_zone_t *zone, yajl_gen g);

/* now, milliseconds of the unix clock */
uint64_t ngx_http_kv_router_unix_ms(void);


#endif /* _NGX_HTTP_KV_ROUTER_HISTORY_H_INCLUDED_ */
