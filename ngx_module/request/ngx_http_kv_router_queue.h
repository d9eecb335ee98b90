
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A process's part of the queue of a zone, see admission/kvr_admit.h.
 */


#ifndef _NGX_HTTP_KV_ROUTER_QUEUE_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_QUEUE_H_INCLUDED_


#include "../module/ngx_http_kv_router_module.h"


#define NGX_HTTP_KV_ROUTER_FREED    64    /* more: all workers are looked at */
#define NGX_HTTP_KV_ROUTER_OUTPUTS  1024  /* tenants whose answers are known */


/* a class or a tenant of the configuration */

typedef struct {
    ngx_str_t                       name;
    uint64_t                        hash;
} ngx_http_kv_router_queue_name_t;


/* the length of a tenant's answers; of another tenant with the same place the
   record begins anew */

typedef struct {
    uint64_t                        name;
    double                          tokens;    /* the mean */
} ngx_http_kv_router_output_t;


/* the workers of a pool, counted for a version of the fleet, once a second */

typedef struct {
    uint32_t                        version;
    time_t                          at;
    uint32_t                        workers;
    uint32_t                        healthy;   /* of them */
    uint32_t                        places;    /* 0: no bound */
} ngx_http_kv_router_pool_t;


struct ngx_http_kv_router_queue_s {
    ngx_http_kv_router_zone_t      *zone;
    kvr_admit_t                     admit;

    /* as the newest kv.new() has them */

    kvr_rules_t                     rules;
    ngx_http_kv_router_queue_name_t  classes[KVR_RULES_CLASSES];
    ngx_http_kv_router_queue_name_t  tenants[KVR_RULES_TENANTS];
    ngx_msec_t                      pending;   /* since when the zone has not
                                                  got all of them; 0: it has */

    /* by entry: the requests of this process that wait */

    struct ngx_http_kv_router_ctx_s  **waiting;
    ngx_uint_t                      nwaiting;

    ngx_event_t                     timer;
    ngx_connection_t                dummy;
    ngx_event_t                     look;      /* at the end of this turn, */
    uint32_t                        freed[NGX_HTTP_KV_ROUTER_FREED];
    ngx_uint_t                      nfreed;    /* at these holders */
    uint32_t                        turn;      /* of the pools */
    ngx_connection_t               *socket;    /* NULL: wakes come by the
                                                  timer alone */
    ngx_http_kv_router_output_t     outputs[NGX_HTTP_KV_ROUTER_OUTPUTS];
    ngx_http_kv_router_pool_t       pools[KVR_ADMIT_POOLS];
};


#endif /* _NGX_HTTP_KV_ROUTER_QUEUE_H_INCLUDED_ */
