
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The calls of the HTTP API: one function each.
 */


#ifndef _NGX_HTTP_KV_ROUTER_API_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_API_H_INCLUDED_


#include "ngx_http_kv_router_call.h"


/*
 * One row each:
 *
 *     the function, ngx_http_kv_router_call_…
 *     the path, in which a word in capitals stands for an id
 *     the method
 *     1: the body is needed
 *     1: the zone is changed
 *
 * To add one: a row, the function, and docs/openapi.json and docs/api.md.
 */

#define NGX_HTTP_KV_ROUTER_CALLS(row)                                         \
    row(query, "query", POST, 1, 0)                                           \
    row(query_by_hash, "query_by_hash", POST, 1, 0)                           \
    row(hash, "hash", POST, 1, 0)                                             \
    row(events, "events", POST, 1, 1)                                         \
    row(dump, "dump", GET, 0, 0)                                              \
    row(workers, "workers", GET, 0, 0)                                        \
    row(put_worker, "workers/ID", PUT, 1, 1)                                  \
    row(delete_worker, "workers/ID", DELETE, 0, 1)                            \
    row(drain, "workers/ID/drain", POST, 1, 1)                                \
    row(route, "route", POST, 1, 0)                                           \
    row(select, "select", POST, 0, 1)                                         \
    row(reservation, "reservations/ID", POST, 1, 1)                           \
    row(stats, "stats", GET, 0, 0)                                            \
    row(prefix, "prefix_cache", GET, 0, 0)                                    \
    row(prefix_dump, "prefix_cache/ZONE/dump", GET, 0, 0)

#define ngx_http_kv_router_call(func, ...)                                    \
    ngx_int_t ngx_http_kv_router_call_##func(ngx_http_kv_router_call_t *c);

NGX_HTTP_KV_ROUTER_CALLS(ngx_http_kv_router_call)


/* by the timer of each process: reservations of POST /select that are over */
void ngx_http_kv_router_selections_tend(ngx_http_kv_router_zone_t *zone);


#endif /* _NGX_HTTP_KV_ROUTER_API_H_INCLUDED_ */
