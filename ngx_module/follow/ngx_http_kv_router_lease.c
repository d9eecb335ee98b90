
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Leases: which of the zone's shards this process consumes events for.
 */


#include "ngx_http_kv_router_consumer.h"
#include "../status/ngx_http_kv_router_watch.h"


/*
 * milliseconds between two rounds, and the maximum of random ones added:
 * together a third of KVR_LEASE_MS at most, so that no lease expires
 */
#define NGX_HTTP_KV_ROUTER_LEASE_MIN      100
#define NGX_HTTP_KV_ROUTER_LEASE_JITTER   100

/*
 * milliseconds between two rounds while a lease is free; milliseconds after
 * which any process can take a free lease
 */
#define NGX_HTTP_KV_ROUTER_LEASE_SOON     20
#define NGX_HTTP_KV_ROUTER_LEASE_SPREAD   500


static ngx_uint_t ngx_http_kv_router_lease_all(
    ngx_http_kv_router_consumer_t *c);
static kvr_rc_t ngx_http_kv_router_lease_shard(
    ngx_http_kv_router_consumer_t *c, uint32_t shard);
static void ngx_http_kv_router_lease_taken(ngx_http_kv_router_consumer_t *c,
    uint32_t shard);


void
ngx_http_kv_router_lease_handler(ngx_event_t *ev)
{
    ngx_msec_t                      next;
    ngx_connection_t               *dummy;
    ngx_http_kv_router_consumer_t  *c;

    dummy = ev->data;
    c = dummy->data;

    if (ngx_exiting || ngx_terminate || ngx_quit) {
        ngx_http_kv_router_consumer_stop(c->zone);
        return;
    }

    next = NGX_HTTP_KV_ROUTER_LEASE_MIN
           + ngx_random() % NGX_HTTP_KV_ROUTER_LEASE_JITTER;

    if (ngx_http_kv_router_lease_all(c)) {
        next = NGX_HTTP_KV_ROUTER_LEASE_SOON;
    }

    if (c->leased) {
        ngx_http_kv_router_snapshot_tick(c);
    }

    if (c->leased && (c->nactive || c->nwanted)) {
        ngx_http_kv_router_consumer_wake(c);
    }

    if (c->leased) {
        ngx_http_kv_router_members_look(&c->members);
        ngx_http_kv_router_watch(c);
    }

    ngx_add_timer(&c->lease, next);
}


/* Renews leases, takes free ones, gives up lost ones; 1: call again soon. */

static ngx_uint_t
ngx_http_kv_router_lease_all(ngx_http_kv_router_consumer_t *c)
{
    uint32_t    i, n, shard;
    uint64_t    bit;
    ngx_uint_t  soon;

    n = c->zone->params.shards;
    soon = 0;

    for (i = 0; i < n; i++) {

        /* each process begins with another shard */

        shard = (ngx_pid + i) % n;
        bit = (uint64_t) 1 << shard;

        switch (ngx_http_kv_router_lease_shard(c, shard)) {

        case KVR_OK:
            if (!(c->leased & bit)) {
                ngx_http_kv_router_lease_taken(c, shard);
            }

            break;

        case KVR_BUSY:
            soon = 1;
            break;

        default:
            if (c->leased & bit) {
                ngx_http_kv_router_consumer_lost(c);
                soon = 1;
            }

            break;
        }
    }

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "kv_router zone \"%V\": leases of shards %xL are held%s",
                   &c->zone->name, c->leased,
                   soon ? ", others are free or locked" : "");

    /* a former holder of a lease may have overwritten the state */

    ngx_http_kv_router_consumer_say(c);

    return soon;
}


static kvr_rc_t
ngx_http_kv_router_lease_shard(ngx_http_kv_router_consumer_t *c,
    uint32_t shard)
{
    ngx_msec_t  wait;

    wait = 0;

    if (!(c->leased >> shard & 1)) {

        wait = __builtin_popcountll(c->leased)
               * NGX_HTTP_KV_ROUTER_LEASE_SPREAD / c->zone->params.shards;

        /* in a new zone, nobody knows how long a lease is free: wait first */

        if (ngx_current_msec - c->started < wait) {
            return KVR_BUSY;
        }
    }

    return kvr_router_lease(&c->zone->router, shard, wait, ngx_current_msec);
}


static void
ngx_http_kv_router_lease_taken(ngx_http_kv_router_consumer_t *c,
    uint32_t shard)
{
    uint64_t  before;

    before = c->leased;

    c->leased |= (uint64_t) 1 << shard;

    if (c->zone->params.shards == 1) {
        ngx_log_error(NGX_LOG_NOTICE, c->log, 0,
                      "kv_router zone \"%V\": lease is taken",
                      &c->zone->name);
    } else {
        ngx_log_error(NGX_LOG_NOTICE, c->log, 0,
                      "kv_router zone \"%V\": lease of shard %uD is taken",
                      &c->zone->name, shard);
    }

    if (before == 0) {
        if (ngx_http_kv_router_consumer_begin(c) != NGX_OK) {
            kvr_router_lease_release(&c->zone->router);
        }

    } else if (c->up) {
        c->not_syncing |= (uint64_t) 1 << shard;
    }
}
