
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Prefix caches: zones of kv_router_prefix_cache.
 */


#ifndef _NGX_HTTP_KV_ROUTER_PREFIX_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_PREFIX_H_INCLUDED_


#include "../module/ngx_http_kv_router_module.h"

#include <prefix/kvr_prefix.h>


/* in shared memory */

typedef struct {
    void                           *base;      /* the cache's zone */
    size_t                          size;
} ngx_http_kv_router_prefix_sh_t;


/*
 * A cache as one process knows it.  Made by the directive; attached by the
 * zone's init, joined by each worker process.
 */

typedef struct {
    ngx_str_t                       name;
    size_t                          size;      /* of its shared memory */
    kvr_prefix_params_t             params;
    kvr_prefix_t                    cache;
    ngx_shm_zone_t                 *shm_zone;
    ngx_http_kv_router_prefix_sh_t *sh;
    ngx_event_t                     tend;
    ngx_connection_t                tend_conn; /* dummy for the timer's log */
} ngx_http_kv_router_prefix_t;


/* The cache of that name, or NULL. */
ngx_http_kv_router_prefix_t *ngx_http_kv_router_find_prefix(
    ngx_cycle_t *cycle, ngx_str_t *name);

/* JSON: an object with parameters and numbers. */
void ngx_http_kv_router_prefix_json(ngx_http_kv_router_prefix_t *prefix,
    yajl_gen g);


#endif /* _NGX_HTTP_KV_ROUTER_PREFIX_H_INCLUDED_ */
