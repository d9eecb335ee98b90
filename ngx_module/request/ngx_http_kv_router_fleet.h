
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A process's copy of the fleet.
 */


#ifndef _NGX_HTTP_KV_ROUTER_FLEET_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_FLEET_H_INCLUDED_


#include "../module/ngx_http_kv_router_module.h"


/* a holder, as a process remembers it from the zone */

typedef struct {
    uint32_t                        holder;
    uint32_t                        generation;
    uint32_t                        number;    /* of the worker */
    uint32_t                        rank;
    uint32_t                        first;     /* holder of its worker, for
                                                  which the queue grants */
    uint32_t                        role;
    uint32_t                        max_active;
    uint32_t                        max_prefill_tokens;  /* 0: no bound, or */
    uint32_t                        auto_seconds;  /* of prefilling, by all
                                                  ranks; 0: none */
    uint32_t                        engine;    /* kvr_engine_kind_t */
    double                          weight;
    double                          speed;     /* tokens prefilled per second;
                                                  0: not known */
    const kvr_worker_t             *worker;    /* in the zone */
    ngx_str_t                       id;
    ngx_str_t                       address;
    ngx_str_t                       host;      /* of address; "unix:/path" */
    ngx_str_t                       model;
    ngx_str_t                       lora;      /* kvr_adapters.h */
    in_port_t                       port;
    kvr_health_params_t             health;
    unsigned                        draining:1;
} ngx_http_kv_router_holder_t;


/*
 * The routable holders of a zone, copied when the fleet's version changes.
 * Never changed once it is made, but for the speeds; a request that uses it
 * holds a reference.
 */

typedef struct ngx_http_kv_router_fleet_s {
    uint32_t                        version;
    ngx_uint_t                      refs;
    ngx_pool_t                     *pool;
    ngx_uint_t                      n;
    ngx_uint_t                      size;      /* of holders */
    ngx_http_kv_router_holder_t    *holders;
    uint32_t                       *by_holder; /* index + 1; 0: none */
    uint32_t                        engines;   /* kinds, a bit for each */
    ngx_array_t                     named;     /* holders, one for each worker
                                                  whose address has a host
                                                  name, resolved or not: its
                                                  worker, number, generation,
                                                  id, address with the name */
} ngx_http_kv_router_fleet_t;

/* the current one, with a reference taken; NULL when out of memory */
ngx_http_kv_router_fleet_t *ngx_http_kv_router_fleet_get(
    ngx_http_kv_router_zone_t *zone);
void ngx_http_kv_router_fleet_put(ngx_http_kv_router_fleet_t *fleet);

/* max_prefill_tokens, in force, of all ranks; 0: no bound, or not known yet */
static ngx_inline uint32_t
ngx_http_kv_router_holder_tokens(const ngx_http_kv_router_holder_t *h)
{
    return h->max_prefill_tokens
           + (uint32_t) ngx_min(h->speed * h->auto_seconds, KVR_TOKENS_MAX);
}


/* the same, of the worker with this number */
uint32_t ngx_http_kv_router_fleet_tokens(ngx_http_kv_router_zone_t *zone,
    uint32_t number);

/*
 * The mark of an address, for kvr_name_read(); 0: the address has no host
 * name.
 */
uint64_t ngx_http_kv_router_name_mark(const char *address);


#endif /* _NGX_HTTP_KV_ROUTER_FLEET_H_INCLUDED_ */
