
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A process's part of the queue of a zone, see admission/kvr_admit.h.
 */


#ifndef _NGX_HTTP_KV_ROUTER_QUEUE_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_QUEUE_H_INCLUDED_


#include "../module/ngx_http_kv_router_module.h"


typedef struct {
    ngx_str_t                       name;
    uint64_t                        hash;
} ngx_http_kv_router_queue_name_t;


struct ngx_http_kv_router_queue_s {
    ngx_http_kv_router_zone_t      *zone;
    kvr_admit_t                     admit;

    /* as the newest kv.new() has them */

    kvr_rules_t                     rules;
    ngx_http_kv_router_queue_name_t  classes[KVR_RULES_CLASSES];
    ngx_http_kv_router_queue_name_t  tenants[KVR_RULES_TENANTS];
};


#endif /* _NGX_HTTP_KV_ROUTER_QUEUE_H_INCLUDED_ */
