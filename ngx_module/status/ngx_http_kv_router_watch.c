
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "ngx_http_kv_router_watch.h"
#include "ngx_http_kv_router_stats.h"


/* milliseconds that a worker may be silent after this router subscribed */

#define NGX_HTTP_KV_ROUTER_WATCH_SILENCE  60000

/* milliseconds between two looks at all workers */

#define NGX_HTTP_KV_ROUTER_WATCH_PERIOD   5000

/* the number of lookups without a match that can't be an accident any more */

#define NGX_HTTP_KV_ROUTER_WATCH_LOOKUPS  1000


static bool ngx_http_kv_router_heard(ngx_http_kv_router_zone_t *zone,
    uint32_t number);
static void ngx_http_kv_router_watch_worker(ngx_http_kv_router_consumer_t *c,
    uint32_t slot);


kvr_confidence_t
ngx_http_kv_router_confidence(ngx_http_kv_router_zone_t *zone,
    const kvr_worker_t *w, uint32_t number)
{
    return kvr_fleet_confidence(w, ngx_current_msec, zone->stale,
                                ngx_http_kv_router_heard(zone, number), NULL);
}


const char *
ngx_http_kv_router_reason(ngx_http_kv_router_zone_t *zone,
    const kvr_worker_t *w, uint32_t number)
{
    const char  *reason;

    if (zone->redis && kvr_load32(&w->stream.source) == KVR_SOURCE_NONE) {
        return "no_events";
    }

    (void) kvr_fleet_confidence(w, ngx_current_msec, zone->stale,
                                ngx_http_kv_router_heard(zone, number),
                                &reason);
    return reason;
}


/* Are messages of the worker received, or is there nobody to receive them? */

static bool
ngx_http_kv_router_heard(ngx_http_kv_router_zone_t *zone, uint32_t number)
{
    return zone->redis == NULL
           || zone->sh->redis_up[kvr_router_worker_shard(&zone->router,
                                                         number)];
}


ngx_uint_t
ngx_http_kv_router_never_matched(ngx_http_kv_router_zone_t *zone)
{
    kvr_stats_t  stats;

    if (zone->sh->lookups < NGX_HTTP_KV_ROUTER_WATCH_LOOKUPS
        || zone->sh->lookups_matched)
    {
        return 0;
    }

    kvr_router_stats(&zone->router, &stats);

    return stats.pairs != 0;
}


void
ngx_http_kv_router_watch_lookup(ngx_http_kv_router_zone_t *zone,
    uint32_t found)
{
    (void) ngx_atomic_fetch_add(&zone->sh->lookups, 1);

    if (found) {
        (void) ngx_atomic_fetch_add(&zone->sh->lookups_matched, 1);
    }
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

    if (!c->unmatched && ngx_http_kv_router_never_matched(c->zone)) {
        c->unmatched = 1;

        ngx_log_error(NGX_LOG_WARN, c->log, 0,
                      "kv_router zone \"%V\": blocks are held, but none of "
                      "%uA prompts ever found one: are the tokenizer, the "
                      "LoRA names and the cache salts those of the engines?",
                      &c->zone->name, c->zone->sh->lookups);
    }

    if (!c->up || now - c->started < NGX_HTTP_KV_ROUTER_WATCH_SILENCE) {
        return;
    }

    n = ngx_min(kvr_router_workers(&c->zone->router),
                c->follow.repairs.nlanes);

    for (i = 0; i < n; i++) {
        ngx_http_kv_router_watch_worker(c, i);
    }
}


static void
ngx_http_kv_router_watch_worker(ngx_http_kv_router_consumer_t *c,
    uint32_t slot)
{
    uint32_t              flags, generation;
    const kvr_worker_t   *w;
    kvr_worker_conf_t     conf;

    w = kvr_router_worker(&c->zone->router, slot);

    if (c->follow.repairs.lanes[slot].unheard
        || !(c->leased >> kvr_router_worker_shard(&c->zone->router, slot) & 1)
        || kvr_load32(&w->stream.source) != KVR_SOURCE_NONE
        || kvr_router_read_worker(&c->zone->router, slot, &conf, &flags,
                                  &generation) != KVR_OK
        || flags & KVR_WORKER_DELETED)
    {
        return;
    }

    c->follow.repairs.lanes[slot].unheard = 1;

    ngx_log_error(NGX_LOG_WARN, c->log, 0,
                  "kv_router zone \"%V\": no event of worker \"%s\" was ever "
                  "received: is its kv-relay running, and its channel among "
                  "those of kv_router_redis?", &c->zone->name, conf.id);
}
