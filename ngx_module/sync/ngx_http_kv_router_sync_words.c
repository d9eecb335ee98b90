
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the log is told of peers, once each: who came and who went, and which
 * bounds are divided.
 */


#include "ngx_http_kv_router_sync.h"


/* milliseconds after the first peer was met, when shares are known */
#define NGX_HTTP_KV_ROUTER_SYNC_DIVIDED  2500

/* bounds of the same number are one line, and so many lines are enough */
#define NGX_HTTP_KV_ROUTER_SYNC_BOUNDS   8


typedef struct {
    uint32_t                        bound;
    const char                     *more;
    char                            id[KVR_WORKER_ID_MAX + 1];
} ngx_http_kv_router_sync_bound_t;


static void ngx_http_kv_router_sync_bounds(ngx_http_kv_router_sync_t *s);
static void ngx_http_kv_router_sync_bound(ngx_http_kv_router_sync_t *s,
    uint32_t bound, const char *of, const char *more);


void
ngx_http_kv_router_sync_met(ngx_http_kv_router_sync_t *s,
    const kvr_peer_t *peer)
{
    uint32_t  i;

    for (i = 0; i < s->npeers; i++) {
        if (s->peers[i].router == peer->router) {
            return;
        }
    }

    if (s->npeers == 0 && !s->zone->conf.sync.bounds_own) {
        s->divided = ngx_current_msec + NGX_HTTP_KV_ROUTER_SYNC_DIVIDED;
    }

    if (s->npeers < KVR_PEERS_MAX) {
        s->peers[s->npeers++] = *peer;
    }

    ngx_http_kv_router_warn(s->zone, NGX_LOG_NOTICE, s->log,
                            "peer \"%s\" of version %s is heard: %uD routers "
                            "share the load", peer->name, peer->version,
                            s->npeers + 1);
}


/* Looks for peers that were there, and are not any more. */

void
ngx_http_kv_router_sync_look(ngx_http_kv_router_sync_t *s)
{
    uint32_t    i, k, n;
    kvr_peer_t  now[KVR_PEERS_MAX];

    n = kvr_peers_read(&s->zone->run.router.peers, now);

    for (i = 0; i < s->npeers; i++) {

        for (k = 0; k < n && now[k].router != s->peers[i].router; k++) {
            /* void */
        }

        if (k < n) {
            continue;
        }

        ngx_http_kv_router_warn(s->zone, NGX_LOG_NOTICE, s->log,
                                s->peers[i].state == KVR_PEER_SILENT
                                ? "peer \"%s\" is silent, and counts no more: "
                                  "%uD router%s the load"
                                : "peer \"%s\" has left: %uD router%s the "
                                  "load", s->peers[i].name, n + 1,
                                n ? "s share" : " has");
    }

    s->npeers = n;
    ngx_memcpy(s->peers, now, n * sizeof(kvr_peer_t));

    if (s->divided && n
        && (ngx_msec_int_t) (ngx_current_msec - s->divided) >= 0)
    {
        s->divided = 0;
        ngx_http_kv_router_sync_bounds(s);
    }
}


static void
ngx_http_kv_router_sync_bounds(ngx_http_kv_router_sync_t *s)
{
    uint32_t                          i, k, n, flags, generation;
    kvr_router_t                     *router;
    kvr_worker_conf_t                 conf;
    ngx_http_kv_router_sync_bound_t   bounds[NGX_HTTP_KV_ROUTER_SYNC_BOUNDS];

    router = &s->zone->run.router;
    n = 0;

    if (s->zone->conf.max_active) {
        ngx_http_kv_router_sync_bound(s, s->zone->conf.max_active, "the zone",
                                      "");
    }

    for (i = 0; i < kvr_router_workers(router); i++) {

        if (kvr_router_read_worker(router, i, &conf, &flags, &generation)
            != KVR_OK
            || (flags & KVR_WORKER_DELETED) || conf.max_active == 0)
        {
            continue;
        }

        for (k = 0; k < n && bounds[k].bound != conf.max_active; k++) {
            /* void */
        }

        if (k == NGX_HTTP_KV_ROUTER_SYNC_BOUNDS) {
            continue;
        }

        if (k < n) {
            bounds[k].more = " and others";
            continue;
        }

        n++;
        bounds[k].bound = conf.max_active;
        bounds[k].more = "";
        ngx_memcpy(bounds[k].id, conf.id, sizeof(conf.id));
    }

    for (k = 0; k < n; k++) {
        ngx_http_kv_router_sync_bound(s, bounds[k].bound, bounds[k].id,
                                      bounds[k].more);
    }
}


static void
ngx_http_kv_router_sync_bound(ngx_http_kv_router_sync_t *s, uint32_t bound,
    const char *of, const char *more)
{
    uint32_t  part;

    part = kvr_peers_part(&s->zone->run.router.peers, bound);

    if (part != bound) {
        ngx_http_kv_router_warn(s->zone, NGX_LOG_NOTICE, s->log,
                                "max_active=%uD of %s%s is for %uD routers "
                                "now, %uD here", bound, of, more,
                                s->npeers + 1, part);
    }
}
