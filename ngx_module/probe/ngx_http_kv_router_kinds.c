
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The kinds of rounds that there are.
 */


#include "ngx_http_kv_router_rounds.h"


static const ngx_http_kv_router_rounds_kind_t  *ngx_http_kv_router_kinds[] = {
    &ngx_http_kv_router_checks,
    &ngx_http_kv_router_scrapes,
    &ngx_http_kv_router_probes,
    &ngx_http_kv_router_lookups
};


ngx_int_t
ngx_http_kv_router_rounds_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_HTTP_KV_ROUTER_ROUNDS; i++) {
        if (ngx_http_kv_router_kinds[i]->wanted(zone)
            && ngx_http_kv_router_rounds_begin(cycle, zone,
                                               ngx_http_kv_router_kinds[i])
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return ngx_http_kv_router_named_start(cycle, zone);
}
