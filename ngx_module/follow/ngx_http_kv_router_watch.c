
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_watch.h"


/* looks at a worker without any event before that is told */

#define NGX_HTTP_KV_ROUTER_WATCH_UNHEARD  12

/* milliseconds between two looks at all workers */

#define NGX_HTTP_KV_ROUTER_WATCH_PERIOD   5000

static bool ngx_http_kv_router_heard(ngx_http_kv_router_zone_t *zone,
    uint32_t number);
static void ngx_http_kv_router_watch_worker(ngx_http_kv_router_consumer_t *c,
    uint32_t slot);


kvr_confidence_t
ngx_http_kv_router_confidence(ngx_http_kv_router_zone_t *zone,
    const kvr_worker_t *w, uint32_t number)
{
    return kvr_fleet_confidence(w, ngx_current_msec, zone->conf.stale,
                                ngx_http_kv_router_heard(zone, number), NULL);
}


const char *
ngx_http_kv_router_reason(ngx_http_kv_router_zone_t *zone,
    const kvr_worker_t *w, uint32_t number)
{
    const char  *reason;

    if (zone->conf.redis && kvr_load32(&w->stream.source) == KVR_SOURCE_NONE) {
        return "no_events";
    }

    (void) kvr_fleet_confidence(w, ngx_current_msec, zone->conf.stale,
                                ngx_http_kv_router_heard(zone, number),
                                &reason);
    return reason;
}


/* Are messages of the worker received, or is there nobody to receive them? */

static bool
ngx_http_kv_router_heard(ngx_http_kv_router_zone_t *zone, uint32_t number)
{
    return zone->conf.redis == NULL
           || zone->run.sh->redis_up[kvr_router_worker_shard(&zone->run.router,
                                                             number)];
}


void
ngx_http_kv_router_watch(ngx_http_kv_router_consumer_t *c)
{
    uint32_t    i, n;
    ngx_msec_t  now;

    now = ngx_current_msec;

    if ((ngx_msec_int_t) (now - c->watched) < NGX_HTTP_KV_ROUTER_WATCH_PERIOD)
    {
        return;
    }

    c->watched = now;

    if (!c->up) {
        return;
    }

    n = ngx_min(kvr_router_workers(&c->zone->run.router),
                c->follow.repairs.nlanes);

    for (i = 0; i < n; i++) {
        ngx_http_kv_router_watch_worker(c, i);
    }
}


static void
ngx_http_kv_router_watch_worker(ngx_http_kv_router_consumer_t *c,
    uint32_t slot)
{
    bool                        silent;
    uint32_t                    flags, generation, shard;
    ngx_msec_t                  now;
    const char                 *reason;
    kvr_lane_t                 *lane;
    const kvr_worker_t         *w;
    kvr_worker_conf_t           conf;
    ngx_http_kv_router_zone_t  *zone;

    now = ngx_current_msec;
    zone = c->zone;
    w = kvr_router_worker(&zone->run.router, slot);
    shard = kvr_router_worker_shard(&zone->run.router, slot);
    lane = &c->follow.repairs.lanes[slot];

    if (!(c->leased >> shard & 1)
        || kvr_router_read_worker(&zone->run.router, slot, &conf, &flags,
                                  &generation) != KVR_OK
        || flags & KVR_WORKER_DELETED)
    {
        return;
    }

    if (kvr_load32(&w->stream.source) == KVR_SOURCE_NONE) {

        if (conf.events_off
            || lane->unheard > NGX_HTTP_KV_ROUTER_WATCH_UNHEARD
            || lane->unheard++ < NGX_HTTP_KV_ROUTER_WATCH_UNHEARD)
        {
            return;
        }

        ngx_http_kv_router_warn(zone, NGX_LOG_ERR, c->log,
                                "no event of worker \"%s\" was ever received, "
                                "on the channels \"%V\": start a kv-relay "
                                "with this --worker and that --channel, or "
                                "write events=off for an engine without "
                                "events", conf.id, &zone->conf.redis->channel);
        return;
    }

    /* after a break of the connection publishers have time to be heard */

    if (ngx_time() - zone->run.sh->redis_changed[shard]
        <= (time_t) (zone->conf.stale / 1000))
    {
        return;
    }

    (void) kvr_fleet_confidence(w, now, zone->conf.stale, true, &reason);
    silent = ngx_strcmp(reason, "silent") == 0;

    if (silent == lane->silent) {
        return;
    }

    lane->silent = silent;

    if (silent) {
        ngx_http_kv_router_warn(zone, NGX_LOG_ERR, c->log,
                                "nothing was heard of worker \"%s\" for %uL "
                                "ms, so its view is DEGRADED: is its kv-relay "
                                "running, and does it reach Redis?",
                                conf.id, now - kvr_load64(&w->stream.last_ms));

    } else {
        ngx_log_error(NGX_LOG_NOTICE, c->log, 0,
                      "kv_router zone \"%V\": worker \"%s\" is heard again",
                      &zone->conf.name, conf.id);
    }
}
