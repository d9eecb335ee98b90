
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the log is told of peers, once each: who came and who went, and that
 * bounds are divided.
 */


#include "ngx_http_kv_router_sync.h"


/* milliseconds after the first peer was met, when shares are known */
#define NGX_HTTP_KV_ROUTER_SYNC_DIVIDED  2500


static const kvr_peer_t *
ngx_http_kv_router_sync_peer(const kvr_peer_t *peers, uint32_t n,
    uint64_t router)
{
    uint32_t  i;

    for (i = 0; i < n && peers[i].router != router; i++) { /* void */ }

    return i < n ? &peers[i] : NULL;
}


/* One bound is the example: the zone's, or that of the first worker. */

static void
ngx_http_kv_router_sync_divided(ngx_http_kv_router_sync_t *s)
{
    uint32_t            i, bound, flags, generation;
    const char         *of;
    kvr_router_t       *router;
    kvr_worker_conf_t   conf;

    router = &s->zone->run.router;
    bound = s->zone->conf.max_active;
    of = "the zone";

    for (i = 0; bound == 0 && i < kvr_router_workers(router); i++) {

        if (kvr_router_read_worker(router, i, &conf, &flags, &generation)
            == KVR_OK
            && !(flags & KVR_WORKER_DELETED))
        {
            bound = conf.max_active;
            of = conf.id;
        }
    }

    if (bound) {
        ngx_http_kv_router_warn(s->zone, NGX_LOG_NOTICE, s->log,
                                "each max_active is for %uD routers now: "
                                "max_active=%uD of %s is %uD here",
                                s->npeers + 1, bound, of,
                                kvr_peers_part(&router->peers, bound));
    }
}


/*
 * A peer has no name until its first full message.  What a channel says makes
 * a line for each peer and look at most, however much it says.
 */

void
ngx_http_kv_router_sync_look(ngx_http_kv_router_sync_t *s)
{
    uint32_t           i, n;
    kvr_peer_t         now[KVR_PEERS_MAX];
    const kvr_peer_t  *peer, *was;

    n = kvr_peers_read(&s->zone->run.router.peers, now);

    for (i = 0; i < s->npeers; i++) {
        peer = &s->peers[i];

        if (peer->name[0]
            && ngx_http_kv_router_sync_peer(now, n, peer->router) == NULL)
        {
            ngx_http_kv_router_warn(s->zone, NGX_LOG_NOTICE, s->log,
                                    peer->state == KVR_PEER_SILENT
                                    ? "peer \"%s\" is silent, and counts no "
                                      "more: %uD router%s the load"
                                    : "peer \"%s\" has left: %uD router%s "
                                      "the load", peer->name, n + 1,
                                    n ? "s share" : " has");
        }
    }

    for (i = 0; i < n; i++) {
        peer = &now[i];
        was = ngx_http_kv_router_sync_peer(s->peers, s->npeers, peer->router);

        if (peer->name[0] && (was == NULL || was->name[0] == '\0')) {
            ngx_http_kv_router_warn(s->zone, NGX_LOG_NOTICE, s->log,
                                    "peer \"%s\" of version %s is heard: %uD "
                                    "routers share the load", peer->name,
                                    peer->version, n + 1);
        }
    }

    if (s->npeers == 0 && n && !s->zone->conf.sync.bounds_own) {
        s->divided = ngx_current_msec + NGX_HTTP_KV_ROUTER_SYNC_DIVIDED;
    }

    s->npeers = n;
    ngx_memcpy(s->peers, now, n * sizeof(kvr_peer_t));

    if (s->divided && n
        && (ngx_msec_int_t) (ngx_current_msec - s->divided) >= 0)
    {
        s->divided = 0;
        ngx_http_kv_router_sync_divided(s);
    }
}
