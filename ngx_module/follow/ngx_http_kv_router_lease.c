
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Leases: which of the zone's shards this process consumes events for.
 */


#include "ngx_http_kv_router_consumer.h"


/* milliseconds after which any process can take a free lease */
#define NGX_HTTP_KV_ROUTER_LEASE_SPREAD   500


static kvr_rc_t ngx_http_kv_router_lease_shard(
    ngx_http_kv_router_zone_t *zone, uint64_t held, ngx_msec_t started,
    uint32_t shard);
static void ngx_http_kv_router_lease_taken(ngx_http_kv_router_zone_t *zone,
    uint32_t shard);


ngx_uint_t
ngx_http_kv_router_leases(ngx_http_kv_router_zone_t *zone, uint64_t leased,
    ngx_msec_t started, uint64_t *held)
{
    uint32_t    i, n, shard;
    uint64_t    bit;
    ngx_uint_t  soon;

    n = zone->conf.params.shards;
    soon = 0;

    *held = leased;

    for (i = 0; i < n; i++) {

        /* each process begins with another shard */

        shard = (ngx_pid + i) % n;
        bit = (uint64_t) 1 << shard;

        switch (ngx_http_kv_router_lease_shard(zone, *held, started, shard)) {

        case KVR_OK:
            if (!(*held & bit)) {
                *held |= bit;
                ngx_http_kv_router_lease_taken(zone, shard);
            }

            break;

        case KVR_BUSY:
            soon = 1;
            break;

        default:
            *held &= ~bit;
            break;
        }
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "kv_router zone \"%V\": leases of shards %xL are held%s",
                   &zone->conf.name, *held,
                   soon ? ", others are free or locked" : "");

    return soon;
}


static kvr_rc_t
ngx_http_kv_router_lease_shard(ngx_http_kv_router_zone_t *zone, uint64_t held,
    ngx_msec_t started, uint32_t shard)
{
    ngx_msec_t  wait;

    wait = 0;

    if (!(held >> shard & 1)) {

        wait = __builtin_popcountll(held) * NGX_HTTP_KV_ROUTER_LEASE_SPREAD
               / zone->conf.params.shards;

        /* in a new zone, nobody knows how long a lease is free: wait first */

        if (ngx_current_msec - started < wait) {
            return KVR_BUSY;
        }
    }

    return kvr_router_lease(&zone->run.router, shard, wait, ngx_current_msec);
}


static void
ngx_http_kv_router_lease_taken(ngx_http_kv_router_zone_t *zone, uint32_t shard)
{
    if (zone->conf.params.shards == 1) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "kv_router zone \"%V\": this process now applies "
                      "events", &zone->conf.name);
        return;
    }

    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                  "kv_router zone \"%V\": this process now applies events of "
                  "shard %uD", &zone->conf.name, shard);
}
